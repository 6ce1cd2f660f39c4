#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-amd2
# timeout: 600
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc stat with more events than counters: multiplexed event sets, groups, error bars,
# thresholds. The measured program has phases with many instructions in user mode and phases with
# few. All runs of the program with the same seed have the same phases, so a run that counts one
# event alone gives the true value of this event. Where linux-perf is installed, its scaled values
# are printed as well.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

case $PMU in
amd*) description=pfm_amd ;;
*) description=pfm_intel ;;
esac
program="/tests/pfc_follow phases"
# In the emulator, branches are an eighth of all instructions.
many=branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u,branches:u
# The twelve events in $many need three event sets on Intel (four counters) and two on AMD (six
# counters). The first run of a set may take long, because the emulator is slow at code that it
# executes for the first time.
#
# 40 runs of the program are enough to find error bars that are too narrow. make test measures only
# 8 runs, and accepts more runs whose error bar does not contain the true value. With 8 runs, the
# test finds error bars that are zero or have a quarter of the right width. To compare with perf:
# make vm GUEST=debian-skylake CMD='LONG=1 RUNS=100 sh /tests/pfc_sets.sh'
share=75 phases=160 default_runs=8
# $interval and $interval_phases are for the test with intervals. $threshold is for the test of
# --cascade: the number of instructions after which events are counted.
interval="-I 20" interval_phases=200 threshold=4000000
[ -z "${LONG:-}" ] || share=95 phases=300 default_runs=40 interval="-I 50" interval_phases=600 threshold=8000000
RUNS=${RUNS:-$default_runs}

# Fields of the CSV file: value, unit, event, time, percent, derived value, unit of the derived
# value, error bar.

