#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-skylake pmu-unequal
# timeout: 300
# shellcheck disable=SC2012,SC2016,SC2046,SC2086,SC2317,SC2329,SC3043
#
# pfc must report counts that are incomplete and samples that were not taken, as text, CSV and JSON.
# In the guest pmu-unequal, CPU 1 has counters 0 to 3 and CPU 0 has eight. pfc uses the counters
# that all known CPUs have. With -C, pfc uses the counters that all CPUs of the list have. If a CPU
# that goes online later lacks some of the counters that pfc uses, a thread is not counted while it
# runs on that CPU. A context ends early when an administrator's context takes its registers.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
parameters=/sys/module/perfmon/parameters
eight=branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u

# nr_marked_is FORM CAUSE NR: succeeds if NR counts in the output are marked as short (incomplete).
# FORM is the format of the output. In the formats "csv" and "json", the mark contains CAUSE, a word
# for the cause. In the format "people", the mark contains no cause.
nr_marked_is() {
	case $1 in
	people) nr=$(grep -c '(short)$' words) ;;
	csv) nr=$(grep -c ",$2\$" words) ;;
	json) nr=$(grep -c "\"short\":\[\"$2\"\]" words) ;;
	esac
	[ "$nr" = "$3" ] || { echo "$nr are marked, want $3"; return 1; }
}
format_options() { # FORM
	case $1 in
	csv) echo -x, ;;
	json) echo --json ;;
	esac
}

# Loads the PMU description while CPU 1 is offline, so that the description contains only the
# counters of CPU 0.
load_for_cpu0() {
	rmmod pfm_intel 2>/dev/null
	echo 0 >/sys/devices/system/cpu/cpu1/online
	insmod /modules/pfm_intel.ko
}
online="echo 1 >/sys/devices/system/cpu/cpu1/online"

# The events of test_cpu1_offline() and test_cpu1_online() use all eight counters of CPU 0. CPU 1
# lacks the last four of the eight counters. CPU 1 stays offline in test_cpu1_offline() and goes
# online in test_cpu1_online().
test_cpu1_offline() { # FORM
	load_for_cpu0
	with_words taskset -c 0 pfc stat $(format_options $1) -e $eight $program spin 1000000
	[ $rc = 0 ] && nr_marked_is $1 elsewhere 0 && ! grep -qE "ended early|omitted" words
}
test_cpu1_online() { # FORM
	load_for_cpu0
	with_words taskset -c 0 pfc stat $(format_options $1) -e $eight sh -c "$program spin 1000000; $online; taskset -c 1 $program spin 1000000; exit 7"
	[ $rc = 7 ] && nr_marked_is $1 elsewhere 8 && grep -qE "^pfc: counting thread [0-9]+ omitted the time on CPUs that lack some of the registers; " words
}
test_record() {
	load_for_cpu0
	with_words taskset -c 0 pfc record -c 100000 -e $eight -o x sh -c "$program spin 1000000; $online; taskset -c 1 $program spin 1000000; exit 7"
	[ $rc = 7 ] && grep -qE "^pfc: sampling thread [0-9]+ omitted the time on CPUs that lack some of the registers; " words
}
# The description contains both CPUs. The eight events are multiplexed on the counters that both
# CPUs have, whichever CPU the program is on.
test_multiplexed() { # FORM
	with_words pfc stat $(format_options $1) -e $eight sh -c "taskset -c 0 $program spin 1000000; taskset -c 1 $program spin 1000000; exit 7"
	[ $rc = 7 ] && nr_marked_is $1 elsewhere 0 && ! grep -qE "ended early|omitted|not counted" words
}
# Each CPU executes 2,000,000 instructions of the loop, and 1/8 of them are branches.
test_all_cpus() {
	with_words pfc stat -a -x, -e branches:u sh -c "taskset -c 0 $program spin 1000000; taskset -c 1 $program spin 1000000"
	count=$(sed -n 's/^\([0-9]*\),.*branches:u.*/\1/p' words)
	[ $rc = 0 ] && [ "${count:-0}" -ge 500000 ] && ! grep -q "not counted" words
}

# CPU 0 has eight counters, so all events are counted there all the time. With -a, the events take
# turns on the counters that both CPUs have.
test_eight_events() { # OPTION NR
	with_words pfc stat $1 -x, -e $eight taskset -c 0 $program spin 1000000
	nr=$(grep -c ',branches:u,.*,100\.00,' words)
	[ $rc = 0 ] && [ "$nr" = $2 ] && ! grep -q "not counted" words
}

