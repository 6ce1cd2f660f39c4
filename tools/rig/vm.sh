#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Boots a kernel in QEMU, without KVM, with the modules and tools that were built for that kernel.
# Usage: vm.sh demo            shows the guest's counters for $DEMO_SECONDS seconds
#        vm.sh shell           runs an interactive shell, or CMD='...', or piped input
#        vm.sh test DIR        runs the programs of DIR/list (lines "PROGRAM SECONDS [short]"), and
#                              writes console and results to DIR
# The variable WORLD (stock, debug or kcsan) selects the kernel, and GUEST selects the guest
# (tests/vm/guests). PMU=NAME is short for GUEST=pmu-NAME.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/vm/guests
. "$TOP/tests/vm/guests"

world=${WORLD:-stock}
guest=${GUEST:-${PMU:+pmu-$PMU}}
guest=${guest:-plain}
DEMO_SECONDS=${DEMO_SECONDS:-10}
[ "$world" != host ] || die "the world host has no guest; use WORLD=stock, debug or kcsan"
declare -F "guest_${guest%%-*}" >/dev/null || die "unknown guest '$guest'; tests/vm/guests has the guests"

# The guest's initramfs consists of three parts: the image, the test programs, and the orders, which
# are files that tell tests/vm/init what to do in this boot.
run=$CLONE/run.$$
orders=$run/orders
results=$run/results
order() { printf '%s\n' "$2" >"$orders/$1"; }

