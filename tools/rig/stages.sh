# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the scripts of the set-up share (kdir.sh, kernel.sh and others). What is made lies
# in a directory whose name has the hash of its inputs, or has a stamp that says what it
# was made from; it is whole when its last file is there. So a run that was cut off
# continues, a changed recipe builds anew, and clones with different recipes do not meet.
# Sourced after lib.sh, with LOG set.

STAMPS=$CACHE/stamps
mkdir -p "$STAMPS"

stamped()  { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }
stamp()    { printf '%s' "$2" >"$STAMPS/$1.new" && mv "$STAMPS/$1.new" "$STAMPS/$1"; }
packages() { sed 's/#.*//' "$TOP/tools/rig/packages" | xargs; }

# Nothing is ever removed across a mount: a base system that was being built
# may still have some.
remove() { rm -rf --one-file-system "$@"; }

# outdated DIRECTORY: removes those that were made beside it from other inputs
# (NAME-HASH) and that nobody has used for a week.
outdated() {
	local other
	for other in "${1%-*}"-*; do
		[ "$other" != "$1" ] || continue
		[ -d "$other" ] || continue
		[ -n "$(find "$other" -maxdepth 1 -mtime -7 -print -quit)" ] || remove "$other"
	done
}

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
		die "$1: no space left. $CACHE needs about 18 GB; make room, or name another place with PERFCOUNTERS_CACHE=DIR, and run it again."
	fi
	die "$1 failed (log: $LOG). Running the same command again goes on where it stopped."
}

# The kernel's source as Debian ships it, into DIRECTORY.
unpack_source() { # unpack_source DIRECTORY STOCK
	# shellcheck disable=SC2016
	stage "unpack the kernel's source" inside sh -c 'tar -C "$0" --strip-components=1 -xf "$1"/usr/src/linux-source-*.tar.xz' "$1" "$2"
}

words() { sed 's/#.*//' "$@" | xargs; }

# A Debian of its own, from the archive of the tool chain's apt, without what
# packages recommend. mmdebstrap refuses services to everybody (policy-rc.d).
debian() { # debian WHAT ROOT "PACKAGE..." OPTIONS...
	local uri options=$CACHE/apt.options.$$ include=${3// /,}
	# shellcheck disable=SC2016 # apt's own variables
	uri=$(inside apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' |
		awk -v suite="$SUITE" '$2 == suite { print $1; exit }')
	[ -n "$uri" ] || die "apt of the tool chain knows no archive of $SUITE"
	# Its apt may know a proxy, or relax date checks.
	inside apt-config dump | grep -E '^Acquire::(https?|Check-)' >"$options" || :
	stage "$1" inside mmdebstrap --mode=root --variant=apt --aptopt="$options" --dpkgopt=force-unsafe-io \
		${include:+"--include=$include"} "${@:4}" "$SUITE" "$2" "deb $uri $SUITE main" "deb $uri $SUITE-backports main"
	rm -f "$options"
}

# in_debian ROOT "SOURCE:TARGET ..." SCRIPT: by that Debian's bash, as root, with what a
# system has, and directories of ours in it. (The tool chain's own has no mount but
# busybox's; and its mounts are its own already.)
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
