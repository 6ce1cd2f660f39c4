// SPDX-License-Identifier: GPL-2.0

//! The structures of `include/uapi/linux/perfmon.h`, with the same layout, and the checks of their
//! fields that do not depend on the state of a monitoring context.

#![allow(missing_docs, reason = "documented in the C headers")]

use crate::error::Error;
use crate::event_sets::SwitchPolicy;
use crate::register_bitmap::RegisterBitmap;
use crate::register_map::Scope;
use crate::registers::REGFL_SHORT;

/// `pfarg_ctx.ctx_flags`: the context monitors a CPU instead of a thread.
pub const FL_SYSTEM_WIDE: u32 = 0x02;
/// `pfarg_ctx.ctx_flags`: the monitored thread sleeps after a notification until `PERFMON_RESTART`.
pub const FL_NOTIFY_BLOCK: u32 = 0x01;
/// `pfarg_ctx.ctx_flags`: overflows queue no messages.
pub const FL_OVFL_NO_MSG: u32 = 0x80;
/// `PERFMON_FL_CORE`: the context counts only on CPUs of the core type `ctx_core`.
pub const FL_CORE: u32 = 0x100;
/// `PERFMON_FORMAT_NAME`: maximum size of a format's name in bytes, NUL included.
pub const FORMAT_NAME: usize = 32;
/// `PERFMON_FORMAT_ARG`: maximum size of a format's argument in bytes.
pub const FORMAT_ARG: usize = 4096;
/// `PERFMON_VECTOR_MAX`: maximum size in bytes of the elements of a [`Vector`].
pub const VECTOR_MAX: usize = 4096;

/// `PFM_REGFL_OVFL_NOTIFY`: an overflow of the PMD queues a message.
pub const REGFL_OVFL_NOTIFY: u32 = 0x01;
/// `PFM_REGFL_RANDOM`: the lengths of the sampling periods of the PMD are random.
pub const REGFL_RANDOM: u32 = 0x02;
/// Maximum number of PMDs (PMU data registers) that a sample records.
pub const MAX_VALUES_PER_SAMPLE: usize = 64;

/// Actions that a sampling format requests: `PERFMON_DO_*`.
pub mod action {
    pub const NOTIFY: u32 = 0x1;
    pub const RESET: u32 = 0x2;
    pub const MASK: u32 = 0x4;
    pub const WAKE: u32 = 0x8;
}

protocols::structures! {
    /// `struct pfarg_ctx`: the argument of `PERFMON_CREATE`.
    #[derive(Debug, Default)]
    pub struct Ctx(64) {
        pub ctx_flags: u32,
        pub ctx_core: u32,
        pub ctx_reserved2: [u64; 7],
    }

    /// `struct pfarg_pmc`: a PMC (PMU control register) to write.
    #[derive(Debug, Default)]
    pub struct Pmc(48) {
        pub reg_num: u16,
        pub reg_set: u16,
        pub reg_flags: u32,
        pub reg_value: u64,
        pub reg_reserved2: [u64; 4],
    }

    /// `struct pfarg_pmd`: a PMD (PMU data register) to write or read.
    #[derive(Debug, Default)]
    pub struct Pmd(8 + 5 * 8 + 2 * 40 + 2 * 8 + 4 + 28) {
        pub reg_num: u16,
        pub reg_set: u16,
        pub reg_flags: u32,
        pub reg_value: u64,
        pub reg_long_reset: u64,
        pub reg_short_reset: u64,
        pub reg_last_reset_val: u64,
        pub reg_ovfl_switch_cnt: u64,
        pub reg_reset_pmds: RegisterBitmap,
        pub reg_smpl_pmds: RegisterBitmap,
        pub reg_smpl_eventid: u64,
        pub reg_random_mask: u64,
        pub reg_random_seed: u32,
        pub reg_reserved2: [u32; 7],
    }

    /// `struct pfarg_start`: the argument of `PERFMON_START`.
    #[derive(Debug, Default)]
    pub struct Start(32) {
        pub start_set: u16,
        pub start_reserved1: u16,
        pub start_reserved2: u32,
        pub start_reserved3: [u64; 3],
    }

    /// `struct pfarg_load`: the argument of `PERFMON_LOAD`.
    #[derive(Debug, Default)]
    pub struct Load(32) {
        pub load_pid: u32,
        pub load_set: u16,
        pub load_reserved1: u16,
        pub load_reserved2: [u64; 3],
    }

    /// `struct perfmon_create`: the argument of `PERFMON_CREATE_FORMAT`.
    #[derive(Debug, Default)]
    pub struct Create(64 + 8 + 16 + 16) {
        pub ctx: Ctx,
        pub name: u64,
        pub uuid: [u8; 16],
        pub arg: u64,
        pub arg_size: u64,
    }

    /// `struct pfarg_setdesc`: an event set to create or to change.
    #[derive(Debug, Default)]
    pub struct SetDesc(64) {
        pub set_id: u16,
        pub set_id_next: u16,
        pub set_flags: u32,
        pub set_timeout: u64,
        pub reserved: [u64; 6],
    }

    /// `struct pfarg_setinfo`: the state of an event set.
    #[derive(Debug, Default)]
    pub struct SetInfo(8 + 3 * 40 + 3 * 8 + 48) {
        pub set_id: u16,
        pub set_id_next: u16,
        pub set_flags: u32,
        pub set_ovfl_pmds: RegisterBitmap,
        pub set_runs: u64,
        pub set_timeout: u64,
        pub set_act_duration: u64,
        pub set_avail_pmcs: RegisterBitmap,
        pub set_avail_pmds: RegisterBitmap,
        pub reserved: [u64; 6],
    }

    /// `struct perfmon_runs`: statistics of a PMD for the times when its event set was active.
    #[derive(Debug, Default)]
    pub struct Runs(8 + 9 * 8) {
        pub reg_num: u16,
        pub reg_set: u16,
        pub reg_flags: u32,
        pub runs: u64,
        pub time: u64,
        pub time2: [u64; 2],
        pub value: u64,
        pub value2: [u64; 2],
        pub value_time: [u64; 2],
    }

    /// `struct perfmon_vector`: an array of registers or event sets.
    #[derive(Debug, Default)]
    pub struct Vector(16) {
        pub items: u64,
        pub nr: u32,
        pub size: u32,
    }

    /// `struct pfarg_ovfl_msg`: a message that `read()` returns.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub struct Message(64) {
        pub msg_type: u32,
        pub msg_ovfl_pid: u32,
        pub msg_active_set: u16,
        pub msg_ovfl_cpu: u16,
        pub msg_ovfl_tid: u32,
        pub msg_ovfl_ip: u64,
        pub msg_ovfl_pmds: RegisterBitmap,
    }
}

