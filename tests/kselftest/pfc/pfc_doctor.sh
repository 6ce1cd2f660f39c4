#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 240
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043,SC3045
#
# Tests pfc doctor on a machine without a PMU. The test causes most problems and checks what pfc
# doctor reports: the state of the check that finds the problem, the text, the remedy and the exit
# status. Each test has text and JSON output, and runs as root or as an unprivileged user. pfc
# doctor itself must not change anything. pfc_doctor_pmu.sh tests the PMU, and
# pfc_doctor_lockdown.sh tests lockdown.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

release=$(uname -r)
# Pattern that matches the kernel release: each plus sign is replaced by a dot, which matches any
# character.
any=$(echo $release | tr + .)
modules=/lib/modules/$release
ko=$modules/updates/perfcounters.ko
clocks=/sys/devices/system/clocksource/clocksource0

# run_for_state STATE STATUS: like run_doctor STATUS. In make test, tests that name the same STATE
# check the output of a single run.
run_for_state() {
	if [ -z "${LONG:-}" ] && [ -e "text.$1" ]; then cp "text.$1" text; else run_doctor "$2" && cp text "text.$1"; fi
}

test_not_loaded() { run_for_state none 1 && has_finding problem modules loaded "perfcounters is not loaded" "modprobe perfcounters"; }
test_not_loaded_quiet() { # The consequences of a problem are reported as notes.
	run_for_state none 1
	[ "$(grep -c '^problem ' text)" = 1 ] && has_finding note counters device "/dev/perfcounters is created when perfcounters is loaded" && has_finding note contexts create "not tried"
}
test_supported_kernel() { run_for_state loaded 0 && has_finding ok machine kernel "$any"; }
test_clean() { run_for_state loaded 0 && has_finding ok modules loaded perfcounters && has_finding ok modules installed "/lib/modules/$any/updates/perfcounters.ko" && has_finding ok counters device "/dev/perfcounters .* can be opened"; }
test_no_pmu() { run_for_state loaded 0 && has_finding note contexts PMU "provides no PMU" "pmu=on" && has_finding ok contexts load "there is no PMU"; }
test_paranoid() { run_for_state loaded 0 && has_finding ok machine paranoid "perf_event_paranoid is [0-9]"; }
test_rseq() { run_for_state loaded 0 && has_finding ok tracing rseq "the kernel has"; }
test_clocks() { run_for_state loaded 0 && has_finding "(ok|note)" tracing clock "(the time stamp counter|CLOCK_MONOTONIC)" && has_finding "(ok|note)" accounting clock "time stamp counter"; }
test_no_lockdown() { run_for_state loaded 0 && has_finding ok machine lockdown off && has_finding ok machine signatures "not required"; }
test_no_provider() { run_for_state loaded 0 && has_finding note counters providers "none is loaded" "modprobe pfc_sched"; }
test_provider() {
	insmod /modules/pfc_sched.ko
	run_doctor 0 && has_finding ok counters providers pfc_sched
}
test_json_keys() {
	local with_json=1
	run_doctor 0 && has_finding note contexts PMU "provides no PMU" "pmu=on" || return 1
	grep -q '"schema":1' json && grep -qF "\"kernel\":\"$release\"" json && grep -q '"pfc":"[0-9.]*"' json && grep -q '"problems":0' json &&
		grep -qE '"file":"[^"]*perfcounters.ko","loaded":true,"name":"perfcounters"' json
}
test_no_permission() {
	run_doctor_as nobody 1 && has_finding problem counters device "/dev/perfcounters \(0440 root:root\): permission denied" "udev rule" &&
		has_finding problem contexts device "/dev/perfmon \(0660 root:root\): permission denied" && has_finding ok tracing device "/dev/perftrace" &&
		has_finding note contexts CAP_PERFMON "missing"
}
test_group_member() {
	chgrp perfcounters /dev/perfcounters /dev/perfcounters_names /dev/perfmon
	run_doctor_as nobody 1 && has_finding problem counters device "root:perfcounters\): permission denied" "join its group: adduser USER perfcounters" || return 1
	sed -i 's/^perfcounters:x:100:/&nobody/' /etc/group
	run_doctor_as nobody 0 && has_finding ok counters device "can be opened" && has_finding ok contexts create "can be created"
}
test_memlock() {
	(ulimit -l 64; run_doctor_as nobody 1) && has_finding problem machine memlock "64 KiB" "ulimit -l"
}
test_device_missing() {
	mv /dev/ppa /dev/ppa.away
	run_doctor 1
	rc=$?
	mv /dev/ppa.away /dev/ppa
	[ $rc = 0 ] && has_finding problem accounting device "/dev/ppa does not exist, although the module is loaded" devtmpfs
}
# Earlier tests of CPU hotplug may have made the kernel distrust the time stamp counter.
test_unstable_clock() {
	local trusted=1
	grep -qw tsc $clocks/available_clocksource || trusted=
	echo acpi_pm >$clocks/current_clocksource
	run_doctor 0
	rc=$?
	[ -z $trusted ] || echo tsc >$clocks/current_clocksource
	[ $rc = 0 ] || return 1
	if [ -n "$trusted" ]; then
		has_finding note tracing clock "the kernel's clock source is acpi_pm" "echo tsc" && has_finding ok accounting clock acpi_pm
	else
		has_finding note tracing clock "acpi_pm: each event reads CLOCK_MONOTONIC" "tsc=reliable" && has_finding note accounting clock "the scheduler's clock" "tsc=reliable"
	fi
}
# Changes the kernel release in the vermagic string of a copy of the installed module.
test_other_kernel() {
	local at
	cp $ko /tmp/changed.ko
	at=$(strings -t d $ko | awk '$2 ~ /^vermagic=/ { print $1 }')
	printf 8 | dd of=/tmp/changed.ko bs=1 seek=$((at + 9)) conv=notrunc 2>/dev/null
	! insmod /tmp/changed.ko 2>/dev/null && run_doctor 1
	rc=$?
	rm /tmp/changed.ko
	[ $rc = 0 ] && has_finding problem modules loaded "kernel log: perfcounters: version magic" "built for another kernel"
}
test_not_installed() {
	mv $ko /tmp/kept.ko
	run_doctor 1
	rc=$?
	mv /tmp/kept.ko $ko
	[ $rc = 0 ] && has_finding problem modules installed "not installed for this kernel, $any" "apt install perfcounters-modules-$any"
}
test_compressed() { # A compressed module is installed.
	gzip -c $ko >/tmp/perfcounters.ko.gz
	mv $ko /tmp/kept.ko
	mv /tmp/perfcounters.ko.gz $ko.gz
	run_doctor 1
	rc=$?
	mv /tmp/kept.ko $ko
	rm $ko.gz
	[ $rc = 0 ] && has_finding ok modules installed "/lib/modules/$any/updates/perfcounters.ko.gz"
}
print_state() { # Prints all state that pfc doctor could change.
	lsmod | awk '{ print $1 }'
	ls -l /dev/perf* /dev/ppa
	cat /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/perf_event_paranoid $clocks/current_clocksource /proc/perfmon_map
	pfc list --all | cut -c 1-60
}
test_changes_nothing() {
	print_state >before
	run_doctor 0 || return 1
	print_state | diff before -
}
plan 22
unload_modules
check "doctor no module loaded: a problem with its remedy" test_not_loaded
check "doctor no module loaded: consequences are notes" test_not_loaded_quiet
check "doctor no module loaded: status 1 for user nobody" run_doctor_as nobody 1
check "doctor module of another kernel: a problem with the kernel's message" test_other_kernel
check "doctor module not installed: a problem with its remedy" test_not_installed
check "doctor compressed module: it is found" test_compressed
insmod_each perfcounters perfmon ppa perftrace pfm_soft
check "doctor modules loaded and installed: no problem" test_clean
check "doctor kernel of a supported series: ok" test_supported_kernel
check "doctor no PMU: a note, status 0" test_no_pmu
check "doctor no provider loaded: a note" test_no_provider
check "doctor perf_event_paranoid is shown" test_paranoid
check "doctor restartable sequences are found" test_rseq
check "doctor the clocks of tracing and accounting are shown" test_clocks
check "doctor no lockdown, no signatures: ok" test_no_lockdown
check "doctor JSON: versions, kernel and modules" test_json_keys
check "doctor provider loaded: it is shown" test_provider
check "doctor it changes no modules, devices, settings or counters" test_changes_nothing
check "doctor devices of root only: problems for user nobody" test_no_permission
check "doctor devices of a group: no problem after user nobody has joined it" test_group_member
check "doctor memlock of 64 KiB: a problem with its remedy" test_memlock
check "doctor missing device node: a problem with its remedy" test_device_missing
check "doctor another clock source: notes with their remedies" test_unstable_clock
rm -f text text.* json said before
unload_modules
exit $failed
