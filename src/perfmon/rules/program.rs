// SPDX-License-Identifier: GPL-2.0

//! The program of an event set: the control registers to write to the PMU, and the counters to read
//! from the PMU.

use crate::allocator::{copy_to_larger_and_swap, Allocator};
use crate::register_map::Register;
use protocols::self_page::CounterState;

/// A control register to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Address of the MSR.
    pub address: u64,
    /// Value to write when the context starts to count.
    pub on: u64,
    /// Value to write when the context stops counting: the enable bits are cleared.
    pub off: u64,
}

/// A hardware counter to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Address of the MSR.
    pub address: u64,
    /// Number of the counter for RDPMC.
    pub rdpmc: u32,
    /// Number of the PMD (data register) that holds the 64-bit value of the counter.
    pub pmd: u16,
    /// Mask of the bits of the hardware counter, according to its width.
    pub mask: u64,
    /// True if the PMD has the width of the counter instead of 64 bits.
    pub has_narrow_pmd: bool,
    /// True if the PMD is armed: the PMD samples, and its overflows are handled.
    pub armed: bool,
    /// Value of the hardware counter when it was last started or read.
    pub start: u64,
}

impl Counter {
    /// Sets the start value so that the hardware counter overflows when a PMD with this `value`
    /// overflows, or earlier. A write to a counter sets only 31 bits and the sign. If the distance
    /// to the overflow needs more than 31 bits, the hardware counter overflows before the PMD.
    #[inline]
    pub(crate) fn arm(&mut self, value: u64) {
        let shown = if self.has_narrow_pmd {
            self.mask
        } else {
            u64::MAX
        };
        // A PMD whose value is 0 overflows only after it has counted through its whole range.
        let left = value.wrapping_neg().wrapping_sub(1) & shown;
        let reach = (self.mask >> 1).min(0x7fff_ffff);
        // Start at least two counts before the overflow: some processors do not accept a counter
        // that is one count before its overflow.
        let left = left.saturating_add(1).clamp(2, reach.max(2));
        self.start = left.wrapping_neg() & self.mask;
    }

    /// Returns true if the hardware counter has to be armed again: it has wrapped since it was
    /// started, or it was started at 0 instead of near an overflow.
    #[inline]
    pub(crate) fn needs_rearm(&self) -> bool {
        self.start & (self.mask ^ (self.mask >> 1)) == 0
    }
}

/// A virtual counter, which the kernel reads by the read() function of a PMU description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualCounter {
    /// Argument for the read() function of the PMU description.
    pub address: u64,
    /// Value of the PMC that controls the counter.
    pub control: u64,
    /// Number of the PMD (data register) that holds the value of the counter.
    pub pmd: u16,
    /// True if the counter follows its thread, that is, counts also while the context is in no PMU.
    pub follows_thread: bool,
    /// True if the counter counts nanoseconds.
    pub is_clock: bool,
    /// Mask of the bits of the source, according to its width.
    pub(crate) mask: u64,
    /// Mask of the bits of the PMD: the PMD overflows when these bits wrap to 0.
    pub(crate) pmd_mask: u64,
    pub(crate) start: u64,
}

/// Returns the increment of a counter from `start` to `now`, modulo the width that `mask` defines,
/// and sets `start` to `now`.
#[inline]
pub(crate) fn take_delta(start: &mut u64, now: u64, mask: u64) -> u64 {
    let moved = now.wrapping_sub(*start) & mask;
    *start = now & mask;
    moved
}

/// Converts hardware counters to the entries of the self page, which user space maps and reads.
/// `value(pmd)` is the 64-bit value that the PMD had when its counter was started.
#[inline]
pub fn self_page_counters<'a>(
    counters: &'a [Counter],
    value: impl Fn(u16) -> u64 + 'a,
) -> impl Iterator<Item = CounterState> + 'a {
    // The self page has only counters whose PMDs have 64 bits. Programs read narrower PMDs by a
    // system call.
    let wide = counters.iter().filter(|counter| !counter.has_narrow_pmd);
    wide.map(move |counter| CounterState {
        pmd: counter.pmd,
        rdpmc: counter.rdpmc,
        mask: counter.mask,
        start: counter.start,
        pmd_value: value(counter.pmd),
    })
}

