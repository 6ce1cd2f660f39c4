// SPDX-License-Identifier: GPL-2.0

//! The handler of overflow NMIs, and the irq_work that reads the counters after an NMI has found a
//! context's lock held. `src/perfmon/helpers/sampling.c` calls both.

#![expect(unsafe_code, reason = "called by C in an NMI")]

use kernel::bindings;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{loaded_or_attached_context, Context};
use crate::msr;
use crate::nmi::{self, IrqRegs, NmiRegisters};
use crate::per_cpu::counting_global_ctrl_bits;
use crate::stats::{self, PerfmonStatistic};
use base::clock;

/// Handles an NMI. Returns the number of overflows that caused the NMI, where 2 can stand for more
/// than two. Returns 0 if no counter of this module caused the NMI.
///
/// # Safety
///
/// Called by C code in an NMI; `regs` and `global` are valid until the function returns.
#[no_mangle]
unsafe extern "C" fn pfm_handle_nmi(
    regs: *const bindings::pt_regs,
    global: *const NmiRegisters,
) -> u32 {
    // SAFETY: `pfm_nmi_set_registers` changes the structure at `global` only while no NMI handler
    // uses it.
    let (interrupted, global) = (IrqRegs(regs), unsafe { &*global });
    let began = clock::read_tsc();
    if global.control != 0 {
        msr::write(global.control, 0);
    }
    let over = match global.status {
        0 => 0,
        status => msr::read(status) & global.bits,
    };
    let mut handled = 0u32;
    let loaded = [
        loaded_or_attached_context(Scope::Thread),
        loaded_or_attached_context(Scope::System),
    ];
    let mut busy = [false; 2];
    for (context, busy) in loaded.iter().zip(&mut busy) {
        if let Some(context) = context {
            let (told, interrupts) = context.handle_overflow(interrupted);
            handled = handled.wrapping_add(interrupts);
            *busy = told != 0;
        }
    }
    // If the PMU has a global status register, take the number of overflows from this register.
    if global.status != 0 {
        // The code below and the kernel tell only 0, 1 and more overflows apart. The kernel is
        // compiled without the instruction that counts bits, which not all processors have.
        handled = match over {
            0 => 0,
            one if one.is_power_of_two() => 1,
            _ => 2,
        };
        if over != 0 {
            msr::write(global.clear, over);
        }
    }
    match handled {
        0 => stats::count(PerfmonStatistic::NmiSpurious),
        _ => stats::count(PerfmonStatistic::NmiHandled),
    }
    // An NMI that finds no overflow, because an earlier NMI has handled its overflow, must be
    // recognized as stale. Without a global status register, one NMI can handle the overflows of
    // two NMIs. On AMD, one overflow can cause two NMIs even with a global status register: the
    // first NMI clears the status, so the second NMI finds no overflow.
    if global.may_nmi_be_stale != 0 || global.status == 0 {
        if handled == 0 && nmi::take_stale_nmi() {
            handled = 1;
        } else if handled > u32::from(global.may_nmi_be_stale == 0) {
            nmi::expect_stale_nmi(began);
        }
    }
    if busy != [false; 2] {
        limit_sample_rate(&loaded, busy, began, Some(interrupted));
    }
    // The processor masked the LVTPC entry when it delivered the NMI. Unmask the LVTPC entry only
    // after the overflow was cleared, because an overflow that is still set would cause another
    // NMI. Unmask the LVTPC entry before counters are enabled.
    nmi::unmask_lvtpc();
    if global.control != 0 {
        msr::write(global.control, counting_global_ctrl_bits());
    }
    stats::add_elapsed(PerfmonStatistic::NmiTime, began as u32);
    handled
}

/// Reads the counters in an irq_work, because an NMI found a context's lock held and could not read
/// them ([`nmi::defer`]). Called by C code with interrupts off.
#[no_mangle]
extern "C" fn pfm_handle_deferred_nmi() {
    stats::count(PerfmonStatistic::NmiDeferred);
    let began = nmi::take_first_deferred_nmi_time();
    let loaded = [
        loaded_or_attached_context(Scope::Thread),
        loaded_or_attached_context(Scope::System),
    ];
    let mut busy = [false; 2];
    for (context, busy) in loaded.iter().zip(&mut busy) {
        *busy = context.is_some_and(|context| context.sync_and_deliver_if_local() != 0);
    }
    // NMIs can be too frequent even if the calls of sync_and_deliver_if_local() have delivered no
    // overflow. If they have delivered none, both the thread's context and the CPU's context may be
    // throttled.
    if busy == [false; 2] {
        busy = [true; 2];
    }
    limit_sample_rate(&loaded, busy, began, None);
}

/// Accounts the time since the time stamp `began` as sampling time, and throttles the contexts that
/// are marked in `busy` if sampling takes too much time. `code` has the registers of the code that
/// an NMI has interrupted, or `None` outside NMIs. If the thread's context and the CPU's context
/// have both taken samples, the samples are accounted as one, because only their total time was
/// measured.
fn limit_sample_rate(
    loaded: &[Option<&Context>; 2],
    busy: [bool; 2],
    began: u64,
    code: Option<IrqRegs>,
) {
    let pause = nmi::account_sampling_time(began, code);
    if pause != 0 {
        for (context, busy) in loaded.iter().zip(busy) {
            if let Some(context) = context.filter(|_| busy) {
                context.throttle(pause);
            }
        }
    }
}
