#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Removes build results.
#   clean.sh               make clean: removes the build results of this clone, and the directories
#                          of clones that no longer exist; the tool chain and kernel trees stay
#   clean.sh everything    make distclean: removes the contents of the cache

IN_USE=none
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# gone PATH: removes a file or a directory, if it exists, and prints its path.
gone() {
	[ -e "$1" ] || return 0
	# Do not cross mounts: directories of the host may still be mounted in a chroot.
	rm -rf --one-file-system "$1"
	say "    removed $1"
}

# wait_until_unused DIRECTORY: waits until no script of a clone runs, and then takes the clone's
# lock. DIRECTORY is the clone's directory in the cache.
wait_until_unused() {
	wait_for -x "$1/in-use.lock" "$(cat "$1/path"), which is in use"
	holder >"$1/in-use.lock"
}

# is_gone DIRECTORY: true if a clone no longer exists. A clone counts as gone if its path is absent,
# nothing in DIRECTORY has changed for a day, and no script of the clone runs. An absent path alone
# does not prove that the clone is gone, because the clone may be in a file system that this process
# cannot see.
is_gone() {
	local path
	path=$(cat "$1/path" 2>/dev/null)
	[ -n "$path" ] && [ ! -e "$path" ] && [ -z "$(find "$1" -maxdepth 2 -mtime -1 -print -quit)" ] && flock -n "$1/in-use.lock" true
}

if [ "${1:-}" = everything ]; then
	for d in "$CACHE"/clones/*; do wait_until_unused "$d"; done
	for d in "$CACHE"/*; do gone "$d"; done
else
	wait_until_unused "$CLONE"
	# Scripts that were killed have left the directories run.PID.
	for d in "$CLONE"/{build,target,image,deb,run.*,logs/run.*}; do gone "$d"; done
	for d in "$CACHE"/clones/*; do
		[ "$d" = "$CLONE" ] || ! is_gone "$d" || gone "$d"
	done
fi
