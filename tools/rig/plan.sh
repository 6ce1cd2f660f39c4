#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes parts of a plan, as many at a time as SLOTS says: by default as there are processors
# and one, as a guest or a download leaves some of its own idle. GNU make orders them.
# Usage: plan.sh [-f MAKEFILE] [PART...]    (without -f: plan.mk)
# On a terminal, a line shows what runs.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
plan=$TOP/tools/rig/plan.mk
[ "${1:-}" != -f ] || { plan=$2; shift 2; }

RUNNING=$CLONE/running.$$
export RUNNING TIMES=${TIMES:-}
mkdir -p "$RUNNING"
trap 'rm -rf "$RUNNING"' EXIT
make -C "$TOP" --no-print-directory -s -k -j"${SLOTS:-$((JOBS + 1))}" -f "$plan" "$@" </dev/null 2> >(sed -u -e '/^make.*: \(\*\*\*\|Target\)/d' -e "s/^/$clear_line/" >&2) &
pid=$!
trap 'kill_tree "$pid"; exit 130' INT TERM HUP
while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
	# shellcheck disable=SC2012 # names of ours
	shown=$(ls -tr "$RUNNING" | while read -r part; do printf '%s %ds, ' "$part" $((EPOCHSECONDS - $(stat -c %Y "$RUNNING/$part" 2>/dev/null || echo "$EPOCHSECONDS"))); done)
	printf '%s    %s' "$clear_line" "$(cut -c1-100 <<<"${shown%, }")" >&2
	sleep 0.5
done
wait "$pid" && rc=0 || rc=$?
printf '%s' "$clear_line" >&2
exit "$rc"
