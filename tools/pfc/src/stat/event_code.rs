// SPDX-License-Identifier: GPL-2.0

//! The codes that select events in the control registers of hardware counters, and the codes of
//! perf's generic names.

use perfmon::constraints::is_intel_fixed_only;
use perfmon::RegisterMap;

/// The vendor of the processor's PMU description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Intel,
    Amd,
}

/// The code of an event that a hardware counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCode {
    /// The bits of the PMC (control register) that select the event: event select, unit mask and
    /// others. The bits that enable counting in user and kernel mode are not included.
    pub select: u64,
    /// The number of the Intel fixed counter that can count the event, if there is such a counter.
    pub fixed_counter: Option<u16>,
    /// True if no general counter can count the event.
    pub is_fixed_only: bool,
    /// A bit mask of the general counters that can count the event.
    pub general_counter_mask: u64,
    pub counts_user: bool,
    pub counts_kernel: bool,
}

/// The bit of a control register that enables counting in user mode.
pub const COUNT_USER_BIT: u64 = 1 << 16;
/// The bit of a control register that enables counting in kernel mode.
pub const COUNT_KERNEL_BIT: u64 = 1 << 17;
/// Bits of a raw code that do not select the event: the bits for user mode, kernel mode, interrupt
/// and enable.
pub const NON_EVENT_BITS: u64 = COUNT_USER_BIT | COUNT_KERNEL_BIT | (1 << 20) | (1 << 22);

const fn new_unrestricted_event_code(select: u64) -> EventCode {
    EventCode {
        select,
        fixed_counter: None,
        is_fixed_only: false,
        general_counter_mask: u64::MAX,
        counts_user: false,
        counts_kernel: false,
    }
}

/// Makes the event code for a raw event select. On Intel, [`EventCode::fixed_counter`] is set if a
/// fixed counter can count the event, and [`EventCode::is_fixed_only`] if no general counter can.
pub fn new_raw_event_code(select: u64, vendor: Vendor) -> EventCode {
    let mut event_code = new_unrestricted_event_code(select & !NON_EVENT_BITS);
    if vendor == Vendor::Intel {
        (event_code.fixed_counter, event_code.is_fixed_only) = match event_code.select {
            0x00c0 => (Some(0), false),
            0x003c => (Some(1), false),
            0x0100 => (Some(0), true),
            0x0200 => (Some(1), true),
            0x0300 => (Some(2), true),
            0x0400 => (Some(3), true),
            select => (None, is_intel_fixed_only(select)),
        };
    }
    event_code
}

/// Returns the modes in which an event is counted, as (user, kernel). `None` means that the user has
/// selected no mode. `select` is the code from libpfm4 for the name of the event. The name may
/// select modes before its end, as in `INST_RETIRED:ANY_P:u:c=1`; libpfm4 sets the bits of both
/// modes if the name selects no mode. `requested` has the modes at the end of the name.
pub fn add_modes_of_libpfm_code(
    select: u64,
    requested: Option<(bool, bool)>,
) -> Option<(bool, bool)> {
    match (select & COUNT_USER_BIT != 0, select & COUNT_KERNEL_BIT != 0) {
        (true, true) => requested,
        (user, kernel) => {
            let (more_user, more_kernel) = requested.unwrap_or_default();
            Some((user || more_user, kernel || more_kernel))
        }
    }
}

/// Returns false if libpfm4's code for the event `name` selects a fixed counter that counts another
/// event. For example, libpfm4 4.13 gives `TOPDOWN:BACKEND_BOUND_SLOTS` of Ice Lake the code of the
/// fixed counter for cycles.
pub fn is_libpfm_code_plausible(name: &str, code: EventCode) -> bool {
    let words: &[&str] = match code.select {
        _ if !code.is_fixed_only => return true,
        0x0100 => &["INST_RETIRED"],
        0x0200 => &["CPU_CLK_UNHALTED"],
        0x0300 => &["UNHALTED"],
        0x0400 => &[":SLOTS", ".SLOTS"],
        _ => return true,
    };
    let name = name.to_ascii_uppercase();
    words.iter().any(|word| name.contains(word))
}

