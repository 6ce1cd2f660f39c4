# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Keeps the lists of whole test runs in the cache. Sourced by test.sh. A run is whole if the user
# set none of ONLY, WORLDS, KERNEL_RELEASE, GUEST, PMU, SMP, MEM and APPEND.
#   runs    all whole runs: "TREE TIME TARGET PASSED/FAILED/SKIPPED LOAD SECONDS IDLE UNITS"; UNITS
#           are the units that needed a second attempt, separated by commas, or "-"
#   proved  the runs of a committed tree without a failure: "TREE TIME TARGET PASSED/FAILED/SKIPPED"

: "${TOP:?}" "${CACHE:?}"

# is_whole: true if the run is whole. Must be called before the rig sets some of these variables.
is_whole() {
	[ -z "${ONLY:-}${WORLDS:-}${KERNEL_RELEASE:-}${GUEST:-}${PMU:-}${SMP:-}${MEM:-}${APPEND:-}" ]
}

# committed_tree: prints the hash of HEAD's tree, or "-" if the work tree has changes or new files.
committed_tree() {
	local tree status
	tree=$(git -C "$TOP" rev-parse 'HEAD^{tree}' 2>/dev/null) && status=$(git -C "$TOP" status --porcelain 2>/dev/null) &&
		[ -z "$status" ] && echo "$tree" || echo -
}

# remember TREE TARGET PASSED FAILED SKIPPED SECONDS IDLE: adds a whole run to the lists. TREE is
# the committed tree at its beginning. If it differs now, the run is listed without a tree.
remember() {
	local line tree=$1
	[ "$tree" = "$(committed_tree)" ] || tree=-
	line="$tree $(date -u +%FT%TZ) $2 $3/$4/$5"
	# One write for each line, as other clones append to these files at the same time.
	printf '%s\n' "$line ${LOAD:-0} $6 $7 $(sort -u "${work:-}/second" 2>/dev/null | paste -sd, | grep . || echo -)" >>"$CACHE/runs"
	[ "$4" != 0 ] || [ "$3" = 0 ] || [ "$tree" = - ] || printf '%s\n' "$line" >>"$CACHE/proved"
}
