// SPDX-License-Identifier: GPL-2.0

//! Values for tests of files of samples: an event, and the contents of records.

use std::ffi::OsString;

use perfmon::ring::Sample;

use super::record::ExecutableMapping;
use super::{EventAttribute, SampleId};

/// Returns the attribute of an event with the ID 1.
pub fn test_event() -> EventAttribute {
    EventAttribute {
        id: 1,
        ..EventAttribute::default()
    }
}

/// Returns the attributes of the events `cycles:u` and `faults`, whose IDs are 1 and 2.
pub fn two_test_events() -> [EventAttribute; 2] {
    [("cycles:u", 1), ("faults", 2)].map(|(name, id)| EventAttribute {
        name: name.to_owned(),
        period_or_frequency: 1000,
        id,
        ..EventAttribute::default()
    })
}

/// Returns the sample ID for a record of a process, whose event has the ID 1.
pub fn sample_id(pid: u32, time: u64) -> SampleId {
    SampleId {
        pid,
        tid: pid,
        time,
        cpu: 0,
        id: 1,
    }
}

/// Returns a mapping of the file at `path`.
pub fn test_mapping(start: u64, end: u64, path: impl Into<OsString>) -> ExecutableMapping {
    ExecutableMapping {
        start,
        end,
        path: path.into(),
        ..ExecutableMapping::default()
    }
}

/// Returns a sample in the first thread of a process.
pub fn sample(pid: u32, time: u64, ip: u64) -> Sample {
    Sample {
        ip,
        pid,
        tid: pid,
        time,
        ..Sample::default()
    }
}
