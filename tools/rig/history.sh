# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The cache's lists of whole test runs (test.sh sources this). A run is whole without ONLY,
# WORLDS, KERNEL_RELEASE, GUEST, PMU, SMP, MEM and APPEND.
#   runs    each of them, green or not: "TREE TIME TARGET PASSED/FAILED/SKIPPED LOAD SECONDS IDLE UNITS";
#           UNITS needed a second attempt: names between commas, or "-"
#   proved  the green ones of a tree that was committed: "TREE TIME TARGET PASSED/FAILED/SKIPPED"

: "${TOP:?}" "${CACHE:?}"

# is_whole: by the variables that the user gave. Asked before the rig sets some of them.
is_whole() {
	[ -z "${ONLY:-}${WORLDS:-}${KERNEL_RELEASE:-}${GUEST:-}${PMU:-}${SMP:-}${MEM:-}${APPEND:-}" ]
}

# committed_tree: the hash of the tree, if all of it is committed; else "-".
committed_tree() {
	local tree status
	tree=$(git -C "$TOP" rev-parse 'HEAD^{tree}' 2>/dev/null) && status=$(git -C "$TOP" status --porcelain 2>/dev/null) &&
		[ -z "$status" ] && echo "$tree" || echo -
}

# remember TREE TARGET PASSED FAILED SKIPPED SECONDS IDLE: the end of a whole run; the tree is that
# of its beginning.
remember() {
	local line tree=$1
	[ "$tree" = "$(committed_tree)" ] || tree=-
	line="$tree $(date -u +%FT%TZ) $2 $3/$4/$5"
	# One write each: other clones add to these files, too.
	printf '%s\n' "$line ${LOAD:-0} $6 $7 $(sort -u "${work:-}/second" 2>/dev/null | paste -sd, | grep . || echo -)" >>"$CACHE/runs"
	[ "$4" != 0 ] || [ "$3" = 0 ] || [ "$tree" = - ] || printf '%s\n' "$line" >>"$CACHE/proved"
}
