#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Boots the stock kernel under icount with bench.ko and no other processes. tests/bench/run and
# tests/host/bench.sh call this script inside the tool chain.
#
# Usage: boot.sh DIR CPUS VMLINUZ KBUILD_OUT [BENCH [OPTION...]]
#   DIR        receives the console and the results
#   KBUILD_OUT the project's modules
#   BENCH      the program to run in the guest; without it the guest prints /proc/bench
#
# The environment variable EMULATOR can name the QEMU program that tests/qemu-pmu builds. If
# EMULATOR is set, the script runs the program $EMULATOR in place of qemu-system-x86_64, and the
# guest's CPU has an emulated PMU.

set -euo pipefail
dir=$1 cpus=$2 vmlinuz=$3 kbuild_out=$4
shift 4

root=$dir/root
rm -rf "$root"
mkdir -p "$root"/{bin,dev,proc,sys,tmp}
cp /bin/busybox "$root/bin/busybox"
install -m 755 "$TOP/tests/bench/init" "$root/init"
for ko in src/{counters/perfcounters,perfmon/perfmon,perfmon/pmu/pfm_amd,perfmon/pmu/pfm_soft,perfmon/format/pfm_ring,ppa/ppa}.ko tests/modules/bench.ko; do
	objcopy --strip-debug "$kbuild_out/$ko" "$root/${ko##*/}"
done
if [ $# -gt 0 ]; then
	install -m 755 "$1" "$root/bench"
	strip "$root/bench"
	shift
	echo "$*" >"$root/options"
fi
(cd "$root" && find . -mindepth 1 | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible) >"$dir/initrd"
rm -rf "$root"

# With these options of -icount, each instruction takes a nanosecond of guest time, and the guest's
# clock skips idle time. One thread of QEMU emulates all CPUs of the guest in turn, so a busy wait
# costs real time. Three options avoid busy waits at boot: tsc=reliable avoids the comparison of the
# CPUs' clocks, noapictimer avoids the calibration of the local timer, and cpu_init_udelay=0 avoids
# the waits for CPUs to start. These three options do not change code that is measured. The CPU
# model is always "max", an AMD model. The emulated PMU is therefore AMD's, with four counters.
cpu=max${EMULATOR:+,pmu=on,pmu-version=0}
exec "${EMULATOR:-qemu-system-x86_64}" -M "q35${EMULATOR:+,hpet=off}" -accel tcg -cpu "$cpu" -icount shift=0,sleep=off \
	-rtc clock=vm,base=2026-01-01 -seed 1 -smp "$cpus" -m 1G \
	-nodefaults -no-user-config -display none -no-reboot -monitor none \
	-serial "file:$dir/console" -serial "file:$dir/results" \
	-kernel "$vmlinuz" -initrd "$dir/initrd" \
	-append "console=ttyS0 panic=-1 loglevel=5 nokaslr norandmaps tsc=reliable noapictimer cpu_init_udelay=0 nmi_watchdog=0"
