// SPDX-License-Identifier: GPL-2.0

//! The reservation of the hardware PMU, and the reset of its registers.

use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::delayed_work::WrapTimer;
use crate::msr::{self, ReservedMsrs};
use crate::nmi::{self, NmiRegisters};
use crate::per_cpu;
use crate::pmu_registers::PmuRegisters;
use base::{clock, cpu, global_mutex};

global_mutex! {
    /// The register tables of the reserved PMU. A CPU that comes online resets the PMU's registers.
    /// `RESERVED_PMU_REGISTERS` is taken under `SESSION`, and by CPU hotplug callbacks.
    pub(crate) static RESERVED_PMU_REGISTERS: Mutex<Option<Arc<PmuRegisters>>> = None;
}

/// The reservation of the hardware PMU. While the reservation exists, perf and the NMI watchdog
/// cannot use the PMU.
pub(crate) struct PmuReservation {
    /// The register tables of the PMU. The PMU's hardware registers are reset when the reservation
    /// ends.
    registers: Arc<PmuRegisters>,
    /// The periodic worker that reads counters before they wrap.
    _wrap_timer: WrapTimer,
    /// A guard: overflow NMIs are handled while this value exists.
    _overflows: nmi::OverflowHandling,
    /// The reserved control registers.
    _reserved_msrs: ReservedMsrs,
}

impl PmuReservation {
    /// Reserves all control registers of the PMU, and starts the periodic worker and the handling
    /// of overflow NMIs.
    ///
    /// # Errors
    ///
    /// `EBUSY` if perf or the NMI watchdog uses the PMU, `ENOMEM`.
    pub(crate) fn reserve(registers: Arc<PmuRegisters>) -> Result<Self> {
        let all = registers.hardware_controls().map(|r| r.address);
        let reserved = ReservedMsrs::reserve(all).inspect_err(|error| {
            if *error == EBUSY {
                pr_warn_once!(
                    "PMU is in use by perf or the NMI watchdog; end perf, or stop the \
                     watchdog with \"sysctl kernel.nmi_watchdog=0\"; \"pfc doctor\" lists the users\n"
                );
            }
        })?;
        let overflows = nmi::OverflowHandling::new(&nmi_registers(&registers));
        *RESERVED_PMU_REGISTERS.lock() = Some(registers.clone());
        // Relaxed: the lock of a context orders this increment before the load of `NR_RESERVATIONS`
        // in reset_pmu_once().
        NR_RESERVATIONS.fetch_add(1, Relaxed);
        let widths = registers.hardware_counters().map(|r| u32::from(r.width));
        Ok(Self {
            _wrap_timer: WrapTimer::start(wrap_period_ms(widths.min().unwrap_or(64))),
            _overflows: overflows,
            registers,
            _reserved_msrs: reserved,
        })
    }
}

impl Drop for PmuReservation {
    /// Resets the PMU of each CPU on which a context was programmed since the PMU was reserved.
    /// Called when no context that uses hardware registers is attached any more.
    fn drop(&mut self) {
        let taken = NR_RESERVATIONS.load(Relaxed);
        cpu::call_on_selected_cpus(
            &|cpu| per_cpu::reservation_of_last_reset_on(cpu) == taken,
            &|| {
                reset_pmu(&self.registers);
            },
        );
        *RESERVED_PMU_REGISTERS.lock() = None;
    }
}

/// Number of times that the PMU was reserved. The per-CPU variable `pfm_reset_for` has the value
/// that `NR_RESERVATIONS` had when [`reset_pmu_once`] last reset the CPU's PMU. If `pfm_reset_for`
/// differs from `NR_RESERVATIONS`, the CPU's PMU still has to be reset.
static NR_RESERVATIONS: Atomic<u64> = Atomic::new(0);

/// Resets this CPU's PMU if it has not been reset since the PMU was reserved. Called with
/// interrupts off, before a context that uses hardware registers is programmed.
#[inline]
pub(crate) fn reset_pmu_once(registers: &PmuRegisters) {
    // Relaxed: the PMU was reserved before the context was started. The context's lock, which the
    // caller holds, orders the increment in reserve() before this load.
    let taken = NR_RESERVATIONS.load(Relaxed);
    if per_cpu::reservation_of_last_reset() != taken {
        reset_pmu_for_reservation(registers, taken);
    }
}

#[cold]
fn reset_pmu_for_reservation(registers: &PmuRegisters, taken: u64) {
    reset_pmu(registers);
    per_cpu::set_reservation_of_last_reset(taken);
}

/// Returns the period, in milliseconds, of the worker that reads counters of `width` bits before
/// they wrap. A counter that counts 2^34 events per second advances by half of its range in one
/// period of the worker. The period is at least 100 ms and at most one hour, and is 100 ms for
/// widths below 35 bits.
fn wrap_period_ms(width: u32) -> u32 {
    let turn = 1000u64
        .checked_shl(width.saturating_sub(35))
        .unwrap_or(u64::MAX);
    let turn = match width {
        35.. => turn,
        _ => 0,
    };
    turn.clamp(100, 3_600_000) as u32
}

/// Returns the addresses and the bits of the global registers, which the NMI handler needs.
fn nmi_registers(registers: &PmuRegisters) -> NmiRegisters {
    let map = registers.as_map();
    NmiRegisters {
        control: map.global_ctrl,
        status: map.global_status,
        clear: map.global_clear,
        bits: registers
            .hardware_counters()
            .fold(0, |bits, r| bits | r.global_bit()),
        may_nmi_be_stale: u64::from(nmi::may_nmi_be_stale()),
    }
}

/// Clears the overflow status of this CPU, and unmasks the overflow interrupt (LVTPC).
fn clear_overflow_and_unmask(global: &NmiRegisters) {
    if global.clear != 0 {
        // The NMI of an overflow can still arrive after the overflow has been cleared, so announce
        // a stale NMI. Write only the bits that are set, because writing the bit of a counter that
        // this CPU lacks would fault.
        let over = msr::read(global.status) & global.bits;
        if global.may_nmi_be_stale != 0 && over != 0 {
            nmi::expect_stale_nmi(clock::read_tsc());
        }
        msr::write(global.clear, over);
    }
    nmi::unmask_lvtpc();
}

/// Resets this CPU's PMU: no counter is enabled, all counters are 0, and no overflow is flagged.
pub(crate) fn reset_pmu(registers: &PmuRegisters) {
    if registers.as_map().global_ctrl != 0 {
        msr::write(registers.as_map().global_ctrl, 0);
    }
    for control in registers.hardware_controls() {
        msr::write(control.address, control.reset);
    }
    for counter in registers.hardware_counters() {
        msr::write(counter.address, 0);
    }
    clear_overflow_and_unmask(&nmi_registers(registers));
}
