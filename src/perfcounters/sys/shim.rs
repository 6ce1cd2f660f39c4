// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures in `shim/`.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::costs::File;
use crate::costs::NR_STATS;
use crate::cpu_kinds::CpuKind;
use crate::description::Overflow;

/// Bits that [`pfc_netdev_change`] returns: the interface is removed, or the interface is added. A
/// rename sets both bits.
pub(crate) const PFC_NETDEV_REMOVED: c_uint = 1;
pub(crate) const PFC_NETDEV_ADDED: c_uint = 2;

/// `struct pfm_notifier`, opaque to Rust: the wait queue, timer and deferred work of a context.
#[repr(C)]
pub(crate) struct Notifier {
    _opaque: [u8; 0],
}

/// `struct pfm_thread_entry`, opaque to Rust: an entry of the table of monitored threads.
#[repr(C)]
pub(crate) struct ThreadEntry {
    _opaque: [u8; 0],
}

/// `struct pfm_access_snapshot`: credentials, `exec_state` and dumpability of a task at one moment.
#[repr(C)]
pub(crate) struct AccessSnapshot {
    pub(crate) cred: *const bindings::cred,
    pub(crate) state: *mut c_void,
    pub(crate) dumpable: u32,
}

/// `enum pfm_resource`: the resources that are counted per user.
#[repr(u32)]
#[derive(Clone, Copy)]
pub(crate) enum Resource {
    Bytes,
    /// Processes that are traced or whose trace was not read completely.
    Processes,
    /// Traces that have not ended.
    Traces,
    /// All traces, including traces that have ended and that an open file still holds.
    HeldTraces,
    /// Contexts that exist.
    Contexts,
    /// Calls of `PERFTRACE_OPEN` in progress that ask the security modules, each with a kernel
    /// thread.
    PermissionChecks,
}

/// `struct pfm_amount`: an amount of one resource.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) resource: Resource,
    pub(crate) nr: u64,
}

/// `struct pfm_nmi_registers`: the PMU's global registers that the NMI handler uses.
#[repr(C)]
pub(crate) struct NmiRegisters {
    pub(crate) control: u64,
    pub(crate) status: u64,
    pub(crate) clear: u64,
    pub(crate) bits: u64,
    pub(crate) may_be_stale: u64,
}

