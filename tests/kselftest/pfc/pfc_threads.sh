#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-skylake
# timeout: 300
# shellcheck disable=SC2012,SC2016,SC2046,SC2086,SC2317,SC2329,SC3043
#
# Tests the cost of pfc stat -p for each thread of a process, in instructions. One pfc counts the
# instructions of another pfc. /tests/pfc_follow is the process with the threads.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

program=/tests/pfc_follow
# Number of threads of the counted process in addition to its first thread.
nr_threads=350
# Maximum number of instructions that pfc executes for one more thread, from the creation of its
# context to the end of the context. `user` is the maximum number of instructions in user mode, and
# `kernel` is the maximum number in kernel mode.
user=10000 kernel=140000

# Prints the values of an event in a CSV file, one value a line.
event_values() { # FILE EVENT
	awk -F, -v e="$2" '{ for (i = 3; i <= NF; i++) if ($i == e) { print $(i - 2); next } }' "$1"
}
has_threads() { # PID NR
	[ "$(ls /proc/$1/task | wc -l)" = "$2" ]
}
# count_cost FILE THREADS: stores in FILE the number of instructions that pfc executes to count a
# process with THREADS threads.
count_cost() {
	local rc=0
	run_victim $program sleepers $(($2 - 1))
	within 60 has_threads $victim $2 &&
		pfc stat -i -x, -o $1 -e instructions:u,instructions:k pfc stat -x, -o all -e page-faults,instructions:u -p $victim -- true || rc=1
	kill_and_wait $victim
	cat $1 all
	return $rc
}
test_counted() {
	count_cost one 1 && count_cost more $((nr_threads + 1))
}
# Succeeds if each additional thread costs at most MOST instructions.
test_cost_per_thread() { # EVENT MOST
	per=$((($(event_values more $1) - $(event_values one $1)) / nr_threads))
	echo "$per of $1 for a thread, at most $2"
	[ $per -gt 0 ] && [ $per -le $2 ]
}

plan 3
cd /tmp || exit 1
unload_modules
insmod_each perfcounters perfmon pfm_intel pfm_soft
check "1.6 pfc stat -p: a process with 351 threads is counted" test_counted
check "1.6 pfc stat -p: instructions of pfc for one more thread" test_cost_per_thread instructions:u $user
sed 's/^/# /' said
check "1.6 pfc stat -p: instructions of the kernel for one more thread" test_cost_per_thread instructions:k $kernel
sed 's/^/# /' said
rm -f one more all said
unload_modules
exit $failed
