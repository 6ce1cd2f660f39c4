# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every rig script needs: where things live, how to speak, how to enter
# the tool chain's root file system. Sourced, never run.

set -euo pipefail
umask 022

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
CACHE=${PERFCOUNTERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/perfcounters}
mkdir -p "$CACHE" 2>/dev/null || { echo "perfcounters: cannot create $CACHE; name another place with PERFCOUNTERS_CACHE=DIR" >&2; exit 1; }
CACHE=$(cd "$CACHE" && pwd -P)
LOGS=$CACHE/logs
mkdir -p "$LOGS"
JOBS=${JOBS:-$(nproc)}

# The kernel this family is developed against. Another one is taken, with a
# word, when the archive has dropped it (kdir.sh).
# shellcheck disable=SC2034 # for kdir.sh
PINNED_RELEASE=7.2.12+deb13-amd64
# shellcheck disable=SC2034 # for kdir.sh
SUITE=trixie

say()  { printf '%s\n' "$*" >&2; }
step() { printf '==> %s\n' "$*" >&2; }
die()  { printf 'perfcounters: %s\n' "$*" >&2; exit 1; }

# lock FILE: alone with what it stands for, as long as this script or anything it
# started lives.
lock() {
	local fd
	exec {fd}>"$CACHE/$1"
	flock -n "$fd" || {
		say "another make is at work in $CACHE; waiting for it"
		flock "$fd"
	}
}

# One rig at a time per cache: set-up and builds share the root file system. The
# debug kernels have a lock of their own.
lock_cache() { lock lock; }
lock_kernels() { lock lock.kernels; }

# quietly WHAT LOG COMMAND...: append the output to LOG, keep a pulse on the
# terminal, say how long it took. The command is its own process group, so that
# an interrupt takes all of it down.
quietly() {
	local what=$1 log=$2 start=$SECONDS pid rc=0
	shift 2
	printf '\n### %s: %s\n' "$what" "$*" >>"$log"
	set -m
	"$@" >>"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # the group of now is meant
	trap "kill -TERM -- -$pid 2>/dev/null; exit 130" INT TERM HUP
	while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
		printf '\r    %s ... %ds ' "$what" $((SECONDS - start)) >&2
		sleep 0.5
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	[ ! -t 2 ] || printf '\r\033[K' >&2
	[ $rc != 0 ] || say "    $what: $((SECONDS - start))s"
	return $rc
}

# "direct": the host itself is the tool chain (DIRECT=1 on Debian 13).
direct() { [ "$(cat "$CACHE/mode" 2>/dev/null)" = direct ]; }

ROOTFS=$CACHE/rootfs
CARGO_CACHE=$CACHE/cargo

# inside COMMAND...: run a command with the tool chain's file system as root.
# The project and the cache appear under their own names, so paths in messages
# are the host's. Mounts live in a private namespace and vanish with it.
inside() {
	mkdir -p "$CARGO_CACHE"
	local -a keep=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "TERM=${TERM:-dumb}" LC_ALL=C.UTF-8
		"CARGO_HOME=$CARGO_CACHE" "TOP=$TOP" "CACHE=$CACHE" "JOBS=$JOBS"
		DEBIAN_FRONTEND=noninteractive KBUILD_BUILD_USER=perfcounters KBUILD_BUILD_HOST=rig)
	local v
	for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CI; do
		[ -z "${!v:-}" ] || keep+=("$v=${!v}")
	done
	if direct; then
		env -i "${keep[@]}" "$@"
		return
	fi
	[ "$(id -u)" = 0 ] || die "this enters a chroot, which needs root; run it as root or with sudo"
	# shellcheck disable=SC2097,SC2098
	ROOTFS=$ROOTFS TOP=$TOP CACHE=$CACHE unshare --mount --propagation private \
		bash "$TOP/tools/rig/enter.sh" "${keep[@]}" "$@"
}

# What set-up chose: the kernel release, its prepared tree, where our modules
# and programs are built. set_up() makes it so where it is not.
set_up() {
	"$TOP/tools/rig/kdir.sh"
	RELEASE=$(cut -d' ' -f1 "$CACHE/release")
	# shellcheck disable=SC2034 # for the scripts that source this
	{
		KTREE=$CACHE/kernel/$RELEASE/tree
		STOCK=$CACHE/kernel/$RELEASE/stock
		KBUILD_OUT=$CACHE/build/$RELEASE
		KMAKE=(make -C "$KTREE" CC=gcc-14)
		IMAGE=$CACHE/image/stock
		TARGET=$CACHE/target
		TOOLS_OUT=$TARGET/x86_64-unknown-linux-gnu/release
		LIB_OUT=$TARGET/x86_64-unknown-linux-gnu/library
		# Emulated time that a test needs, against the stock kernel's.
		SLOWNESS=1
	}
}

# enter_world WORLD: set_up, and from then on the variables above speak of that
# world's kernel, which is built if it has to be.
enter_world() {
	local dir
	set_up
	case $1 in
	host | stock) return ;;
	debug | kcsan) ;;
	*) die "there is no world $1; there are host, stock, debug, kcsan" ;;
	esac
	"$TOP/tools/rig/kernel.sh" "$1"
	dir=$CACHE/kernel/$RELEASE/$1
	# shellcheck disable=SC2034
	{
		KTREE=$dir/build
		STOCK=$dir/root
		KMAKE=(make -C "${dir%/*}/source" "O=$KTREE" LLVM=1)
		RELEASE=$(cat "$dir/release")
		KBUILD_OUT=$CACHE/build/$RELEASE
		IMAGE=$CACHE/image/$1
		SLOWNESS=3
	}
}
