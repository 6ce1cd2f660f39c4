#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make, make modules, make tools: build the kernel modules and the user tools.
# Usage: build.sh [modules] [tools]
# WORLD=debug or kcsan: modules for that kernel, which is built if need be.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# On failure: what the compiler said, not what make said around it.
errors() {
	local log=$1 shown
	shown=$(grep -nE -A 12 '(^| )(fatal )?error(\[E[0-9]+\])?:|^ERROR: |modpost:.*(ERROR|error)|undefined reference|: No such file' "$log" | sed -E 's/^[0-9]+[:-]//' | head -n 60)
	[ -n "$shown" ] || shown=$(tail -n 25 "$log")
	printf '%s\n' "$shown" >&2
}

built() { # built WHAT LOG COMMAND...
	: >"$2"
	quietly "$@" && return
	errors "$2"
	die "$1 failed (all of it: $2)"
}

# The output directory belongs to one clone of the project: Kbuild keeps paths.
claim() {
	if [ "$(cat "$1/.clone" 2>/dev/null)" != "$TOP" ]; then
		rm -rf "$1"
		mkdir -p "$1"
		printf '%s' "$TOP" >"$1/.clone"
	fi
}

# A kernel tree of the user's own: the host's tools, no chroot, no stock kernel.
modules_for_kdir() {
	local kdir out release
	kdir=$(cd "$KDIR" 2>/dev/null && pwd -P) || die "KDIR=$KDIR is no directory"
	grep -q '^CONFIG_RUST=y' "$kdir/.config" 2>/dev/null ||
		die "KDIR=$KDIR is not a configured kernel tree with CONFIG_RUST=y. Distribution headers carry no Rust metadata: a prepared source tree is needed (make modules_prepare), or leave KDIR out and make kdir prepares one."
	release=$(cat "$kdir/include/config/kernel.release") || die "KDIR=$KDIR is not prepared; run make modules_prepare there"
	out=$CACHE/build/own-$release
	lock_cache
	claim "$out"
	built "modules for $release" "$LOGS/modules.log" make -C "$kdir" -j"$JOBS" "M=$TOP" "MO=$out" modules
	say "    modules: $out"
}

modules() {
	claim "$KBUILD_OUT"
	built "modules for $RELEASE" "$LOGS/modules.log" inside "${KMAKE[@]}" -j"$JOBS" \
		"M=$TOP" "MO=$KBUILD_OUT" modules
}

# Static programs: they run in an initramfs that has no libraries.
tools() {
	built "tools" "$LOGS/tools.log" inside env "CARGO_TARGET_DIR=$TARGET" "RUSTFLAGS=-C target-feature=+crt-static" \
		cargo build --manifest-path "$TOP/tools/Cargo.toml" --release --locked --target x86_64-unknown-linux-gnu
	# What is linked statically cannot be a shared library.
	built "libraries" "$LOGS/libraries.log" inside env "CARGO_TARGET_DIR=$TARGET" \
		cargo build --manifest-path "$TOP/tools/Cargo.toml" --profile library --locked -p libperfmon -p libperftrace --target x86_64-unknown-linux-gnu
}

[ $# -gt 0 ] || set -- modules tools
if [ -n "${KDIR:-}" ]; then
	TARGET=$CACHE/target
	for what; do
		case $what in
		modules) modules_for_kdir ;;
		tools)
			command -v cargo >/dev/null || { say "    no cargo on this host: tools are left out (without KDIR= they are built in the chroot)"; continue; }
			built "tools" "$LOGS/tools.log" env "CARGO_TARGET_DIR=$TARGET" \
				cargo build --manifest-path "$TOP/tools/Cargo.toml" --release --locked
			built "libraries" "$LOGS/libraries.log" env "CARGO_TARGET_DIR=$TARGET" \
				cargo build --manifest-path "$TOP/tools/Cargo.toml" --profile library --locked -p libperfmon -p libperftrace
			;;
		esac
	done
	exit
fi
enter_world "${WORLD:-stock}"
lock_cache
for what; do "$what"; done
