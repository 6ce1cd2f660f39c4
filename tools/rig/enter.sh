# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The inside of inside() (lib.sh): runs in a private mount namespace, binds
# what the tool chain needs and changes root. Arguments: VAR=value... COMMAND...
set -euo pipefail
into() {
	mkdir -p "$ROOTFS$1"
	mount --bind "$1" "$ROOTFS$1"
}
here=$PWD
[[ $here/ == "$TOP"/* || $here/ == "$CACHE"/* ]] || here=$TOP
mount -t proc proc "$ROOTFS/proc"
mount --rbind /dev "$ROOTFS/dev"
# What is written there is this command's alone: other clones use the same root file system.
mount -t tmpfs tmpfs "$ROOTFS/tmp"
for own in /root /usr/local; do mount -t tmpfs -o mode=755 tmpfs "$ROOTFS$own"; done
into "$TOP"
into "$CACHE"
# The host's own way to the network: resolver and certificate authorities.
for f in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
	[ -e "$f" ] || continue
	mkdir -p "$ROOTFS${f%/*}"
	[ -e "$ROOTFS$f" ] || : >"$ROOTFS$f"
	mount --bind "$(readlink -f "$f")" "$ROOTFS$f"
done
exec chroot "$ROOTFS" env -i -C "$here" "$@"
