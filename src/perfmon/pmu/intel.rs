// SPDX-License-Identifier: GPL-2.0

//! pfm_intel: Intel's architectural performance monitoring, versions 1 to 5
//! (SDM volume 3, "Architectural Performance Monitoring").
//!
//! Version 6 of architectural performance monitoring has event select registers at new addresses.
//! The kernel cannot reserve registers at the new addresses, so this module and perf could use them
//! at the same time. Version 6 is therefore not supported.

#[path = "../../../include/linux/perfmon.rs"]
mod description;

use crate::description::{Pmu, Register, RegisteredPmu};
use base::cpuid::{self, is_hybrid_processor, read_cpuid_leaf, this_cpu_core_type, vendor_string};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::bitfield;
use kernel::ffi::c_uint;
use kernel::prelude::*;

module! {
    type: Intel,
    name: "pfm_intel",
    authors: ["The perfcounters developers"],
    description: "perfmon: Intel architectural performance monitoring",
    license: "GPL",
    alias: ["perfmon-GenuineIntel"],
}

bitfield! {
    /// IA32_PERFEVTSELx (SDM volume 3, "Layout of IA32_PERFEVTSELx MSRs"). This module treats the
    /// bits above bit 31 as reserved bits.
    struct EventSelect(u64) {
        31:24 counter_mask;
        23:23 invert;
        22:22 enable;
        /// Events of the sibling thread are counted as well. Only versions 3 and 4 have AnyThread.
        21:21 any_thread;
        20:20 interrupt;
        19:19 pin_control;
        18:18 edge;
        17:17 os;
        16:16 user;
        15:8 unit_mask;
        7:0 event;
    }
}

bitfield! {
    /// The four bits of fixed counter 0 in IA32_FIXED_CTR_CTRL (SDM volume 3, "Layout of
    /// IA32_FIXED_CTR_CTRL MSR"). The bits of fixed counter n are shifted left by 4 * n.
    struct FixedControl(u64) {
        3:3 interrupt;
        /// Counts events of the sibling thread as well. Only versions 3 and 4 have AnyThread.
        2:2 any_thread;
        1:1 user;
        0:0 os;
    }
}

impl FixedControl {
    /// The bits that enable a fixed counter.
    const ENABLE: u64 = Self::OS_MASK | Self::USER_MASK;
    /// All control bits of a fixed counter.
    const ALL: u64 = Self::ENABLE | Self::ANY_THREAD_MASK | Self::INTERRUPT_MASK;

    /// Shifts `bits` from the position of fixed counter 0 to that of fixed counter `n`.
    const fn of(bits: u64, n: u32) -> u64 {
        bits << (4 * n)
    }

    /// Returns four copies of `bits`: one at the position of each fixed counter from 0 to 3.
    const fn repeat_for_fixed_counters(bits: u64) -> u64 {
        Self::of(bits, 0) | Self::of(bits, 1) | Self::of(bits, 2) | Self::of(bits, 3)
    }
}

bitfield! {
    /// CPUID.0AH:EAX (SDM volume 2, "Architectural Performance Monitoring Leaf").
    struct PerfmonLeafEax(u32) {
        23:16 width;
        15:8 counters;
        7:0 version;
    }
}

bitfield! {
    /// CPUID.0AH:EDX.
    struct PerfmonLeafEdx(u32) {
        12:5 fixed_width;
        4:0 fixed_counters;
    }
}

bitfield! {
    /// CPUID.07H:EDX.
    struct FeaturesEdx(u32) {
        /// Microcode uses general counter 3 for transactions of TSX, unless the MSR TSX_FORCE_ABORT
        /// says that all transactions are aborted.
        13:13 tsx_force_abort;
        /// All transactions of TSX are aborted.
        11:11 rtm_always_abort;
    }
}

