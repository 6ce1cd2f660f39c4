// SPDX-License-Identifier: GPL-2.0

//! Monitoring contexts: virtual PMU registers for one thread or one CPU.
//!
//! A context is *attached* to a thread or a CPU by `PERFMON_LOAD`. While the context counts, its
//! active event set is programmed into the PMU of at most one CPU. A context is *in a PMU* while
//! the registers of the PMU hold the current values of its active set. While a context is in a PMU,
//! [`Phase::pmu_cpu`] is the number of the CPU that has this PMU. A CPU writes `Phase::pmu_cpu`
//! only when its own PMU gets or loses the context, with interrupts off and the context's lock
//! held. `Phase::pmu_cpu` changes together with the per-CPU variables `loaded` and `counting` of
//! [`crate::per_cpu`]. Code that needs current register values takes the context's lock on the CPU
//! whose PMU holds the registers: see [`Context::with_state_on_access_cpu`].
//!
//! A hardware counter that no context in the PMU uses is kept at 0. Because unused counters are 0,
//! RDPMC does not show a thread the count of another thread. Values that perf left in a CPU's PMU
//! are cleared when the first context is programmed into that PMU (`reservation::reset_pmu_once`).
//! The reservation of the PMU sends no IPI.
//!
//! Lock order, outermost first: a context's `alloc_lock`, `SESSION`, `RESERVED_PMU_REGISTERS`, the
//! context's lock. The scheduler probes take the context's lock under a run-queue lock. Code that
//! holds the context's lock must therefore not take a run-queue lock, for example by waking a task.
//! CPU hotplug callbacks must not take `SESSION`, because the thread that holds `SESSION` may be
//! waiting for CPU hotplug in order to attach probes.

#![expect(
    unsafe_code,
    reason = "contexts by address, freed after a grace period"
)]

use core::iter::once;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::cred::Credential;
use kernel::ffi::c_void;
use kernel::new_mutex;
use kernel::pid_namespace::PidNamespace;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{Arc, Mutex};
use kernel::task::Task;
use perfmon_rules::abi::Message;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::error::Error;
use perfmon_rules::register_map::{RegisterMap, Scope};

use crate::contexts::blocker::Blocker;
use crate::contexts::deferral::Deferral;
use crate::contexts::event_set::{EventSet, EventSets};
use crate::contexts::phase::{Phase, Target};
use crate::contexts::sampling_state::Sampling;
use crate::contexts::thread_table::{self, ThreadEntry};
use crate::cpu_kinds::CpuFit;
use crate::per_cpu;
use crate::pmu_registers::PmuRegisters;
use crate::pmus::{self, current_registers};
use crate::sample_buffer::{SampleBuffer, SamplingMemory};
use crate::self_page_memory::{SelfPageMappings, SelfPageMemory};
use base::access::{self, AccessTargetSnapshot};
use base::account::MemoryCharge;
use base::cpu;
use base::lock::RawLock;

/// The mutable state of a [`Context`], protected by its lock.
pub(crate) struct ContextState {
    /// The active event set: the set whose registers are programmed into a PMU while the context
    /// counts.
    pub(crate) active_set: KBox<EventSet>,
    /// The inactive event sets, the order of all sets, and whether a switch to the next set is due.
    pub(crate) sets: EventSets,
    /// The target of the context, whether it is started, and the CPU whose PMU has its registers.
    pub(crate) phase: Phase,
    /// The thread that the context was last attached to. `PERFMON_UNLOAD` clears this field; the
    /// exit of the thread does not.
    pub(crate) thread: Option<ARef<Task>>,
    /// The CPUs on which the context can count, and the run time of the context's thread on other
    /// CPUs.
    pub(crate) cpu_fit: CpuFit,
    /// Set when an access to a PMU register has failed, so that the deferral's irq_work ends the
    /// context.
    pub(crate) has_register_fault: bool,
    /// The hardware registers that the context has claimed. Code that writes this field holds both
    /// `SESSION` and the context's lock.
    pub(crate) claims: RegisterMask,
    /// The self page (`struct perfmon_self`), allocated when it is first mapped.
    pub(crate) self_page: Option<SelfPageMemory>,
    /// The mappings of the self page, and whether the process that maps the self page may execute
    /// RDPMC.
    pub(crate) self_page_mappings: SelfPageMappings,
    /// The value of the time stamp counter when the self page was last written.
    pub(crate) self_page_update_tsc: u64,
    /// The context's entry in the table of monitored threads.
    pub(crate) thread_entry: Option<ThreadEntry>,
    /// Blocks the thread at overflows. The process that attached the context needs the permission
    /// to stop the thread. This permission is checked again before each `PERFMON_RESTART` and while
    /// the thread is blocked. `None` without the flag `PFM_FL_NOTIFY_BLOCK`.
    pub(crate) blocker: Option<Blocker>,
    /// The permission to watch the thread, or `None` if the process that attached the context
    /// cannot lose this permission.
    pub(crate) revocable_permission: Option<RevocablePermission>,
    /// If true, the permission to watch the thread has to be checked again: the deferral's irq_work
    /// queues a worker for this check.
    pub(crate) recheck_pending: bool,
    /// Set while [`init_claims_and_flush_perf`](Context::init_claims_and_flush_perf) has released
    /// the lock `SESSION`.
    pub(crate) is_clearing_perf_counters: bool,
    /// References to the modules of this context's PMU descriptions, to keep the modules loaded.
    pins: pmus::Pins,
    /// The mappable memory of the sampling buffer.
    sampling_memory: Option<Arc<SamplingMemory>>,
    /// The sampling buffer, the message queue, and whether the context is masked or throttled.
    pub(crate) sampling: Sampling,
}

