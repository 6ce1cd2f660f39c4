// SPDX-License-Identifier: GPL-2.0

//! Passes arbitrary bytes to the reader. The reader must not panic, must end every loop, and must
//! count invalid bytes in `ReadTotals::invalid_bytes`.

mod fake;

use fake::{FakeTrace, RecordBytes, SHARED_KEY};
use perftrace_reader::fields;
use perftrace_reader::output::{
    CtfOutput, Output, Packet, PerfettoOutput, TextOutput, TraceProperties,
};
use perftrace_reader::records::{BufferLayout, RecordItem, RecordIterator};
use perftrace_reader::{Clock, Reader, Source, FLIGHT, PAD_RECORD};
use proptest::prelude::*;

/// Parses all records. Returns the number of bytes in events and LOST records, and the number of
/// bytes that the parser has discarded as invalid.
fn parse_all_records(bytes: &[u8], layout: BufferLayout) -> (usize, usize) {
    let mut records = RecordIterator::new(bytes, layout);
    let mut valid_bytes = 0;
    let mut steps = 0;
    let mut remaining = records.nr_unparsed_bytes();
    while let Some(item) = records.next() {
        steps += 1;
        assert!(steps <= bytes.len() / 8, "it goes on for ever");
        assert!(records.nr_unparsed_bytes() < remaining, "nothing was taken");
        remaining = records.nr_unparsed_bytes();
        valid_bytes += match item {
            RecordItem::Event(event) => {
                assert!(event.payload.len() + 16 <= event.bytes);
                assert_eq!(event.process_key.is_some(), layout.is_shared);
                event.bytes
            }
            RecordItem::Lost { .. } => 24,
        };
    }
    assert_eq!(records.nr_unparsed_bytes(), 0);
    (valid_bytes, records.invalid_bytes())
}

fn layout(shared: bool, flight: bool) -> BufferLayout {
    BufferLayout {
        is_shared: shared,
        is_flight_recorder: flight,
    }
}

/// An output that checks the guarantees of the reader on which all outputs rely.
#[derive(Default)]
struct CheckedOutput {
    last: std::collections::HashMap<(u64, u32), (u64, u64)>,
    events: u64,
    invalid_bytes: u64,
}

impl Output for CheckedOutput {
    fn write_packet(&mut self, packet: &Packet<'_>) -> std::io::Result<()> {
        let buffer = (packet.buffer.key, packet.buffer.cpu);
        let (time, lost) = self.last.entry(buffer).or_default();
        let mut losses = packet.losses.iter().peekable();
        for n in 0..=packet.events.len() {
            while let Some(loss) = losses.next_if(|l| l.nr_events_before == n) {
                assert!(loss.time >= *time && loss.count > 0);
                assert_eq!(loss.total, *lost + loss.count);
                (*time, *lost) = (loss.time, loss.total);
            }
            let Some(event) = packet.events.get(n) else {
                break;
            };
            assert!(event.time >= *time);
            *time = event.time;
            let fields = &event.marker.fields;
            assert_eq!(
                fields::encoded_fields_size(fields, event.payload),
                Some(event.payload.len())
            );
            assert_eq!(event.marker.values(event.payload).count(), fields.len());
        }
        assert!(losses.next().is_none(), "a loss behind all events");
        assert!(packet.total_lost >= *lost);
        self.events += packet.events.len() as u64;
        self.invalid_bytes += packet.invalid_bytes;
        Ok(())
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn bytes_written(&self) -> u64 {
        0
    }

    fn nr_events_written(&self) -> u64 {
        self.events
    }
}

fn fake_trace_with_markers(flight: bool) -> FakeTrace {
    FakeTrace::with_flags(if flight { FLIGHT } else { 0 })
        .process(17, 100, "app\x1b[31m")
        .marker(17, 0, "a:none", "")
        .marker(17, 1, "a:text", "s:str n:u8 t:str")
        .marker(17, 2, "a:numbers", "a:u8 b:s64 c:x16 d:f32 e:f64")
        .marker(17, 3, "a:wrong", "a:u9")
}

/// Generates valid events, LOST records and padding records.
fn valid_records() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..60);
    let record = (0..6_u16, 0..3_u8, any::<u16>(), payload);
    proptest::collection::vec(record, 0..40).prop_map(|all| {
        let mut to = RecordBytes::default();
        let mut time = 2000;
        for (marker, kind, step, payload) in all {
            time += u64::from(step);
            to = match kind {
                0 => to.lost(time, time / 3),
                1 => to.pad(1 + marker),
                _ => to.event(marker, 7, time, &payload),
            };
        }
        to.0
    })
}

/// Returns 0 and the offsets at which records and padding records end.
fn record_ends(bytes: &[u8]) -> Vec<usize> {
    let mut offsets = vec![0];
    while let Some(words) = bytes
        .get(offsets[offsets.len() - 1] + 2..)
        .and_then(<[u8]>::first_chunk)
    {
        offsets.push(offsets[offsets.len() - 1] + usize::from(u16::from_ne_bytes(*words)) * 8);
    }
    offsets
}

