#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 120
# shellcheck disable=SC2012,SC2015,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests the output files of pfc: symbolic links of other users, files that two recordings write,
# files that are removed during a recording, and the permissions of new files.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
# Milliseconds of CPU time for which a program runs before pfc record gets SIGINT. The recordings
# have 1,000 samples per second of CPU time, and need three samples.
nap=$((200 * PATIENCE))

# In the directory d, which is like /tmp, the user nobody has created the symbolic link d/x to
# root's file "victim". If pfc runs as root, it must not follow this link.
test_link_of_other_user() { # COMMAND...
	rm -rf d victim
	mkdir -m 1777 d
	echo precious >victim
	su nobody -s /bin/sh -c "ln -s $PWD/victim d/x" || return 1
	"$@" >/dev/null 2>words
	rc=$?
	cat words victim
	ls -lA d
	[ $rc = 2 ] && [ "$(cat victim)" = precious ] && grep -q '^pfc: cannot write to d/x: Permission denied .*symbolic link' words
}
test_own_link() {
	rm -rf d own
	mkdir -m 1777 d
	echo old >own
	ln -s ../own d/x
	pfc doctor --json -o d/x
	[ -L d/x ] && [ ! -L own ] && grep -q "\"schema\":1" own
}
# Records a busy process until the signal INT. Sets $recorder to the process ID of pfc, and returns
# when the file has samples.
begin_record() { # FILE PROCESS
	pfc record -p $2 -e task-clock -F 1000 -o $1 2>words.$2 &
	recorder=$!
	wait_started $recorder && run_for $2 $nap
}
end_record() { # RECORDER PROCESS
	interrupt $1
	rc=$?
	echo "status $rc"
	cat words.$2
	return $rc
}
# The second recording begins when the first has written samples to the file.
test_two_recordings() {
	rm -f r r.*
	begin_record r $busy && within 60 test -e r || return 1
	first=$recorder
	begin_record r $other || return 1
	second=$recorder
	end_record $second $other && end_record $first $busy || return 1
	ls -lA r*
	has_busy_samples r && has_busy_samples r.$second &&
		grep -q "this recording is in $PWD/r.$second\$" words.$other &&
		grep -q "Captured and wrote .* MB $PWD/r.$second (" words.$other &&
		grep -q "Captured and wrote .* MB r (" words.$busy && ! grep -q '^pfc:' words.$busy
}
# Another program creates the file before pfc has its first sample. When pfc waits in poll(), it has
# found that the file does not exist.
test_file_appears() {
	rm -f r r.*
	sleep 1000 &
	sleeper=$!
	pfc record -p $sleeper -e task-clock -F 200 -o r 2>words.$sleeper &
	recorder=$!
	wait_started $recorder || return 1
	echo precious >r
	end_record $recorder $sleeper
	rc=$?
	kill $sleeper
	ls -lA r*
	[ $rc = 0 ] && [ "$(cat r)" = precious ] && [ -e r.$recorder ]
}
test_removed() {
	rm -f r r.*
	begin_record r $busy && within 60 test -e r || return 1
	rm r
	end_record $recorder $busy
	ls -lA
	[ $rc = 2 ] && grep -q '^pfc: cannot write to r: .*removed or replaced' words.$busy && ! grep -q Captured words.$busy
}
mode_of() { stat -c '%U %a' "$1"; }
test_private() {
	rm -f r q p
	(umask 022; pfc record -e task-clock -o r $program calls 1000000) || return 1
	# If root overwrites the file of another user by a recording, the new file belongs to root
	# and has mode 600.
	echo old >q
	chown nobody q
	chmod 644 q
	pfc record -e task-clock -o q $program calls 1000000 || return 1
	# The caller's own file keeps its mode.
	echo old >p
	chmod 640 p
	pfc record -e task-clock -o p $program calls 1000000 || return 1
	ls -lA
	[ "$(mode_of r)" = "root 600" ] && [ "$(mode_of q)" = "root 600" ] && [ "$(mode_of p)" = "root 640" ]
}
# A user may replace files of other users in the directory d. The new files belong to the user, and
# give no more permissions than the old files.
test_other_owner() {
	rm -rf d
	mkdir -m 777 d
	for mode in 660 664 4777; do
		echo old >d/$mode
		chown 2:2 d/$mode
		chmod $mode d/$mode
		# The status is 1, because the user may not open the devices.
		su nobody -s /bin/sh -c "pfc doctor --json -o d/$mode"
		grep -q '"schema":1' d/$mode || return 1
	done
	ls -lA d
	[ "$(mode_of d/660)" = "nobody 600" ] && [ "$(mode_of d/664)" = "nobody 644" ] &&
		[ "$(mode_of d/4777)" = "nobody 777" ]
}
# If the command cannot be executed, an older trace is kept, and no new file is left.
test_no_command() { # FORMAT
	rm -f t u
	echo precious >t
	pfc trace start t --format $1 -o t -- no_such_command
	rc=$?
	cat t
	[ $rc = 127 ] && [ "$(cat t)" = precious ] || return 1
	pfc trace start t --format $1 -o u -- no_such_command
	[ $? = 127 ] && [ ! -e u ]
}

