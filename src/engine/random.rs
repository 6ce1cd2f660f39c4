// SPDX-License-Identifier: GPL-2.0

//! Random numbers for periods: quick, and always the same from the same seed.

/// The minimal standard generator, by Carta's division-free step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random {
    state: u32,
}

impl Random {
    /// From a seed.
    pub const fn new(seed: u32) -> Self {
        let state = seed & 0x7fff_ffff;
        Self {
            state: if state == 0 || state == 0x7fff_ffff {
                1
            } else {
                state
            },
        }
    }

    #[inline]
    fn step(&mut self) -> u64 {
        let low = 16807u32.wrapping_mul(self.state & 0xffff);
        let high = 16807u32.wrapping_mul(self.state >> 16);
        let mut next = low
            .wrapping_add((high & 0x7fff) << 16)
            .wrapping_add(high >> 15);
        if next > 0x7fff_ffff {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        self.state = next;
        next.into()
    }

    /// The next one.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let low = self.step();
        low | (self.step() << 31)
    }
}
