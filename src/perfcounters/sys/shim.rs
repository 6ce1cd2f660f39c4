// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures in `shim/`.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::costs::File;
use crate::costs::NR;
use crate::description::Overflow;
use crate::kinds::Kind;

/// Bits that [`pfc_netdev_change`] returns: the interface is removed, or is added. A rename sets
/// both.
pub(crate) const PFC_NETDEV_LEFT: c_uint = 1;
pub(crate) const PFC_NETDEV_ARRIVED: c_uint = 2;

/// `struct pfm_bell`, opaque to Rust: the wait queue, timer and deferred work of a context.
#[repr(C)]
pub(crate) struct Bell {
    _opaque: [u8; 0],
}

/// `struct pfm_place`, opaque to Rust: an entry of the table of monitored threads.
#[repr(C)]
pub(crate) struct Place {
    _opaque: [u8; 0],
}

/// `struct pfm_seen`: credentials, `exec_state` and dumpability of a task at one moment.
#[repr(C)]
pub(crate) struct Seen {
    pub(crate) cred: *const bindings::cred,
    pub(crate) state: *mut c_void,
    pub(crate) dumpable: u32,
}

/// `enum pfm_thing`: the resources that are counted per user.
#[repr(u32)]
#[derive(Clone, Copy)]
pub(crate) enum Thing {
    Bytes,
    /// Processes that are traced or whose trace was not read completely.
    Processes,
    /// Traces that have not ended.
    Traces,
    /// All traces, also those that have ended and that an open file still holds.
    Held,
    /// Contexts that exist.
    Contexts,
    /// Calls of `PERFTRACE_OPEN` in progress that ask the security modules. Each uses a kernel
    /// thread.
    Questions,
}

/// `struct pfm_amount`: a number of one resource.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) thing: Thing,
    pub(crate) nr: u64,
}

/// `struct pfm_global`: the PMU's global registers, as the NMI handler uses them.
#[repr(C)]
pub(crate) struct Global {
    pub(crate) control: u64,
    pub(crate) status: u64,
    pub(crate) clear: u64,
    pub(crate) bits: u64,
    pub(crate) late: u64,
}

