#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes the disk of the guest `deb`, a file system image, and prints its path. The disk has a Debian
# with systemd and the packages in tests/vm/deb.packages. apt has installed the packages of
# perfcounters on the disk, and example programs have been compiled there with the installed headers
# and libraries. The disk is made in two steps, and a step is repeated when its inputs change. The
# first step installs Debian; all clones of the repository share the result of the first step. The
# second step installs the packages of perfcounters.
#
# Usage: disk.sh [base]
#   base   installs Debian, but not the packages of perfcounters

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh"

LOG=$CACHE/logs/deb.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Increase BASE_RECIPE when the commands of the first step change, and DISK_RECIPE when those of the
# second step change.
BASE_RECIPE=1
DISK_RECIPE=1
root=$CLONE/deb/root
disk=$CLONE/deb/disk
packages=$CLONE/deb/packages

# debian_base: installs Debian in the directory $base, which is the first step of making the disk.
# Leaves out kernel modules for hardware that no emulated machine has, because depmod reads all
# modules, which is slow under emulation. Leaves out documentation except for manual pages.
debian_base() {
	[ ! -e "$base/.whole" ] || return 0
	lock "$base.lock" "the Debian of the guest deb"
	[ ! -e "$base/.whole" ] || return 0
	step "a Debian for the guest \`deb\`"
	: >"$LOG"
	remove "$base"
	mkdir -p "${base%/*}"
	local -a without=(drivers sound fs net) options=()
	local d
	for d in "${without[@]}"; do options+=("--dpkgopt=path-exclude=/usr/lib/modules/*/kernel/$d/*"); done
	for d in doc locale info fonts; do options+=("--dpkgopt=path-exclude=/usr/share/$d/*"); done
	debian "Debian for the guest deb" "$base" "$(words "$TOP/tests/vm/deb.packages") linux-modules-$RELEASE linux-kbuild-${RELEASE%-*}" "${options[@]}"
	: >"$base/.whole"
	outdated "$base"
}

# installed: installs the packages of perfcounters and compiles programs, as a user does. Before the
# installation, stores lists of the existing files and groups, and the file modules.dep, in
# /examples.
installed() {
	mkdir -p "$root"/{examples,packages}
	cp "$packages"/perfcounters_*.deb "$packages"/perfcounters-modules-*.deb "$packages"/lib*-dev_*.deb "$root/packages/"
	cp "$TOP"/tools/libperftrace/examples/requests.c "$TOP"/tools/libperfmon/examples/page_faults.c "$TOP"/tests/kselftest/pfc/readme/reader.c "$root/examples/"
	# shellcheck disable=SC2016
	stage "apt install of our packages" in_debian "$root" "" '
		cd /examples
		find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /packages -o -path /examples \) -prune -o -print | LC_ALL=C sort >before.files
		cp /etc/group before.group
		cp /usr/lib/modules/*/modules.dep before.dep
		apt-get install -y --no-install-recommends /packages/*.deb
		gcc -O2 -Wall -Werror -o requests requests.c $(pkg-config --cflags --libs libperftrace)
		gcc -O2 -Wall -Werror -o page_faults page_faults.c $(pkg-config --cflags --libs libperfmon)
		gcc -O2 -Wall -Werror -o reader reader.c'
}

make_disk() {
	step "a Debian disk for the guest \`deb\`"
	LOG=$LOGS/disk.log
	: >"$LOG"
	remove "$root"
	cp -a --reflink=auto "$base" "$root"
	installed
	# Make mount points, remove files that the guest never reads, and make a file system of the
	# other files. The file machine-id keeps systemd from asking the questions of a first boot.
	# shellcheck disable=SC2016
	stage "file system of the guest deb" inside sh -ec 'cd "$0"
		echo 0123456789abcdef0123456789abcdef >etc/machine-id
		mkdir -p guest tests orders
		rm -rf .whole var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/* usr/share/pcp/demos
		rm -f "$1.new"
		size=$(du -sm . | cut -f1)
		mke2fs -q -t ext4 -O ^has_journal -m 0 -L deb -d . "$1.new" $((size + size / 8 + 32))m
		mv "$1.new" "$1"' "$root" "$disk"
	remove "$root"
	printf '%s' "$want" >"$disk.made-from"
}

set_up base
base=$CACHE/deb/base-$(short_hash <<<"recipe $BASE_RECIPE $SUITE $RELEASE $(words "$TOP/tests/vm/deb.packages")")
debian_base
touch "$base/.whole"
[ "${1:-}" != base ] || exit 0
"$TOP/tools/deb/build.sh"
lock "$disk.lock" "the disk of the guest deb"
want="recipe $DISK_RECIPE $base $(cat "$packages/.made-from") $(cat "$TOP"/tools/libperftrace/examples/requests.c "$TOP"/tools/libperfmon/examples/page_faults.c "$TOP"/tests/kselftest/pfc/readme/reader.c | short_hash)"
if [ "$(cat "$disk.made-from" 2>/dev/null)" != "$want" ] || [ ! -e "$disk" ]; then make_disk; fi
echo "$disk"
