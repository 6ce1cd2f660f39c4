// SPDX-License-Identifier: GPL-2.0

//! Rust declarations of the C functions and structures of perfmon.

#![allow(improper_ctypes, reason = "kernel structures hold empty lock classes")]

use kernel::bindings;
use kernel::ffi::{c_char, c_int, c_uint, c_void};

use crate::description::Overflow;

/// `struct pfm_deferral`, opaque to Rust: the notifier, timer and deferred work of a context.
#[repr(C)]
pub(crate) struct Deferral {
    _opaque: [u8; 0],
}

/// `struct pfc_cost_file`: a debugfs file in the directory perfmon/cpuN.
#[repr(C)]
pub(crate) struct CostFile {
    pub(crate) name: *const c_char,
    pub(crate) first: u16,
    pub(crate) second: u16,
}

/// `struct pfm_thread_entry`, opaque to Rust: an entry of the table of monitored threads.
#[repr(C)]
pub(crate) struct ThreadEntry {
    _opaque: [u8; 0],
}

/// The PMU registers and the core type of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuKind {
    /// The number of the kind, equal for all CPUs of the kind; 0 while no description of the
    /// hardware PMU is registered.
    pub(crate) id: u32,
    /// The core type of the CPU, from CPUID leaf 0x1a; 0 if the processor is not hybrid.
    pub(crate) core: u32,
    /// The hardware PMCs (control registers) that the CPU has: bit n is set if it has PMC n.
    pub(crate) pmcs: u64,
    /// The hardware PMDs (data registers) that the CPU has: bit n is set if it has PMD n.
    pub(crate) pmds: u64,
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
    pub(crate) fn pfc_costs_show(
        cpu: c_uint,
        files: *const CostFile,
        nr: c_uint,
        costs: *const *mut i64,
    );
    pub(crate) static pfm_loaded: [usize; 2];
    pub(crate) static pfm_counting: [u64; 2];
    pub(crate) static pfm_kind: CpuKind;
    pub(crate) fn pfm_kind_of(cpu: u32, kind: *mut CpuKind);
    pub(crate) fn pfm_kind_set(cpu: u32, kind: *const CpuKind);
    pub(crate) static pfm_reset_for: u64;
    pub(crate) fn pfm_reset_for_of(cpu: u32) -> u64;
    pub(crate) fn pfm_log_fault();
    pub(crate) fn pfm_log_lacking(cpu: c_int);
    pub(crate) fn pfm_msr_exists(msr: u32) -> bool;
    pub(crate) fn pfm_msr_keeps_value(msr: u32) -> bool;
    pub(crate) fn pfm_reserve_msr(msr: u32) -> bool;
    pub(crate) fn pfm_release_msr(msr: u32);
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
    pub(crate) fn pfm_deferral_new() -> *mut Deferral;
    pub(crate) fn pfm_deferral_free(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_free_context(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_attach(deferral: *mut Deferral, context: *const c_void);
    pub(crate) fn pfm_deferral_queue_work(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_queue_permission_check(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_start_timer(deferral: *mut Deferral, nanoseconds: u64);
    pub(crate) fn pfm_deferral_cancel_timer(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_block_thread(deferral: *mut Deferral, requester: *mut bindings::pid);
    pub(crate) fn pfm_deferral_resume(deferral: *mut Deferral);
    pub(crate) fn pfm_deferral_wake_blocked(deferral: *mut Deferral);
    pub(crate) fn pfm_fill_overflow(
        overflow: *mut Overflow,
        regs: *const bindings::pt_regs,
        ip: u64,
        kernel: bool,
        ns: *mut bindings::pid_namespace,
    );
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
}
