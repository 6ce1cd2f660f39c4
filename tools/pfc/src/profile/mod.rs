// SPDX-License-Identifier: GPL-2.0

//! Samples of a perf.data file, understood: whose they are, in which function of which
//! file.
//!
//! | file | holds |
//! |---|---|
//! | `read.rs` | the file's records, in the order of time |
//! | `check.rs` | that a file is what it says |
//! | `space.rs` | what is mapped where, in each process and the kernel |
//! | `symbols.rs` | names of functions, of ELF files |
//! | `kernel.rs` | of the kernel, of just-in-time compilers |
//! | `folded.rs` | stacks as lines |

mod check;
pub mod folded;
mod kernel;
mod read;
mod space;
mod symbols;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::data;
use crate::failure::Failure;
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
        let path = path.unwrap_or(Path::new(data::DEFAULT));
        let (profile, missing) = read::read(path)?;
        for line in missing {
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
    pub fn only(mut self, event: Option<&str>) -> Result<Self, Failure> {
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
    pub fn place(&self, sample: &Sample) -> &Frame {
        &self.frames[sample.stack[0]]
    }
}
