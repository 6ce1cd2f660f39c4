#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain
# timeout: 600
# shellcheck disable=SC2012,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests that pfc record and pfc top give samples the names of the program that ran. The tests
# include an exec, a file that is replaced while its program runs, other namespaces, and threads
# that change their name. Each test is repeated with perf_event_open(2) refused ("without perf"),
# and must have the same result.
#
# The program $a spends its time in the function alpha_hot. The twin $b differs from $a in the build
# id and in the name of its hot function, betaa_hot. $dir/a_noid and $dir/b_noid are copies of $a
# and $b without a build id.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

dir=/tmp/names
a=$dir/a b=$dir/b
# Milliseconds of processor time that a program spins.
ms=100
# If $via is empty, the shell starts pfc. If $via is the name of a step, the program $a executes the
# step and then starts pfc. After the step refuse_perf, perf_event_open() fails with EACCES in pfc.
via=""

run_pfc() { # ARGUMENT...
	(exec_pfc "$@")
}
# Replaces the shell by pfc, so that the process id of a background job is the id of pfc.
exec_pfc() { # ARGUMENT...
	if [ -n "$via" ]; then exec $a "$via" exec pfc "$@"; else exec pfc "$@"; fi
}
# Runs pfc report on a file of samples. Writes the shares of threads, files and functions to $table,
# and the messages of pfc report to $words.
table=report words=report_words
report() { # FILE
	pfc report -i $1 --sort comm,dso,sym >$table 2>$words
	rc=$?
	grep '^# Samples' $table
	grep -v '^#' $table | grep . | head -n 8
	cat $words
	return $rc
}
# Prints the percentage of all samples that are in FUNCTION and, if THREAD is given, in threads with
# the name THREAD.
percent_of() { # FUNCTION [THREAD]
	awk -v f="$1" -v t="${2:-}" '!/^#/ && NF && $NF == f && (t == "" || $2 == t) { n += $1 } END { print int(n) }' $table
}
# Succeeds if the hot functions of $a and $b together have at least 5 % of all samples, and each of
# the two functions has at least 15 % of the samples of both. $a and $b run for the same time. The
# limit of 5 % is low because pfc record -a also samples the idle CPU and pfc itself.
has_both_programs() { # FILE
	local alpha beta
	report $1
	alpha=$(percent_of alpha_hot) beta=$(percent_of betaa_hot)
	[ $((alpha + beta)) -ge 5 ] && [ $((alpha * 100)) -ge $(((alpha + beta) * 15)) ] && [ $((beta * 100)) -ge $(((alpha + beta) * 15)) ]
}
# start_victim PROGRAM STEP...: runs the program in the background as $victim. The STEPs must make
# PROGRAM wait until the file $dir/go exists, before it spins.
start_victim() { # PROGRAM STEP...
	rm -f $dir/go $dir/more
	"$@" &
	victim=$!
}
# start_record FILE: starts pfc record -p $victim in the background, and waits until pfc samples.
start_record() { # FILE
	rm -f $1
	exec_pfc record -p $victim -F 1000 -o $1 2>said_by_pfc &
	recorder=$!
	wait_started $recorder || { cat said_by_* ; kill_both; return 1; }
	[ -n "$via" ] || has_open $recorder perf_event || { echo "no perf event"; kill_both; return 1; }
}
# Kills the processes that start_victim and start_record have started.
kill_both() {
	kill -9 $victim $recorder
	wait $victim $recorder
	victim="" recorder=""
} 2>/dev/null
test_exec_of_process() {
	start_victim $a until $dir/go spin $ms exec $b spin $ms until $dir/more
	start_record x || return 1
	touch $dir/go
	within 20 has_cpu_ns $victim $((2 * ms * 1000000))
	# The second program continues until pfc sleeps again, so that pfc can inspect the program
	# even if a busy host runs pfc late.
	within 20 has_slept $recorder
	touch $dir/more
	wait $victim $recorder
	has_both_programs x
}
# A thread that was started after pfc executes a program, and the kernel ends the thread that pfc
# monitors. pfc must report that the process continues.
test_exec_of_later_thread() {
	local command
	for command in "record -F 1000 -o x" "stat -e task-clock" "top --plain"; do
		start_victim $a until $dir/go thread exec $b until $dir/more
		exec_pfc $command -p $victim >tables 2>said_by_pfc &
		recorder=$!
		wait_started $recorder || { cat said_by_pfc; kill_both; return 1; }
		touch $dir/go
		within 20 grep -q $b /proc/$victim/maps || { kill_both; return 1; }
		# pfc top continues until it gets a signal.
		kill -INT $recorder 2>/dev/null
		wait $recorder
		rc=$?
		touch $dir/more
		wait $victim
		echo "status $rc of pfc $command"
		cat said_by_pfc
		[ $rc = 2 ] || return 1
		grep -q "^pfc: process $victim continues, but pfc monitors none of its threads any more: " said_by_pfc || return 1
	done
}
# The main thread of the command has samples when another thread executes a program. The kernel ends
# the main thread, and the other thread takes over its ID.
test_exec_by_thread_in_flight_recorder() {
	pfc record --overwrite -m 8 -F 1000 -o x $a spin $ms thread exec $b spin $ms || return 1
	has_both_programs x
}
# A flight recorder samples the last thread of a command that has more threads than locked memory for
# the rings of threads.
test_many_threads_in_flight_recorder() {
	rm -f /tmp/nobody/x
	chmod 666 /dev/perfmon
	su nobody -s /bin/sh -c "cd /tmp/nobody && ulimit -l 2000 && pfc record --overwrite -m 8 -e task-clock -F 1000 -o x sh -c 'n=0; while [ \$n -lt 80 ]; do $a spin 0; n=\$((n + 1)); done; exec $b spin $ms'" 2>said_by_pfc
	rc=$?
	cat said_by_pfc
	report /tmp/nobody/x
	# How many samples the 80 processes have depends on the load of the host.
	[ $rc = 0 ] && [ "$(pfc script -i /tmp/nobody/x | grep -c betaa_hot)" -ge 20 ]
}
# Programs may start pfc with blocked signals.
test_blocked_child_signal() {
	local command pfc
	pfc=$(command -v pfc)
	for command in "stat true" "stat -a true" "record -a -o x true"; do
		timeout 60 $a block_child_signal exec $pfc $command 2>said_by_pfc || { cat said_by_pfc; echo "failed: pfc $command"; return 1; }
	done
}
# A thread that was started after pfc ends the process.
test_exit_by_later_thread() {
	start_victim $a until $dir/go thread spin 50
	exec_pfc stat -e task-clock -p $victim >tables 2>said_by_pfc &
	recorder=$!
	wait_started $recorder || { cat said_by_pfc; kill_both; return 1; }
	touch $dir/go
	wait $recorder
	rc=$?
	wait $victim
	cat said_by_pfc
	[ $rc = 0 ] && ! grep -q "^pfc: process $victim continues" said_by_pfc
}
test_exec_in_shell() {
	run_pfc record -a -F 1000 -o x -- sh -c "$a spin $ms; exec $b spin $ms" || return 1
	has_both_programs x
}
# wait_named NS: waits until the command of pfc has used NS nanoseconds of CPU time. Then waits until
# pfc has used 50 ms of CPU time, in which it reads the names of the command, even on a busy host.
wait_named() {
	within 60 command_has_cpu_ns "$1" && run_for $recorder 50
}
command_has_cpu_ns() { # NS
	local command
	read -r command _ <"/proc/$recorder/task/$recorder/children"
	has_cpu_ns "$command" "$1"
}
# Without perf_event_open(), one message must report the error, and for how long names may be wrong.
test_exec_on_cpus_without_perf() {
	via=refuse_perf
	rm -f $dir/go $dir/more
	exec_pfc record -a -F 1000 -o x -- $a spin 200 until $dir/go exec $b spin 300 until $dir/more 2>said_by_pfc &
	recorder=$!
	via=""
	wait_named 200000000 && touch $dir/go && wait_named 500000000
	touch $dir/go $dir/more
	wait $recorder
	rc=$?
	cat said_by_pfc
	[ $rc = 0 ] && has_both_programs x &&
		[ "$(grep -c "^pfc: names are read from /proc, .*Permission denied.* up to 100 ms .*CAP_PERFMON" said_by_pfc)" = 1 ]
}
# Code of $b is mapped at the address of code of $a that was unmapped. Samples in the code of $b must
# not have the name of the function of $a.
test_mapped_in_place() {
	run_pfc record -F 1000 -o x $a mapped $a 100 mapped $b 600 || return 1
	report x
	[ "$(percent_of betaa_hot_mapped)" -ge 30 ] && [ "$(percent_of alpha_hot_mapped)" -le 25 ]
}
test_exec_of_command() {
	run_pfc record -F 1000 -o x $a spin $ms exec $b spin $ms || return 1
	has_both_programs x
}
# After an exec of the sampled program, a table of pfc top names functions of the second program.
test_exec_in_top() {
	start_victim $a until $dir/go spin $ms until $dir/more exec $b spin 1000000
	exec_pfc top -p $victim --plain -I 300 >tables 2>said_by_top &
	recorder=$!
	wait_started $recorder || { cat said_by_* ; kill_both; return 1; }
	touch $dir/go
	within 20 grep -q alpha_hot tables
	touch $dir/more
	within 20 grep -q betaa_hot tables
	rc=$?
	kill_both
	cat tables said_by_top
	return $rc
}
# test_replaced A B: replaces the file of the running program A by B, which has other functions at
# the same addresses. The report must not name functions of the replacement B. One message of the
# report must say that the file is of another build.
test_replaced() {
	rm -f $dir/it
	cp $1 $dir/it
	start_victim $dir/it until $dir/go spin $ms until $dir/more
	start_record x || return 1
	touch $dir/go
	within 20 has_cpu_ns $victim $((ms * 1000000))
	cp $2 $dir/new
	mv $dir/new $dir/it
	touch $dir/more
	wait $victim $recorder
	is_other_build
}
# Checks the report of a recording of $dir/it, a file that was replaced by the twin $b. The report
# must show samples of the file `it` without a function name, and none with the name of $b's hot
# function. One message of pfc must report that the file `it` is of another build.
is_other_build() {
	report x
	[ "$(percent_of betaa_hot)" = 0 ] && [ "$(grep -c 'another build' $words)" = 1 ] && grep -q ' it  *\[\.\] \[unknown\]' $table
}
# Replaces the file of a running program before pfc record begins.
test_replaced_before() {
	rm -f $dir/it
	cp $a $dir/it
	start_victim $dir/it until $dir/go spin $ms
	within 20 grep -q /it /proc/$victim/maps
	cp $b $dir/new
	mv $dir/new $dir/it
	start_record x || return 1
	touch $dir/go
	wait $victim $recorder
	is_other_build
}
# The path $dir/it is the file of $b in the mount namespace of the sampled program, and the file of
# $a in the mount namespace of pfc.
test_mount_namespace() {
	rm -f $dir/it
	cp $a $dir/it
	run_pfc record -F 1000 -o x $a bind $b $dir/it exec $dir/it spin $ms || return 1
	is_other_build && [ "$(percent_of alpha_hot)" -le 5 ]
}
# pfc top can read the files of a process in another mount namespace while the process runs.
test_mount_namespace_in_top() {
	rm -f $dir/it
	cp $a $dir/it
	start_victim $a bind $b $dir/it exec $dir/it until $dir/go spin 1000000
	within 20 grep -q /it /proc/$victim/maps
	touch $dir/go
	run_pfc top -p $victim --plain -I 300 --count 2 >tables 2>said_by_top
	kill_and_wait $victim
	cat tables said_by_top
	grep -q betaa_hot tables && ! grep -q alpha_hot tables
}
# Succeeds if all samples of the function alpha_hot are of threads with the given name.
is_alpha_of() { # NAME
	local all
	all=$(percent_of alpha_hot)
	[ "$all" -ge 15 ] && [ "$(percent_of alpha_hot $1)" -ge $((all - 2)) ]
}
test_thread_name() { # NAME STEP...
	local name=$1
	shift
	run_pfc record -F 1000 -o x $a "$@" || return 1
	report x
	is_alpha_of $name
}
test_renamed_thread() {
	start_victim $a until $dir/go name later spin $ms
	start_record x || return 1
	touch $dir/go
	wait $victim $recorder
	report x
	is_alpha_of later
}
test_pid_namespace() {
	$a pidns ${via:+$via} exec pfc record -F 1000 -o x $a spin $ms || return 1
	report x
	is_alpha_of a
}
test_pid_namespace_process() {
	$a pidns ${via:+$via} exec sh -c "$a spin 1000000 & victim=\$!; pfc record -p \$victim -F 1000 -o x sh -c '$run_for' \$victim $ms; pfc top -p \$victim --plain -I 150 --count 2 >tables; kill -9 \$victim" || return 1
	report x
	cat tables
	is_alpha_of a && grep -q ' a .*alpha_hot' tables
}
# A message reports that the CPUs also ran processes that have no id in the pid namespace of pfc.
test_pid_namespace_cpus() {
	run_victim $a spin 1000000
	$a pidns exec pfc record -a -F 1000 -o x $a spin $ms 2>said_by_pfc
	kill_and_wait $victim
	cat said_by_pfc
	report x
	grep -q 'pid name space' said_by_pfc && [ "$(percent_of alpha_hot a)" -ge 15 ] && [ "$(percent_of alpha_hot swapper)" = 0 ]
}
# Succeeds if at least PERCENT percent of the samples are in the function FUNCTION of the object
# FILE.
test_function_name() { # PERCENT FUNCTION FILE STEP...
	local min=$1 name=$2 file=$3
	shift 3
	pfc record -F 1000 -o x $a "$@" || return 1
	report x
	awk -v f="$name" -v o="$file" -v min=$min '!/^#/ && NF && $NF ~ f && index($0, o) { n += $1 } END { exit n < min }' $table
}
# A compiler in a container writes its perf map to its own /tmp, and names the perf map by its
# process id in the container.
test_perf_map_in_container() {
	mkdir -p $dir/tmp
	run_victim $a pidns bind $dir/tmp /tmp compiled anon 1000000
	within 20 has_child $victim || return 1
	read -r child <"/proc/$victim/task/$victim/children"
	child=${child%% *}
	within 20 has_cpu_ns $child 1000000
	run_pfc record -p $child -F 1000 -o x sh -c "$run_for" $child $ms
	rc=$?
	ls $dir/tmp
	[ $rc = 0 ] && report x
	rc=$?
	kill -9 $child $victim
	wait $victim 2>/dev/null
	[ $rc = 0 ] && [ "$(percent_of compiled_hot)" -ge 50 ]
}
# Call stacks must show inlined functions. The report must list the samples of an inlined function
# under the function that contains its code.
test_inlined() {
	pfc record -g -F 1000 -o x /tests/examples/inlined $ms || return 1
	pfc script --folded -i x >folded && cat folded
	grep -q 'outer_hot;middle_inlined_\[i\];inner_inlined_\[i\] ' folded || return 1
	pfc report -g -i x >$table
	grep -v '^#' $table | head -n 8
	grep -A 2 '\[\.\] outer_hot$' $table | grep -q ' inner_inlined (inlined)$' || return 1
	pfc script -i x | grep -qE '^\s+[0-9a-f]+ inner_inlined \(inlined\)$' || return 1
	pfc script --no-inline --folded -i x >folded && cat folded
	grep -q ';outer_hot [0-9]*$' folded && ! grep -q inner_inlined folded
}
test_unprivileged() {
	chmod 666 /dev/perfmon x 2>/dev/null
	old=$(cat /proc/sys/kernel/perf_event_paranoid)
	echo 3 >/proc/sys/kernel/perf_event_paranoid
	su nobody -s /bin/sh -c "cd /tmp/nobody && pfc record -F 1000 -o x $a spin $ms exec $b spin $ms" 2>said_by_pfc
	rc=$?
	echo $old >/proc/sys/kernel/perf_event_paranoid
	cat said_by_pfc
	[ $rc = 0 ] && has_both_programs /tmp/nobody/x
}
# While pfc is stopped, more programs are executed on CPU 0 than the kernel's ring has room for.
test_lost_records() {
	pfc record -a -F 100 -e cpu-clock -o x 2>said_by_pfc &
	recorder=$!
	wait_started $recorder || { cat said_by_pfc; kill -9 $recorder; return 1; }
	kill -STOP $recorder
	taskset 1 sh -c 'n=0; while [ $n -lt 2500 ]; do $0 spin 0; n=$((n + 1)); done' $a
	# SIGINT is pending when pfc continues, so the kernel may write no LOST record before pfc ends.
	kill -INT $recorder
	kill -CONT $recorder
	wait $recorder
	rc=$?
	cat said_by_pfc
	pfc report -i x 2>$words >$table
	cat $words
	grep '^# Total Lost' $table
	[ $rc = 0 ] && grep -q '^pfc: [0-9]* records of processes were lost: some names may be missing' said_by_pfc &&
		grep -qxF "$(grep 'records of processes were lost' said_by_pfc)" $words
}
# Runs the check twice, with and without perf_event_open(). Without perf_event_open(), pfc learns of
# processes in another way, but the results must be the same.
check_both_ways() { # NAME COMMAND...
	local name=$1
	shift
	via=""
	check "$name" "$@"
	via=refuse_perf
	check "$name, without perf" "$@"
	via=""
}

