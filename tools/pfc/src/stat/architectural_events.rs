// SPDX-License-Identifier: GPL-2.0

//! Intel's architectural events, which have the same code on every processor. CPUID says which of
//! these events a processor cannot count.
#![expect(unsafe_code, reason = "CPUID")]

use std::arch::x86_64::__cpuid;

/// The CPUID leaf of Intel's architectural performance monitoring.
const PERFMON_CPUID_LEAF: u32 = 0xa;
/// The codes of the architectural events, in the order of their bits in EBX of the CPUID leaf.
const EVENT_CODES_BY_BIT: [u64; 7] = [0x003c, 0x00c0, 0x013c, 0x4f2e, 0x412e, 0x00c4, 0x00c5];
/// The code of mispredicted branches.
const BRANCH_MISSES: u64 = 0x00c5;
/// The code that perf uses in place of [`BRANCH_MISSES`] on Nehalem (erratum AAJ80).
const NEHALEM_BRANCH_MISSES: u64 = 0x7f89;

/// The architectural events that the processor can count.
#[derive(Clone, Copy, Debug)]
pub struct ArchitecturalEvents {
    /// Bit n is set if the processor can count event n of [`EVENT_CODES_BY_BIT`].
    available_event_bits: u32,
}

impl ArchitecturalEvents {
    /// All architectural events.
    pub const ALL: Self = Self {
        available_event_bits: !0,
    };

    /// Reads CPUID on the current CPU. Called only if the processor has Intel's architectural
    /// performance monitoring.
    pub fn read() -> Self {
        // SAFETY: Every x86-64 processor has the CPUID instruction, and a processor with
        // architectural performance monitoring has its leaf.
        let leaf = unsafe { __cpuid(PERFMON_CPUID_LEAF) };
        Self::from_cpuid(leaf.eax, leaf.ebx)
    }

    /// Makes the value from two registers of the CPUID leaf. Bit n of EBX is set if the processor
    /// cannot count event n, and bits 24 to 31 of EAX are the number of valid bits in EBX. The
    /// processor cannot count an event that has no valid bit.
    fn from_cpuid(eax: u32, ebx: u32) -> Self {
        let valid = 1u32.checked_shl(eax >> 24).map_or(!0, |bit| bit - 1);
        Self {
            available_event_bits: valid & !ebx,
        }
    }

    /// Returns the code with which perf counts the event `code` on a processor. Returns `None` if
    /// `code` is an architectural event that the processor cannot count.
    pub fn find_countable_code(self, family: u32, model: u32, code: u64) -> Option<u64> {
        let Some(bit) = EVENT_CODES_BY_BIT.iter().position(|c| *c == code) else {
            return Some(code);
        };
        let is_nehalem = family == 6 && matches!(model, 0x1a | 0x1e | 0x2e);
        match (self.available_event_bits >> bit) & 1 {
            0 if code == BRANCH_MISSES && is_nehalem => Some(NEHALEM_BRANCH_MISSES),
            0 => None,
            _ => Some(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_architectural_events_that_cpuid_reports_missing_are_not_counted() {
        let code = |eax, ebx, code| {
            ArchitecturalEvents::from_cpuid(eax, ebx).find_countable_code(6, 0x5e, code)
        };
        let seven_bits = 0x0730_0404;
        for select in EVENT_CODES_BY_BIT {
            assert_eq!(code(seven_bits, 0, select), Some(select));
            assert_eq!(code(seven_bits, 0x7f, select), None);
        }
        assert_eq!(code(seven_bits, 1 << 1, 0x00c0), None);
        assert_eq!(code(seven_bits, 1 << 1, 0x003c), Some(0x003c));
        // In EBX, only five bits are valid, so the last two events have no valid bit.
        assert_eq!(code(0x0530_0404, 0, 0x00c5), None);
        assert_eq!(code(0x0530_0404, 0, 0x412e), Some(0x412e));
        assert_eq!(code(0x2030_0404, 0, 0x00c5), Some(0x00c5));
        // The event 0x0300 is not architectural.
        assert_eq!(code(seven_bits, 0x7f, 0x0300), Some(0x0300));
    }

    #[test]
    fn r1_16_branch_misses_of_nehalem_have_another_code() {
        let events = ArchitecturalEvents::from_cpuid(0x0730_0404, 1 << 6);
        assert_eq!(events.find_countable_code(6, 0x1a, 0x00c5), Some(0x7f89));
        assert_eq!(events.find_countable_code(6, 0x2c, 0x00c5), None);
        let all = ArchitecturalEvents::ALL;
        assert_eq!(all.find_countable_code(6, 0x1a, 0x00c5), Some(0x00c5));
    }
}
