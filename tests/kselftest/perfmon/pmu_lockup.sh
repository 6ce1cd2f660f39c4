#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: hard_lockup-skylake
# timeout: 300
#
# The hard lockup detector must find a CPU that loops with interrupts off. Only overflows of a
# hardware counter send NMIs to the looping CPU. The host checks that the kernel reported the lockup
# (expected_reports in tools/rig/guest.sh).

echo "TAP version 13"
echo "1..1"
echo "# expect hard_lockup: hard LOCKUP on cpu"
insmod /modules/msr_raw.ko
echo "### fault hard_lockup" >/dev/kmsg
if echo "run 4000000000" >/proc/msr_raw; then
	echo "ok 1 pmu lockup: 4000000000 rounds with interrupts off"
else
	echo "not ok 1 pmu lockup: 4000000000 rounds with interrupts off"
fi
rmmod msr_raw
