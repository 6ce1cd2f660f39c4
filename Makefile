# SPDX-License-Identifier: GPL-2.0
#
# This Makefile has the commands for users. Each target runs a script; most of the scripts are in
# tools/rig. The kernel's build system uses the file Kbuild in the same directory.

# The kernel's build system (make -C KDIR M=...) reads Kbuild instead of this Makefile.
MAKEFLAGS += --no-print-directory
PREFIX ?= /usr/local
rig := tools/rig

# The user sets the following variables on make's command line. The scripts read them from the
# environment.
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

# "make test-all" also runs the tests that "make test" leaves out: the long tests, and the tests on
# the debug kernel.
test-all:
	@$(rig)/test.sh all

# "make test-debug" runs the tests on both debug kernels. KCSAN and KASAN exclude each other, so
# there are two debug kernels.
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

# "make drill" builds this project for the newest kernel of the Debian archive and runs the tests on
# it.
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
#? make demo                 boot an unmodified Debian kernel in QEMU and watch its counters
#? make                      build the kernel modules and the tools
#? make test                 run the tests; ONLY=PATTERN selects them by row id, name or file
#? make test-all             also run the long tests, and all tests on a debug kernel (built once)
#? make test-debug           run the tests for guests on both debug kernels (built once)
#? make proved               show the last commits of main that passed make test and make test-all
#? make rows                 show which rows of Documentation/rows.md the last test runs prove
#? make vm                   open a shell in the guest; CMD='...' runs a command instead
#? make check                check formatting, lints and documentation, run cargo test
#? make bench                measure the cost of counting and reading (ONLY=guest or host)
#? make qemu-pmu             build the emulator with a PMU (done on demand; under 6 minutes)
#? make drill                build and test against the newest kernel of the archive (porting)
#? make install              install modules, pfc, libraries and headers; make uninstall: remove them
#? make deb                  build Debian packages of them (Documentation/install.md)
#? make sign KEY= CERT=      sign the installed modules for Secure Boot; without KEY=: make a key
#? make kdir                 only set up the tool chain and the kernel tree (done on demand)
#? make clean                remove what was built from this tree; make distclean: the whole cache
#?
#? KDIR=DIR                  make, install: your own Rust-enabled, prepared kernel tree
#? DIRECT=1                  on a Debian 13 host: no chroot, use its own packages
#? WORLDS='host stock debug' test: the worlds to run; kcsan is another one
#? LOAD=8                    test: run beside 8 busy loops
#? LIMIT=4200                test: end after 4200 seconds (test-all: 10800); 0: no limit
#? KERNEL_RELEASE='7.2.*'    all: use this kernel (tools/rig/kernels has the supported series)
#? WORLD=debug GUEST=probes  vm: another kernel, another guest (tests/vm/guests)
#? PMU=skylake               vm: with an emulated PMU (tests/vm/guests has the models)
#? SMP=2 MEM=1G              CPUs and memory of the guest
#? PREFIX=/usr/local         install: the directory; DESTDIR= is put before it
#? DEBIAN_MIRROR=ADDRESS     set-up: another Debian archive than that of this machine's apt
#? PERFCOUNTERS_CACHE=DIR    the cache, if not ~/.cache/perfcounters (12 GB; 15 with debug kernels)
