// SPDX-License-Identifier: GPL-2.0

//! Reads the samples of a perf.data file, and finds the process, the file and the function of each
//! sample.
//!
//! | file | contents |
//! |---|---|
//! | `read.rs` | reads the records of a file in the order of time |
//! | `symbolizer.rs` | finds the function of each address |
//! | `check.rs` | checks the sizes in a file before the file is read |
//! | `pipe.rs` | the format that perf writes to a pipe; standard input |
//! | `live.rs` | drops what a live display does not need any more |
//! | `address_space.rs` | the mappings of each process and of the kernel |
//! | `files.rs` | finds and identifies the file of a mapping |
//! | `debug_files.rs` | finds the debug file of a stripped file |
//! | `symbols.rs` | names of functions in ELF files |
//! | `inlined.rs` | names of inlined functions in debugging information |
//! | `demangle` | names of functions as in their source code |
//! | `kernel.rs` | names of functions of the kernel |
//! | `perf_map.rs` | names of functions of just-in-time compilers |
//! | `export.rs` | writes profiles for the Firefox Profiler and pprof |
//! | `folded.rs` | writes call stacks as lines |

mod address_space;
mod check;
mod debug_files;
mod demangle;
pub mod export;
#[cfg(test)]
mod file_tests;
mod files;
pub mod folded;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod hostile;
mod inlined;
mod kernel;
#[cfg(test)]
mod kernel_tests;
mod live;
mod perf_map;
mod pipe;
mod read;
mod symbolizer;
mod symbols;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::data;
use crate::error::Failure;
pub use files::{candidate_file_paths, has_device_and_inode, open_regular_file, read_build_id};
pub use read::{describe_lost_process_records, ProfileReader, MISSING_PROCESS_RECORDS_CONSEQUENCE};
pub use symbols::UNKNOWN_NAME;

/// The contents of one or more files of samples.
#[derive(Debug, Default)]
pub struct Profile {
    /// The names of the events of the profile.
    pub events: Vec<String>,
    /// The samples, in the order of time.
    pub samples: Vec<Sample>,
    /// The frames of all samples. Equal frames are stored once.
    pub frames: Vec<Frame>,
    /// The number of records that were lost, from the LOST records of the file.
    pub nr_lost_records: u64,
    /// The number of times that sampling was suspended because there were too many samples.
    pub nr_throttles: u64,
    /// The time for which each CPU was offline and not sampled, in nanoseconds.
    pub offline_ns_by_cpu: BTreeMap<u32, u64>,
    /// The command line of the program that wrote the file.
    pub command: Vec<String>,
    /// The number of samples whose call stacks were too deep, so that they lack the outermost
    /// frames.
    pub nr_cut_stacks: u64,
    /// True if some samples have call chains.
    pub has_stacks: bool,
}

/// A sample: where a thread was when a counter overflowed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The index of the event in [`Profile::events`].
    pub event: usize,
    /// The time of the sample in nanoseconds. Files of `pfc record` use CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub pid: i32,
    pub tid: i32,
    pub cpu: Option<u32>,
    pub period: u64,
    /// The name of the thread, which is also called its command.
    pub command: Rc<str>,
    /// The indices of the frames in [`Profile::frames`], with the innermost frame first. A sample
    /// has at least one frame.
    pub stack: Vec<usize>,
}

/// A code address in a program or in the kernel.
#[derive(Clone, Debug)]
pub struct Frame {
    pub address: u64,
    pub is_kernel: bool,
    /// The path of the mapped file, or a name in brackets if the code is not in a file.
    pub object: Rc<str>,
    /// The name of the function, or [`UNKNOWN_NAME`].
    pub symbol: Rc<str>,
    /// The distance of the address from the first byte of the function; 0 for an inlined function.
    pub offset: u64,
    /// True if the function is inlined in the function of the next frame of the stack.
    pub is_inlined: bool,
}

impl Frame {
    pub fn has_known_symbol(&self) -> bool {
        *self.symbol != *UNKNOWN_NAME
    }

    /// Returns the name of the function. As in perf, the name of an inlined function is marked with
    /// `(inlined)`.
    pub fn symbol_with_inlined_mark(&self) -> String {
        match self.is_inlined {
            true => format!("{} (inlined)", self.symbol),
            false => self.symbol.to_string(),
        }
    }

    /// Returns the file name, without the directories of the path.
    pub fn object_file_name(&self) -> &str {
        match self.object.rsplit_once('/') {
            Some((_, name)) if !name.is_empty() => name,
            _ => &self.object,
        }
    }
}

impl Profile {
    /// Reads the file at `path`, or the default file if `path` is `None`. If `inlined` is true,
    /// call stacks have frames of inlined functions. Prints on standard error which names of
    /// functions are missing, and why.
    pub fn load(path: Option<&Path>, inlined: bool) -> Result<Self, Failure> {
        let path = path.unwrap_or(Path::new(data::DEFAULT_PERF_DATA_PATH));
        let (profile, messages) = read::read_profile(path, inlined)?;
        for line in messages {
            message!("pfc: {line}");
        }
        if profile.samples.is_empty() {
            return Err(Failure::NoMatch(format!(
                ": there are no samples in {}",
                read::input_name_for_messages(path)
            )));
        }
        Ok(profile)
    }

    /// Keeps only the samples of the event `event`; keeps all samples if `event` is `None`.
    ///
    /// # Errors
    ///
    /// The profile has no event with the name `event`, or no sample of this event.
    pub fn select_event(mut self, event: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = event {
            let Some(wanted) = self.events.iter().position(|e| e == name) else {
                return Err(Failure::Refused(format!(
                    "there is no event '{name}'; these are: {}",
                    self.events.join(", ")
                )));
            };
            self.samples.retain(|s| s.event == wanted);
            if self.samples.is_empty() {
                return Err(Failure::NoMatch(format!(
                    ": there are no samples of the event '{name}'"
                )));
            }
        }
        Ok(self)
    }

