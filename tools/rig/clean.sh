#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make clean: what was built from this clone goes, and from clones that are no more; the
# tool chain and kernel trees stay. make distclean: everything in the cache goes.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# The locks of what lies in a directory; the lock of a directory lies beside it.
locks_of() { # DIRECTORY
	find "$1" -xdev -maxdepth 4 \( -name '*.lock' -o -path "$CACHE/locks/*" -o -path "$CACHE/qemu-pmu/lock" \) -type f \
		-not -path "$ROOTFS/*" -not -path "$CARGO_CACHE/*" 2>/dev/null
}

# take_all DIRECTORY: all of its locks, in ${held[@]}; or none, and in $busy one of them
# that somebody has.
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

# Nothing goes while a make works in it. A make takes locks one after the other, in an order
# of its own: while clean waits for one of them it holds no other.
idle() { # DIRECTORY
	until take_all "$1"; do
		say "    waiting for $(basename "${busy%.lock}"), which is in use by $(cat "$busy")"
		flock "$busy" true
	done
}

gone() {
	[ -e "$1" ] || return 0
	# Never across a mount: a chroot may have some.
	rm -rf --one-file-system "$1"
	say "    removed $1"
}

# A clone that is no more: it is not where it was, nobody is in its directory, and nobody
# was since yesterday. One that this process cannot see may be there for others.
is_gone() { # ITS DIRECTORY
	local path
	path=$(cat "$1/path" 2>/dev/null)
	[ -n "$path" ] && [ ! -e "$path" ] && [ -z "$(find "$1" -maxdepth 2 -mtime -1 -print -quit)" ] && take_all "$1"
}

# What a run leaves that was killed: directories with the number of its process.
left_by_dead() { # DIRECTORY
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
