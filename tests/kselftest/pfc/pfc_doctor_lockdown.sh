#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: lockdown-amd2
# timeout: 60
# shellcheck disable=SC2086,SC2317,SC2329
#
# Tests pfc doctor in a kernel that requires signed modules and is then locked down until the next
# boot. perfcounters.ko is loaded in the first part of the test, and unloaded in the second part.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

lockdown=/sys/kernel/security/lockdown

test_signed_only() {
	echo Y >/sys/module/module/parameters/sig_enforce
	run_doctor 0 && has_finding ok machine signatures "required; the loaded modules were accepted"
}
test_integrity() {
	echo integrity >$lockdown
	run_doctor 0 && has_finding note machine lockdown "integrity: the modules are loaded"
}
test_confidentiality() {
	echo confidentiality >$lockdown
	run_doctor 0 && has_finding note machine lockdown "confidentiality: the kernel cannot be counted" "boot without"
}
test_no_lockdown() {
	unload_modules
	run_doctor 1 && has_finding note machine lockdown "confidentiality: modules must be signed" "sign them" &&
		has_finding note machine signatures "required; unsigned modules are rejected" "mokutil --import"
}
test_refused() {
	! insmod /modules/perfcounters.ko 2>/dev/null && run_doctor 1 && has_finding problem modules loaded "kernel log: .*" "signed modules only"
}

plan 6
mount -t securityfs securityfs /sys/kernel/security
insmod_each perfcounters perfmon pfm_amd
check "doctor no lockdown, no signatures required: ok" sh -c '. /tests/doctor.sh; run_doctor 0; has_finding ok machine lockdown off && has_finding ok machine signatures "not required"'
check "doctor signatures required, modules loaded: ok" test_signed_only
check "doctor lockdown for integrity, modules loaded: a note" test_integrity
check "doctor lockdown for confidentiality, modules loaded: a note" test_confidentiality
check "doctor lockdown, modules unloaded: notes with their remedies" test_no_lockdown
check "doctor lockdown, insmod refused: the kernel's message is shown" test_refused
rm -f text json said part found errors
exit $failed
