#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the guest's initramfs, IMAGE/base.cpio. The initramfs has busybox, this project's modules
# and tools, the tests' scripts, and the stock modules of devices that tests use. The compiled test
# programs are large, and are kept separately in IMAGE/programs. For each boot, vm.sh adds to the
# initramfs only the test programs that the boot needs. If a test program does not compile, the log
# names it and the image does not contain it, which a test run reports as a failure. This script
# runs in the tool chain's root file system (see build.sh).
# Usage: image.sh RELEASE STOCK KBUILD_OUT TOOLS_OUT LIB_OUT IMAGE
#        image.sh sources    lists "PROGRAM SOURCE" for each test program

set -euo pipefail

# sources: lists the test programs. The paths are relative to the root of the source tree. If they
# were absolute, the patterns below could match the name of a directory above the source tree.
sources() {
	cd "$TOP"
	for c in tests/kselftest/{*,pfc/readme}/*.c tests/kselftest/pfc/names/*.{c,cc,rs} tools/libperf{mon,trace}/examples/*.c; do
		[ -e "$c" ] || continue
		prog=$(basename "${c%.*}")
		case $c in
		*/examples/* | */readme/* | */names/*) prog=examples/$prog ;;
		esac
		echo "$prog $c"
	done
}
[ "$1" != sources ] || { sources; exit; }

release=$1 stock=$2 kbuild_out=$3 tools_out=$4 lib_out=$5 image=$6
# Stock modules that tests load, most of them for devices that tests add and remove. The image also
# gets the modules on which the stock modules depend.
stock_modules="loop sd_mod scsi_debug null_blk dummy veth 8021q bonding ifb
act_mirred cls_matchall sch_ingress sch_tbf virtio_pci virtio_blk ext4 overlay"

root=$image/root.new
programs=$image/programs.new
rm -rf "$root" "$programs"
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc,root,modules,tests} "$programs/tests/examples"

cp /bin/busybox "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
install -m 755 "$TOP/tests/vm/init" "$root/init"
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nperfcounters:x:100:\nnogroup:x:65534:\n' >"$root/etc/group"

# Copy the stock modules, and the modules on which they depend according to modules.dep.
lib=$root/lib/modules/$release
from=$stock/usr/lib/modules/$release
mkdir -p "$lib/updates"
cp "$from"/modules.{order,builtin,builtin.modinfo} "$lib/"
dep=$from/modules.dep
[ -e "$dep" ] || dep=$CACHE/kernel/$release/modules.dep
if [ ! -e "$dep" ]; then
	depmod -b "$stock/usr" -o "$image/depmod" "$release"
	cp "$image/depmod/lib/modules/$release/modules.dep" "$dep.$$" 2>/dev/null ||
		find "$image/depmod" -name modules.dep -exec cp {} "$dep.$$" \;
	mv "$dep.$$" "$dep"
	rm -rf "$image/depmod"
fi
for m in $stock_modules; do
	sed -nE "s#^([^:]*/$m\.ko[^:]*):(.*)#\1 \2#p" "$dep" | tr ' ' '\n'
done | sort -u | while read -r ko; do
	[ -n "$ko" ] || continue
	mkdir -p "$lib/${ko%/*}"
	case $ko in
	*.xz) xz -dc "$from/$ko" >"$lib/${ko%.xz}" ;;
	*.zst) zstd -qdc "$from/$ko" >"$lib/${ko%.zst}" ;;
	*) cp "$from/$ko" "$lib/$ko" ;;
	esac
done

