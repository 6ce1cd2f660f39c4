#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the kernel modules and the user tools (make, make modules, make tools).
#
# Usage: build.sh [modules] [tools] [tests] [image]    (without an argument builds modules and tools)
#   modules  the kernel modules
#   tools    the programs of the workspace tools/, libperfmon and libperftrace
#   tests    the programs of cargo test
#   image    the guest's initramfs, for which modules and tools must be built already
#
# With WORLD=debug or WORLD=kcsan, modules and image are built for that debug kernel. A debug kernel
# that does not exist yet is built first. With KDIR=DIR, modules (for the kernel tree in DIR) and
# user tools are built with the tool chain of the host.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/rig/file_times.sh
. "$TOP/tools/rig/file_times.sh"
world=${WORLD:-stock}

# errors LOG: prints the compiler errors in a log, each with up to 12 lines that follow it. If the
# log has no compiler error, prints the last 25 lines of the log.
errors() {
	local log=$1 shown
	shown=$(grep -nE -A 12 '(^| )(fatal )?error(\[E[0-9]+\])?:|^ERROR: |modpost:.*(ERROR|error)|undefined reference|: No such file' "$log" | sed -E 's/^[0-9]+[:-]//' | head -n 60)
	[ -n "$shown" ] || shown=$(tail -n 25 "$log")
	printf '%s\n' "$shown" >&2
}

# built WHAT LOG COMMAND...: runs a build. If the build fails, prints the errors in LOG and exits.
built() {
	: >"$2"
	quietly "$@" && return
	errors "$2"
	die "cannot build $1; the complete log is $2"
}

# Builds the modules for the kernel tree in KDIR with the tool chain of the host. The build does not
# need the chroot or the stock kernel.
modules_for_kdir() {
	local kdir out release
	# shellcheck disable=SC2153 # the user sets KDIR
	kdir=$(cd "$KDIR" 2>/dev/null && pwd -P) || die "KDIR=$KDIR is not a directory"
	grep -q '^CONFIG_RUST=y' "$kdir/.config" 2>/dev/null ||
		die "KDIR=$KDIR is not a kernel tree configured with CONFIG_RUST=y; headers of distributions lack the Rust metadata; run make modules_prepare in a source tree, or leave KDIR out (make kdir prepares a tree)"
	release=$(cat "$kdir/include/config/kernel.release") || die "KDIR=$KDIR is not prepared; run make modules_prepare there"
	out=$CLONE/build/own-$release
	lock "$out.lock" "the modules for $release"
	mkdir -p "$out"
	built "modules for $release" "$LOGS/modules.log" make -C "$kdir" -j"$JOBS" "M=$TOP" "MO=$out" modules
	say "    modules: $out"
}

# Deletes the build results of source directories that were removed. Kbuild keeps the build results
# of removed directories, and tests that search all modules would find the old results.
delete_stale() {
	local dir
	find "$KBUILD_OUT" -mindepth 1 -depth -type d -printf '%P\n' | while read -r dir; do
		[ -d "$TOP/$dir" ] || rm -rf "${KBUILD_OUT:?}/$dir"
	done
}

modules() {
	enter_world "$world"
	lock "$KBUILD_OUT.lock" "the modules for $RELEASE"
	mkdir -p "$KBUILD_OUT"
	delete_stale
	built "modules for $RELEASE" "$LOGS/modules.$world.log" inside "${KMAKE[@]}" -j"$JOBS" \
		"M=$TOP" "MO=$KBUILD_OUT" modules
	[ -n "${RUNNING:-}" ] || say "    modules: $KBUILD_OUT"
}

