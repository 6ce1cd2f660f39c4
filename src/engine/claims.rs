// SPDX-License-Identifier: GPL-2.0

//! Claims: the hardware registers that contexts use, so that contexts of threads and of CPUs can be
//! loaded at the same time.
//!
//! Only one thread's context is in a PMU at a time, so contexts of threads may use the same
//! registers. Contexts of different CPUs may do so as well. A thread and the CPU that it runs on
//! share one PMU, however: registers that contexts of one scope use are not available to contexts
//! of the other.

use crate::pmu::{Scope, ROWS};

/// A set of hardware registers, as bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// PMCs.
    pub pmcs: u64,
    /// PMDs of hardware counters.
    pub pmds: u64,
}

impl Claims {
    /// No registers.
    pub const NONE: Self = Self { pmcs: 0, pmds: 0 };

    /// Returns true if the set is empty.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the union of two sets.
    pub const fn with(&self, other: &Self) -> Self {
        Self {
            pmcs: self.pmcs | other.pmcs,
            pmds: self.pmds | other.pmds,
        }
    }

    /// Returns true if `other` contains all registers of this set.
    pub const fn is_within(&self, other: &Self) -> bool {
        self.pmcs & !other.pmcs == 0 && self.pmds & !other.pmds == 0
    }

    /// Returns true if the two sets have a register in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.pmcs & other.pmcs != 0 || self.pmds & other.pmds != 0
    }
}

/// Number of contexts of one scope that claim each register.
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

/// The claims of all attached contexts.
#[derive(Clone, Debug)]
pub struct Shares {
    threads: Counts,
    systems: Counts,
}

impl Shares {
    /// No claims.
    pub const NONE: Self = Self {
        threads: Counts::NONE,
        systems: Counts::NONE,
    };

    /// Returns the registers that contexts of the other scope claim.
    fn others(&self, scope: Scope) -> Claims {
        match scope {
            Scope::Thread => self.systems.claimed(),
            Scope::System => self.threads.claimed(),
        }
    }

    /// Returns true if a context of this scope may claim these registers.
    pub fn fits(&self, scope: Scope, claims: &Claims) -> bool {
        !self.others(scope).meets(claims)
    }

    /// Returns the registers that a context of this scope may claim.
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

    /// Adds the claims of a context.
    pub fn add(&mut self, scope: Scope, claims: &Claims) {
        self.of(scope).change(claims, 1);
    }

    /// Removes the claims of a context.
    pub fn remove(&mut self, scope: Scope, claims: &Claims) {
        self.of(scope).change(claims, -1);
    }

    /// Returns true if no register is claimed.
    pub fn is_empty(&self) -> bool {
        self.threads.claimed().is_none() && self.systems.claimed().is_none()
    }
}
