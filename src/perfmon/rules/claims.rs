// SPDX-License-Identifier: GPL-2.0

//! Claims: the hardware registers that each monitoring context uses. With claims, a context of a
//! thread and a context of a CPU can be loaded into one PMU at the same time.
//!
//! A PMU holds the context of one thread at a time, so contexts of different threads may use the
//! same registers. Contexts of different CPUs may use the same registers, too. The context of a
//! thread and the context of the CPU that runs the thread are in one PMU at the same time, so they
//! must not share registers. If contexts of threads use a register, contexts of CPUs cannot claim
//! this register, and vice versa.

use crate::register_bitmap::RegisterBitmap;
use crate::register_map::{kind, RegisterMap, Scope, MAX_TABLE_ROWS};

/// A set of hardware registers, as bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterMask {
    /// The PMCs (control registers) in the set, one bit for each PMC.
    pub pmcs: u64,
    /// The PMDs (data registers) of hardware counters in the set, one bit for each PMD.
    pub pmds: u64,
}

impl RegisterMask {
    /// The empty set of registers.
    pub const NONE: Self = Self { pmcs: 0, pmds: 0 };

    /// Returns true if the set is empty.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the union of two sets.
    pub const fn union(&self, other: &Self) -> Self {
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
    pub fn intersects(&self, other: &Self) -> bool {
        self.pmcs & other.pmcs != 0 || self.pmds & other.pmds != 0
    }
}

/// Use counts of registers: the number of contexts of one scope that claim each register.
#[derive(Clone, Debug)]
struct UserCounts {
    pmcs: [u32; MAX_TABLE_ROWS],
    pmds: [u32; MAX_TABLE_ROWS],
    /// The registers whose use count is not 0.
    in_use: RegisterMask,
}

impl UserCounts {
    const NONE: Self = Self {
        pmcs: [0; MAX_TABLE_ROWS],
        pmds: [0; MAX_TABLE_ROWS],
        in_use: RegisterMask::NONE,
    };

    /// Adds `by` to the use count of each register in `claims`.
    fn adjust(&mut self, claims: &RegisterMask, by: i32) {
        let each = |counts: &mut [u32; MAX_TABLE_ROWS], bits: u64, in_use: &mut u64| {
            let mut left = bits;
            while left != 0 {
                let bit = left & left.wrapping_neg();
                if let Some(count) = counts.get_mut(bit.trailing_zeros() as usize) {
                    *count = count.wrapping_add_signed(by);
                    match *count {
                        0 => *in_use &= !bit,
                        _ => *in_use |= bit,
                    }
                }
                left &= !bit;
            }
        };
        each(&mut self.pmcs, claims.pmcs, &mut self.in_use.pmcs);
        each(&mut self.pmds, claims.pmds, &mut self.in_use.pmds);
    }
}

/// The claims of all attached contexts.
#[derive(Clone, Debug)]
pub struct RegisterUsers {
    threads: UserCounts,
    systems: UserCounts,
}

impl RegisterUsers {
    /// The state without attached contexts: no register is claimed.
    pub const NONE: Self = Self {
        threads: UserCounts::NONE,
        systems: UserCounts::NONE,
    };

    /// Returns the registers that contexts of the other scope claim: those of CPUs if `scope` is
    /// `Thread`, those of threads if `scope` is `System`.
    fn claimed_by_other_scope(&self, scope: Scope) -> RegisterMask {
        match scope {
            Scope::Thread => self.systems.in_use,
            Scope::System => self.threads.in_use,
        }
    }

    /// Returns true if a context of the scope `scope` may claim the registers `claims`.
    pub fn is_available(&self, scope: Scope, claims: &RegisterMask) -> bool {
        !self.claimed_by_other_scope(scope).intersects(claims)
    }

    /// Returns the registers that a context of the scope `scope` may claim.
    pub fn available_registers(&self, scope: Scope) -> RegisterMask {
        let others = self.claimed_by_other_scope(scope);
        RegisterMask {
            pmcs: !others.pmcs,
            pmds: !others.pmds,
        }
    }

    fn counts_mut(&mut self, scope: Scope) -> &mut UserCounts {
        match scope {
            Scope::Thread => &mut self.threads,
            Scope::System => &mut self.systems,
        }
    }

    /// Adds the claims of a context.
    pub fn add(&mut self, scope: Scope, claims: &RegisterMask) {
        self.counts_mut(scope).adjust(claims, 1);
    }

    /// Removes the claims of a context.
    pub fn remove(&mut self, scope: Scope, claims: &RegisterMask) {
        self.counts_mut(scope).adjust(claims, -1);
    }

    /// Returns true if no register is claimed.
    pub fn is_empty(&self) -> bool {
        self.threads.in_use.is_none() && self.systems.in_use.is_none()
    }
}

/// Returns the hardware registers that an event set claims if it uses these PMCs and PMDs. The set
/// claims the PMCs, the counters in `pmds`, the counters that one of the PMCs controls, and all
/// PMCs that control these counters.
pub fn claimed_registers(
    map: &RegisterMap<'_>,
    pmcs: &RegisterBitmap,
    pmds: &RegisterBitmap,
) -> RegisterMask {
    let first = |numbers: &RegisterBitmap| numbers.0.first().copied().unwrap_or(0);
    let (written, asked) = (first(pmcs), first(pmds));
    let mut claims = RegisterMask {
        pmcs: written,
        pmds: 0,
    };
    for (n, register) in map.hardware.pmds.iter().take(MAX_TABLE_ROWS).enumerate() {
        let used = (asked >> n) & 1 != 0 || register.pmcs & written != 0;
        if used && register.is(kind::COUNTER) {
            claims.pmds |= 1u64.wrapping_shl(n as u32);
            claims.pmcs |= register.pmcs;
        }
    }
    claims
}

/// Returns the optional counters of an event set with the PMDs `asked`. A counter is optional if it
/// meets three conditions: the counter is not in `asked`, it shares its PMC with other counters,
/// and some CPUs lack it (`map.pmds_of_some_cpus`). `build_program()` leaves out optional counters,
/// so that the event set can also count on CPUs that lack an optional counter.
pub fn optional_pmds(map: &RegisterMap<'_>, asked: &RegisterBitmap) -> u64 {
    let asked = asked.0.first().copied().unwrap_or(0);
    let rows = map.hardware.pmds.iter().take(MAX_TABLE_ROWS).enumerate();
    let shared = rows.filter(|(_, register)| register.enable != 0);
    shared.fold(0, |all, (n, _)| all | 1u64.wrapping_shl(n as u32)) & map.pmds_of_some_cpus & !asked
}
