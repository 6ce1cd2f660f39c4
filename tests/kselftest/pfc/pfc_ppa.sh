#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest: probes
# worlds: stock
# timeout: 120
# shellcheck disable=SC2030,SC2031,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc ppa: it turns accounting on and off, and shows one task, all tasks, CPUs, a histogram, a
# live view and a recording. Also tests the messages of pfc ppa when there is nothing to show.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

# shows ARGUMENT...: runs pfc ppa, and shows its output, which stays in the file `words`.
shows() {
	pfc ppa "$@" >words || return 1
	head -n 20 words
}
test_off() {
	pfc ppa $$ 2>words
	rc=$?
	pfc ppa 2>>words && return 1
	cat words
	[ $rc != 0 ] && [ "$(grep -c 'pfc ppa on' words)" = 2 ]
}
test_turn_on() {
	pfc ppa on && shows status || return 1
	cat /proc/sys/kernel/ppa
	grep -qE '^1	1	0' /proc/sys/kernel/ppa
}
test_one_task() {
	shows $sleeper && grep -q '^All results in micro seconds (\[v2.0\]) [0-9]* cycles/usec [0-9]* CPUs active' words &&
		grep -qE 'Usr +Sys +Int +Total' words && grep -qE 'Rescheds +Scho +Prmpt-Pri +Prmpt-Exp +Avg-Latency' words &&
		grep -qE 'Sys-Idle +Avg-Ctxt-Dur' words
}
test_one_task_json() {
	shows --json $sleeper && grep -q "\"pid\":$sleeper" words
}
test_all_tasks() {
	shows --rows 5 && [ "$(wc -l <words)" -gt 4 ]
}
test_cpus() {
	shows --cpus && grep -qi idle words
}
test_latencies() {
	shows --histogram $sleeper && grep -q 'us' words
}
test_live() {
	shows --top -d 0.1 -n 2 && [ -s words ]
}
test_record() {
	pfc ppa record $sleeper -o recorded -d 20 -t 0.4 && shows report recorded &&
		pfc ppa report recorded -o drawn.svg && grep -q '^<svg\|<svg ' drawn.svg
}
# start_unreaped: starts a task whose parent does not reap it. Sets $task and $parent to the IDs of
# the task and its parent.
start_unreaped() {
	rm -f pid
	sh -c 'sleep 300 & echo $! >pid; exec sleep 300' &
	parent=$!
	within 60 test -s pid && read -r task <pid
}
# kill_when_ready PFC: waits until pfc, which runs in the background, has read the tasks once and
# catches signals. Then kills the task. Returns the status of pfc. Fails if the task was reaped.
kill_when_ready() {
	within 60 catches_int "$1" && kill $task && wait "$1" && [ -e /proc/$task ]
	local rc=$?
	kill $task $parent
	cat errors
	return $rc
}
test_record_unreaped() {
	start_unreaped || return 1
	rm -f recorded
	pfc ppa record $task -o recorded -d 50 2>errors &
	kill_when_ready $! && [ ! -s errors ] && [ -s recorded ]
}
test_live_unreaped() {
	start_unreaped || return 1
	pfc ppa --top -p $task,$sleeper -d 0.5 -n 5 >words 2>errors &
	kill_when_ready $! && [ ! -s errors ] && [ "$(grep -c '^# ' words)" = 5 ]
}
# The task exits, and a busy process gets its ID.
test_live_reused_id() {
	run_victim sleep 300
	task=$victim
	pfc ppa --top -p $task,$sleeper -d 0.2 -n 20 >words 2>errors &
	local pfc=$! reused=0
	within 60 catches_int $pfc && kill $task || return 1
	wait $task
	while [ $reused != $task ]; do
		[ $reused = 0 ] || kill $reused
		echo $((task - 1)) >/proc/sys/kernel/ns_last_pid
		(while :; do :; done) &
		reused=$!
	done
	wait $pfc
	local rc=$?
	kill $reused
	cat errors
	grep "^ *$task " words
	[ $rc = 0 ] && [ "$(grep -c '^# ' words)" = 20 ] && ! grep -q "^ *$task " words
}
test_unprivileged() {
	with_words pfc ppa 999999999
	[ $rc != 0 ]
}
# The memory limit of the user is too low for the records of four more tasks.
test_refused() {
	local limit=/sys/module/perfcounters/parameters/user_kb before
	read -r before <$limit && echo 1 >$limit || return 1
	su nobody -s /bin/sh -c 'for i in 1 2 3 4; do sleep 0.5 & done; wait'
	echo "$before" >$limit
	pfc export --openmetrics --tasks 1 'ppa/*' >words || return 1
	grep '^pfc_tasks' words
	grep -q '^pfc_tasks_refused_total [1-9]' words && grep -q '^pfc_tasks_lost_total 0$' words
}
test_individually() {
	shows on $sleeper && grep -qE "^individual +$sleeper$" words && grep -q 'All results' /proc/ppa/$sleeper/ppa &&
		pfc ppa $sleeper >words && ! pfc ppa $$ 2>words && shows off $sleeper &&
		grep -qE "^individual +none$" words
}
# The read that returns the last record of an individually accounted task turns accounting off.
test_individually_ended() {
	run_victim sleep 300
	task=$victim
	pfc ppa on $task >words && kill $task || return 1
	wait $task
	shows && grep -q "^ *$task .* ended" words
}
test_turn_off() {
	pfc ppa off && grep -qE '^0	0	0' /proc/sys/kernel/ppa
}
test_files_removed() {
	unload_modules
	with_words pfc ppa 1
	[ $rc != 0 ] && grep -q 'modprobe ppa' words
}

plan 18
cd /tmp || exit 1
unload_modules
echo >/proc/sys/kernel/modprobe
insmod_each perfcounters ppa
# Starts few processes per second, because in an emulated guest each start takes some milliseconds.
(while :; do sleep 0.05; done) &
sleeper=$!
check "4.8 pfc ppa while accounting is off: it names pfc ppa on" test_off
check "4.8 pfc ppa on: accounting is on" test_turn_on
check "4.2 pfc ppa PID: the layout of PPA (2006)" within 20 test_one_task
check "4.2 pfc ppa --json PID: the task's values" test_one_task_json
check "4.4 pfc ppa: a table of all tasks" test_all_tasks
check "4.9 pfc ppa --cpus: a table of the CPUs" test_cpus
check "4.4 pfc ppa --histogram PID: wakeup latencies" test_latencies
check "4.4 pfc ppa --top: the live view prints tasks" test_live
check "4.4 pfc ppa record and report: a table and an SVG file" test_record
check "4.4 pfc ppa record PID: the task has exited and is not reaped: status 0" test_record_unreaped
check "4.4 pfc ppa --top -p PID,PID: one task is not reaped: the other is shown" test_live_unreaped
check "4.4 pfc ppa --top -p PID,PID: a later task with the same ID is not shown" test_live_reused_id
check "4.4 pfc ppa with an unknown PID: it fails" test_unprivileged
check "9.6 pfc export --tasks: tasks that user_kb refuses are counted" test_refused
check "4.8 pfc ppa off: accounting is off" test_turn_off
check "4.7 pfc ppa on PID: only that task is accounted, until off" test_individually
check "4.7 pfc ppa on PID: after the task has ended, pfc ppa shows its values" test_individually_ended
kill $sleeper
check "4.8 pfc ppa without the module: it names modprobe ppa" test_files_removed
rm -f words errors pid recorded drawn.svg
exit "$failed"
