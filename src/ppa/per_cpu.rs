// SPDX-License-Identifier: GPL-2.0

//! The per-CPU state of accounting.

#![expect(unsafe_code, reason = "per-CPU memory, and a per-CPU word of C")]

use core::arch::asm;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use ppa_rules::Cpu;
use protocols::sync::Word;

use crate::helpers;
use crate::task_record::TaskRecord;
use base::clock::Clock;
use base::{cpu, rcu};

/// The accounting state of a CPU, and the record of the task that runs on the CPU.
#[repr(C, align(64))]
pub(crate) struct PerCpu {
    pub(crate) cpu_state: Cpu,
    task: Word,
    pub(crate) clock: Clock,
}

impl PerCpu {
    /// Returns the accounting state of this CPU; `None` while accounting is off. The caller keeps
    /// preemption off while it uses the state, which is freed after a grace period.
    #[inline(always)]
    pub(crate) fn this_cpu<'a>() -> Option<&'a Self> {
        let here: usize;
        // SAFETY: `ppa_percpu` is 0 or the address of this CPU's element of [`PerCpuTable`]. The
        // drop of the table clears `ppa_percpu`, and waits for all code with preemption off.
        unsafe {
            asm!("movq %gs:{p}, {h}", p = sym helpers::ppa_percpu,
                h = out(reg) here, options(att_syntax, nostack, readonly, preserves_flags));
            (here as *const Self).as_ref()
        }
    }

    /// Returns the accounting state of an offline CPU; the CPU itself does not use it. The caller
    /// keeps preemption off while it uses the state.
    pub(crate) fn of_offline_cpu<'a>(cpu: u32) -> Option<&'a Self> {
        // SAFETY: `cpu` is the number of a CPU. The word `ppa_percpu` of a CPU is 0 or the address
        // of the CPU's element of [`PerCpuTable`]. The drop of the table clears `ppa_percpu` of
        // each CPU, and waits for all code with preemption off.
        unsafe { (helpers::ppa_percpu_of(cpu) as *const Self).as_ref() }
    }

    /// Returns the record of the task that runs on this CPU. Called with preemption off.
    #[inline(always)]
    pub(crate) fn task<'a>(&self) -> Option<&'a TaskRecord> {
        // SAFETY: `self.task` is 0 or the address of a record. A record is freed a grace period
        // after its removal from the index, and `self.task` has changed before this grace period
        // ends. The last switch of a task sets `self.task` to the record of the next task before it
        // removes the old record. `AccountingState::replace_record()` runs
        // `refresh_current_record()` on this CPU before it passes the old record to RCU.
        // `AccountingState::remove_if_dead()` removes the record of a task that has turned
        // preemption off for its last switch, so the grace period cannot end before this switch.
        unsafe { (self.task.load_relaxed() as *const TaskRecord).as_ref() }
    }

    /// Returns whether the task that runs on this CPU is a ksoftirqd thread. Called with preemption
    /// off.
    #[inline(always)]
    pub(crate) fn is_softirqd(&self) -> bool {
        self.task().is_some_and(|record| record.is_softirqd)
    }

    /// Sets the record of the task that runs on this CPU; `None` if the task is not accounted.
    /// Called with interrupts off.
    #[inline(always)]
    pub(crate) fn set_task(&self, record: Option<&TaskRecord>) {
        let address = record.map_or(0, |r| core::ptr::from_ref(r) as u64);
        self.task.store_relaxed(address);
    }
}

/// The accounting states of all CPUs.
///
/// # Invariants
///
/// Each CPU's pointer (`ppa_percpu`) is null or points to the element of that CPU. Elements do not
/// move.
pub(crate) struct PerCpuTable(KVVec<PerCpu>);

impl PerCpuTable {
    /// Allocates the accounting states of all CPUs. The probes do not use the states before
    /// [`set_percpu_pointers`](Self::set_percpu_pointers). May sleep.
    pub(crate) fn new(clock: Clock) -> Result<Self> {
        let mut all = KVVec::with_capacity(cpu::nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..cpu::nr_cpu_ids() {
            let here = PerCpu {
                cpu_state: Cpu::new(cpu),
                task: Word::new(0),
                clock,
            };
            all.push(here, GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// Sets `ppa_percpu` of each CPU to the address of the CPU's element. The elements of the table
    /// are on the heap and do not move.
    pub(crate) fn set_percpu_pointers(&self) {
        for (here, cpu) in self.0.iter().zip(0..) {
            // SAFETY: `cpu` is the number of a CPU. The drop of the table clears the CPU's pointer
            // before it frees the elements of the table.
            unsafe { helpers::ppa_set_percpu(cpu, core::ptr::from_ref(here).cast_mut().cast()) };
        }
    }

    /// Returns the accounting state of a CPU.
    #[inline]
    pub(crate) fn cpu(&self, cpu: u32) -> Option<&PerCpu> {
        self.0.get(cpu as usize)
    }
}

impl Drop for PerCpuTable {
    fn drop(&mut self) {
        // `synchronize()` waits for CPU hotplug callbacks that still use an element of the table.
        // The probes are detached already.
        for cpu in 0..cpu::nr_cpu_ids() {
            // SAFETY: `cpu` is the number of a CPU.
            unsafe { helpers::ppa_set_percpu(cpu, core::ptr::null_mut()) };
        }
        rcu::synchronize();
    }
}