/// Number of bytes that are charged for the file, the deferral and the sample values of a context.
const CONTEXT_OVERHEAD_BYTES: usize = 2048;

/// A monitoring context, which belongs to an open `/dev/perfmon` file.
#[pin_data]
pub(crate) struct Context {
    /// Wakes readers and defers work. `deferral` is the first field, so it is dropped first.
    /// Dropping `deferral` cancels the timer and the deferred work and waits for their callbacks,
    /// because the callbacks use the other fields of the context.
    pub(crate) deferral: Deferral,
    /// Whether this is the context of a thread or of a CPU.
    pub(crate) scope: Scope,
    /// True if the creator of the context was allowed to monitor the kernel. Only then can samples
    /// contain kernel addresses.
    pub(crate) may_monitor_kernel: bool,
    /// The flag `PFM_FL_OVFL_NO_MSG`: overflows queue no messages.
    pub(crate) no_overflow_messages: bool,
    /// The flag `PFM_FL_NOTIFY_BLOCK`: an overflow that masks the context blocks the monitored
    /// thread until `PERFMON_RESTART`.
    pub(crate) notify_block: bool,
    /// The PMU descriptions that were registered when the context was created.
    pub(crate) pmu_registers: Arc<PmuRegisters>,
    /// The bytes that are charged to the creator of this context.
    pub(crate) charge: MemoryCharge,
    /// The creator's PID namespace. The PIDs and TIDs in samples and messages are numbers of this
    /// namespace.
    pub(crate) ns: ARef<PidNamespace>,
    /// Address of the MSR that enables all counters (global control); 0 if the PMU has no such MSR.
    pub(crate) global_ctrl_address: u64,
    /// A mutex, held while memory for registers and event sets is allocated. No other lock of this
    /// module is held during the allocation.
    #[pin]
    pub(crate) alloc_lock: Mutex<()>,
    #[pin]
    pub(crate) state: RawLock<ContextState>,
}

/// Arguments of [`Context::new`], checked by `PERFMON_CREATE` and `PERFMON_CREATE_FORMAT`.
pub(crate) struct ContextConfig {
    /// Whether the context is for a thread or a CPU.
    pub(crate) scope: Scope,
    /// See [`Context::no_overflow_messages`].
    pub(crate) no_overflow_messages: bool,
    /// See [`Context::notify_block`].
    pub(crate) notify_block: bool,
    /// The core type (of a hybrid processor) on which the context counts; 0: any core type.
    pub(crate) core_type: u32,
    /// The sampling buffer and its memory, or `None` for a context without a sampling format.
    pub(crate) buffer: Option<(SampleBuffer, Arc<SamplingMemory>)>,
}

/// The permission to watch a thread, if the process that attached the context can lose it.
pub(crate) struct RevocablePermission {
    /// The credentials of the process that attached the context.
    pub(crate) cred: ARef<Credential>,
    /// The credentials and the dumpability that the thread had when the permission was last
    /// checked.
    pub(crate) access_snapshot: AccessTargetSnapshot,
}

