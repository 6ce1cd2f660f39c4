// SPDX-License-Identifier: GPL-2.0

//! Random numbers for sampling periods: the "minimal standard" generator of Park and Miller, x' =
//! 16807 x mod 2^31 - 1. The numbers are computed without a division, by the method of David Carta
//! ("Two fast implementations of the minimal standard random number generator", Communications of
//! the ACM 33(1), 1990).
//!
//! The random numbers are good enough to keep a sampling period out of step with a loop of the
//! monitored program. The numbers must be used for sampling periods only, because each number can
//! be computed from the number before it.

/// The modulus of the generator, a prime.
const MODULUS: u32 = (1 << 31) - 1;
/// The multiplier of the generator.
const MULTIPLIER: u32 = 16807;

/// A random number generator. The generated sequence repeats after 2^31 - 2 numbers; the seed
/// selects the number at which the sequence starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    /// The last number, from 1 to the modulus - 1.
    state: u32,
}

impl Default for Random {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Random {
    /// Creates a generator from any seed. A seed that is a multiple of 2^31 - 1 is replaced by 1,
    /// because such a seed would give only zeros.
    pub const fn new(seed: u32) -> Self {
        let state = seed % MODULUS;
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
        let upper = MULTIPLIER.wrapping_mul(self.state >> 16);
        let sum = MULTIPLIER
            .wrapping_mul(self.state & 0xffff)
            .wrapping_add((upper & 0x7fff) << 16)
            .wrapping_add(upper >> 15);
        self.state = if sum > MODULUS {
            sum.wrapping_sub(MODULUS)
        } else {
            sum
        };
        self.state
    }

    /// Returns a random number of 62 bits: the result of one [`step`](Self::step) in the lower 31
    /// bits, the result of the next step in the upper 31 bits. Each call makes two steps, so a
    /// caller that uses only the lower 31 bits uses the result of every second step.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the generator is endless")]
    pub fn next(&mut self) -> u64 {
        let low = self.step();
        let high = self.step();
        u64::from(low) | (u64::from(high) << 31)
    }
}