extern "C" {
    pub(crate) static mut pfc_costs: [*mut i64; NR];
    pub(crate) static pfc_costs_scale: u32;
    pub(crate) fn pfc_costs_init();
    pub(crate) fn pfc_costs_show(cpu: c_uint, files: *const File, nr: c_uint);
    pub(crate) static mut perf_counter_seqflag: *mut u64;
    pub(crate) static perf_counter_nowhere: *mut i64;
    pub(crate) fn pfc_modules_watch() -> c_int;
    pub(crate) fn pfc_modules_unwatch();
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
    pub(crate) fn pfc_in_compat_syscall() -> bool;
    pub(crate) fn pfc_work_init(
        work: *mut bindings::work_struct,
        func: unsafe extern "C" fn(*mut bindings::work_struct),
    );
    pub(crate) fn pfc_work_queue(work: *mut bindings::work_struct);
    pub(crate) fn pfc_notices_lock();
    pub(crate) fn pfc_notices_unlock();
    pub(crate) fn pfc_netdev_index(dev: *const bindings::net_device) -> c_uint;
    pub(crate) fn pfc_netdev_name(dev: *const bindings::net_device, name: *mut c_char) -> c_uint;
    pub(crate) fn pfc_netdev_change(event: c_ulong) -> c_uint;
    pub(crate) fn pfc_notifier_dev(info: *mut c_void) -> *mut bindings::net_device;
    pub(crate) fn pfc_skb_dev(skb: *const bindings::sk_buff) -> *mut bindings::net_device;
    pub(crate) fn pfc_skb_wire_len(skb: *const bindings::sk_buff) -> u32;
    pub(crate) static pfm_loaded: [usize; 2];
    pub(crate) static pfm_counting: [u64; 2];
    pub(crate) static pfm_kind: Kind;
    pub(crate) fn pfm_kind_of(cpu: u32, kind: *mut Kind);
    pub(crate) fn pfm_kind_set(cpu: u32, kind: *const Kind);
    pub(crate) fn pfm_run_time(task: *const bindings::task_struct) -> u64;
    pub(crate) static pfm_quiet_since: u64;
    pub(crate) fn pfm_quiet_since_of(cpu: u32) -> u64;
    pub(crate) fn pfm_lock_init(lock: *mut bindings::raw_spinlock_t);
    pub(crate) fn pfm_say_fault();
    pub(crate) fn pfm_say_lacking(cpu: c_int);
    pub(crate) fn pfm_msr_exists(msr: u32) -> bool;
    pub(crate) fn pfm_msr_holds(msr: u32) -> bool;
    pub(crate) fn pfm_reserve(msr: u32) -> bool;
    pub(crate) fn pfm_release(msr: u32);
    pub(crate) fn pfm_rights_of_caller() -> *mut bindings::cred;
    pub(crate) fn pfm_account_is_free() -> bool;
    pub(crate) fn pfm_account_bytes() -> u64;
    pub(crate) fn pfm_account_add(cred: *const bindings::cred, more: Amount, most: u64) -> c_int;
    pub(crate) fn pfm_account_sub(cred: *const bindings::cred, less: Amount);
    pub(crate) fn pfm_map_create(
        show: unsafe extern "C" fn(*mut bindings::seq_file, *mut c_void) -> c_int,
    ) -> c_int;
    pub(crate) fn pfm_map_remove();
    pub(crate) fn pfm_tree_create();
    pub(crate) fn pfm_tree_grow(pmu: *const c_void);
    pub(crate) fn pfm_tree_cut(pmu: *const c_void);
    pub(crate) fn pfm_tree_remove();
    pub(crate) fn pfm_work_start() -> c_int;
    pub(crate) fn pfm_work_end();
    pub(crate) fn pfm_idle_later(milliseconds: c_uint);
    pub(crate) fn pfm_rounds_start(milliseconds: c_uint);
    pub(crate) fn pfm_rounds_stop();
    pub(crate) fn pfm_sleep_register(sleep: unsafe extern "C" fn(bool));
    pub(crate) fn pfm_sleep_unregister();
    pub(crate) fn pfm_vma_self(
        vma: *mut bindings::vm_area_struct,
        ops: *const bindings::vm_operations_struct,
    ) -> c_int;
    pub(crate) fn pfm_rdpmc_allow() -> bool;
    pub(crate) fn pfm_make_perf_forget() -> c_int;
    pub(crate) fn pfm_threads_begin() -> c_int;
    pub(crate) fn pfm_threads_end();
    pub(crate) fn pfm_place_new() -> *mut Place;
    pub(crate) fn pfm_place_free(place: *mut Place);
    pub(crate) fn pfm_thread_add(place: *mut Place, task: usize, context: *const c_void) -> c_int;
    pub(crate) fn pfm_thread_remove(place: *mut Place);
    pub(crate) fn pfm_thread_find(task: usize) -> *const c_void;
    pub(crate) fn pfm_rdpmc_keep(mm: *mut bindings::mm_struct);
    pub(crate) fn pfm_rdpmc_forbid(mm: *mut bindings::mm_struct);
    pub(crate) fn pfm_rights_begin() -> c_int;
    pub(crate) fn pfm_rights_end();
    pub(crate) fn pfm_may(task: *mut bindings::task_struct, attach: bool) -> c_int;
    pub(crate) fn pfm_rule_by(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        seen: *const Seen,
    ) -> bool;
    pub(crate) fn pfm_may_by(
        cred: *const bindings::cred,
        task: *mut bindings::task_struct,
        attach: bool,
    ) -> c_int;
    pub(crate) fn pfm_may_see(cred: *const bindings::cred) -> c_int;
    pub(crate) fn pfm_covers(cred: *const bindings::cred) -> bool;
    pub(crate) fn pfm_see(seen: *mut Seen, task: *mut bindings::task_struct) -> c_int;
    pub(crate) fn pfm_unsee(seen: *mut Seen);
    pub(crate) fn pfm_is_as_seen(seen: *const Seen, task: *mut bindings::task_struct) -> bool;
    pub(crate) fn pfm_was_as_seen(seen: *const Seen, task: *mut bindings::task_struct) -> bool;
    pub(crate) fn pfm_runs_as_seen(seen: *const Seen, task: *mut bindings::task_struct) -> bool;
    pub(crate) fn pfm_may_watch(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn pfm_is_kernel_thread(task: *const bindings::task_struct) -> bool;
    pub(crate) fn pfm_is_exiting(task: *const bindings::task_struct) -> bool;
    pub(crate) fn pfm_is_kernel_open() -> bool;
    pub(crate) fn pfm_thread_pointer() -> u64;
    pub(crate) fn pfm_where(task: *const bindings::task_struct) -> c_int;
    pub(crate) fn pfm_exec_is_secret(bprm: *const c_void) -> bool;
    pub(crate) fn pfm_preempt_disable();
    pub(crate) fn pfm_preempt_enable();
    pub(crate) fn pfm_bell_new() -> *mut Bell;
    pub(crate) fn pfm_bell_free(bell: *mut Bell);
    pub(crate) fn pfm_bell_leave(bell: *mut Bell);
    pub(crate) fn pfm_bell_hang(bell: *mut Bell, context: *const c_void);
    pub(crate) fn pfm_bell_ring(bell: *mut Bell);
    pub(crate) fn pfm_bell_call(bell: *mut Bell);
    pub(crate) fn pfm_bell_ask(bell: *mut Bell);
    pub(crate) fn pfm_bell_after(bell: *mut Bell, nanoseconds: u64);
    pub(crate) fn pfm_bell_hush(bell: *mut Bell);
    pub(crate) fn pfm_bell_block(bell: *mut Bell, asker: *mut bindings::pid);
    pub(crate) fn pfm_my_process() -> *mut bindings::pid;
    pub(crate) fn pfm_bell_let(bell: *mut Bell);
    pub(crate) fn pfm_bell_go(bell: *mut Bell);
    pub(crate) fn pfc_works_end();
    pub(crate) fn pfm_bell_poll(
        bell: *mut Bell,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    );
    pub(crate) fn pfm_bell_wait_for(
        bell: *mut Bell,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
        nanoseconds: u64,
    ) -> c_int;
    pub(crate) fn pfm_bell_wait(
        bell: *mut Bell,
        ready: unsafe extern "C" fn(*mut c_void) -> bool,
        arg: *mut c_void,
    ) -> c_int;
    pub(crate) fn pfm_bell_fasync(
        bell: *mut Bell,
        fd: c_int,
        file: *mut bindings::file,
        on: c_int,
    ) -> c_int;
    pub(crate) fn pfm_find(
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
    pub(crate) fn pfm_nmi_start() -> c_int;
    pub(crate) fn pfm_nmi_own(global: *const Global);
    pub(crate) fn pfm_nmi_stop();
    pub(crate) fn pfm_lvtpc();
    pub(crate) fn pfm_miss(regs: *const bindings::pt_regs);
    pub(crate) fn pfm_missed() -> u64;
    pub(crate) fn pfm_missed_since() -> u64;
    pub(crate) fn pfm_late_nmis() -> bool;
    pub(crate) static pfm_expected_since: u64;
    pub(crate) static pfm_storm_left: u32;
    pub(crate) fn pfm_expected() -> bool;
    pub(crate) fn pfm_storm(began: u64, regs: *const bindings::pt_regs) -> u64;
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
    pub(crate) static ppa_here: usize;
    pub(crate) fn ppa_tsc_khz() -> u32;
    pub(crate) fn ppa_local_clock() -> u64;
    pub(crate) fn ppa_idle_ns(cpu: c_uint) -> u64;
    pub(crate) fn ppa_cpu_online(cpu: c_uint) -> bool;
    pub(crate) fn ppa_set_here(cpu: c_uint, here: *mut c_void);
    pub(crate) fn ppa_here_of(cpu: c_uint) -> usize;
    pub(crate) fn ppa_in_call(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_has_ended(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_yields(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn ppa_who(
        task: *mut bindings::task_struct,
        initial: bool,
        who: *mut super::task::Who,
    );
    pub(crate) fn pfm_account_line(seq: *mut bindings::seq_file, uid: u32, bytes: u64);
    pub(crate) fn ppa_lock() -> c_ulong;
    pub(crate) fn ppa_unlock(flags: c_ulong);
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
    pub(crate) fn pt_say_refused(markers: bool, error: c_int);
    pub(crate) fn pt_wipe_on_fork(vma: *mut bindings::vm_area_struct);
    pub(crate) fn pt_insert(vmf: *mut bindings::vm_fault, page: c_ulong) -> bindings::vm_fault_t;
    pub(crate) fn pt_mm_get() -> *mut bindings::mm_struct;
    pub(crate) fn pt_mm_put(mm: *mut bindings::mm_struct);
    pub(crate) fn pt_leader_get() -> *mut bindings::task_struct;
    pub(crate) fn pt_pid_get(leader: *mut bindings::task_struct) -> *mut bindings::pid;
    pub(crate) fn pt_pid_nr(pid: *mut bindings::pid) -> u32;
    pub(crate) fn pt_pid_bytes(pid: *mut bindings::pid) -> usize;
    pub(crate) fn pt_pid_own(pid: *mut bindings::pid) -> u32;
    pub(crate) fn pt_thread_nr() -> u32;
    pub(crate) fn pt_thread_change(at: i64, was: u64, first: u64, second: u64);
    pub(crate) fn pt_begins_later() -> c_int;
    pub(crate) fn pt_traced(mm: usize, is: bool);
    pub(crate) fn pt_shares_later(child: *mut bindings::task_struct);
    pub(crate) fn pt_untold_end();
    pub(crate) fn pt_who(who: *mut super::process::Who, task: *mut bindings::task_struct);
    pub(crate) fn pt_is_dying() -> bool;
    pub(crate) fn pt_time_offset() -> i64;
    pub(crate) fn pt_uid(uid: u32) -> u32;
    pub(crate) fn pt_leave_later(
        leader: *mut bindings::task_struct,
        ours: *const super::leave::Ours,
        wake: *mut bindings::file,
    ) -> c_int;
    pub(crate) fn pt_wake_get(fd: c_int) -> *mut bindings::file;
    pub(crate) fn pt_wake_put(wake: *mut bindings::file);
}
