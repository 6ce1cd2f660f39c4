# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Makes build results usable after a clone was removed and the repository was cloned again at the
# same path, as continuous integration does. All files of the new clone have new times, and make and
# cargo, which compare only times, would build everything again. test.sh and build.sh source this
# file.
#
# $CLONE/times has the id of the clone, and then a line "BLOB SECONDS PATH" for each file: the hash
# of its contents in git, and the time of the first build from these contents. The list is written
# before each build, so that it describes the files of the last build. $CLONE/times is removed
# before a build of files that are not committed.

: "${TOP:?}" "${CLONE:?}"

# is_committed: true if the work tree has no changes and no new files.
is_committed() {
	local changes
	changes=$(git -C "$TOP" status --porcelain 2>/dev/null) && [ -z "$changes" ]
}

# restore_times: restores the times of files in a new clone, and then writes $CLONE/times. A file
# gets its time from $CLONE/times if its contents have not changed since the last build.
restore_times() {
	local list=$CLONE/times id seconds
	is_committed || { rm -f "$list"; return; }
	# If .git was created again, its inode number and its time of birth differ.
	id=$(stat -c '%i %W' "$TOP/.git")
	git -C "$TOP" ls-files -s | awk -v now="$EPOCHSECONDS" -v id="$id" '
		FILENAME != "-" { if (FNR > 1) time[$1 " " $3] = $2; next }
		FNR == 1 { print id }
		{ print $2, ($2 " " $4 in time ? time[$2 " " $4] : now), $4 }' "$([ -e "$list" ] && echo "$list" || echo /dev/null)" - >"$list.$$"
	if [ -e "$list" ] && [ "$id" != "$(head -n 1 "$list")" ]; then
		for seconds in $(tail -n +2 "$list.$$" | cut -d' ' -f2 | sort -u | grep -vx "$EPOCHSECONDS"); do
			(cd "$TOP" && awk -v s="$seconds" 'NR > 1 && $2 == s { print $3 }' "$list.$$" | xargs touch -d "@$seconds")
		done
	fi
	mv "$list.$$" "$list"
}