# Prints the true value. A later call with the same SEED and number of PHASES prints the value that
# the first call has measured.
exact_values() { # SEED PHASES
	local known=exact.$1.$2
	[ -e $known ] || { pfc stat -x, -o one -e branches:u $program "$@" && awk -F, '{ print $1 }' one >$known; }
	cat $known
}
test_multiplexed() {
	true_one=$(exact_values 1 $phases)
	pfc stat -x, -o all -e $many,task-clock $program 1 $phases || return 1
	cat all
	[ "$(grep -c ',branches:u,' all)" = 12 ] && awk -F, -v t="$true_one" '
		/task-clock/ { if ($5 != "100.00") bad = 1; next }
		{ if ($5 < 10 || $5 > 80 || $8 == "" || $1 < t / 2 || $1 > t * 2) bad = 1 }
		END { exit bad }' all
}
test_shares() {
	# The percentages of the time for which the event sets were loaded add up to 100.
	awk -F, '/branches/ && !seen[$4]++ { n++; sum += $5 } END { print n, sum; exit !(n >= 2 && sum > 99.5 && sum < 100.5) }' all
}
test_whole_words() {
	pfc stat -o all -e $many $program 1 $phases || return 1
	cat all
	grep -qE 'branches:u .*\([0-9]+\.[0-9]+%, \+- [0-9.]+%\)' all
}
test_no_scale() {
	pfc stat -x, --no-scale -o all -e $many $program 1 $phases || return 1
	cat all
	awk -F, -v t="$(exact_values 1 $phases)" '/branches/ { if ($1 > t * 0.8 || $8 != "") bad = 1 } END { exit bad }' all
}
test_refused() {
	pfc stat -x, --refuse-below 90 -o all -e $many,task-clock $program 1 $phases 2>words || return 1
	cat all words
	[ "$(grep -c '^<not counted>,,branches:u,' all)" = 12 ] && grep -q 'which is 0 or below --refuse-below' words && grep -q '^[0-9.]*,msec,task-clock' all
}
test_one_set() {
	pfc stat -x, -o all -e "{instructions:u,branches:u},$many,{branch-misses:u,cycles:u}" $program 1 $phases || return 1
	cat all
	# The events of a group run at the same time, so the ratio of their counts is right. The
	# emulator drops fractions of an event when it programs a counter.
	awk -F, '{ value[NR] = $1; time[NR] = $4 }
		END { r = value[1] / value[2]; s = value[16] / value[15]
			print r, s
			exit !(time[1] == time[2] && time[15] == time[16] && r > 7.99 && r < 8.01 && s > 155 && s < 168) }' all
}
test_too_large() {
	with_words pfc stat -e "{$many}" true
	[ $rc = 2 ] && grep -q '^pfc: cannot count {.*} together: no counter is left' words
}
test_braces() {
	for wrong in '{a' 'a}' '{cycles,{branches}}' '{}'; do
		pfc stat -e "$wrong" true 2>words
		[ $? = 2 ] || { echo "$wrong"; cat words; return 1; }
	done
}
test_json() {
	pfc stat --json -o all -e $many $program 1 $phases || return 1
	head -n 1 all
	grep -q '"error-bar":[0-9]' all && grep -q '"confidence":99' all && grep -q '"pcnt-running":[1-8][0-9]\.' all
}
test_intervals() {
	pfc stat -x, $interval -o all -e $many $program 1 $interval_phases || return 1
	head -n 30 all
	[ "$(wc -l <all)" -gt 24 ]
}
test_cascade() {
	a=$(exact_values 1 $phases)
	pfc stat -x, --cascade instructions:u=$threshold -o after -e branches:u $program 1 $phases || return 1
	echo "$a without --cascade"
	cat after
	# With --cascade, branches:u is counted only after $threshold instructions. An eighth of
	# these instructions are branches, which are not counted.
	b=$(awk -F, '{ print $1 }' after)
	[ $((a - b)) -ge $((threshold / 8 - 100)) ] && [ $((a - b)) -le $((threshold / 8 + 100)) ]
}
test_long_cascade() {
	pfc stat -x, --cascade instructions:u=800000 -o after -e $many $program 1 $phases || return 1
	cat after
	[ "$(grep -c '^[0-9]*,,branches:u' after)" = 12 ]
}
test_no_threshold() {
	with_words pfc stat --cascade instructions:u -e cycles true
	[ $rc = 2 ] && grep -q 'branch-misses=1000' words
}
# Succeeds if the true value is within the error bar in at least $share % of the runs, each with
# another seed.
test_coverage() {
	inside=0 seed=0
	: >plot
	while [ $seed -lt "$RUNS" ]; do
		seed=$((seed + 1))
		true_one=$(exact_values $seed 160)
		pfc stat -x, -o all -e $many $program $seed 160 || return 1
		line=$(awk -F, -v t="$true_one" '/branches/ { d = $1 - t; if (d < 0) d = -d; print $1, $8, $5, ($1 > 0 && d <= $8 + 1) ? 1 : 0; exit }' all)
		echo "$seed $true_one $line" >>plot
		inside=$((inside + ${line##* }))
	done
	cat plot
	echo "$inside of $RUNS"
	[ $((inside * 100)) -ge $((RUNS * share)) ]
}
# Counts the same programs with linux-perf, which has no error bars.
test_beside_other() {
	: >perfs
	seed=0
	while [ $seed -lt "$RUNS" ]; do
		seed=$((seed + 1))
		perf stat -x, -o theirs -e $many $program $seed 160 2>/dev/null
		awk -F, -v s=$seed '/branches/ { print s, $1, $(NF - 2); exit }' theirs >>perfs
	done
	cat theirs
	[ "$(wc -l <perfs)" = "$RUNS" ]
}

plan 15
cd /tmp || exit 1
unload_modules
echo >/proc/sys/kernel/modprobe
insmod_each perfcounters perfmon $description pfm_soft
check "1.12 pfc stat: more events than counters run by turns" test_multiplexed
check "1.12 pfc stat: the shares of all sets add up to 100 %" test_shares
check "1.12 pfc stat, text: share and error bar of each event" test_whole_words
check "1.12 pfc stat --no-scale: the counted value without an error bar" test_no_scale
check "1.12 pfc stat --refuse-below: no value for events below it, with a message" test_refused
check "1.12 pfc stat: the events of a group run at the same time" test_one_set
check "1.12 pfc stat: a group with too many events is refused with status 2" test_too_large
check "1.12 pfc stat: wrong braces are refused with status 2" test_braces
check "1.12 pfc stat --json: error bar, confidence and share" test_json
check "1.12 pfc stat -I: intervals with more events than counters" test_intervals
check "1.12 pfc stat --cascade: events after the threshold are counted" test_cascade
check "1.12 pfc stat --cascade: more events than counters" test_long_cascade
check "1.12 pfc stat --cascade: an invalid threshold is refused with status 2" test_no_threshold
check "1.12 pfc stat: the true value is within the error bar in $share % of $RUNS runs" test_coverage
echo "# seed, true, value, error, percent, inside"
sed 's/^/# plot /' plot
if command -v perf >/dev/null; then
	check "1.12 perf stat: scaled values of the same runs" test_beside_other
	sed 's/^/# perf /' perfs
else
	skip "1.12 perf stat: scaled values of the same runs" "there is no perf here"
fi
rm -f all one exact.* after words plot theirs perfs said
unload_modules
exit $failed
