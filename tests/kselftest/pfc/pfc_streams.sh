#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 120
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc stat, record and trace with a standard error that cannot be written: a full disk, or a
# pipe whose reader has been killed. The command must run to its end, its status must be kept, and
# the file of a recording must be complete. The status of the command of pfc trace must also be kept
# if the reader of standard output has ended.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
rounds=20000000
# Milliseconds of CPU time for which a program runs before a signal. The tests need three samples.
# pfc records up to 1,000 samples per second of CPU time, but fewer on a busy host, which merges
# late ticks.
nap=$((150 * PATIENCE)) seconds=0.2
# A command that ends after some intervals of pfc stat -I, and leaves the file "ended". The command
# sleeps for at least ten intervals of 20 ms. One failed write of pfc before the command ends is
# enough for the tests.
slow="/tests/pfc_follow calls 2000000; sleep $seconds; /tests/pfc_follow calls 2000000; : >ended; exit 3"

fails_in_stderr() { # FILE COMMAND...: the command with a standard error that is FILE
	local to=$1
	shift
	"$@" 2>"$to"
}

test_stat() {
	rm -f ended
	has_status 3 fails_in_stderr /dev/full pfc stat sh -c "$slow" && [ -e ended ]
}
test_stat_intervals() {
	rm -f ended
	has_status 3 fails_in_stderr /dev/full pfc stat -I 20 sh -c "$slow" && [ -e ended ]
}
# Each write to the output file, /dev/full, fails. pfc must report the failed write after the
# command has ended.
test_stat_full_file() {
	rm -f ended
	with_words pfc stat "$@" -I 20 -o /dev/full sh -c "$slow"
	[ $rc = 2 ] && [ -e ended ] && grep -q "No space left" words
}
test_record() {
	rm -f r
	has_status 3 fails_in_stderr /dev/full pfc record -e task-clock -F 500 -o r sh -c "$program calls $rounds; exit 3" &&
		has_busy_samples r
}
# Kills the reader of pfc's standard error before SIGINT ends pfc record. If tee reads the standard
# error of pfc through a pipe, a Ctrl-C can kill tee before pfc ends.
test_record_closed_pipe() {
	run_victim $program calls 100000000000
	rm -f r pipe
	mkfifo pipe
	pfc record -a -e task-clock -F 1000 -o r 2>pipe >/dev/null &
	recorder=$!
	cat <pipe >log &
	reader=$!
	wait_started $recorder && run_for $victim $nap
	kill_and_wait $reader
	interrupt $recorder
	rc=$?
	kill_and_wait $victim
	echo "status $rc"
	cat log
	[ $rc = 0 ] && has_busy_samples r
}
test_record_switch() {
	run_victim $program calls 100000000000
	rm -f r.*
	pfc record -p $victim -e task-clock -F 1000 --switch-output -o r 2>/dev/full &
	recorder=$!
	wait_started $recorder && within 300 has_files 1
	kill -USR2 $recorder
	within 300 has_files 2
	interrupt $recorder
	rc=$?
	kill_and_wait $victim
	ls r.*
	for file in r.*; do
		has_busy_samples $file || rc=1
	done
	[ $rc = 0 ]
}
has_files() { # NUMBER: a file of --switch-output gets its name with its first sample
	[ "$(find . -maxdepth 1 -name 'r.*' | wc -l)" -ge "$1" ]
}
test_trace() {
	rm -f ended
	has_status 3 fails_in_stderr /dev/full pfc trace start t --format text -o events -- sh -c "$slow" && [ -e ended ] && [ -e events ]
}
test_trace_closed_stdout() {
	rm -f ended
	{
		pfc trace start t -e 'app:*' --format text -- sh -c "/tests/pfc_trace app 1000 0; : >ended; exit 3" 2>words
		echo $? >status
	} | :
	cat words status
	[ "$(cat status)" = 3 ] && [ -e ended ] && grep -q "^pfc: the reader of standard output has ended" words
}
test_messages() {
	pfc trace list 2>/dev/full && pfc read pfc_nothing 2>/dev/full
	[ $? = 1 ]
}

plan 10
mkdir -p /tmp/streams
cd /tmp/streams || exit 1
unload_modules
begin_few_symbols
insmod_each perfcounters perfmon perftrace pfm_soft pfm_ring
check "pfc stat: standard error is full: the command's status is kept" test_stat
check "pfc stat -I: standard error is full: the command is waited for" test_stat_intervals
check "pfc stat -I: the output file is full: an error after the command's end" test_stat_full_file
check "pfc stat -a -I: the output file is full: an error after the command's end" test_stat_full_file -a
check "pfc record: standard error is full: the file is complete, the status kept" test_record
check "pfc record -a: standard error has no reader: the file is complete" test_record_closed_pipe
check "pfc record --switch-output: standard error is full: all files are complete" test_record_switch
check "pfc trace start: standard error is full: the command's status is kept" test_trace
check "pfc trace start: standard output has no reader: the command's status is kept" test_trace_closed_stdout
check "pfc: standard error is full: no message, the same status" test_messages
end_few_symbols
unload_modules
cd /tmp || exit 1
rm -rf /tmp/streams
exit $failed
