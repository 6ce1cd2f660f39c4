#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Boots the stock kernel in QEMU (no KVM) with what was built.
# Usage: vm.sh demo            real counters for some seconds
#        vm.sh shell           an interactive shell; CMD='...' or piped input is run instead
#        vm.sh test LIST DIR   run LIST ("PROGRAM SECONDS" a line); console and results go to DIR

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

SMP=${SMP:-2}
MEM=${MEM:-1G}
DEMO_SECONDS=${DEMO_SECONDS:-15}

# The guest's initramfs is the image and this boot's orders, one after the other.
run=$CACHE/image/run.$$
orders=$run/orders
order() { printf '%s\n' "$2" >"$orders/$1"; }

finish() {
	[ ! -s "$run/pid" ] || kill "$(cat "$run/pid")" 2>/dev/null || :
	rm -rf "$run"
}

boot() { # boot QEMU-ARGUMENTS...
	local -a qemu=(qemu-system-x86_64 -M q35 -accel tcg -cpu max -smp "$SMP" -m "$MEM"
		-nodefaults -no-user-config -display none -no-reboot -pidfile "$run/pid"
		-kernel "$STOCK/usr/lib/modules/$RELEASE/vmlinuz" -initrd "$run/initrd"
		-append "console=ttyS0 panic=-1 loglevel=$([ "$mode" = test ] && echo 5 || echo 4) ${APPEND:-}")
	# shellcheck disable=SC2016
	inside sh -ec 'cd "$0" && find orders | cpio -o -H newc --quiet | cat "$1" - >initrd' "$run" "$CACHE/image/base.cpio"
	inside "${qemu[@]}" "$@"
}

image() {
	[ -n "${NO_BUILD:-}" ] || "$TOP/tools/rig/build.sh"
	set_up
	(
		lock_cache
		inside "$TOP/tools/rig/image.sh" "$RELEASE" "$STOCK" "$KBUILD_OUT" "$TOOLS_OUT" >"$LOGS/image.log" 2>&1
	) || {
		tail -n 40 "$LOGS/image.log" >&2
		die "the guest's image could not be built (log: $LOGS/image.log)"
	}
}

terminal() {
	order term "${TERM:-linux}"
	[ ! -t 0 ] || [ ! -t 1 ] || order size "$(stty size)"
}

# A guest that does not come up, or does not end, must not hang its user.
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
	step "booting the unmodified Debian kernel $RELEASE in QEMU"
	watchdog $((DEMO_SECONDS + 150)) &
	if [ -t 0 ] && [ -t 1 ]; then
		boot -serial mon:stdio -serial "file:$run/results"
	else
		boot -serial stdio -serial "file:$run/results" -monitor none </dev/null
	fi || rc=$?
	kill $! 2>/dev/null || :
	grep -qs '^# done 0' "$run/results" || die "the guest did not reach its end (status $rc)"
	cat >&2 <<-END

	Those were live kernel counters of an unmodified Debian kernel. Next:
	    make vm      a shell in that guest; try: pfc list, pfc watch
	    make test    every promise, tested
	    make help    everything else
	END
}

shell() {
	local status
	if [ -n "${CMD:-}" ] || [ ! -t 0 ]; then
		order mode script
		if [ -n "${CMD:-}" ]; then order script "$CMD"; else order script "$(cat)"; fi
		grep -q '[^[:space:]]' "$orders/script" || die "nothing to run: make vm needs a terminal, CMD='...' or commands on its standard input"
		boot -serial "file:$run/console" -serial "file:$run/results" -serial stdio -monitor none </dev/null || :
		status=$(sed -n 's/^# done \([0-9]*\).*/\1/p' "$run/results")
		[ -n "$status" ] || tail -n 40 "$run/console" >&2
		exit "${status:-1}"
	fi
	order mode shell
	terminal
	step "booting $RELEASE; Ctrl-A X ends the guest at once, Ctrl-A C opens QEMU's monitor"
	boot -serial mon:stdio -serial "file:$run/results"
}

tests() {
	order mode test
	cp "$1" "$orders/list"
	# In the background, so that a signal to this script is acted on at once.
	boot -serial "file:$2/console" -serial "file:$2/results" -monitor none </dev/null &
	wait $!
}

mode=${1:?}
shift
image
mkdir -p "$orders"
trap finish EXIT
trap 'exit 130' INT TERM HUP
case $mode in
demo) demo ;;
shell) shell ;;
test) tests "$@" ;;
*) die "vm.sh: unknown mode $mode" ;;
esac
