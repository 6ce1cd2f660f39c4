#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain
# timeout: 300
# shellcheck disable=SC2012,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests recordings on a full disk, which is a small tmpfs, and recorders that are killed. Whether
# the disk is full or the recorder is killed, the recorded file must be readable, and the recorded
# command must end as it would without the recorder. On a full disk the exit status of pfc must not
# be 0, and the message of pfc must name the number of samples in the file.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts

program=/tests/pfc_follow
app=/tests/pfc_trace
# Number of rounds that the program runs, and number of events that it writes. A recording of
# $rounds rounds or $nr_events events does not fit into the file or onto the disk.
rounds=150000000 nr_events=4000
# Command that runs until the tmpfs has at most two free blocks, then for a little longer, and exits
# with 3. If it has an argument, it sends this signal to pfc when the tmpfs is full.
until_full='
. /tests/kselftest_pc.sh
$0 calls 100000000000 & spinner=$!
within 60 sh -c "[ \$(stat -f -c %f full) -le 2 ]"
[ -z "${1:-}" ] || kill -"$1" "$PPID"
run_for $spinner 100
kill -9 $spinner
touch ended
exit 3'
mount_full() { # KILOBYTES
	rm -f ended words
	mkdir -p full
	mount -t tmpfs -o size=${1}k none full
}
umount_full() {
	umount full
}
nr_samples() { # FILE
	pfc script --json -i "$1" 2>/dev/null | wc -l
}
has_samples() { # FILE NUMBER
	[ "$(nr_samples "$1")" -ge "$2" ]
}
# Checks the recording FILE and pfc's message about FILE. The message of pfc must state the number
# of samples in FILE. Of the samples of the program pfc_follow in FILE, at least half must be in the
# function work_inner().
is_readable() { # FILE
	said=$(sed -n "s|^pfc: cannot write to $1: No space left on device (os error 28); the recording is not complete: \([0-9]*\) samples, .*; make room, or choose another place: -o FILE\$|\1|p" words)
	kept=$(nr_samples $1)
	echo "$said samples are said to be in the file, $kept are"
	[ "${said:-0}" -ge 50 ] && [ "$kept" = "$said" ] || return 1
	pfc report -i $1 >table
	head -n 12 table
	awk '$2 == "pfc_follow" { all += $1; if ($NF == "work_inner") busy += $1 }
		END { exit !(all > 0 && busy >= all / 2) }' table
}
test_command() { # OPTION...
	mount_full 100
	with_words pfc record -F 2000 -g -o full/r "$@" sh -c "$until_full" $program
	ls -lA full
	is_readable full/r
	readable=$?
	umount_full
	echo "status $rc"
	[ $rc = 2 ] && [ -e ended ] && [ $readable = 0 ]
}
# With --switch-output, the name of the file ends with a time. SIGUSR2 would begin another file, for
# which the disk has no room.
test_switch_output() {
	mount_full 100
	with_words pfc record -F 2000 -g -o full/r --switch-output sh -c "$until_full" $program USR2
	ls -lA full
	set -- full/r.*
	is_readable "$1"
	readable=$?
	umount_full
	echo "status $rc, $# files"
	[ $rc = 2 ] && [ -e ended ] && [ $readable = 0 ] && [ $# = 1 ]
}
# The disk is full when SIGUSR2 requests the file of a flight recorder.
test_overwrite() {
	mount_full 100
	dd if=/dev/zero of=full/fill bs=4k 2>/dev/null
	with_words pfc record -F 1000 -m 1 -o full/r --overwrite --switch-output sh -c "$until_full" $program USR2
	files=$(ls -A full)
	umount_full
	echo "status $rc, files: $files"
	[ $rc = 2 ] && [ -e ended ] && [ "$files" = fill ] &&
		grep -q '^pfc: cannot write to full/r\.[0-9]*: No space left on device (os error 28)' words
}
test_process() {
	mount_full 100
	run_victim $program calls 100000000000
	with_words pfc record -F 2000 -g -p $victim -o full/r
	is_readable full/r
	readable=$?
	kill_and_wait $victim
	umount_full
	echo "status $rc"
	[ $rc = 2 ] && [ $readable = 0 ]
}
test_no_room_at_all() {
	mount_full 100
	echo old >full/r
	dd if=/dev/zero of=full/fill bs=4k 2>/dev/null
	with_words pfc record -F 2000 -o full/r sh -c 'touch ended'
	ls -lA full
	content=$(cat full/r)
	umount_full
	[ $rc = 2 ] && [ "$content" = old ] && grep -q 'full/r: No space left on device (os error 28)' words
}
# A limit on the size of a file has the same effects as a full disk.
test_limit_of_size() {
	rm -f ended r
	(
		ulimit -f 100
		pfc record -F 2000 -g -o r sh -c "$program calls $rounds; touch ended" 2>words
	)
	rc=$?
	cat words
	said=$(sed -n 's/^pfc: cannot write to r: File too large (os error 27); .* not complete: \([0-9]*\) samples, .*/\1/p' words)
	kept=$(nr_samples r)
	echo "status $rc, $said and $kept samples"
	[ $rc = 2 ] && [ -e ended ] && [ "${said:-0}" -ge 20 ] && [ "$said" = "$kept" ]
}
test_killed() { # OPTION...
	rm -f k k.*
	run_victim $program calls 100000000000
	pfc record -F 500 -g "$@" -p $victim -o k 2>/dev/null &
	recorder=$!
	within 60 eval 'has_samples k* 20'
	rc=$?
	kill_and_wait $recorder
	kill_and_wait $victim
	ls -lA k*
	pfc report -i k* >table || return 1
	head -n 12 table
	[ $rc = 0 ] && has_samples k* 20 && grep -q 'work_inner$' table
}
# Runs pfc trace with a program that writes $nr_events events. Sets $events to the number of events
# that pfc trace reports. Succeeds if pfc trace reports the full disk, and the program has ended.
trace_into() { # FILE FORMAT
	rm -f ended
	with_words pfc trace start full -e 'app:*' -s 1M --format $2 -o $1 -- sh -c "$app app $nr_events 0; touch ended"
	events=$(sed -n "s/^\[ pfc trace: \([0-9]*\) events, .* in .* \]/\1/p" words)
	[ $rc = 2 ] && [ -e ended ] &&
		grep -q "^pfc: cannot write to $1: No space left on device (os error 28); the recording is not complete: $events events, " words
}
test_text() {
	mount_full 100
	trace_into full/t text
	rc=$?
	lines=$(grep -c 'app:step: n=[0-9]* name="step"$' full/t)
	all=$(wc -l <full/t)
	umount_full
	echo "$events events said, $lines lines of $all"
	[ $rc = 0 ] && [ "$events" -gt 100 ] && [ "$events" = "$lines" ] && [ "$lines" = "$all" ]
}
test_perfetto() {
	mount_full 400
	trace_into full/t.json perfetto
	rc=$?
	lines=$(grep -c '"name":"app:step"' full/t.json)
	last=$(tail -n 1 full/t.json)
	umount_full
	echo "$events events said, $lines lines, the last $last"
	[ $rc = 0 ] && [ "$events" = "$lines" ] && [ "$last" = ']}' ]
}
has_events() { # TRACE NUMBER
	[ "$(pfc trace snapshot $1 --format text | grep -c 'app:step: n=')" -ge $2 ]
}
test_snapshot() {
	mount_full 100
	pfc trace start box -e 'app:*' -s 256K --flight
	run_victim $app app -1 0
	# The text of 2,000 events is larger than the disk.
	within 60 has_events box 2000
	pfc trace snapshot box --format text -o full/s 2>words
	rc=$?
	kill_and_wait $victim
	pfc trace stop box
	cat words
	lines=$(grep -c 'app:step: n=' full/s)
	umount_full
	[ $rc = 2 ] && [ "$lines" -gt 100 ] && grep -q "full/s: No space left on device (os error 28); the recording is not complete: $lines events" words
}
test_ppa() {
	mount_full 20
	pfc ppa on >/dev/null
	pfc ppa record $$ -o full/p -d 1 -t 60 2>words
	rc=$?
	pfc ppa off
	cat words
	reads=$(sed -n 's|^pfc: cannot write to full/p: No space left on device (os error 28); the recording is not complete: \([0-9]*\) reads.*|\1|p' words)
	lines=$(wc -l <full/p)
	pfc ppa report full/p >table
	reported=$?
	umount_full
	echo "status $rc, $reads reads said, $lines lines"
	[ $rc = 2 ] && [ $reported = 0 ] && [ "${reads:-0}" -gt 5 ] && [ "$lines" = $((reads + 1)) ]
}
# When the disk is full, the file of pfc export keeps its old content, and no temporary file is
# left.
test_export() {
	mount_full 100
	echo old >full/e
	dd if=/dev/zero of=full/fill bs=4k 2>/dev/null
	with_words pfc export --openmetrics -o full/e
	ls -A full
	content=$(cat full/e) files=$(ls -A full | wc -l)
	umount_full
	[ $rc = 2 ] && [ "$content" = old ] && [ "$files" = 2 ] && grep -q '^pfc: cannot write to full/e: No space left on device (os error 28)' words
}

if [ -n "${LONG:-}" ]; then plan 15; else plan 12; fi
cd /tmp || exit 1
unload_modules
begin_few_symbols
insmod_each perfcounters perfmon ppa perftrace pfm_soft pfm_ring pfc_sched
check "1.9 pfc record on a full disk: the samples before are readable, the command ends" test_command
if_long check "1.9 pfc record -a on a full disk: the command beside it ends" test_command -a --
if_long check "2.7 pfc record --switch-output on a full disk: the samples before are readable, the command ends" test_switch_output
check "2.4 pfc record --overwrite on a full disk: status 2 and no file, the command ends" test_overwrite
check "1.9 pfc record -p on a full disk: it ends with status 2" test_process
check "1.9 pfc record without any room: ENOSPC, the old file is kept" test_no_room_at_all
check "1.9 pfc record at the limit of a file's size: EFBIG, the samples before are readable" test_limit_of_size
check "1.9 pfc record killed by SIGKILL: the samples before are readable" test_killed
if_long check "2.7 pfc record --switch-output killed by SIGKILL: the samples before are readable" test_killed --switch-output
check "3.11 pfc trace on a full disk: as many lines of text as it says" test_text
check "3.11 pfc trace on a full disk: complete JSON with as many events as it says" test_perfetto
check "3.11 pfc trace snapshot on a full disk: as many lines of text as it says" test_snapshot
check "4.4 pfc ppa record on a full disk: complete lines, as many as it says" test_ppa
check "pfc export on a full disk: ENOSPC, the old file is kept" test_export
check "1.2 rmmod of the ring format succeeds after all runs of pfc" busybox rmmod pfm_ring
rm -f ended r k k.* words table said last_words
rmdir full
end_few_symbols
unload_modules
exit $failed
