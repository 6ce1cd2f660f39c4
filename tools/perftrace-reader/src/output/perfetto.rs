// SPDX-License-Identifier: GPL-2.0

//! Output in the trace event format, a JSON format that ui.perfetto.dev and chrome://tracing read.
//!
//! A regular file is complete JSON after each round: the output writes the closing brackets after
//! each round, and overwrites them in the next round.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use serde_json::{json, Map, Value as Json};

use crate::fields::FieldValue;
use crate::output::{Event, Output, Packet, TraceProperties};

const CLOSING_BRACKETS: &[u8] = b"\n]}\n";
/// Integers whose absolute value is `EXACT_INTEGER_LIMIT` or more are written as texts. Readers
/// that store numbers as doubles cannot represent all integers above 2^53 exactly.
const EXACT_INTEGER_LIMIT: u64 = 1 << 53;

/// The output, which writes JSON to a file or a pipe.
#[derive(Debug)]
pub struct PerfettoOutput {
    file: File,
    /// True if the file is a regular file, whose end can be overwritten.
    is_regular_file: bool,
    properties: TraceProperties,
    /// Text that is not written yet.
    pending_text: Vec<u8>,
    next_write_offset: u64,
    /// The ends of the objects in `pending_text`: for each object, the offset of its end and the
    /// number of events up to that offset.
    pending_object_ends: Vec<(usize, u64)>,
    /// Number of events in `pending_text`. The field `nr_events_written` is the number of events in
    /// the file.
    nr_pending_events: u64,
    nr_events_written: u64,
    has_no_object: bool,
    named_processes: HashSet<u64>,
}

impl PerfettoOutput {
    /// Starts an empty trace. The file is written by the first call of [`Output::end_round`] or
    /// [`Output::finish`]. If the file is a regular file, the first call removes the old content,
    /// and the file contains complete JSON after each call.
    pub fn new(file: File, properties: TraceProperties) -> io::Result<Self> {
        let regular = file.metadata()?.is_file();
        let metadata: Map<String, Json> = properties
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let head = json!({"displayTimeUnit": "ns", "otherData": metadata}).to_string();
        let mut output = Self {
            file,
            is_regular_file: regular,
            properties,
            pending_text: Vec::new(),
            next_write_offset: 0,
            pending_object_ends: Vec::new(),
            nr_pending_events: 0,
            nr_events_written: 0,
            has_no_object: true,
            named_processes: HashSet::new(),
        };
        // Leave the JSON object open, because the array of events follows.
        let head = visible::escape_json(&head);
        output
            .pending_text
            .extend(head.trim_end_matches('}').as_bytes());
        if !output.pending_text.ends_with(b"}") {
            output.pending_text.push(b'}');
        }
        output.pending_text.extend(b",\"traceEvents\":[");
        // If only the head of the trace fits onto the disk, the file ends after the head, and is
        // complete JSON without events.
        output
            .pending_object_ends
            .push((output.pending_text.len(), 0));
        Ok(output)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let len = self.pending_text.len() as u64;
        if self.is_regular_file {
            if self.next_write_offset == 0 {
                self.file.set_len(0)?;
            }
            self.pending_text.extend(CLOSING_BRACKETS);
            if let (room, Err(error)) =
                try_write_all_at(&self.file, self.next_write_offset, &self.pending_text)
            {
                self.end_file_within(room);
                return Err(error);
            }
        } else {
            self.file.write_all(&self.pending_text)?;
        }
        self.next_write_offset += len;
        self.nr_events_written += self.nr_pending_events;
        self.clear_pending();
        Ok(())
    }

    /// Keeps the first objects of the pending text, and ends the file with the closing brackets.
    /// The kept objects and the closing brackets have at most `room` bytes. Called after a write
    /// has failed, for example because the disk is full.
    fn end_file_within(&mut self, room: usize) {
        let fits = |(end, _): &&(usize, u64)| end + CLOSING_BRACKETS.len() <= room;
        let last = self.pending_object_ends.iter().take_while(fits).last();
        let (end, events) = last.copied().unwrap_or_default();
        self.next_write_offset += end as u64;
        self.nr_events_written += events;
        self.clear_pending();
        // Write the closing brackets over text that is already in the file, and truncate the file
        // afterwards. A full disk may have no space for brackets after the end of the file.
        let _ = self
            .file
            .write_all_at(CLOSING_BRACKETS, self.next_write_offset);
        let _ = self
            .file
            .set_len(self.next_write_offset + CLOSING_BRACKETS.len() as u64);
    }

