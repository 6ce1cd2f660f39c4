#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain debian-skylake
# timeout: 900
# shellcheck disable=SC2012,SC2015,SC2016,SC2030,SC2031,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc record, report, script and flamegraph: the tasks and CPUs that they sample, names of
# functions, call stacks, files. Where linux-perf is installed, the reports of linux-perf for the
# same files must agree.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
# Rounds of the sampled programs, and samples per second of CPU time. The tests need 20 samples. If
# a recording has too few, retry_longer repeats it with more rounds.
rounds=10000000 rate=1000
# Rounds of the program that runs beside sha256sum. The program needs half of the CPU time that it
# and sha256sum use together.
child_rounds=20000000

nr_samples() { # FILE
	pfc script --json -i "$1" | wc -l
}
# Prints the percentage in the first row of the report of FILE if the row is that of FUNCTION, or 0
# if the row is that of another function.
percent_of() { # FILE FUNCTION
	pfc report -i "$1" | percent_in_report "$2"
}
percent_in_report() { # FUNCTION: like percent_of, for a report on standard input
	awk -v f="$1" '!/^#/ && NF { sub("%", "", $1); print $NF == f ? int($1) : 0; exit }'
}

# Runs the command up to three times, with more work each time: a guest on a busy host gets little
# CPU time.
factor=1
retry_longer() { # COMMAND...
	for factor in 1 2 4; do
		# On an idle machine, 0.15 seconds are enough for the samples.
		nap=150
		[ $factor = 1 ] || nap=$((factor * 1000))
		"$@" && return 0
	done
	return 1
}