/// `PFM_MSG_OVFL`: PMDs have overflowed, or a ring is due to be read.
pub const MSG_OVFL: u32 = 1;
/// `PFM_MSG_END`: the thread has exited, the CPU is offline, or a permission was lost.
pub const MSG_END: u32 = 2;
/// `PFM_MSG_FAULT`: the CPU did not have all registers of the context.
pub const MSG_FAULT: u32 = 3;
/// `PFM_MSG_EVICTED`: an administrator's context took the registers or the thread.
pub const MSG_EVICTED: u32 = 4;

protocols::structures! {
    /// `struct perfmon_status`: the state of a context.
    #[derive(Debug, Default)]
    pub struct Status(64) {
        pub flags: u32,
        pub nr_throttles: u32,
        pub throttled: u64,
        pub lost: u64,
        pub elsewhere: u64,
        pub reserved: [u64; 4],
    }
}

/// Bits of [`Status::flags`]: `PERFMON_STATUS_*`.
pub mod status {
    pub const STARTED: u32 = 0x01;
    pub const MASKED: u32 = 0x02;
    pub const THROTTLED: u32 = 0x04;
    pub const ENDED: u32 = 0x08;
    pub const ELSEWHERE: u32 = 0x10;
}

/// `PERFMON_TYPE`: the type of the ioctls. The kernel's ioctl-number.rst lists no driver that uses
/// type 0xbf.
const TYPE: u32 = 0xbf;

const fn iow<T>(number: u32) -> u32 {
    (1 << 30) | ((size_of::<T>() as u32) << 16) | (TYPE << 8) | number
}

/// ioctl number of `PERFMON_CREATE`, which creates a context.
pub const CREATE: u32 = iow::<Ctx>(1);
/// ioctl number of `PERFMON_WRITE_PMCS`, which writes PMCs.
pub const WRITE_PMCS: u32 = iow::<Vector>(2);
/// ioctl number of `PERFMON_WRITE_PMDS`, which writes PMDs.
pub const WRITE_PMDS: u32 = iow::<Vector>(3);
/// ioctl number of `PERFMON_READ_PMDS`, which reads PMDs.
pub const READ_PMDS: u32 = iow::<Vector>(4);
/// ioctl number of `PERFMON_LOAD`, which attaches a context to a thread or a CPU.
pub const LOAD: u32 = iow::<Load>(5);
/// ioctl number of `PERFMON_UNLOAD`, which detaches a context.
pub const UNLOAD: u32 = (TYPE << 8) | 6;
/// ioctl number of `PERFMON_START`, which starts counting.
pub const START: u32 = iow::<Start>(7);
/// ioctl number of `PERFMON_STOP`, which stops counting.
pub const STOP: u32 = (TYPE << 8) | 8;
/// ioctl number of `PERFMON_CREATE_FORMAT`, which creates a context with a sampling format.
pub const CREATE_FORMAT: u32 = iow::<Create>(9);
/// ioctl number of `PERFMON_RESTART`, which resumes counting after a notification.
pub const RESTART: u32 = (TYPE << 8) | 0x0a;
/// ioctl number of `PERFMON_PAUSE`, which pauses a ring or ends the pause.
pub const PAUSE: u32 = iow::<u32>(0x0b);
/// ioctl number of `PERFMON_CREATE_EVTSETS`, which creates or changes event sets.
pub const CREATE_EVTSETS: u32 = iow::<Vector>(0x0c);
/// ioctl number of `PERFMON_DELETE_EVTSETS`, which deletes event sets.
pub const DELETE_EVTSETS: u32 = iow::<Vector>(0x0d);
/// ioctl number of `PERFMON_GETINFO_EVTSETS`, which reads the state of event sets.
pub const GETINFO_EVTSETS: u32 = iow::<Vector>(0x0e);
/// ioctl number of `PERFMON_READ_RUNS`, which reads statistics of PMDs (`struct perfmon_runs`).
pub const READ_RUNS: u32 = iow::<Vector>(0x0f);

