#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests the package perfcounters-dkms for tests/host/packages.sh. The test runs in a Debian of its
# own in a chroot. apt installs the package with its dependencies and the stock kernel's headers,
# DKMS builds the modules, and apt purges the package. Prints the path of the output directory of
# the test, which contains two files (`results`, `make.log`) and the directory `modules`. If the
# inputs have not changed since the last test, the script uses the results of that test again. The
# dependencies of the package stay installed between two tests. The kernel trees in the directory
# /var/cache/perfcounters also stay between two tests; dkms/build decides whether a kernel tree can
# be used again.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh"

LOG=$CACHE/logs/dkms.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Increase RECIPE when the commands of the test change.
RECIPE=1
packages=$CLONE/deb/packages
trees=$CACHE/deb/dkms-trees

in_root() { in_debian "$root" "$packages:packages $trees:var/cache/perfcounters" "$1"; }

look() {
	local copy=$CLONE/deb/installed out=$seen.new other
	step "perfcounters-dkms in a Debian of its own"
	: >"$LOG"
	remove "$out" "$copy"
	mkdir -p "$out/modules" "$trees"
	# shellcheck disable=SC2016
	quietly "make install, make uninstall" "$LOG" sh -ec '
		# Create modules of an earlier version. make install must remove those of this
		# kernel, and make uninstall must remove those of all kernels.
		modules=$1/lib/modules/$3/updates/perfcounters
		earlier=$1/lib/modules/7.0.1/updates/perfcounters
		mkdir -p "$modules" "$earlier"
		touch "$modules/old.ko" "$earlier/old.ko"
		DESTDIR=$1 "$0/tools/rig/install.sh"
		(cd "$1" && find . ! -type d) >"$2"
		touch "$modules/old.ko"
		DESTDIR=$1 "$0/tools/rig/install.sh" --uninstall' "$TOP" "$copy" "$out/installed" "$RELEASE" || explain "make install, make uninstall"
	[ -e "$root/.whole" ] || {
		remove "$root"
		debian "a Debian for DKMS" "$root" ""
		stage "what perfcounters-dkms depends on (compilers, linux-source, linux-headers)" in_root "
			apt-get update -q
			apt-get satisfy -y -q --no-install-recommends '$deps, linux-headers-$RELEASE, openssl'"
		: >"$root/.whole"
		outdated "$root"
	}
	# list: prints all files of the Debian in $root, without the files that Debian itself
	# creates at run time, such as those in /var/cache.
	list() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./packages -o -path ./tmp -o -path ./var/log -o -path './var/cache/*' \( -name apt -o -name debconf -o -name ldconfig -o -name man \) -o -path ./var/lib/dpkg -o -path ./var/lib/apt \) -prune -o -print | LC_ALL=C sort); }
	other=$(cut -d. -f1,2 <<<"$RELEASE").0+other
	# A test that was killed may have left packages installed.
	stage "purge what was left" in_debian "$root" "" "
		for package in perfcounters-dkms linux-headers-$other; do
			! dpkg -s \$package >/dev/null 2>&1 || apt-get purge -y -q \$package
		done
		rm -rf /var/lib/dkms/mok.* /var/lib/dkms/perfcounters /usr/src/perfcounters-*"
	# Install the headers of another kernel. They are the headers of the stock kernel, but their
	# version differs from that of the installed linux-source. The release of the other kernel
	# sorts before the release of the stock kernel, so DKMS tries it first.
	stage "headers of a kernel whose source is not installed" in_debian "$root" "" "
		rm -rf /tmp/other
		mkdir -p /tmp/other/DEBIAN /tmp/other/usr/lib/modules/$other
		ln -s /usr/src/linux-headers-$RELEASE /tmp/other/usr/lib/modules/$other/build
		printf '%s\n' 'Package: linux-headers-$other' 'Version: 7.1-1' 'Architecture: all' \
			'Maintainer: nobody <nobody@example.invalid>' 'Description: headers of another kernel' >/tmp/other/DEBIAN/control
		printf '#!/bin/sh -e\nlinux-run-hooks headers postinst $other -- \"\$@\"\n' >/tmp/other/DEBIAN/postinst
		chmod 755 /tmp/other/DEBIAN/postinst
		dpkg-deb -b /tmp/other /tmp/other.deb
		dpkg -i /tmp/other.deb"
	# Save the list of files before the installation, without var/cache/perfcounters, the mount
	# point of the kernel trees. in_root has created this mount point, and the purge of the
	# package must remove it. If the purge leaves var/cache/perfcounters behind, only the list
	# of files after the purge contains this directory.
	list | grep -v '^\./var/cache/perfcounters' >"$out/before"
	stage "apt install: DKMS builds (the longest stage, 4 minutes; 1 with its tree there)" in_root "
		apt-get install -y -q --no-install-recommends /packages/perfcounters-dkms_*.deb"
	{
		echo "== depends"
		in_root "dpkg-query -W -f '\${db:Status-Status}\n' perfcounters-dkms" | sed 's/^installed$/whole/'
		echo "== status"
		in_root "dkms status perfcounters"
		echo "== self-check"
		in_root "cat /var/lib/dkms/perfcounters/*/$RELEASE/x86_64/log/make.log" >"$out/make.log"
		grep '^self-check: all' "$out/make.log" || :
		echo "== mismatch"
		# Simulates a package linux-source whose version differs from that of the kernel's
		# headers.
		in_root "mkdir -p /tmp/bin
			printf '#!/bin/sh\necho 7.2.1-1 \$*\n' >/tmp/bin/dpkg-query
			chmod +x /tmp/bin/dpkg-query
			cd /usr/src/perfcounters-*/
			PATH=/tmp/bin:\$PATH ./build $RELEASE" 2>&1 || :
		echo "== prepared"
		# A tree that was prepared earlier must also be used after linux-source was upgraded
		# or removed.
		in_root "printf '#!/bin/sh\ncase \"\$*\" in *linux-source*) echo 7.2.1-1 ;; *) /usr/bin/dpkg-query \"\$@\" ;; esac\n' >/tmp/bin/dpkg-query
			PATH=/tmp/bin:\$PATH /usr/src/perfcounters-*/build --check $RELEASE && echo used" 2>&1 || :
		echo "== skipped"
		# Installs the headers again. apt fails if DKMS fails in the script that the package
		# of the headers runs.
		in_root "dpkg -i /tmp/other.deb" >"$out/skipped" 2>&1 && echo "headers installed"
		grep -o 'apt install linux-source-[0-9.]*=[^,;]*' "$out/skipped" | sort -u || :
	} >"$out/results"
	cp "$root/usr/lib/modules/$RELEASE/updates/dkms"/*.ko* "$out/modules/"
	# shellcheck disable=SC2016
	inside sh -c 'xz -qd "$0"/*.xz 2>/dev/null; zstd -q --rm -d "$0"/*.zst 2>/dev/null; true' "$out/modules"
	# During the purge the kernel trees are not mounted, and an empty directory takes their
	# place. If the kernel trees were mounted, the purge would remove them, and later tests
	# could not use them again.
	stage "apt purge" in_debian "$root" "" "
		mkdir -p /var/cache/perfcounters/$RELEASE
		apt-get purge -y -q perfcounters-dkms"
	list >"$out/after"
	stage "purge the other kernel" in_debian "$root" "" "apt-get purge -y -q linux-headers-$other"
	{
		echo "== left"
		LC_ALL=C comm -3 "$out/before" "$out/after" | grep -vE '/var/lib/dkms/(mok\.|dkms_dbversion)|__pycache__|/etc/ld.so.cache' || :
		echo "== install"
		cat "$out/installed"
		echo "== uninstall"
		(cd "$copy" && find . ! -type d -o -type d -empty -path '*perf*')
		echo "== end"
	} >>"$out/results"
	remove "$copy"
	remove "$seen"
	mv "$out" "$seen"
	outdated "$seen"
}

"$TOP/tools/deb/build.sh"
set_up
dkms_deb=$(echo "$packages"/perfcounters-dkms_*.deb)
# The dependencies of perfcounters-dkms, as an argument of apt-get satisfy.
deps=$(inside dpkg-deb -f "$dkms_deb" Depends)
root=$CACHE/deb/dkms-root-$(short_hash <<<"recipe $RECIPE $RELEASE $deps")
# shellcheck disable=SC2016 # for the inner shell
seen=$CACHE/deb/dkms-seen-$({
	echo "recipe $RECIPE $RELEASE"
	inside sh -c 'dpkg-deb --fsys-tarfile "$0"; dpkg-deb -f "$0"' "$dkms_deb"
	cat "$TOP/tools/rig/install.sh" "$TOP"/tools/libperf*/install.sh "$0"
} | short_hash)
[ -e "$seen/results" ] || {
	lock "$CACHE/deb/dkms.lock" "the Debian for DKMS"
	[ -e "$seen/results" ] || look
}
touch "$root/.whole" "$seen/results"
echo "$seen"
