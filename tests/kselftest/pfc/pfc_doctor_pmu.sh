#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-skylake pmu-amd2
# gate: pmu-amd2
# timeout: 120
# shellcheck disable=SC2086,SC2317,SC2329,SC3043
#
# Tests pfc doctor on a machine with a PMU: without problems, without a PMU description, while the
# NMI watchdog or perf uses the PMU, and while another program has contexts.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

case $PMU in
amd*) description=pfm_amd pmu=amd-v2 vendor=AuthenticAMD ;;
*) description=pfm_intel pmu=intel-arch vendor=GenuineIntel ;;
esac

test_not_loaded() {
	run_doctor 0 && has_finding note contexts device "perfmon is not loaded" "modprobe perfmon" && has_finding note contexts description "not loaded" &&
		has_finding note contexts create "not loaded" && has_finding note contexts load "not loaded"
}
test_no_description() {
	echo /bin/false >/proc/sys/kernel/modprobe
	run_doctor 1 && has_finding ok contexts PMU "PMU of $vendor found" && has_finding problem contexts description "no PMU description" "modprobe $description" &&
		has_finding problem contexts create "no PMU description is registered" && has_finding problem contexts load "no hardware counter"
}
test_loads_description() { # The context that pfc doctor creates loads the description.
	echo /bin/modprobe >/proc/sys/kernel/modprobe
	busybox rmmod perfmon && insmod /modules/perfmon.ko
	run_doctor 0 && has_finding ok contexts description "$pmu: [0-9]+ PMCs"
}
test_clean() {
	run_doctor 0 && has_finding ok contexts load "can be attached" && has_finding ok contexts watchdog off && has_finding ok contexts guests "no process" && has_finding ok contexts perf "no process" && has_finding ok contexts RDPMC programs
}
test_watchdog() {
	echo 1 >/proc/sys/kernel/nmi_watchdog
	run_doctor 1
	rc=$?
	echo 0 >/proc/sys/kernel/nmi_watchdog
	[ $rc = 0 ] && has_finding problem contexts watchdog "a counter on each CPU" "nmi_watchdog=0" && run_doctor 0
}
test_perf_uses_pmu() {
	/tests/pfc_follow perf 0 &
	holder=$!
	within 60 has_open $holder perf_event
	run_doctor 1
	rc=$?
	kill $holder
	wait $holder 2>/dev/null
	[ $rc = 0 ] && has_finding problem contexts perf "open in: pfc_follow \($holder\)" "end these processes" && has_finding problem contexts load "the PMU is in use"
}
test_other_contexts() {
	pfc stat -o /dev/null -p $$ &
	holder=$!
	within 60 has_open $holder /dev/perfmon
	run_doctor 0
	rc=$?
	kill $holder
	wait $holder 2>/dev/null
	[ $rc = 0 ] && has_finding note contexts contexts "open in: pfc \($holder\)"
}
test_no_permission() {
	chmod 666 /dev/perfmon
	chmod 444 /dev/perfcounters /dev/perfcounters_names
	run_doctor_as nobody 0 && has_finding note contexts CAP_PERFMON "only own programs" && has_finding ok contexts load "can be attached"
}

plan 8
unload_modules
insmod /modules/perfcounters.ko
check "doctor PMU without perfmon.ko: notes, no problem" test_not_loaded
insmod /modules/perfmon.ko
check "doctor PMU without a description: a problem with its remedy" test_no_description
check "doctor PMU without a description: its own context loads it" test_loads_description
with_json=1
check "doctor PMU with its description: no problem" test_clean
with_json=${LONG:-}
check "doctor NMI watchdog uses the PMU: a problem with its remedy" test_watchdog
check "doctor perf uses the PMU: a problem with the process" test_perf_uses_pmu
check "doctor another program has contexts: a note with the process" test_other_contexts
check "doctor user nobody with access to the devices: no problem" test_no_permission
rm -f text json said part found errors
unload_modules
exit $failed
