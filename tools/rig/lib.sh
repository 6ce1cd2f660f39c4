# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions and variables that all scripts in tools/rig use: for paths, messages, locks, and running
# commands in the tool chain's root file system. The scripts source this file.

set -euo pipefail
umask 022
# Options of a calling make, such as -j or -k, must not reach the makes that scripts start.
unset MAKEFLAGS MAKELEVEL MFLAGS

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
CACHE=${PERFCOUNTERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/perfcounters}
mkdir -p "$CACHE" 2>/dev/null || { echo "perfcounters: cannot create $CACHE; name another directory with PERFCOUNTERS_CACHE=DIR" >&2; exit 1; }
CACHE=$(cd "$CACHE" && pwd -P)
# Clones share the cache: each clone has a directory in the cache for the results of its builds.
# All clones use the results in the other directories of the cache. Such a result is made once, and
# made again if its inputs change. The scripts detect changed inputs in one of two ways: the name of
# a result contains a hash of its inputs, or a stamp file lists the inputs.
CLONE=$CACHE/clones/$(basename "$TOP")-$(sha256sum <<<"$TOP" | cut -c1-8)
LOGS=$CLONE/logs
mkdir -p "$LOGS" "$CACHE/logs" "$CACHE/locks"
# Write the file $CLONE/path under another name and then rename it, because other processes may read
# the file at any time.
[ "$(cat "$CLONE/path" 2>/dev/null)" = "$TOP" ] || {
	printf '%s\n' "$TOP" >"$CLONE/path.$$"
	mv "$CLONE/path.$$" "$CLONE/path"
}
JOBS=${JOBS:-$(nproc)}

# shellcheck disable=SC2034 # for kdir.sh
SUITE=trixie

# On a terminal each message replaces the progress line.
clear_line=""
[ ! -t 2 ] || clear_line=$'\r\033[K'
say()  { printf '%s%s\n' "$clear_line" "$*" >&2; }
step() { say "==> $*"; }
die()  { say "perfcounters: $*"; exit 1; }

