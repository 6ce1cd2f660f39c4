// SPDX-License-Identifier: GPL-2.0

//! Event sets: register values, sampling attributes and run statistics. A context counts with one
//! event set at a time, the active set.

use core::cmp::Ordering;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use perfmon_rules::allocator::Allocator;
use perfmon_rules::claims::RegisterMask;
use perfmon_rules::event_sets::{RunningMoments, SetRuns};
use perfmon_rules::period::SamplingAttributes;
use perfmon_rules::register_bitmap::{PmdSet, RegisterBitmap};
use perfmon_rules::register_memory::{RegisterMemory, RegisterMemorySize};

use base::account::MemoryCharge;

/// Allocates the register memory of event sets with kmalloc().
#[derive(Default)]
pub(crate) struct KmallocHeap;

impl Allocator for KmallocHeap {
    type Slice<T: Copy + Default> = KVec<T>;
}

/// The registers of an event set, in memory from [`KmallocHeap`].
pub(crate) type Registers = perfmon_rules::registers::Registers<KmallocHeap>;

/// The registers that a system call uses in one event set. The event set needs memory for these
/// registers.
#[derive(Default)]
pub(crate) struct RegisterRequest {
    /// PMCs (control registers) that the system call writes.
    pub(crate) pmcs: RegisterBitmap,
    /// PMDs (data registers) that need memory: each PMD that the system call writes, and the PMDs
    /// in the fields `reg_smpl_pmds` and `reg_reset_pmds` of the written PMDs.
    pub(crate) pmds: RegisterBitmap,
    /// PMDs that the system call writes. The field `pmds` contains these PMDs as well.
    pub(crate) written_pmds: RegisterBitmap,
}

impl RegisterRequest {
    /// Returns the hardware registers among the requested registers.
    pub(crate) fn hardware_registers(&self) -> RegisterMask {
        let first = |numbers: &RegisterBitmap| numbers.0.first().copied().unwrap_or(0);
        RegisterMask {
            pmcs: first(&self.pmcs),
            pmds: first(&self.pmds),
        }
    }
}

/// Removes the first element for which `is` returns true, if there is one.
fn remove_first<T>(all: &mut KVec<T>, is: impl Fn(&T) -> bool) {
    let mut at = 0usize;
    while let Some(one) = all.get(at) {
        if is(one) {
            let _ = all.remove(at);
            return;
        }
        at = at.wrapping_add(1);
    }
}

/// Allocates the memory for the register values and the program of a set.
pub(crate) fn alloc_register_memory(
    needs: &RegisterMemorySize,
) -> Result<RegisterMemory<KmallocHeap>> {
    fn allocate_array<T: Copy + Default>(nr: usize) -> Result<KVec<T>> {
        Ok(KVec::from_elem(T::default(), nr, GFP_KERNEL_ACCOUNT)?)
    }
    let [pmcs, soft_pmcs] = needs.pmcs;
    let [pmds, soft_pmds] = needs.pmds;
    Ok(RegisterMemory {
        pmcs: [allocate_array(pmcs)?, allocate_array(soft_pmcs)?],
        pmds: [allocate_array(pmds)?, allocate_array(soft_pmds)?],
        controls: allocate_array(needs.controls)?,
        counters: allocate_array(needs.counters)?,
        virtual_counters: allocate_array(needs.virtual_counters)?,
    })
}

/// An event set: register values, the program that is written to the PMU, and statistics of its
/// runs.
pub(crate) struct EventSet {
    /// The number by which user space selects the event set.
    pub(crate) id: u16,
    /// The values of the registers, and the program for the PMU.
    pub(crate) registers: Registers,
    /// The conditions under which a run of the set ends, and the number and duration of its runs.
    pub(crate) runs: SetRuns,
    /// The sampling attributes of the PMDs that sample, sorted by PMD number.
    pub(crate) attrs: KVec<SamplingAttributes>,
    /// The run statistics of the PMDs that count (do not sample).
    pub(crate) run_moments: KVec<RunningMoments>,
    /// The bytes that are charged for this set.
    pub(crate) charge: MemoryCharge,
}

impl EventSet {
    /// Number of bytes that are charged for a set without registers.
    pub(crate) const OVERHEAD_BYTES: usize =
        size_of::<Self>().saturating_add(size_of::<EventSetSlot>());

    /// Creates an event set without registers. Charges the set's memory to the same user as
    /// `charge`. May sleep. Returns `EDQUOT` if the user's quota is exceeded, or `ENOMEM`.
    pub(crate) fn new(id: u16, charge: &MemoryCharge) -> Result<KBox<Self>> {
        let charge = charge.charge_same_user(Self::OVERHEAD_BYTES)?;
        let new = Self {
            id,
            registers: Registers::default(),
            runs: SetRuns::default(),
            attrs: KVec::new(),
            run_moments: KVec::new(),
            charge,
        };
        Ok(KBox::new(new, GFP_KERNEL_ACCOUNT)?)
    }

    /// Moves what the event set stores to the larger memory in `room`, `attrs` and `moments`, where
    /// the two vectors are empty. On return, the arguments have the old memory.
    pub(crate) fn move_to_larger_memory(
        &mut self,
        room: &mut RegisterMemory<KmallocHeap>,
        attrs: &mut KVec<SamplingAttributes>,
        moments: &mut KVec<RunningMoments>,
    ) {
        self.registers.move_to_larger_memory(room);
        for attr in &self.attrs {
            let _ = attrs.push_within_capacity(*attr);
        }
        for statistics in &self.run_moments {
            let _ = moments.push_within_capacity(*statistics);
        }
        core::mem::swap(&mut self.attrs, attrs);
        core::mem::swap(&mut self.run_moments, moments);
    }

