// SPDX-License-Identifier: GPL-2.0

//! Tests that a round of the reader ends, that the reader keeps a limited amount of data, and that
//! it counts the events that it does not output, separately for each reason.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod fake;

use std::cell::Cell;
use std::io;

use fake::{FakeTrace, RecordBytes, FAKE_KHZ, NOW_TICKS, SHARED_KEY};
use perftrace_reader::output::{Output, Packet, TextOutput};
use perftrace_reader::{
    BufferId, ChunkInfo, Clock, Error, MarkerInfo, ProcessInfo, ReadTotals, Reader, Source,
    TraceInfo, KEY_KERNEL,
};

/// An output that counts events and packets, and keeps the keys of processes that have exited.
#[derive(Default)]
struct CountingOutput {
    events: u64,
    packets: u64,
    exited: Vec<u64>,
}

impl Output for CountingOutput {
    fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.events += packet.events.len() as u64;
        self.packets += 1;
        Ok(())
    }

    fn note_process_exit(&mut self, key: u64) -> io::Result<()> {
        self.exited.push(key);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes_written(&self) -> u64 {
        0
    }

    fn nr_events_written(&self) -> u64 {
        self.events
    }
}

/// A trace in which a process starts after each read of a buffer.
struct ForkStorm {
    /// Result of the calls of [`Source::process`].
    process: Option<ProcessInfo>,
    nr_reads: Cell<u64>,
}

impl Source for ForkStorm {
    fn info(&self) -> Result<TraceInfo, Error> {
        Ok(TraceInfo {
            khz: FAKE_KHZ,
            now_ticks: NOW_TICKS,
            ..TraceInfo::default()
        })
    }

    fn read_next_buffer(
        &self,
        after: BufferId,
        to: &mut Vec<u8>,
    ) -> Result<Option<ChunkInfo>, Error> {
        let nr_reads = self.nr_reads.get() + 1;
        assert!(nr_reads < 100_000, "the round does not end");
        self.nr_reads.set(nr_reads);
        *to = RecordBytes::default().event(0, 1, NOW_TICKS + 1, &[]).0;
        Ok(Some(ChunkInfo {
            buffer: BufferId {
                key: after.key.max(SHARED_KEY) + 1,
                cpu: 0,
            },
            buffer_lost_total: 0,
            position: 0,
            ticks: NOW_TICKS + 1,
        }))
    }

    fn process(&self, _: u64) -> Result<Option<ProcessInfo>, Error> {
        Ok(self.process.clone())
    }

    fn describe_marker(&self, _: u64, _: u32) -> Result<Option<MarkerInfo>, Error> {
        Ok(None)
    }
}

#[test]
fn r3_7_a_round_ends_although_processes_start_faster_than_they_are_read() {
    let late = ProcessInfo {
        attached_at_ticks: NOW_TICKS + 1,
        ..ProcessInfo::default()
    };
    // The process of a buffer is unknown if the kernel has dropped the process after the read.
    for process in [Some(late), None] {
        let storm = ForkStorm {
            process,
            nr_reads: Cell::new(0),
        };
        let info = storm.info().expect("it is there");
        let mut reader = Reader::new(&info);
        let result = reader.read_round(&storm, &mut CountingOutput::default());
        result.expect("it is read");
        assert!(storm.nr_reads.get() < 10_000);
    }
}

#[test]
fn r3_7_a_round_reads_all_buffers_of_processes_that_began_before_it() {
    let bytes = RecordBytes::default().event(0, 1, NOW_TICKS, &[]);
    let mut fake = FakeTrace::new();
    let mut buffers = Vec::new();
    for key in 17..3017 {
        fake = fake.process(key, 1, "app").marker(key, 0, "app:event", "");
        buffers.push((key, 0, &bytes.0[..], 0));
    }
    fake.add_round(&buffers);
    let mut output = CountingOutput::default();
    let nr = fake.read_into(&mut output);
    assert_eq!((nr, output.events), (3000, 3000));
}

