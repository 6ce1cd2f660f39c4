// SPDX-License-Identifier: GPL-2.0

//! pfm_amd: AMD's performance counters (APM volume 2, "Performance Monitoring Counters"). A
//! processor has four counters at the MSR addresses of K7, or six counters if it has the core
//! extension. PerfMonV2 adds a global-control MSR.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{Pmu, Register, RegisteredPmu};
use base::cpuid::{self, read_cpuid_leaf, vendor_string};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::bitfield;
use kernel::ffi::c_uint;
use kernel::prelude::*;

module! {
    type: Amd,
    name: "pfm_amd",
    authors: ["The perfcounters developers"],
    description: "perfmon: AMD performance counters",
    license: "GPL",
    alias: ["perfmon-AuthenticAMD"],
}

bitfield! {
    /// PerfEvtSeln (APM volume 2, "Performance Event-Select Registers").
    struct EventSelect(u64) {
        /// Event numbers of K7 have only 8 bits.
        35:32 event_high;
        31:24 counter_mask;
        23:23 invert;
        22:22 enable;
        21:21 bit_21;
        20:20 interrupt;
        19:19 pin_control;
        18:18 edge;
        17:17 os;
        16:16 user;
        15:8 unit_mask;
        7:0 event;
    }
}

impl EventSelect {
    /// Reserved bits on K7: all from 32 on, bit 21, and pin control.
    const K7_RESERVED: u64 = !(u32::MAX as u64) | Self::BIT_21_MASK | Self::PIN_CONTROL_MASK;
    /// Reserved bits on processors with the core extension, including "guest only" and "host only".
    const CORE_RESERVED: u64 = Self::K7_RESERVED & !Self::EVENT_HIGH_MASK;
}

bitfield! {
    /// CPUID Fn8000_0001_ECX (APM volume 3, "Feature Identifiers"): the core extension.
    struct ExtendedFeaturesEcx(u32) {
        23:23 perfctr_core;
    }
}

// CPUID Fn8000_0022 (APM volume 3, "Extended Performance Monitoring and Debug"): EAX and EBX.
bitfield! {
    struct MonitoringFeatures(u32) {
        0:0 perfmon_v2;
    }
}
bitfield! {
    struct MonitoringCounters(u32) {
        3:0 core_counters;
    }
}

/// MSR addresses of the first event select register and the first counter, on K7 and with the core
/// extension (APM volume 2, "MSR Cross-Reference"). With the core extension, event select registers
/// and counters alternate.
const K7_PERFEVTSEL0: u64 = 0xc001_0000;
const K7_PERFCTR0: u64 = 0xc001_0004;
const CORE_PERFEVTSEL0: u64 = 0xc001_0200;
const CORE_PERFCTR0: u64 = 0xc001_0201;
const GLOBAL_CTRL: u64 = 0xc000_0301;
const GLOBAL_STATUS: u64 = 0xc000_0300;
const GLOBAL_CLEAR: u64 = 0xc000_0302;

const fn event_select(name: &'static CStr, address: u64, reserved: u64) -> Register {
    Register::control(name, address)
        .enable(EventSelect::ENABLE_MASK)
        .interrupt(EventSelect::INTERRUPT_MASK)
        .kernel(EventSelect::OS_MASK)
        .reserved(reserved)
}

const fn k7_select(name: &'static CStr, n: u64) -> Register {
    event_select(name, K7_PERFEVTSEL0 + n, EventSelect::K7_RESERVED)
}

const fn core_select(name: &'static CStr, n: u64) -> Register {
    event_select(name, CORE_PERFEVTSEL0 + 2 * n, EventSelect::CORE_RESERVED)
}

const fn k7_counter(name: &'static CStr, n: u32) -> Register {
    counter(name, K7_PERFCTR0 + n as u64, n)
}

const fn core_counter(name: &'static CStr, n: u32) -> Register {
    counter(name, CORE_PERFCTR0 + 2 * n as u64, n)
}

const fn counter(name: &'static CStr, address: u64, n: u32) -> Register {
    Register::counter(name, address, 48).rdpmc(n).pmcs(1 << n)
}

const K7_PMCS: [Register; 4] = [
    k7_select(c"PerfEvtSel0", 0),
    k7_select(c"PerfEvtSel1", 1),
    k7_select(c"PerfEvtSel2", 2),
    k7_select(c"PerfEvtSel3", 3),
];

