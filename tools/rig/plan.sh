#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes targets of a makefile (plan.mk) with GNU make, at most SLOTS targets at a time. By default
# SLOTS is the number of CPUs plus one, because guests and downloads leave some CPU time unused. On
# a terminal a progress line shows the targets that are being made.
# Usage: plan.sh [-f MAKEFILE] [TARGET...]    (without -f: plan.mk)

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
plan=$TOP/tools/rig/plan.mk
[ "${1:-}" != -f ] || { plan=$2; shift 2; }

RUNNING=$CLONE/running.$$
export RUNNING TIMES=${TIMES:-}
mkdir -p "$RUNNING"
trap 'rm -rf "$RUNNING"' EXIT
exec {messages}> >(sed -u -e '/^make.*: \(\*\*\*\|Target\)/d' -e "s/^/$clear_line/" >&2)
filter=$!
make -C "$TOP" --no-print-directory -s -k -j"${SLOTS:-$((JOBS + 1))}" -f "$plan" "$@" </dev/null 2>&"$messages" {messages}>&- &
pid=$!
exec {messages}>&-
trap 'kill_tree "$pid"; exit 130' INT TERM HUP
while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
	# shellcheck disable=SC2012 # one name a line
	shown=$(ls -tr "$RUNNING" | while read -r part; do printf '%s %ds, ' "$part" $((EPOCHSECONDS - $(stat -c %Y "$RUNNING/$part" 2>/dev/null || echo "$EPOCHSECONDS"))); done)
	printf '%s    %s' "$clear_line" "$(cut -c1-100 <<<"${shown%, }")" >&2
	sleep 0.5
done
wait "$pid" && rc=0 || rc=$?
# Without this wait, the script could end before the filter has printed the last messages.
wait "$filter"
printf '%s' "$clear_line" >&2
exit "$rc"
