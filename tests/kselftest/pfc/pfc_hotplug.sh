#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain
# timeout: 300
# shellcheck disable=SC2010,SC2016,SC2086,SC2317,SC2329,SC3043,SC3045
#
# CPU 1 is taken offline and online while pfc stat, record and top monitor CPU 1. When CPU 1 is
# online again, pfc must monitor CPU 1 again, and must report the time in which CPU 1 was not
# monitored. If a program is executed on CPU 1 while pfc records, its samples must have its names, also
# if CPU 1 was offline before.
#
# Only the monitored programs run on CPU 1. This script and pfc run on CPU 0, except when pfc reads
# the counts of CPU 1.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
# The program $a spends its time in the function alpha_hot, and its twin $b in betaa_hot.
dir=/tmp/hotplug
a=$dir/a b=$dir/b

set_online() { # 0|1
	echo "$1" >/sys/devices/system/cpu/cpu1/online
}
nr_contexts() { # PID
	ls -l "/proc/$1/fd" 2>/dev/null | grep -c /dev/perfmon
}
has_contexts() { # PID NUMBER
	[ "$(nr_contexts "$1")" -ge "$2" ]
}
lacks_contexts() { # PID NUMBER
	[ "$(nr_contexts "$1")" -lt "$2" ]
}
# Starts pfc in the background, and waits until pfc monitors with NUMBER contexts.
start() { # NUMBER ARGUMENT...
	local number=$1
	shift
	pfc "$@" >said_by_pfc 2>&1 &
	pid=$!
	wait_started $pid && within 60 has_contexts $pid "$number"
}
# Starts pfc stat -I in the background, and waits for the counts of an interval. With a short
# interval, pfc is seldom in poll().
start_intervals() { # MILLISECONDS
	rm -f counts
	pfc stat -a -I $1 -x, -o counts -e page-faults >said_by_pfc 2>&1 &
	pid=$!
	within 60 test -s counts && has_contexts $pid 2
}
# Takes CPU 1 offline and online, and waits until pfc has as many contexts as before. Fails if pfc
# has ended.
cycle() { # NUMBER
	set_online 0
	within 10 lacks_contexts $pid "$1"
	echo "contexts while CPU 1 is offline: $(nr_contexts $pid) of $1"
	set_online 1
	has_ended $pid && {
		echo "pfc has ended"
		cat said_by_pfc
		return 1
	}
	within 60 has_contexts $pid "$1"
}
# pm_test "processors" takes all CPUs but CPU 0 offline, waits, and takes them online again. In make
# test the kernel does not wait: no process runs during the wait, so pfc cannot notice it. pfc
# attaches a new context to CPU 1 only after suspend_cpus has returned.
suspend_cpus() {
	echo ${LONG:-0} >/sys/module/suspend/parameters/pm_test_delay
	echo processors >/sys/power/pm_test
	echo mem >/sys/power/state
	echo none >/sys/power/pm_test
}
# The function that makes the gap in which CPU 1 is offline: cycle or suspend_cpus.
gap=cycle
stop() {
	interrupt $pid
	rc=$?
	cat said_by_pfc
	[ $rc = 0 ]
}
# Causes more than 2000 page faults on CPU 1: each dd writes to the 450 pages of its buffer. The
# buffer is smaller than 2 MB, so it contains no huge page, which would need only one page fault.
fault() {
	taskset -c 1 sh -c 'for n in 1 2 3 4 5; do dd if=/dev/zero of=/dev/null bs=1800k count=1; done' 2>/dev/null
}
value_of() { # EVENT FILE: the value from pfc's CSV output, as an integer
	sed -n "s/^\([0-9]*\)[0-9.]*,[^,]*,$1,.*/\1/p" "$2"
}
is_least() { # VALUE LEAST
	echo "value '$1', at least $2"
	[ "${1:-0}" -ge "$2" ]
}

