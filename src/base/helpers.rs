// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures in `helpers/`.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// Bits that [`pfc_netdev_change`] returns for a notification: the interface was removed, or the
/// interface was added. For a rename both bits are set.
pub const PFC_NETDEV_REMOVED: c_uint = 1;
pub const PFC_NETDEV_ADDED: c_uint = 2;

/// `struct pfc_access_snapshot`: credentials, `exec_state` and dumpability of a task at one moment.
#[repr(C)]
pub struct AccessSnapshot {
    pub cred: *const bindings::cred,
    pub state: *mut c_void,
    pub dumpable: u32,
}

/// `enum pfc_resource`: the resources that are counted and limited for each user.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum Resource {
    Bytes,
    /// Processes that are traced, or that have ended and are still in a trace.
    Processes,
    /// Traces that have not ended.
    Traces,
    /// All traces, including ended traces to which an open file still refers.
    HeldTraces,
    /// Contexts that exist.
    Contexts,
    /// Concurrent calls of `PERFTRACE_OPEN` that check permission with the security modules. Each
    /// such call creates a kernel thread.
    PermissionChecks,
}

/// `struct pfc_amount`: an amount of one resource.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Amount {
    pub resource: Resource,
    pub nr: u64,
}

/// `struct pfc_task_ids`: the user, thread and process ids of a task.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TaskIds {
    /// The real user id.
    pub uid: u32,
    /// The id of the thread.
    pub pid: u32,
    /// The id of the task's process (thread group).
    pub tgid: u32,
    /// The id of the task's parent process.
    pub ppid: u32,
    /// Nonzero if the task was reaped. A reaped task has no thread id any more, and its last
    /// context switch follows soon or is over.
    pub reaped: u32,
}

/// `struct pfc_identity`: the user and the name of a task.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Identity {
    /// The effective user id, in the initial user namespace.
    pub uid: u32,
    pub comm: [u8; 16],
}

/// `struct pfc_notifier`, opaque to Rust: the wait queue and the irq_work of a notifier.
#[repr(C)]
pub struct Notifier {
    _opaque: [u8; 0],
}

