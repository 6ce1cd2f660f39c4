#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 240
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043,SC3045
#
# pfc doctor on a machine without a PMU. Each problem is caused, and the state of its check, the
# text, the remedy and the exit status are checked, as text and as JSON, as root and as user nobody.
# pfc doctor itself must not change anything. pfc_doctor_pmu.sh tests the PMU,
# pfc_doctor_lockdown.sh tests lockdown.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

release=$(uname -r)
# The release as a regular expression.
any=$(echo $release | tr + .)
modules=/lib/modules/$release
ko=$modules/updates/perfcounters.ko
clocks=/sys/devices/system/clocksource/clocksource0
config=/boot/config-$release

not_loaded() { doctor 1 && says problem modules loaded "perfcounters is not loaded" "modprobe perfcounters"; }
not_loaded_quiet() { # Consequences of a problem are notes.
	doctor 1
	[ "$(grep -c '^problem ' text)" = 1 ] && says note counters device "/dev/perfcounters is created when perfcounters is loaded" && says note contexts create "not tried"
}
supported() { doctor 0 && says ok machine kernel "$any"; }
clean() { doctor 0 && says ok modules loaded perfcounters && says ok modules installed "/lib/modules/$any/updates/perfcounters.ko" && says ok counters device "/dev/perfcounters .* can be opened"; }
no_pmu() { doctor 0 && says note contexts PMU "provides no PMU" "pmu=on" && says ok contexts load "there is no PMU"; }
no_provider() { doctor 0 && says note counters providers "none is loaded" "modprobe pfc_sched"; }
provider() {
	insmod /modules/pfc_sched.ko
	doctor 0 && says ok counters providers pfc_sched
}
json_keys() {
	local with_json=1
	doctor 0 && says note contexts PMU "provides no PMU" "pmu=on" || return 1
	grep -q '"schema":1' json && grep -qF "\"kernel\":\"$release\"" json && grep -q '"pfc":"[0-9.]*"' json && grep -q '"problems":0' json &&
		grep -qE '"build_id":"[0-9a-f]{40}".*"name":"perfcounters"' json && grep -qF "\"vermagic\":\"$release " json
}
nobody_may_not() {
	doctor_as nobody 1 && says problem counters device "/dev/perfcounters \(0440 root:root\): permission denied" "udev rule" &&
		says problem contexts device "/dev/perfmon \(0660 root:root\): permission denied" && says ok tracing device "/dev/perftrace" &&
		says note contexts CAP_PERFMON "missing"
}
in_the_group() {
	chgrp perfcounters /dev/perfcounters /dev/perfcounters_names /dev/perfmon
	doctor_as nobody 1 && says problem counters device "root:perfcounters\): permission denied" "join its group: adduser USER perfcounters" || return 1
	sed -i 's/^perfcounters:x:100:/&nobody/' /etc/group
	doctor_as nobody 0 && says ok counters device "can be opened" && says ok contexts create "can be created"
}
memlock() {
	(ulimit -l 64; doctor_as nobody 1) && says problem machine memlock "64 KiB" "ulimit -l"
}
device_gone() {
	mv /dev/ppa /dev/ppa.away
	doctor 1
	rc=$?
	mv /dev/ppa.away /dev/ppa
	[ $rc = 0 ] && says problem accounting device "/dev/ppa does not exist, although the module is loaded" devtmpfs
}
# Earlier tests of CPU hotplug may have made the kernel distrust the time stamp counter.
another_clock() {
	local trusted=1
	grep -qw tsc $clocks/available_clocksource || trusted=
	echo acpi_pm >$clocks/current_clocksource
	doctor 0
	rc=$?
	[ -z $trusted ] || echo tsc >$clocks/current_clocksource
	[ $rc = 0 ] || return 1
	if [ -n "$trusted" ]; then
		says note tracing clock "the kernel's clock source is acpi_pm" "echo tsc" && says ok accounting clock acpi_pm
	else
		says note tracing clock "acpi_pm: each event reads CLOCK_MONOTONIC" "tsc=reliable" && says note accounting clock "the scheduler's clock" "tsc=reliable"
	fi
}
with_config() { # OPTION...: writes a kernel config without these
	local option
	mkdir -p /boot
	for option in MODULES RUST TRACEPOINTS PERF_EVENTS X86_LOCAL_APIC HIGH_RES_TIMERS RSEQ HAVE_SYSCALL_TRACEPOINTS DEBUG_FS UNWINDER_ORC; do
		case " $* " in
		*" $option "*) echo "# CONFIG_$option is not set" ;;
		*) echo "CONFIG_$option=y" ;;
		esac
	done >$config
}
no_config() { doctor 0 && says note machine config "not found" "/boot"; }
good_config() { with_config && doctor 0 && says ok machine config "/boot/config-$any has all options that the modules use"; }
poor_config() { with_config UNWINDER_ORC && doctor 0 && says note machine config "lacks CONFIG_UNWINDER_ORC"; }
# Without restartable sequences events take another path, so this is a note, as tracing's check is.
no_rseq() { with_config RSEQ && doctor 0 && says note machine config "lacks CONFIG_RSEQ \(.*\)$" "works without"; }
bad_config() {
	with_config RUST TRACEPOINTS
	doctor 1
	rc=$?
	rm -f $config
	[ $rc = 0 ] && says problem machine config "lacks CONFIG_RUST \(.*\), CONFIG_TRACEPOINTS" "use a kernel"
}
another_file() { # The installed module is not the loaded one.
	mv $ko /tmp/kept.ko
	cp /lib/modules/$release/updates/pfm_soft.ko $ko
	doctor 0
	rc=$?
	mv /tmp/kept.ko $ko
	[ $rc = 0 ] && says note modules installed "not the loaded module" "modprobe -r"
}
# The installed module was built for a kernel of another name.
for_another() {
	local at
	cp $ko /tmp/kept.ko
	at=$(strings -t d $ko | awk '$2 ~ /^vermagic=/ { print $1 }')
	printf 8 | dd of=$ko bs=1 seek=$((at + 9)) conv=notrunc 2>/dev/null
	! insmod $ko 2>/dev/null && doctor 1
	rc=$?
	mv /tmp/kept.ko $ko
	[ $rc = 0 ] && says problem modules installed "was built for 8.*, but the kernel is $any" "make install" &&
		says problem modules loaded "kernel log: perfcounters: version magic" "built for another kernel"
}
not_installed() {
	mv $ko /tmp/kept.ko
	doctor 1
	rc=$?
	mv /tmp/kept.ko $ko
	[ $rc = 0 ] && says problem modules installed "not installed for this kernel, $any" "apt install perfcounters-modules-$any"
}
packed() { # A compressed module is installed.
	gzip -c $ko >/tmp/perfcounters.ko.gz
	mv $ko /tmp/kept.ko
	mv /tmp/perfcounters.ko.gz $ko.gz
	doctor 1
	rc=$?
	mv /tmp/kept.ko $ko
	rm $ko.gz
	[ $rc = 0 ] && says ok modules installed "/lib/modules/$any/updates/perfcounters.ko.gz"
}
changes() { # Prints all state that pfc doctor could change.
	lsmod | awk '{ print $1 }'
	ls -l /dev/perf* /dev/ppa
	cat /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/perf_event_paranoid $clocks/current_clocksource /proc/perfmon_map
	pfc list --all | cut -c 1-60
}
changes_nothing() {
	changes >before
	doctor 0 || return 1
	changes | diff before -
}
tree() {
	doctor 0 && says note modules "Rust tree" "no kernel tree to build modules" "make kdir" || return 1
	mkdir -p $modules/build/rust
	doctor 0 && says note modules "Rust tree" "has no Rust metadata" || return 1
	: >$modules/build/rust/libkernel.rmeta
	doctor 0 && says ok modules "Rust tree" "has the kernel's Rust metadata"
	rc=$?
	rm -r $modules/build
	return $rc
}

