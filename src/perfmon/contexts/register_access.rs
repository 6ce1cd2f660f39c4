// SPDX-License-Identifier: GPL-2.0

//! Writes and reads the registers of event sets, for `PERFMON_WRITE_PMCS`, `PERFMON_WRITE_PMDS` and
//! `PERFMON_READ_PMDS`. A PMC is a control register, a PMD a data register. The file also reads
//! virtual counters, whose values kernel code computes, and which have no register in the PMU.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use perfmon_rules::abi::{Pmc, Pmd};
use perfmon_rules::error::Error;
use perfmon_rules::event_sets::RunningMoments;
use perfmon_rules::period::{is_virtual_non_counter, SamplingAttributes};
use perfmon_rules::program::VirtualCounter;
use perfmon_rules::register_map::{kind, Scope};
use perfmon_rules::registers::REGFL_SHORT;

use crate::contexts::context::{Context, ContextState};
use crate::contexts::cpu_fit;
use crate::contexts::event_set::{alloc_register_memory, EventSet, RegisterRequest};
use crate::contexts::phase::Target;
use crate::pmus::to_kernel_error;
use crate::session::SESSION;
use base::preempt;

/// A value that a call writes to a register of an event set.
trait RegisterWrite {
    /// Returns the number of the event set.
    fn set_id(&self) -> u16;

    /// Adds the registers that the write uses to `request`.
    fn add_to(&self, request: &mut RegisterRequest);
}

impl RegisterWrite for Pmc {
    fn set_id(&self) -> u16 {
        self.reg_set
    }

    fn add_to(&self, request: &mut RegisterRequest) {
        request.pmcs.set(self.reg_num.into());
    }
}

impl RegisterWrite for Pmd {
    fn set_id(&self) -> u16 {
        self.reg_set
    }

    fn add_to(&self, request: &mut RegisterRequest) {
        request.pmds.set(self.reg_num.into());
        request.pmds.add(&self.reg_smpl_pmds);
        request.pmds.add(&self.reg_reset_pmds);
        request.written_pmds.set(self.reg_num.into());
    }
}

/// Returns the numbers of the event sets of `writes`. If writes of one event set are not next to
/// each other, its number is returned several times.
fn set_ids<W: RegisterWrite>(writes: &[W]) -> impl Iterator<Item = u16> + '_ {
    let mut last = None;
    writes
        .iter()
        .map(W::set_id)
        .filter(move |id| last.replace(*id) != Some(*id))
}

/// Returns the registers that `writes` use in the event set `id`.
fn requested_registers<W: RegisterWrite>(writes: &[W], id: u16) -> RegisterRequest {
    let mut request = RegisterRequest::default();
    for write in writes.iter().filter(|write| write.set_id() == id) {
        write.add_to(&mut request);
    }
    request
}

impl Context {
    /// Writes PMCs. The caller has checked the PMC values with `check_pmc`. See
    /// [`write_registers`](Self::write_registers) for errors.
    pub(crate) fn write_pmcs(&self, values: &[Pmc]) -> Result {
        self.write_registers(values, &mut |state, pmc| {
            if let Some(set) = state.find_set_mut(pmc.reg_set) {
                set.registers
                    .set_pmc(pmc.reg_num, pmc.reg_flags, pmc.reg_value);
            }
        })
    }

    /// Writes PMDs. The caller has checked that the PMDs in `values` exist. See
    /// [`write_registers`](Self::write_registers) for errors.
    pub(crate) fn write_pmds(&self, values: &[Pmd]) -> Result {
        let map = self.pmu_registers.as_map();
        let in_format = self.sampling_memory().is_some();
        self.write_registers(values, &mut |state, pmd| {
            if state.active_set.id == pmd.reg_set {
                state.sampling.pmds_to_reset_at_restart.clear(pmd.reg_num);
            }
            let Some(set) = state.find_set_mut(pmd.reg_set) else {
                return;
            };
            set.registers.set_pmd(&map, pmd.reg_num, pmd.reg_value);
            let counts = map.pmd(pmd.reg_num).is_some_and(|r| r.is(kind::COUNTER));
            let samples = counts && (in_format || pmd.is_sampling());
            set.registers.set_armed(pmd.reg_num, samples);
            if samples {
                set.set_sampling_pmd(SamplingAttributes::new(&map, pmd));
            } else if counts {
                set.record_counting_pmd_write(pmd.reg_num);
            }
            set.registers.mark_pmds_used(&pmd.reg_smpl_pmds);
            set.registers.mark_pmds_used(&pmd.reg_reset_pmds);
        })
    }

