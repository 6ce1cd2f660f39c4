#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# A debug kernel from the very source of the stock one, with a small
# configuration: tests/vm/base.config and tests/vm/VARIANT.config. Made once
# (15 to 20 minutes) and again when what it is made from changes.
# Usage: kernel.sh VARIANT [--check]
#   --check: status 1 if it would have to be built, and nothing else

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
variant=${1:?}
# shellcheck disable=SC2034 # for stages.sh
LOG=$LOGS/kernel-$variant.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Raise this when what is done below changes what comes out.
KERNEL_RECIPE=1
read -r rel version <"$CACHE/release" || :
dir=$CACHE/kernel/$rel/$variant
build=$dir/build
source=$CACHE/kernel/$rel/source
fragments=("$TOP/tests/vm/base.config" "$TOP/tests/vm/$variant.config")
[ -e "${fragments[1]}" ] || die "there is no tests/vm/$variant.config"

# Kbuild needs to be told nothing when only the configuration changes; another
# compiler or source is a new build.
tools() { inside sh -c 'rustc --version; bindgen --version; clang --version | head -n 1; ld.lld --version'; }
made_with=$(printf '%s recipe %s\n%s' "$rel $version" "$KERNEL_RECIPE" "$(tools)")
hash=$(printf '%s\n' "$made_with" | cat - "${fragments[@]}" | sha256sum | cut -d' ' -f1)

kmake() { inside make -C "$source" "O=$build" LLVM=1 -j"$JOBS" "$@"; }

# Kconfig drops what it does not know or what lacks something, without a word.
lost() {
	local line name
	grep -hE '^(CONFIG_[A-Z0-9_a-z]+=|# CONFIG_[A-Z0-9_a-z]+ is not set$)' "${fragments[@]}" | while read -r line; do
		name=${line#\# }
		name=${name%%[= ]*}
		case $line in
		'#'*) grep -q "^$name=" "$build/.config" || continue ;;
		*) ! grep -qxF -- "$line" "$build/.config" || continue ;;
		esac
		printf '  wanted: %s, got: %s\n' "$line" "$(grep -E "^(# )?${name}[= ]" "$build/.config" || echo nothing)"
	done
}

kernel() {
	local missing krel out
	step "$variant kernel (once; 15 to 20 minutes of two processors)"
	: >"$LOG"
	if [ ! -e "$source/Makefile" ]; then
		remove "$source.partial"
		mkdir -p "$source.partial"
		unpack_source "$source.partial" "$CACHE/kernel/$rel/stock"
		mv "$source.partial" "$source"
	fi
	[ "$(cat "$dir/made_with" 2>/dev/null)" = "$made_with" ] || remove "$build"
	mkdir -p "$build"
	printf '%s' "$made_with" >"$dir/made_with"
	cat "${fragments[@]}" >"$build/wanted.config"
	stage "configure" kmake "KCONFIG_ALLCONFIG=$build/wanted.config" allnoconfig
	missing=$(lost)
	[ -z "$missing" ] || die "the $variant kernel's configuration lost what was asked for:
$missing"
	stage "build" kmake bzImage modules
	krel=$(cat "$build/include/config/kernel.release")
	remove "$dir/root.new"
	out=$dir/root.new/usr/lib/modules/$krel
	mkdir -p "$out"
	stage "install" kmake "INSTALL_MOD_PATH=$dir/root.new/usr" modules_install
	cp "$build/arch/x86/boot/bzImage" "$out/vmlinuz"
	cp "$build/.config" "$out/config"
	cp "$build/System.map" "$out/System.map"
	remove "$dir/root"
	mv "$dir/root.new" "$dir/root"
	printf '%s' "$krel" >"$dir/release"
	stamp "kernel-$variant" "$hash"
}

whole() { stamped "kernel-$variant" "$hash" && [ -e "$dir/root" ]; }

whole && exit
[ "${2:-}" != --check ] || exit 1
lock_kernels
whole || kernel