test_stat() { # OPTIONS NUMBER
	start $2 stat $1 -x, -o counts -e page-faults || return 1
	cycle $2 || return 1
	fault
	stop || return 1
	cat counts
	is_least "$(value_of page-faults counts)" 2000 && is_least "$(value_of not-counted:cpu1 counts)" 1 &&
		grep -q "^[0-9]*,,page-faults,.*,offline$" counts &&
		grep -qx "pfc: counting CPU 1 omitted the time in which the CPU was offline" said_by_pfc
}
test_stat_json() {
	start 2 stat -a --json -o counts -e page-faults || return 1
	cycle 2 || return 1
	stop || return 1
	cat counts
	grep '"event":"not-counted:cpu1"' counts | grep -q '"unit":"msec"'
}
# has_whole_interval_after LINES: succeeds if pfc stat -I has written an interval without a mark. The
# first LINES lines of the file and the three lines after them are ignored.
has_whole_interval_after() { tail -n +$(($1 + 4)) counts | grep -q 'page-faults,[0-9]*,100.00,[^,]*,[^,]*$'; }
# pfc stat -I must mark only the intervals in which CPU 1 was offline. pfc runs on CPU 1 while it
# reads the counts of CPU 1. With an interval of 10 ms, some reads come after the kernel has moved
# pfc away from CPU 1 and before the context of CPU 1 ends.
test_stat_interval() {
	start_intervals 10 || return 1
	cycle 2 || return 1
	within 60 has_whole_interval_after "$(grep -c . counts)"
	rc=$?
	stop || return 1
	cat counts
	[ $rc = 0 ] && grep -q ",msec,not-counted:cpu1," counts && grep -q "page-faults,.*,offline$" counts
}
# CPU 1 is offline when pfc starts, and comes online later.
test_stat_new_cpu() {
	set_online 0
	start 1 stat -a -x, -o counts -e page-faults
	rc=$?
	set_online 1
	[ $rc = 0 ] && within 60 has_contexts $pid 2
	rc=$?
	fault
	stop || return 1
	cat counts
	[ $rc = 0 ] && is_least "$(value_of page-faults counts)" 2000 && is_least "$(value_of not-counted:cpu1 counts)" 1
}
# Prints the number of samples of the program pfc_follow on CPU 1 in the recording x.
nr_on_cpu1() {
	pfc script --json -i x | grep '"cpu":1,' | grep -c pfc_follow
}
# Runs the program on CPU 1. Succeeds if the recording x, or the tables of pfc top, have samples of
# the program.
is_recorded() {
	taskset -c 1 $program calls 1000000
	[ "$(nr_on_cpu1)" -ge 10 ]
}
is_in_table() {
	taskset -c 1 $program calls 1000000
	grep -q pfc_follow said_by_pfc
}
test_record() { # OPTIONS NUMBER
	start $2 record $1 -F 500 -e cpu-clock -o x || return 1
	$gap $2 || return 1
	within 60 is_recorded
	stop || return 1
	pfc report -i x >table
	head -n 8 table
	is_least "$(nr_on_cpu1)" 10 && grep -q "^# Not Sampled: CPU 1 was offline for [0-9.]* s$" table &&
		pfc report --json -i x | grep -q '"offline":\[{"cpu":1,"ns":[1-9][0-9]*}\]' &&
		grep -q "^pfc: CPU 1 was not sampled for [0-9.]* s, in which it was offline$" said_by_pfc
}
test_top() {
	start 2 top --plain -I 200 -F 500 -e cpu-clock || return 1
	$gap 2 || return 1
	within 60 is_in_table
	rc=$?
	stop || return 1
	[ $rc = 0 ] && grep -q "^# .*, CPU 1 offline for [0-9.]* s$" said_by_pfc
}
# While pfc is stopped, CPU 1 goes offline and online, and another pfc attaches a context to CPU 1. A
# CPU can have only one context, so the first pfc cannot monitor CPU 1 again.
test_taken() { # VERB ARGUMENT...
	local verb=$1
	shift
	start 2 "$@" || return 1
	kill -STOP $pid
	set_online 0
	set_online 1
	pfc stat -C 1 -o taken -e page-faults &
	other=$!
	within 60 has_contexts $other 1
	kill -CONT $pid
	within 60 lacks_contexts $pid 2
	interrupt $pid
	rc=$?
	interrupt $other
	cat said_by_pfc
	[ $rc = 2 ] && grep -q "^pfc: cannot $verb CPU 1 again: " said_by_pfc
}
# Starts the program $a in the background as $victim. After the file $dir/go exists, $a executes $b.
# After the file $dir/more exists, $b spins.
start_victim() {
	rm -f $dir/go $dir/more
	run_victim $a until $dir/go exec $b until $dir/more spin 200
}
# Makes $victim execute $b on CPU 1 and spin on CPU 0. The samples of the spin must have names of $b.
exec_on_cpu1() {
	taskset -p 2 $victim >/dev/null
	touch $dir/go
	within 20 grep -qx b /proc/$victim/comm
	rc=$?
	taskset -p 1 $victim >/dev/null
	touch $dir/more
	wait $victim
	stop || return 1
	pfc report -i x --sort comm,sym >table
	head -n 8 table
	[ $rc = 0 ] && grep -q " b .* betaa_hot$" table && ! grep -q " alpha_hot$" table
}
# CPU 1 is offline when pfc starts, and comes online before $a executes $b on it.
test_exec_on_new_cpu() {
	set_online 0
	start_victim
	start 1 record -p $victim -F 500 -o x
	rc=$?
	set_online 1
	[ $rc = 0 ] || { kill -9 $victim; return 1; }
	exec_on_cpu1
}
# CPU 1 goes offline and comes online while pfc records. pfc opens perf events for all tasks, which
# end when their CPU goes offline.
test_exec_after_gap() { # OPTIONS
	start_victim
	[ "$1" != -p ] || set -- "-p $victim"
	start 1 record $1 -F 500 -o x || { kill -9 $victim; return 1; }
	set_online 0
	set_online 1
	# Within this time, pfc detects that CPU 1 was offline, and opens its event on CPU 1 again.
	sleep 0.5
	exec_on_cpu1
}
# With so few open files, pfc record -p opens perf events for all tasks.
test_exec_after_gap_with_few_files() (
	ulimit -n 66
	test_exec_after_gap -p
)
test_suspend() {
	start_intervals 50 || return 1
	suspend_cpus
	within 60 has_whole_interval_after "$(grep -c . counts)"
	rc=$?
	# The sum must not have the page faults of the processes that within() has started.
	nr_lines=$(grep -c . counts)
	fault
	stop || return 1
	cat counts
	[ $rc = 0 ] && grep -q ",msec,not-counted:cpu1," counts &&
		is_least "$(awk -F, '$4 == "page-faults" && NR > old { n += $2 } END { print n }' old="$nr_lines" counts)" 2000
}

