#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes the disk of the guest `debian`: a file system image of a small Debian with the packages of
# tests/vm/debian.packages. Prints the path of the image. The image is made when a test first needs
# the guest `debian`, and made again when a list of packages or RECIPE changes.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

LOG=$CACHE/logs/full.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Increase RECIPE when a change of this script makes a different image. The name of the image's
# directory contains a hash, of which RECIPE is an input.
RECIPE=1
list=$TOP/tests/vm/debian.packages

# Installs Debian with the packages. The maintainer scripts of pcp add users, as on any Debian. The
# scripts also try to start services, but debian() (stages.sh) prevents services from starting, and
# systemd does not run.
base() {
	debian "Debian for the guest debian" "$root" "$(words "$list")" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*'
}

# Makes the image. Copies the Python packages of the tests, which the set-up has installed in the
# cache, creates mount points, deletes files that the guest never reads, and makes a file system.
make_disk() {
	step "a Debian disk for the guest \`debian\`"
	remove "$root"
	mkdir -p "$dir"
	: >"$LOG"
	base
	# shellcheck disable=SC2016
	stage "file system of the guest debian" inside sh -ec 'cd "$0"
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
	lock "$dir.lock" "the disk of the guest debian"
	[ -e "$dir/disk" ] || make_disk
}
touch "$dir/disk"
echo "$dir/disk"
