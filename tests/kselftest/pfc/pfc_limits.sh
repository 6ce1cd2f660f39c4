#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain
# timeout: 300
# shellcheck disable=SC2012,SC2016,SC2086,SC2317,SC2329,SC3043,SC3045
#
# Tests the limit of open files, and the messages of calls that fail. pfc raises its own soft limit;
# the commands that pfc starts have the old soft limit. If pfc could not monitor all threads, its
# exit status is not 0. If a call fails, the message of pfc names the file, thread or other object
# of the call, and the error.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

program=/tests/pfc_follow
# Number of threads of the victim, and a limit of open files that is too low to monitor all of these
# threads.
nr_threads=61
few=40

# Runs a command with a limit of open files.
limited() { # OPTION LIMIT COMMAND...
	(
		ulimit $1 $2
		shift 2
		exec "$@"
	)
}
has_threads() { # PID NR
	[ "$(ls /proc/$1/task | wc -l)" = "$2" ]
}
test_above_soft_limit() { # COMMAND...: of pfc, without a target
	rm -f soft
	with_words limited -Sn $few "$@" -p $victim -- sh -c 'ulimit -Sn >soft'
	echo "status $rc, limit of the command $(cat soft)"
	[ $rc = 0 ] && [ "$(cat soft)" = $few ]
}
test_limit_of_command() { # COMMAND...
	rm -f soft
	with_words limited -Sn $few "$@" -- sh -c 'ulimit -Sn >soft'
	echo "status $rc, limit of the command $(cat soft)"
	[ $rc = 0 ] && [ "$(cat soft)" = $few ]
}
test_refused() { # WORDS COMMAND...
	local what=$1
	shift
	with_words limited -n $few "$@" -p $victim true
	[ $rc = 2 ] && grep -q "^pfc: cannot $what thread [0-9]*: Too many open files (os error 24); the limit of open files is $few: raise it (ulimit -Hn)" words
}
# Tests a limit of open files that allows a context for each thread of the victim, and few other
# descriptors. pfc stat must end when the victim has exited. The victim is killed.
test_ends_with_process() {
	rm -f counts
	(
		ulimit -n $((nr_threads + 25))
		exec pfc stat -x, -I 50 -o counts -e task-clock -p $victim
	) 2>words &
	stat=$!
	within 60 grep -q task-clock counts
	counted=$?
	ends_with $victim $stat
	ended=$?
	cat words
	[ $counted = 0 ] && [ $ended = 0 ]
}
# Command that starts a process with 17 threads, ends the process when all of its threads exist, and
# exits with STATUS.
with_threads='
. /tests/kselftest_pc.sh
$0 sleepers 16 & sleepers=$!
within 60 sh -c "[ \$(ls /proc/$sleepers/task | wc -l) = 17 ]" && touch ended
kill -9 $sleepers
exit $1'
# Tests a limit of open files at which pfc cannot count all of the 17 threads. The command must
# continue to run. pfc must exit with the status of the command, or with 2 if that status is 0.
test_missed() { # MESSAGE COMMAND...
	local message=$1
	shift
	rm -f ended
	limited -n 24 "$@" -- sh -c "$with_threads" $program 5 2>more_words
	kept=$?
	with_words limited -n 24 "$@" -- sh -c "$with_threads" $program 0
	echo "status $rc and $kept"
	[ $rc = 2 ] && [ $kept = 5 ] && [ -e ended ] &&
		grep -qE "^pfc: [0-9]+ threads $message: Too many open files \(os error 24\); the limit of open files is 24: raise it" words
}
# Tests a command with more threads than the soft limit of open files allows contexts.
test_threads_of_command() { # COMMAND...
	rm -f ended
	with_words limited -Sn 24 "$@" -- sh -c "$with_threads" $program 0
	echo "status $rc"
	[ $rc = 0 ] && [ -e ended ] && ! grep -q "were not counted\|are missing" words
}
# With each limit of open files from 3 on, the command must succeed, or report that too many files
# are open. The loop over the limits ends after two consecutive limits with which the command
# succeeds.
test_messages() { # COMMAND...
	local limit nr_failed=0 in_a_row=0
	for limit in 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		limited -n $limit "$@" >/dev/null 2>words
		rc=$?
		if [ $rc = 0 ]; then
			in_a_row=$((in_a_row + 1))
			[ $in_a_row -lt 2 ] || break
			continue
		fi
		in_a_row=0
		nr_failed=$((nr_failed + 1))
		echo "# limit $limit: $(tail -n 1 words)"
		[ $rc = 2 ] && grep -q "^pfc: .*Too many open files (os error 24); the limit of open files is $limit: raise it" words &&
			! grep -qE "^pfc: cannot write:|lsmod" words || return 1
	done
	[ $nr_failed -gt 0 ]
}
# Runs a command in a mount namespace without the file system that is mounted at a directory.
without() { # DIRECTORY COMMAND...
	with_words unshare -m sh -c 'umount -l $0 && exec "$@"' "$@"
	[ $rc = 2 ]
}
test_no_sys() {
	without /sys pfc stat -a -e cpu-clock true &&
		grep -q '^pfc: cannot read /sys/devices/system/cpu/online: No such file or directory (os error 2); /sys is not mounted: mount -t sysfs sysfs /sys$' words
}
test_no_proc() {
	without /proc pfc stat -p 1 -e task-clock true &&
		grep -q '^pfc: cannot read /proc/1/task: No such file or directory (os error 2); /proc is not mounted: mount -t proc proc /proc$' words
}
test_no_process() {
	with_words pfc stat -p 99999999 -e task-clock true
	[ $rc = 2 ] && grep -q '^pfc: no process 99999999$' words
}
test_output() { # MESSAGE COMMAND...
	local message=$1
	shift
	"$@" 2>words >/dev/full
	rc=$?
	cat words
	[ $rc = 2 ] && grep -q "^pfc: $message" words
}