    /// Returns the sampling attributes of a PMD, or `None` if the PMD does not sample.
    pub(crate) fn attr(&self, pmd: u16) -> Option<&SamplingAttributes> {
        self.attrs.iter().find(|attr| attr.pmd == pmd)
    }

    /// Configures a PMD to sample. The caller has allocated memory for the sampling attributes of
    /// the PMD with `grow_set()`.
    pub(crate) fn set_sampling_pmd(&mut self, new: SamplingAttributes) {
        remove_first(&mut self.run_moments, |moments| moments.pmd == new.pmd);
        if let Some(old) = self.attrs.iter_mut().find(|attr| attr.pmd == new.pmd) {
            *old = new;
            return;
        }
        let _ = self.attrs.push_within_capacity(new);
        let mut all = self.attrs.as_mut_slice();
        while let Some((last, others)) = all.split_last_mut() {
            match others.last_mut() {
                Some(before) if before.pmd > last.pmd => core::mem::swap(before, last),
                _ => break,
            }
            all = others;
        }
    }

    /// Records that a value was written to a PMD that counts and does not sample, or no longer
    /// samples: starts the run statistics of the PMD, or restarts its increment in the present run.
    /// The caller has allocated memory for the run statistics of the PMD with `grow_set()`.
    pub(crate) fn record_counting_pmd_write(&mut self, pmd: u16) {
        remove_first(&mut self.attrs, |attr| attr.pmd == pmd);
        let value = self.registers.pmd_value(pmd);
        match self.run_moments.iter_mut().find(|m| m.pmd == pmd) {
            Some(moments) => moments.restart_run_delta(value),
            None => {
                let _ = self
                    .run_moments
                    .push_within_capacity(RunningMoments::new(pmd, value));
            }
        }
    }

    /// Resets the PMD `pmd` because another PMD has overflowed: the field `reg_reset_pmds` of the
    /// other PMD contains `pmd`.
    pub(crate) fn reset_linked_pmd(&mut self, pmd: u16, long: bool) {
        let attr = self.attrs.iter_mut().find(|attr| attr.pmd == pmd);
        let value = attr.map_or(0, |attr| attr.next_reset_value(long));
        let before = self.registers.pmd_value(pmd);
        if let Some(moments) = self.run_moments.iter_mut().find(|m| m.pmd == pmd) {
            moments.record_reset(before, value);
        }
        self.registers.restart_pmd_at(pmd, value);
    }

    /// Records that the set is about to be programmed into a PMU. If a run of the set begins, also
    /// resets the number of overflows of each PMD after which the switch to the next set is due.
    #[inline]
    pub(crate) fn record_load(&mut self, now: u64) {
        if self.runs.record_load(now) {
            self.runs.ended_by_pmds = PmdSet::default();
            for attr in &mut self.attrs {
                attr.restart_switch_countdown();
            }
        }
    }

    /// Ends the run of the set and adds the run to the statistics. The set is not programmed into a
    /// PMU, and the register values in memory are up to date.
    pub(crate) fn end_run(&mut self) {
        let time = self.runs.end_run();
        for moments in &mut self.run_moments {
            moments.end_run(self.registers.pmd_value(moments.pmd), time);
        }
    }
}

/// An element of the list of a context's event sets.
pub(crate) struct EventSetSlot {
    /// The number by which user space selects the event set.
    pub(crate) id: u16,
    /// The slot index of the event set that becomes active after this set. Computed when the
    /// context is attached.
    pub(crate) next_slot: usize,
    /// The event set, or `None` for the active set, which is in `ContextState::active_set`.
    pub(crate) set: Option<KBox<EventSet>>,
}

/// All event sets of a context, sorted by number.
pub(crate) struct EventSets {
    /// One slot for each event set, sorted by the number of the set.
    pub(crate) slots: KVec<EventSetSlot>,
    /// The slot index of the active event set.
    pub(crate) active_slot: usize,
    /// True if a switch to the next event set is due.
    pub(crate) is_switch_due: bool,
    /// The timer does not end a run of a set before this time, in nanoseconds of
    /// [`base::clock::monotonic_ns_in_any_context`].
    pub(crate) earliest_timed_switch_ns: u64,
}

impl EventSets {
    /// Creates a list with only event set 0, which is active. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut slots = KVec::new();
        slots.push(
            EventSetSlot {
                id: 0,
                next_slot: 0,
                set: None,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self {
            slots,
            active_slot: 0,
            is_switch_due: false,
            earliest_timed_switch_ns: 0,
        })
    }

    /// Returns the slot index of the event set with the number `id`.
    pub(crate) fn index_of(&self, id: u16) -> Option<usize> {
        // Do not call binary_search_by() of `core`, because that function can panic.
        let (mut low, mut high) = (0usize, self.slots.len());
        while low < high {
            let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
            match self.slots.get(middle)?.id.cmp(&id) {
                Ordering::Less => low = middle.wrapping_add(1),
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// Makes the event set in the slot `place` active. On entry, `set` is the old active set, which
    /// is moved to its slot. On return, `set` is the new active set.
    #[inline]
    pub(crate) fn swap_active_set(&mut self, set: &mut KBox<EventSet>, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let Some(other) = slot.set.take() else { return };
        let old = core::mem::replace(set, other);
        if let Some(slot) = self.slots.get_mut(self.active_slot) {
            slot.set = Some(old);
        }
        self.active_slot = place;
    }
}
