#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that tools/perfmon/src/constraints/intel.rs has the event constraints of the kernel's
# source. This command updates intel.rs after a change of the kernel's source:
#
#	tests/host/constraints.sh update

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
table=$TOP/tools/perfmon/src/constraints/intel.rs
x86=${KTREE:?}/arch/x86

made=$(python3 "$TOP/tests/host/lib/constraints.py" "$x86/include/asm/intel-family.h" "$x86/events/intel/core.c" \
	"$RELEASE")
if [ "${1:-}" = update ]; then
	printf '%s\n' "$made" >"$table"
	exit
fi
plan 3
# The test compares the table only with the kernel release that the table was made from, because
# another release may have other rules.
made_from=$(sed -n 's,^//! .* in Linux \([0-9.]*\)\.$,\1,p' "$table")
name="1.16 constraints: the table has the rules of perf in this kernel"
case $RELEASE in
"$made_from".*) nothing "$name" "$(diff <(printf '%s\n' "$made") "$table" | head -n 20)" ;;
*)
	n=$((n + 1))
	echo "ok $n $name # SKIP the table was made from Linux $made_from"
	;;
esac
nr=$(grep -c 'rule(' "$table")
result "$([ "$nr" -ge 100 ]; echo $?)" "1.16 constraints: the table has at least 100 rules ($nr)" "$nr"
nr=$(grep -c ' extra_msr(\|\[extra_msr(' "$table")
result "$([ "$nr" -ge 30 ]; echo $?)" "1.16 constraints: the table has at least 30 events with a second register ($nr)" "$nr"
exit $failed
