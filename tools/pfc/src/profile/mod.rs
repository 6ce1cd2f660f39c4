// SPDX-License-Identifier: GPL-2.0

//! Samples of a perf.data file, understood: whose they are, in which function of which
//! file.
//!
//! | file | holds |
//! |---|---|
//! | `read.rs` | the file's records, in the order of time |
//! | `check.rs` | that a file is what it says |
//! | `address_space.rs` | what is mapped where, in each process and the kernel |
//! | `files.rs` | which file a mapping is of, and where it is found |
//! | `symbols.rs` | names of functions, of ELF files |
//! | `kernel.rs` | of the kernel, of just-in-time compilers |
//! | `export.rs` | for the Firefox Profiler, and pprof |
//! | `folded.rs` | stacks as lines |

mod address_space;
mod check;
pub mod export;
mod files;
pub mod folded;
mod kernel;
mod read;
mod symbols;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::data;
use crate::error::Failure;
pub use files::{build_id, candidate_paths, is_same_file, open_regular};
pub use read::Reader;
pub use symbols::UNKNOWN;

/// A file, all of it.
#[derive(Debug, Default)]
pub struct Profile {
    /// Names of events.
    pub events: Vec<String>,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// Each but once.
    pub frames: Vec<Frame>,
    /// Samples that could not be written.
    pub lost: u64,
    /// How often there were too many samples, so that none were taken for a while.
    pub throttled: u64,
    /// How it was made.
    pub command: Vec<String>,
    /// There are stacks.
    pub has_stacks: bool,
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// In [`Profile::events`].
    pub event: usize,
    /// Nanoseconds.
    pub time: u64,
    pub pid: i32,
    pub tid: i32,
    pub cpu: Option<u32>,
    pub period: u64,
    /// The thread's name.
    pub command: Rc<str>,
    /// In [`Profile::frames`], the innermost first; there is one at least.
    pub stack: Vec<usize>,
}

/// A place in a program.
#[derive(Clone, Debug)]
pub struct Frame {
    pub address: u64,
    pub is_kernel: bool,
    /// The file, or what stands for it.
    pub object: Rc<str>,
    /// The function; [`UNKNOWN`].
    pub symbol: Rc<str>,
    /// From the function's beginning.
    pub offset: u64,
}

impl Frame {
    pub fn is_known(&self) -> bool {
        *self.symbol != *UNKNOWN
    }

    /// The last part of the file's path.
    pub fn short_object(&self) -> &str {
        match self.object.rsplit_once('/') {
            Some((_, name)) if !name.is_empty() => name,
            _ => &self.object,
        }
    }
}

impl Profile {
    /// Of the file with that name, or the usual one. What is missing is said on
    /// standard error, once.
    pub fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let path = path.unwrap_or(Path::new(data::DEFAULT_FILE));
        let (profile, missing_names) = read::read_profile(path)?;
        for line in missing_names {
            eprintln!("pfc: {line}");
        }
        if profile.samples.is_empty() {
            return Err(Failure::NoMatch(format!(
                ": there are no samples in {}",
                path.display()
            )));
        }
        Ok(profile)
    }

    /// Only one event's samples. `Failure`: there is no such event.
    pub fn select_event(mut self, event: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = event {
            let Some(wanted) = self.events.iter().position(|e| e == name) else {
                return Err(Failure::Refused(format!(
                    "there is no event '{name}'; these are: {}",
                    self.events.join(", ")
                )));
            };
            self.samples.retain(|s| s.event == wanted);
        }
        Ok(self)
    }

    /// Samples by event, in the order of events, those without any left out.
    pub fn by_event(&self) -> BTreeMap<usize, Vec<&Sample>> {
        let mut all: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            all.entry(sample.event).or_default().push(sample);
        }
        all
    }

    /// A sample's frames, the innermost first.
    pub fn stack<'a>(&'a self, sample: &'a Sample) -> impl DoubleEndedIterator<Item = &'a Frame> {
        sample.stack.iter().map(|n| &self.frames[*n])
    }

    /// Where a sample was.
    pub fn leaf_frame(&self, sample: &Sample) -> &Frame {
        &self.frames[sample.stack[0]]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Three samples in `f`, called by `main` twice and by another once, one in the
    /// kernel, and one nowhere; of two events.
    pub fn synthetic() -> Profile {
        let frame = |address, object: &str, symbol: &str| Frame {
            address,
            is_kernel: address >= data::KERNEL_START,
            object: object.into(),
            symbol: symbol.into(),
            offset: address & 0xf,
        };
        let frames = vec![
            frame(0x1004, "/bin/prog", "f"),
            frame(0x2008, "/bin/prog", "main"),
            frame(0x3000, "/bin/prog", "a;b"),
            frame(data::KERNEL_START + 1, "[kernel.kallsyms]", "sys_read"),
            frame(0x9999, UNKNOWN, UNKNOWN),
        ];
        let sample = |event, time: u64, command: &str, stack: &[usize]| Sample {
            event,
            time: time * 1_000_000,
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
            lost: 2,
            throttled: 3,
            command: vec!["pfc".to_owned()],
            has_stacks: true,
        }
    }

    #[test]
    fn r1_10_stacks_in_lines() {
        let lines: Vec<(String, u64)> = folded::fold_stacks(&synthetic()).into_iter().collect();
        let wanted = [
            ("other;[unknown]", 1),
            ("prog;a:b;f", 1),
            ("prog;main;f", 2),
            ("prog;main;sys_read_[k]", 1),
        ];
        assert_eq!(lines, wanted.map(|(l, n)| (l.to_owned(), n)));
    }

    #[test]
    fn r1_10_samples_of_one_event() {
        let selected = synthetic().select_event(Some("faults")).expect("known");
        assert_eq!(selected.samples.len(), 1);
        assert!(synthetic().select_event(Some("cycle")).is_err());
        assert_eq!(synthetic().by_event()[&0].len(), 4);
    }
}
