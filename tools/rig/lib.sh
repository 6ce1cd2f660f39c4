# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every rig script needs: where things live, how to speak, how to lock, how to
# enter the tool chain's root file system. Sourced, never run.

set -euo pipefail
umask 022
# A caller's make -j or -k is not for the makes that run inside.
unset MAKEFLAGS MAKELEVEL MFLAGS

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
CACHE=${PERFCOUNTERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/perfcounters}
mkdir -p "$CACHE" 2>/dev/null || { echo "perfcounters: cannot create $CACHE; name another place with PERFCOUNTERS_CACHE=DIR" >&2; exit 1; }
CACHE=$(cd "$CACHE" && pwd -P)
# What is built from this clone lies in a directory of its own, so that two clones can
# share the cache. All else in the cache is made once, from inputs that its name or its
# stamp has the hash of.
CLONE=$CACHE/clones/$(basename "$TOP")-$(sha256sum <<<"$TOP" | cut -c1-8)
LOGS=$CLONE/logs
mkdir -p "$LOGS" "$CACHE/logs" "$CACHE/locks"
# Written once, whole: others may read it at any time.
[ "$(cat "$CLONE/path" 2>/dev/null)" = "$TOP" ] || {
	printf '%s\n' "$TOP" >"$CLONE/path.$$"
	mv "$CLONE/path.$$" "$CLONE/path"
}
JOBS=${JOBS:-$(nproc)}

# shellcheck disable=SC2034 # for kdir.sh
SUITE=trixie

# A line of text on a terminal takes the place of the line of progress.
clear_line=""
[ ! -t 2 ] || clear_line=$'\r\033[K'
say()  { printf '%s%s\n' "$clear_line" "$*" >&2; }
step() { say "==> $*"; }
die()  { say "perfcounters: $*"; exit 1; }

# How much longer than on an idle machine anything may take: one word, for every limit.
[[ ${LOAD:-} =~ ^[0-9]*$ ]] || die "LOAD=$LOAD: a number of busy loops is wanted"
export PATIENCE=${PATIENCE:-$((1 + ${LOAD:-0}))}

# short_hash: of standard input, for the name of a directory.
short_hash() { sha256sum | cut -c1-12; }

# kill_tree PROCESS: with all it has started, whatever groups these are in. It is stopped
# first: make would begin another job when one ends.
kill_tree() {
	local child
	kill -STOP "$1" 2>/dev/null || return 0
	# shellcheck disable=SC2013 # words, of one line
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do kill_tree "$child"; done
	kill "$1" 2>/dev/null || :
	kill -CONT "$1" 2>/dev/null || :
}

# "${ALONE[@]}" COMMAND...: as root with a network and processes of its own. Its ports do not meet
# those of others, and all that it has started ends with it, in the background or not. In inside()'s
# chroot mounts are private, and / cannot be made so.
# shellcheck disable=SC2034 # job.sh uses it
ALONE=(unshare --net --pid --mount --propagation unchanged --fork --kill-child sh -c 'm=$(command -v mount || echo busybox mount); $m --make-rprivate / 2>/dev/null; $m -t proc proc /proc && "$@"' sh)

# lock FILE WHAT: alone with WHAT for as long as this script or anything it started
# lives. Locks are held while something is made, never while it is used.
lock() {
	local fd
	mkdir -p "${1%/*}"
	exec {fd}<>"$1"
	flock -n "$fd" || {
		say "    waiting for $2, which is being made by $(cat "$1")"
		flock "$fd"
	}
	printf 'process %d of %s since %s' $$ "$TOP" "$(date +%T)" >"$1"
}

# wait_for HOW FILE WHAT: a lock of the file on a descriptor of its own, $locked, shared (-s)
# or alone (-x), for as long as this script has it; says for whom it waits.
wait_for() {
	exec {locked}<>"$2"
	flock -n "$1" "$locked" || {
		say "    waiting for $3, which is in use by $(cat "$2")"
		flock "$1" "$locked"
	}
}