/// Passes the bytes to the reader as three buffers: two in the first round, and one in the second
/// round. Returns the number of invalid bytes and the number of events.
fn read_rounds(bytes: &[u8], key: u64, flight: bool, lost: u64) -> (u64, u64) {
    let mut fake = fake_trace_with_markers(flight);
    fake.add_round(&[(key, 3, bytes, lost), (key, 4, bytes, lost / 2)]);
    fake.add_round(&[(key, 3, bytes, lost / 3)]);
    let mut output = CheckedOutput::default();
    let mut reader = Reader::new(&fake.info);
    for _ in 0..3 {
        let result = reader.read_round(&fake, &mut output);
        result.expect("bytes are no errors");
    }
    let totals = reader.totals();
    assert_eq!(
        (totals.nr_events, totals.invalid_bytes),
        (output.events, output.invalid_bytes)
    );
    (totals.invalid_bytes, totals.nr_events)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if fuzz::is_long_run() { 400 } else { 100 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r3_7_changed_bytes_are_records_or_cut(
        mut bytes in valid_records(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        lost in any::<u64>(),
    ) {
        for (index, byte) in changes {
            if !bytes.is_empty() {
                let offset = index.index(bytes.len());
                bytes[offset] = byte;
            }
        }
        for (shared, flight) in [(false, false), (true, false), (false, true), (true, true)] {
            let (valid_bytes, invalid_bytes) = parse_all_records(&bytes, layout(shared, flight));
            prop_assert!(valid_bytes + invalid_bytes <= bytes.len());
        }
        for key in [17, SHARED_KEY] {
            read_rounds(&bytes, key, false, lost);
            read_rounds(&bytes, key, true, lost);
        }
    }

    #[test]
    fn r3_7_valid_records_are_not_cut(bytes in valid_records()) {
        let (_, invalid_bytes) = parse_all_records(&bytes, layout(false, false));
        prop_assert_eq!(invalid_bytes, 0);
    }

    #[test]
    fn r3_7_a_buffer_that_ends_early_is_cut_there(
        bytes in valid_records(),
        index in any::<prop::sample::Index>(),
    ) {
        let len = index.index(bytes.len() + 1);
        let ends = record_ends(&bytes).into_iter().filter(|end| *end <= len);
        let valid_len = ends.max().unwrap_or(0);
        prop_assert_eq!(parse_all_records(&bytes[..len], layout(false, false)).1, len - valid_len);
        // A flight recorder may have overwritten a part of its oldest record, which comes last in
        // the bytes. An incomplete last record must not count as invalid bytes.
        if len % 8 == 0 {
            prop_assert_eq!(parse_all_records(&bytes[..len], layout(false, true)).1, 0);
        }
    }
}

/// Changes each byte to each value, in a buffer with all kinds of records, and checks that no
/// change does harm.
#[test]
fn r3_7_changed_byte_removes_at_most_one_event() {
    let bytes = RecordBytes::default()
        .event(0, 1, 2000, &[])
        .lost(2001, 4)
        .event(1, 1, 2002, b"text\0\x05more\0")
        .pad(2)
        .event(2, 1, 2003, &[1; 23])
        .0;
    assert_eq!(read_rounds(&bytes, 17, false, 4), (0, 9));
    for offset in 0..bytes.len() {
        for value in 0..=255 {
            let mut changed = bytes.clone();
            changed[offset] = value;
            // read_rounds() reads `changed` as three buffers. With unchanged bytes, each of the
            // three buffers has 3 events. If the reader reports no invalid bytes, the change of one
            // byte may remove at most one event from each buffer.
            let (invalid_bytes, events) = read_rounds(&changed, 17, false, 4);
            assert!(invalid_bytes > 0 || events >= 6, "{offset} {value}");
        }
    }
}

/// Checks that each output of hostile events is well-formed, and that the text output has no escape
/// character.
#[test]
fn r3_7_outputs_of_hostile_events_are_well_formed() {
    let mut fake = fake_trace_with_markers(false);
    let bytes = RecordBytes::default()
        .event(1, 1, u64::MAX, b"\x1b[2J\0\x05\xff\xfe\"\\\0")
        .event(2, 1, 0, &[0xff; 23])
        .event(PAD_RECORD - 2, 1, 5, &[])
        .0;
    fake.add_round(&[(17, 0, &bytes, u64::MAX)]);
    let info = fake.info().expect("it is there");
    let mut text = Vec::new();
    let mut lines = TextOutput::new(&mut text, Clock::new(&info), false);
    fake.read_into(&mut lines);
    lines.finish().expect("it is written");
    let text = String::from_utf8(text).expect("text");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert_eq!(text.lines().count(), 2, "{text:?}");

    fake.add_round(&[(17, 0, &bytes, u64::MAX)]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_owned();
    let about = TraceProperties::new(&info, Vec::new());
    let mut json =
        PerfettoOutput::new(file.reopen().expect("a file"), about.clone()).expect("a file");
    fake.read_into(&mut json);
    // The file must be complete although finish() was not called.
    let bytes_of_file = std::fs::read(&path).expect("the file");
    let value: serde_json::Value = serde_json::from_slice(&bytes_of_file).expect("JSON");
    let events = value["traceEvents"].as_array().expect("events");
    assert_eq!(events.len(), 3, "{value}");

    fake.add_round(&[(17, 0, &bytes, u64::MAX)]);
    let directory = tempfile::tempdir().expect("a directory");
    let mut ctf = CtfOutput::create(&directory.path().join("ctf"), &about).expect("a directory");
    fake.read_into(&mut ctf);
    ctf.finish().expect("it is written");
    assert!(ctf.bytes_written() > 0);
}