    /// Keeps only the samples of one event. This is the event `event` or, if `event` is `None`, the
    /// first event that has samples. The numbers of samples of different events cannot be added up.
    /// Prints a message if samples are left out and the user did not choose the event.
    ///
    /// # Errors
    ///
    /// The profile has no event with the name `event`, or no sample of this event.
    pub fn select_single_event(self, event: Option<&str>) -> Result<Self, Failure> {
        let mut profile = self.select_event(event)?;
        let events: Vec<usize> = profile.samples_by_event().into_keys().collect();
        if let [first, others @ ..] = &events[..] {
            if !others.is_empty() {
                let name = |n: &usize| visible::escape(&profile.events[*n]).into_owned();
                let others: Vec<String> = others.iter().map(name).collect();
                message!(
                    "pfc: only the samples of {} are used; choose another event with -e: {}",
                    name(first),
                    others.join(", ")
                );
            }
            profile.samples.retain(|s| s.event == *first);
        }
        Ok(profile)
    }

    /// Returns the samples of each event, in the order of the events. Events without samples are
    /// left out.
    pub fn samples_by_event(&self) -> BTreeMap<usize, Vec<&Sample>> {
        let mut all: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            all.entry(sample.event).or_default().push(sample);
        }
        all
    }

    /// Returns the frames of a sample, with the innermost frame first.
    pub fn frames_of_sample<'a>(
        &'a self,
        sample: &'a Sample,
    ) -> impl DoubleEndedIterator<Item = &'a Frame> {
        sample.stack.iter().map(|n| &self.frames[*n])
    }

    /// Returns the frame of the function where a sample was taken: the innermost frame that is not
    /// the frame of an inlined function.
    pub fn leaf_frame(&self, sample: &Sample) -> &Frame {
        let is_leaf = |n: &&usize| !self.frames[**n].is_inlined;
        let leaf = sample.stack.iter().find(is_leaf);
        &self.frames[*leaf.unwrap_or(&sample.stack[0])]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a profile with two events and five samples. Three samples are in `f`: two with the
    /// caller `main`, and one with the caller `a;b`. One sample is in the kernel, and one sample
    /// has an unknown address.
    pub fn synthetic_profile() -> Profile {
        let frame = |address, object: &str, symbol: &str| Frame {
            address,
            is_kernel: address >= data::LOWEST_KERNEL_ADDRESS,
            object: object.into(),
            symbol: symbol.into(),
            offset: address & 0xf,
            is_inlined: false,
        };
        let frames = vec![
            frame(0x1004, "/bin/prog", "f"),
            frame(0x2008, "/bin/prog", "main"),
            frame(0x3000, "/bin/prog", "a;b"),
            frame(
                data::LOWEST_KERNEL_ADDRESS + 1,
                "[kernel.kallsyms]",
                "sys_read",
            ),
            frame(0x9999, UNKNOWN_NAME, UNKNOWN_NAME),
        ];
        let sample = |event, time: u64, command: &str, stack: &[usize]| Sample {
            event,
            time_ns: time * 1_000_000,
            pid: 10,
            tid: 11,
            cpu: Some(1),
            period: 100,
            command: command.into(),
            stack: stack.to_vec(),
        };
        Profile {
            events: vec!["cycles".to_owned(), "faults".to_owned()],
            samples: vec![
                sample(0, 1, "prog", &[0, 1]),
                sample(0, 2, "prog", &[0, 1]),
                sample(0, 3, "prog", &[0, 2]),
                sample(0, 4, "prog", &[3, 1]),
                sample(1, 5, "other", &[4]),
            ],
            frames,
            nr_lost_records: 2,
            nr_throttles: 3,
            offline_ns_by_cpu: BTreeMap::from([(1, 2_301_000_000)]),
            command: vec!["pfc".to_owned()],
            nr_cut_stacks: 0,
            has_stacks: true,
        }
    }

    #[test]
    fn r1_10_samples_of_equal_stacks_are_folded() {
        let profile = synthetic_profile()
            .select_single_event(None)
            .expect("known");
        let stacks = folded::fold_stacks(&profile);
        let lines: Vec<(String, u64)> = stacks
            .iter()
            .map(|(names, samples)| (names.collect::<Vec<_>>().join(";"), samples))
            .collect();
        let wanted = [
            ("prog;a:b;f", 1),
            ("prog;main;f", 2),
            ("prog;main;sys_read_[k]", 1),
        ];
        assert_eq!(lines, wanted.map(|(l, n)| (l.to_owned(), n)));
        let selected = synthetic_profile().select_single_event(Some("faults"));
        assert_eq!(selected.expect("known").samples.len(), 1);
    }

    #[test]
    fn r1_10_samples_of_one_event_are_selected() {
        let selected = synthetic_profile()
            .select_event(Some("faults"))
            .expect("known");
        assert_eq!(selected.samples.len(), 1);
        assert!(synthetic_profile().select_event(Some("cycle")).is_err());
        let mut without_faults = synthetic_profile();
        without_faults.samples.retain(|s| s.event == 0);
        let no_match = without_faults.select_event(Some("faults")).err();
        assert!(matches!(no_match, Some(Failure::NoMatch(_))));
        assert_eq!(synthetic_profile().samples_by_event()[&0].len(), 4);
    }
}
