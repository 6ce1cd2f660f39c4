#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks tests/modules/faults.c, which makes allocations fail: it must cover each function that the
# modules call and that may run out of memory.

set -u
out=${KBUILD_OUT:?} top=${TOP:?}

# The test finds these functions by their names, including the allocators that Rust code uses
# (rust_helper_...). Functions in $harmless need no entry in faults.c. Some functions in $harmless
# allocate nothing, and the functions of debugfs do not fail if an allocation fails. faults.c need
# not cover the kernel's own allocators, such as alloc_pages_noprof():
# tests/kselftest/perfmon/perfmon_fail_nth.c makes them fail by the kernel's fault injection.
# faults.c does not cover register_fprobe_syms(), because debug kernels do not have this function.
harmless='^(is_vmalloc_addr|vmalloc_to_page|vmalloc_to_pfn|init_net|rust_helper___mutex_init|rust_helper_REFCOUNT_INIT|hrtimer_setup|debugfs_create_[a-z0-9_]*|register_syscore|user_return_notifier_register|register_fprobe_syms|register_module_notifier|rust_helper_atomic[a-z0-9_]*|__init_waitqueue_head|__register_nmi_handler|task_work_add|unwind_get_return_address|__kmalloc_cache_noprof|kmalloc_caches|alloc_pages_noprof|__init_swait_queue_head|hrtimer_setup_sleeper_on_stack|ktime_add_safe|__kvmalloc_node_noprof|(__)?perf(mon)?_.*|pf[cm]_.*)$'
calls=$(for ko in "$out"/src/counters/perfcounters.ko "$out"/src/perfmon/perfmon.ko "$out"/src/ppa/ppa.ko "$out"/src/trace/perftrace.ko "$out"/src/counters/providers/pfc_*.ko "$out"/src/perfmon/pmu/pfm_*.ko "$out"/tests/modules/sample_rust.ko; do
	nm -u "$ko"
done | awk '{ print $NF }' | grep -iE 'alloc|get_free_page|dup|register|setup|create|_add|_init|_new' |
	grep -ivE '^_R|unregister|deregister|^free_' | grep -vE "$harmless" | sort -u)
points=$(sed -nE 's/^\tPOINT\("([a-z_]+)".*/\1/p' "$top/tests/modules/faults.c" | sort -u)
forgotten=$(comm -23 <(printf '%s\n' "$calls") <(printf '%s\n' "$points"))
echo "TAP version 13"
echo "1..2"
n=$(grep -c . <<<"$calls")
echo "# $n calls: ${calls//$'\n'/ }"
[ "$n" -ge 6 ] && echo "ok 1 rig allocations: at least 6 allocating functions are found in the modules" || echo "not ok 1 rig allocations: at least 6 allocating functions are found in the modules"
if [ -z "$forgotten" ]; then
	echo "ok 2 rig allocations: faults.c can make every allocating function of the modules fail"
else
	echo "# without a fault: ${forgotten//$'\n'/ }"
	echo "not ok 2 rig allocations: faults.c can make every allocating function of the modules fail"
fi
