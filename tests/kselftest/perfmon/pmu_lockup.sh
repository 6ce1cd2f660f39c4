#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: hard_lockup-skylake
# timeout: 300
# target: test-all
#
# The hard lockup detector must find a CPU that loops with interrupts off. Only overflows of a
# hardware counter send NMIs to the looping CPU. The host checks that the kernel reported the lockup
# (expected_reports in tools/rig/guest.sh).

echo "TAP version 13"
echo "1..1"
echo "# expect hard_lockup: hard LOCKUP on cpu"
insmod /modules/msr_raw.ko
# The detector reports the lockup at the second or third overflow of its counter, the fixed counter
# of cycles (MSR 0x30a). Normally, one overflow takes as many cycles as the processor has in a
# second. In make test each NMI sets the counter to 2^48 - 10^9, so that an overflow takes 10^9
# cycles. The emulator counts 5 cycles for 4 instructions, and a round of the loop has 2
# instructions. Three overflows therefore take 1.2 * 10^9 rounds.
if [ -n "${LONG:-}" ]; then
	steps="run 4000000000"
else
	steps="wr 0x30a 281473976710656; run 1300000000; on_nmi; wr 0x30a 281473976710656"
fi
echo "### fault hard_lockup" >/dev/kmsg
if echo "$steps" >/proc/msr_raw; then
	echo "ok 1 pmu lockup: loops with interrupts off"
else
	echo "not ok 1 pmu lockup: loops with interrupts off"
fi
rmmod msr_raw
