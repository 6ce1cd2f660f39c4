# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions for the scripts of the set-up (kdir.sh, kernel.sh and others). The scripts put a result
# into a directory whose name contains a hash of the inputs, or write a stamp that lists the inputs.
# A result is complete if the file that is written last exists, so the set-up can continue after an
# interruption. A changed recipe gives the result a new name, so the result is built again, and
# clones with different recipes do not disturb each other. Source this file after lib.sh, with LOG
# set.

STAMPS=$CACHE/stamps
mkdir -p "$STAMPS"

stamped()  { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }
stamp()    { printf '%s' "$2" >"$STAMPS/$1.new" && mv "$STAMPS/$1.new" "$STAMPS/$1"; }
packages() { sed 's/#.*//' "$TOP/tools/rig/packages" | xargs; }

# remove PATH...: removes files and directories. Does not cross mount points, because an interrupted
# build of a base system may have left mounts.
remove() { rm -rf --one-file-system "$@"; }

# outdated DIRECTORY: DIRECTORY is NAME-HASH. Removes the directories with the same NAME and another
# HASH, which were made from other inputs, if they were not used for a week.
outdated() {
	local other
	for other in "${1%-*}"-*; do
		[ "$other" != "$1" ] || continue
		[ -d "$other" ] || continue
		[ -n "$(find "$other" -maxdepth 1 -mtime -7 -print -quit)" ] || remove "$other"
	done
}

# stage WHAT COMMAND...: runs a command by quietly(). If the command fails, prints the reason and
# ends the set-up.
stage() {
	local what=$1
	quietly "$what" "$LOG" "${@:2}" && return
	explain "$what"
}

# explain WHAT: ends the set-up because WHAT failed. Prints the end of the log and what to do.
explain() {
	local tail
	tail=$(tail -n 60 "$LOG")
	tail -n 15 <<<"$tail" >&2
	if grep -qiE 'could not resolve|temporary failure|unable to connect|could not connect|connection (timed out|refused|failed)|network is unreachable|no route to host' <<<"$tail"; then
		die "$1: cannot reach an archive of packages (Debian or PyPI); the set-up needs the network once; connect and run the same command again, which continues where it stopped"
	elif grep -qi 'no space left' <<<"$tail"; then
		die "$1: no space left; $CACHE needs about 18 GB; free some space, or name another directory with PERFCOUNTERS_CACHE=DIR, and run the same command again"
	fi
	die "$1 failed (log: $LOG); the same command, run again, continues where it stopped"
}

# unpack_source DIRECTORY STOCK: unpacks the kernel source that Debian ships into DIRECTORY.
unpack_source() {
	# shellcheck disable=SC2016
	stage "unpack the kernel's source" inside sh -c 'tar -C "$0" --strip-components=1 -xf "$1"/usr/src/linux-source-*.tar.xz' "$1" "$2"
}

# words FILE...: prints the words of files on one line, without comments.
words() { sed 's/#.*//' "$@" | xargs; }

# debian WHAT ROOT "PACKAGE..." OPTIONS...: installs a Debian in the directory ROOT, from the
# archive that the tool chain's apt uses, without recommended packages. During the installation
# packages cannot start services, because mmdebstrap installs a policy-rc.d that forbids it.
debian() {
	local uri options=$CACHE/apt.options.$$ include=${3// /,}
	# shellcheck disable=SC2016 # apt's own variables
	uri=$(inside apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' |
		awk -v suite="$SUITE" '$2 == suite { print $1; exit }')
	[ -n "$uri" ] || die "apt of the tool chain has no archive of $SUITE among its sources; add one"
	# The new Debian gets the options of the tool chain's apt for proxies and for checks of
	# dates.
	inside apt-config dump | grep -E '^Acquire::(https?|Check-)' >"$options" || :
	stage "$1" inside mmdebstrap --mode=root --variant=apt --aptopt="$options" --dpkgopt=force-unsafe-io \
		${include:+"--include=$include"} "${@:4}" "$SUITE" "$2" "deb $uri $SUITE main" "deb $uri $SUITE-backports main"
	rm -f "$options"
}

# in_debian ROOT "SOURCE:TARGET ..." SCRIPT: runs a bash script as root in the Debian in the
# directory ROOT. Mounts /proc, /dev and the resolver's configuration in ROOT, and each SOURCE at
# its TARGET. The function mounts with the command `mount` of busybox, because the tool chain's root
# file system has no other command `mount`. The function does not change the propagation of mounts
# in the tool chain's chroot, because all mounts are private there already.
in_debian() {
	local propagation=unchanged
	! direct || propagation=private
	# shellcheck disable=SC2016
	inside unshare --mount --propagation "$propagation" sh -ec 'cd "$0"
		busybox mount -t proc proc proc
		busybox mount -o rbind /dev dev
		for pair in $1 /etc/resolv.conf:etc/resolv.conf; do
			from=${pair%%:*} to=${pair#*:}
			if [ -d "$from" ]; then mkdir -p "$to"; elif [ -e "$from" ]; then touch "$to"; else continue; fi
			busybox mount -o bind "$from" "$to"
		done
		exec chroot . env DEBIAN_FRONTEND=noninteractive bash -ec "$2"' "$1" "$2" "$3"
}