/// Resolves one of perf's generic names. Returns `Some(None)` if this machine cannot count the
/// event, and `None` if the name is not a generic name.
pub fn resolve_generic_name(
    name: &str,
    vendor: Option<Vendor>,
    family: u32,
    map: &RegisterMap,
) -> Option<Option<EventCode>> {
    use Vendor::{Amd, Intel};
    // AMD's families from 0x17 on are Zen and later processors. AMD's families before 0x17 have
    // other codes for cache events than Zen.
    let is_zen = family >= 0x17;
    // AMD's event for reference cycles exists since PerfMonV2.
    let has_perfmon_v2 = map.hardware.as_ref().is_some_and(|d| d.name == "amd-v2");
    let select = match (name, vendor) {
        ("cycles" | "cpu-cycles", Some(Intel)) => 0x3c,
        ("cycles" | "cpu-cycles", Some(Amd)) => 0x76,
        ("instructions", Some(_)) => 0xc0,
        ("branches" | "branch-instructions", Some(Intel)) => 0xc4,
        ("branches" | "branch-instructions", Some(Amd)) => 0xc2,
        ("branch-misses", Some(Intel)) => 0xc5,
        ("branch-misses", Some(Amd)) => 0xc3,
        ("cache-references", Some(Intel)) => 0x4f2e,
        ("cache-references", Some(Amd)) if is_zen => 0xff60,
        ("cache-references", Some(Amd)) => 0x077d,
        ("cache-misses", Some(Intel)) => 0x412e,
        ("cache-misses", Some(Amd)) if is_zen => 0x0964,
        ("cache-misses", Some(Amd)) => 0x077e,
        ("ref-cycles", Some(Intel)) => 0x0300,
        ("ref-cycles", Some(Amd)) if has_perfmon_v2 => 0x1_0000_0120,
        ("bus-cycles", Some(Intel)) => 0x013c,
        (
            "cycles"
            | "cpu-cycles"
            | "instructions"
            | "branches"
            | "branch-instructions"
            | "branch-misses"
            | "cache-references"
            | "cache-misses"
            | "ref-cycles"
            | "bus-cycles",
            _,
        ) => return Some(None),
        _ => return None,
    };
    Some(vendor.map(|vendor| new_raw_event_code(select, vendor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_intels_codes_with_event_number_0_are_for_fixed_counters() {
        let code = |select| new_raw_event_code(select, Vendor::Intel);
        for (select, counter) in [
            (0x0100, Some(0)),
            (0x53_0200, Some(1)),
            (0x0300, Some(2)),
            (0x0400, Some(3)),
            (0x0000, None),
            (0x0500, None),
            (0x8000, None),
            (0x0100_0100, None),
        ] {
            assert_eq!(code(select).fixed_counter, counter, "{select:#x}");
            assert!(code(select).is_fixed_only, "{select:#x}");
        }
        assert!(!code(0x01c0).is_fixed_only);
        // On AMD, event select 0 is not special: it selects an event that general counters count.
        let amd = new_raw_event_code(0x0100, Vendor::Amd);
        assert_eq!((amd.fixed_counter, amd.is_fixed_only), (None, false));
    }

    #[test]
    fn r1_16_modes_inside_names_of_libpfm4_are_requested_modes() {
        let (user, kernel) = (Some((true, false)), Some((false, true)));
        // libpfm4 gives the first code for INST_RETIRED:ANY_P:u:c=1, and the second code for
        // INST_RETIRED:ANY_P:k:c=1.
        for (code, requested, modes) in [
            (0x151_00c0, None, user),
            (0x152_00c0, None, kernel),
            (0x151_00c0, kernel, Some((true, true))),
            (0x153_00c0, None, None),
            (0x153_00c0, kernel, kernel),
            // INST_RETIRED:ANY_P:u=0
            (0x50_00c0, None, Some((false, false))),
        ] {
            assert_eq!(
                add_modes_of_libpfm_code(code, requested),
                modes,
                "{code:#x}"
            );
        }
    }

    #[test]
    fn r1_16_names_of_libpfm4_with_code_of_another_event_are_recognized() {
        let fits = |name, select| {
            is_libpfm_code_plausible(name, new_raw_event_code(select, Vendor::Intel))
        };
        assert!(fits("INST_RETIRED:PREC_DIST", 0x53_0100));
        assert!(fits("spr::cpu_clk_unhalted.thread", 0x53_0200));
        assert!(fits("UNHALTED_REFERENCE_CYCLES", 0x53_0300));
        assert!(fits("TOPDOWN:SLOTS", 0x53_0400));
        assert!(!fits("TOPDOWN:BACKEND_BOUND_SLOTS", 0x53_0200));
        assert!(!fits("TOPDOWN:BAD_SPEC_SLOTS", 0x53_0400));
        // libpfm4's table for Goldmont lists reference cycles with the code of the fixed counter
        // for instructions.
        assert!(!fits("CPU_CLK_UNHALTED:REF", 0x53_0100));
        assert!(fits("TOPDOWN:BACKEND_BOUND_SLOTS", 0x53_02a4));
        let amd = new_raw_event_code(0x53_0100, Vendor::Amd);
        assert!(is_libpfm_code_plausible("DISPATCHED_FPU:OPS_ADD", amd));
    }
}
