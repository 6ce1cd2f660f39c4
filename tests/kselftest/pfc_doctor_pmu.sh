#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-skylake pmu-amd2
# gate: pmu-amd2
# timeout: 120
# shellcheck disable=SC2086,SC2317,SC2329,SC3043
#
# pfc doctor on a machine with a PMU: without problems; without a PMU description; while the NMI
# watchdog or perf uses the PMU; while another program has contexts.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

case $PMU in
amd*) description=pfm_amd pmu=amd-v2 vendor=AuthenticAMD ;;
*) description=pfm_intel pmu=intel-arch vendor=GenuineIntel ;;
esac

no_description() {
	echo /bin/false >/proc/sys/kernel/modprobe
	doctor 1 && says ok contexts PMU "PMU of $vendor found" && says problem contexts description "no PMU description" "modprobe $description" &&
		says problem contexts create "no PMU description is registered" && says problem contexts load "no hardware counter"
}
loads_it() { # The context that pfc doctor creates loads the description.
	echo /bin/modprobe >/proc/sys/kernel/modprobe
	busybox rmmod perfcounters && insmod /modules/perfcounters.ko
	doctor 0 && says ok contexts description "$pmu: [0-9]+ PMCs"
}
clean() {
	doctor 0 && says ok contexts load "can be attached" && says ok contexts watchdog off && says ok contexts guests "no process" && says ok contexts perf "no process" && says ok contexts RDPMC programs
}
watchdog() {
	echo 1 >/proc/sys/kernel/nmi_watchdog
	doctor 1
	rc=$?
	echo 0 >/proc/sys/kernel/nmi_watchdog
	[ $rc = 0 ] && says problem contexts watchdog "a counter on each CPU" "nmi_watchdog=0" && doctor 0
}
perf_has_it() {
	/tests/pfc_follow perf 0 &
	holder=$!
	within 60 has_open $holder perf_event
	doctor 1
	rc=$?
	kill $holder
	wait $holder 2>/dev/null
	[ $rc = 0 ] && says problem contexts perf "open in: pfc_follow \($holder\)" "end these processes" && says problem contexts load "the PMU is in use"
}
others() {
	pfc stat -o /dev/null -p $$ &
	holder=$!
	within 60 has_open $holder /dev/perfmon
	doctor 0
	rc=$?
	kill $holder
	wait $holder 2>/dev/null
	[ $rc = 0 ] && says note contexts contexts "open in: pfc \($holder\)"
}
nobody() {
	chmod 666 /dev/perfmon
	chmod 444 /dev/perfcounters /dev/perfcounters_names
	doctor_as nobody 0 && says note contexts CAP_PERFMON "only own programs" && says ok contexts load "can be attached"
}

plan 7
unload
insmod /modules/perfcounters.ko
check "doctor PMU without a description: a problem with its remedy" no_description
check "doctor PMU without a description: its own context loads it" loads_it
with_json=1
check "doctor PMU with its description: no problem" clean
with_json=${LONG:-}
check "doctor NMI watchdog uses the PMU: a problem with its remedy" watchdog
check "doctor perf uses the PMU: a problem with the process" perf_has_it
check "doctor another program has contexts: a note with the process" others
check "doctor user nobody with access to the devices: no problem" nobody
rm -f text json said part found errors
unload
exit $failed
