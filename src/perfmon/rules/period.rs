// SPDX-License-Identifier: GPL-2.0

//! Sampling: the attributes of a PMD (PMU data register) whose overflows produce samples, and the
//! random numbers that vary sampling periods.
//!
//! [`RandomGenerator`] is the "minimal standard" generator of Park and Miller, x' = 16807 x mod
//! 2^31 - 1. The numbers are computed without a division, by the method of David Carta ("Two fast
//! implementations of the minimal standard random number generator", Communications of the ACM
//! 33(1), 1990).
//!
//! The random numbers are good enough to keep a sampling period out of step with a loop of the
//! monitored program. The numbers must be used for sampling periods only, because each number can
//! be computed from the number before it.

use crate::abi::{Pmd, MAX_VALUES_PER_SAMPLE, REGFL_RANDOM};
use crate::register_bitmap::PmdSet;
use crate::register_map::{kind, Register, RegisterMap};

/// The attributes of a PMD whose overflows produce samples.
#[derive(Clone, Copy, Debug)]
pub struct SamplingAttributes {
    /// Number of the PMD.
    pub pmd: u16,
    /// The set that contains only this PMD.
    pub pmd_set: PmdSet,
    /// Flags of the PMD: [`REGFL_OVFL_NOTIFY`](crate::abi::REGFL_OVFL_NOTIFY) and [`REGFL_RANDOM`].
    pub flags: u32,
    /// Value to which `PERFMON_RESTART` resets the PMD.
    pub long_reset: u64,
    /// Value to which an overflow resets the PMD if the overflow does not mask the context.
    pub short_reset: u64,
    /// The value to which the PMD was reset last.
    pub last_reset: u64,
    /// Other PMDs that an overflow of this PMD also resets.
    pub reset_pmds: PmdSet,
    sample_pmds: [u16; MAX_VALUES_PER_SAMPLE],
    nr_sample_pmds: usize,
    /// True if a sample records the value of a virtual register. Only the read() function of the
    /// PMU description can read a virtual register.
    pub reads_virtual: bool,
    /// The number that the user gave to the event, for the sampling format.
    pub eventid: u64,
    /// Number of overflows after which a run of the event set ends; 0 if overflows do not end a
    /// run.
    overflows_per_run: u64,
    /// Number of overflows until the present run of the event set ends.
    overflows_until_switch: u64,
    /// Mask of the random bits that are subtracted from the start value of a period.
    pub random_mask: u64,
    /// Generator of the random bits.
    pub random: RandomGenerator,
}

impl SamplingAttributes {
    /// Creates the attributes of a PMD from the argument of the call that writes the PMD.
    pub fn new(map: &RegisterMap<'_>, pmd: &Pmd) -> Self {
        let mut attr = Self {
            pmd: pmd.reg_num,
            pmd_set: PmdSet::default(),
            flags: pmd.reg_flags,
            long_reset: pmd.reg_long_reset,
            short_reset: pmd.reg_short_reset,
            last_reset: pmd.reg_value,
            reset_pmds: PmdSet::default(),
            sample_pmds: [0; MAX_VALUES_PER_SAMPLE],
            nr_sample_pmds: 0,
            reads_virtual: false,
            eventid: pmd.reg_smpl_eventid,
            overflows_per_run: pmd.reg_ovfl_switch_cnt,
            overflows_until_switch: pmd.reg_ovfl_switch_cnt,
            random_mask: pmd.reg_random_mask,
            random: RandomGenerator::new(pmd.reg_random_seed),
        };
        attr.pmd_set.set(pmd.reg_num);
        pmd.reg_reset_pmds
            .for_each(|number| attr.reset_pmds.set(number));
        pmd.reg_smpl_pmds.for_each(|number| {
            if let Some(place) = attr.sample_pmds.get_mut(attr.nr_sample_pmds) {
                *place = number;
            }
            attr.reads_virtual |= map.pmd(number).is_some_and(is_virtual_non_counter);
            attr.nr_sample_pmds = attr.nr_sample_pmds.wrapping_add(1);
        });
        attr
    }

    /// Returns the PMDs that a sample records, in ascending order.
    #[inline]
    pub fn sample_pmds(&self) -> &[u16] {
        self.sample_pmds.get(..self.nr_sample_pmds).unwrap_or(&[])
    }

