#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the command of a target of plan.mk, and appends a line "part GROUP NAME BEGIN END SECONDS" to
# $TIMES. BEGIN and END are seconds since 1970; SECONDS is the CPU time that the command used. While
# the command is running, a file NAME exists in $RUNNING, from which plan.sh prints its progress
# line.
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