const K7_PMDS: [Register; 4] = [
    k7_counter(c"PerfCtr0", 0),
    k7_counter(c"PerfCtr1", 1),
    k7_counter(c"PerfCtr2", 2),
    k7_counter(c"PerfCtr3", 3),
];

const CORE_PMCS: [Register; 6] = [
    core_select(c"Core_X86_PerfEvtSel0", 0),
    core_select(c"Core_X86_PerfEvtSel1", 1),
    core_select(c"Core_X86_PerfEvtSel2", 2),
    core_select(c"Core_X86_PerfEvtSel3", 3),
    core_select(c"Core_X86_PerfEvtSel4", 4),
    core_select(c"Core_X86_PerfEvtSel5", 5),
];

const CORE_PMDS: [Register; 6] = [
    core_counter(c"Core_X86_PerfCtr0", 0),
    core_counter(c"Core_X86_PerfCtr1", 1),
    core_counter(c"Core_X86_PerfCtr2", 2),
    core_counter(c"Core_X86_PerfCtr3", 3),
    core_counter(c"Core_X86_PerfCtr4", 4),
    core_counter(c"Core_X86_PerfCtr5", 5),
];

/// The generation of the processor's counters.
enum Generation {
    K7,
    Core,
    V2,
}

fn detect_generation() -> Option<Generation> {
    // Hygon's processors have AMD's counters.
    if !matches!(&vendor_string(), b"AuthenticAMD" | b"HygonGenuine") {
        return None;
    }
    // CPUID feature PERFCTR_CORE indicates the core extension.
    let features = ExtendedFeaturesEcx::from_raw(read_cpuid_leaf(0x8000_0001, 0).ecx);
    if features.perfctr_core().get() == 0 {
        return Some(Generation::K7);
    }
    let monitoring = MonitoringFeatures::from_raw(read_cpuid_leaf(0x8000_0022, 0).eax);
    Some(match monitoring.perfmon_v2().get() {
        0 => Generation::Core,
        _ => Generation::V2,
    })
}

/// Returns the number of this CPU's counters. CPUID reports the number of counters only with
/// PerfMonV2; on other processors the function returns `usize::MAX`. A virtual machine can have
/// fewer counters than the processor of its host.
fn cpuid_counter_limit() -> usize {
    let leaf = read_cpuid_leaf(0x8000_0022, 0);
    match MonitoringFeatures::from_raw(leaf.eax).perfmon_v2().get() {
        0 => usize::MAX,
        _ => MonitoringCounters::from_raw(leaf.ebx).core_counters().get() as usize,
    }
}

/// Returns whether this CPU has the MSR at `address`.
extern "C" fn here(address: u64, _: c_uint) -> bool {
    match address.wrapping_sub(CORE_PERFEVTSEL0) {
        n @ 0..=0xf => ((n / 2) as usize) < cpuid_counter_limit(),
        _ => true,
    }
}

struct Amd {
    _pmu: RegisteredPmu,
}

impl kernel::Module for Amd {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let (name, tables, global_ctrl) = match detect_generation() {
            Some(Generation::K7) => (c"amd-k7", (&K7_PMCS[..], &K7_PMDS[..]), 0),
            Some(Generation::Core) => (c"amd-core", (&CORE_PMCS[..], &CORE_PMDS[..]), 0),
            Some(Generation::V2) => (c"amd-v2", (&CORE_PMCS[..], &CORE_PMDS[..]), GLOBAL_CTRL),
            None => return Err(ENODEV),
        };
        let mut pmu = Pmu::new(name, 0);
        let mut most = 0;
        cpuid::call_on_each_cpu_in_turn(&mut || most = cpuid_counter_limit().max(most));
        let nr = most.min(tables.0.len());
        let rows = |table: &'static [Register]| table.get(..nr).unwrap_or(table);
        pmu.pmcs.extend_from_slice(rows(tables.0), GFP_KERNEL)?;
        pmu.pmds.extend_from_slice(rows(tables.1), GFP_KERNEL)?;
        pmu.here = Some(here);
        if global_ctrl != 0 {
            pmu.global_ctrl = global_ctrl;
            pmu.global_status = GLOBAL_STATUS;
            pmu.global_clear = GLOBAL_CLEAR;
        }
        Ok(Self {
            _pmu: pmu.register(module)?,
        })
    }
}
