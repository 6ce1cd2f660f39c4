# SPDX-License-Identifier: GPL-2.0
#
# The steps of set-up and builds, and which of them must precede others: make runs the rest in
# parallel. Each target runs a script that makes something if it does not exist. A script also makes
# its own prerequisites, so one that is missing here costs time but breaks nothing.
# Run by plan.sh; a test run adds its jobs (test.sh).

timed = @tools/rig/timed.sh
kdir := tools/rig/kdir.sh
build := tools/rig/build.sh

.PHONY: base tools emulator packages disk-debian deb-base disk-deb dkms

base:
	$(timed) set-up base $(kdir) base >/dev/null
tools: base
	$(timed) builds tools $(build) tools >/dev/null
emulator: base
	$(timed) set-up emulator sh -c 'tests/qemu-pmu/build.sh >/dev/null || [ $$? = 3 ]'
disk-debian: base
	$(timed) set-up disk-debian tools/rig/debian_disk.sh >/dev/null
deb-base: base
	$(timed) set-up deb-base tools/deb/disk.sh base >/dev/null

kernel-stock: base
	$(timed) set-up tree $(kdir) >/dev/null
# The builds of debug kernels mostly use CPU time that other jobs leave. Their niceness is only 10,
# so that they finish even beside busy loops.
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
