// SPDX-License-Identifier: GPL-2.0

//! Random numbers for sampling periods: the "minimal standard" generator of Park and Miller, x' =
//! 16807 x mod 2^31 - 1. It is computed without a division, by D. F. Carta's method ("Two fast
//! implementations of the minimal standard random number generator", Communications of the ACM
//! 33(1), 1990).
//!
//! The numbers are good enough to keep a period out of step with a loop. Anyone who knows one
//! number can compute the next, so they must not be used for anything else.

/// The modulus, a prime.
const MODULUS: u32 = (1 << 31) - 1;
/// The multiplier.
const MULTIPLIER: u32 = 16807;

/// A generator. Its sequence has 2^31 - 2 numbers; the seed selects where it starts.
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
    /// Creates a generator from any seed. 0 and multiples of 2^31 - 1 would stay 0, and count as 1.
    pub const fn new(seed: u32) -> Self {
        let state = seed % MODULUS;
        Self {
            state: if state == 0 { 1 } else { state },
        }
    }

    /// Returns the next number, of 31 bits and not 0.
    ///
    /// The product has 46 bits, `high * 2^31 + low`. As 2^31 is congruent to 1 modulo the modulus,
    /// the product is congruent to `high + low`, and the modulus is subtracted at most once. The
    /// upper half of `x` is multiplied separately. Of that product, shifted by 16, the lower 15
    /// bits belong to `low` and the rest to `high`. All values fit in 32 bits.
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

    /// Returns 62 bits, for masks of any width: one step in the lower 31 bits, the next one in the
    /// upper 31. A mask of up to 31 bits therefore uses every second step only.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the generator is endless")]
    pub fn next(&mut self) -> u64 {
        let low = self.step();
        let high = self.step();
        u64::from(low) | (u64::from(high) << 31)
    }
}
