#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: debian-skylake debian-amd2
# timeout: 600
#
# Tests Debian's perf on the emulated PMU: perf stat and perf record of a program of known length,
# and those of perf's own tests that count or sample hardware events. Documentation/emulated-pmu.md
# says which tests are left out, and why.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

# Events of the emulated PMU per instruction, as in the table of Documentation/emulated-pmu.md. Each
# line holds NAME EVENTS INSTRUCTIONS.
events="cycles 5 4
ref-cycles 1 1
branches 1 8
branch-misses 1 128
cache-references 1 64
cache-misses 1 1024"

perf_tests="Read samples using the mmap interface
User space counter reading of instructions
User space counter reading of cycles
PERF_RECORD_* events & perf_sample fields
Number of exit events of a simple workload
Track with sched_switch
Event times
Read backward ring buffer
Perf time to TSC
Sigtrap"
# Only the guest of model skylake runs these tests of perf, which take longer and have the same
# result on each model.
[ "$PMU" != skylake ] || perf_tests="$perf_tests
perf stat tests
perf stat metrics (shadow stat) test
perf record sideband tests"

# The program pmu_perf executes two instructions a round, and some instructions before and after the
# rounds. The number of instructions outside the rounds is constant, because the addresses and the
# environment are the same in each run. DEBUGINFOD_URLS is set so that perf record does not add it
# to the environment.
perf="setarch -R perf"
program="/tests/pmu_perf spin"
export DEBUGINFOD_URLS=
short=1000000 long=6000000

count_rounds() { # count_rounds FILE ROUNDS OPTIONS...
	file=$1 rounds=$2
	shift 2
	# shellcheck disable=SC2086 # $perf and $program are split into words
	$perf stat -x, -o "$file" "$@" $program "$rounds"
}

# print_count FILE EVENT: prints the count of an event from a file of perf stat. Prints nothing if
# the event was not counted for 100 % of the time.
print_count() {
	awk -F, -v e="$2:u" '$3 == e && $1 ~ /^[0-9]+$/ && $5 == "100.00" { print $1 }' "$1"
}

check_exact() {
	count_rounds a $short -e instructions:u
	count_rounds b $long -e instructions:u
	a=$(print_count a instructions) b=$(print_count b instructions)
	echo "# $a, $b instructions"
	[ $((b - a)) = $((2 * (long - short))) ]
	result $? "pmu perf stat: a program's instructions are exact"
}

# Counts all events at the same time, each with a separate counter. A fraction of an event is lost
# when its counter is programmed again, so a count may be a few events too low.
check_together() {
	list=instructions:u$(echo "$events" | while read -r name _; do printf ',%s:u' "$name"; done)
	count_rounds all $long -e "$list"
	insns=$(print_count all instructions)
	insns=${insns:-0}
	[ "$insns" = "$b" ]
	result $? "pmu perf stat: as many instructions with all events at once"
	echo "$events" >events
	while read -r name times in; do
		if grep -q "<not supported>,,$name:u," all; then
			skip "pmu perf stat: $name are the expected share of instructions" "the kernel has no such event on this model"
			continue
		fi
		got=$(print_count all "$name")
		want=$((insns * times / in))
		echo "# $name: $got, $want in $insns instructions"
		[ "$insns" -gt $((2 * long)) ] && [ "${got:-0}" -ge $((want - 10)) ] && [ "$got" -le $((want + 1)) ]
		result $? "pmu perf stat: $name are the expected share of instructions"
	done <events
}

# The program runs on CPU 1. perf itself and everything else run on CPU 0.
check_each_cpu() {
	for r in $short $long; do
		# shellcheck disable=SC2086 # $perf and $program are split into words
		taskset -c 0 $perf stat -x, -o "cpus.$r" -a -A -e instructions:u taskset -c 1 $program $r
	done
	a=$(awk -F, '$1 == "CPU1" { print $2 }' cpus.$short)
	b=$(awk -F, '$1 == "CPU1" { print $2 }' cpus.$long)
	other=$(awk -F, '$1 == "CPU0" { print $2 }' cpus.$long)
	echo "# processor 1: $a, $b; processor 0: $other"
	[ $((b - a)) = $((2 * (long - short))) ]
	result $? "pmu perf stat -a: a program's instructions are exact on its CPU"
	[ "${other:-0}" -gt 0 ] && [ "$other" -lt $((2 * short)) ]
	result $? "pmu perf stat -a: a program is not counted on the other CPU"
}

