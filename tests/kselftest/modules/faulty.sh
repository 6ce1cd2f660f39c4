#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: debug kcsan
# guest: faulty
# timeout: 200
#
# Commits the programming errors (faults) that the debug kernels have to report. The host checks
# that the kernel has reported each fault, and that the rig counts the report as a failure. For this
# check, expected_reports() in tools/rig/guest.sh reads a line for each fault from the output of
# this script: the words "# expect", the name of the fault, a colon and a text of the report.
#
# The order of the faults matters, because lockdep turns itself off after its first report of a lock
# inversion, and after any report of KASAN. The fault `leak`, memory that is not freed, is not
# reported at once: after its last test program, the guest scans for leaked memory with kmemleak.

# check_fault NAME TEXT: commits the fault NAME and prints the report TEXT that the host expects.
check_fault() {
	n=$((n + 1))
	module=faulty
	[ "$1" != rust_use_after_free ] || module=faulty_rust
	echo "### fault $1" >/dev/kmsg
	echo "# expect $1: $2"
	if insmod /modules/$module.ko "fault=$1" && rmmod $module; then
		echo "ok $n rig faulty commits $1"
	else
		echo "not ok $n rig faulty commits $1"
	fi
}

n=0
echo "TAP version 13"
case $WORLD in
debug)
	echo "1..13"
	check_fault sleep_in_atomic "BUG: sleeping function called from invalid context"
	check_fault cpu_in_preemptible "BUG: using smp_processor_id() in preemptible"
	check_fault rcu_unlocked "WARNING: suspicious RCU usage"
	check_fault list_twice "list_del corruption"
	check_fault free_active_timer "ODEBUG: free active"
	check_fault index_out_of_bounds "UBSAN: array-index-out-of-bounds"
	check_fault lock_inversion "possible circular locking dependency detected"
	check_fault schedule_in_atomic "BUG: scheduling while atomic"
	check_fault kfence_out_of_bounds "BUG: KFENCE: out-of-bounds read"
	check_fault heap_out_of_bounds "BUG: KASAN: slab-out-of-bounds"
	check_fault use_after_free "BUG: KASAN: slab-use-after-free"
	check_fault rust_use_after_free "BUG: KASAN: slab-use-after-free in _RN"
	check_fault leak "unreferenced object"
	;;
kcsan)
	echo "1..1"
	check_fault race "BUG: KCSAN: data-race in racer"
	;;
esac