# Copy all modules of this project to one directory, and make links to them in /modules, the path
# that the documentation names. The file /modules/order lists the modules that the demo and the
# shell load: all modules except those of tests/. The list begins with perfcounters.ko; the other
# modules follow in the order of their names.
: >"$root/modules/order"
if [ -e "$kbuild_out/modules.order" ]; then
	while read -r o; do
		ko=${o%.o}.ko
		ko=${ko#"$kbuild_out"/}
		name=${ko##*/}
		objcopy --strip-debug "$kbuild_out/$ko" "$lib/updates/$name"
		ln -s "/lib/modules/$release/updates/$name" "$root/modules/$name"
		case $ko in tests/*) ;; *) echo "$name" ;; esac
	done <"$kbuild_out/modules.order" | sort -s -k1,1 | awk '$1 == "perfcounters.ko" { print } { rest[NR] = $1 }
		END { for (i = 1; i <= NR; i++) if (rest[i] != "perfcounters.ko") print rest[i] }' >"$root/modules/order"
fi
depmod -b "$root" "$release"

# Copy all programs that cargo has built in the workspace tools/.
if [ -d "$tools_out" ]; then
	find "$tools_out" -maxdepth 1 -type f -perm -100 ! -name '*.so' ! -name '*.d' -exec cp -t "$root/bin" {} +
	find "$root/bin" -type f ! -name busybox -exec strip {} +
fi

# Compile two kinds of programs: test programs, and the examples of the libraries and of the
# documentation, in examples/.
libperfmon=$TOP/tools/libperfmon libperftrace=$TOP/tools/libperftrace
# compile SOURCE PROGRAM: compiles a static program. A line "symbols: kept" in the source keeps the
# symbol table, and "symbols: debug" the debugging information as well. The cache keeps each program
# under a name that is the hash of all inputs of the program, so that only changed programs are
# compiled. All clones and all kernels (stock, debug and kcsan) use the programs in the cache.
compile() {
	local c=$1 archive="" kept new said
	local -a flags=(-O2 -g -Wall -Wextra -pthread -I "$TOP/include/uapi" -I "$TOP/include" -I "$TOP/tests/kselftest/lib" -I "$libperfmon/include" -I "$libperftrace/include")
	! grep -q '^#include "events.h"\|<perfmon/perfmon.h>' "$c" || archive=$lib_out/libperfmon.a
	! grep -q '^#include "perftrace.h"\|<perftrace/perftrace.h>' "$c" || archive=$lib_out/libperftrace.a
	local -a compiler=(gcc-14 -std=gnu11 "${flags[@]}" -static)
	case $c in
	*.cc) compiler=(g++ -std=c++20 -O2 -g -Wall -Wextra -static) ;;
	*.rs) compiler=(rustc --edition 2021 -O -g -C target-feature=+crt-static -C symbol-mangling-version=v0) ;;
	esac
	kept=$store/$({ printf '%s\n' "${compiler[@]#"$TOP"}" "$inputs"; cat "$c" ${archive:+"$archive"}; } | sha256sum | cut -c1-32)
	new=$kept.$BASHPID
	# The time of a program in the cache is the time of its last use.
	touch -c "$kept"
	[ -e "$kept" ] || {
		said=$("${compiler[@]}" -o "$new" "$c" ${archive:+"$archive"} 2>&1) || {
			printf '%s\nimage: %s does not compile\n' "$said" "$c"
			return
		}
		[ -z "$said" ] || printf '%s\n' "$said" >&2
		case $(grep -oE '^( \*|//) symbols: (kept|debug)' "$c") in
		*kept) strip --strip-debug "$new" ;;
		*debug) ;;
		*) strip "$new" ;;
		esac
		mv "$new" "$kept"
	}
	ln "$kept" "$2"
}

# The inputs that all programs have in common: the compilers with their libraries, and all headers.
store=$CACHE/programs
mkdir -p "$store"
inputs=$(cd "$TOP" && {
	dpkg-query -W gcc-14 binutils libc6-dev linux-libc-dev
	g++ --version || true
	rustc --version || true
	find include tests/kselftest tools/libperfmon tools/libperftrace \( -name '*.h' -o -path 'tests/kselftest/pfc/readme/*.c' \) | sort | xargs sha256sum
})
# If several images are built at the same time, only one build at a time compiles programs.
exec 9>"$CLONE/image/programs.lock"
flock 9
while read -r prog c; do
	while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
	compile "$TOP/$c" "$programs/tests/$prog" &
done < <(sources)
wait
# Keep the newest 1,000 programs in the cache, which is enough for a few versions of the headers.
# shellcheck disable=SC2012 # one name a line
(cd "$store" && ls -t | tail -n +1001 | xargs -r rm -f)
exec 9>&-
mkdir -p "$root/tests/examples"
for s in "$TOP"/tests/kselftest/*/*.{sh,py}; do
	[ ! -e "$s" ] || install -m 755 "$s" "$root/tests/"
done

# Extract the code blocks of the documentation, which tests execute.
mkdir -p "$root/tests/documentation"
awk -v out="$root/tests/documentation" -f "$TOP/tests/documentation/blocks.awk" "$TOP"/README.md "$TOP"/Documentation/*.md
cp -r "$TOP/Documentation/ABI/testing" "$root/tests/documentation/ABI"
# Copy the files for fleets of machines, which tests use unchanged.
cp -r "$TOP/tools/fleet" "$root/tests/"

(cd "$root" && find . -mindepth 1 | cpio -o -H newc --quiet) >"$image/base.cpio.new"
mv "$image/base.cpio.new" "$image/base.cpio"
# Take the lock that vm.sh holds while it copies the programs for the boot of a guest.
exec 9>"$image/programs.lock"
flock 9
rm -rf "$image/programs"
mv "$programs" "$image/programs"
exec 9>&-
rm -rf "$root"
