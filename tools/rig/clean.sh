#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Removes build results.
#   clean.sh               make clean: removes the build results of this clone, and the directories
#                          of clones that no longer exist; the tool chain and kernel trees stay
#   clean.sh everything    make distclean: removes the contents of the cache

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# locks_of DIRECTORY: lists the lock files in a directory. The lock file of a subdirectory NAME is
# NAME.lock, beside the subdirectory.
locks_of() {
	find "$1" -xdev -maxdepth 4 \( -name '*.lock' -o -path "$CACHE/locks/*" -o -path "$CACHE/qemu-pmu/lock" \) -type f \
		-not -path "$ROOTFS/*" -not -path "$CARGO_CACHE/*" 2>/dev/null
}

# take_all DIRECTORY: takes all locks in a directory, and puts their descriptors into ${held[@]}. If
# another process holds one of the locks, takes no lock, sets $busy to that lock file and fails.
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

# idle DIRECTORY: waits until no other process holds a lock in a directory, and then takes all locks
# in the directory. Other processes take several locks in different orders. To avoid a deadlock with
# other processes, idle() holds no lock while it waits for a lock.
idle() {
	until take_all "$1"; do
		say "    waiting for $(basename "${busy%.lock}"), which is in use by $(cat "$busy")"
		flock "$busy" true
	done
}

# gone PATH: removes a file or a directory, if it exists, and prints its path.
gone() {
	[ -e "$1" ] || return 0
	# Do not cross mounts: directories of the host may still be mounted in a chroot.
	rm -rf --one-file-system "$1"
	say "    removed $1"
}

# is_gone DIRECTORY: true if a clone no longer exists. DIRECTORY is the clone's directory in the
# cache. A clone counts as gone if its path is absent, nothing in DIRECTORY has changed for a day,
# and all locks in DIRECTORY are free. An absent path alone does not prove that the clone is gone,
# because the clone may be in a file system that this process cannot see.
is_gone() {
	local path
	path=$(cat "$1/path" 2>/dev/null)
	[ -n "$path" ] && [ ! -e "$path" ] && [ -z "$(find "$1" -maxdepth 2 -mtime -1 -print -quit)" ] && take_all "$1"
}

# left_by_dead DIRECTORY: removes the directories run.PID and logs/run.PID of scripts that were
# killed. PID is the process id of the killed script.
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