impl Context {
    /// Creates a detached, stopped context with an empty event set 0. May sleep. Returns `EBUSY` if
    /// no PMU description is registered. Other errors are `EDQUOT`, `ESRCH` and `ENOMEM`.
    pub(crate) fn new(kind: ContextConfig) -> Result<Arc<Self>> {
        let nr_slots = Sampling::nr_message_slots(kind.buffer.as_ref().map(|(buffer, _)| buffer));
        let queue_bytes = nr_slots.saturating_mul(size_of::<Message>());
        let bytes = size_of::<Self>().saturating_add(CONTEXT_OVERHEAD_BYTES);
        let charge = MemoryCharge::of_new_context(bytes.saturating_add(queue_bytes))?;
        let ns = ARef::from(current!().active_pid_ns().ok_or(ESRCH)?);
        let (pmu_registers, pins) = current_registers()?;
        let global_ctrl_address = pmu_registers.as_map().global_ctrl;
        let (buffer, areas) = match kind.buffer {
            Some((buffer, areas)) => (Some(KBox::new(buffer, GFP_KERNEL_ACCOUNT)?), Some(areas)),
            None => (None, None),
        };
        let active_set = EventSet::new(0, &charge)?;
        let (sets, sampling) = (EventSets::new()?, Sampling::new(buffer)?);
        let context = Arc::pin_init(
            try_pin_init!(Self {
                deferral: Deferral::new()?,
                scope: kind.scope,
                may_monitor_kernel: access::may_monitor_kernel(),
                no_overflow_messages: kind.no_overflow_messages,
                notify_block: kind.notify_block,
                pmu_registers,
                charge,
                ns,
                global_ctrl_address,
                alloc_lock <- new_mutex!(()),
                state <- RawLock::new(init!(ContextState {
                    active_set,
                    sets,
                    phase: Phase::NEW,
                    thread: None,
                    cpu_fit: CpuFit {
                        core_type: kind.core_type,
                        ..CpuFit::default()
                    },
                    has_register_fault: false,
                    claims: RegisterMask::NONE,
                    self_page: None,
                    self_page_mappings: SelfPageMappings::default(),
                    self_page_update_tsc: 0,
                    thread_entry: None,
                    blocker: None,
                    revocable_permission: None,
                    recheck_pending: false,
                    is_clearing_perf_counters: false,
                    pins,
                    sampling_memory: areas,
                    sampling,
                })),
            }? kernel::error::Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        context.deferral.attach(context.address());
        Ok(context)
    }

    /// Returns the mappable memory of the sampling buffer.
    pub(crate) fn sampling_memory(&self) -> Option<Arc<SamplingMemory>> {
        self.state.lock().sampling_memory.clone()
    }

    /// Frees a detached context whose file is closed. Releases the sampling buffer and the
    /// references to the modules of PMU descriptions before it returns. A worker frees the
    /// `Context` structure after an RCU grace period, because a scheduler probe may still use it.
    pub(crate) fn free_detached(self: Arc<Self>) {
        let given = {
            let mut state = self.state.lock();
            (
                core::mem::replace(&mut state.pins, KVec::new()),
                state.sampling_memory.take(),
                state.sampling.buffer.take(),
            )
        };
        drop(given);
        let context = Arc::into_raw(self);
        // SAFETY: `context` is the reference that `Arc::into_raw()` returned. The reference stays
        // valid until the worker that `put_context_rcu()` queues drops the reference.
        // `put_context_rcu()` is called once for each context, when the file of the context is
        // closed.
        unsafe { (*context).deferral.put_context_rcu() }
    }

    /// Returns the address of the context. The per-CPU words, the table of monitored threads and
    /// the deferral contain this address.
    #[inline]
    pub(crate) fn address(&self) -> *const c_void {
        core::ptr::from_ref(self).cast()
    }

    /// Calls `function` with the context's lock held. `function` runs on the CPU that
    /// [`ContextState::state_access_cpu`] returns, or on this CPU if `state_access_cpu` returns
    /// `None`. Called in process context.
    pub(crate) fn with_state_on_access_cpu(&self, function: &mut dyn FnMut(&mut ContextState)) {
        loop {
            let elsewhere = {
                let mut state = self.state.lock();
                match state
                    .state_access_cpu()
                    .filter(|cpu| *cpu != cpu::this_cpu())
                {
                    Some(cpu) => cpu,
                    None => return function(&mut state),
                }
            };
            let mut done = false;
            cpu::call_on_cpu(elsewhere, &mut || {
                let mut state = self.state.lock();
                // The thread may have been switched out or have moved to another CPU since
                // `state_access_cpu()` was called above.
                if state
                    .state_access_cpu()
                    .is_none_or(|cpu| cpu == cpu::this_cpu())
                {
                    function(&mut state);
                    done = true;
                }
            });
            if done {
                return;
            }
        }
    }

    /// Calls `function` like [`with_state_on_access_cpu`](Self::with_state_on_access_cpu), but
    /// sends no IPI for the context of a CPU. Returns `OtherCpu` if the context is attached to a
    /// CPU other than this one.
    pub(crate) fn with_state_unless_other_cpu(
        &self,
        function: &mut dyn FnMut(&mut ContextState),
    ) -> Result<(), Error> {
        if self.scope == Scope::Thread {
            self.with_state_on_access_cpu(function);
            return Ok(());
        }
        let mut state = self.state.lock();
        self.check_cpu(&state)?;
        function(&mut state);
        Ok(())
    }

    /// Returns the result of [`check_cpu`](Self::check_cpu), which is valid while preemption is
    /// off.
    pub(crate) fn check_caller_cpu(&self) -> Result<(), Error> {
        self.check_cpu(&self.state.lock())
    }

    /// Returns `OtherCpu` if the context is attached to a CPU other than this one.
    fn check_cpu(&self, state: &ContextState) -> Result<(), Error> {
        match state.state_access_cpu() {
            Some(cpu) if self.scope == Scope::System && cpu != cpu::this_cpu() => {
                Err(Error::OtherCpu)
            }
            _ => Ok(()),
        }
    }
}

impl ContextState {
    /// Returns the CPU on which the state must be accessed, or `None` if any CPU may access the
    /// state.
    pub(crate) fn state_access_cpu(&self) -> Option<u32> {
        match self.phase.target() {
            Target::Cpu(cpu) => Some(cpu),
            _ => self.phase.pmu_cpu(),
        }
    }

    /// Permits a thread that the context has blocked to continue ([`Blocker::allow_resume`]).
    pub(crate) fn allow_thread_to_resume(&self) {
        if let Some(blocker) = &self.blocker {
            blocker.allow_resume();
        }
    }

    /// Iterates over all event sets of the context, the active set first.
    pub(crate) fn each_set(&self) -> impl Iterator<Item = &EventSet> {
        let others = self
            .sets
            .slots
            .iter()
            .filter_map(|slot| slot.set.as_deref());
        Iterator::chain(once(&*self.active_set), others)
    }

    /// Iterates over all event sets of the context by mutable reference, the active set first.
    pub(crate) fn each_set_mut(&mut self) -> impl Iterator<Item = &mut EventSet> {
        let slots = self.sets.slots.iter_mut();
        Iterator::chain(
            once(&mut *self.active_set),
            slots.filter_map(|slot| slot.set.as_deref_mut()),
        )
    }

    /// Returns the hardware registers that all event sets together claim.
    pub(crate) fn claimed_registers_of_all_sets(&self, map: &RegisterMap<'_>) -> RegisterMask {
        self.each_set().fold(RegisterMask::NONE, |all, set| {
            all.union(&set.registers.claimed_registers(map, RegisterMask::NONE))
        })
    }

    /// Returns the event set with the number `id`, or `None` if no event set has this number.
    pub(crate) fn find_set(&self, id: u16) -> Option<&EventSet> {
        if self.active_set.id == id {
            return Some(&self.active_set);
        }
        let place = self.sets.index_of(id)?;
        self.sets.slots.get(place)?.set.as_deref()
    }

    /// Returns a mutable reference to the event set with the number `id`, or `None` if no event set
    /// has this number.
    pub(crate) fn find_set_mut(&mut self, id: u16) -> Option<&mut EventSet> {
        if self.active_set.id == id {
            return Some(&mut self.active_set);
        }
        let place = self.sets.index_of(id)?;
        self.sets.slots.get_mut(place)?.set.as_deref_mut()
    }
}

/// Returns this CPU's context of the scope `scope`. `Scope::Thread` selects the current thread's
/// context that is programmed into this CPU's PMU. `Scope::System` selects the context that is
/// attached to this CPU. Called with interrupts or preemption off.
#[inline]
pub(crate) fn loaded_or_attached_context<'a>(scope: Scope) -> Option<&'a Context> {
    // SAFETY: The per-CPU word is 0 or the address of a context. A context is freed one RCU grace
    // period after its removal from the per-CPU word, so it is valid while preemption is off.
    unsafe { (per_cpu::loaded_or_attached_address(scope) as *const Context).as_ref() }
}

/// Finds the context of a task. Preemption must stay off while the result is used. Another CPU may
/// detach the context meanwhile, and even attach it to another task. The caller therefore checks
/// the context's target under the context's lock.
#[inline]
pub(crate) fn context_of_task<'a>(task: usize) -> Option<&'a Context> {
    // SAFETY: The table has addresses of contexts. A context is freed one RCU grace period after
    // its entry was removed (`Deferral::put_context_rcu`). The context is therefore valid while
    // preemption is off.
    unsafe {
        thread_table::context_address(task)
            .cast::<Context>()
            .as_ref()
    }
}
