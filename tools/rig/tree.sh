#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Prepares a kernel tree in which Rust modules for a stock Debian kernel can be built. Debian's
# packages of kernel headers have no Rust metadata, so this script generates the metadata. The
# script uses the source, the configuration and the compiler of the stock kernel. Then the script
# looks up each Rust symbol in the stock kernel's Module.symvers. kdir.sh runs this script, and so
# does the package perfcounters-dkms on users' machines.
# Usage: tree.sh RELEASE SOURCE.tar.xz CONFIG MODULE.SYMVERS TREE

set -euo pipefail
release=$1 source=$2 config=$3 symvers=$4 tree=$5
cc=${CC:-gcc-14}

die() { printf 'perfcounters: %s\n' "$*" >&2; exit 1; }

config_of() { sed -nE "s/^CONFIG_$1=\"?([^\"]*)\"?\$/\1/p" "$config"; }

# Checks the versions of the compilers. The installed rustc must have the version that compiled the
# kernel, because no other version can read the kernel's Rust metadata. The installed gcc must have
# the major version that compiled the kernel, because gcc's plugins and the layout of structures can
# differ between major versions.
compilers() {
	local wanted got
	[ "$(config_of RUST)" = y ] || die "the kernel $release has no Rust support (CONFIG_RUST); use a Debian kernel from 7.2 on"
	wanted=$(config_of RUSTC_VERSION_TEXT)
	got=$(rustc --version 2>&1) || die "rustc not found; the kernel $release was built with $wanted: apt install rustc rust-src bindgen"
	[ "$got" = "$wanted" ] || die "the kernel $release was built with $wanted; the rustc here is $got; only the same version can read the kernel's metadata; install Debian's rustc, and have no other before it in the PATH"
	bindgen --version >/dev/null 2>&1 || die "bindgen not found: apt install bindgen"
	got=$("$cc" -dumpversion 2>/dev/null) || die "$cc not found: apt install $cc"
	wanted=$(config_of GCC_VERSION)
	[ "${got%%.*}" = $((wanted / 10000)) ] || die "the kernel $release was built with gcc $((wanted / 10000)); $cc is version $got; name another compiler with CC="
}

# Unpacks the kernel source without the files that no build of a module reads. The unpacked files
# have 640 MB, a third of the source. Unpacking only a third of the source saves time on a slow
# disk. A build of a module needs the Kconfig files and Makefiles of all directories. Each exclude
# pattern of tar begins with the name of the top directory. Without the name of the top directory, a
# pattern for net/ would also match rust/helpers/net/, because a star also matches slashes.
unpack() {
	local version top
	top=linux-source-$(cut -d. -f1,2 <<<"$release")
	[ -e "$source" ] || die "$source not found: apt install $top"
	rm -rf --one-file-system "$tree"
	mkdir -p "$tree"
	tar -C "$tree" --strip-components=1 --anchored --exclude-from=<(printf '%s\n' \
		'drivers/*.c' 'drivers/gpu/*.h' 'sound/*.[ch]' 'fs/*.c' 'net/*.c' 'Documentation/*.rst' \
		'Documentation/*.yaml' 'tools/testing/*' 'tools/perf/*' '*.dts' '*.dtsi' | sed "s,^,$top/,") -xf "$source"
	version=$(make -s -C "$tree" kernelversion)
	case $release in
	"$version"[+-]*) ;;
	*) die "$source is Linux $version, the kernel is $release; install the version of $top that the kernel was built from" ;;
	esac
}

prepare() {
	cp "$config" "$tree/.config"
	cp "$symvers" "$tree/Module.symvers"
	make -C "$tree" -j"${JOBS:-$(nproc)}" CC="$cc" KERNELRELEASE="$release" olddefconfig prepare modules_prepare
	grep -q '^CONFIG_RUST=y' "$tree/.config" || die "Kconfig has disabled CONFIG_RUST in $tree, as this machine's Rust tools are not usable for the kernel; make -C $tree rustavailable shows the reason"
}

# Checks that the stock kernel exports each Rust symbol that a module may import, under the same
# mangled name. If a symbol is missing, modules that are built for the tree would not load into the
# stock kernel.
self_check() {
	local listed missing
	listed=$(sed -nE 's/^EXPORT_SYMBOL_RUST_GPL\(([^)]*)\);$/\1/p' "$tree"/rust/exports_*_generated.h | LC_ALL=C sort -u)
	[ "$(wc -l <<<"$listed")" -gt 1000 ] || die "self-check: the prepared tree lists only $(wc -l <<<"$listed") Rust symbols, more than 1000 are expected"
	missing=$(LC_ALL=C comm -23 <(printf '%s\n' "$listed") <(awk '{ print $2 }' "$symvers" | LC_ALL=C sort -u))
	[ -z "$missing" ] || {
		head -n 5 <<<"$missing" >&2
		die "self-check: $(wc -l <<<"$missing") Rust symbols of the prepared tree are not in the stock $release kernel; modules would not load"
	}
	echo "self-check: all $(wc -l <<<"$listed") Rust symbols are exported by the stock $release"
}

compilers
unpack
prepare
self_check
