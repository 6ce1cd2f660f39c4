// SPDX-License-Identifier: GPL-2.0

//! What a PMD does when it overflows, and the messages that tell of it.

use crate::calls::Pmd;
use crate::pmu::{kind, Map, Numbers, Register, Rows};
use crate::random::Random;

/// `PFM_REGFL_OVFL_NOTIFY`.
pub const NOTIFY: u32 = 0x01;
/// `PFM_REGFL_RANDOM`.
pub const RANDOM: u32 = 0x02;
/// PMDs that a sample records at most.
pub const VALUES: usize = 64;

/// What a sampling format says is to be done: `PERFMON_DO_*`.
pub mod action {
    #![allow(missing_docs, reason = "documented in include/linux/perfmon.h")]
    pub const NOTIFY: u32 = 0x1;
    pub const RESET: u32 = 0x2;
    pub const MASK: u32 = 0x4;
    pub const WAKE: u32 = 0x8;
}

/// A PMD that samples.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// The PMD.
    pub pmd: u16,
    /// It alone.
    pub row: Rows,
    /// [`NOTIFY`], [`RANDOM`].
    pub flags: u32,
    /// What it is set to at a restart.
    pub long: u64,
    /// What it is set to otherwise.
    pub short: u64,
    /// What it was set to the last time.
    pub last: u64,
    /// PMDs that are set with it.
    pub reset_pmds: Rows,
    values: [u16; VALUES],
    nr_values: usize,
    /// Only the description knows some of those.
    pub reads: bool,
    /// For the format.
    pub eventid: u64,
    /// Overflows in a turn of its set after which it is over; 0: any number.
    switch: u64,
    /// Those that are left.
    left: u64,
    /// Bits of the period that are random.
    pub mask: u64,
    /// Where they come from.
    pub random: Random,
}

impl Attr {
    /// How a PMD overflows that was written so.
    pub fn new(map: &Map<'_>, pmd: &Pmd) -> Self {
        let mut attr = Self {
            pmd: pmd.reg_num,
            row: Rows::default(),
            flags: pmd.reg_flags,
            long: pmd.reg_long_reset,
            short: pmd.reg_short_reset,
            last: pmd.reg_value,
            reset_pmds: Rows::default(),
            values: [0; VALUES],
            nr_values: 0,
            reads: false,
            eventid: pmd.reg_smpl_eventid,
            switch: pmd.reg_ovfl_switch_cnt,
            left: pmd.reg_ovfl_switch_cnt,
            mask: pmd.reg_random_mask,
            random: Random::new(pmd.reg_random_seed),
        };
        attr.row.set(pmd.reg_num);
        pmd.reg_reset_pmds
            .each(|number| attr.reset_pmds.set(number));
        pmd.reg_smpl_pmds.each(|number| {
            if let Some(place) = attr.values.get_mut(attr.nr_values) {
                *place = number;
            }
            attr.reads |= map.pmd(number).is_some_and(is_read);
            attr.nr_values = attr.nr_values.wrapping_add(1);
        });
        attr
    }

    /// PMDs that its samples record, ascending.
    #[inline]
    pub fn values(&self) -> &[u16] {
        self.values.get(..self.nr_values).unwrap_or(&[])
    }

    /// A turn of its set begins.
    pub fn begin_turn(&mut self) {
        self.left = self.switch;
    }

    /// It overflowed so often: does that end its set's turn?
    #[inline]
    pub fn counts_down(&mut self, overflows: u64) -> bool {
        if self.switch == 0 {
            return false;
        }
        self.left = self.left.saturating_sub(overflows);
        self.left == 0
    }

    /// How often it overflowed that is now so far beyond the first time.
    pub fn overflows(&self, beyond: u64) -> u64 {
        let period = self.short.wrapping_neg();
        let more = beyond.checked_div(period).unwrap_or(0);
        more.saturating_add(1)
    }

    /// Where the next period begins, random bits included: they make it longer, as
    /// periods are negative.
    #[inline]
    pub fn next(&mut self, long: bool) -> u64 {
        let mut value = if long { self.long } else { self.short };
        if self.flags & RANDOM != 0 {
            value = value.wrapping_sub(self.random.next() & self.mask);
        }
        self.last = value;
        value
    }
}

/// Does only its description know what it is?
pub fn is_read(register: &Register) -> bool {
    register.is(kind::VIRTUAL) && !register.is(kind::COUNTER)
}

/// `struct pfarg_ovfl_msg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in the uapi header")]
pub struct Message {
    pub msg_type: u32,
    pub msg_ovfl_pid: u32,
    pub msg_active_set: u16,
    pub msg_ovfl_cpu: u16,
    pub msg_ovfl_tid: u32,
    pub msg_ovfl_ip: u64,
    pub msg_ovfl_pmds: Numbers,
}

const _: () = assert!(size_of::<Message>() == 64);

/// `PFM_MSG_OVFL`.
pub const OVFL: u32 = 1;
/// `PFM_MSG_END`.
pub const END: u32 = 2;
/// `PFM_MSG_FAULT`.
pub const FAULT: u32 = 3;
/// `PFM_MSG_EVICTED`.
pub const EVICTED: u32 = 4;

/// Messages that nobody has read yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    slots: [Message; Self::ROOM],
    first: usize,
    nr: usize,
    depth: usize,
}

impl Queue {
    /// The deepest, with one for a fault and one for the end.
    pub const ROOM: usize = 32;

    /// Of so many messages, the end's not counted.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth.clamp(1, Self::ROOM - 2);
    }

    /// Is there anything to read?
    pub fn is_empty(&self) -> bool {
        self.nr == 0
    }

    /// Puts one in; false if there are as many as it holds. There is always room for
    /// a fault and for the end, each of which is but one.
    pub fn push(&mut self, message: &Message) -> bool {
        let depth = match message.msg_type {
            END | FAULT | EVICTED => Self::ROOM,
            _ => self.depth,
        };
        if self.nr >= depth {
            return false;
        }
        let place = self.first.wrapping_add(self.nr) % Self::ROOM;
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = *message;
            self.nr = self.nr.wrapping_add(1);
        }
        true
    }

    /// Takes the oldest one out.
    pub fn pop(&mut self) -> Option<Message> {
        if self.nr == 0 {
            return None;
        }
        let message = self.slots.get(self.first % Self::ROOM).copied();
        self.first = self.first.wrapping_add(1) % Self::ROOM;
        self.nr = self.nr.wrapping_sub(1);
        message
    }

    /// Puts one back that was taken out, and could not be given out.
    pub fn put_back(&mut self, message: &Message) {
        if self.nr >= Self::ROOM {
            return;
        }
        self.first = self.first.wrapping_sub(1) % Self::ROOM;
        self.nr = self.nr.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(self.first) {
            *slot = *message;
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.nr = 0;
    }
}