unload_modules
taskset -p 1 $$ >/dev/null
insmod_each perfcounters perfmon pfm_soft pfm_ring
if [ -n "${LONG:-}" ]; then plan 16; else plan 9; fi
cd /tmp || exit 1
begin_few_symbols
rm -rf $dir
mkdir $dir
/tests/pfc_names copy $a && /tests/pfc_names twin $b
check "9.6 pfc stat -a: a CPU that was offline is counted again, and the gap is a row" test_stat -a 2
if_long check "9.6 pfc stat -C 1: a CPU that was offline is counted again, and the gap is a row" test_stat "-C 1" 1
check "9.6 pfc stat --json: the gap is an object" test_stat_json
check "9.6 pfc stat -I: intervals after the gap are not marked" test_stat_interval
check "9.6 pfc stat -a: a CPU that comes online for the first time is counted" test_stat_new_cpu
check "9.6 pfc record -a: a CPU that was offline is sampled again, and pfc report shows the gap" test_record -a 2
if_long check "9.6 pfc record -C 1: a CPU that was offline is sampled again, and pfc report shows the gap" test_record "-C 1" 1
check "9.6 pfc top: a CPU that was offline is sampled again, and the title shows the gap" test_top
check "9.6 pfc record -p: an exec on a CPU that came online later gives samples the new names" test_exec_on_new_cpu
if_long check "9.6 pfc record -p with few open files: an exec on a CPU that was offline gives samples the new names" test_exec_after_gap_with_few_files
if_long check "9.6 pfc record -C 0: an exec on a CPU that was offline gives samples the new names" test_exec_after_gap "-C 0"
check "9.6 pfc stat -a: CPUs are counted again after suspend" test_suspend
gap=suspend_cpus
if_long check "9.6 pfc record -a: CPUs are sampled again after suspend, and pfc report shows the gap" test_record -a 2
if_long check "9.6 pfc top: CPUs are sampled again after suspend, and the title shows the gap" test_top
check "9.6 pfc stat -a: status 2 if a CPU that was offline cannot be counted again" test_taken count stat -a -o counts -e page-faults
if_long check "9.6 pfc record -a: status 2 if a CPU that was offline cannot be sampled again" test_taken sample record -a -F 500 -e cpu-clock -o x
rm -rf $dir
rm -f counts said_by_pfc taken x table last_words
end_few_symbols
unload_modules
exit $failed