test_no_module() {
	rm -f x
	with_words su nobody -s /bin/sh -c "pfc record -o x true"
	[ $rc = 2 ] && grep -q "modprobe perfmon" words && [ ! -e x ]
}
test_no_format() {
	with_words pfc record -o x true
	[ $rc = 2 ] && grep -q "modprobe pfm_ring" words && [ ! -e x ]
}
test_plain_record() {
	pfc record -F $rate -o a $program calls $((rounds * factor)) 2>words || return 1
	cat words
	grep -qE '^\[ pfc record: Captured and wrote [0-9.]+ MB a \([0-9]+ samples\), 0 lost \]$' words || return 1
	[ "$(nr_samples a)" -ge 20 ]
}
test_busy_function() {
	[ "$factor" = 1 ] || test_plain_record || return 1
	pfc report -i a >table
	share=$(percent_in_report work_inner <table)
	echo "$share%"
	head -n 15 table
	[ "$share" -ge 80 ]
}
test_stacks() {
	pfc record -g -F $rate -o g $program calls $((rounds * factor)) || return 1
	pfc script --folded -i g >folded
	sort -k2 -n folded | tail -n 3
	all=$(awk '{ n += $NF } END { print n }' folded)
	found=$(awk '/work_outer;work_middle;work_inner [0-9]+$/ { n += $NF } END { print n }' folded)
	[ "${found:-0}" -ge $((all * 8 / 10)) ]
}
test_tree() {
	pfc report -g -i g >table && head -n 20 table
	grep -A 3 work_inner table | grep -q work_middle && grep -A 3 work_inner table | grep -q work_outer
}
test_periods() {
	pfc record -e task-clock -c 5000000 -o p $program calls $((rounds * factor)) || return 1
	pfc script --json -i p >lines
	all=$(wc -l <lines)
	echo "$all samples"
	[ "$all" -ge 5 ] && [ "$(grep -c '"period":5000000' lines)" = "$all" ] && grep -q '"event":"task-clock"' lines
}
test_threads() {
	pfc record -F $rate -o t $program threads $((rounds * factor)) 3 || return 1
	pfc script --json -i t >of_all
	[ "$(grep -o '"tid":[0-9]*' of_all | sort -u | wc -l)" -ge 3 ]
}
test_children() {
	pfc record -F $rate -o c sh -c "$program calls $((child_rounds * factor)); sha256sum $program; :" || return 1
	pfc report -i c --sort comm >table
	cat table
	grep -q pfc_follow table && [ "$(percent_of c work_inner)" -ge 50 ]
}
test_no_inherit() {
	pfc record -i -F $rate -o i $program threads $((rounds * factor)) 3 || return 1
	[ "$(nr_samples i)" -lt "$(($(wc -l <of_all) / 2))" ]
}
test_kernel() {
	end_few_symbols
	pfc record -e task-clock -F $rate -g -o k head -n $((20000 * factor)) /proc/kallsyms >/dev/null || return 1
	pfc report -i k >table
	begin_few_symbols
	head -n 20 table
	grep -q '\[kernel.kallsyms\] *\[k\] [a-z]' table
}
test_all_targets() {
	run_victim taskset -c 0 $program calls 100000000000
	pfc record -a -F $rate -o all -- sh -c "$run_for" $victim $nap
	rc=$?
	pfc record -p $victim -F $rate -o one -- sh -c "$run_for" $victim $nap || rc=1
	pfc record -C 0 -F 100 -o cpu -- sh -c "$run_for" $victim $nap || rc=1
	kill_and_wait $victim
	pfc report -i all >table
	head -n 15 table
	[ $rc = 0 ] && grep -q work_inner table && [ "$(percent_of one work_inner)" -ge 80 ] && [ "$(pfc report -i cpu --sort cpu | grep -v '^#' | awk 'NF { print $2 }')" = 0 ]
}
test_until_interrupted() {
	run_victim $program calls 100000000000
	pfc record -p $victim -F 200 -o u &
	recorder=$!
	wait_started $recorder
	run_for $victim $nap
	interrupt $recorder
	rc=$?
	kill_and_wait $victim
	[ $rc = 0 ] && [ "$(nr_samples u)" -gt 5 ]
}
test_flight_recorder() {
	rm -f f f.*
	run_victim $program calls 100000000000
	pfc record --overwrite --switch-output -p $victim -F 1000 -m 1 -o f &
	recorder=$!
	wait_started $recorder
	run_for $victim $nap
	kill -USR2 $recorder
	within 60 sh -c 'ls f.*'
	run_for $victim $nap
	interrupt $recorder
	rc=$?
	kill_and_wait $victim
	ls -l f*
	[ $rc = 0 ] && [ "$(ls f.* | wc -l)" = 2 ] || return 1
	for file in f.*; do
		# A buffer of one page has room for 64 samples and keeps the newest ones.
		kept=$(nr_samples "$file")
		echo "$file: $kept"
		[ "$kept" -gt 10 ] && [ "$kept" -le 64 ] || return 1
	done
}
# The directory of the output is missing when SIGUSR2 requests a file.
test_flight_recorder_without_directory() {
	rm -rf directory && mkdir directory
	run_victim $program calls 100000000000
	pfc record --overwrite -p $victim -F 1000 -m 1 -o directory/f 2>errors &
	recorder=$!
	wait_started $recorder
	mv directory renamed
	kill -USR2 $recorder
	within 60 grep -q 'the flight recorder continues' errors
	mv renamed directory
	run_for $victim $nap
	interrupt $recorder
	rc=$?
	kill_and_wait $victim
	cat errors
	[ $rc = 2 ] && [ "$(nr_samples directory/f)" -gt 10 ]
}
test_switched() {
	rm -f s s.*
	run_victim $program calls 100000000000
	pfc record --switch-output -p $victim -F 200 -o s &
	recorder=$!
	wait_started $recorder
	run_for $victim $nap
	kill -USR2 $recorder
	within 60 sh -c 'ls s.*'
	run_for $victim $nap
	interrupt $recorder
	kill_and_wait $victim
	[ "$(ls s.* | wc -l)" = 2 ] || { ls; return 1; }
	for file in s.*; do
		[ "$(percent_of "$file" work_inner)" -ge 80 ] || return 1
	done
}
# test_lost [STOP]: if STOP is given, the sampled program is stopped, so no sample follows the lost
# samples.
test_lost() {
	run_victim $program calls 100000000000
	pfc record -c 1000000 -e task-clock -m 1 -p $victim -o l 2>words &
	recorder=$!
	wait_started $recorder
	# Stops pfc record with SIGSTOP, so that the ring fills and samples are lost.
	kill -STOP $recorder
	within 60 has_state $recorder T
	run_for $victim $nap
	if [ -n "${1:-}" ]; then kill -STOP $victim && within 60 has_state $victim T; fi
	kill -CONT $recorder
	# The recorder reads the ring and waits again. Before the first sample after the loss, the
	# kernel writes a LOST record to the ring.
	within 300 has_slept $recorder
	[ -n "${1:-}" ] || run_for $victim $nap
	interrupt $recorder
	kill_and_wait $victim
	cat words
	said=$(sed -n 's/.*samples), \([0-9]*\) lost.*/\1/p' words)
	kept=$(pfc report -i l | sed -n 's/^# Total Lost Samples: //p')
	echo "$said lost, $kept by the file"
	[ "${said:-0}" -gt 0 ] && [ "$said" = "$kept" ]
}
test_flamegraph() {
	pfc flamegraph -i g -o g.svg || return 1
	grep -q '<title>work_inner (' g.svg && grep -q '^</svg>' g.svg
}
test_truncated_file() {
	head -c 500 a >b
	with_words pfc report -i b
	[ $rc = 2 ] && grep -q "is truncated" words
}
test_two_events() {
	pfc record -e cycles:u,instructions:u -F $rate -o two $program calls $((rounds * factor)) || return 1
	pfc report -i two -e instructions:u | head -n 12
	pfc report -i two >table
	grep -q "event 'cycles:u'" table && grep -q "event 'instructions:u'" table
}
test_default_cycles() {
	pfc report -i a | grep -q "event 'cycles'"
}
# For a file that pfc record has written, linux-perf and pfc must report the same.
test_perf_report() { # FILE
	perf report --stdio --no-children -g none -i "$1" >theirs 2>words || { cat words; return 1; }
	grep -v '^#' theirs | head -n 3
	pfc report -i "$1" | grep -v '^#' | head -n 3
	ours=$(percent_of "$1" work_inner)
	share=$(awk '!/^#/ && NF { sub("%", "", $1); print $NF == "work_inner" ? int($1) : 0; exit }' theirs)
	[ "$share" -gt 0 ] && [ $((share - ours)) -le 1 ] && [ $((ours - share)) -le 1 ]
}
test_perf_script() {
	perf script -i g >theirs 2>words || { cat words; return 1; }
	head -n 8 theirs
	[ "$(grep -c '^[^[:space:]]' theirs)" = "$(nr_samples g)" ] && grep -q work_middle theirs
}
test_perf_threads() {
	perf script -i t -F comm,tid,ip,sym,dso >theirs 2>words || return 1
	[ "$(awk '{ print $2 }' theirs | sort -u | wc -l)" = "$(pfc script --json -i t | grep -o '"tid":[0-9]*' | sort -u | wc -l)" ]
}
# pfc reads a file that linux-perf has written.
test_file_of_perf() {
	perf record -F 500 -g -o theirs.data $program calls $((rounds * factor)) 2>/dev/null || return 1
	pfc report -i theirs.data | head -n 12
	[ "$(percent_of theirs.data work_inner)" -ge 80 ] && pfc script --folded -i theirs.data | grep -q 'work_outer;work_middle;work_inner' || return 1
	end_few_symbols
	perf record -e cpu-clock:k -F 500 -o theirs.data cat /proc/kallsyms >/dev/null 2>&1
	pfc report -i theirs.data >table
	begin_few_symbols
	head -n 20 table
	grep -q '\[kernel.kallsyms\] *\[k\] [a-z]' table
}
test_compressed_file_of_perf() {
	perf record -z -F 500 -g -o theirs.data $program calls $rounds 2>/dev/null || return 1
	with_words pfc report -i theirs.data
	[ $rc = 2 ] && grep -q '^pfc: .*theirs.data: it is compressed, .*(perf record -z' words
}
test_stdin() { # FILE
	pfc script --json -i - <$1 >lines || return 1
	cat $1 | pfc report -i - | head -n 12
	[ "$(wc -l <lines)" = "$(nr_samples $1)" ] && [ "$(wc -l <lines)" -ge 20 ]
}
test_stream_of_perf() {
	perf record -F 500 -g -o - $program calls $rounds 2>/dev/null >theirs.data || return 1
	perf record -F 500 -g -o - $program calls $rounds 2>/dev/null | pfc report -i - >table || return 1
	head -n 15 table
	[ "$(percent_in_report work_inner <table)" -ge 80 ] && [ "$(percent_of theirs.data work_inner)" -ge 80 ] &&
		pfc script --folded -i - <theirs.data | grep -q 'work_outer;work_middle;work_inner' &&
		pfc flamegraph -i - -o g.svg <theirs.data && grep -q work_inner g.svg
}
test_two_events_of_perf() {
	perf record -e cycles:u,instructions:u -F 500 -o - $program calls $rounds 2>/dev/null >theirs.data || return 1
	perf script -i - <theirs.data 2>/dev/null | wc -l
	pfc report -i theirs.data >table || return 1
	grep '^# Samples' table
	[ "$(nr_samples theirs.data)" = "$(perf script -i - <theirs.data 2>/dev/null | wc -l)" ] &&
		grep -q "event 'cycles:u'" table && grep -q "event 'instructions:u'" table
}
check_with_perf() { # NAME COMMAND...
	if command -v perf >/dev/null; then check "$@"; else skip "$1" "there is no perf here"; fi
}
check_with_pmu() { # NAME COMMAND...
	if [ -n "${PMU:-}" ]; then check "$@"; else skip "$1" "there is no PMU here"; fi
}

