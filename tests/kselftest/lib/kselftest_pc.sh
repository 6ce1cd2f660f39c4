# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC1003,SC2016,SC2034,SC2086,SC2317,SC2329,SC3043
#
# Shared by the tests in shell, as kselftest_pc.h is shared by the tests in C.

n=0 failed=0
plan() { # TESTS
	echo "TAP version 13"
	echo "1..$1"
}
result() { # STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n $2"; else echo "not ok $n $2"; failed=1; fi
}
check() { # NAME COMMAND...: shows the output of the command if the command fails
	local name=$1
	shift
	"$@" >said 2>&1
	local rc=$?
	[ $rc = 0 ] || { echo "# status $rc"; head -n 20 said | cut -c1-300 | sed 's/^/# /'; }
	result $rc "$name"
}
# skip NAME WHY: reports that a test was not run.
skip() {
	n=$((n + 1))
	echo "ok $n $1 # SKIP $2"
}
# has_status WANTED COMMAND...: true if the exit status of the command is WANTED.
has_status() {
	local want=$1 status=0
	shift
	"$@" || status=$?
	[ $status = "$want" ] || { echo "status $status, want $want"; return 1; }
}
# with_words COMMAND...: runs the command, shows its standard error, and leaves it in the file
# `words`. Sets $rc to the exit status of the command, and returns it.
with_words() {
	"$@" 2>words
	rc=$?
	cat words
	return $rc
}
# run_victim COMMAND...: starts the command in the background as $victim.
run_victim() {
	"$@" &
	victim=$!
}
# kill_and_wait PID...: kills processes that the shell has started.
kill_and_wait() {
	kill -9 "$@"
	wait "$@" 2>/dev/null
}
# interrupt PID: sends SIGINT to a process that the shell has started. Returns its exit status.
interrupt() {
	kill -INT "$1"
	wait "$1"
}
# if_long COMMAND...: runs the command only in the long form of a test (make test-all).
if_long() { [ -z "${LONG:-}" ] || "$@"; }
# within SECONDS COMMAND...: repeats the command until it succeeds, at most SECONDS * 10 times with
# pauses of 0.1 s, which take longer on a busy host. If the command never succeeds, prints the
# output of its last attempt.
within() {
	local left=$(($1 * 10))
	shift
	until "$@" >last_words 2>&1; do
		left=$((left - 1))
		[ $left -gt 0 ] || { cat last_words; return 1; }
		sleep 0.1
	done
}

# run_for TASK MS: waits until TASK (PID or PID/task/TID) has used MS more milliseconds of CPU time.
# A program can call run_for as the command sh -c "$run_for" TASK MS.
run_for() { within 60 has_cpu_ns "$1" $(($(cpu_ns "$1") + $2 * 1000000)); }
cpu_ns() { cut -d ' ' -f 1 "/proc/$1/schedstat"; }
has_cpu_ns() { [ "$(cpu_ns "$1")" -ge "$2" ]; }
run_for='. /tests/kselftest_pc.sh; run_for "$0" "$1"'

# has_executed PID: true if the process PID, which the shell has started, executes a program. Until
# then the process is a copy of the shell, which handles signals itself.
has_executed() {
	local own_name name
	read -r own_name <"/proc/$$/comm"
	read -r name <"/proc/$1/comm" && [ "$name" != "$own_name" ]
}
# catches_int PID: true if the program of the process handles SIGINT. A background job of a shell
# ignores SIGINT until the program installs a handler.
catches_int() { has_executed "$1" && grep -q '^SigCgt:.*[2367abef]$' "/proc/$1/status"; }
# catches_hup PID: true if the program of the process handles SIGHUP, the lowest bit of the mask
# SigCgt.
catches_hup() { has_executed "$1" && grep -q '^SigCgt:.*[13579bdf]$' "/proc/$1/status"; }
# has_busy_samples FILE: true if a recording has samples in the busy function of pfc_follow.
has_busy_samples() {
	pfc script -i "$1" >samples || { echo "no file"; return 1; }
	[ "$(grep -c work_inner samples)" -ge 3 ] || { head -n 5 samples; return 1; }
}
has_state() { # PID STATE
	local state
	read -r _ _ state _ <"/proc/$1/stat"
	[ "$state" = "$2" ]
}
# has_slept PID: true if the process sleeps in three successive checks, which means that it waits
# for samples.
has_slept() {
	for _ in 1 2 3; do
		has_state "$1" S || return 1
		sleep 0.1
	done
}
has_child() { # PID
	grep -q . "/proc/$1/task/$1/children"
}
# has_ended PID: true if the process is a zombie, or the shell has already reaped it.
has_ended() { ! grep '^State:' "/proc/$1/status" 2>/dev/null | grep -qv Z; }

