#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Removes build results.
#   clean.sh               make clean: those of this clone, and the directories of clones that no
#                          longer exist; the tool chain and the kernel trees stay
#   clean.sh everything    make distclean: the contents of the cache

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# locks_of DIRECTORY: lists the lock files in a directory. The lock of a subdirectory is the file
# NAME.lock beside it.
locks_of() {
	find "$1" -xdev -maxdepth 4 \( -name '*.lock' -o -path "$CACHE/locks/*" -o -path "$CACHE/qemu-pmu/lock" \) -type f \
		-not -path "$ROOTFS/*" -not -path "$CARGO_CACHE/*" 2>/dev/null
}

# take_all DIRECTORY: takes all locks in a directory; their descriptors are in ${held[@]}. If one
# is held by another process it takes none, sets $busy to that lock file and fails.
take_all() {
	local f fd
	held=() busy=""
	while read -r f; do
		exec {fd}<>"$f"
		held+=("$fd")
		flock -n "$fd" || { busy=$f; break; }
	done < <(locks_of "$1")
	[ -n "$busy" ] || return 0
	for fd in "${held[@]}"; do exec {fd}>&-; done
	return 1
}

# idle DIRECTORY: waits until no make works in a directory, and takes all locks in it. A make takes
# several locks, in an order of its own, so this holds no lock while it waits for one: otherwise
# the two could deadlock.
idle() {
	until take_all "$1"; do
		say "    waiting for $(basename "${busy%.lock}"), which is in use by $(cat "$busy")"
		flock "$busy" true
	done
}

# gone PATH: removes a file or a directory.
gone() {
	[ -e "$1" ] || return 0
	# Do not cross mounts: a chroot may still have some.
	rm -rf --one-file-system "$1"
	say "    removed $1"
}

# is_gone DIRECTORY: true if the clone of a directory in the cache no longer exists: its path is
# absent, nothing in the directory has changed for a day, and all locks in it are free. The path
# alone proves nothing, as this process may not see every file system.
is_gone() {
	local path
	path=$(cat "$1/path" 2>/dev/null)
	[ -n "$path" ] && [ ! -e "$path" ] && [ -z "$(find "$1" -maxdepth 2 -mtime -1 -print -quit)" ] && take_all "$1"
}

# left_by_dead DIRECTORY: removes the directories of killed runs, whose names end in the process id.
left_by_dead() {
	local d
	for d in "$1"/run.* "$1"/logs/run.*; do
		if [ -e "$d" ] && ! kill -0 "${d##*.}" 2>/dev/null; then gone "$d"; fi
	done
}

if [ "${1:-}" = everything ]; then
	idle "$CACHE"
	for d in "$CACHE"/*; do gone "$d"; done
else
	idle "$CLONE"
	for d in build target image deb; do gone "$CLONE/$d"; done
	left_by_dead "$CLONE"
	for d in "$CACHE"/clones/*; do
		[ "$d" = "$CLONE" ] || ! is_gone "$d" || gone "$d"
	done
fi