plan 36
cd /tmp || exit 1
unload_modules
begin_few_symbols
# Keeps the kernel from loading missing modules.
echo >/proc/sys/kernel/modprobe
check "1.9 pfc record without perfmon.ko, not as root: status 2, it names modprobe perfmon" test_no_module
insmod_each perfcounters perfmon
[ -z "${PMU:-}" ] || insmod /modules/pfm_intel.ko
insmod /modules/pfm_soft.ko
check "1.9 pfc record without pfm_ring.ko: status 2, it names the module" test_no_format
insmod /modules/pfm_ring.ko
check "1.9 pfc record: a command has 20 samples or more, none lost" retry_longer test_plain_record
check_with_pmu "1.9 pfc record: the default event is cycles" test_default_cycles
check "1.9 pfc report: 80 % or more are in the busy function" retry_longer test_busy_function
check "1.10 pfc record -g: 80 % or more of the stacks have all callers" retry_longer test_stacks
check "1.10 pfc report -g: the callers of the busy function" test_tree
check "1.7 pfc record -c: each sample has the period" retry_longer test_periods
check "1.2 pfc record: three threads of a command are sampled" retry_longer test_threads
check "1.2 pfc record: child processes of a command are sampled" retry_longer test_children
check "1.2 pfc record -i: threads of a command are not sampled" retry_longer test_no_inherit
check "1.9 pfc report: functions of the kernel have names" retry_longer test_kernel
check "1.6 pfc record -a, -p and -C: the busy process or its CPU is sampled" retry_longer test_all_targets
check "1.6 pfc record -p without a command: until SIGINT" retry_longer test_until_interrupted
check "2.4 pfc record --overwrite: SIGUSR2 writes the newest samples to a file" retry_longer test_flight_recorder
check "2.4 pfc record --overwrite: SIGUSR2 without a directory for the file: it continues" retry_longer test_flight_recorder_without_directory
check "2.7 pfc record --switch-output: SIGUSR2 begins another file" retry_longer test_switched
check "1.15 pfc record: lost samples are reported, with the same number in the file" retry_longer test_lost
check "1.15 pfc record: the last lost samples are in the file, too" retry_longer test_lost stop
check_with_pmu "1.7 pfc record: two events have samples of their own" test_two_events
check "1.10 pfc flamegraph: an SVG file with the busy function" test_flamegraph
check "1.9 pfc record: the status is the command's" has_status 7 pfc record -o x sh -c 'exit 7'
check "1.9 pfc record: status 127 for an unknown command" has_status 127 pfc record -o x no_such_command
check "1.9 pfc record: status 2 for invalid arguments" sh -c 'pfc record; [ $? = 2 ] && pfc record -F 1 -c 1 true; [ $? = 2 ] && pfc record -m 3 true; [ $? = 2 ] && pfc record -e no_such_event true; [ $? = 2 ]'
check "1.9 pfc report: a truncated file is refused with status 2" test_truncated_file
check "1.9 pfc report: a missing file is refused with status 2" has_status 2 pfc report -i nowhere
check_with_perf "1.9 perf report: same share of the busy function as pfc report" test_perf_report a
check_with_perf "1.9 perf report: same share as pfc report in a file with stacks" test_perf_report g
check_with_perf "1.9 perf script: as many samples as pfc script" test_perf_script
check_with_perf "1.9 perf script: as many threads as pfc script" test_perf_threads
check_with_perf "1.9 pfc report: a file of perf record is read" test_file_of_perf
check_with_perf "1.9 pfc report: a file of perf record -z is refused with status 2, it names -z" test_compressed_file_of_perf
check "1.9 pfc report -i -: a file of pfc record on standard input" test_stdin a
check_with_perf "1.9 pfc report -i -: the stream of perf record -o -" test_stream_of_perf
check_with_perf "1.9 pfc report -i: a file of perf record -o - is read, with both events" test_two_events_of_perf
check "1.2 rmmod of the ring format succeeds after all runs of pfc" busybox rmmod pfm_ring
rm -f a b c f.* g g.svg i k l of_all p s.* t u x two all one cpu folded table lines words theirs theirs.data said
end_few_symbols
unload_modules
exit $failed