    /// Allocates memory in the event set `id` for the registers `more`, which are about to be
    /// written. Caller holds `alloc_lock`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the event set does not exist, `EDQUOT`, `ENOMEM`.
    fn grow_set(&self, id: u16, more: &RegisterRequest) -> Result {
        let (needs, attrs, moments, charged) = {
            let state = self.state.lock();
            let set = state
                .find_set(id)
                .ok_or_else(|| to_kernel_error(Error::NoSet))?;
            let map = self.pmu_registers.as_map();
            let needs = set.registers.memory_needed(&map, &more.pmcs, &more.pmds);
            let (mut attrs, mut moments) = (more.written_pmds, more.written_pmds);
            set.attrs.iter().for_each(|a| attrs.set(a.pmd.into()));
            set.run_moments
                .iter()
                .for_each(|m| moments.set(m.pmd.into()));
            let (attrs, moments) = (attrs.count(), moments.count());
            if needs == set.registers.memory_size()
                && attrs <= set.attrs.capacity()
                && moments <= set.run_moments.capacity()
            {
                return Ok(());
            }
            (needs, attrs, moments, set.charge.bytes())
        };
        let bytes = EventSet::OVERHEAD_BYTES
            .saturating_add(needs.bytes())
            .saturating_add(attrs.saturating_mul(size_of::<SamplingAttributes>()))
            .saturating_add(moments.saturating_mul(size_of::<RunningMoments>()));
        let mut charge = self
            .charge
            .charge_same_user(bytes.saturating_sub(charged))?;
        let mut room = alloc_register_memory(&needs)?;
        let mut attrs = KVec::with_capacity(attrs, GFP_KERNEL_ACCOUNT)?;
        let mut moments = KVec::with_capacity(moments, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if let Some(set) = state.find_set_mut(id) {
            set.charge.absorb(&mut charge);
            set.move_to_larger_memory(&mut room, &mut attrs, &mut moments);
        }
        // Free the old memory of the event set only after the context's lock was released.
        drop(state);
        drop((charge, room, attrs, moments));
        Ok(())
    }

    /// Stops the context, writes registers by calling `apply` for each element of `writes`, and
    /// starts the context again if it was started. The work with the context's lock held does not
    /// depend on the number of event sets that are not written.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if an event set does not exist. Returns `EBUSY` if a register is in use, or
    /// if the context is attached to a CPU on which the caller does not run. Also returns `EBUSY`
    /// if this CPU is too busy for
    /// [`init_claims_and_flush_perf`](Self::init_claims_and_flush_perf), or if another call for
    /// this context is in `init_claims_and_flush_perf`. Returns `ENODEV` if none of the CPUs on
    /// which the context may count has all registers of the context. Other errors: `EDQUOT`,
    /// `ENOMEM`.
    fn write_registers<W: RegisterWrite>(
        &self,
        writes: &[W],
        apply: &mut dyn FnMut(&mut ContextState, &W),
    ) -> Result {
        let map = self.pmu_registers.as_map();
        let _growing = self.alloc_lock.lock();
        for id in set_ids(writes) {
            self.grow_set(id, &requested_registers(writes, id))?;
        }
        let mut session = SESSION.lock();
        let (attached, old, claims, uses, (core, cpu)) = {
            let state = self.state.lock();
            if state.is_clearing_perf_counters {
                return Err(EBUSY);
            }
            // Claim no further registers for a context whose target has ended, because the context
            // does not count until it is attached again. A detached context claims its registers
            // when it is attached.
            let attached = !matches!(state.phase.target(), Target::Detached | Target::Dead);
            let (mut claims, mut uses) = (state.claims, state.cpu_fit.required_registers);
            for id in set_ids(writes).filter(|_| attached) {
                let more = requested_registers(writes, id).hardware_registers();
                if let Some(set) = state.find_set(id) {
                    claims = claims.union(&set.registers.claimed_registers(&map, more));
                    uses = uses.union(&set.registers.required_registers(&map, more));
                }
            }
            let place = (state.cpu_fit.core_type, state.phase.target().cpu());
            (attached, state.claims, claims, uses, place)
        };
        if attached && !cpu_fit::can_count(&uses, core, cpu) {
            cpu_fit::log_missing_registers(cpu);
            return Err(ENODEV);
        }
        session.replace_claimed_registers(self.scope, &self.pmu_registers, &old, &claims)?;
        // init_claims_and_flush_perf() uses `number` only for a context that is attached to a CPU
        // and that has claimed no register yet.
        let number = cpu.unwrap_or(u32::MAX);
        let (mut session, ready) = self.init_claims_and_flush_perf(session, number, claims);
        // Turn preemption off for the context of a CPU, so that with_state_unless_other_cpu()
        // cannot fail after other contexts were evicted.
        let stays = (self.scope == Scope::System).then(preempt::NoPreempt::new);
        let here = ready.and_then(|()| self.check_caller_cpu().map_err(to_kernel_error));
        if here.is_ok() {
            session.evict_other_scope(self.scope, &claims);
        }
        let written = here.and_then(|()| {
            self.with_state_unless_other_cpu(&mut |state| {
                let (started, inside) = (state.phase.is_started(), state.phase.pmu_cpu().is_some());
                self.stop_counting(state);
                for write in writes {
                    apply(state, write);
                }
                for id in set_ids(writes) {
                    if let Some(set) = state.find_set_mut(id) {
                        set.registers.build_program(&map, self.scope);
                    }
                }
                state.claims = claims;
                state.cpu_fit.set_required_registers(uses);
                if started {
                    self.start_counting(state);
                }
                match inside {
                    true => self.load_pmu_if_active(state),
                    false => state.update_self_page(false),
                }
            })
            .map_err(to_kernel_error)
        });
        drop(stays);
        written.inspect_err(|_| {
            self.state.lock().claims = old;
            // replace_claimed_registers() cannot fail here, because `claims` contains all registers
            // of `old`.
            let _ =
                session.replace_claimed_registers(self.scope, &self.pmu_registers, &claims, &old);
        })
    }

    /// Reads the PMDs in `pmds` and stores the results in `reg_value`, `reg_flags` and
    /// `reg_last_reset_val`. The caller has checked that the PMDs exist.
    ///
    /// # Errors
    ///
    /// `EINVAL` if an event set does not exist, `EBUSY` if the context is attached to a CPU on
    /// which the caller does not run.
    pub(crate) fn read_pmds(&self, pmds: &mut [Pmd]) -> Result {
        let map = self.pmu_registers.as_map();
        let value_of = |number| map.pmd(number).filter(|row| is_virtual_non_counter(row));
        let any = pmds.iter().any(|pmd| value_of(pmd.reg_num).is_some());
        let (mut thread, mut done) = (None, Ok(()));
        self.with_state_unless_other_cpu(&mut |state| {
            if pmds.iter().any(|pmd| state.find_set(pmd.reg_set).is_none()) {
                done = Err(Error::NoSet);
                return;
            }
            self.sync_and_deliver(state);
            if any && self.scope == Scope::Thread {
                thread = state.thread.clone();
            }
            for pmd in pmds.iter_mut() {
                let Some(set) = state.find_set(pmd.reg_set) else {
                    continue;
                };
                pmd.reg_flags = pmd.reg_flags & !REGFL_SHORT
                    | set.registers.short_flag_if_incomplete(pmd.reg_num);
                if let Some(attr) = set.attr(pmd.reg_num) {
                    pmd.reg_last_reset_val = attr.last_reset;
                }
                pmd.reg_value = match value_of(pmd.reg_num) {
                    // Virtual registers are read below, without the context's lock, because the
                    // read() function of their PMU description can take long. Until a virtual
                    // register is read, `reg_value` holds the value of the PMC that controls the
                    // virtual register.
                    Some(register) => set.registers.soft_control_value(&map, register),
                    None => set.registers.pmd_user_value(&map, pmd.reg_num),
                };
            }
        })
        .and(done)
        .map_err(to_kernel_error)?;
        if any {
            for pmd in pmds.iter_mut() {
                if let Some(register) = value_of(pmd.reg_num) {
                    let (address, control) = (register.address, pmd.reg_value);
                    pmd.reg_value = self.pmu_registers.read_virtual_register(
                        pmd.reg_num,
                        address,
                        control,
                        thread.as_deref(),
                        &self.ns,
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns the current value of the context's virtual counter that `growth` describes.
    #[inline]
    pub(crate) fn read_virtual_counter(
        &self,
        growth: &VirtualCounter,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        self.read_virtual_register(growth.pmd, growth.address, growth.control, thread)
    }

    /// Reads a virtual register by calling the read function of its PMU description, for the
    /// context's thread or, if this is the context of a CPU, for this CPU.
    #[inline]
    pub(crate) fn read_virtual_register(
        &self,
        pmd: u16,
        address: u64,
        control: u64,
        thread: Option<&ARef<Task>>,
    ) -> u64 {
        let thread = thread.filter(|_| self.scope == Scope::Thread);
        self.pmu_registers.read_virtual_register(
            pmd,
            address,
            control,
            thread.map(|t| &**t),
            &self.ns,
        )
    }

    /// If the context is started and not masked, updates the virtual counters with
    /// `PERFMON_REG_TASK`, which count for the thread even while the context is in no PMU.
    #[inline]
    pub(crate) fn sync_thread_counters(&self, state: &mut ContextState) {
        let thread = &state.thread;
        if state.phase.is_started() && !state.sampling.masked {
            state
                .active_set
                .registers
                .sync_virtual_counters(true, move |g| {
                    self.read_virtual_counter(g, thread.as_ref())
                });
        }
    }

    /// Makes the virtual counters with `PERFMON_REG_TASK` count from their current values.
    pub(crate) fn start_thread_counters(&self, state: &mut ContextState) {
        let thread = state.thread.as_ref();
        state
            .active_set
            .registers
            .start_virtual_counters(true, |g| self.read_virtual_counter(g, thread));
    }
}
