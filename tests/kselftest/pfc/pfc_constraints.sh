#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-constrained
# timeout: 200
# shellcheck disable=SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests events that only some counters count, as on Haswell: L1D_PEND_MISS.PENDING (0x0148) on
# counter 2, INST_RETIRED.PREC_DIST (0x01c0) on counter 1. The emulated processor counts each event
# only on the counter named here, so the count on a wrong counter is 0.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

program=/tests/pfc_follow
fixed_addresses="linux64 -R"

# Prints the values of an event in a CSV file, one value a line.
event_values() { # FILE EVENT
	awk -F, -v e="$2" '{ for (i = 3; i <= NF; i++) if ($i == e) { print $(i - 2); next } }' "$1"
}
is_within_one() { [ $(($1 - $2)) -ge -1 ] && [ $(($1 - $2)) -le 1 ]; }

# Compares the counts of EVENT in two runs of the program. The second run executes 2,000,000 more
# rounds of the loop, which are 4,000,000 more instructions.
test_exact() { # EVENT MORE
	$fixed_addresses pfc stat -x, -o a -e "$1" $program spin 1000000 && $fixed_addresses pfc stat -x, -o b -e "$1" $program spin 3000000 || return 1
	head -n 1 a b
	is_within_one $(($(event_values b "$1") - $(event_values a "$1"))) "$2"
}

# pfc counts all events in EVENTS in one event set, whatever their order.
test_one_set() { # EVENTS
	pfc stat -x, -o all -e "$1" $program spin 1000000 || return 1
	cat all
	i=$(event_values all instructions:u)
	[ "$i" -gt 2000000 ] && is_within_one "$(event_values all r0148:u)" $((i / 16)) && is_within_one "$(event_values all r01c0:u)" $((i / 2)) && ! grep -vE '^#|^$|,100\.00,' all
}

# pfc refuses a group with two events that only the same counter can count.
test_refused() {
	local rc=0
	pfc stat -x, -o all -e '{r0148:u,r0148:k}' true 2>words || rc=$?
	cat words
	[ $rc = 2 ] && grep -q "together: no counter is left for r0148" words
}

test_multiplexed() {
	# The program runs long enough for pfc to load each event set several times.
	pfc stat -x, -o all -e r0148:u,r0148:u /tests/pfc_follow phases 1 100 2>words || return 1
	cat all words
	[ "$(grep -c ',r0148:u,' all)" = 2 ] && ! grep -q '^0,' all && ! grep -q ',r0148:u,.*,100\.00,' all
}

plan 8
insmod_each perfcounters perfmon pfm_intel
check "1.16 pfc stat: an event of counter 2 only, by raw code, is exact" test_exact r0148:u 250000
check "1.16 pfc stat: an event of counter 2 only, by libpfm4's name, is exact" test_exact L1D_PEND_MISS:PENDING:u 250000
check "1.16 pfc stat: an event of counter 1 only is exact" test_exact r01c0:u 2000000
check "1.16 pfc stat: constrained events first, all in one set with others" test_one_set r0148:u,r01c0:u,branches:u,branch-misses:u,instructions:u
check "1.16 pfc stat: constrained events last, all in one set with others" test_one_set branches:u,branch-misses:u,instructions:u,r01c0:u,r0148:u
check "1.16 pfc stat: constrained events in a group with others" test_one_set '{branches:u,r01c0:u,r0148:u,instructions:u}'
check "1.16 pfc stat: two events of counter 2 in one group are refused with the reason" test_refused
check "1.16 pfc stat: two events of counter 2 without a group run by turns" test_multiplexed
rm -f a b all words
unload_modules
exit $failed
