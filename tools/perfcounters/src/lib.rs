// SPDX-License-Identifier: GPL-2.0

//! Reads kernel counters from `/dev/perfcounters` with plain loads, without system calls.
//!
//! ```no_run
//! use perfcounters::{Counters, InstancePattern};
//!
//! let mut counters = Counters::open()?;
//! let switches = InstancePattern::new(["sched/*"]);
//! let before = counters.snapshot(&switches)?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! let after = counters.snapshot(&switches)?;
//! for change in after.changes_since(&before) {
//!     println!("{} {:?}", change.instance().name, change.rate());
//! }
//! # Ok::<(), perfcounters::Error>(())
//! ```
//!
//! The crate guarantees three properties. No value is torn. All values of a snapshot are of one
//! generation of the set of instances (named counters). Values of an instance that was deleted and
//! added again are never mixed up with its earlier values.
//!
//! - A [`InstanceCatalogue`] is the set of instances at one generation.
//! - A [`Selection`] is a list of instances of a catalogue, with the positions of their values.
//! - A [`Snapshot`] holds the values of a selection, at one generation.
//! - A [`Change`] is the difference of the values of an instance between two snapshots.
//!
//! | file | contents |
//! |---|---|
//! | `map.rs` | the mapping (unsafe) |
//! | `wide.rs` | copies words out of the mapping (unsafe) |
//! | `raw.rs` | converts words to the structures of the ABI |
//! | `counters.rs` | the device: tracks its growth, copies values, repeats failed copies |
//! | `catalogue.rs` | instances, patterns, selections |
//! | `snapshot.rs` | values, totals, changes and rates |
//! | `fake.rs` | a substitute for the device in an ordinary file, for tests (unsafe) |

mod catalogue;
mod counters;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod map;
mod raw;
mod snapshot;
mod wide;

pub use catalogue::{Instance, InstanceCatalogue, InstancePattern, InstanceState, Selection};
pub use counters::{Counters, SnapshotStamp, PERFCOUNTERS_DEVICE_PATH};
pub use counters_rules::abi::{Kind, Unit};
pub use error::Error;
pub use snapshot::{Change, DeltaStart, Reading, Snapshot};
