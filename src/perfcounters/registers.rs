// SPDX-License-Identifier: GPL-2.0

//! Writing and reading the registers of event sets, for `PERFMON_WRITE_PMCS`, `PERFMON_WRITE_PMDS`
//! and `PERFMON_READ_PMDS`.

use engine::calls::{Pmc, Pmd};
use engine::context::{Error, SHORT};
use engine::pmu::{kind, Scope};
use engine::sampling::{is_virtual, Attr};
use kernel::prelude::*;

use crate::contexts::{Context, State};
use crate::kinds;
use crate::pmu::refused;
use crate::session::Session;
use crate::sets::Asked;
use crate::sys::lock::SESSION;
use crate::sys::{msr, sched};
use crate::target::Target;

impl Context {
    /// Writes PMCs. The values have passed `check_pmc`. See [`write`](Self::write) for errors.
    pub(crate) fn write_pmcs(&self, values: &[Pmc]) -> Result {
        let more = |id| {
            let mut more = Asked::default();
            for pmc in values.iter().filter(|pmc| pmc.reg_set == id) {
                more.pmcs.set(pmc.reg_num.into());
            }
            more
        };
        let _growing = self.growing.lock();
        self.make_rooms(&mut values.iter().map(|pmc| pmc.reg_set), &more)?;
        let mut session = SESSION.lock();
        let touches = |id| values.iter().any(|pmc| pmc.reg_set == id);
        self.write(&mut session, &touches, &more, &mut |state| {
            for pmc in values {
                if let Some(set) = state.find_set_mut(pmc.reg_set) {
                    set.registers
                        .set_pmc(pmc.reg_num, pmc.reg_flags, pmc.reg_value);
                }
            }
        })
    }

    /// Writes PMDs, whose numbers exist. See [`write`](Self::write) for errors.
    pub(crate) fn write_pmds(&self, values: &[Pmd]) -> Result {
        let map = self.registers.map();
        let more = |id| {
            let mut more = Asked::default();
            for pmd in values.iter().filter(|pmd| pmd.reg_set == id) {
                more.pmds.set(pmd.reg_num.into());
                more.pmds.add(&pmd.reg_smpl_pmds);
                more.pmds.add(&pmd.reg_reset_pmds);
                more.own.set(pmd.reg_num.into());
            }
            more
        };
        let _growing = self.growing.lock();
        self.make_rooms(&mut values.iter().map(|pmd| pmd.reg_set), &more)?;
        let mut session = SESSION.lock();
        let in_format = self.areas().is_some();
        let touches = |id| values.iter().any(|pmd| pmd.reg_set == id);
        self.write(&mut session, &touches, &more, &mut |state| {
            for pmd in values {
                if state.set.id == pmd.reg_set {
                    state.sampling.ended.clear(pmd.reg_num);
                }
                let Some(set) = state.find_set_mut(pmd.reg_set) else {
                    continue;
                };
                set.registers.set_pmd(&map, pmd.reg_num, pmd.reg_value);
                let counts = map.pmd(pmd.reg_num).is_some_and(|r| r.is(kind::COUNTER));
                let samples = counts && (in_format || pmd.is_sampling());
                set.registers.set_armed(pmd.reg_num, samples);
                if samples || set.attr(pmd.reg_num).is_some() {
                    set.sample(Attr::new(&map, pmd));
                } else if counts {
                    set.count(pmd.reg_num);
                }
                set.registers.use_pmds(&pmd.reg_smpl_pmds);
                set.registers.use_pmds(&pmd.reg_reset_pmds);
            }
        })
    }

    /// Makes room in each of these sets. `growing` is held.
    fn make_rooms(
        &self,
        sets: &mut dyn Iterator<Item = u16>,
        more: &dyn Fn(u16) -> Asked,
    ) -> Result {
        let mut last = None;
        for id in sets {
            if last.replace(id) != Some(id) {
                self.make_room(id, &more(id))?;
            }
        }
        Ok(())
    }