# wanted_programs NAME...: prints the files of the test programs with these names. A source of such
# a program (NAME.c or NAME_*.h) can mention another program as /tests/OTHER. The function prints
# the files of the mentioned programs, too. The guest gets only the files that wanted_programs()
# prints, because unpacking all test programs would take a third of the guest's boot time.
wanted_programs() {
	local -a names=("$@")
	local -A seen
	local name i
	for ((i = 0; i < ${#names[@]}; i++)); do
		name=${names[i]%/}
		[ -n "$name" ] || continue
		[ -z "${seen[$name]:-}" ] || continue
		seen[$name]=1
		[ ! -e "$programs/tests/$name" ] || (cd "$programs" && find "tests/$name" -type f)
		mapfile -t -O ${#names[@]} names < <(cat "$TOP/tests/kselftest/"*/"$name"{,.c,_*.h} 2>/dev/null | grep -oE '/tests/[A-Za-z0-9_./]+' | cut -d/ -f3-)
	done
}

finish() {
	[ ! -s "$run/pid" ] || kill "$(cat "$run/pid")" 2>/dev/null || :
	rm -rf "$run"
}

# tsc_khz: prints the frequency of the time stamp counter in kHz. A guest that measures the
# frequency itself would get a wrong value on a busy host (see tsc.c).
tsc_khz() {
	local program=$CLONE/tsc
	if [ ! "$program" -nt "$TOP/tools/rig/tsc.c" ]; then
		inside gcc-14 -O2 -o "$program.$$" "$TOP/tools/rig/tsc.c"
		mv "$program.$$" "$program"
	fi
	inside "$program"
}

# uncompressed KERNEL: prints the path of the ELF file that the compressed kernel contains. QEMU
# enters this file at its PVH entry, so the guest need not decompress the kernel, which would take a
# fifth of the CPU time of a boot. Prints KERNEL if KERNEL contains no ELF file with a PVH entry.
uncompressed() {
	local elf=$CACHE/kernel/$RELEASE/vmlinux
	# The lock of the ELF file is held until the subshell ends.
	[ "$elf" -nt "$1" ] || (
		lock "$elf.lock" "the uncompressed kernel"
		[ ! "$elf" -nt "$1" ] || exit 0
		# The ELF note of type 0x12 has the address of the PVH entry.
		{ inside "$KTREE/scripts/extract-vmlinux" "$1" >"$elf.new" && inside readelf -nW "$elf.new" | grep -A 1 Xen | grep -c 0x00000012 && mv "$elf.new" "$elf"; } >/dev/null 2>&1 || rm -f "$elf.new"
	)
	if [ -e "$elf" ]; then echo "$elf"; else echo "$1"; fi
}

# is_repeated: true if the boot that has ended must be repeated, because the timer of a CPU had
# stopped. Such a guest prints "# again" as its first line (see check_timers() in tests/vm/init),
# and has loaded no module of this project. A boot is repeated at most twice.
is_repeated() {
	grep -am 1 '^# ' "$results" 2>/dev/null | grep '^# again' >>"$results.again" && [ "$(wc -l <"$results.again")" -lt 3 ]
}

# boot QEMU-ARGUMENTS...: makes the initramfs and runs QEMU until the guest ends.
boot() {
	local program rc locked="" kernel=$STOCK/usr/lib/modules/$RELEASE/vmlinuz
	# shellcheck disable=SC2034 # boot_timeout is for guest.sh
	local smp=2 mem=1G append="" disk="" boot_timeout=0 cpu=max,pmu=off accel=tcg pmu="" emulator=""
	local -a qemu=()
	# The next line has three options for a busy host, on which QEMU may pause for a long time.
	# no_timer_check skips the kernel's test of the timer at boot, which could fail after such a
	# pause. tsc=nowatchdog turns off the clocksource watchdog for the TSC. After such a pause,
	# the watchdog could find a difference between two clocks and mark the TSC unstable. The
	# option rcu_cpu_stall_suppress_at_boot turns off reports of RCU stalls until the kernel
	# runs init, which is before any module of this project is loaded.
	append="console=ttyS0 panic=-1 no_timer_check tsc=nowatchdog rcupdate.rcu_cpu_stall_suppress_at_boot=1"
	append+=" loglevel=$([ "$mode" = test ] && echo 5 || echo 4)"
	append+=" tsc_early_khz=$(tsc_khz)"
	# The next line has three options for debug kernels. watchdog_thresh raises the time limit
	# of the lockup detectors, because a debug kernel in an emulator may compute for a long time
	# without a break. With kasan_multi_shot, KASAN reports every error, not only the first one.
	# no5lvl disables five-level page tables. KASAN gets the number of page table levels from
	# the CPU's features. With five levels, an interrupt that occurs while the boot CPU's
	# features are cleared and read again would cause many false reports of KASAN.
	[ "$SLOWNESS" = 1 ] || append+=" watchdog_thresh=60 kasan_multi_shot no5lvl"
	# Test runs disable features of the kernel that take time in the emulator and are not under
	# test. The disabled features are the mitigations of CPU bugs, the tests of cryptographic
	# algorithms at boot, the parsing of built-in certificates, and the decompression of the
	# kernel. The mitigations take a tenth of the time that a kernel takes in the emulator. In
	# long test runs, the guest plain and the debug kernels keep these features.
	[ "$mode" != test ] || { [ -n "${LONG:-}" ] && [[ $guest == plain || $world != stock ]]; } || {
		append+=" mitigations=off cryptomgr.notests initcall_blacklist=load_system_certificate_list"
		[ "$world" != stock ] || kernel=$(uncompressed "$kernel")
	}
	# While busy loops run (LOAD=), the time limits of the guest's kernel are longer, too. The
	# kernel allows at most 300 seconds as the time limit for RCU stalls.
	[ "$PATIENCE" = 1 ] || append+=" watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=$((PATIENCE < 14 ? 21 * PATIENCE : 300)) sysctl.kernel.hung_task_timeout_secs=$((120 * PATIENCE))"
	# Run tests in the emulator of tests/qemu-pmu: after a modification of kernel code, Debian's
	# QEMU may execute a stale copy of the code, which ends the guest.
	[ "$mode" != test ] || emulator=pmu
	be_guest "$guest"
	[ -z "$disk" ] || {
		disk=$("$TOP/$disk") || die "cannot make the disk of the guest $guest; see the messages above"
		qemu+=(-drive "if=virtio,format=raw,readonly=on,file=$disk")
	}
	order world "$world"
	[ -z "$pmu" ] || order pmu "$pmu"
	# The file `slowness` tells the guest by which factor tests take longer on this kernel than
	# on the stock kernel. The file `patience` tells the guest by which factor the tests have to
	# lengthen their time limits; this factor includes the load of the host (LOAD).
	order slowness "$SLOWNESS"
	order patience $((SLOWNESS * PATIENCE))
	# The file `long` contains 1 if tests run their long forms, and is empty if they do not.
	order long "${LONG:-}"
	# shellcheck disable=SC2046 # words
	case $mode in
	demo) ;;
	test) wanted_programs $(cut -d' ' -f1 "$orders/list") | sort -u ;;
	*)
		# The lock prevents another make from replacing the programs while they are copied.
		wait_for -s "$programs.lock" "the test programs, which are being copied"
		(cd "$programs" && find tests -type f)
		;;
	esac >"$run/programs"
	# shellcheck disable=SC2016
	inside sh -ec 'cd "$2" && cpio -o -H newc --quiet <"$0/programs" >"$0/programs.cpio"
		cd "$0" && find orders | cpio -o -H newc --quiet | cat "$1" programs.cpio - >initrd' "$run" "$base" "$programs"
	[ -z "$locked" ] || exec {locked}>&-
	program="qemu-system-x86_64"
	[ -z "$emulator" ] || program=$("$TOP/tests/qemu-$emulator/build.sh") || die "cannot build the emulator of tests/qemu-$emulator, which the guest $guest needs; run make qemu-$emulator to see the reason"
	rm -f "$results.again"
	while :; do
		rc=0
		inside "$program" -M q35 -accel "$accel" -cpu "$cpu" -smp "${SMP:-$smp}" -m "${MEM:-$mem}" \
			-nodefaults -no-user-config -display none -no-reboot -pidfile "$run/pid" \
			-kernel "$kernel" -initrd "$run/initrd" \
			-append "$append ${APPEND:-}" "${qemu[@]}" "$@" || rc=$?
		is_repeated || return $rc
	done
}

# builds: true if another make is building the tools, the modules or the image. Prints the
# description of the process that holds the lock, from the lock file.
builds() {
	local f
	for f in "$TARGET" "$KBUILD_OUT" "$IMAGE"; do
		# Read /proc/locks instead of trying to take the lock: while this function held the
		# lock, another make would have to wait.
		[ ! -e "$f.lock" ] || ! grep -q ":$(stat -c %i "$f.lock") " /proc/locks || { cat "$f.lock"; return; }
	done
	return 1
}

# image: builds the guest's image. If another make is building the tools, the modules or the image,
# uses the existing image.
image() {
	local by
	"$TOP/tools/rig/plan.sh" "kernel-$world"
	enter_world "$world"
	base=$IMAGE/base.cpio programs=$IMAGE/programs
	if by=$(builds) && [ -e "$base" ]; then
		say "    using the image of $(date -r "$base" '+%F %T'), because $by is building"
	else
		"$TOP/tools/rig/plan.sh" "image-$world"
	fi
}

kernel_name() {
	if [ "$world" = stock ]; then echo "the unmodified Debian kernel $RELEASE"; else echo "the $world kernel $RELEASE"; fi
}

terminal() {
	order term "${TERM:-linux}"
	[ ! -t 0 ] || [ ! -t 1 ] || order size "$(stty size)"
}

# watchdog SECONDS: ends QEMU after SECONDS. Without the watchdog, the user would wait forever for a
# guest that does not boot or does not end.
watchdog() {
	local until=$((SECONDS + $1))
	trap - EXIT INT TERM HUP
	while [ -e "$run" ] && [ $SECONDS -lt $until ]; do sleep 1; done
	[ ! -s "$run/pid" ] || kill "$(cat "$run/pid")"
}

demo() {
	local rc=0
	order mode demo
	order seconds "$DEMO_SECONDS"
	terminal
	step "booting $(kernel_name) in QEMU"
	watchdog $((DEMO_SECONDS + 150)) &
	if [ -t 0 ] && [ -t 1 ]; then
		# With signal=on, Ctrl-C ends the demo at once, because QEMU handles it and does not
		# pass it to the guest.
		boot -chardev stdio,id=terminal,mux=on,signal=on -serial chardev:terminal \
			-mon chardev=terminal -serial "file:$results"
	else
		boot -serial stdio -serial "file:$results" -monitor none </dev/null
	fi || rc=$?
	kill $! 2>/dev/null || :
	grep -qs '^# done 0' "$results" || die "the guest did not reach its end (status of QEMU: $rc)"
	cat >&2 <<-END

	Those were live kernel counters of an unmodified Debian kernel. Next:
	    make vm      a shell in that guest; try: pfc list, pfc watch
	    make test    run the tests
	    make help    list all commands
	END
}

shell() {
	local status
	if [ -n "${CMD:-}" ] || [ ! -t 0 ]; then
		order mode script
		if [ -n "${CMD:-}" ]; then order script "$CMD"; else order script "$(cat)"; fi
		grep -q '[^[:space:]]' "$orders/script" || die "nothing to run: make vm needs a terminal, CMD='...' or commands on its standard input"
		boot -serial "file:$run/console" -serial "file:$results" -serial stdio -monitor none </dev/null || :
		status=$(sed -n 's/^# done \([0-9]*\).*/\1/p' "$results")
		[ -n "$status" ] || tail -n 40 "$run/console" >&2
		exit "${status:-1}"
	fi
	order mode shell
	terminal
	step "booting $(kernel_name); Ctrl-A X ends the guest at once, Ctrl-A C opens QEMU's monitor"
	boot -serial mon:stdio -serial "file:$results"
}

tests() {
	order mode test
	cp "$1/list" "$orders/list"
	results=$1/results
	# QEMU appends to the console, so that a report of the kernel remains if the boot is
	# repeated. Boot the guest in the background, because bash delays traps while a foreground
	# child runs.
	boot -chardev "file,id=console,path=$1/console,append=on" -serial chardev:console -serial "file:$results" -monitor none </dev/null &
	wait $!
}

mode=${1:?}
shift
if [ "$mode" = test ]; then
	enter_world "$world"
	# All boots of a test run use the same image, even if another image is built during the test
	# run.
	base=${1%/*}/$world.cpio programs=${1%/*}/$world.programs
	ln "$IMAGE/base.cpio" "$base" 2>/dev/null || [ -e "$base" ]
	[ -e "$programs" ] || {
		wait_for -x "$IMAGE/programs.lock" "the test programs, which are being copied"
		cp -al "$IMAGE/programs" "$programs.$$"
		exec {locked}>&-
		mv -T "$programs.$$" "$programs" 2>/dev/null || { [ -e "$programs" ] && rm -rf "$programs.$$"; }
	}
else
	image
fi
rm -rf "$run"
mkdir -p "$orders"
trap finish EXIT
trap 'exit 130' INT TERM HUP
case $mode in
demo) demo ;;
shell) shell ;;
test) tests "$@" ;;
*) die "vm.sh: unknown mode '$mode'; use demo, shell or test DIR" ;;
esac
