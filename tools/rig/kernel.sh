#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds a debug kernel from the source of the stock kernel, with a small configuration:
# tests/vm/base.config and tests/vm/VARIANT.config. A kernel that was built is used again until its
# inputs change.
# Usage: kernel.sh VARIANT    (debug or kcsan)
# Prints the path of the kernel's directory. The directory contains build (the tree for building
# modules), root (the image and modules of the kernel), and the file release (the release of the
# kernel).

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
variant=${1:?}
# shellcheck disable=SC2034 # for stages.sh
LOG=$CACHE/logs/kernel-$variant.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Increase KERNEL_RECIPE when a change of this script makes a different kernel. The name of the
# kernel's directory contains a hash, of which KERNEL_RECIPE is an input.
KERNEL_RECIPE=2
set_up base
source=$CACHE/kernel/$RELEASE/source
fragments=("$TOP/tests/vm/base.config" "$TOP/tests/vm/$variant.config")
[ -e "${fragments[1]}" ] || die "unknown kernel '$variant': tests/vm/$variant.config does not exist"

tools() { inside sh -c 'rustc --version; bindgen --version; clang --version | head -n 1; ld.lld --version'; }
hash=$({ printf '%s recipe %s\n' "$RELEASE $(cat "$CACHE/kernel/$RELEASE/version")" "$KERNEL_RECIPE"; tools; cat "${fragments[@]}"; } | short_hash)
dir=$CACHE/kernel/$RELEASE/$variant-$hash
build=$dir/build

kmake() { inside make -C "$source" "O=$build" LLVM=1 -j"$JOBS" "$@"; }

# lost: prints the lines of the configuration fragments that are not in .config. Kconfig silently
# drops options that it does not know or whose dependencies are missing. A line of a fragment can
# name two alternatives, with " # or " between them; the line is not printed if .config has one of
# the alternatives.
lost() {
	local line name
	grep -hE '^(CONFIG_[A-Z0-9_a-z]+=|# CONFIG_[A-Z0-9_a-z]+ is not set$)' "${fragments[@]}" | while read -r line; do
		name=${line#\# }
		name=${name%%[= ]*}
		case $line in
		*' # or '*) grep -qxF -e "${line% \# or *}" -e "${line#* \# or }" "$build/.config" && continue ;;
		'#'*) grep -q "^$name=" "$build/.config" || continue ;;
		*) ! grep -qxF -- "$line" "$build/.config" || continue ;;
		esac
		printf '  wanted: %s, got: %s\n' "$line" "$(grep -E "^(# )?${name}[= ]" "$build/.config" || echo nothing)"
	done
}

unpacked_source() {
	[ ! -e "$source/Makefile" ] || return 0
	lock "$source.lock" "the kernel's source"
	[ ! -e "$source/Makefile" ] || return 0
	remove "$source.partial"
	mkdir -p "$source.partial"
	unpack_source "$source.partial" "$PACKAGED"
	mv "$source.partial" "$source"
}

# kernel: builds and installs the kernel. After an interruption, the build continues with the object
# files that exist already.
kernel() {
	local missing krel out
	step "$variant kernel (once)"
	: >"$LOG"
	unpacked_source
	mkdir -p "$build"
	sed 's/ # or /\n/' "${fragments[@]}" >"$build/wanted.config"
	stage "configure the $variant kernel" kmake "KCONFIG_ALLCONFIG=$build/wanted.config" allnoconfig
	missing=$(lost)
	[ -z "$missing" ] || die "the $variant kernel's configuration lacks options of tests/vm/base.config or tests/vm/$variant.config; correct these files:
$missing"
	stage "build the $variant kernel" kmake bzImage modules
	krel=$(cat "$build/include/config/kernel.release")
	remove "$dir/root.new"
	out=$dir/root.new/usr/lib/modules/$krel
	mkdir -p "$out"
	stage "install the $variant kernel" kmake "INSTALL_MOD_PATH=$dir/root.new/usr" modules_install
	cp "$build/arch/x86/boot/bzImage" "$out/vmlinuz"
	cp "$build/.config" "$out/config"
	cp "$build/System.map" "$out/System.map"
	printf '%s' "$krel" >"$dir/release"
	# Keep the tree, in which modules are built, but delete its object files, because the kernel
	# is not linked again.
	find "$build" -name '*.[oa]' ! -path '*/scripts/*' ! -path '*/tools/*' -delete
	rm -f "$build"/vmlinux* "$build"/.tmp_vmlinux*
	mv "$dir/root.new" "$dir/root"
	outdated "$dir"
}

[ -e "$dir/root" ] || {
	lock "$dir.lock" "the $variant kernel"
	[ -e "$dir/root" ] || kernel
}
touch "$dir/root"
echo "$dir"
