#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 500
# target: test-all
# emulator: pmu
#
# Checks that two runs of the emulated PMU under QEMU's icount are identical to the last byte: the
# kernel log with its times, and the value of every counter.

set -u
qemu=${EMULATOR:?}
name="pmu icount: two runs are identical"
echo "TAP version 13"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/root/{bin,dev,proc,sys}
cp /bin/busybox "$work/root/bin/busybox"
objcopy --strip-debug "$KBUILD_OUT/tests/modules/msr_raw.ko" "$work/root/msr_raw.ko"
cat >"$work/root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
insmod /msr_raw.ko
{
	# In each list of steps, counter 0 raises an interrupt after 100,000 instructions. Counter 1
	# raises no interrupt.
	for i in 1 2 3 4 5 6 7 8; do
		echo "wr 0xc1 0xfffe7960; lvtpc 0x400; wr 0x187 0x430076; wr 0x186 0x5300c0; run 300000; nmi 0; rd 0xc1; rd 0xc2; nmis" >/proc/msr_raw
		cat /proc/msr_raw /proc/uptime
	done
	cat /proc/interrupts
} >/dev/ttyS1
poweroff -f
END
chmod 755 "$work/root/init"
(cd "$work/root" && find . -mindepth 1 | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible) >"$work/initrd"
# The guest boots the ELF file that the kernel contains, so it need not decompress the kernel.
"$KTREE/scripts/extract-vmlinux" "$PACKAGED/usr/lib/modules/$RELEASE/vmlinuz" >"$work/vmlinux"
run_guest() { # NUMBER
	timeout $((200 * PATIENCE)) "$qemu" -M q35 -accel tcg -cpu Skylake-Client,pmu=on,pmu-version=4,pmu-full-width=on,check=off \
		-icount shift=0,sleep=off -rtc clock=vm,base=2026-01-01 -seed 1 -smp 2 -m 512M \
		-nodefaults -no-user-config -display none -no-reboot -monitor none \
		-serial "file:$work/console.$1" -serial "file:$work/results.$1" \
		-kernel "$work/vmlinux" -initrd "$work/initrd" \
		-append "console=ttyS0 panic=-1 loglevel=7 nokaslr norandmaps tsc=reliable noapictimer cpu_init_udelay=0 nmi_watchdog=0 mitigations=off cryptomgr.notests initcall_blacklist=load_system_certificate_list" \
		>"$work/log.$1" 2>&1 </dev/null || sed 's/^/# /' "$work/log.$1"
}
# The two runs share the CPUs of the host, so the host delays each of them at other moments.
run_guest 1 &
run_guest 2 &
wait
failed=0
echo "1..2"
# The guest has written a list of 9 steps to /proc/msr_raw 8 times. Each step of a list gives one
# line of results.
if [ "$(grep -c '^0 [0-9]' "$work/results.1")" = 72 ] && grep -q 'Power down' "$work/console.1"; then
	echo "ok 1 pmu icount: a run gives 72 results and powers off"
else
	failed=1
	echo "not ok 1 pmu icount: a run gives 72 results and powers off"
	tail -n 20 "$work/console.1" "$work/results.1" | sed 's/^/# /'
fi
if cmp -s "$work/console.1" "$work/console.2" && cmp -s "$work/results.1" "$work/results.2"; then
	echo "ok 2 $name"
	echo "# $(cat "$work"/{console,results}.1 | wc -c) bytes, the same"
else
	failed=1
	echo "not ok 2 $name"
	diff "$work/console.1" "$work/console.2" | head -n 5 | sed 's/^/# /'
	diff "$work/results.1" "$work/results.2" | head -n 5 | sed 's/^/# /'
fi
exit $failed
