# SPDX-License-Identifier: GPL-2.0
#
# The commands for users. Each target runs a script, most of them in tools/rig. The kernel's build
# system uses Kbuild in the same directory.

# The kernel's build (make -C KDIR M=...) reads Kbuild instead of this file.
MAKEFLAGS += --no-print-directory
PREFIX ?= /usr/local
rig := tools/rig

# Variables given to make reach the scripts through the environment.
export KDIR ONLY WORLDS LOAD LIMIT WORLD GUEST PMU SMP MEM CMD DIRECT JOBS DEMO_SECONDS DESTDIR PREFIX
export DEBIAN_MIRROR KERNEL_RELEASE PERFCOUNTERS_CACHE

all:
	@$(rig)/build.sh modules tools

modules tools:
	@$(rig)/build.sh $@

kdir:
	@$(rig)/kdir.sh --say

demo:
	@$(rig)/vm.sh demo

vm:
	@$(rig)/vm.sh shell

test:
	@$(rig)/test.sh

# Also runs the tests that "make test" leaves out: the long ones, and those on the debug kernel.
test-all:
	@$(rig)/test.sh all

# Runs the tests on both debug kernels: KCSAN needs a kernel of its own.
test-debug:
	@$(rig)/test.sh debug

proved:
	@$(rig)/proved.sh

rows:
	@$(rig)/rows.sh

check:
	@$(rig)/check.sh

bench:
	@tests/bench/run

# Builds and tests against the newest kernel of the archive.
drill:
	@$(rig)/drill.sh

qemu-pmu:
	@tests/qemu-pmu/build.sh

install:
	@$(rig)/install.sh

uninstall:
	@$(rig)/install.sh --uninstall

deb:
	@tools/deb/build.sh

sign:
	@tools/deb/sign $(if $(KEY),'$(KEY)' '$(CERT)',--new '$(HOME)/mok')

clean:
	@$(rig)/clean.sh

distclean:
	@$(rig)/clean.sh everything

help:
	@sed -n 's/^#? \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

.PHONY: all modules tools kdir demo vm test test-all test-debug proved rows check bench drill qemu-pmu install uninstall deb sign clean distclean help

#? perfcounters: per-CPU kernel counters, read from user space without system calls
#?
#? make demo                 boot an unmodified Debian kernel in QEMU, watch its counters
#? make                      build the kernel modules and the tools
#? make test                 run the tests (ONLY=PATTERN: some; a row id, name or file)
#? make test-all             and the long ones, and all on a debug kernel (built once)
#? make test-debug           the tests in the guest on both debug kernels (built once)
#? make proved               the last commits of main that passed make test and test-all
#? make rows                 which promises the last run of each test proved
#? make vm                   a shell in the guest (CMD='...': run that instead)
#? make check                formatting, lints, host tests
#? make bench                what counting and reading cost, against the bars (ONLY=guest or host)
#? make qemu-pmu             the emulator with a PMU (done on demand; under 6 minutes)
#? make drill                build and test against the newest kernel of the archive (porting)
#? make install              modules, pfc, libperfmon and headers onto this machine; uninstall
#? make deb                  Debian packages of them (Documentation/install.md)
#? make sign KEY= CERT=      signs the installed modules, for Secure Boot; without KEY= makes one
#? make kdir                 only set up the tool chain and kernel tree (done on demand)
#? make clean                remove what was built; distclean: the whole cache
#?
#? KDIR=DIR                  make, install: your own Rust-enabled, prepared kernel tree
#? DIRECT=1                  on a Debian 13 host: no chroot, use its own packages
#? WORLDS='host stock debug' test: which worlds; kcsan is one more
#? LOAD=8                    test: beside that many busy loops
#? LIMIT=4200                test: end after so many seconds (test-all: 10800); 0: never
#? KERNEL_RELEASE='7.2.*'    all: with that kernel (tools/rig/kernels has the supported ones)
#? WORLD=debug GUEST=many    vm: another kernel, another guest (tests/vm/guests)
#? PMU=skylake               vm: with an emulated PMU (tests/vm/guests has the models)
#? SMP=2 MEM=1G              the guest's size
#? PREFIX=/usr/local         install: where; DESTDIR= is put before it
#? DEBIAN_MIRROR=ADDRESS     set-up: another archive than this machine's apt uses
#? PERFCOUNTERS_CACHE=DIR    instead of ~/.cache/perfcounters (12 GB, 15 with the debug kernels)