# Runs COMMAND (pfc stat or pfc record) as the user nobody, on a program that loops. While the
# program loops, the administrator (root) counts on all CPUs with pfc stat -a.
run_evicted() { # FORM COMMAND
	rm -f begun over
	su nobody -s /bin/sh -c "$2 sh -c 'echo >begun; until [ -e over ]; do $program spin 100000; done; exit 7'" 2>words &
	user=$!
	within 60 test -e begun && pfc stat -a -e instructions:u true
	rc=$?
	echo >over
	wait $user
	status=$?
	cat words
	[ $rc = 0 ] && [ $status = 7 ] && { [ -z "$1" ] || nr_marked_is $1 evicted 1; }
}
test_stat_evicted() { # FORM
	run_evicted $1 "pfc stat $(format_options $1) -e instructions:u" &&
		grep -qE "^pfc: counting (thread [0-9]+|[0-9]+ threads \([0-9]+ and others\)) ended early: a program of the administrator took the registers; " words
}
test_record_evicted() {
	run_evicted "" "pfc record -c 100000 -e instructions:u -o x" &&
		grep -qE "^pfc: sampling (thread [0-9]+|[0-9]+ threads \([0-9]+ and others\)) ended early: a program of the administrator took the registers; " words
}

# The loop of the program is $periods sampling periods long, and the rest of the program takes a few
# more periods. For each period, pfc must report either a sample or a lost sample.
periods=10000
[ -z "${LONG:-}" ] || periods=40000
test_lost_samples() {
	echo 0 >$parameters/max_sample_percent
	echo 1000 >$parameters/max_sample_rate
	with_words pfc record -c 10000 -e instructions:u -o x $program spin $((periods * 5000))
	samples=$(sed -n 's/.*(\([0-9]*\) samples), .*/\1/p' words)
	lost=$(sed -n 's/.* samples), \([0-9]*\) lost .*/\1/p' words)
	kept=$(pfc report -i x | sed -n 's/^# Total Lost Samples: //p')
	echo "$samples samples, $lost lost, $kept by the file"
	[ $rc = 0 ] && [ "$lost" = "$kept" ] && [ "$lost" -gt 0 ] && [ $((samples + lost)) -ge $periods ] && [ $((samples + lost)) -le $((periods + 100)) ]
}
test_throttled_report() {
	times=$(sed -n 's/^\[ pfc record: throttled \([0-9]*\) times, for \([0-9.]*\) ms: .*/\1/p' words)
	ms=$(sed -n 's/^\[ pfc record: throttled \([0-9]*\) times, for \([0-9]*\)\.[0-9]* ms: .*/\2/p' words)
	echo "$times times, $ms ms"
	[ "${times:-0}" -gt 0 ] && [ "${ms:-0}" -gt 0 ]
}
test_throttled_in_file() {
	begin_few_symbols
	pfc report -i x >table
	pfc report --json -i x >json
	end_few_symbols
	grep '^#' table
	grep -qx "# Throttled: $times times" table && grep -q "\"throttled\":$times" json
}
cd /tmp || exit 1
unload_modules
case $PMU in
unequal)
	plan 13
	insmod_each perfcounters perfmon pfm_soft pfm_ring
	for form in people csv json; do
		check "9.6 pfc stat, $form: no count is marked short on a CPU with all registers" test_cpu1_offline $form
		check "9.6 pfc stat, $form: counts are marked short on a CPU that lacks a register" test_cpu1_online $form
	done
	check "9.6 pfc record: it reports time on a CPU that lacks registers" test_record
	rmmod pfm_intel
	insmod /modules/pfm_intel.ko
	for form in people csv json; do
		check "9.6 pfc stat, $form: on CPUs that differ, events run by turns on common counters" test_multiplexed $form
	done
	check "9.6 pfc stat -a: CPUs that differ are all counted" test_all_cpus
	check "9.6 pfc stat -C 0: a CPU with eight counters counts eight events all the time" test_eight_events "-C 0" 8
	check "9.6 pfc stat -a: CPUs that differ count eight events by turns on common counters" test_eight_events -a 0
	;;
*)
	plan 7
	insmod_each perfcounters perfmon pfm_intel pfm_soft pfm_ring
	chmod 666 /dev/perfmon
	mkdir -m 777 here && cd here || exit 1
	for form in people csv json; do
		check "9.6 pfc stat, $form: a count is marked short after an eviction" test_stat_evicted $form
	done
	check "9.6 pfc record: it reports that sampling ended by an eviction" test_record_evicted
	check "9.6 pfc record: each period is a sample or is lost" test_lost_samples
	check "9.6 pfc record: it reports how often and for how long it was throttled" test_throttled_report
	check "9.6 pfc report: the file has the number of throttlings" test_throttled_in_file
	cd /tmp && rm -r here
	;;
esac
rm -f x words table said
unload_modules
exit $failed