extern "C" {
    pub(crate) static mut pfc_costs: [*mut i64; NR_STATS];
    pub(crate) static pfc_costs_scale: u32;
    pub(crate) fn pfc_costs_init();
    pub(crate) fn pfc_costs_show(cpu: c_uint, files: *const File, nr: c_uint);
    pub(crate) static mut perf_counter_seqflag: *mut u64;
    pub(crate) static perf_counter_nowhere: *mut i64;
    pub(crate) fn pfc_module_notifier_register() -> c_int;
    pub(crate) fn pfc_module_notifier_unregister();
    pub(crate) fn pfc_percpu_pfn(p: *mut c_void, cpu: c_uint) -> c_ulong;
    pub(crate) fn pfc_virt_pfn(p: *const c_void) -> c_ulong;
    pub(crate) fn pfc_may_sleep() -> bool;
    pub(crate) fn pfc_tsc_khz() -> u32;
    pub(crate) fn pfc_may_log(kind: c_uint) -> bool;
    pub(crate) fn pfc_is_32bit() -> bool;
    pub(crate) fn pfc_vma_readonly(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
    ) -> c_int;
    pub(crate) fn pfc_tracepoint_find(name: *const c_char) -> *mut bindings::tracepoint;
    pub(crate) fn pfc_tracepoint_sync();
    pub(crate) fn pfc_irq_is_first(irq: c_uint, action: *const bindings::irqaction) -> bool;
    pub(crate) fn pfc_work_init(
        work: *mut bindings::work_struct,
        func: unsafe extern "C" fn(*mut bindings::work_struct),
    );
    pub(crate) fn pfc_work_queue(work: *mut bindings::work_struct);
    pub(crate) fn pfc_rtnl_lock();
    pub(crate) fn pfc_rtnl_unlock();
    pub(crate) fn pfc_netdev_index(dev: *const bindings::net_device) -> c_uint;
    pub(crate) fn pfc_netdev_name(dev: *const bindings::net_device, name: *mut c_char) -> c_uint;
    pub(crate) fn pfc_netdev_change(event: c_ulong) -> c_uint;
    pub(crate) fn pfc_notifier_dev(info: *mut c_void) -> *mut bindings::net_device;
    pub(crate) fn pfc_skb_dev(skb: *const bindings::sk_buff) -> *mut bindings::net_device;
    pub(crate) fn pfc_skb_wire_len(skb: *const bindings::sk_buff) -> u32;
    pub(crate) static pfm_loaded: [usize; 2];
    pub(crate) static pfm_counting: [u64; 2];
    pub(crate) static pfm_kind: CpuKind;
    pub(crate) fn pfm_kind_of(cpu: u32, kind: *mut CpuKind);
    pub(crate) fn pfm_kind_set(cpu: u32, kind: *const CpuKind);
    pub(crate) fn pfm_run_time(task: *const bindings::task_struct) -> u64;
    pub(crate) static pfm_reset_for: u64;
    pub(crate) fn pfm_reset_for_of(cpu: u32) -> u64;
    pub(crate) fn pfm_lock_init(lock: *mut bindings::raw_spinlock_t);
    pub(crate) fn pfm_log_fault();
    pub(crate) fn pfm_log_lacking(cpu: c_int);
    pub(crate) fn pfm_msr_exists(msr: u32) -> bool;
    pub(crate) fn pfm_msr_keeps_value(msr: u32) -> bool;
    pub(crate) fn pfm_reserve_msr(msr: u32) -> bool;
    pub(crate) fn pfm_release_msr(msr: u32);
    pub(crate) fn pfm_get_current_cred() -> *mut bindings::cred;
    pub(crate) fn pfm_account_is_unlimited() -> bool;
    pub(crate) fn pfm_account_cred_is_unlimited(cred: *const bindings::cred) -> bool;
    pub(crate) fn pfm_account_bytes() -> u64;
    pub(crate) fn pfm_account_add(cred: *const bindings::cred, more: Amount, most: u64) -> c_int;
    pub(crate) fn pfm_account_sub(cred: *const bindings::cred, less: Amount);
    pub(crate) fn pfm_map_create(
        show: unsafe extern "C" fn(*mut bindings::seq_file, *mut c_void) -> c_int,
    ) -> c_int;
    pub(crate) fn pfm_map_remove();
    pub(crate) fn pfm_tree_create();
    pub(crate) fn pfm_tree_add_pmu(pmu: *const c_void);
    pub(crate) fn pfm_tree_remove_pmu(pmu: *const c_void);
    pub(crate) fn pfm_tree_remove();
    pub(crate) fn pfm_work_start() -> c_int;
    pub(crate) fn pfm_work_end();
    pub(crate) fn pfm_idle_queue(milliseconds: c_uint);
    pub(crate) fn pfm_wrap_timer_start(milliseconds: c_uint);
    pub(crate) fn pfm_wrap_timer_stop();
    pub(crate) fn pfm_power_register(sleep: unsafe extern "C" fn(bool));
    pub(crate) fn pfm_power_unregister();
    pub(crate) fn pfm_vma_self_page(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
    ) -> c_int;
    pub(crate) fn pfm_rdpmc_allow() -> bool;
    pub(crate) fn pfm_flush_perf_dirty_counters() -> c_int;
    pub(crate) fn pfm_threads_init() -> c_int;
    pub(crate) fn pfm_threads_destroy();
    pub(crate) fn pfm_thread_entry_new() -> *mut ThreadEntry;
    pub(crate) fn pfm_thread_entry_free(place: *mut ThreadEntry);
    pub(crate) fn pfm_thread_add(
        place: *mut ThreadEntry,
        task: usize,
        context: *const c_void,
    ) -> c_int;
    pub(crate) fn pfm_thread_remove(place: *mut ThreadEntry);
    pub(crate) fn pfm_thread_find(task: usize) -> *const c_void;
    pub(crate) fn pfm_rdpmc_keep(mm: *mut bindings::mm_struct);
    pub(crate) fn pfm_rdpmc_forbid(mm: *mut bindings::mm_struct);
    pub(crate) fn pfm_procfs_mount() -> c_int;
    pub(crate) fn pfm_procfs_unmount();
    pub(crate) fn pfm_check_access(task: *mut bindings::task_struct, attach: bool) -> c_int;
    pub(crate) fn pfm_ptrace_allows(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        seen: *const AccessSnapshot,
    ) -> bool;
    pub(crate) fn pfm_check_access_as(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        attach: bool,
    ) -> c_int;
    pub(crate) fn pfm_check_cred_access(cred: *const bindings::cred) -> c_int;
    pub(crate) fn pfm_has_rights_of(cred: *const bindings::cred) -> bool;
    pub(crate) fn pfm_snapshot_take(
        seen: *mut AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> c_int;
    pub(crate) fn pfm_snapshot_put(seen: *mut AccessSnapshot);
    pub(crate) fn pfm_snapshot_is_unchanged(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub(crate) fn pfm_snapshot_was_unchanged(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub(crate) fn pfm_snapshot_same_program(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub(crate) fn pfm_may_watch(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn pfm_is_kernel_thread(task: *const bindings::task_struct) -> bool;
    pub(crate) fn pfm_is_exiting(task: *const bindings::task_struct) -> bool;
    pub(crate) fn pfm_may_monitor_kernel() -> bool;
    pub(crate) fn pfm_thread_pointer() -> u64;
    pub(crate) fn pfm_running_cpu(task: *const bindings::task_struct) -> c_int;
    pub(crate) fn pfm_exec_is_secret(bprm: *const c_void) -> bool;
    pub(crate) fn pfm_preempt_disable();
    pub(crate) fn pfm_preempt_enable();
    pub(crate) fn pfm_notifier_new() -> *mut Notifier;
    pub(crate) fn pfm_notifier_free(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_free_context(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_attach(notifier: *mut Notifier, context: *const c_void);
    pub(crate) fn pfm_notifier_wake_readers(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_queue_work(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_queue_permission_check(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_start_timer(notifier: *mut Notifier, nanoseconds: u64);
    pub(crate) fn pfm_notifier_cancel_timer(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_block_thread(notifier: *mut Notifier, requester: *mut bindings::pid);
    pub(crate) fn pfm_current_process() -> *mut bindings::pid;
    pub(crate) fn pfm_notifier_resume(notifier: *mut Notifier);
    pub(crate) fn pfm_notifier_wake_blocked(notifier: *mut Notifier);
    pub(crate) fn pfc_task_works_wait();
    pub(crate) fn pfm_notifier_poll(
        notifier: *mut Notifier,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    );
    pub(crate) fn pfm_notifier_wait_for(
        notifier: *mut Notifier,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
        nanoseconds: u64,
    ) -> c_int;
    pub(crate) fn pfm_notifier_wait(
        notifier: *mut Notifier,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
    ) -> c_int;
    pub(crate) fn pfm_notifier_fasync(
        notifier: *mut Notifier,
        fd: c_int,
        file: *mut bindings::file,
        on: c_int,
    ) -> c_int;
    pub(crate) fn pfm_fill_overflow(
        overflow: *mut Overflow,
        regs: *const bindings::pt_regs,
        ip: u64,
        kernel: bool,
        ns: *mut bindings::pid_namespace,
    );
    pub(crate) fn pfm_now() -> u64;
    pub(crate) fn pfm_resolution() -> u64;
    pub(crate) fn pfm_in_nmi() -> bool;
    pub(crate) fn pfm_irq_regs() -> *const bindings::pt_regs;
    pub(crate) fn pfm_nmi_register() -> c_int;
    pub(crate) fn pfm_nmi_set_registers(global: *const NmiRegisters);
    pub(crate) fn pfm_nmi_unregister();
    pub(crate) fn pfm_unmask_lvtpc();
    pub(crate) fn pfm_defer_nmi(regs: *const bindings::pt_regs);
    pub(crate) fn pfm_deferred_ip() -> u64;
    pub(crate) fn pfm_deferred_since() -> u64;
    pub(crate) fn pfm_may_be_stale() -> bool;
    pub(crate) static pfm_stale_nmi_since: u64;
    pub(crate) static pfm_timed_sample_in: u32;
    pub(crate) fn pfm_take_stale_nmi() -> bool;
    pub(crate) fn pfm_throttle_time(began: u64, regs: *const bindings::pt_regs) -> u64;
    pub(crate) fn pfm_memory_new(size: u64) -> *mut c_void;
    pub(crate) fn pfm_memory_free(memory: *mut c_void);
    pub(crate) fn pfm_memory_map(
        vma: *mut bindings::vm_area_struct,
        memory: *mut c_void,
        writable: bool,
    ) -> c_int;
    pub(crate) fn pfm_charge(pages: u64) -> *mut bindings::user_struct;
    pub(crate) fn pfm_uncharge(user: *mut bindings::user_struct, pages: u64);
    pub(crate) fn register_netdevice_notifier(block: *mut bindings::notifier_block) -> c_int;
    pub(crate) fn unregister_netdevice_notifier(block: *mut bindings::notifier_block) -> c_int;
    pub(crate) static ppa_percpu: usize;
    pub(crate) fn ppa_tsc_khz() -> u32;
    pub(crate) fn ppa_local_clock() -> u64;
    pub(crate) fn ppa_idle_ns(cpu: c_uint) -> u64;
    pub(crate) fn ppa_cpu_online(cpu: c_uint) -> bool;
    pub(crate) fn ppa_set_percpu(cpu: c_uint, here: *mut c_void);
    pub(crate) fn ppa_percpu_of(cpu: c_uint) -> usize;
    pub(crate) fn ppa_in_syscall(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_has_ended(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_is_dead(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_yields(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_task_ids(
        task: *mut bindings::task_struct,
        initial: bool,
        who: *mut super::task::TaskIds,
    );
    pub(crate) fn pfm_account_line(seq: *mut bindings::seq_file, uid: u32, bytes: u64);
    pub(crate) fn ppa_index_lock() -> c_ulong;
    pub(crate) fn ppa_index_unlock(flags: c_ulong);
    pub(crate) fn ppa_each_task(
        each: unsafe extern "C" fn(*mut bindings::task_struct, *mut c_void),
        arg: *mut c_void,
    );
    pub(crate) fn ppa_get_task(pid: u32) -> *mut bindings::task_struct;
    pub(crate) fn ppa_files_create() -> c_int;
    pub(crate) fn ppa_files_close();
    pub(crate) fn ppa_files_remove();
    pub(crate) fn ppa_entry_create(pid: u32, id: c_ulong) -> *mut c_void;
    pub(crate) fn ppa_entry_remove(directory: *mut c_void);
    pub(crate) fn ppa_queue_worker();
    pub(crate) fn ppa_wait_for_worker();
    pub(crate) fn ppa_queue_publisher(ms: c_uint);
    pub(crate) fn pt_max_traced() -> u32;
    pub(crate) fn pt_page_new() -> c_ulong;
    pub(crate) fn pt_vma(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
        writable: bool,
    ) -> c_int;
    pub(crate) fn pt_log_refused(markers: bool, error: c_int);
    pub(crate) fn pt_wipe_on_fork(vma: *mut bindings::vm_area_struct);
    pub(crate) fn pt_insert(vmf: *mut bindings::vm_fault, page: c_ulong) -> bindings::vm_fault_t;
    pub(crate) fn pt_mm_get() -> *mut bindings::mm_struct;
    pub(crate) fn pt_mm_put(mm: *mut bindings::mm_struct);
    pub(crate) fn pt_leader_get() -> *mut bindings::task_struct;
    pub(crate) fn pt_pid_get(leader: *mut bindings::task_struct) -> *mut bindings::pid;
    pub(crate) fn pt_pid_nr(pid: *mut bindings::pid) -> u32;
    pub(crate) fn pt_pid_bytes(pid: *mut bindings::pid) -> usize;
    pub(crate) fn pt_pid_own_nr(pid: *mut bindings::pid) -> u32;
    pub(crate) fn pt_thread_nr() -> u32;
    pub(crate) fn pt_thread_replace(at: i64, was: u64, first: u64, second: u64);
    pub(crate) fn pt_queue_announce() -> c_int;
    pub(crate) fn pt_set_traced(mm: usize, is: bool);
    pub(crate) fn pt_queue_shared_thread(child: *mut bindings::task_struct);
    pub(crate) fn pt_unreported_exit();
    pub(crate) fn pt_identity(who: *mut super::process::Identity, task: *mut bindings::task_struct);
    pub(crate) fn pt_is_dying() -> bool;
    pub(crate) fn pt_time_offset() -> i64;
    pub(crate) fn pt_uid(uid: u32) -> u32;
    pub(crate) fn pt_detach_later(
        leader: *mut bindings::task_struct,
        ours: *const super::detach::DeviceOps,
        wake: *mut bindings::file,
    ) -> c_int;
    pub(crate) fn pt_wake_file_get(fd: c_int) -> *mut bindings::file;
    pub(crate) fn pt_wake_file_put(wake: *mut bindings::file);
}