#[test]
fn r3_7_the_exit_of_a_process_without_valid_events_is_noticed() {
    let mut fake = FakeTrace::new().process(17, 100, "app");
    fake.add_round(&[(17, 0, &[0; 64], 7)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    for _ in 0..130 {
        reader.read_round(&fake, &mut output).expect("it is read");
        fake.remove_process(17);
    }
    assert_eq!((output.packets, &output.exited[..]), (1, &[17][..]));
    assert_eq!(
        (reader.totals().invalid_bytes, reader.totals().lost),
        (64, 7)
    );
}

#[test]
fn r3_7_a_buffer_of_a_process_that_the_kernel_has_dropped_is_skipped() {
    let mut fake = FakeTrace::new();
    fake.add_round(&[(17, 0, &[0; 64], 7)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    let nr = reader.read_round(&fake, &mut output).expect("it is read");
    assert_eq!((nr, output.packets), (0, 0));
    assert_eq!(reader.totals(), ReadTotals::default());
}

#[test]
fn r3_11_flight_recorder_without_new_events_is_not_counted_as_read() {
    let mut fake = FakeTrace::flight()
        .process(17, 100, "app")
        .marker(17, 0, "app:event", "n:u8");
    let bytes = RecordBytes::default().event(0, 1, 5000, &[1]).0;
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    for expected in [1, 0] {
        fake.add_round_at(17, 0, &bytes, bytes.len() as u64);
        let nr = reader.read_round(&fake, &mut output).expect("it is read");
        assert_eq!(nr, expected);
    }
    assert_eq!(output.events, 1);
}

/// Reads a flight recorder with a buffer at each of these positions. Returns the lines of the text
/// output, and the number of overwritten bytes.
fn read_flight_at_positions(positions: &[u64]) -> (Vec<String>, u64) {
    let mut fake = FakeTrace::flight()
        .process(17, 100, "app")
        .marker(17, 0, "app:event", "n:u8");
    let mut text = Vec::new();
    let mut output = TextOutput::new(&mut text, Clock::new(&fake.info), false);
    let mut reader = Reader::new(&fake.info);
    for (n, position) in (1..).zip(positions) {
        let time = NOW_TICKS + u64::from(n);
        let bytes = RecordBytes::default().event(0, 1, time, &[n]).0;
        fake.add_round_at(17, 0, &bytes, *position);
        reader.read_round(&fake, &mut output).expect("it is read");
    }
    output.finish().expect("it is written");
    let text = String::from_utf8(text).expect("text");
    let lines = text.lines().map(str::to_owned).collect();
    (lines, reader.totals().overwritten_bytes)
}

#[test]
fn r3_11_text_reports_bytes_of_a_flight_recorder_overwritten_between_reads() {
    let (lines, overwritten) = read_flight_at_positions(&[96, 100_000]);
    assert!(lines[0].starts_with("app") && lines[2].starts_with("app"));
    assert_eq!(
        lines[1],
        "# 99880 bytes overwritten [000] 1700000005.000000001"
    );
    assert_eq!(overwritten, 100_000 - 96 - 24);
    // In the second round, the new record directly follows the records of the first round.
    let (lines, overwritten) = read_flight_at_positions(&[96, 120]);
    assert_eq!((lines.len(), overwritten), (2, 0));
    // The buffer of the second round is a new one.
    let (lines, overwritten) = read_flight_at_positions(&[96, 24]);
    assert_eq!((lines.len(), overwritten), (2, 0));
}

#[test]
fn r3_7_classes_of_one_user_leave_room_for_classes_of_other_users() {
    const MAX_CLASSES_PER_USER: u16 = 1 << 14;
    let mut fake = FakeTrace::new()
        .process(17, 100, "many")
        .process(18, 200, "other")
        .marker(18, 0, "other:event", "");
    fake.set_uid(17, 1000);
    fake.set_uid(18, 1001);
    let mut many = RecordBytes::default();
    for number in 0..MAX_CLASSES_PER_USER + 1 {
        fake = fake.marker(17, number.into(), &format!("many:event{number}"), "");
        many = many.event(number, 1, NOW_TICKS, &[]);
    }
    many = many.event(MAX_CLASSES_PER_USER, 1, NOW_TICKS, &[]);
    let one = RecordBytes::default().event(0, 1, NOW_TICKS, &[]);
    fake.add_round(&[(17, 0, &many.0, 0), (18, 0, &one.0, 0)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    reader.read_round(&fake, &mut output).expect("it is read");
    let totals = reader.totals();
    assert_eq!(output.events, u64::from(MAX_CLASSES_PER_USER) + 1);
    assert_eq!(
        (totals.invalid_bytes, totals.nr_events_over_class_limit),
        (0, 2)
    );
    // The reader requests each marker once, including the marker whose class exceeds the limit.
    assert_eq!(fake.nr_described(), usize::from(MAX_CLASSES_PER_USER) + 2);
}

#[test]
fn r3_7_a_record_in_a_shared_buffer_cannot_have_the_key_of_the_kernel() {
    let mut fake = FakeTrace::shared().process(17, 100, "app");
    let mut bytes = RecordBytes::default();
    for key in [0, KEY_KERNEL, SHARED_KEY] {
        fake = fake
            .process(key, 0, "kernel")
            .marker(key, 0, "kernel:sched_switch", "");
        bytes = bytes.shared_event(key, 0, 1, NOW_TICKS, &[]);
    }
    fake.add_round(&[(SHARED_KEY, 0, &bytes.0, 0)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    reader.read_round(&fake, &mut output).expect("it is read");
    assert_eq!((output.events, reader.totals().invalid_bytes), (0, 3 * 24));
}