# ends_with VICTIM COUNTER: kills the process VICTIM, which the counter "pfc stat -p VICTIM" counts,
# and waits for the exit of the counter. Fails if the exit status of the counter is not 0.
ends_with() {
	kill_and_wait "$1"
	within 60 has_ended "$2" || kill -9 "$2"
	wait "$2"
	rc=$?
	echo "status $rc"
	[ $rc = 0 ]
}

# is_in_poll PID: true if the process is blocked in poll() or ppoll(), where pfc waits for samples
# and signals.
is_in_poll() {
	local call
	read -r call _ <"/proc/$1/syscall"
	[ "$call" = 7 ] || [ "$call" = 271 ]
}

# has_open PID FILE: true if the process has an open file whose name contains FILE.
# shellcheck disable=SC2010 # ls -l prints the targets of links
has_open() { ls -l "/proc/$1/fd" 2>/dev/null | grep -q -- "$2"; }

# wait_started PID: waits until a pfc that samples waits for samples, and handles SIGINT.
wait_started() { within 300 has_started "$1"; }
# is_in_poll() is called first, because it starts no process. It is called again at the end, because
# the calls between take a while, and all conditions must hold at the end.
has_started() { is_in_poll "$1" && catches_int "$1" && has_open "$1" /dev/perfmon && is_in_poll "$1"; }

# Removes perfcounters.ko and the modules that use it, which a test that was killed may have left.
unload_modules() { unload_with_users perfcounters; }
unload_with_users() { # MODULE
	local m
	for m in /sys/module/"$1"/holders/*; do [ ! -e "$m" ] || unload_with_users "${m##*/}"; done
	busybox rmmod $1 2>/dev/null
}
# insmod_each NAME...: loads modules.
insmod_each() {
	local name
	for name; do insmod "/modules/$name.ko"; done
}
load_providers() {
	local ko
	while read -r ko; do insmod "/modules/$ko" 2>/dev/null; done </modules/order
}

# begin_few_symbols reduces /proc/kallsyms to its first 1,000 lines, and end_few_symbols restores
# it. In an emulated guest, pfc report needs two seconds to read all lines of /proc/kallsyms. A
# script that calls begin_few_symbols begins with own_mounts, which executes the script again in a
# mount namespace of its own.
own_mounts() { [ -n "${OWN_MOUNTS:-}" ] || exec env OWN_MOUNTS=1 unshare -m sh "$0"; }
begin_few_symbols() {
	head -n 1000 /proc/kallsyms >few_symbols && mount --bind few_symbols /proc/kallsyms
}
end_few_symbols() { [ ! -e few_symbols ] || { umount /proc/kallsyms && rm -f few_symbols; }; }

driver_cmd() { # COMMAND...: prints the result of the command
	exec 3<>/proc/test_driver
	printf '%s' "$*" >&3
	read -r reply <&3
	exec 3<&-
	echo "$reply"
}
on_cpu() { # CPU COMMAND...
	local cpu=$1
	shift
	taskset -c "$cpu" sh -c 'printf "%s" "$0" >/proc/test_driver' "$*"
}
# size is sizeof(struct perf_counter_spec).
size=32
add_desc() { # KIND UNIT EXPONENT SLOTS HELP NAME: prints the number of the new instance
	driver_cmd desc $size $1 $2 $3 $4 0 ${#5} "$5$6"
}

# Adds one instance of each kind, with values on both CPUs that only this script changes.
add_one_of_each_kind() {
	counter=$(add_desc 0 1 0 1 "what it counts" test/counter)
	gauge=$(add_desc 1 0 0 1 "" test/gauge)
	peak=$(add_desc 2 3 -9 1 "the longest" test/peak)
	time=$(add_desc 3 3 -6 1 "" test/time)
	histogram=$(add_desc 4 2 0 4 "" test/sizes)
	bytes=$(add_desc 0 2 3 1 'a "quoted\' "test/odd name/7")
	on_cpu 0 adjust $counter 40
	on_cpu 1 adjust $counter 2
	on_cpu 0 adjust $gauge 5
	on_cpu 1 adjust $gauge -7
	on_cpu 0 peak $peak 123
	on_cpu 1 peak $peak 77
	on_cpu 1 adjust $time 1500
	on_cpu 0 hist $histogram 4 0
	on_cpu 0 hist $histogram 4 3
	on_cpu 1 hist $histogram 4 1000
	on_cpu 1 hist $histogram 4 2
	on_cpu 0 adjust $bytes 3
}