impl FeaturesEdx {
    /// Returns whether counts of general counter 3 are wrong if programs use TSX. perf writes the
    /// MSR TSX_FORCE_ABORT before it uses counter 3.
    const fn is_counter_3_shared_with_tsx(edx: u32) -> bool {
        edx & (Self::TSX_FORCE_ABORT_MASK | Self::RTM_ALWAYS_ABORT_MASK)
            == Self::TSX_FORCE_ABORT_MASK
    }
}

const _: () = {
    assert!(FeaturesEdx::is_counter_3_shared_with_tsx(1 << 13));
    assert!(!FeaturesEdx::is_counter_3_shared_with_tsx(
        1 << 13 | 1 << 11
    ));
    assert!(!FeaturesEdx::is_counter_3_shared_with_tsx(0));
};

/// The first event select register, the first counter, the first fixed counter, and the control
/// register of all fixed counters (SDM volume 4, "Architectural MSRs").
const PERFEVTSEL0: u64 = 0x186;
const PMC0: u64 = 0xc1;
const FIXED_CTR0: u64 = 0x309;
const FIXED_CTR_CTRL: u64 = 0x38d;
const GLOBAL_CTRL: u64 = 0x38f;
const GLOBAL_STATUS: u64 = 0x38e;
/// IA32_PERF_GLOBAL_OVF_CTRL, called IA32_PERF_GLOBAL_STATUS_RESET from version 4 on.
const GLOBAL_CLEAR: u64 = 0x390;
/// The bit of RDPMC's argument that selects fixed counters.
const RDPMC_FIXED: u32 = 1 << 30;
/// The last version of architectural performance monitoring whose control registers the kernel can
/// reserve.
const MAX_SUPPORTED_VERSION: u32 = 5;
/// The logical number of two registers: the PMD (data register) of the first fixed counter, and the
/// PMC (control register) that all fixed counters share.
const FIRST_FIXED_NUMBER: usize = 16;
/// Mask of the fixed counters in [`FIXED_COUNTERS`]; bit n stands for fixed counter n.
const KNOWN_FIXED_COUNTER_MASK: u32 = 0xf;

const fn event_select(name: &'static CStr, n: u64) -> Register {
    Register::control(name, PERFEVTSEL0 + n)
        .enable(EventSelect::ENABLE_MASK)
        .interrupt(EventSelect::INTERRUPT_MASK)
        .kernel(EventSelect::OS_MASK | EventSelect::ANY_THREAD_MASK)
        .reserved(!(u32::MAX as u64) | EventSelect::PIN_CONTROL_MASK)
}

const fn counter(name: &'static CStr, n: u32) -> Register {
    Register::counter(name, PMC0 + n as u64, 48)
        .rdpmc(n)
        .pmcs(1 << n)
}

const fn fixed_counter(name: &'static CStr, n: u32) -> Register {
    Register::counter(name, FIXED_CTR0 + n as u64, 48)
        .rdpmc(RDPMC_FIXED | n)
        .pmcs(1 << FIRST_FIXED_NUMBER)
        .enable(FixedControl::of(FixedControl::ALL, n))
        .interrupt(FixedControl::of(FixedControl::INTERRUPT_MASK, n))
}

/// Event select registers of architectural perfmon versions 1 to 5. PMC numbers 8 to 15 are unused.
const EVENT_SELECTS: [Register; 8] = [
    event_select(c"IA32_PERFEVTSEL0", 0),
    event_select(c"IA32_PERFEVTSEL1", 1),
    event_select(c"IA32_PERFEVTSEL2", 2),
    event_select(c"IA32_PERFEVTSEL3", 3),
    event_select(c"IA32_PERFEVTSEL4", 4),
    event_select(c"IA32_PERFEVTSEL5", 5),
    event_select(c"IA32_PERFEVTSEL6", 6),
    event_select(c"IA32_PERFEVTSEL7", 7),
];

const GENERAL_COUNTERS: [Register; 8] = [
    counter(c"IA32_PMC0", 0),
    counter(c"IA32_PMC1", 1),
    counter(c"IA32_PMC2", 2),
    counter(c"IA32_PMC3", 3),
    counter(c"IA32_PMC4", 4),
    counter(c"IA32_PMC5", 5),
    counter(c"IA32_PMC6", 6),
    counter(c"IA32_PMC7", 7),
];