# in_use: while this script or anything it started lives, make clean waits with what is
# built from this clone.
in_use() {
	local locked
	wait_for -s "$CLONE/running-tests.lock" "what was built, which make clean removes"
	printf 'process %d of %s since %s' $$ "$TOP" "$(date +%T)" >"$CLONE/running-tests.lock"
}

# quietly WHAT LOG COMMAND...: append the output to LOG, show on a terminal that it
# runs, unless a plan does (plan.sh), say how long it took. The command is its own
# process group, so that an interrupt takes all of it down.
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
	while [ -t 2 ] && [ -z "${RUNNING:-}" ] && kill -0 "$pid" 2>/dev/null; do
		printf '%s    %s ... %ds ' "$clear_line" "$what" $((SECONDS - start)) >&2
		sleep 0.5
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	# What takes no time is not worth a line.
	[ $rc != 0 ] || [ $((SECONDS - start)) -lt 2 ] || say "    $what: $((SECONDS - start))s"
	return $rc
}

# "direct": the host itself is the tool chain of this clone (DIRECT=1 on Debian 13).
direct() { [ "$(cat "$CLONE/mode" 2>/dev/null)" = direct ]; }

ROOTFS=$CACHE/rootfs
CARGO_CACHE=$CACHE/cargo
# rustc's flags for all that cargo builds: lld links in a fraction of the default's time.
RUST_LINK="-C link-arg=-fuse-ld=lld"

# inside COMMAND...: run a command with the tool chain's file system as root.
# The project and the cache appear under their own names, so paths in messages
# are the host's. Mounts live in a private namespace and vanish with it.
inside() {
	mkdir -p "$CARGO_CACHE"
	local -a keep=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "TERM=${TERM:-dumb}" LC_ALL=C.UTF-8
		"CARGO_HOME=$CARGO_CACHE" "TOP=$TOP" "CACHE=$CACHE" "CLONE=$CLONE" "JOBS=$JOBS"
		"RUSTFLAGS=$RUST_LINK" DEBIAN_FRONTEND=noninteractive KBUILD_BUILD_USER=perfcounters KBUILD_BUILD_HOST=rig)
	local v
	for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CI PATIENCE LONG; do
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

# set_up [base]: what the set-up makes, made where it is not, and its names: the
# kernel's release, its prepared tree, where our modules and programs are built. With
# "base", without the prepared tree.
set_up() {
	local found
	found=$("$TOP/tools/rig/kdir.sh" "${1:-all}") || exit
	read -r RELEASE KTREE <<<"$found"
	# What this script starts is to speak of the same kernel.
	export KERNEL_RELEASE=$RELEASE
	# shellcheck disable=SC2034 # for the scripts that source this
	{
		PACKAGED=$CACHE/kernel/$RELEASE/stock
		STOCK=$PACKAGED
		KBUILD_OUT=$CLONE/build/$RELEASE
		KMAKE=(make -C "$KTREE" CC=gcc-14)
		IMAGE=$CLONE/image/$RELEASE
		TARGET=$CLONE/target
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
	case $1 in
	host | stock) set_up; return ;;
	debug | kcsan) ;;
	*) die "there is no world $1; there are host, stock, debug, kcsan" ;;
	esac
	set_up base
	dir=$("$TOP/tools/rig/kernel.sh" "$1") || exit
	# shellcheck disable=SC2034
	{
		KTREE=$dir/build
		STOCK=$dir/root
		KMAKE=(make -C "${dir%/*}/source" "O=$KTREE" LLVM=1)
		RELEASE=$(cat "$dir/release")
		# Of another configuration, the same release is another kernel.
		KBUILD_OUT=$CLONE/build/${dir##*/}
		IMAGE=$CLONE/image/${dir##*/}
		SLOWNESS=3
	}
}