if [ -n "${LONG:-}" ]; then plan 43; else plan 14; fi
cd /tmp || exit 1
begin_few_symbols
unload_modules
insmod_each perfcounters perfmon pfm_soft pfm_ring
rm -rf $dir /tmp/nobody
mkdir -p $dir /tmp/nobody
chmod 777 /tmp/nobody
/tests/pfc_names copy $a && /tests/pfc_names twin $b
/tests/pfc_names copy_noid $dir/a_noid && /tests/pfc_names twin_noid $dir/b_noid
check_both_ways "1.9 pfc record -p sees an exec" test_exec_of_process
check "1.6 pfc stat -p: status 0 if a thread that was started after pfc ends the process" test_exit_by_later_thread
if_long check "1.9 pfc record, stat and top -p report an exec by a thread that was started after pfc" test_exec_of_later_thread
if_long check "1.9 pfc record --overwrite keeps the samples of the main thread when another thread executes a program" test_exec_by_thread_in_flight_recorder
if_long check "2.4 pfc record --overwrite samples the last of many threads" test_many_threads_in_flight_recorder
check "1.6 pfc stat and record end with their command if SIGCHLD is blocked" test_blocked_child_signal
check "1.9 pfc record -a sees an exec in a shell" test_exec_in_shell
check "1.9 pfc record -a without perf sees an exec, and reports for how long names may be wrong" test_exec_on_cpus_without_perf
check "1.9 a program that is replaced while it runs keeps its names or has none" test_replaced $a $b
if_long check "1.9 a program without a build id that is replaced has no names" test_replaced $dir/a_noid $dir/b_noid
check "1.9 pfc record takes no names from another mount name space" test_mount_namespace
check "1.9 a thread has the name that it gave itself" test_thread_name worker thread name worker spin $ms
if_long check "1.9 a child has the name of the parent that forked it" test_thread_name renamed name renamed fork spin $ms
check "1.9 pfc record and pfc top name a process in a pid name space" test_pid_namespace_process
via=refuse_perf
check "1.9 code that is mapped in place of other code has its own names or none, without perf" test_mapped_in_place
if_long check "1.9 a program that is replaced while it runs keeps its names or has none, without perf" test_replaced $a $b
if_long check "1.9 a program without a build id that is replaced has no names, without perf" test_replaced $dir/a_noid $dir/b_noid
if_long check "1.9 pfc record takes no names from another mount name space, without perf" test_mount_namespace
if_long check "1.9 a thread has the name that it gave itself, without perf" test_thread_name worker thread name worker spin $ms
if_long check "1.9 a child has the name of the parent that forked it, without perf" test_thread_name renamed name renamed fork spin $ms
if_long check "1.9 pfc record and pfc top name a process in a pid name space, without perf" test_pid_namespace_process
via=""
if_long check_both_ways "1.9 pfc record sees an exec of its command" test_exec_of_command
if_long check_both_ways "1.9 pfc top -p sees an exec" test_exec_in_top
if_long check_both_ways "1.9 a program that was replaced before pfc record has no names" test_replaced_before
if_long check_both_ways "1.9 pfc top reads files in the mount name space of the process" test_mount_namespace_in_top
if_long check "1.9 pfc record -p sees a new name" test_renamed_thread
if_long check_both_ways "1.9 pfc record names a command in a pid name space" test_pid_namespace
if_long check "1.9 pfc record -a says what it cannot name in a pid name space" test_pid_namespace_cpus
if_long check "1.9 pfc record -a: lost records of processes are reported, also by pfc report" test_lost_records
if_long check "1.9 a user whom perf refuses has names across an exec" test_unprivileged
check "1.9 a compiler's code in a container has names" test_perf_map_in_container
check "1.9 call stacks have inlined functions" test_inlined
if_long check "1.9 functions of the vDSO have names" test_function_name 10 clock_gettime '[vdso]' vdso $ms
if_long check "1.9 a function without a type has a name" test_function_name 50 bare_hot a bare $ms
if_long check "1.9 a compiler's code in a memfd has names" test_function_name 50 compiled_hot memfd:jit compiled memfd $ms
if_long check "1.9 a compiler's code in /dev/zero has names" test_function_name 50 compiled_hot zero compiled zero $ms
check "1.2 no context is left" busybox rmmod pfm_ring
rm -rf $dir /tmp/nobody /tmp/perf-*.map x folded $table $words tables said_by_* said last_words
end_few_symbols
unload_modules
exit $failed