const FIXED_CONTROL: Register = Register::control(c"IA32_FIXED_CTR_CTRL", FIXED_CTR_CTRL)
    .enable(FixedControl::repeat_for_fixed_counters(
        FixedControl::ENABLE,
    ))
    .interrupt(FixedControl::repeat_for_fixed_counters(
        FixedControl::INTERRUPT_MASK,
    ))
    .kernel(FixedControl::repeat_for_fixed_counters(
        FixedControl::OS_MASK | FixedControl::ANY_THREAD_MASK,
    ));

const FIXED_COUNTERS: [Register; 4] = [
    fixed_counter(c"IA32_FIXED_CTR0", 0),
    fixed_counter(c"IA32_FIXED_CTR1", 1),
    fixed_counter(c"IA32_FIXED_CTR2", 2),
    fixed_counter(c"IA32_FIXED_CTR3", 3),
];

/// Contents of CPUID leaf 0xa of a CPU.
struct PerfmonLeaf {
    version: u32,
    nr_counters: usize,
    width: u16,
    /// Mask of the fixed counters that the CPU has; bit n stands for fixed counter n.
    fixed: u32,
    fixed_width: u16,
}

/// Reads CPUID leaf 0xa of this CPU. Returns `None` if the counters of this CPU cannot be used.
fn read_perfmon_leaf() -> Option<PerfmonLeaf> {
    if vendor_string() != *b"GenuineIntel" || (is_hybrid_processor() && this_cpu_core_type() == 0) {
        return None;
    }
    let leaf = read_cpuid_leaf(0xa, 0);
    let (eax, edx) = (
        PerfmonLeafEax::from_raw(leaf.eax),
        PerfmonLeafEdx::from_raw(leaf.edx),
    );
    let version = eax.version().get();
    if !(1..=MAX_SUPPORTED_VERSION).contains(&version) {
        return None;
    }
    let first_fixed = (1 << edx.fixed_counters().get()) - 1;
    Some(PerfmonLeaf {
        version,
        nr_counters: eax.counters().get() as usize,
        width: eax.width().get() as u16,
        fixed: match version {
            1 => 0,
            2..=4 => first_fixed,
            _ => first_fixed | leaf.ecx,
        },
        fixed_width: edx.fixed_width().get() as u16,
    })
}

impl PerfmonLeaf {
    /// Combines the CPUID leaves 0xa of two CPUs. The combined leaf has each register that `self`
    /// or `other` has, the counter widths of `self`, and the lower of the two versions of
    /// architectural performance monitoring.
    fn combine(self, other: PerfmonLeaf) -> Self {
        Self {
            version: self.version.min(other.version),
            nr_counters: self.nr_counters.max(other.nr_counters),
            fixed: self.fixed | other.fixed,
            ..self
        }
    }
}

/// Returns whether this CPU has the MSR at `address`. Also returns false if the MSR is a counter
/// whose width is not `width`.
extern "C" fn here(address: u64, width: c_uint) -> bool {
    let Some(leaf) = read_perfmon_leaf() else {
        return false;
    };
    let is = |first: u64, n: u64| address.wrapping_sub(first) < n;
    let counters = leaf.nr_counters as u64;
    if is(PERFEVTSEL0, counters) {
        true
    } else if is(PMC0, counters) {
        width == leaf.width.into()
    } else if is(FIXED_CTR0, 32) {
        let n = address.wrapping_sub(FIXED_CTR0) as u32;
        leaf.fixed.wrapping_shr(n) & 1 != 0 && width == leaf.fixed_width.into()
    } else {
        leaf.fixed != 0
    }
}