extern "C" {
    pub fn pfc_virt_pfn(p: *const c_void) -> c_ulong;
    pub fn pfc_may_sleep() -> bool;
    pub fn pfc_tsc_khz() -> u32;
    pub fn pfc_tsc_scale() -> u32;
    pub fn pfc_is_32bit() -> bool;
    pub fn pfc_vma_readonly(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
    ) -> c_int;
    pub fn pfc_tracepoint_find(name: *const c_char) -> *mut bindings::tracepoint;
    pub fn pfc_tracepoint_sync();
    pub fn pfc_irq_is_first(irq: c_uint, action: *const bindings::irqaction) -> bool;
    pub fn pfc_work_init(
        work: *mut bindings::work_struct,
        func: unsafe extern "C" fn(*mut bindings::work_struct),
    );
    pub fn pfc_work_queue(work: *mut bindings::work_struct);
    pub fn pfc_notifier_new() -> *mut Notifier;
    pub fn pfc_notifier_free(notifier: *mut Notifier);
    pub fn pfc_notifier_wake_readers(notifier: *mut Notifier);
    pub fn pfc_notifier_poll(
        notifier: *mut Notifier,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    );
    pub fn pfc_notifier_wait_for(
        notifier: *mut Notifier,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
        nanoseconds: u64,
    ) -> c_int;
    pub fn pfc_notifier_wait(
        notifier: *mut Notifier,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
    ) -> c_int;
    pub fn pfc_notifier_fasync(
        notifier: *mut Notifier,
        fd: c_int,
        file: *mut bindings::file,
        on: c_int,
    ) -> c_int;
    pub fn pfc_power_register(callback: unsafe extern "C" fn(bool)) -> *mut c_void;
    pub fn pfc_power_unregister(power: *mut c_void);
    pub fn pfc_rtnl_lock();
    pub fn pfc_rtnl_unlock();
    pub fn pfc_netdev_index(dev: *const bindings::net_device) -> c_uint;
    pub fn pfc_netdev_name(dev: *const bindings::net_device, name: *mut c_char) -> c_uint;
    pub fn pfc_netdev_change(event: c_ulong) -> c_uint;
    pub fn pfc_notifier_dev(info: *mut c_void) -> *mut bindings::net_device;
    pub fn pfc_skb_dev(skb: *const bindings::sk_buff) -> *mut bindings::net_device;
    pub fn pfc_skb_wire_len(skb: *const bindings::sk_buff) -> u32;
    pub fn pfc_run_time(task: *const bindings::task_struct) -> u64;
    pub fn pfc_lock_init(lock: *mut bindings::raw_spinlock_t);
    pub fn pfc_get_current_cred() -> *mut bindings::cred;
    pub fn pfc_account_is_unlimited() -> bool;
    pub fn pfc_account_cred_is_unlimited(cred: *const bindings::cred) -> bool;
    pub fn pfc_account_bytes() -> u64;
    pub fn pfc_account_add(cred: *const bindings::cred, more: Amount, most: u64) -> c_int;
    pub fn pfc_account_file_create();
    pub fn pfc_account_file_remove();
    pub fn pfc_account_sub(cred: *const bindings::cred, less: Amount);
    pub fn pfc_procfs_mount() -> c_int;
    pub fn pfc_procfs_unmount();
    pub fn pfc_check_access(task: *mut bindings::task_struct, attach: bool) -> c_int;
    pub fn pfc_ptrace_allows(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        seen: *const AccessSnapshot,
    ) -> bool;
    pub fn pfc_check_access_as(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        attach: bool,
    ) -> c_int;
    pub fn pfc_check_cred_access(cred: *const bindings::cred) -> c_int;
    pub fn pfc_has_rights_of(cred: *const bindings::cred) -> bool;
    pub fn pfc_snapshot_take(seen: *mut AccessSnapshot, task: *mut bindings::task_struct) -> c_int;
    pub fn pfc_snapshot_put(seen: *mut AccessSnapshot);
    pub fn pfc_snapshot_is_unchanged(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub fn pfc_snapshot_was_unchanged(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub fn pfc_snapshot_same_program(
        seen: *const AccessSnapshot,
        task: *mut bindings::task_struct,
    ) -> bool;
    pub fn pfc_may_watch(task: *mut bindings::task_struct) -> bool;
    pub fn pfc_is_kernel_thread(task: *const bindings::task_struct) -> bool;
    pub fn pfc_is_exiting(task: *const bindings::task_struct) -> bool;
    pub fn pfc_may_monitor_kernel() -> bool;
    pub fn pfc_thread_pointer() -> u64;
    pub fn pfc_running_cpu(task: *const bindings::task_struct) -> c_int;
    pub fn pfc_exec_is_secret(bprm: *const c_void) -> bool;
    pub fn pfc_preempt_disable();
    pub fn pfc_preempt_enable();
    pub fn pfc_current_process() -> *mut bindings::pid;
    pub fn pfc_task_works_wait();
    pub fn pfc_now() -> u64;
    pub fn pfc_resolution() -> u64;
    pub fn pfc_in_nmi() -> bool;
    pub fn register_netdevice_notifier(block: *mut bindings::notifier_block) -> c_int;
    pub fn unregister_netdevice_notifier(block: *mut bindings::notifier_block) -> c_int;
    pub fn pfc_stable_tsc_khz() -> u32;
    pub fn pfc_local_clock() -> u64;
    pub fn pfc_idle_ns(cpu: c_uint) -> u64;
    pub fn pfc_cpu_online(cpu: c_uint) -> bool;
    pub fn pfc_in_syscall(task: *mut bindings::task_struct) -> bool;
    pub fn pfc_has_ended(task: *mut bindings::task_struct) -> bool;
    pub fn pfc_is_dead(task: *mut bindings::task_struct) -> bool;
    pub fn pfc_yields(task: *mut bindings::task_struct) -> bool;
    pub fn pfc_task_ids(task: *mut bindings::task_struct, initial: bool, who: *mut TaskIds);
    pub fn pfc_each_task(
        each: unsafe extern "C" fn(*mut bindings::task_struct, *mut c_void),
        arg: *mut c_void,
    );
    pub fn pfc_get_task(pid: u32) -> *mut bindings::task_struct;
    pub fn pfc_mm_get() -> *mut bindings::mm_struct;
    pub fn pfc_mm_put(mm: *mut bindings::mm_struct);
    pub fn pfc_leader_get() -> *mut bindings::task_struct;
    pub fn pfc_pid_get(leader: *mut bindings::task_struct) -> *mut bindings::pid;
    pub fn pfc_pid_nr(pid: *mut bindings::pid) -> u32;
    pub fn pfc_pid_bytes(pid: *mut bindings::pid) -> usize;
    pub fn pfc_pid_own_nr(pid: *mut bindings::pid) -> u32;
    pub fn pfc_thread_nr() -> u32;
    pub fn pfc_identity(who: *mut Identity, task: *mut bindings::task_struct);
    pub fn pfc_is_dying() -> bool;
    pub fn pfc_time_offset() -> i64;
    pub fn pfc_uid(uid: u32) -> u32;
}
