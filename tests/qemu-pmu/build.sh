#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make qemu-pmu: builds QEMU with an emulated x86 PMU from Debian's source package, hooks.patch
# and the files of this directory. QEMU is built once, and again when an input changes.
# Prints the path of the program. See Documentation/emulated-pmu.md. Exit status 3: QEMU cannot
# be built on this machine, for the reason in $CACHE/qemu-pmu/why.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../../tools/rig/lib.sh"
LOG=$CACHE/logs/qemu-pmu.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# The version that hooks.patch is made for. If the archive has only other versions, they are tried
# after a warning.
PINNED=10.0.13
# Increase this number when a change below changes the program that is built.
RECIPE=2
here=$TOP/tests/qemu-pmu
dir=$CACHE/qemu-pmu
downloads=$dir/downloads
work=$dir/work

cannot() {
	mkdir -p "$dir"
	printf '%s\n' "$*" >"$dir/why"
	stamp qemu-pmu-cannot "$want ${TEST_RUN:-}"
	say "perfcounters: there will be no emulated PMU: $*"
	exit 3
}

# Prints the versions of the source package: the pinned one, then the others, newest first.
offered() {
	inside apt-cache showsrc qemu 2>/dev/null | sed -n 's/^Version: //p' | sort -uV |
		awk -v pinned="$PINNED" '{ v = $0; sub(/^[0-9]+:/, "", v)
			print index(v, pinned) == 1 ? 0 : 1, NR, $0 }' | sort -k1,1n -k2,2nr | cut -d' ' -f3
}

# Unpacks the source of a version of QEMU to $work/source, and patches the source.
source_of() { # source_of VERSION
	remove "$work"
	mkdir -p "$downloads" "$work"
	if ! compgen -G "$downloads/qemu_${1#*:}.dsc" >/dev/null; then
		rm -f "$downloads"/*
		# shellcheck disable=SC2016
		quietly "download QEMU $1" "$LOG" inside sh -ec 'cd "$0" && apt-get source -q --download-only -o APT::Sandbox::User=root "qemu=$1"' "$downloads" "$1" || {
			rm -f "$downloads"/*
			# The archive lists this version, so a failed download is an error of this
			# run.
			explain "download QEMU $1"
		}
	fi
	# shellcheck disable=SC2016
	stage "unpack QEMU" inside sh -ec 'dpkg-source --no-check -x "$0"/*.dsc "$1"' "$downloads" "$work/source"
	quietly "patch QEMU" "$LOG" inside patch -d "$work/source" -p1 --batch -i "$here/hooks.patch" || {
		say "    the hooks do not apply to QEMU $1"
		return 1
	}
	mkdir -p "$work/source/target/i386/tcg/pmu"
	cp "$here"/{meson.build,pmu.h,internal.h,counters.c,events.c,interrupt.c,intel.c,amd.c} "$work/source/target/i386/tcg/pmu/"
	cp "$here/budget.c" "$work/source/accel/tcg/insn-budget.c"
	cp "$here/budget.h" "$work/source/include/exec/insn-budget.h"
	cp "$here/pmu.mak" "$work/source/configs/devices/x86_64-softmmu/"
}

fetch() {
	local v all
	all=$(offered)
	[ -n "$all" ] || {
		stage "package lists" inside apt-get update -q --error-on=any
		all=$(offered)
	}
	[ -n "$all" ] || cannot "apt knows no source package of QEMU; the archive must be listed with deb-src and reachable"
	for v in $all; do
		case $v in
		*:"$PINNED"* | "$PINNED"*) ;;
		*) say "    trying QEMU $v instead of $PINNED, with which this was tested" ;;
		esac
		! source_of "$v" || return 0
	done
	cannot "the archive has no source of QEMU that tests/qemu-pmu/hooks.patch fits (it is for $PINNED; offered: $(xargs <<<"$all")). Port the patch, or name an archive that has it: DEBIAN_MIRROR=, after make distclean."
}

compile() {
	mkdir -p "$work/build" "$dir/ccache"
	# Leaves out the parts of QEMU that the guests do not use. Firmware comes from Debian's
	# packages.
	# shellcheck disable=SC2016
	stage "configure QEMU" inside sh -ec 'cd "$0" && CC="ccache gcc-14" CCACHE_DIR=$1 exec ../source/configure \
		--target-list=x86_64-softmmu --without-default-features --without-default-devices --with-devices-x86_64=pmu \
		--enable-tcg --enable-trace-backends=nop --disable-docs --disable-tools --disable-install-blobs --disable-download --disable-werror \
		--disable-debug-info -Doptimization=2 --with-pkgversion="perfcounters, emulated PMU" \
		--firmwarepath=/usr/share/qemu:/usr/share/seabios:/usr/lib/ipxe/qemu' "$work/build" "$dir/ccache"
	# shellcheck disable=SC2016
	stage "build QEMU" inside sh -ec 'cd "$0" && CCACHE_DIR=$1 CCACHE_MAXSIZE=200M CCACHE_DEPEND=1 exec ninja -j"$JOBS" qemu-system-x86_64' "$work/build" "$dir/ccache"
	stage "install QEMU" inside strip -o "$program.new" "$work/build/qemu-system-x86_64"
}

made_from() {
	printf '%s %s\n' "$PINNED" "$RECIPE"
	(cd "$here" && sha256sum -- *.[ch] hooks.patch meson.build pmu.mak)
	inside gcc-14 --version
}

set_up base
want=$(made_from | short_hash)
program=$dir/emulator-$want/qemu-system-x86_64
[ -x "$program" ] || {
	# Within a test run, report only once that the emulator cannot be built.
	if [ -n "${TEST_RUN:-}" ] && stamped qemu-pmu-cannot "$want $TEST_RUN"; then exit 3; fi
	lock "$dir/lock" "the emulator"
	[ -x "$program" ] || {
		step "QEMU with an emulated PMU (once)"
		: >"$LOG"
		rm -f "$dir/why"
		mkdir -p "${program%/*}"
		fetch
		compile
		mv "$program.new" "$program"
		remove "$work"
		outdated "${program%/*}"
	}
}
touch "$program"
echo "$program"
