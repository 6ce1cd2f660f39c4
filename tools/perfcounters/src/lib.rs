// SPDX-License-Identifier: GPL-2.0

//! Kernel counters from `/dev/perfcounters`, read with plain loads.
//!
//! ```no_run
//! use perfcounters::{Counters, Pattern};
//!
//! let mut counters = Counters::open()?;
//! let switches = Pattern::new(["sched/*"]);
//! let before = counters.snapshot(&switches)?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! let after = counters.snapshot(&switches)?;
//! for change in after.since(&before) {
//!     println!("{} {:?}", change.instance().name, change.rate());
//! }
//! # Ok::<(), perfcounters::Error>(())
//! ```
//!
//! What is had from here is never torn, never of two generations of the set of
//! instances, and never passes off a new life of a name as the old one's:
//!
//! - a [`Catalogue`] is the set of instances at one generation;
//! - a [`Selection`] is a part of a catalogue, and knows which words to read;
//! - a [`Snapshot`] holds the values of a selection, at one generation;
//! - a [`Change`] is what became of an instance between two snapshots.
//!
//! | file | holds |
//! |---|---|
//! | `map.rs` | the mapping; unsafe |
//! | `wide.rs` | copying words out of it; unsafe |
//! | `raw.rs` | words to ABI structures |
//! | `counters.rs` | the device: following growth, retrying, copying |
//! | `catalogue.rs` | instances, patterns, selections |
//! | `snapshot.rs` | values, totals, changes and rates |

mod catalogue;
mod counters;
mod error;
mod map;
mod raw;
mod snapshot;
mod wide;

pub use catalogue::{Catalogue, Instance, Pattern, Selection, State};
pub use counters::{Counters, Stamp, DEVICE};
pub use engine::abi::{Kind, Unit};
pub use error::Error;
pub use snapshot::{Change, Reading, Since, Snapshot};
