// SPDX-License-Identifier: GPL-2.0

//! Progress messages, and the summary at the end with what is missing.

use perfcounters::Unit;
use perftrace_reader::{Info, Totals, UNSTABLE};

use crate::trace::sink::Sink;
use crate::units::Measure;

/// Formats a number of bytes for people.
pub fn size(bytes: u64) -> String {
    let measure = Measure {
        unit: Unit::Bytes,
        exponent: 0,
    };
    measure.amount(bytes as f64)
}

/// Returns the progress message.
pub fn progress(totals: &Totals, bytes: u64) -> String {
    format!(
        "\r[ pfc trace: {} events, {} lost, {} so far; Ctrl-C ends ]\x1b[K",
        totals.events,
        totals.lost,
        size(bytes)
    )
}

/// Prints the summary at the end of a recording.
pub fn say(totals: &Totals, info: &Info, sink: &Sink) {
    if let Some(place) = &sink.place {
        eprintln!(
            "[ pfc trace: {} events, {} in {} ]",
            totals.events,
            size(sink.output.bytes()),
            place.display()
        );
    }
    for line in missing(totals, info) {
        eprintln!("pfc: {line}");
    }
}

/// Returns a line for each reason why something is missing.
fn missing(totals: &Totals, info: &Info) -> Vec<String> {
    // The kernel's count includes losses that no record has reported yet.
    let lost = totals.lost.max(info.lost);
    let cut = totals.cut.saturating_add(info.cut);
    let lines = [
        (lost, "events found no room and are lost; a larger buffer (-s), fewer events (-e, -f) or --wait keep them"),
        (cut, "bytes made no sense and were left out; some program has written over its buffer"),
        (totals.bad_times, "events had times that cannot be; they have those of the ones before"),
        (info.dropped, "processes had ended and were dropped unread, for there were too many"),
        (info.no_memory, "buffers got no memory; their events are lost, and not counted"),
        (info.denied, "processes got rights or an owner that you may not look at; what they wrote since is not here"),
    ];
    let counted = lines.iter().filter(|(count, _)| *count > 0);
    let unstable = info.has_flag(UNSTABLE).then(|| {
        "the kernel has given up the time stamp counter: times of different CPUs may differ"
            .to_owned()
    });
    counted
        .map(|(count, words)| format!("{count} {words}"))
        .chain(unstable)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_7_what_is_missing_is_said() {
        assert!(missing(&Totals::default(), &Info::default()).is_empty());
        let totals = Totals {
            lost: 3,
            cut: 8,
            bad_times: 1,
            ..Totals::default()
        };
        let info = Info {
            lost: 5,
            cut: 16,
            dropped: 2,
            no_memory: 4,
            denied: 6,
            ..Info::default()
        };
        let unstable = Info {
            flags: UNSTABLE,
            ..Info::default()
        };
        assert_eq!(missing(&Totals::default(), &unstable).len(), 1);
        let lines = missing(&totals, &info);
        let first: Vec<&str> = lines.iter().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(first, ["5", "24", "1", "2", "4", "6"]);
        let line = progress(&totals, 2048);
        assert!(line.contains("0 events, 3 lost, 2 KiB"), "{line}");
    }
}
