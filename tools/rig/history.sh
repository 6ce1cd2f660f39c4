# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Keeps two lists of whole test runs in the cache. A test run is whole if the user set none of the
# variables that is_whole() reads. test.sh sources this file.
#   runs    a line "TREE TIME TARGET PASSED/FAILED/SKIPPED LOAD SECONDS IDLE UNITS" for each whole
#           test run. UNITS are the tests that needed a second attempt (see retry.sh), separated by
#           commas, or "-".
#   proved  a line "TREE TIME TARGET PASSED/FAILED/SKIPPED" for each whole test run of a committed
#           tree without a failure.

: "${TOP:?}" "${CACHE:?}"

# is_whole: true if no variable such as ONLY or WORLDS restricts or changes the tests. Call is_whole
# before a script of tools/rig itself sets one of the variables that is_whole reads. lib.sh sets
# PATIENCE, by default to 1 + LOAD.
is_whole() {
	[ -z "${ONLY:-}${WORLDS:-}${KERNEL_RELEASE:-}${KDIR:-}${GUEST:-}${PMU:-}${SMP:-}${MEM:-}${APPEND:-}${LONG+set}" ] &&
		[ "${PATIENCE:-}" = $((1 + ${LOAD:-0})) ]
}

# committed_tree: prints "TREE COMMIT", the hashes of HEAD's tree and of HEAD, or "- -" if the work
# tree has changes or new files. Settings of git cannot hide a change. The function uses a temporary
# index, in which no file is marked as assume-unchanged. Only the .gitignore files of the tree
# exclude new files.
committed_tree() (
	settings=(-c core.fileMode=true -c core.symlinks=true -c core.autocrlf=false -c core.sparseCheckout=false
		-c core.fsmonitor=false -c core.untrackedCache=false -c core.ignoreStat=false -c submodule.recurse=false)
	# shellcheck disable=SC2046 # names of variables
	unset $(git rev-parse --local-env-vars)
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	export GIT_DIR=$TOP/.git GIT_WORK_TREE=$TOP GIT_INDEX_FILE=$dir/index
	cd "$TOP" || exit
	{
		git "${settings[@]}" read-tree HEAD &&
			{ git "${settings[@]}" update-index -q --refresh || :; } &&
			git "${settings[@]}" diff-files --quiet --ignore-submodules=none &&
			new=$(git "${settings[@]}" ls-files --others --exclude-per-directory=.gitignore) && [ -z "$new" ] &&
			git rev-parse 'HEAD^{tree}' HEAD | paste -sd' '
	} 2>/dev/null || echo "- -"
)

# remember TREE TARGET PASSED FAILED SKIPPED SECONDS IDLE: adds a test run to `runs` and, if no test
# failed, to `proved`. TREE is what committed_tree() printed at the beginning of the test run. If
# the tree or the commit has changed during the test run, the line in `runs` has "-" in place of the
# tree, and `proved` gets no line.
remember() {
	local line tree=${1% *}
	[ "$1" = "$(committed_tree)" ] || tree=-
	line="$tree $(date -u +%FT%TZ) $2 $3/$4/$5"
	# Write each line by one call of write(), because other clones may append to the files at
	# the same time.
	printf '%s\n' "$line ${LOAD:-0} $6 $7 $(sort -u "${work:-}/second" 2>/dev/null | paste -sd, | grep . || echo -)" >>"$CACHE/runs"
	[ "$4" != 0 ] || [ "$3" = 0 ] || [ "$tree" = - ] || printf '%s\n' "$line" >>"$CACHE/proved"
}
