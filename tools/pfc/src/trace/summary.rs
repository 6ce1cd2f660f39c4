// SPDX-License-Identifier: GPL-2.0

//! Progress messages, and the summary at the end of a recording with the reasons why events are
//! missing.

use perftrace_reader::{ReadTotals, TraceInfo, UNSTABLE};

use crate::trace::sink::TraceSink;
use crate::units::format_byte_size;

/// Returns the progress message of a recording, with its numbers of events and bytes.
pub fn progress_message(totals: &ReadTotals, bytes: u64) -> String {
    format!(
        "[ pfc trace: {} events, {} lost, {} so far; Ctrl-C stops ]",
        totals.nr_events,
        totals.lost,
        format_byte_size(bytes)
    )
}

/// Prints the summary at the end of a recording.
pub fn print_summary(totals: &ReadTotals, info: &TraceInfo, sink: &TraceSink) {
    if let Some(path) = sink.path().filter(|_| sink.check_not_removed().is_ok()) {
        message!(
            "[ pfc trace: {} events, {} in {} ]",
            sink.output.nr_events_written(),
            format_byte_size(sink.output.bytes_written()),
            visible::escape_path(path)
        );
    }
    for line in missing_event_messages(totals, info) {
        message!("pfc: {line}");
    }
}

/// Returns a line for each reason why events, bytes or times are missing or wrong.
fn missing_event_messages(totals: &ReadTotals, info: &TraceInfo) -> Vec<String> {
    // The kernel's count of lost events may be larger than the reader's count: the reader gets the
    // count of a buffer only when it reads the buffer.
    let lost = totals.lost.max(info.nr_lost_for_lack_of_room);
    let invalid_bytes = totals.invalid_bytes.saturating_add(info.invalid_bytes);
    let lines = [
        (lost, "events were lost because buffers were full; use a larger buffer (-s), fewer events (-e, -f) or --wait"),
        (invalid_bytes, "bytes were invalid and were skipped; a program has overwritten its buffer"),
        (totals.nr_events_over_class_limit, "events were dropped because the programs of one user have more than 16,384 different markers, or those of all users more than 65,536; select fewer markers (-e)"),
        (totals.overwritten_bytes, "bytes of events were overwritten before they were read; create the flight recorder with larger buffers (-s) or fewer events (-e, -f)"),
        (totals.impossible_times,
            "events had impossible times; they have the time of the event before"),
        (info.nr_unread_processes_dropped, "ended processes were dropped before they were read, because there were too many"),
        (info.nr_setup_failures, "buffers, markers or processes could not be set up; their events are missing, and are not in the lost count"),
        (info.nr_untraceable_processes, "processes have changed privileges or owner, or --wait may not stop them (kernel.yama.ptrace_scope); their events, if any, are missing"),
    ];
    let counted = lines.iter().filter(|(count, _)| *count > 0);
    let unstable = info.has_flag(UNSTABLE).then(|| {
        "the time stamp counter is unstable or has restarted in a suspend; times of different CPUs, or before and after the suspend, may disagree"
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
    fn r3_7_each_reason_for_missing_events_has_a_message() {
        assert!(missing_event_messages(&ReadTotals::default(), &TraceInfo::default()).is_empty());
        let totals = ReadTotals {
            lost: 3,
            invalid_bytes: 8,
            nr_events_over_class_limit: 9,
            overwritten_bytes: 7,
            impossible_times: 1,
            ..ReadTotals::default()
        };
        let info = TraceInfo {
            nr_lost_for_lack_of_room: 5,
            invalid_bytes: 16,
            nr_unread_processes_dropped: 2,
            nr_setup_failures: 4,
            nr_untraceable_processes: 6,
            ..TraceInfo::default()
        };
        let unstable = TraceInfo {
            flags: UNSTABLE,
            ..TraceInfo::default()
        };
        assert_eq!(
            missing_event_messages(&ReadTotals::default(), &unstable).len(),
            1
        );
        let lines = missing_event_messages(&totals, &info);
        let first: Vec<&str> = lines.iter().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(first, ["5", "24", "9", "7", "1", "2", "4", "6"]);
        let line = progress_message(&totals, 2048);
        assert!(line.contains("0 events, 3 lost, 2 KiB"), "{line}");
    }
}
