// SPDX-License-Identifier: GPL-2.0

//! Monitoring contexts. A context holds PMU registers for counting and sampling a thread or a CPU.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use perfmon_rules::abi::{
    Pmc, Pmd, Runs, SetDesc, SetInfo, Status, MSG_END, MSG_EVICTED, MSG_FAULT, MSG_OVFL,
};
use perfmon_rules::registers::REGFL_SHORT;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;

use crate::abi::{self, MESSAGE_BYTES};
use crate::affinity::CpuMask;

/// The device by which contexts are created: each open file of the device holds one context.
pub const PERFMON_DEVICE_PATH: &str = "/dev/perfmon";

/// Maximum number of registers per call: the kernel accepts 4096 bytes of register structures.
const MAX_REGISTERS_PER_CALL: usize = 4096 / size_of::<Pmd>();

/// The kind of target that a context monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The target is a thread.
    Thread,
    /// The target is a CPU. While the context is attached, only a thread that runs on the target
    /// CPU can access the registers of the context: see [`run_on_cpu`].
    System,
}

/// A value to write to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterValue {
    /// The event set of the register.
    pub set: u16,
    /// The logical number of the register.
    pub number: u16,
    /// The value to write.
    pub value: u64,
}

impl RegisterValue {
    /// Makes a value for a register of event set 0.
    pub const fn new(number: u16, value: u64) -> Self {
        Self {
            set: 0,
            number,
            value,
        }
    }

    /// Returns a copy of this `RegisterValue` whose event set is `set`.
    pub const fn in_set(self, set: u16) -> Self {
        Self { set, ..self }
    }
}

/// A value that was read from a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The value of the register.
    pub value: u64,
    /// True if some counts are missing in the value, because the register was not available on some
    /// CPU (`PERFMON_REGFL_SHORT`).
    pub lacks_counts: bool,
}

impl Reading {
    fn from_pmd(pmd: &Pmd) -> Self {
        Self {
            value: pmd.reg_value,
            lacks_counts: pmd.reg_flags & REGFL_SHORT != 0,
        }
    }
}

/// An open context of `/dev/perfmon`. Dropping a `Context` closes its file descriptor. The kernel
/// detaches and destroys the context when its last file descriptor is closed, for example in a
/// child process, and its last mapping is removed, such as that of a [`Ring`](crate::ring::Ring).
#[derive(Debug)]
pub struct Context {
    file: File,
}

