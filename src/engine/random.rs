// SPDX-License-Identifier: GPL-2.0

//! Random numbers for sampling periods: the "minimal standard" generator of Park and
//! Miller, x' = 16807 x mod 2^31 - 1, without a division, as D. F. Carta does it ("Two
//! fast implementations of the minimal standard random number generator",
//! Communications of the ACM 33(1), 1990).
//!
//! Good enough that a period is not in step with a loop; whoever knows one number
//! knows the next, so nothing else.

/// The modulus, a prime.
const MODULUS: u32 = (1 << 31) - 1;
/// The multiplier.
const MULTIPLIER: u32 = 16807;

/// A sequence of 2^31 - 2 numbers, which every seed enters somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    /// From 1 to the modulus less 1.
    state: u32,
}

impl Default for Random {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Random {
    /// Any seed; 0 and multiples of 2^31 - 1, which would stay 0, are taken for 1.
    pub const fn new(seed: u32) -> Self {
        let state = seed % MODULUS;
        Self {
            state: if state == 0 { 1 } else { state },
        }
    }

    /// The next number of 31 bits: not 0.
    ///
    /// The product of 46 bits is `high * 2^31 + low`, and 2^31 is 1 to the modulus: the
    /// two are added, and the modulus taken off at most once. The upper half of `x` is
    /// multiplied by itself, its product shifted by 16: its lower 15 bits belong to
    /// `low`, the rest to `high`. All of it fits in 32 bits.
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

    /// 62 bits, for masks of any width: a step in the lower 31, the next one in the
    /// upper 31. Masks of up to 31 bits see one step of two.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        let low = self.step();
        let high = self.step();
        u64::from(low) | (u64::from(high) << 31)
    }
}