# PATIENCE is the factor by which all time limits are longer than on an idle machine. The default of
# PATIENCE is 1 + LOAD.
[[ ${LOAD:-} =~ ^[0-9]{0,9}$ ]] || die "LOAD=$LOAD is not a number of up to 9 digits; give the number of busy loops"
# Read a number that begins with 0 as decimal, not as octal.
LOAD=${LOAD:+$((10#$LOAD))}
export PATIENCE=${PATIENCE:-$((1 + ${LOAD:-0}))}

# short_hash: prints 12 digits of the hash of standard input, for use in the name of a directory.
short_hash() { sha256sum | cut -c1-12; }

# kill_tree PID: ends a process and all of its descendants, including those in other process groups.
# Stops each process (SIGSTOP) before it ends the children of the process, because a running make
# would start another job when one of its jobs ends.
kill_tree() {
	local child
	kill -STOP "$1" 2>/dev/null || return 0
	# shellcheck disable=SC2013 # words, of one line
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do kill_tree "$child"; done
	kill "$1" 2>/dev/null || :
	kill -CONT "$1" 2>/dev/null || :
}

# "${ALONE[@]}" COMMAND...: runs a command in a network namespace and a PID namespace of its own,
# which needs root. With a network namespace of its own, the command can use network ports that
# another job uses. Because the command has a PID namespace of its own, its background processes end
# when the command ends. unshare must not change the propagation of mounts, because the change fails
# in the chroot of inside(), where / is not a mount point. In the chroot of inside(), all mounts are
# private already.
# shellcheck disable=SC2016,SC2034 # the inner shell expands the variables; job.sh uses ALONE
ALONE=(unshare --net --pid --mount --propagation unchanged --fork --kill-child sh -c 'm=$(command -v mount || echo busybox mount); $m --make-rprivate / 2>/dev/null; $m -t proc proc /proc && "$@"' sh)

# wait_for HOW FILE WHAT: takes a lock on a file, which is shared if HOW is -s and exclusive if HOW
# is -x. Prints a message if another process holds the lock. The lock is held until the descriptor
# $locked is closed in this script and in all processes that inherited it.
wait_for() {
	exec {locked}<>"$2"
	flock -n "$1" "$locked" || {
		say "    waiting for $3 by $(cat "$2")"
		flock "$1" "$locked"
	}
}

# holder: prints the description of this script for the file of a lock.
holder() { printf 'process %d of %s since %s' $$ "$TOP" "$(date +%T)"; }

# lock FILE WHAT: takes an exclusive lock on a file, in order to make WHAT. The lock is held until
# this script and all processes that inherited the lock have ended. The lock must be held while WHAT
# is made; users of WHAT do not take the lock.
lock() {
	local locked
	mkdir -p "${1%/*}"
	wait_for -x "$1" "$2, which is being made"
	holder >"$1"
}

# quietly WHAT LOG COMMAND...: runs a command and appends its output to LOG. On a terminal a
# progress line shows that the command is running, unless plan.sh already shows a progress line. The
# function reports the duration of a command that succeeds after 2 seconds or more. The command runs
# in a process group of its own, so that an interrupt ends all of its processes.
quietly() {
	local what=$1 log=$2 start=$SECONDS pid rc=0
	shift 2
	printf '\n### %s: %s\n' "$what" "$*" >>"$log"
	set -m
	"$@" >>"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # $pid is expanded here
	trap "kill -TERM -- -$pid 2>/dev/null; exit 130" INT TERM HUP
	while [ -t 2 ] && [ -z "${RUNNING:-}" ] && kill -0 "$pid" 2>/dev/null; do
		printf '%s    %s ... %ds ' "$clear_line" "$what" $((SECONDS - start)) >&2
		sleep 0.5
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	# Do not report the duration of a command that took less than 2 seconds.
	[ $rc != 0 ] || [ $((SECONDS - start)) -lt 2 ] || say "    $what: $((SECONDS - start))s"
	return $rc
}

# direct: true if this clone uses the host's own packages as its tool chain (DIRECT=1 on Debian 13).
direct() { [ "$(cat "$CLONE/mode" 2>/dev/null)" = direct ]; }

ROOTFS=$CACHE/rootfs
CARGO_CACHE=$CACHE/cargo
# Flags of rustc in all cargo builds. The linker lld takes a fraction of the time that the default
# linker takes.
RUST_LINK="-C link-arg=-fuse-ld=lld"

# inside COMMAND...: runs a command with the tool chain's root file system as its root. In that root
# file system, the project and the cache have the same paths as on the host, so that paths in
# messages are valid on the host. The mounts are in a private namespace, and disappear when the
# command ends. In direct mode (see direct()) the function runs the command without a chroot.
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
	[ "$(id -u)" = 0 ] || die "entering the chroot needs root; run this as root or with sudo"
	# shellcheck disable=SC2097,SC2098
	ROOTFS=$ROOTFS TOP=$TOP CACHE=$CACHE unshare --mount --propagation private \
		bash "$TOP/tools/rig/enter.sh" "${keep[@]}" "$@"
}

# set_up [base]: runs the set-up (kdir.sh). Sets the variables that are assigned below: the kernel's
# release, its prepared tree, and the directories in which modules and programs are built. With the
# argument "base" the prepared tree need not exist.
set_up() {
	local found
	found=$("$TOP/tools/rig/kdir.sh" "${1:-all}") || exit
	read -r RELEASE KTREE <<<"$found"
	# Export the release, so that scripts that this script starts use the same kernel.
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
		# The factor by which tests take longer on this kernel than on the stock kernel.
		SLOWNESS=1
	}
}

# enter_world WORLD: sets the variables that set_up() sets, with their values for the kernel of a
# world (host, stock, debug or kcsan). Builds the debug kernel if it does not exist.
enter_world() {
	local dir
	case $1 in
	host | stock) set_up; return ;;
	debug | kcsan) ;;
	*) die "unknown world '$1'; the worlds are host, stock, debug, kcsan" ;;
	esac
	set_up base
	dir=$("$TOP/tools/rig/kernel.sh" "$1") || exit
	# shellcheck disable=SC2034
	{
		KTREE=$dir/build
		STOCK=$dir/root
		KMAKE=(make -C "${dir%/*}/source" "O=$KTREE" LLVM=1)
		RELEASE=$(cat "$dir/release")
		# The names of the directories for modules and images contain the hash of the
		# kernel's inputs, because kernels of one release can differ in configuration.
		KBUILD_OUT=$CLONE/build/${dir##*/}
		IMAGE=$CLONE/image/${dir##*/}
		SLOWNESS=3
	}
}

# The first script of the rig that make or the user starts in a clone takes a shared lock on the
# clone, and the scripts that it starts inherit the lock. clean.sh, which sets IN_USE to none, waits
# for the lock, and does not remove what a script uses.
[[ ${IN_USE:-} == "$CLONE" || ${IN_USE:-} == none ]] || {
	wait_for -s "$CLONE/in-use.lock" "this clone, which is being cleaned"
	holder >"$CLONE/in-use.lock"
	export IN_USE=$CLONE
}