# Fills cargo's target directory of a new clone with a copy of another clone's target directory, so
# that cargo need not compile the packages of the registry again. Deletes from the copied target
# directory what cargo has built from the packages of this project. Cargo compares only file times,
# and would use copied results although they were built from the sources of another clone.
begin_target() {
	local other name lock
	[ ! -e "$TARGET" ] || return 0
	# Take the newest target directory that is not locked by cargo or by tools() below.
	# shellcheck disable=SC2012 # one name a line
	while read -r other; do
		for lock in "$other"/{debug,*/release}/.cargo-lock; do
			[ ! -e "$lock" ] || flock -n "$lock" true || continue 2
		done
		rm -rf "$TARGET.new"
		flock -n "$other.lock" cp -a --reflink=auto "$other" "$TARGET.new" 2>/dev/null && break
		rm -rf "$TARGET.new"
	done < <(ls -dt "$CACHE"/clones/*/target 2>/dev/null)
	[ -e "$TARGET.new" ] || return 0
	(
		cd "$TARGET.new"
		for name in "$TOP"/tools/*/Cargo.toml; do
			name=$(basename "${name%/*}")
			find . \( -path "*/.fingerprint/$name-*" -o -path "*/build/$name-*" \) -prune -exec rm -rf {} +
			find . -path '*/deps/*' \( -name "${name//-/_}-*" -o -name "lib${name//-/_}-*" -o -name "$name-*" \) -delete
		done
		find . -mindepth 2 -type f ! -path '*/deps/*' ! -path '*/.fingerprint/*' ! -path '*/build/*' ! -name '.*' -delete
	)
	rm -rf "$TARGET.new"/*/examples "$TARGET.new"/*/*/examples "$TARGET.new"/*/incremental "$TARGET.new"/*/*/incremental
	[ -e "$TARGET" ] || mv -T "$TARGET.new" "$TARGET" || rm -rf "$TARGET.new"
}

# Builds the programs and the libraries. The programs are linked statically, because the initramfs
# has no shared libraries.
tools() {
	set_up base
	lock "$TARGET.lock" "the tools"
	begin_target
	built "tools" "$LOGS/tools.log" inside env "CARGO_TARGET_DIR=$TARGET" "RUSTFLAGS=$RUST_LINK -C target-feature=+crt-static" \
		cargo build --manifest-path "$TOP/tools/Cargo.toml" --release --locked --target x86_64-unknown-linux-gnu
	# The libraries are built without crt-static, which would exclude shared libraries.
	built "libraries" "$LOGS/libraries.log" inside env "CARGO_TARGET_DIR=$TARGET" \
		cargo build --manifest-path "$TOP/tools/Cargo.toml" --profile library --locked -p libperfmon -p libperftrace --target x86_64-unknown-linux-gnu
}

# Builds the test programs that cargo test runs, with the compiler flags that job.sh uses.
tests() {
	set_up base
	lock "$TARGET.lock" "the tools"
	begin_target
	built "tests" "$LOGS/tests.log" inside env "CARGO_TARGET_DIR=$TARGET" ${CI:+CARGO_INCREMENTAL=0} \
		cargo test --manifest-path "$TOP/tools/Cargo.toml" --workspace --no-run --locked
}

image() {
	local log=$LOGS/image.$world.log
	enter_world "$world"
	lock "$IMAGE.lock" "the guest's image"
	mkdir -p "$IMAGE"
	: >"$log"
	quietly "image for $RELEASE" "$log" inside "$TOP/tools/rig/image.sh" "$RELEASE" "$STOCK" "$KBUILD_OUT" "$TOOLS_OUT" "$LIB_OUT" "$IMAGE" || {
		tail -n 40 "$log" >&2
		die "cannot build the guest's image; the complete log is $log"
	}
	sed -n 's/^image: \(.*does not compile\)$/    left out: \1/p' "$log" >&2
}

[ $# -gt 0 ] || set -- modules tools
restore_times
for what; do
	case ${KDIR:+own-}$what in
	own-modules) modules_for_kdir ;;
	own-tools)
		command -v cargo >/dev/null || { say "    tools are not built: cargo not found on this host; without KDIR= they are built in the chroot"; continue; }
		built "tools" "$LOGS/tools.log" env "CARGO_TARGET_DIR=$CLONE/target" \
			cargo build --manifest-path "$TOP/tools/Cargo.toml" --release --locked
		built "libraries" "$LOGS/libraries.log" env "CARGO_TARGET_DIR=$CLONE/target" \
			cargo build --manifest-path "$TOP/tools/Cargo.toml" --profile library --locked -p libperfmon -p libperftrace
		;;
	modules | tools | tests | image) "$what" ;;
	*) die "build.sh: cannot build '$what'; it builds modules and tools and, without KDIR=, tests and image" ;;
	esac
done
