// SPDX-License-Identifier: GPL-2.0

//! Measures a switch between two counted threads on one CPU, which pass a byte back and forth. Also
//! measures a switch between two event sets of a context.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use perfmon::{Context, RegisterValue, Scope, SetDesc, TIME_SWITCH};
use rustix::pipe::pipe;
use rustix::thread::gettid;

use crate::peers::PerfGroup;
use crate::sys::set_fifo_scheduling;

/// Number of counters of each thread.
pub const COUNTERS_PER_THREAD: u16 = 4;
/// The event select value that counts retired instructions in user and kernel mode on AMD
/// processors, as perf counts them.
const AMD_INSTRUCTIONS_EVENTSEL: u64 = 0xc0 | (3 << 16) | (1 << 22);

/// Creates a context that counts the calling thread with this number of counters.
pub fn start_counting_context(counters: u16) -> io::Result<Context> {
    let context = Context::create(Scope::Thread)?;
    let values: Vec<RegisterValue> = (0..counters)
        .map(|n| RegisterValue::new(n, AMD_INSTRUCTIONS_EVENTSEL))
        .collect();
    context.write_pmcs(&values)?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// Two sets of counters of the calling thread that alternate every millisecond, or at clock ticks
/// if timers are not more precise. The callback of a timer ends each turn (the time in which one
/// set counts).
pub trait AlternatingSets: Sized {
    /// The end of the name of the timer callback that ends turns. The name of a callback in a
    /// module ends with the name of the module, in brackets.
    const TIMER_CALLBACK_NAME_SUFFIX: &'static str;

    /// Creates the two sets and starts counting.
    fn new() -> io::Result<Self>;
    /// Returns, for each of the two sets, a number that grows while the set is in use.
    fn read_set_counts(&mut self) -> io::Result<[u64; 2]>;
    /// Returns true if each callback of the timer ended a turn (the time in which one set counts).
    /// `counts` has the increments of the counts of the two sets.
    fn has_switched_in_each_callback(callbacks: u32, counts: [u64; 2]) -> bool;
}

/// Two event sets of a context, with [`COUNTERS_PER_THREAD`] counters each.
pub struct TwoEventSets(Context);

impl AlternatingSets for TwoEventSets {
    // perfmon.ko has only one timer function.
    const TIMER_CALLBACK_NAME_SUFFIX: &'static str = " [perfmon]";

    fn new() -> io::Result<Self> {
        let context = Context::create(Scope::Thread)?;
        let set = |set_id| SetDesc {
            set_id,
            set_flags: TIME_SWITCH,
            set_timeout: 1_000_000,
            ..SetDesc::default()
        };
        context.create_event_sets(&mut [set(0), set(1)])?;
        for set in [0, 1] {
            let value = |n| RegisterValue::new(n, AMD_INSTRUCTIONS_EVENTSEL).in_set(set);
            let values: Vec<RegisterValue> = (0..COUNTERS_PER_THREAD).map(value).collect();
            context.write_pmcs(&values)?;
        }
        context.load(gettid().as_raw_nonzero().get() as u32)?;
        context.start()?;
        Ok(Self(context))
    }

    /// Returns the number of times that each set was loaded.
    fn read_set_counts(&mut self) -> io::Result<[u64; 2]> {
        match self.0.read_set_infos(&[0, 1])?[..] {
            [first, second] => Ok([first.set_runs, second.set_runs]),
            _ => Err(io::Error::other("the context does not have two event sets")),
        }
    }

    /// Returns true if each callback ended a turn (the time in which one event set counts). The
    /// number of turns may exceed the number of callbacks by two, because the counting of turns
    /// starts slightly before the counting of callbacks and stops slightly after it.
    fn has_switched_in_each_callback(callbacks: u32, [first, second]: [u64; 2]) -> bool {
        (first + second).abs_diff(callbacks.into()) <= 2 && first.abs_diff(second) <= 1
    }
}

/// Two groups of perf events, with [`COUNTERS_PER_THREAD`] events each.
pub struct TwoPerfGroups([PerfGroup; 2]);

impl AlternatingSets for TwoPerfGroups {
    const TIMER_CALLBACK_NAME_SUFFIX: &'static str = "perf_mux_hrtimer_handler";

    fn new() -> io::Result<Self> {
        std::fs::write(
            "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms",
            "1",
        )?;
        let group =
            || PerfGroup::of_thread(crate::peers::INSTRUCTIONS_EVENT, COUNTERS_PER_THREAD.into());
        Ok(Self([group()?, group()?]))
    }

    /// Returns the count of the first event of each group.
    fn read_set_counts(&mut self) -> io::Result<[u64; 2]> {
        let [first, second] = &mut self.0;
        Ok([first.read_first_count()?, second.read_first_count()?])
    }

    /// Returns true if the counts of the two groups show that each group counted during about half
    /// of the time. All callbacks except the last one have rotated the groups, because perf
    /// restarts its timer only after a rotation.
    fn has_switched_in_each_callback(callbacks: u32, [first, second]: [u64; 2]) -> bool {
        callbacks > 1 && first.abs_diff(second) < (first + second) / 4
    }
}

/// The calling thread and its partner.
pub struct PingPong {
    pipe_to_partner: File,
    pipe_from_partner: File,
    partner_thread: Option<JoinHandle<io::Result<()>>>,
}

fn open_pipe_files() -> io::Result<(File, File)> {
    let (read, write): (OwnedFd, OwnedFd) = pipe()?;
    Ok((read.into(), write.into()))
}

impl PingPong {
    /// Starts the partner thread on the CPU to which the calling thread is bound. The partner
    /// thread first calls `counted`, which can open a context or perf events that count the partner
    /// thread.
    pub fn new<T: 'static>(counted: fn() -> io::Result<T>) -> io::Result<Self> {
        let (mut its, to) = open_pipe_files()?;
        let (from, mut back) = open_pipe_files()?;
        let partner = thread::spawn(move || {
            set_fifo_scheduling(true)?;
            let _counted = counted()?;
            let mut byte = [0];
            while its.read(&mut byte)? == 1 {
                back.write_all(&byte)?;
            }
            Ok(())
        });
        let mut pair = Self {
            pipe_to_partner: to,
            pipe_from_partner: from,
            partner_thread: Some(partner),
        };
        // The partner answers the first byte only if `counted` has succeeded. If `counted` fails,
        // switch_to_partner_and_back() fails as well, and end_partner() returns the error of
        // `counted`.
        match pair.switch_to_partner_and_back() {
            Ok(()) => Ok(pair),
            Err(error) => Err(pair.end_partner().err().unwrap_or(error)),
        }
    }

    /// Causes two switches: to the partner thread and back.
    pub fn switch_to_partner_and_back(&mut self) -> io::Result<()> {
        self.pipe_to_partner.write_all(&[0])?;
        self.pipe_from_partner.read_exact(&mut [0])
    }

    /// Tells the partner thread to end, and waits until it has ended.
    pub fn end_partner(mut self) -> io::Result<()> {
        drop(self.pipe_to_partner);
        match self.partner_thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AlternatingSets, TwoEventSets, TwoPerfGroups};

    #[test]
    fn callbacks_that_switch_no_set_are_noticed() {
        assert!(TwoEventSets::has_switched_in_each_callback(50, [25, 25]));
        assert!(TwoEventSets::has_switched_in_each_callback(50, [26, 25]));
        assert!(!TwoEventSets::has_switched_in_each_callback(50, [13, 12]));
        assert!(!TwoEventSets::has_switched_in_each_callback(50, [50, 0]));
        let perf = TwoPerfGroups::has_switched_in_each_callback;
        assert!(perf(50, [100_000, 104_000]));
        assert!(!perf(50, [200_000, 4_000]));
        assert!(!perf(1, [100_000, 100_000]));
        assert!(!perf(50, [0, 0]));
    }
}
