// SPDX-License-Identifier: GPL-2.0

//! Reads kernel counters from `/dev/perfcounters` with plain loads, without system calls.
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
//! The crate guarantees that no value is torn, all values of a snapshot are of one generation of
//! the set of instances, and two lives of the same name are never mixed up.
//!
//! - A [`Catalogue`] is the set of instances at one generation.
//! - A [`Selection`] is a part of a catalogue with the position of its values.
//! - A [`Snapshot`] holds the values of a selection, at one generation.
//! - A [`Change`] is the difference between two snapshots of an instance.
//!
//! | file | contents |
//! |---|---|
//! | `map.rs` | the mapping (unsafe) |
//! | `wide.rs` | copies words out of the mapping (unsafe) |
//! | `raw.rs` | converts words to the structures of the ABI |
//! | `counters.rs` | the device: tracks growth, copies, retries |
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
pub use counters_rules::abi::{Kind, Unit};
pub use error::Error;
pub use snapshot::{Change, Reading, Since, Snapshot};
