# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# inside() (lib.sh) runs this script in a private mount namespace. The script mounts the directories
# that the tool chain needs in $ROOTFS, and runs COMMAND with $ROOTFS as its root directory.
# Arguments: VAR=value... COMMAND...
set -euo pipefail
# into DIRECTORY: mounts a directory of the host at the same path in $ROOTFS.
into() {
	mkdir -p "$ROOTFS$1"
	mount --bind "$1" "$ROOTFS$1"
}
here=$PWD
[[ $here/ == "$TOP"/* || $here/ == "$CACHE"/* ]] || here=$TOP
mount -t proc proc "$ROOTFS/proc"
mount --rbind /dev "$ROOTFS/dev"
# Mount a private tmpfs on each directory that commands write to, because other clones use the same
# root file system.
mount -t tmpfs tmpfs "$ROOTFS/tmp"
for own in /root /usr/local; do mount -t tmpfs -o mode=755 tmpfs "$ROOTFS$own"; done
into "$TOP"
into "$CACHE"
# The chroot uses the resolver configuration and the certificate authorities of the host.
for f in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
	[ -e "$f" ] || continue
	mkdir -p "$ROOTFS${f%/*}"
	[ -e "$ROOTFS$f" ] || : >"$ROOTFS$f"
	mount --bind "$(readlink -f "$f")" "$ROOTFS$f"
done
exec chroot "$ROOTFS" env -i -C "$here" "$@"
