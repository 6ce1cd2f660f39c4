// SPDX-License-Identifier: GPL-2.0

//! A context.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

use crate::abi;

/// Where contexts come from.
pub const DEVICE: &str = "/dev/perfmon";

/// The kernel takes a page of registers in a call.
const AT_ONCE: usize = 4096 / size_of::<abi::ArgPmd>();

/// What a context is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A thread.
    Thread,
    /// A CPU. All calls are made from it: see [`on_cpu`].
    System,
}

/// A register's number, and what is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The logical number.
    pub number: u16,
    /// The value.
    pub value: u64,
}

impl Value {
    /// This value for that register.
    pub const fn new(number: u16, value: u64) -> Self {
        Self { number, value }
    }
}

/// An open context; drop detaches and ends it.
#[derive(Debug)]
pub struct Context {
    file: File,
}

impl Context {
    /// A new one. Its descriptor is closed on exec.
    pub fn create(scope: Scope) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(DEVICE)?;
        let flags = match scope {
            Scope::Thread => 0,
            Scope::System => abi::SYSTEM_WIDE,
        };
        abi::create(file.as_fd(), flags)?;
        Ok(Self { file })
    }

    /// Configures. With more registers than a page holds, a page at a time.
    pub fn write_pmcs(&self, values: &[Value]) -> io::Result<()> {
        for some in values.chunks(AT_ONCE) {
            let args: Vec<abi::ArgPmc> = some
                .iter()
                .map(|v| {
                    let mut arg = abi::ArgPmc::default();
                    (arg.number, arg.value) = (v.number, v.value);
                    arg
                })
                .collect();
            abi::write_pmcs(self.file.as_fd(), &args)?;
        }
        Ok(())
    }

    /// Writes data. A counter counts once it was written.
    pub fn write_pmds(&self, values: &[Value]) -> io::Result<()> {
        for some in values.chunks(AT_ONCE) {
            let args: Vec<abi::ArgPmd> = some.iter().map(|v| pmd(v.number, v.value)).collect();
            abi::write_pmds(self.file.as_fd(), &args)?;
        }
        Ok(())
    }

    /// Reads data, in the order of the numbers.
    pub fn read_pmds(&self, numbers: &[u16]) -> io::Result<Vec<u64>> {
        let mut values = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(AT_ONCE) {
            let mut args: Vec<abi::ArgPmd> = some.iter().map(|n| pmd(*n, 0)).collect();
            abi::read_pmds(self.file.as_fd(), &mut args)?;
            values.extend(args.iter().map(|a| a.value));
        }
        Ok(values)
    }

    /// Reads one register.
    pub fn read_pmd(&self, number: u16) -> io::Result<u64> {
        let mut arg = [pmd(number, 0)];
        abi::read_pmds(self.file.as_fd(), &mut arg)?;
        Ok(arg[0].value)
    }

    /// Attaches to a thread or to the CPU that the caller is on, not yet
    /// counting.
    pub fn load(&self, target: u32) -> io::Result<()> {
        Ok(abi::load(self.file.as_fd(), target)?)
    }

    /// Counts.
    pub fn start(&self) -> io::Result<()> {
        Ok(abi::start(self.file.as_fd())?)
    }

    /// Counts no more.
    pub fn stop(&self) -> io::Result<()> {
        Ok(abi::stop(self.file.as_fd())?)
    }

    /// Detaches; values stay.
    pub fn unload(&self) -> io::Result<()> {
        Ok(abi::unload(self.file.as_fd())?)
    }
}

fn pmd(number: u16, value: u64) -> abi::ArgPmd {
    let mut arg = abi::ArgPmd::default();
    (arg.number, arg.value) = (number, value);
    arg
}

/// Does something on a CPU, and takes the caller back to where it may run.
pub fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    let place = usize::try_from(cpu).unwrap_or(usize::MAX);
    if place >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    only.set(place);
    sched_setaffinity(None, &only)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    done
}