test_no_command_in_own_directory() {
	rm -rf u
	mkdir u && chmod 2751 u
	pfc trace start t -o u -- no_such_command
	rc=$?
	ls -lad u
	ls -A u
	[ $rc = 127 ] && [ "$(stat -c %a u)" = 2751 ] && [ -z "$(ls -A u)" ]
}

# A recorder of the following tests writes to the file or directory o. NUMBER makes the names of
# traces different. While a trace is recorded, the program pfc_trace writes events.
record_ppa() { exec pfc ppa record $busy -d 20 -o o; }
record_text() { exec pfc trace start t$1 -e 'app:*' --format text -o o; }
record_ctf() { exec pfc trace start t$1 -e 'app:*' -o o/; }
is_recording() { [ -s "$2" ] && is_in_poll "$1"; } # PID OUTPUT
# begin_recorder RECORDER NUMBER OUTPUT: OUTPUT is a file that the recorder writes soon. In OUTPUT,
# PID stands for the process ID of the recorder, to which $recorder is set.
begin_recorder() {
	$1 $2 2>words.$2 &
	recorder=$!
	within 60 is_recording $recorder "$(echo "$3" | sed "s/PID/$recorder/")"
}
# TEXT is part of the recorded values or events.
test_two_recorders() { # RECORDER FILE TEXT
	rm -rf o o.*
	begin_recorder $1 1 "o$2" || return 1
	first=$recorder
	begin_recorder $1 2 "o.PID$2"
	rc=$?
	second=$recorder
	within 60 grep -rq "$3" o.$second || rc=1
	interrupt $second || rc=1
	interrupt $first || rc=1
	cat words.1 words.2
	ls -lAR o*
	[ $rc = 0 ] && grep -rq "$3" o && ! grep -q 'another program' words.1 &&
		grep -q "this recording is in \($PWD/\)*o.$second\$" words.2
}
test_removed_recorder() { # RECORDER FILE
	rm -rf o o.*
	begin_recorder $1 1 "o$2" || return 1
	rm -r o
	interrupt $recorder
	rc=$?
	cat words.1
	[ $rc = 2 ] && grep -q '^pfc: cannot write to o/*: .*removed or replaced' words.1 && ! grep -q 'events, .* in ' words.1
}

plan 18
mkdir -p /tmp/outputs
cd /tmp/outputs || exit 1
chmod 755 .
unload_modules
insmod_each perfcounters perfmon perftrace ppa pfm_soft pfm_ring
begin_few_symbols
protected=$(cat /proc/sys/fs/protected_symlinks)
echo 1 >/proc/sys/fs/protected_symlinks
$program calls 100000000000 &
busy=$!
$program calls 100000000000 &
other=$!
check "pfc doctor -o: a link of another user is not followed" test_link_of_other_user pfc doctor --json -o d/x
check "pfc record -o: a link of another user is not followed" test_link_of_other_user pfc record -a -e task-clock -o d/x true
check "pfc doctor -o: the caller's own link is followed" test_own_link
check "pfc doctor -o: a file of another user is replaced without more permissions" test_other_owner
check "1.9 pfc record: two recordings of one file are both kept" test_two_recordings
check "1.9 pfc record: a file that another program has created is kept" test_file_appears
check "1.9 pfc record: status 2 if the file is removed" test_removed
check "1.9 pfc record: only the caller may read the file" test_private
check "3.11 pfc trace start: an older text is kept if there is no such command" test_no_command text
check "3.11 pfc trace start: an older JSON is kept if there is no such command" test_no_command perfetto
check "3.11 pfc trace start: the caller's empty directory is kept if there is no such command" test_no_command_in_own_directory
pfc ppa on >/dev/null
/tests/pfc_trace app -1 1 &
traced=$!
check "3.11 pfc trace start -o: a link of another user is not followed" test_link_of_other_user pfc trace start t -o d/x -- true
check "4.4 pfc ppa record: two recordings of one file are both kept" test_two_recorders record_ppa '' '"counted"'
check "3.11 pfc trace start: two texts of one file are both kept" test_two_recorders record_text '' app:step
check "3.11 pfc trace start: two CTF traces of one directory are both kept" test_two_recorders record_ctf /metadata app:step
check "4.4 pfc ppa record: status 2 if the file is removed" test_removed_recorder record_ppa ''
check "3.11 pfc trace start: status 2 if the file is removed" test_removed_recorder record_text ''
check "3.11 pfc trace start: status 2 if the CTF directory is removed" test_removed_recorder record_ctf /metadata
pfc ppa off >/dev/null
kill_and_wait $traced
kill_and_wait $busy $other
echo "$protected" >/proc/sys/fs/protected_symlinks
end_few_symbols
unload_modules
cd /tmp || exit 1
rm -rf /tmp/outputs
exit $failed
