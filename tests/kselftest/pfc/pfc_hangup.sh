#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 240
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc record, stat, trace and ppa record when they get a signal. If the terminal is closed,
# SIGHUP must end pfc like SIGTERM. If SIGHUP is ignored, as by nohup, pfc must continue to record.
# A SIGINT that another process has sent must reach the command that pfc runs. The files that pfc
# writes must be complete.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
# Milliseconds of CPU time for which a program runs before the signal. The tests need three samples.
# pfc records up to 1,000 samples per second of CPU time, but fewer on a busy host, which merges
# late ticks.
nap=$((200 * PATIENCE))
# Shell code of a command that exits with 3 after SIGTERM and with 4 after SIGINT. The command
# writes the ID of the program that it runs to the file `child`.
until_signal="trap 'kill \$!; exit 3' TERM; trap 'kill \$!; exit 4' INT; $program calls 100000000000 & echo \$! >child; wait"

# Waits until the program of $until_signal has run for a while. If the COMMAND does not contain
# $until_signal, waits until the victim has run for a while.
wait_run() { # COMMAND...
	case $* in
	*"$until_signal") within 100 test -s child && run_for "$(cat child)" $nap ;;
	*) run_for $victim $nap ;;
	esac
}
# Starts a COMMAND. Waits until the COMMAND has opened the file OPEN, and until its program or the
# victim has run for a while. Then sends SIGHUP to the COMMAND. Sets $rc to the exit status of the
# COMMAND.
hang_up() { # OPEN COMMAND...
	send_signal HUP "$@"
}
# Sends SIGNAL to a COMMAND in the same way as hang_up sends SIGHUP. If the COMMAND does not end,
# kills it.
send_signal() { # SIGNAL OPEN COMMAND...
	local signal=$1 open=$2
	shift 2
	rm -f child
	"$@" >words 2>&1 &
	command=$!
	within 100 catches_hup $command && within 100 has_open $command $open && wait_run "$@"
	kill -$signal $command
	within 20 has_ended $command || { echo "does not end"; busybox pkill -9 -P $command; kill -9 $command; }
	wait $command
	rc=$?
	echo "status $rc"
	cat words
}

test_record_all() {
	rm -f r
	hang_up /dev/perfmon pfc record -a -e task-clock -F 1000 -o r
	[ $rc = 0 ] && has_busy_samples r
}
# When pfc record gets SIGHUP, the command that it has started gets SIGTERM and ends by itself. The
# exit status of pfc record must be that of the command.
test_record_command() {
	rm -f r
	hang_up /dev/perfmon pfc record -e task-clock -F 1000 -o r sh -c "$until_signal"
	[ $rc = 3 ] && pfc script -i r >samples && [ -s samples ]
}
# Works like test_record_command, but pfc records CPUs or threads while the command runs.
test_record_beside() {
	rm -f r
	hang_up /dev/perfmon pfc record "$@" -e task-clock -F 1000 -o r -- sh -c "$until_signal"
	[ $rc = 3 ] && has_busy_samples r
}
test_stat_beside() {
	rm -f counts
	hang_up /dev/perfmon pfc stat "$@" -e cpu-clock,task-clock -o counts -- sh -c "$until_signal"
	cat counts
	[ $rc = 3 ] && grep -q clock counts
}
# Sends SIGINT to pfc alone and not to the command, as kill(1) does.
test_record_int() {
	rm -f r
	send_signal INT /dev/perfmon pfc record "$@" -e task-clock -F 1000 -o r -- sh -c "$until_signal"
	[ $rc = 4 ] && pfc script -i r >samples && [ -s samples ]
}
test_stat_int() {
	rm -f counts
	send_signal INT /dev/perfmon pfc stat "$@" -e cpu-clock,task-clock -o counts -- sh -c "$until_signal"
	cat counts
	[ $rc = 4 ] && grep -q clock counts
}
test_trace_int() {
	rm -f events
	send_signal INT /dev/perftrace pfc trace start t -o events --format perfetto -- sh -c "$until_signal"
	[ $rc = 4 ] && grep -q traceEvents events
}
# Tests pfc record with SIGHUP ignored: the recording continues until SIGINT.
test_record_nohup() {
	rm -f r
	(trap '' HUP; exec pfc record -p $victim -e task-clock -F 1000 -o r) >words 2>&1 &
	command=$!
	wait_started $command
	kill -HUP $command
	run_for $victim $nap
	! has_ended $command || { cat words; return 1; }
	interrupt $command
	rc=$?
	echo "status $rc"
	[ $rc = 0 ] && has_busy_samples r
}
test_stat() {
	hang_up /dev/perfmon pfc stat -e task-clock -p $victim -o counts
	cat counts
	[ $rc = 0 ] && grep -q task-clock counts
}
test_trace() {
	rm -f events
	hang_up /dev/perftrace pfc trace start t -o events --format perfetto
	[ $rc = 0 ] && grep -q traceEvents events && pfc trace list >traces 2>&1 && ! grep -q '^t ' traces
}
test_ppa() {
	rm -f values
	pfc ppa on && hang_up /dev/ppa pfc ppa record $victim -o values -d 20
	pfc ppa off
	[ $rc = 0 ] && pfc ppa report values
}

if [ -n "${LONG:-}" ]; then plan 14; else plan 10; fi
mkdir -p /tmp/hangup
cd /tmp/hangup || exit 1
unload_modules
insmod_each perfcounters perfmon perftrace ppa pfm_soft pfm_ring
begin_few_symbols
run_victim $program calls 100000000000
check "1.9 pfc record -a: a hangup ends it, and the file is complete" test_record_all
check "1.9 pfc record COMMAND: a hangup ends the command, whose status is kept" test_record_command
check "1.9 pfc record -a COMMAND: a hangup ends the command by SIGTERM" test_record_beside -a
if_long check "1.9 pfc record -p COMMAND: a hangup ends the command by SIGTERM" test_record_beside -p $victim
check "1.16 pfc stat -a COMMAND: a hangup ends the command by SIGTERM" test_stat_beside -a
check "1.9 pfc record COMMAND: SIGINT for pfc alone reaches the command" test_record_int
if_long check "1.9 pfc record -a COMMAND: SIGINT for pfc alone reaches the command" test_record_int -a
check "1.16 pfc stat COMMAND: SIGINT for pfc alone reaches the command" test_stat_int
if_long check "1.16 pfc stat -a COMMAND: SIGINT for pfc alone reaches the command" test_stat_int -a
check "3.11 pfc trace start COMMAND: SIGINT for pfc alone reaches the command" test_trace_int
check "1.9 pfc record: a hangup that is ignored does not end it" test_record_nohup
if_long check "1.16 pfc stat: a hangup ends it, and the counts are written" test_stat
check "3.11 pfc trace start: a hangup ends the trace, and the file is complete" test_trace
check "4.4 pfc ppa record: a hangup ends it, and the file is complete" test_ppa
kill_and_wait $victim
end_few_symbols
unload_modules
cd /tmp || exit 1
rm -rf /tmp/hangup
exit $failed
