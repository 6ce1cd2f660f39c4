#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The disk of the guest `full`: a small Debian with what tests/vm/full.packages
# names, as a file system image. Made when a test wants that guest; made anew when the
# list or the recipe below changes. Prints its path.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

LOG=$CACHE/logs/full.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Raise this when what is made below changes.
RECIPE=1
list=$TOP/tests/vm/full.packages

# pcp's scripts of installation want users and services. There are no services
# (debian, stages.sh) and no systemd to be asked, and the users are made as on any
# Debian.
base() {
	debian "Debian for the guest full" "$root" "$(words "$list")" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*'
}

# The Python packages of the tests, from where set-up has put them. Then mount points;
# what the guest never reads; and a file system of the rest.
make_disk() {
	step "a Debian disk for the guest \`full\`"
	remove "$root"
	mkdir -p "$dir"
	: >"$LOG"
	base
	# shellcheck disable=SC2016
	stage "file system of the guest full" inside sh -ec 'cd "$0"
		cp -r "$2"/python/lib/python3*/site-packages/. usr/lib/python3/dist-packages/
		rm -rf usr/lib/python3/dist-packages/pip*
		mkdir -p modules tests orders
		rm -rf var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/* usr/share/pcp/demos usr/include
		rm -f "$1.new"
		size=$(du -sm . | cut -f1)
		mke2fs -q -t ext4 -O ^has_journal -m 0 -L full -d . "$1.new" $((size + size / 8 + 32))m
		mv "$1.new" "$1"' "$root" "$dir/disk" "$CACHE"
	remove "$root"
	outdated "$dir"
}

set_up base
dir=$CACHE/full/disk-$(short_hash <<<"recipe $RECIPE $SUITE $(words "$list" "$TOP/tools/rig/python-packages")")
root=$dir/root
[ -e "$dir/disk" ] || {
	lock "$dir.lock" "the disk of the guest full"
	[ -e "$dir/disk" ] || make_disk
}
touch "$dir/disk"
echo "$dir/disk"
