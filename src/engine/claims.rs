// SPDX-License-Identifier: GPL-2.0

//! Which registers of the hardware contexts want, so that those of threads and
//! those of CPUs can be loaded at the same time.
//!
//! Contexts of threads take turns, and so may use the same registers; so do those
//! of CPUs, each on its own. But a thread runs on some CPU: what contexts of
//! the one kind use, none of the other kind may.

use crate::pmu::{Scope, ROWS};

/// Registers of the hardware, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// PMCs.
    pub pmcs: u64,
    /// PMDs that count.
    pub pmds: u64,
}

impl Claims {
    /// None.
    pub const NONE: Self = Self { pmcs: 0, pmds: 0 };

    /// Any?
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// In either.
    pub const fn with(&self, other: &Self) -> Self {
        Self {
            pmcs: self.pmcs | other.pmcs,
            pmds: self.pmds | other.pmds,
        }
    }

    /// Returns whether `other` contains all of them.
    pub const fn is_within(&self, other: &Self) -> bool {
        self.pmcs & !other.pmcs == 0 && self.pmds & !other.pmds == 0
    }

    /// In both?
    pub fn meets(&self, other: &Self) -> bool {
        self.pmcs & other.pmcs != 0 || self.pmds & other.pmds != 0
    }
}

/// How many contexts of a kind claim each register.
#[derive(Clone, Debug)]
struct Counts {
    pmcs: [u32; ROWS],
    pmds: [u32; ROWS],
}

impl Counts {
    const NONE: Self = Self {
        pmcs: [0; ROWS],
        pmds: [0; ROWS],
    };

    fn change(&mut self, claims: &Claims, by: i32) {
        let each = |counts: &mut [u32; ROWS], bits: u64| {
            for (n, count) in counts.iter_mut().enumerate() {
                if bits.wrapping_shr(n as u32) & 1 != 0 {
                    *count = count.wrapping_add_signed(by);
                }
            }
        };
        each(&mut self.pmcs, claims.pmcs);
        each(&mut self.pmds, claims.pmds);
    }

    fn claimed(&self) -> Claims {
        let bits = |counts: &[u32; ROWS]| {
            let some = |all: u64, (n, count): (usize, &u32)| {
                all | u64::from(*count != 0).wrapping_shl(n as u32)
            };
            counts.iter().enumerate().fold(0, some)
        };
        Claims {
            pmcs: bits(&self.pmcs),
            pmds: bits(&self.pmds),
        }
    }
}

/// What all attached contexts claim.
#[derive(Clone, Debug)]
pub struct Shares {
    threads: Counts,
    systems: Counts,
}

impl Shares {
    /// Nothing.
    pub const NONE: Self = Self {
        threads: Counts::NONE,
        systems: Counts::NONE,
    };

    /// What contexts of the other kind have.
    fn others(&self, scope: Scope) -> Claims {
        match scope {
            Scope::Thread => self.systems.claimed(),
            Scope::System => self.threads.claimed(),
        }
    }

    /// May a context of this kind have these?
    pub fn fits(&self, scope: Scope, claims: &Claims) -> bool {
        !self.others(scope).meets(claims)
    }

    /// What a context of this kind may have.
    pub fn free(&self, scope: Scope) -> Claims {
        let others = self.others(scope);
        Claims {
            pmcs: !others.pmcs,
            pmds: !others.pmds,
        }
    }

    fn of(&mut self, scope: Scope) -> &mut Counts {
        match scope {
            Scope::Thread => &mut self.threads,
            Scope::System => &mut self.systems,
        }
    }

    /// A context claims these.
    pub fn add(&mut self, scope: Scope, claims: &Claims) {
        self.of(scope).change(claims, 1);
    }

    /// It gives them back.
    pub fn remove(&mut self, scope: Scope, claims: &Claims) {
        self.of(scope).change(claims, -1);
    }

    /// Does nobody claim anything?
    pub fn is_empty(&self) -> bool {
        self.threads.claimed().is_none() && self.systems.claimed().is_none()
    }
}
