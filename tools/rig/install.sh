#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs the modules, in the directory of the kernel for which they were built. Also installs pfc
# with manual pages and completions, libperfmon, libperftrace, the files for fleets, and the headers
# for programs (linux/perfcounters.h) and for drivers. make install runs this script; make deb packs
# the installed files. The variables LIBDIR (default: lib) and MODULES_DIR (default: lib/modules)
# name the directories for libraries and modules, which differ between distributions. With the
# option --uninstall, the script removes the files that it would install otherwise, and the modules
# of all kernels and versions, but not the modules of a Debian package. The directory
# updates/perfcounters of each kernel belongs to this project alone, so modules that an earlier
# version has installed there are removed too.

if [ "${1:-}" = --uninstall ]; then
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	said=$(DESTDIR=$copy "$0" 2>&1) || { printf '%s\n' "$said" >&2; exit 1; }
	for d in "${DESTDIR:-}/${MODULES_DIR:-lib/modules}"/*/updates/perfcounters; do
		[ -d "$d" ] || continue
		# Modules that a package has installed are removed with the package.
		[ -n "${DESTDIR:-}" ] || ! dpkg -S "$d" >/dev/null 2>&1 || continue
		rm -r "$d"
		printf '    removed %s\n' "$d" >&2
		release=${d%/updates/perfcounters}
		[ -n "${DESTDIR:-}" ] || depmod "${release##*/}" || :
	done
	(cd "$copy" && find . ! -type d -printf '%P\n') | while read -r f; do
		there=${DESTDIR:-}/$f
		if [ -e "$there" ] || [ -L "$there" ]; then
			rm "$there"
			printf '    removed %s\n' "$there" >&2
		fi
	done
	# Also remove empty directories that only this project uses, which have "perf" in their
	# path.
	(cd "$copy" && find . -depth -type d -path '*perf*' -printf '%P\n') | while read -r d; do
		rmdir "${DESTDIR:-}/$d" 2>/dev/null || :
	done
	[ -n "${DESTDIR:-}" ] || ldconfig || :
	exit
fi
"$(dirname "$0")/build.sh"
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

dest=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
[[ $prefix == /* ]] || die "PREFIX=$prefix must begin with a slash"
if [ -n "${KDIR:-}" ]; then
	release=$(cat "$KDIR/include/config/kernel.release")
	out=$CLONE/build/own-$release
	tools=$CLONE/target/release
	library=$CLONE/target/library
else
	set_up
	release=$RELEASE
	out=$KBUILD_OUT
	tools=$TOOLS_OUT
	library=$LIB_OUT
fi

# The script copies the modules itself instead of running Kbuild, so that modules that were built in
# the chroot are installed in the same way as modules for the user's own kernel tree (KDIR=).
where=$dest/${MODULES_DIR:-lib/modules}/$release
if [ -e "$out/modules.order" ] && { [ -n "$dest" ] || [ -d "$where" ]; }; then
	rm -rf "$where/updates/perfcounters"
	mkdir -p "$where/updates/perfcounters" || die "cannot write to $where; run make install as root, or with DESTDIR="
	while read -r o; do
		ko=${o#"$out"/}
		ko=${ko%.o}.ko
		case $ko in tests/*) continue ;; esac
		install -m 644 "$out/$ko" "$where/updates/perfcounters/"
		say "    $where/updates/perfcounters/${ko##*/}"
	done <"$out/modules.order"
	if [ -z "$dest" ]; then
		depmod "$release"
		[ "$release" = "$(uname -r)" ] || say "    note: these modules are for kernel $release; this machine runs $(uname -r)"
	fi
else
	say "    modules are not installed: this machine has no kernel $release; DESTDIR= installs them to another place, KDIR= builds them for another kernel"
fi

if [ -x "$tools/pfc" ]; then
	install -D -m 755 -t "$dest$prefix/bin" "$tools/pfc"
	say "    $dest$prefix/bin/pfc"
	share=$dest$prefix/share
	# zsh reads completions of a distribution's packages (in /usr) from vendor-completions,
	# and other completions from site-functions.
	zsh=site-functions
	[ "$prefix" != /usr ] || zsh=vendor-completions
	mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/$zsh" "$share/fish/vendor_completions.d"
	"$tools/pfc" man "$share/man/man1"
	"$tools/pfc" completions bash >"$share/bash-completion/completions/pfc"
	"$tools/pfc" completions zsh >"$share/zsh/$zsh/_pfc"
	"$tools/pfc" completions fish >"$share/fish/vendor_completions.d/pfc.fish"
	say "    $share: manual pages, completions for bash, zsh and fish"
fi
if [ -e "$library/libperfmon.so" ]; then
	PREFIX=$prefix "$TOP/tools/libperfmon/install.sh" "$library" "$dest$prefix"
	say "    $dest$prefix/lib/libperfmon.so.2, libperfmon.a, with header, pkg-config file and manual pages"
	PREFIX=$prefix "$TOP/tools/libperftrace/install.sh" "$library" "$dest$prefix"
	say "    $dest$prefix/lib/libperftrace.so.1, libperftrace.a, with header, pkg-config file and manual page"
	[ -n "$dest" ] || ldconfig || :
fi
install -D -m 644 -t "$dest$prefix/share/perfcounters/fleet" "$TOP"/tools/fleet/*
say "    $dest$prefix/share/perfcounters/fleet (units, alerts, a dashboard)"
for h in "$TOP"/include/uapi/linux/*.h; do
	install -D -m 644 -t "$dest$prefix/include/linux" "$h"
	say "    $dest$prefix/include/linux/${h##*/}"
done
# Headers for drivers keep their relative paths, in a directory that is given to the compiler with
# -I when a driver is built.
drivers=$dest$prefix/include/perfcounters-driver
mkdir -p "$drivers/uapi/linux" "$drivers/linux"
install -m 644 -t "$drivers/linux" "$TOP"/include/linux/*
install -m 644 -t "$drivers/uapi/linux" "$TOP"/include/uapi/linux/*.h
say "    $drivers (headers for drivers: compile with -I of it)"