plan 29
unload
check "doctor no module loaded: a problem with its remedy" not_loaded
check "doctor no module loaded: consequences are notes" not_loaded_quiet
check "doctor no module loaded: status 1 for user nobody" doctor_as nobody 1
check "doctor module of another kernel: a problem with the kernel's message" for_another
check "doctor module not installed: a problem with its remedy" not_installed
check "doctor compressed module: it is found" packed
insmod /modules/perfcounters.ko
insmod /modules/pfm_soft.ko
check "doctor modules loaded and installed: no problem" clean
check "doctor kernel of a supported series: ok" supported
check "doctor no PMU: a note, status 0" no_pmu
check "doctor no provider loaded: a note" no_provider
check "doctor perf_event_paranoid is shown" sh -c '. /tests/doctor.sh; doctor 0; says ok machine paranoid "perf_event_paranoid is [0-9]"'
check "doctor restartable sequences are found" sh -c '. /tests/doctor.sh; doctor 0; says ok tracing rseq "the kernel has"'
check "doctor the clocks of tracing and accounting are shown" sh -c '. /tests/doctor.sh; doctor 0; says "(ok|note)" tracing clock "(the time stamp counter|CLOCK_MONOTONIC)" && says "(ok|note)" accounting clock "time stamp counter"'
check "doctor no Secure Boot, no lockdown, no signatures: all ok" sh -c '. /tests/doctor.sh; doctor 0; says ok machine "Secure Boot" none && says ok machine lockdown off && says ok machine signatures "not required"'
check "doctor JSON: versions, kernel and build ids" json_keys
check "doctor provider loaded: it is shown" provider
check "doctor it changes no modules, devices, settings or counters" changes_nothing
check "doctor devices of root only: problems for user nobody" nobody_may_not
check "doctor devices of a group: no problem after user nobody has joined it" in_the_group
check "doctor memlock of 64 KiB: a problem with its remedy" memlock
check "doctor missing device node: a problem with its remedy" device_gone
check "doctor another clock source: notes with their remedies" another_clock
check "doctor no kernel config: a note" no_config
check "doctor kernel config with all options: ok" good_config
check "doctor kernel config without an optional option: a note" poor_config
check "doctor kernel config without restartable sequences: a note" no_rseq
check "doctor kernel config without required options: a problem" bad_config
check "doctor installed module differs from the loaded one: a note" another_file
check "doctor kernel tree: none, without Rust metadata, complete" tree
rm -f text json said before
unload
exit $failed
