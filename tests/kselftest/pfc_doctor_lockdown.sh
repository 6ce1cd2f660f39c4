#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: lockdown-amd2
# timeout: 60
# shellcheck disable=SC2086,SC2317,SC2329
#
# pfc doctor in a kernel that requires signed modules and is then locked down, which lasts until the
# next boot: with perfcounters.ko loaded, and without it.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/doctor.sh
. /tests/doctor.sh

lockdown=/sys/kernel/security/lockdown

signed_only() {
	echo Y >/sys/module/module/parameters/sig_enforce
	doctor 0 && says ok machine signatures "required; the loaded modules were accepted"
}
integrity() {
	echo integrity >$lockdown
	doctor 0 && says note machine lockdown "integrity: the modules are loaded"
}
confidentiality() {
	echo confidentiality >$lockdown
	doctor 0 && says note machine lockdown "confidentiality: the kernel cannot be counted" "boot without"
}
without() {
	unload
	doctor 1 && says problem machine lockdown "confidentiality: modules must be signed" "sign them" &&
		says problem machine signatures "required, but the installed modules are not signed" "mokutil --import"
}
refused() {
	! insmod /modules/perfcounters.ko 2>/dev/null && doctor 1 && says problem modules loaded "kernel log: .*" "signed modules only"
}

plan 6
mount -t securityfs securityfs /sys/kernel/security
insmod /modules/perfcounters.ko
insmod /modules/pfm_amd.ko
check "doctor no lockdown, no signatures required: ok" sh -c '. /tests/doctor.sh; doctor 0; says ok machine lockdown off && says ok machine signatures "not required"'
check "doctor signatures required, modules loaded: ok" signed_only
check "doctor lockdown for integrity, modules loaded: a note" integrity
check "doctor lockdown for confidentiality, modules loaded: a note" confidentiality
check "doctor lockdown, modules unloaded: problems with their remedies" without
check "doctor lockdown, insmod refused: the kernel's message is shown" refused
rm -f text json said part found errors
exit $failed
