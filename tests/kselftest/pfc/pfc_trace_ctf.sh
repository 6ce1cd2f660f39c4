#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
# timeout: 300
# worlds: stock
# guest: debian
#
# Tests traces of a program that uses libperftrace. pfc trace records the traces, and babeltrace2
# reads them. Each event has its fields and appears once, in the order of time, without a warning.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

requests=/tests/examples/requests
plan 13
unload_modules
insmod_each perfcounters perftrace

# read_trace DIRECTORY [NAME]: prints the events of a trace to NAME.txt, or to DIRECTORY.txt. Fails
# if babeltrace2 prints a warning.
read_trace() {
	local name="${2:-$1}"
	babeltrace2 --clock-cycles "$1" >"$name.txt" 2>"$name.err" && [ ! -s "$name.err" ] ||
		{ head -n 5 "$name.err"; return 1; }
}
# Succeeds if the times, as babeltrace2 prints them, never decrease.
times_in_order() { sed -E 's/^\[0*([0-9]+)\].*/\1/' "$1" | sort -nc; }
nr_lines() { grep -c "$1" "$2"; }
is_equal() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }

test_stream() {
	pfc trace start all -e 'requests:*' -s 1M -o all.ctf -- $requests 5000 && read_trace all.ctf
}
check "3.1 streamed trace: babeltrace2 reads it without a warning" test_stream
check "3.1 streamed trace: all 10,001 events" is_equal "$(wc -l <all.ctf.txt)" 10001
check "3.6 streamed trace: events in the order of time" times_in_order all.ctf.txt
# The result of the request with number 3 is 5, the sum of the squares of 0, 1 and 2.
test_fields() {
	grep -E 'requests:begin: .*number = 4999, from = "here"' all.ctf.txt &&
		grep -E 'requests:end: .*number = 3, result = 5 ' all.ctf.txt
}
check "3.1 streamed trace: the fields of two events" test_fields

test_filtered() {
	pfc trace start some -e 'requests:*' -f 'number >= 4990 && from ~ "t*"' -o some.ctf -- \
		$requests 5000 && read_trace some.ctf && is_equal "$(wc -l <some.ctf.txt)" 5
}
check "3.10 filtered trace: only the five matching events" test_filtered

# The buffer is too small for the events of the program. The trace reports the losses to
# babeltrace2.
test_lossy() {
	pfc trace start lossy -e 'requests:*' -s 4K -o lossy.ctf -- $requests 20000 2>lossy.said
	babeltrace2 lossy.ctf >lossy.txt 2>lossy.warned
	echo "$(wc -l <lossy.txt) events; $(grep -ciE 'discarded|lost' lossy.warned) words of losses"
	grep -qi discarded lossy.warned && ! grep -viE 'discarded' lossy.warned && has_1000_lines lossy.txt
}
has_1000_lines() { [ "$(wc -l <"$1")" -gt 1000 ]; }
check "3.3 small buffer: babeltrace2 reports losses and nothing else" test_lossy

test_wait() {
	pfc trace start waited -e 'requests:*' -s 4K --wait -o waited.ctf -- $requests 8000 &&
		read_trace waited.ctf && is_equal "$(wc -l <waited.ctf.txt)" 16001
}
check "3.3 trace with --wait: no event is lost in a small buffer" test_wait

# The program is killed. The flight recorder holds the last events of the killed program.
is_recorded() { [ "$(pfc trace snapshot box --format text | grep -c requests:)" -gt 100 ]; }
test_killed() {
	pfc trace start box -e 'requests:*' --flight || return 1
	$requests 2000000 & local pid=$!
	within 60 is_recorded
	kill -9 $pid
	wait $pid
	pfc trace snapshot box -o box.ctf && read_trace box.ctf && times_in_order box.ctf.txt &&
		[ "$(wc -l <box.ctf.txt)" -gt 100 ] && pfc trace stop box
}
check "3.11 flight recorder: last events of a program that was killed" test_killed

# Events of the kernel and events of the program have times of the same clock.
test_both() {
	pfc trace start both -e 'requests:*' --kernel sched,syscalls -s 1M -o both.ctf -- \
		$requests 2000 && read_trace both.ctf && times_in_order both.ctf.txt &&
		is_equal "$(nr_lines 'requests:' both.ctf.txt)" 4001 &&
		[ "$(nr_lines 'kernel:sys_enter' both.ctf.txt)" -gt 10 ] &&
		[ "$(nr_lines 'kernel:sched_switch' both.ctf.txt)" -gt 1 ]
}
check "3.11 kernel and program: events of both in one trace" test_both

# Eight traces exist at once, each with a different filter.
test_many() {
	local n
	for n in $(seq 8); do
		pfc trace start many$n -e 'requests:*' -f "number < $((n * 10))" -s 1M -o many$n.ctf &
	done
	within 30 eval '[ "$(pfc trace list --json | grep -o "\"name\":\"many" | wc -l)" = 8 ]' || return 1
	$requests 1000
	for n in $(seq 8); do pfc trace stop many$n || return 1; done
	wait
	for n in $(seq 8); do
		read_trace many$n.ctf && is_equal "$(wc -l <many$n.ctf.txt)" $((n * 20)) || return 1
	done
}
check "3.11 eight traces at once: each has only the events of its filter" test_many
# Records a trace to a full tmpfs: babeltrace2 must read as many events as pfc trace reports.
test_full() {
	mkdir -p full && mount -t tmpfs -o size=400k none full || return 1
	pfc trace start full -e 'requests:*' -s 1M -o full/t.ctf -- $requests 12000 2>full.said
	rc=$?
	cat full.said
	# The file system of the trace has no space for the text that babeltrace2 prints, so the
	# text goes to another file system.
	read_trace full/t.ctf full.ctf 2>&1
	readable=$?
	events=$(sed -n 's/^pfc: cannot write to .*: No space left on device (os error 28); the recording is not complete: \([0-9]*\) events, .*/\1/p' full.said)
	lines=$(wc -l <full.ctf.txt)
	umount full
	echo "status $rc, $events events said, $lines read"
	[ $rc = 2 ] && [ $readable = 0 ] && [ "${events:-0}" -gt 100 ] && [ "$events" = "$lines" ]
}
check "3.11 trace on a full disk: babeltrace2 reads as many events as pfc says" test_full
check "3.8 no trace is left at the end" eval '[ "$(pfc trace list --json | grep -c "\"name\"")" = 0 ]'
check "3.8 rmmod of perftrace.ko succeeds at the end" rmmod perftrace
unload_modules
exit $failed