plan 23
cd /tmp || exit 1
unload_modules
insmod_each perfcounters perfmon ppa perftrace pfm_soft pfm_ring pfc_sched
run_victim $program sleepers $((nr_threads - 1))
within 60 has_threads $victim $nr_threads
check "1.6 pfc stat -p: more threads than the soft limit of open files" test_above_soft_limit pfc stat -e task-clock -o counts
check "1.6 pfc record -p: more threads than the soft limit of open files" test_above_soft_limit pfc record -o r
check "1.2 pfc stat: the command keeps the soft limit" test_limit_of_command pfc stat -e task-clock -o counts
check "1.2 pfc record: the command keeps the soft limit" test_limit_of_command pfc record -o r
check "3.1 pfc trace start: the command keeps the soft limit" test_limit_of_command pfc trace start t --format text -o t
check "1.6 pfc stat -p: EMFILE at the hard limit, with the thread and the limit" test_refused count pfc stat -e task-clock
check "1.6 pfc record -p: EMFILE at the hard limit, with the thread and the limit" test_refused sample pfc record -e task-clock -o r
check "1.6 pfc stat -p near the hard limit of open files: until the process has exited" test_ends_with_process
check "1.2 pfc stat: a command with more threads than the soft limit of open files" test_threads_of_command pfc stat -e task-clock -o counts
check "1.2 pfc record: a command with more threads than the soft limit of open files" test_threads_of_command pfc record -e task-clock -o r
check "1.2 pfc stat: status 2 and a number if threads were not counted" test_missed "were not counted; of the first: cannot count a thread" pfc stat -e task-clock -o counts
check "1.2 pfc record: status 2 and a number if threads were not sampled" test_missed "are missing; of the first: cannot sample a thread" pfc record -e task-clock -o r
check "pfc list: EMFILE with the file and the limit" test_messages pfc list
check "pfc stat: EMFILE with the call and the limit" test_messages pfc stat -e task-clock -o counts true
check "pfc record: EMFILE with the call and the limit" test_messages pfc record -e task-clock -o r true
check "pfc trace start: EMFILE with the call and the limit" test_messages pfc trace start t --format text -o t -- true
pfc ppa on >/dev/null
check "pfc ppa: EMFILE with the file and the limit" test_messages pfc ppa
pfc ppa off
check "pfc stat -a without /sys: ENOENT with the file, and that /sys is not mounted" test_no_sys
check "pfc stat -p without /proc: ENOENT with the directory, and that /proc is not mounted" test_no_proc
check "pfc stat -p of a process that does not exist: it says so" test_no_process
check "pfc list to a full device: ENOSPC with standard output" test_output "cannot write to standard output: No space left on device (os error 28)" pfc list
check "pfc export to a full device: ENOSPC with standard output" test_output "cannot write to standard output: No space left on device (os error 28)" pfc export --openmetrics
check "pfc list -o to a full device: ENOSPC with the file" test_output "cannot write to /dev/full: No space left on device (os error 28)" pfc list -o /dev/full
rm -f soft words more_words ended counts r t said last_words
unload_modules
exit $failed
