#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make clean: what was built from this clone goes, and from clones that are no more; the
# tool chain and kernel trees stay. make distclean: everything in the cache goes.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# Nothing goes while a make works in it. The lock of a directory lies beside it.
idle() { # DIRECTORY
	local f
	while read -r f; do lock "$f" "$(basename "${f%.lock}")"; done < <(find "$1" -xdev -maxdepth 4 \( -name '*.lock' -o -path "$CACHE/locks/*" -o -path "$CACHE/qemu-pmu/lock" \) -type f -not -path "$ROOTFS/*" -not -path "$CARGO_CACHE/*" 2>/dev/null)
}

gone() {
	[ -e "$1" ] || return 0
	# Never across a mount: a chroot may have some.
	rm -rf --one-file-system "$1"
	say "    removed $1"
}

if [ "${1:-}" = everything ]; then
	idle "$CACHE"
	for d in "$CACHE"/*; do gone "$d"; done
else
	idle "$CLONE"
	for d in build target image deb; do gone "$CLONE/$d"; done
	for d in "$CACHE"/clones/*; do
		[ -e "$(cat "$d/path")" ] || gone "$d"
	done
fi
