#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make clean: what was built goes; the tool chain and kernel tree stay.
# make distclean: everything in the cache goes.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

lock_cache
lock_kernels
built=(build target image)
[ "${1:-}" != everything ] || built+=(rootfs rootfs.partial kernel qemu-pmu full deb debs cargo python bench drill stamps release mode apt.conf apt.options logs)
for d in "${built[@]}"; do
	[ -e "$CACHE/$d" ] || continue
	# Never across a mount: a chroot may have some.
	rm -rf --one-file-system "${CACHE:?}/$d"
	say "    removed $CACHE/$d"
done
