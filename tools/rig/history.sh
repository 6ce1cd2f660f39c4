# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Keeps two lists of whole test runs in the cache. A test run is whole if the user set none of the
# variables ONLY, WORLDS, KERNEL_RELEASE, GUEST, PMU, SMP, MEM and APPEND. test.sh sources this
# file.
#   runs    a line "TREE TIME TARGET PASSED/FAILED/SKIPPED LOAD SECONDS IDLE UNITS" for each whole
#           test run. UNITS are the units that needed a second attempt, separated by commas, or "-".
#   proved  a line "TREE TIME TARGET PASSED/FAILED/SKIPPED" for each whole test run of a committed
#           tree without a failure.

: "${TOP:?}" "${CACHE:?}"

# is_whole: true if no variable such as ONLY or WORLDS restricts the test run. Call is_whole before
# a script of tools/rig itself sets one of the variables that is_whole reads.
is_whole() {
	[ -z "${ONLY:-}${WORLDS:-}${KERNEL_RELEASE:-}${GUEST:-}${PMU:-}${SMP:-}${MEM:-}${APPEND:-}" ]
}

# committed_tree: prints the hash of HEAD's tree in git, or "-" if the work tree has changes or new
# files.
committed_tree() {
	local tree status
	tree=$(git -C "$TOP" rev-parse 'HEAD^{tree}' 2>/dev/null) && status=$(git -C "$TOP" status --porcelain 2>/dev/null) &&
		[ -z "$status" ] && echo "$tree" || echo -
}

# remember TREE TARGET PASSED FAILED SKIPPED SECONDS IDLE: adds a test run to `runs` and, if no test
# failed, to `proved`. TREE is the committed tree at the beginning of the test run. If the tree has
# changed during the test run, the line in `runs` has "-" in place of the tree, and `proved` gets no
# line.
remember() {
	local line tree=$1
	[ "$tree" = "$(committed_tree)" ] || tree=-
	line="$tree $(date -u +%FT%TZ) $2 $3/$4/$5"
	# Write each line by one call of write(), because other clones may append to the files at
	# the same time.
	printf '%s\n' "$line ${LOAD:-0} $6 $7 $(sort -u "${work:-}/second" 2>/dev/null | paste -sd, | grep . || echo -)" >>"$CACHE/runs"
	[ "$4" != 0 ] || [ "$3" = 0 ] || [ "$tree" = - ] || printf '%s\n' "$line" >>"$CACHE/proved"
}
