// SPDX-License-Identifier: GPL-2.0

//! Checks, with the tables of `pfc stat`, that a counter can count the event that a PMC (control
//! register) selects.
#![expect(unsafe_code, reason = "CPUID, and a copy of the caller's array")]

use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ffi::c_int;
use core::mem::MaybeUninit;

use perfmon::constraints::{
    amd_counter_mask, amd_extra_resource, intel_counter_mask, intel_extra_resource,
    is_intel_fixed_only,
};
use perfmon_rules::abi::{Pmc, VECTOR_MAX};

/// Number of PMCs (control registers) that are event selectors: PMC n, for n < 16, selects the
/// event of counter n.
const NR_EVENT_SELECTORS: u16 = 16;
/// The bit of an event selector that makes its counter count.
const SELECTOR_ENABLE_BIT: u64 = 1 << 22;
/// The bit in EDX of Intel's CPUID leaf 7 that is set on hybrid processors.
const CPUID_HYBRID_BIT: u32 = 1 << 15;
/// Maximum number of PMCs that the kernel accepts in a call.
const MAX_PMCS_PER_CALL: usize = VECTOR_MAX / size_of::<Pmc>();

/// Returns false if one of `n` PMCs enables an event that its counter cannot count on this
/// processor, or an event that needs a second register or counter. Always returns true on a hybrid
/// processor. If the array `pmcs` cannot be read, returns true: the caller then calls the ioctl
/// that writes the PMCs, and this ioctl reports the error.
pub(crate) fn can_count_selected_events(pmcs: *const Pmc, n: c_int) -> bool {
    let Some(nr) = usize::try_from(n)
        .ok()
        .filter(|nr| *nr <= MAX_PMCS_PER_CALL)
    else {
        return true;
    };
    let mut copy = [const { MaybeUninit::<Pmc>::uninit() }; MAX_PMCS_PER_CALL];
    let size = nr.wrapping_mul(size_of::<Pmc>());
    let (to, from) = (
        libc::iovec {
            iov_base: copy.as_mut_ptr().cast(),
            iov_len: size,
        },
        libc::iovec {
            iov_base: pmcs.cast_mut().cast(),
            iov_len: size,
        },
    );
    // Let the kernel copy the array, because the address of the array may be invalid.
    // SAFETY: The kernel checks the addresses of `pmcs` and of `copy`, and `copy` has room for
    // `size` bytes.
    let got =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    if usize::try_from(got) != Ok(size) {
        return true;
    }
    let Some(processor) = Processor::detect() else {
        return true;
    };
    copy.iter().take(nr).all(|pmc| {
        // SAFETY: The kernel has copied `nr` PMCs. PMCs consist of integers, so any bytes are
        // valid.
        let pmc = unsafe { pmc.assume_init_ref() };
        pmc.reg_num >= NR_EVENT_SELECTORS
            || pmc.reg_value & SELECTOR_ENABLE_BIT == 0
            || processor.can_counter_count_event(pmc.reg_num, pmc.reg_value)
    })
}

/// A processor for whose events the library has tables.
struct Processor {
    is_intel: bool,
    /// The processor has several core types.
    is_hybrid: bool,
    family: u32,
    model: u32,
}

impl Processor {
    /// Returns the processor of this machine, or `None` if its vendor is not Intel, AMD or Hygon.
    fn detect() -> Option<Self> {
        // SAFETY: Every x86-64 processor has the CPUID instruction with leaves 0 and 1.
        let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1)) };
        let features = match vendor.eax {
            0..=6 => 0,
            // SAFETY: The processor has CPUID leaf 7.
            _ => unsafe { __cpuid_count(7, 0) }.edx,
        };
        let is_intel = match vendor.ebx {
            // "Genu"ineIntel, "Auth"enticAMD, "Hygo"nGenuine
            0x756e_6547 => true,
            0x6874_7541 | 0x6f67_7948 => false,
            _ => return None,
        };
        let (base, extended) = ((version.eax >> 8) & 0xf, (version.eax >> 20) & 0xff);
        Some(Self {
            is_intel,
            is_hybrid: is_intel && features & CPUID_HYBRID_BIT != 0,
            family: match base {
                0xf => base.wrapping_add(extended),
                _ => base,
            },
            model: ((version.eax >> 4) & 0xf) | ((version.eax >> 12) & 0xf0),
        })
    }

    fn can_counter_count_event(&self, counter: u16, select: u64) -> bool {
        // The core types of a hybrid processor use the same code for different events, and the
        // context may count on CPUs of one core type only.
        if self.is_hybrid {
            return true;
        }
        let (extra_resource, counters) = match self.is_intel {
            true if is_intel_fixed_only(select) => return false,
            true => (
                intel_extra_resource(self.family, self.model, select),
                intel_counter_mask(self.family, self.model, select),
            ),
            false => (
                amd_extra_resource(self.family, select),
                amd_counter_mask(self.family, select),
            ),
        };
        extra_resource.is_none() && (counters >> counter) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_event_number_0_is_refused_on_general_counters_of_intel() {
        let processor = |is_intel| Processor {
            is_intel,
            is_hybrid: false,
            family: if is_intel { 6 } else { 0x17 },
            model: 1,
        };
        // 0x0300 is the code of a fixed counter, and 0x41_0000 has only mode and enable bits.
        for select in [0x41_0300, 0x41_0000] {
            assert!(
                !processor(true).can_counter_count_event(0, select),
                "{select:#x}"
            );
            assert!(
                processor(false).can_counter_count_event(0, select),
                "{select:#x}"
            );
        }
        assert!(processor(true).can_counter_count_event(0, 0x41_003c));
    }

    #[test]
    fn r1_16_events_of_a_hybrid_processor_are_not_refused() {
        let mut processor = Processor {
            is_intel: true,
            is_hybrid: false,
            family: 6,
            model: 0x97,
        };
        // 0x05d0 needs a second register on the Atom cores of this model, and 0x04a4 is for counter
        // 0 of the Core cores only.
        for (counter, select) in [(0, 0x05d0), (1, 0x04a4)] {
            assert!(
                !processor.can_counter_count_event(counter, select),
                "{select:#x}"
            );
        }
        processor.is_hybrid = true;
        for (counter, select) in [(0, 0x05d0), (1, 0x04a4)] {
            assert!(
                processor.can_counter_count_event(counter, select),
                "{select:#x}"
            );
        }
    }
}