impl Context {
    /// Creates a context. The file descriptor of the context has the flag close-on-exec.
    pub fn create(scope: Scope) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(PERFMON_DEVICE_PATH)?;
        let flags = match scope {
            Scope::Thread => 0,
            Scope::System => abi::SYSTEM_WIDE,
        };
        abi::create_context(file.as_fd(), flags)?;
        Ok(Self { file })
    }

    /// Creates a context with the sampling format named `format`. The format defines the layout of
    /// `argument`. The error is `NotFound` if the kernel has no format of this name.
    pub fn create_with_format(scope: Scope, format: &str, argument: &[u8]) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(PERFMON_DEVICE_PATH)?;
        let flags = match scope {
            Scope::Thread => 0,
            Scope::System => abi::SYSTEM_WIDE,
        };
        let name = CString::new(format)?;
        abi::create_format_context(file.as_fd(), flags, &name, argument)?;
        Ok(Self { file })
    }

    /// Writes PMCs (control registers), in several calls if the values do not fit in one call.
    pub fn write_pmcs(&self, values: &[RegisterValue]) -> io::Result<()> {
        for chunk in values.chunks(MAX_REGISTERS_PER_CALL) {
            let args: Vec<Pmc> = chunk
                .iter()
                .map(|v| {
                    let mut arg = Pmc::default();
                    (arg.reg_set, arg.reg_num, arg.reg_value) = (v.set, v.number, v.value);
                    arg
                })
                .collect();
            abi::write_pmcs(self.file.as_fd(), &args)?;
        }
        Ok(())
    }

    /// Writes PMDs (data registers). A PMD that is not a hardware counter counts only after it was
    /// written.
    pub fn write_pmds(&self, values: &[RegisterValue]) -> io::Result<()> {
        for chunk in values.chunks(MAX_REGISTERS_PER_CALL) {
            let args: Vec<Pmd> = chunk
                .iter()
                .map(|v| pmd_with_value(v.set, v.number, v.value))
                .collect();
            abi::write_pmds(self.file.as_fd(), &args)?;
        }
        Ok(())
    }

    /// Writes PMDs with the fields for sampling: see [`sampling_pmd`].
    pub fn write_sampling_pmds(&self, pmds: &[Pmd]) -> io::Result<()> {
        for chunk in pmds.chunks(MAX_REGISTERS_PER_CALL) {
            abi::write_pmds(self.file.as_fd(), chunk)?;
        }
        Ok(())
    }

    /// Reads PMDs, given as pairs of event set and number. The returned values are in the order of
    /// `registers`.
    pub fn read_set_pmds(&self, registers: &[(u16, u16)]) -> io::Result<Vec<Reading>> {
        let mut values = Vec::with_capacity(registers.len());
        for chunk in registers.chunks(MAX_REGISTERS_PER_CALL) {
            let mut args: Vec<Pmd> = chunk
                .iter()
                .map(|(set, n)| pmd_with_value(*set, *n, 0))
                .collect();
            abi::read_pmds(self.file.as_fd(), &mut args)?;
            values.extend(args.iter().map(Reading::from_pmd));
        }
        Ok(values)
    }

    /// Creates or changes event sets. The context must not be attached. The kernel rounds timeouts
    /// up, and writes the rounded timeouts back to `sets`.
    pub fn create_event_sets(&self, sets: &mut [SetDesc]) -> io::Result<()> {
        for chunk in sets.chunks_mut(4096 / size_of::<SetDesc>()) {
            abi::create_event_sets(self.file.as_fd(), chunk)?;
        }
        Ok(())
    }

    /// Returns the state of event sets.
    pub fn read_set_infos(&self, sets: &[u16]) -> io::Result<Vec<SetInfo>> {
        let info = |id: &u16| SetInfo {
            set_id: *id,
            ..SetInfo::default()
        };
        let mut infos: Vec<SetInfo> = sets.iter().map(info).collect();
        for chunk in infos.chunks_mut(4096 / size_of::<SetInfo>()) {
            abi::read_event_set_infos(self.file.as_fd(), chunk)?;
        }
        Ok(infos)
    }

    /// Returns sums of times and counts over all runs of event sets ([`Runs`]), from which the
    /// caller can compute variances. Each PMD must have been written without sampling fields.
    pub fn read_sums_over_set_runs(&self, registers: &[(u16, u16)]) -> io::Result<Vec<Runs>> {
        let runs = |(set, number): &(u16, u16)| Runs {
            reg_num: *number,
            reg_set: *set,
            ..Runs::default()
        };
        let mut all: Vec<Runs> = registers.iter().map(runs).collect();
        for chunk in all.chunks_mut(4096 / size_of::<Runs>()) {
            abi::read_sums_over_set_runs(self.file.as_fd(), chunk)?;
        }
        Ok(all)
    }

    /// Reads PMDs in one call and stores the values in `pmds`. In one call, the kernel accepts at
    /// most 4096 bytes of [`Pmd`] structures.
    pub fn read_pmds_in_place(&self, pmds: &mut [Pmd]) -> io::Result<()> {
        Ok(abi::read_pmds(self.file.as_fd(), pmds)?)
    }

    /// Reads a PMD of event set 0.
    pub fn read_pmd(&self, number: u16) -> io::Result<Reading> {
        let mut arg = [pmd_with_value(0, number, 0)];
        abi::read_pmds(self.file.as_fd(), &mut arg)?;
        Ok(Reading::from_pmd(&arg[0]))
    }

    /// Returns the state of the context and its statistics since it was attached. The flags of the
    /// returned status are the constants of [`status`](crate::status). The caller need not be on
    /// the context's CPU.
    pub fn status(&self) -> io::Result<Status> {
        Ok(abi::read_context_status(self.file.as_fd())?)
    }

    /// Attaches a thread's context to the thread `target`, or a CPU's context to the CPU on which
    /// the caller runs. The context does not count before [`Self::start`].
    pub fn load(&self, target: u32) -> io::Result<()> {
        self.load_with_active_set(target, 0)
    }

    /// Attaches the context like [`Self::load`], with `set` as the active event set.
    pub fn load_with_active_set(&self, target: u32, set: u16) -> io::Result<()> {
        Ok(abi::load_context(self.file.as_fd(), target, set)?)
    }

    /// Starts counting in the context.
    pub fn start(&self) -> io::Result<()> {
        Ok(abi::start_counting(self.file.as_fd())?)
    }

    /// Stops counting in the context.
    pub fn stop(&self) -> io::Result<()> {
        Ok(abi::stop_counting(self.file.as_fd())?)
    }

    /// Resumes counting after a notification has masked the context.
    pub fn restart(&self) -> io::Result<()> {
        Ok(abi::restart_context(self.file.as_fd())?)
    }

    /// Pauses or resumes the ring of the context. While the ring is paused, the kernel drops
    /// records and counts them as lost.
    pub fn set_ring_paused(&self, paused: bool) -> io::Result<()> {
        Ok(abi::set_ring_paused(self.file.as_fd(), paused)?)
    }

    /// Returns the next message, or `None` if there is no message yet. The function does not wait
    /// for messages.
    pub fn try_read_message(&self) -> io::Result<Option<Message>> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))? == 0
            || !fds[0].revents().contains(PollFlags::IN)
        {
            return Ok(None);
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let mut file = &self.file;
        match file.read(&mut bytes)? {
            MESSAGE_BYTES => Ok(Some(Message::parse(&bytes))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Detaches the context. The registers of the detached context can still be read.
    pub fn unload(&self) -> io::Result<()> {
        Ok(abi::unload_context(self.file.as_fd())?)
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A message from a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// PMDs (data registers) have overflowed, or the ring buffer contains data.
    Overflow {
        /// The ID of the process that the overflow has interrupted.
        pid: u32,
        /// The ID of the thread that the overflow has interrupted.
        tid: u32,
        /// The number of the CPU that the overflow has interrupted.
        cpu: u16,
        /// The address of the interrupted instruction.
        ip: u64,
        /// The PMDs that overflowed, as a bit mask.
        pmds: [u64; 5],
    },
    /// The context has ended: the monitored thread has exited or may no longer be monitored, or the
    /// monitored CPU is offline.
    End,
    /// The context has ended, because an access to one of its hardware registers faulted on a CPU
    /// that lacks the register.
    Fault,
    /// The context has ended, because an administrator has attached another context that needs the
    /// same registers or the same thread.
    Evicted,
    /// A message of a type that this library does not know.
    Other(u32),
}

impl Message {
    /// Parses a `struct pfarg_ovfl_msg`.
    fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Self {
        let word = |n: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * n..8 * n + 8]);
            u64::from_ne_bytes(word)
        };
        match word(0) as u32 {
            MSG_OVFL => Self::Overflow {
                pid: (word(0) >> 32) as u32,
                cpu: (word(1) >> 16) as u16,
                tid: (word(1) >> 32) as u32,
                ip: word(2),
                pmds: [word(3), word(4), word(5), word(6), word(7)],
            },
            MSG_END => Self::End,
            MSG_FAULT => Self::Fault,
            MSG_EVICTED => Self::Evicted,
            other => Self::Other(other),
        }
    }
}