    /// Changes registers with `function`, while the context is in no PMU, and programs the context
    /// again. `touches` returns whether a set is changed, `more` which registers are added to it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a register is in use, if the context is being attached, or if the caller is on
    /// another CPU than the one that the context is attached to; `ENODEV` if no CPU has all
    /// registers.
    fn write(
        &self,
        session: &mut Session,
        touches: &dyn Fn(u16) -> bool,
        more: &dyn Fn(u16) -> Asked,
        function: &mut dyn FnMut(&mut State),
    ) -> Result {
        let map = self.registers.map();
        let (attached, old, new, uses, (core, cpu)) = {
            let state = self.state.lock();
            if state.loading {
                return Err(EBUSY);
            }
            let new = state.claims_with(&map, |id| more(id).claims());
            // A context whose target has ended claims nothing: it does not count until it is
            // attached again.
            let attached = !matches!(state.target, Target::None | Target::Ended);
            let uses = state.uses_with(&map, |id| more(id).claims());
            let place = (state.elsewhere.core(), state.target.cpu());
            (attached, state.claims, new, uses, place)
        };
        if attached && !kinds::can_count(&uses, core, cpu) {
            msr::say_lacking(cpu);
            return Err(ENODEV);
        }
        let counted = if attached { new } else { old };
        session.claim(self.scope(), &self.registers, &old, &counted)?;
        // The caller stays on this CPU, so that call() is not refused after contexts were evicted.
        let stays = (self.scope() == Scope::System).then(sched::NoPreempt::new);
        let here = self.is_callable();
        if here.is_ok() {
            session.evict(self.scope(), &counted);
        }
        let written = here.and_then(|()| {
            self.call(&mut |state| {
                let (started, inside) = (state.started, state.cpu.is_some());
                self.halt(state);
                function(state);
                for set in state.each_set_mut().filter(|set| touches(set.id)) {
                    set.registers.build_program(&map, self.scope());
                }
                state.claims = counted;
                state.elsewhere.set_uses(uses);
                if started {
                    self.resume(state);
                }
                match inside {
                    true => self.enter_if_it_counts(state),
                    false => state.publish(false),
                }
            })
        });
        drop(stays);
        written
            .inspect_err(|_| {
                // The old claims can be taken back without failure.
                let _ = session.claim(self.scope(), &self.registers, &counted, &old);
            })
            .map_err(refused)
    }

    /// Reads PMDs, whose numbers exist: into `reg_value`, `reg_flags` and `reg_last_reset_val`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a set does not exist, `EBUSY` if the caller is on another CPU than the one that
    /// the context is attached to.
    pub(crate) fn read_pmds(&self, pmds: &mut [Pmd]) -> Result {
        let map = self.registers.map();
        let value_of = |number| map.pmd(number).filter(|row| is_virtual(row));
        let any = pmds.iter().any(|pmd| value_of(pmd.reg_num).is_some());
        let (mut thread, mut done) = (None, Ok(()));
        self.call(&mut |state| {
            if pmds.iter().any(|pmd| state.find_set(pmd.reg_set).is_none()) {
                done = Err(Error::NoSet);
                return;
            }
            self.look(state);
            if any && self.scope() == Scope::Thread {
                thread = state.thread.clone();
            }
            for pmd in pmds.iter_mut() {
                let Some(set) = state.find_set(pmd.reg_set) else {
                    continue;
                };
                pmd.reg_flags = pmd.reg_flags & !SHORT | set.registers.short_flag(pmd.reg_num);
                if let Some(attr) = set.attr(pmd.reg_num) {
                    pmd.reg_last_reset_val = attr.last_reset;
                }
                pmd.reg_value = match value_of(pmd.reg_num) {
                    // Reading the register from its description takes longer: this is done below,
                    // without the lock. Until then `reg_value` holds the control value.
                    Some(register) => set.registers.control_of(&map, register),
                    None => set.registers.pmd(&map, pmd.reg_num),
                };
            }
        })
        .and(done)
        .map_err(refused)?;
        if any {
            for pmd in pmds.iter_mut() {
                if let Some(register) = value_of(pmd.reg_num) {
                    let _preempt = sched::NoPreempt::new();
                    let (address, control) = (register.address, pmd.reg_value);
                    pmd.reg_value = self.registers.read(
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
}