const fn ior<T>(number: u32) -> u32 {
    (2 << 30) | ((size_of::<T>() as u32) << 16) | (TYPE << 8) | number
}

/// ioctl number of `PERFMON_STATUS`, which reads the state of a context.
pub const STATUS: u32 = ior::<Status>(0x10);

const fn reject_if(wrong: bool, error: Error) -> Result<(), Error> {
    match wrong {
        false => Ok(()),
        true => Err(error),
    }
}

/// `FL_SYSTEM_WIDE` excludes `FL_NOTIFY_BLOCK`: the context of a CPU has no thread to block.
const EXCLUSIVE_CTX_FLAGS: u32 = FL_SYSTEM_WIDE | FL_NOTIFY_BLOCK;

impl Ctx {
    /// Returns the scope that the flags select, or [`Error::Flags`] if flags, core type or reserved
    /// fields are invalid.
    pub fn scope(&self) -> Result<Scope, Error> {
        reject_if(
            self.ctx_flags & !(FL_SYSTEM_WIDE | FL_OVFL_NO_MSG | FL_NOTIFY_BLOCK | FL_CORE) != 0
                || self.ctx_flags & EXCLUSIVE_CTX_FLAGS == EXCLUSIVE_CTX_FLAGS
                || (self.ctx_flags & FL_CORE == 0) != (self.ctx_core == 0)
                || self.ctx_reserved2 != [0; 7],
            Error::Flags,
        )?;
        Ok(match self.ctx_flags & FL_SYSTEM_WIDE {
            0 => Scope::Thread,
            _ => Scope::System,
        })
    }
}

impl Pmc {
    /// Checks that the reserved fields are zero.
    pub fn check(&self) -> Result<(), Error> {
        reject_if(self.reg_reserved2 != [0; 4], Error::Flags)
    }
}

impl Pmd {
    /// Checks the fields of a write: flags, random mask, reserved fields, and the number of PMDs to
    /// record. The flag [`REGFL_SHORT`] is ignored, because a program may write the array that it
    /// has read.
    pub fn check_write(&self) -> Result<(), Error> {
        self.check_read()?;
        reject_if(
            self.reg_flags & !(REGFL_OVFL_NOTIFY | REGFL_RANDOM | REGFL_SHORT) != 0
                || (self.reg_flags & REGFL_RANDOM == 0 && self.reg_random_mask != 0)
                || self.reg_smpl_pmds.count() > MAX_VALUES_PER_SAMPLE,
            Error::Flags,
        )
    }

    /// Checks the fields of a read of a PMD: only the reserved fields must be zero.
    pub fn check_read(&self) -> Result<(), Error> {
        reject_if(self.reg_reserved2 != [0; 7], Error::Flags)
    }

    /// Returns true if one of the fields for sampling is set, so that overflows must be handled.
    pub fn is_sampling(&self) -> bool {
        self.reg_flags & !REGFL_SHORT != 0
            || self.reg_long_reset != 0
            || self.reg_short_reset != 0
            || self.reg_ovfl_switch_cnt != 0
            || !self.reg_reset_pmds.is_empty()
            || !self.reg_smpl_pmds.is_empty()
    }
}

impl SetDesc {
    /// Returns the conditions that end a run of the set. `resolution` is the resolution of the
    /// timer in nanoseconds.
    pub fn switch_policy(&self, resolution: u64) -> Result<SwitchPolicy, Error> {
        reject_if(self.reserved != [0; 6], Error::Flags)?;
        SwitchPolicy::new(
            self.set_flags,
            self.set_id_next,
            self.set_timeout,
            resolution,
        )
    }
}

impl Start {
    /// Checks that the reserved fields are zero.
    pub fn check(&self) -> Result<(), Error> {
        reject_if(
            self.start_reserved1 != 0
                || self.start_reserved2 != 0
                || self.start_reserved3 != [0; 3],
            Error::Flags,
        )
    }
}

impl Load {
    /// Checks that the reserved fields are zero.
    pub fn check(&self) -> Result<(), Error> {
        reject_if(
            self.load_reserved1 != 0 || self.load_reserved2 != [0; 3],
            Error::Flags,
        )
    }
}
