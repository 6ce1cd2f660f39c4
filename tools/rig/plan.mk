# SPDX-License-Identifier: GPL-2.0
#
# What set-up and builds may do side by side: each target is a script that makes
# something where it is not, and says here what is made before it. Scripts make by
# themselves what they need, so an edge that is missing costs time, nothing else.
# Run by plan.sh; a test run adds its jobs (test.sh).

timed = @tools/rig/timed.sh
kdir := tools/rig/kdir.sh
build := tools/rig/build.sh

.PHONY: base tools emulator packages disk-full deb-base disk-deb dkms

base:
	$(timed) set-up base $(kdir) base >/dev/null
tools: base
	$(timed) builds tools $(build) tools >/dev/null
emulator: base
	$(timed) set-up emulator sh -c 'tests/qemu-pmu/build.sh >/dev/null || [ $$? = 3 ]'
disk-full: base
	$(timed) set-up disk-full tools/rig/full.sh >/dev/null
deb-base: base
	$(timed) set-up deb-base tools/deb/disk.sh base >/dev/null

kernel-stock: base
	$(timed) set-up tree $(kdir) >/dev/null
# Mostly in the time that all else leaves of the processors; beside busy neighbours it
# must come to an end, too.
kernel-debug kernel-kcsan: kernel-%: base
	$(timed) set-up kernel-$* nice -n 10 tools/rig/kernel.sh $* >/dev/null
modules-stock modules-debug modules-kcsan: modules-%: kernel-%
	$(timed) builds modules-$* env WORLD=$* $(build) modules >/dev/null
image-stock image-debug image-kcsan: image-%: modules-% tools
	$(timed) builds image-$* env WORLD=$* $(build) image >/dev/null

packages: modules-stock tools
	$(timed) builds packages tools/deb/build.sh >/dev/null
disk-deb: packages deb-base
	$(timed) builds disk-deb tools/deb/disk.sh >/dev/null
dkms: packages
	$(timed) builds dkms tools/deb/dkms-test.sh >/dev/null