    fn clear_pending(&mut self) {
        self.pending_text.clear();
        self.pending_object_ends.clear();
        self.nr_pending_events = 0;
    }

    fn append_json_object(&mut self, text: &str) {
        let separator: &[u8] = if self.has_no_object { b"\n" } else { b",\n" };
        self.has_no_object = false;
        self.pending_text.extend(separator);
        self.pending_text
            .extend(visible::escape_json(text).as_bytes());
        self.pending_object_ends
            .push((self.pending_text.len(), self.nr_pending_events));
    }

    /// Formats a time as microseconds since the trace was created, without rounding nanoseconds.
    fn format_time(&self, time: u64) -> String {
        let ns = self
            .properties
            .clock
            .ns_between(self.properties.began, time);
        format!("{}.{:03}", ns / 1000, ns % 1000)
    }

    fn append_event(&mut self, event: &Event<'_>, cpu: u32) {
        let process = &event.process.info;
        // If a process has no process id in the pid namespace of the reader, write the key of the
        // process as its id.
        let pid = match process.pid {
            0 => event.process.key,
            pid => pid.into(),
        };
        if self.named_processes.insert(event.process.key) {
            let name = json!({"name": "process_name", "ph": "M", "pid": pid, "tid": event.thread,
                "args": {"name": process.comm}});
            self.append_json_object(&name.to_string());
        }
        let marker = &event.marker;
        let mut args: Map<String, Json> = marker
            .values(event.payload)
            .map(|(name, value)| (name.to_owned(), value_to_json(value)))
            .collect();
        // The name of a field cannot begin with `$`, so `$cpu` differs from every field.
        args.insert("$cpu".to_owned(), cpu.into());
        let provider = marker.name.split(':').next().unwrap_or_default();
        let text = format!(
            "{{\"name\":{},\"cat\":{},\"ph\":\"i\",\"s\":\"t\",\"ts\":{},\"pid\":{pid},\"tid\":{},\"args\":{}}}",
            json!(marker.name),
            json!(provider),
            self.format_time(event.time),
            event.thread,
            Json::Object(args),
        );
        self.nr_pending_events += 1;
        self.append_json_object(&text);
    }
}

/// Writes bytes at an offset. Returns the number of bytes that were written, even if the write
/// failed before all bytes were written.
fn try_write_all_at(file: &File, offset: u64, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Err(e)),
        }
    }
    (done, Ok(()))
}

/// Converts a value to JSON. A number that a double cannot represent exactly becomes a text.
fn value_to_json(value: FieldValue<'_>) -> Json {
    match value {
        FieldValue::Unsigned(n) if n < EXACT_INTEGER_LIMIT => n.into(),
        FieldValue::Signed(n) if n.unsigned_abs() < EXACT_INTEGER_LIMIT => n.into(),
        FieldValue::Single(n) if n.is_finite() => json!(f64::from(n)),
        FieldValue::Double(n) if n.is_finite() => json!(n),
        FieldValue::Text(bytes) => visible::escape_invalid_utf8(bytes).into(),
        other => other.to_string().into(),
    }
}

impl Output for PerfettoOutput {
    fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        for event in &packet.events {
            self.append_event(event, packet.buffer.cpu);
        }
        for loss in &packet.losses {
            let text = format!(
                "{{\"name\":\"events lost\",\"ph\":\"i\",\"s\":\"g\",\"ts\":{},\"pid\":0,\"tid\":0,\"args\":{}}}",
                self.format_time(loss.time),
                json!({"count": loss.count, "$cpu": packet.buffer.cpu}),
            );
            self.append_json_object(&text);
        }
        Ok(())
    }

    fn end_round(&mut self, _until: u64) -> io::Result<()> {
        match self.pending_text.is_empty() {
            true => Ok(()),
            false => self.write_pending(),
        }
    }

    fn note_process_exit(&mut self, key: u64) -> io::Result<()> {
        self.named_processes.remove(&key);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_pending()?;
        if !self.is_regular_file {
            self.file.write_all(CLOSING_BRACKETS)?;
        }
        Ok(())
    }

    fn bytes_written(&self) -> u64 {
        self.next_write_offset + CLOSING_BRACKETS.len() as u64
    }

    fn nr_events_written(&self) -> u64 {
        self.nr_events_written
    }
}
