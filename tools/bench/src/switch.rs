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
use crate::sys::first_in_line;

/// Number of counters of each thread.
pub const COUNTERS: u16 = 4;
/// The event select value that counts retired instructions in user and kernel mode on AMD
/// processors, as perf counts them.
const INSTRUCTIONS: u64 = 0xc0 | (3 << 16) | (1 << 22);

/// Creates a context that counts the calling thread with this number of counters.
pub fn context(counters: u16) -> io::Result<Context> {
    let context = Context::create(Scope::Thread)?;
    let values: Vec<RegisterValue> = (0..counters)
        .map(|n| RegisterValue::new(n, INSTRUCTIONS))
        .collect();
    context.write_pmcs(&values)?;
    context.load(gettid().as_raw_nonzero().get() as u32)?;
    context.start()?;
    Ok(context)
}

/// Two sets of counters of the calling thread that alternate every millisecond, or at clock ticks
/// if timers are not more precise. The callback of a timer ends each turn (the time in which one
/// set counts).
pub trait Turns: Sized {
    /// Creates the two sets and starts counting.
    fn new() -> io::Result<Self>;
    /// Returns true if `function` is the callback of the timer that ends turns. If the callback is
    /// in a module, `function` also has the name of the module, in brackets.
    fn is_callback(function: &str) -> bool;
    /// Returns, for each of the two sets, a number that grows while the set is in use.
    fn counts(&mut self) -> io::Result<[u64; 2]>;
    /// Returns true if each callback of the timer ended a turn (the time in which one set counts).
    /// `counts` has the increments of the counts of the two sets.
    fn took_turns(callbacks: u32, counts: [u64; 2]) -> bool;
}

/// Two event sets of a context, with [`COUNTERS`] counters each.
pub struct TwoSets(Context);

impl Turns for TwoSets {
    fn new() -> io::Result<Self> {
        let context = Context::create(Scope::Thread)?;
        let set = |set_id| SetDesc {
            set_id,
            set_flags: TIME_SWITCH,
            set_timeout: 1_000_000,
            ..SetDesc::default()
        };
        context.create_sets(&mut [set(0), set(1)])?;
        for set in [0, 1] {
            let value = |n| RegisterValue::new(n, INSTRUCTIONS).in_set(set);
            let values: Vec<RegisterValue> = (0..COUNTERS).map(value).collect();
            context.write_pmcs(&values)?;
        }
        context.load(gettid().as_raw_nonzero().get() as u32)?;
        context.start()?;
        Ok(Self(context))
    }

    /// Returns true if `function` belongs to perfmon.ko, which has only one timer function.
    fn is_callback(function: &str) -> bool {
        function.ends_with(" [perfmon]")
    }

    /// Returns the number of times that each set was loaded.
    fn counts(&mut self) -> io::Result<[u64; 2]> {
        match self.0.set_infos(&[0, 1])?[..] {
            [first, second] => Ok([first.set_runs, second.set_runs]),
            _ => Err(io::Error::other("the context does not have two event sets")),
        }
    }

    /// Returns true if each callback ended a turn (the time in which one event set counts). The
    /// number of turns may exceed the number of callbacks by two, because the counting of turns
    /// starts slightly before the counting of callbacks and stops slightly after it.
    fn took_turns(callbacks: u32, [first, second]: [u64; 2]) -> bool {
        (first + second).abs_diff(callbacks.into()) <= 2 && first.abs_diff(second) <= 1
    }
}

/// Two groups of perf, with [`COUNTERS`] events each.
pub struct TwoGroups([PerfGroup; 2]);

impl Turns for TwoGroups {
    fn new() -> io::Result<Self> {
        std::fs::write(
            "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms",
            "1",
        )?;
        let group = || PerfGroup::of_thread(crate::peers::INSTRUCTIONS, COUNTERS.into());
        Ok(Self([group()?, group()?]))
    }

    fn is_callback(function: &str) -> bool {
        function == "perf_mux_hrtimer_handler"
    }

    /// Returns the count of the first event of each group.
    fn counts(&mut self) -> io::Result<[u64; 2]> {
        let [first, second] = &mut self.0;
        Ok([first.first()?, second.first()?])
    }

    /// Returns true if each group counted during about half of the turns. All callbacks except the
    /// last one have rotated the groups, because perf restarts its timer only after a rotation.
    fn took_turns(callbacks: u32, [first, second]: [u64; 2]) -> bool {
        callbacks > 1 && first.abs_diff(second) < (first + second) / 4
    }
}

/// The calling thread and its partner.
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
    /// Starts the partner thread on the CPU to which the calling thread is bound. The partner
    /// thread first calls `counted`, which can open a context or perf events that count the partner
    /// thread.
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
        // The partner answers the first turn() only if `counted` has succeeded. If `counted` fails,
        // the first turn() fails as well, and end() returns the error of `counted`.
        match pair.turn() {
            Ok(()) => Ok(pair),
            Err(error) => Err(pair.end().err().unwrap_or(error)),
        }
    }

    /// Causes two switches: to the partner thread and back.
    pub fn turn(&mut self) -> io::Result<()> {
        self.to.write_all(&[0])?;
        self.from.read_exact(&mut [0])
    }

    /// Tells the partner thread to end, and waits until it has ended.
    pub fn end(mut self) -> io::Result<()> {
        drop(self.to);
        match self.partner.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Turns, TwoGroups, TwoSets};

    #[test]
    fn callbacks_that_end_no_turn_are_noticed() {
        assert!(TwoSets::took_turns(50, [25, 25]));
        assert!(TwoSets::took_turns(50, [26, 25]));
        assert!(!TwoSets::took_turns(50, [13, 12]));
        assert!(!TwoSets::took_turns(50, [50, 0]));
        assert!(TwoGroups::took_turns(50, [100_000, 104_000]));
        assert!(!TwoGroups::took_turns(50, [200_000, 4_000]));
        assert!(!TwoGroups::took_turns(1, [100_000, 100_000]));
        assert!(!TwoGroups::took_turns(50, [0, 0]));
    }

    #[test]
    fn the_functions_of_the_timers_are_known_by_name() {
        assert!(TwoSets::is_callback("deferral_timer [perfmon]"));
        assert!(!TwoSets::is_callback("tick_nohz_handler"));
        assert!(TwoGroups::is_callback("perf_mux_hrtimer_handler"));
        assert!(!TwoGroups::is_callback("perf_swevent_hrtimer"));
    }
}
