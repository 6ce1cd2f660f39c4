// SPDX-License-Identifier: GPL-2.0

//! Processes that are traced: their markers, and the pages that tell them what is wanted.

use core::cmp::Ordering;

use engine::filter;
use engine::trace::{self, flag, Control, Marker, Zero, NR_MARKERS, NR_TRACES};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;

use crate::sys::buffers::{Page, PAGE};
use crate::sys::cpu;
use crate::sys::ppa::Clock;
use crate::sys::process::{Mapping, Mm, Pid, Who};
use crate::sys::user::bytes_of;

/// Words of 32 bits in a page.
const WORDS: usize = PAGE / 4;
/// Pages of words.
const PAGES: usize = NR_MARKERS / WORDS;
/// Where the slots are in the control page, and words of each.
const SLOTS: usize = size_of::<Control>() / 4;
const SLOT: usize = 4;

/// A marker of a process.
pub(crate) struct Known {
    name: KVec<u8>,
    fields: KVec<u8>,
    /// So often registered; 0: it was, and records may have its number.
    pub(crate) refs: u32,
}

impl Known {
    /// As a process gives it. `EINVAL`: bad name or fields. May sleep.
    pub(crate) fn new(marker: &Marker) -> Result<Self> {
        let (name, fields) = texts(marker)?;
        Ok(Self {
            name: copied(name)?,
            fields: copied(fields)?,
            refs: 0,
        })
    }

    fn cmp(&self, name: &[u8], fields: &[u8]) -> Ordering {
        let by_name = (*self.name).cmp(name);
        by_name.then_with(|| (*self.fields).cmp(fields))
    }

    /// As the interface has it.
    pub(crate) fn marker(&self, number: usize) -> Marker {
        marker(&self.name, &self.fields, number)
    }
}

/// A marker as the interface has it.
pub(crate) fn marker(name: &[u8], fields: &[u8], number: usize) -> Marker {
    let mut marker = Marker {
        number: number as u32,
        ..Marker::ZERO
    };
    for (to, byte) in marker.name.iter_mut().zip(name) {
        *to = *byte;
    }
    for (to, byte) in marker.fields.iter_mut().zip(fields) {
        *to = *byte;
    }
    marker
}

/// A slot, as a process sees it.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    pub(crate) mask: u32,
}

/// A process that is traced, or was.
pub(crate) struct Process {
    /// Never given again.
    pub(crate) key: u64,
    pub(crate) who: Who,
    pub(crate) pid: Pid,
    /// Its address space; only compared.
    pub(crate) mm: usize,
    /// Where it is mapped; not, when it has ended.
    pub(crate) mapping: Option<Mapping>,
    /// It takes part in shared traces.
    pub(crate) shared: bool,
    pub(crate) began: u64,
    pub(crate) maps: u32,
    pub(crate) markers: KVVec<Known>,
    /// Their numbers, by names and fields: a process may register as many as there can be, while
    /// all others wait for the lock.
    order: KVVec<u16>,
    control: Page,
    words: [Option<Page>; PAGES],
}

