#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs a part of a plan (plan.mk), and keeps when it began and ended and the processor
# time that it took in $TIMES, a line "part GROUP NAME BEGIN END SECONDS". While it runs,
# $RUNNING has a file of its name.
# Usage: timed.sh GROUP NAME COMMAND...

group=$1 name=$2
shift 2
running=${RUNNING:+$RUNNING/${name//\//.}}
[ -z "$running" ] || : >"$running"
begin=$EPOCHSECONDS rc=0
TIMEFORMAT='%U %S'
exec 3>&1 4>&2
seconds=$( { time "$@" >&3 2>&4; } 2>&1) || rc=$?
[ -z "$running" ] || rm -f "$running"
[ -z "${TIMES:-}" ] || awk -v g="$group" -v n="$name" -v b="$begin" -v e="$EPOCHSECONDS" \
	'{ print "part", g, n, b, e, $1 + $2 }' <<<"$seconds" >>"$TIMES"
[ $rc = 0 ] || echo "    $name failed (status $rc)" >&2
exit $rc