/// Returns the register-table row of the control register that all fixed counters share. The four
/// bits of each counter in `fixed` can be set, but the AnyThread bit only if `any` is true. All
/// other bits of the register are reserved.
fn fixed_control(fixed: u32, any: bool) -> Register {
    let mut row = FIXED_CONTROL;
    row.reserved = !0;
    for n in (0..FIXED_COUNTERS.len() as u32).filter(|n| fixed >> n & 1 != 0) {
        row.reserved &= !FixedControl::of(FixedControl::ALL, n);
    }
    if !any {
        row.reserved |= FixedControl::repeat_for_fixed_counters(FixedControl::ANY_THREAD_MASK);
    }
    row.enable &= !row.reserved;
    row.interrupt &= !row.reserved;
    row.kernel &= !row.reserved;
    row
}

/// Logs why the counters of the processor cannot be used, unless the processor has no counters.
fn log_why_counters_unusable() {
    let version = PerfmonLeafEax::from_raw(read_cpuid_leaf(0xa, 0).eax)
        .version()
        .get();
    if vendor_string() != *b"GenuineIntel" || version == 0 {
    } else if version > MAX_SUPPORTED_VERSION {
        pr_info!("architectural perfmon version {} is not supported: its registers cannot be reserved against perf\n", version);
    } else {
        pr_info!(
            "hybrid processor is not supported: CPUID does not give the core type of each CPU\n"
        );
    }
}

struct Intel {
    _pmu: RegisteredPmu,
}

impl kernel::Module for Intel {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let (mut all, mut any, mut shares_counter_3) = (None, true, false);
        cpuid::call_on_each_cpu_in_turn(&mut || {
            if let Some(leaf) = read_perfmon_leaf() {
                shares_counter_3 |=
                    FeaturesEdx::is_counter_3_shared_with_tsx(read_cpuid_leaf(7, 0).edx);
                any &= leaf.version == 3 || leaf.version == 4;
                all = Some(match all.take() {
                    None => leaf,
                    Some(all) => PerfmonLeaf::combine(all, leaf),
                });
            }
        });
        let Some(leaf) = all else {
            log_why_counters_unusable();
            return Err(ENODEV);
        };
        if shares_counter_3 {
            pr_info!(
                "general counter 3 is not used: microcode needs it for TSX (TSX_FORCE_ABORT)\n"
            );
        }
        let (mut pmcs, mut pmds) = (KVec::new(), KVec::new());
        for n in 0..FIRST_FIXED_NUMBER {
            let (mut pmc, mut pmd) = (Register::UNUSED_ROW, Register::UNUSED_ROW);
            if let (Some(select), Some(counter)) = (EVENT_SELECTS.get(n), GENERAL_COUNTERS.get(n)) {
                if n < leaf.nr_counters && !(n == 3 && shares_counter_3) {
                    (pmc, pmd) = (*select, *counter);
                    pmd.width = leaf.width;
                    if !any {
                        pmc.kernel &= !EventSelect::ANY_THREAD_MASK;
                        pmc.reserved |= EventSelect::ANY_THREAD_MASK;
                    }
                }
            }
            pmcs.push(pmc, GFP_KERNEL)?;
            pmds.push(pmd, GFP_KERNEL)?;
        }
        if leaf.fixed & KNOWN_FIXED_COUNTER_MASK != 0 {
            pmcs.push(fixed_control(leaf.fixed, any), GFP_KERNEL)?;
        }
        for (n, mut pmd) in FIXED_COUNTERS.into_iter().enumerate() {
            pmd.width = leaf.fixed_width;
            match leaf.fixed >> n & 1 {
                0 => pmds.push(Register::UNUSED_ROW, GFP_KERNEL)?,
                _ => pmds.push(pmd, GFP_KERNEL)?,
            }
        }
        let mut pmu = Pmu::new(c"intel-arch", 0);
        pmu.pmcs = pmcs;
        pmu.pmds = pmds;
        pmu.here = Some(here);
        if leaf.version >= 2 {
            pmu.global_ctrl = GLOBAL_CTRL;
            pmu.global_status = GLOBAL_STATUS;
            pmu.global_clear = GLOBAL_CLEAR;
        }
        Ok(Self {
            _pmu: pmu.register(module)?,
        })
    }
}
