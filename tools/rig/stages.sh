# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the scripts of the set-up share (kdir.sh, kernel.sh). Each stage is built
# beside its place and moved there when it is whole, or is safe to repeat; its
# stamp says what it was made from. So a run that was cut off continues, and a
# changed recipe builds anew. Sourced after lib.sh, with LOG set.

STAMPS=$CACHE/stamps
mkdir -p "$STAMPS"

stamped()  { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }
stamp()    { printf '%s' "$2" >"$STAMPS/$1.new" && mv "$STAMPS/$1.new" "$STAMPS/$1"; }
packages() { sed 's/#.*//' "$TOP/tools/rig/packages" | xargs; }

# Nothing is ever removed across a mount: a base system that was being built
# may still have some.
remove() { rm -rf --one-file-system "$@"; }

# stage WHAT COMMAND...: quietly, and a failure ends the set-up with its reason.
stage() {
	local what=$1
	quietly "$what" "$LOG" "${@:2}" && return
	explain "$what"
}

explain() {
	local tail
	tail=$(tail -n 60 "$LOG")
	tail -n 15 <<<"$tail" >&2
	if grep -qiE 'could not resolve|temporary failure|unable to connect|could not connect|connection (timed out|refused|failed)|network is unreachable|no route to host' <<<"$tail"; then
		die "$1: an archive of packages (Debian, PyPI) cannot be reached. Set-up needs the network once; connect and run the same command again, it goes on where it stopped."
	elif grep -qi 'no space left' <<<"$tail"; then
		die "$1: no space left. $CACHE needs about 8 GB, 11 GB with the debug kernels; make room, or name another place with PERFCOUNTERS_CACHE=DIR, and run it again."
	fi
	die "$1 failed (log: $LOG). Running the same command again goes on where it stopped."
}

# The kernel's source as Debian ships it, into DIRECTORY.
unpack_source() { # unpack_source DIRECTORY STOCK
	# shellcheck disable=SC2016
	stage "unpack source" inside sh -c 'tar -C "$0" --strip-components=1 -xf "$1"/usr/src/linux-source-*.tar.xz' "$1" "$2"
}