# The program runs on one CPU, because perf opens an event for each CPU, and each event has a
# separate period.
record_samples() { # record_samples FILE PERIOD
	# shellcheck disable=SC2086 # $perf and $program are split into words
	taskset -c 1 $perf record -q -o "$1" -c "$2" -e instructions:u $program $long
	perf script -i "$1" -F ip 2>/dev/null | tr -d ' ' >"$1.ip"
}

check_samples() {
	b=$(print_count b instructions)
	for period in 100000 100001; do
		record_samples data.$period $period
		got=$(wc -l <data.$period.ip)
		echo "# period $period: $got samples of $b instructions"
		sort data.$period.ip | uniq -c | sed 's/^/# /'
		[ "$got" = $((${b:-0} / period)) ] && [ "$got" -gt 100 ]
		result $? "pmu perf record: one sample for each $period instructions"
		perf report -i data.$period --stats 2>/dev/null >stats
		[ "$(awk '/ SAMPLE events:/ { print $3; exit }' stats)" = "$got" ] && ! grep -qE 'LOST|THROTTLE' stats
		result $? "pmu perf record: no lost or throttled samples, period $period"
	done
	# The loop has two instructions, of three and of two bytes. With two instructions a round,
	# an even period is a whole number of rounds, so all samples of an even period are at the
	# same instruction.
	sort data.100000.ip | uniq -c | sort -rn >places
	read -r many loop <places
	[ "${many:-0}" = $((2 * long / 100000)) ]
	result $? "pmu perf record: samples of an even period are at one instruction of the loop"
	while read -r ip; do echo $((0x$ip - 0x$loop)); done <data.100001.ip | grep -xE '0|3|-3' >turns
	many=$(wc -l <turns) want=$((2 * long / 100001))
	echo "# odd period: $many in the loop, $want or one more expected"
	[ "$many" -ge $want ] && [ "$many" -le $((want + 1)) ] && [ "$(sort -u turns | wc -l)" = 2 ] && [ -z "$(uniq -d turns)" ]
	result $? "pmu perf record: samples of an odd period are at both instructions of the loop in turn"
	perf report -i data.100000 --stdio -F overhead,sample,comm,dso,sym 2>/dev/null | grep -v '^#' | grep . >shown
	sed 's/^/# /' shown
	read -r _ many comm dso _ at <shown
	[ "$many" = $((2 * long / 100000)) ] && [ "$comm $dso" = "pmu_perf pmu_perf" ] && [ $((at & 0xfff)) = $((0x$loop & 0xfff)) ]
	result $? "pmu perf report: the loop's symbol has all of its samples"
}

# check_own NAME: runs the test NAME of perf. The result is taken from the output of perf, because
# the exit status of perf does not depend on the result. A skipped test counts as failed, since all
# tests in $perf_tests can run in this guest. A test that waits for a fixed time may fail on a busy
# host. perf reports such a failure, and the test is repeated, up to three times.
check_own() {
	for try in 1 2 3; do
		begin=$(date +%s)
		perf test -v "$1" >out 2>&1 </dev/null
		echo "# $(($(date +%s) - begin)) seconds"
		# perf prints a line for the test and for each of its parts. If a test has parts,
		# the line of the test itself has no result. perf 7.3 and later also print a line
		# when a test begins.
		grep -E '^ *[0-9]+[:.].*:' out | grep -Ev ': *(Running \([0-9]+ active\))?$' >results
		grep -q . results && ! grep -qv ': Ok$' results
		ok=$?
		if [ $ok = 0 ] || ! grep -q 'Failed after retrying' out; then break; fi
		echo "# try $try: it waited for too short a time"
	done
	[ "$ok" = 0 ] || tail -n 20 out | sed 's/^/# /'
	result "$ok" "pmu perf test: $1"
}

plan "$((2 + $(echo "$events" | wc -l) + 2 + 7 + $(echo "$perf_tests" | wc -l)))"
# Turns off the kernel's limit on the time of perf's sampling. perf_event_max_sample_rate can be set
# only while perf_cpu_time_max_percent is not 0.
cd /proc/sys/kernel && echo 25 >perf_cpu_time_max_percent && echo 100000 >perf_event_max_sample_rate && echo 0 >perf_cpu_time_max_percent
mkdir /tmp/clients && cd /tmp/clients || exit 1
check_exact
check_together
check_each_cpu
check_samples
# The file is not called "tests": perf would take a file of that name for the directory of its
# tests.
echo "$perf_tests" >names
while read -r name; do check_own "$name"; done <names