impl Process {
    /// The caller. May sleep.
    pub(crate) fn new(
        key: u64,
        mm: &Mm,
        mapping: Option<Mapping>,
        shared: bool,
        clock: Clock,
    ) -> Result<Self> {
        let mut control = Page::new()?;
        let mut first_words = Some(Page::new()?);
        let first = Control {
            version: trace::VERSION,
            nr_cpus: cpu::nr_cpu_ids(),
            stride: trace::STRIDE,
            clock: clock.is_monotonic().into(),
            key,
            ..Control::ZERO
        };
        control.fill(bytes_of(core::slice::from_ref(&first)));
        Ok(Self {
            key,
            who: Who::calls(),
            pid: Pid::calls().ok_or(ESRCH)?,
            mm: mm.address(),
            mapping,
            shared,
            began: clock.ticks(),
            maps: 0,
            markers: KVVec::new(),
            order: KVVec::new(),
            control,
            // Most have no more; the others' come where nobody's page may be already.
            words: core::array::from_fn(|n| if n == 0 { first_words.take() } else { None }),
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.is_none()
    }

    /// A page that it reads: 0 its control page, then words. `None`: nothing is there.
    pub(crate) fn page(&self, number: usize) -> Option<usize> {
        match number.checked_sub(1) {
            None => Some(self.control.address()),
            Some(number) => Some(self.words.get(number)?.as_ref()?.address()),
        }
    }

    /// A slot has a trace from now on, before any of its markers is wanted.
    pub(crate) fn begin_slot(&self, number: usize, slot: Slot) {
        let at = SLOTS.wrapping_add(number.min(NR_TRACES).wrapping_mul(SLOT));
        self.control
            .put(at.wrapping_add(1), slot.flags & flag::SEEN);
        self.control.put(at.wrapping_add(2), slot.mask);
        // Last: who sees this sees these.
        self.control.put(at, slot.generation);
    }

    /// It has none any more, after none of its markers is wanted. The rest stays as it was, for
    /// threads that have seen a marker's word before, and the generation that it was.
    pub(crate) fn end_slot(&self, number: usize, generation: u32) {
        let at = SLOTS.wrapping_add(number.min(NR_TRACES).wrapping_mul(SLOT));
        self.control.put(at, generation);
    }

    /// The slot's trace wants those of its markers, or none any more.
    pub(crate) fn want(&self, slot: usize, wants: &dyn Fn(&[u8]) -> bool) {
        for (known, number) in self.markers.iter().zip(0usize..usize::MAX) {
            if known.refs != 0 {
                self.set_bit(number, slot, wants(&known.name));
            }
        }
    }

    fn set_bit(&self, number: usize, slot: usize, on: bool) {
        let page = self.words.get(number / WORDS).and_then(Option::as_ref);
        let (Some(page), true) = (page, slot < NR_TRACES) else {
            return;
        };
        let (word, bit) = (page.get(number % WORDS), 1u32 << slot);
        let new = if on { word | bit } else { word & !bit };
        if new != word {
            page.put(number % WORDS, new);
        }
    }

    /// One more of a marker: its number, and whether it is new, so that its word has to be
    /// set. `ENOSPC`: no numbers are left.
    pub(crate) fn register(&mut self, new: Known) -> Result<(usize, bool)> {
        let (name, fields) = (&new.name, &new.fields);
        let found = self.order.binary_search_by(|number| {
            let known = self.markers.get(usize::from(*number));
            known.map_or(Ordering::Greater, |known| known.cmp(name, fields))
        });
        let number = match found {
            Ok(place) => usize::from(*self.order.get(place).ok_or(EINVAL)?),
            Err(at) => {
                let number = self.markers.len();
                if number >= NR_MARKERS {
                    return Err(ENOSPC);
                }
                let place = self.words.get_mut(number / WORDS).ok_or(ENOSPC)?;
                if place.is_none() {
                    *place = Some(Page::new()?);
                    if let Some(mapping) = &self.mapping {
                        let page = number / WORDS * PAGE;
                        mapping.take_out(trace::map::WORDS.wrapping_add(page as u64), PAGE as u64);
                    }
                }
                self.order.reserve(1, GFP_KERNEL_ACCOUNT)?;
                self.markers.push(new, GFP_KERNEL_ACCOUNT)?;
                let _ = self.order.insert_within_capacity(at, number as u16);
                number
            }
        };
        let known = self.markers.get_mut(number).ok_or(EINVAL)?;
        known.refs = known.refs.checked_add(1).ok_or(EINVAL)?;
        Ok((number, known.refs == 1))
    }

    /// One less, by its number. `EINVAL`: there is none.
    pub(crate) fn unregister(&mut self, number: usize) -> Result {
        let known = self.markers.get_mut(number).ok_or(EINVAL)?;
        known.refs = known.refs.checked_sub(1).ok_or(EINVAL)?;
        if known.refs == 0 {
            for slot in 0..NR_TRACES {
                self.set_bit(number, slot, false);
            }
        }
        Ok(())
    }

    /// A marker is wanted by a slot's trace, or not.
    pub(crate) fn set_wanted(&self, number: usize, slot: usize, wants: &dyn Fn(&[u8]) -> bool) {
        if let Some(known) = self.markers.get(number) {
            self.set_bit(number, slot, known.refs != 0 && wants(&known.name));
        }
    }
}

/// A marker's name and fields, if they are right.
fn texts(marker: &Marker) -> Result<(&[u8], &[u8])> {
    let name = filter::text(&marker.name).ok_or(EINVAL)?;
    let fields = filter::text(&marker.fields).ok_or(EINVAL)?;
    let kernels = name.starts_with(b"kernel:");
    if kernels || !filter::check_name(name) || !filter::check_fields(fields) {
        return Err(EINVAL);
    }
    Ok((name, fields))
}

fn copied(bytes: &[u8]) -> Result<KVec<u8>> {
    let mut copy = KVec::with_capacity(bytes.len(), GFP_KERNEL_ACCOUNT)?;
    copy.extend_from_slice(bytes, GFP_KERNEL_ACCOUNT)?;
    Ok(copy)
}
