// SPDX-License-Identifier: GPL-2.0

//! The codes that select events in the control registers of hardware counters, and the codes of
//! perf's generic names.

use perfmon::Map;

/// The vendor of the processor's PMU description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Intel,
    Amd,
}

/// The code of an event that a hardware counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCode {
    /// Event select, unit mask and the other bits of the PMC (control register), without the bits
    /// of user and kernel mode.
    pub select: u64,
    /// The number of the Intel fixed counter that can count the event, if there is such a counter.
    pub fixed_counter: Option<u16>,
    /// True if no general counter can count the event.
    pub is_fixed_only: bool,
    /// A bit mask of the general counters that can count the event.
    pub counters: u64,
    pub counts_user: bool,
    pub counts_kernel: bool,
}

/// Bits of a raw code that do not select the event: user, kernel, interrupt and enable.
pub const NON_EVENT_BITS: u64 = (1 << 16) | (1 << 17) | (1 << 20) | (1 << 22);

const fn new_event_code(select: u64) -> EventCode {
    EventCode {
        select,
        fixed_counter: None,
        is_fixed_only: false,
        counters: u64::MAX,
        counts_user: false,
        counts_kernel: false,
    }
}

/// Makes the event code for a raw event select. On Intel, [`EventCode::fixed_counter`] is set if a
/// fixed counter can count the event, and codes with event number 0 are for fixed counters only.
pub fn new_raw_event_code(select: u64, vendor: Vendor) -> EventCode {
    let mut event_code = new_event_code(select & !NON_EVENT_BITS);
    if vendor == Vendor::Intel {
        (event_code.fixed_counter, event_code.is_fixed_only) = match event_code.select {
            0x00c0 => (Some(0), false),
            0x003c => (Some(1), false),
            0x0300 => (Some(2), true),
            0x0400 => (Some(3), true),
            _ => (None, false),
        };
    }
    event_code
}

/// Resolves one of perf's generic names. Returns `Some(None)` if this machine cannot count the
/// event, and `None` if the name is not a generic name.
pub fn resolve_generic_name(
    name: &str,
    vendor: Option<Vendor>,
    family: u32,
    map: &Map,
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