/// Returns a PMD that overflows after every `period` counts, with a notification. Samples are
/// recorded with the event id `id`.
pub fn sampling_pmd(number: u16, period: u64, id: u64) -> Pmd {
    let start_value = period.wrapping_neg();
    Pmd {
        reg_num: number,
        reg_flags: abi::REGFL_OVFL_NOTIFY,
        reg_value: start_value,
        reg_long_reset: start_value,
        reg_short_reset: start_value,
        reg_smpl_eventid: id,
        ..Pmd::default()
    }
}

fn pmd_with_value(set: u16, number: u16, value: u64) -> Pmd {
    let mut arg = Pmd::default();
    (arg.reg_set, arg.reg_num, arg.reg_value) = (set, number, value);
    arg
}

/// Calls `f` on a CPU, and then restores the CPU affinity of the calling thread.
pub fn run_on_cpu<T>(cpu: u32, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let affinity = CpuMask::of_this_thread()?;
    CpuMask::of_cpu(cpu)?.apply_to_this_thread()?;
    let result = f();
    affinity.apply_to_this_thread()?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_7_sampling_pmd_overflows_after_its_period() {
        let pmd = sampling_pmd(256, 1000, 7);
        assert_eq!(pmd.reg_value, 0_u64.wrapping_sub(1000));
        assert_eq!(pmd.reg_long_reset, pmd.reg_value);
        assert_eq!(pmd.reg_short_reset, pmd.reg_value);
        assert_eq!((pmd.reg_flags, pmd.reg_smpl_eventid), (1, 7));
    }

    #[test]
    fn r1_7_message_bytes_are_parsed() {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = 1;
        bytes[4] = 10;
        bytes[10] = 3;
        bytes[12] = 11;
        bytes[16] = 12;
        bytes[24 + 32] = 1;
        let expected = Message::Overflow {
            pid: 10,
            tid: 11,
            cpu: 3,
            ip: 12,
            pmds: [0, 0, 0, 0, 1],
        };
        assert_eq!(Message::parse(&bytes), expected);
        for (number, message) in [
            (2, Message::End),
            (3, Message::Fault),
            (4, Message::Evicted),
            (5, Message::Other(5)),
        ] {
            bytes[0] = number;
            assert_eq!(Message::parse(&bytes), message);
        }
    }

    #[test]
    fn r9_6_reading_tells_whether_counts_are_missing() {
        let reading = |flags| {
            Reading::from_pmd(&Pmd {
                reg_value: 7,
                reg_flags: flags,
                ..Pmd::default()
            })
        };
        assert!(reading(0x100).lacks_counts);
        assert!(!reading(abi::REGFL_OVFL_NOTIFY).lacks_counts);
        assert_eq!(reading(0).value, 7);
    }
}