    /// Sets the number of overflows that are left until the run of the event set ends. Called when
    /// the run begins.
    pub fn restart_switch_countdown(&mut self) {
        self.overflows_until_switch = self.overflows_per_run;
    }

    /// Subtracts `overflows` from the number of overflows that are left until the run of the event
    /// set ends. Returns true if none are left, so that the run has to end.
    #[inline]
    pub fn count_down_to_switch(&mut self, overflows: u64) -> bool {
        if self.overflows_per_run == 0 {
            return false;
        }
        self.overflows_until_switch = self.overflows_until_switch.saturating_sub(overflows);
        self.overflows_until_switch == 0
    }

    /// Returns the number of sampling periods of the PMD that have ended. `beyond` is the value of
    /// the PMD: the number of events since the end of the first of these periods. `mask` has the
    /// PMD's bits.
    pub fn overflow_count(&self, beyond: u64, mask: u64) -> u64 {
        let period = self.short_reset.wrapping_neg() & mask;
        let more = (beyond & mask).checked_div(period).unwrap_or(0);
        more.saturating_add(1)
    }

    /// Returns the start value of the next period. `long` selects `long_reset` instead of
    /// `short_reset`. Start values are negative. Random bits are subtracted from the start value,
    /// which makes the period longer.
    #[inline]
    pub fn next_reset_value(&mut self, long: bool) -> u64 {
        let mut value = if long {
            self.long_reset
        } else {
            self.short_reset
        };
        if self.flags & REGFL_RANDOM != 0 {
            value = value.wrapping_sub(self.random.next_62_bits() & self.random_mask);
        }
        self.last_reset = value;
        value
    }
}

/// Returns true if the register can be read only by the read() function of its description.
pub fn is_virtual_non_counter(register: &Register) -> bool {
    register.is(kind::VIRTUAL) && !register.is(kind::COUNTER)
}

/// The modulus of the generator, a prime.
const GENERATOR_MODULUS: u32 = (1 << 31) - 1;
/// The multiplier of the generator.
const GENERATOR_MULTIPLIER: u32 = 16807;

/// A random number generator. The generated sequence repeats after 2^31 - 2 numbers; the seed
/// selects the number at which the sequence starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomGenerator {
    /// The last number, from 1 to the modulus - 1.
    state: u32,
}

impl Default for RandomGenerator {
    fn default() -> Self {
        Self::new(0)
    }
}

impl RandomGenerator {
    /// Creates a generator from any seed. A seed that is a multiple of 2^31 - 1 is replaced by 1,
    /// because such a seed would give only zeros.
    pub const fn new(seed: u32) -> Self {
        let state = seed % GENERATOR_MODULUS;
        Self {
            state: if state == 0 { 1 } else { state },
        }
    }

    /// Returns the next random number, which has 31 bits and is not 0.
    ///
    /// The product of the multiplier and the last number has 46 bits, `high * 2^31 + low`. As 2^31
    /// is congruent to 1 modulo the modulus, the product is congruent to `high + low`. The modulus
    /// is subtracted from `high + low` at most once. The upper half of the last number is
    /// multiplied separately, which gives `upper`. The lower 15 bits of `upper`, shifted left by
    /// 16, belong to `low`, and the other bits to `high`. All intermediate values fit in 32 bits.
    #[inline]
    pub fn step(&mut self) -> u32 {
        let upper = GENERATOR_MULTIPLIER.wrapping_mul(self.state >> 16);
        let sum = GENERATOR_MULTIPLIER
            .wrapping_mul(self.state & 0xffff)
            .wrapping_add((upper & 0x7fff) << 16)
            .wrapping_add(upper >> 15);
        self.state = if sum > GENERATOR_MODULUS {
            sum.wrapping_sub(GENERATOR_MODULUS)
        } else {
            sum
        };
        self.state
    }

    /// Returns a random number of 62 bits: the result of one [`step`](Self::step) in the lower 31
    /// bits, the result of the next step in the upper 31 bits. Each call makes two steps, so a
    /// caller that uses only the lower 31 bits uses the result of every second step.
    #[inline]
    pub fn next_62_bits(&mut self) -> u64 {
        let low = self.step();
        let high = self.step();
        u64::from(low) | (u64::from(high) << 31)
    }
}