/// The program of an event set: the control registers to write and the counters to read, each in
/// the order of the register numbers.
#[derive(Default)]
pub struct Program<M: Allocator> {
    controls: M::Slice<Control>,
    nr_controls: usize,
    counters: M::Slice<Counter>,
    nr_counters: usize,
    virtual_counters: M::Slice<VirtualCounter>,
    pub(crate) nr_virtual_counters: usize,
    /// Bits of the counters in the global control register; some PMUs have no global control
    /// register.
    pub global_ctrl_bits: u64,
    /// True if a virtual counter with `follows_thread` set is armed: its overflows are handled.
    pub has_armed_thread_counter: bool,
    /// True if a clock is armed: a timer then has to signal the overflow of the clock.
    pub has_armed_clock: bool,
}

impl<M: Allocator> Program<M> {
    pub(crate) fn clear(&mut self) {
        self.nr_controls = 0;
        self.nr_counters = 0;
        self.nr_virtual_counters = 0;
        self.global_ctrl_bits = 0;
        self.has_armed_thread_counter = false;
        self.has_armed_clock = false;
    }

    /// Returns the control registers to write.
    pub fn controls(&self) -> &[Control] {
        self.controls.get(..self.nr_controls).unwrap_or(&[])
    }

    /// Returns the hardware counters to read.
    pub fn counters(&self) -> &[Counter] {
        self.counters.get(..self.nr_counters).unwrap_or(&[])
    }

    pub(crate) fn counters_mut(&mut self) -> &mut [Counter] {
        self.counters.get_mut(..self.nr_counters).unwrap_or(&mut [])
    }

    pub(crate) fn virtual_counters(&self) -> &[VirtualCounter] {
        self.virtual_counters
            .get(..self.nr_virtual_counters)
            .unwrap_or(&[])
    }

    pub(crate) fn filter_virtual_counters_mut(
        &mut self,
        carried: bool,
    ) -> impl Iterator<Item = &mut VirtualCounter> {
        let all = self
            .virtual_counters
            .get_mut(..self.nr_virtual_counters)
            .unwrap_or(&mut []);
        all.iter_mut().filter(move |g| g.follows_thread == carried)
    }

    pub(crate) fn add_control(&mut self, register: &Register, value: u64, interrupts: u64) {
        let interrupt = match value & register.enable {
            0 => 0,
            _ => interrupts,
        };
        if let Some(free) = self.controls.get_mut(self.nr_controls) {
            *free = Control {
                address: register.address,
                on: value | interrupt,
                off: value & !register.enable,
            };
            self.nr_controls = self.nr_controls.wrapping_add(1);
        }
    }

    pub(crate) fn add_counter(&mut self, register: &Register, pmd: u16, narrow: bool, armed: bool) {
        if let Some(free) = self.counters.get_mut(self.nr_counters) {
            *free = Counter {
                address: register.address,
                rdpmc: register.rdpmc,
                pmd,
                mask: register.mask(),
                has_narrow_pmd: narrow,
                armed,
                start: 0,
            };
            self.nr_counters = self.nr_counters.wrapping_add(1);
            self.global_ctrl_bits |= register.global_bit();
        }
    }

    pub(crate) fn add_virtual_counter(&mut self, growth: VirtualCounter) {
        if let Some(free) = self.virtual_counters.get_mut(self.nr_virtual_counters) {
            *free = growth;
            self.nr_virtual_counters = self.nr_virtual_counters.wrapping_add(1);
        }
    }

    /// Moves the program to larger slices. On return, the arguments have the old memory.
    pub(crate) fn move_to_larger_memory(
        &mut self,
        controls: &mut M::Slice<Control>,
        counters: &mut M::Slice<Counter>,
        virtual_counters: &mut M::Slice<VirtualCounter>,
    ) {
        copy_to_larger_and_swap(&mut self.controls, controls);
        copy_to_larger_and_swap(&mut self.counters, counters);
        copy_to_larger_and_swap(&mut self.virtual_counters, virtual_counters);
    }

    /// Returns how many controls, counters and virtual counters fit into the memory.
    pub(crate) fn array_lengths(&self) -> [usize; 3] {
        [
            self.controls.len(),
            self.counters.len(),
            self.virtual_counters.len(),
        ]
    }
}
