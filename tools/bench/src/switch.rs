// SPDX-License-Identifier: GPL-2.0

//! What a switch of threads costs while both are counted: two threads on one CPU
//! that hand a byte to and fro.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use perfmon::{Context, Scope, SetDesc, Value, TIME_SWITCH};
use rustix::pipe::pipe;
use rustix::thread::gettid;

use crate::peers::PerfGroup;
use crate::sys::first_in_line;

/// Counters of each thread.
pub const COUNTERS: u16 = 4;
/// Instructions, AMD's event, in the kernel as well: as perf counts them.
const INSTRUCTIONS: u64 = 0xc0 | (3 << 16) | (1 << 22);

/// The calling thread's context, which counts with so many counters.
pub fn context(counters: u16) -> io::Result<Context> {
    let context = Context::create(Scope::Thread)?;
    let values: Vec<Value> = (0..counters).map(|n| Value::new(n, INSTRUCTIONS)).collect();
    context.write_pmcs(&values)?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// The same with twice as many, in two sets that take turns of a millisecond.
pub fn two_sets(counters: u16) -> io::Result<Context> {
    let context = Context::create(Scope::Thread)?;
    let set = |set_id| SetDesc {
        set_id,
        set_flags: TIME_SWITCH,
        set_timeout: 1_000_000,
        ..SetDesc::default()
    };
    context.create_sets(&mut [set(0), set(1)])?;
    for set in [0, 1] {
        let value = |n| Value::new(n, INSTRUCTIONS).of(set);
        let values: Vec<Value> = (0..counters).map(value).collect();
        context.write_pmcs(&values)?;
    }
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// perf's: two groups that take turns of a millisecond.
pub fn two_groups(counters: u16) -> io::Result<[PerfGroup; 2]> {
    std::fs::write(
        "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms",
        "1",
    )?;
    Ok([
        PerfGroup::of_thread(crate::peers::INSTRUCTIONS, counters.into())?,
        PerfGroup::of_thread(crate::peers::INSTRUCTIONS, counters.into())?,
    ])
}

/// This thread and another one.
pub struct PingPong {
    to: File,
    from: File,
    partner: Option<JoinHandle<io::Result<()>>>,
}

fn ends() -> io::Result<(File, File)> {
    let (read, write): (OwnedFd, OwnedFd) = pipe()?;
    Ok((read.into(), write.into()))
}

impl PingPong {
    /// Starts the other one, which is counted by what `counted` makes there, on the
    /// CPU that this one is bound to.
    pub fn new<T: 'static>(counted: fn() -> io::Result<T>) -> io::Result<Self> {
        let (mut its, to) = ends()?;
        let (from, mut back) = ends()?;
        let partner = thread::spawn(move || {
            first_in_line(true)?;
            let _counted = counted()?;
            let mut byte = [0];
            while its.read(&mut byte)? == 1 {
                back.write_all(&byte)?;
            }
            Ok(())
        });
        let mut pair = Self {
            to,
            from,
            partner: Some(partner),
        };
        // It is counted, or has failed, before this returns.
        match pair.turn() {
            Ok(()) => Ok(pair),
            Err(error) => Err(pair.end().err().unwrap_or(error)),
        }
    }

    /// Two switches: to it, and back.
    pub fn turn(&mut self) -> io::Result<()> {
        self.to.write_all(&[0])?;
        self.from.read_exact(&mut [0])
    }

    /// Ends the other one.
    pub fn end(mut self) -> io::Result<()> {
        drop(self.to);
        match self.partner.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Ok(()),
        }
    }
}
