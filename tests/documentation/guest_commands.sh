#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest debian-skylake for tests/documentation/guest.sh: records what the pictures of
# the documentation show, and prints an archive of the files.

set -e
mkdir /tmp/pictures
cd /tmp/pictures

# The flame graph shows tar, which spends most of its time in functions of the kernel that read
# files.
{
	pfc record -g -F 1000 -o tar.data -- sh -c 'tar cf - /usr/lib/python3 | wc -c'
	pfc flamegraph -i tar.data --title 'tar cf - /usr/lib/python3 | wc -c' -o flamegraph.svg
} >&2

# The recorded task repeats three actions: it computes, reads /dev/zero, and sleeps. For three of
# the eight seconds of the recording, two other tasks compute on the CPU of the recorded task.
cat >turns.py <<'END'
import os, time

zero = os.open("/dev/zero", os.O_RDONLY)
while True:
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        sum(range(1000))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        os.read(zero, 65536)
    time.sleep(0.5)
END
pfc ppa on --levels sched,irq,syscall >&2
taskset -c 1 python3 turns.py &
task=$!
sleep 3
(
	sleep 3
	for _ in 1 2; do timeout 3 taskset -c 1 sh -c 'while :; do :; done' & done
	wait
) &
pfc ppa record $task -o turns.ppa -d 200 -t 8 >&2
kill $task
pfc ppa report turns.ppa -o ppa.svg >&2
pfc ppa off >&2

# Two programs write the same event. The filter selects a fifth of the events.
for _ in 1 2; do /tests/examples/shop 1500 & done
sleep 1
{
	echo "~# pfc trace live -e 'shop:*' -f 'price >= 80'"
	timeout -s INT 5 pfc trace live -e 'shop:*' -f 'price >= 80' >events || [ $? = 124 ]
	head -n 19 events
} >trace.txt
[ "$(wc -l <trace.txt)" = 20 ]
wait

echo "# archive begins"
tar cz flamegraph.svg ppa.svg trace.txt | base64
echo "# archive ends"
