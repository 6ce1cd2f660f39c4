# SPDX-License-Identifier: GPL-2.0
#
# The steps of the set-up and of builds, with the prerequisites of each step. make runs two steps in
# parallel if neither is a prerequisite of the other. The script of a target makes its result, for
# example a kernel, only if the result does not exist. The script also makes its own prerequisites.
# A prerequisite that is missing in this file therefore costs time, but breaks nothing. The script
# plan.sh runs make on this file. The script test.sh writes a makefile that includes this file and
# adds the jobs of a test run.

timed = @tools/rig/timed.sh
kdir := tools/rig/kdir.sh
build := tools/rig/build.sh

.PHONY: base tools test-binaries emulator packages disk-debian deb-base disk-deb dkms

base:
	$(timed) set-up base $(kdir) base >/dev/null
tools: base
	$(timed) builds tools $(build) tools >/dev/null
# If the tests do not compile, the job "cargo test" reports the errors.
test-binaries: tools
	$(timed) builds test-binaries sh -c '$(build) tests >/dev/null 2>&1 || :'
emulator: base
	$(timed) set-up emulator sh -c 'tests/qemu-pmu/build.sh >/dev/null || [ $$? = 3 ]'
disk-debian: base
	$(timed) set-up disk-debian tools/rig/debian_disk.sh >/dev/null
deb-base: base
	$(timed) set-up deb-base tools/deb/disk.sh base >/dev/null

kernel-stock: base
	$(timed) set-up tree $(kdir) >/dev/null
# The builds of debug kernels run with niceness 10, so that they mostly use CPU time that other jobs
# do not need. With a higher niceness, the builds would take too long while busy loops run (LOAD=).
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
