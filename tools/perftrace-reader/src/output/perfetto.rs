// SPDX-License-Identifier: GPL-2.0

//! Output in the trace event format, a JSON format that ui.perfetto.dev and chrome://tracing read.
//!
//! A regular file is complete JSON after each round: the closing brackets are written each time,
//! and overwritten the next time.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use serde_json::{json, Map, Value as Json};

use crate::fields::Value;
use crate::output::{About, Event, Output, Packet};

const CLOSE: &[u8] = b"\n]}\n";
/// Larger integers are not exact in readers that store all numbers as doubles.
const EXACT: u64 = 1 << 53;

/// The output: JSON to a file or a pipe.
#[derive(Debug)]
pub struct Perfetto {
    file: File,
    /// The file is a regular one, so its end can be overwritten.
    regular: bool,
    about: About,
    /// Text that is not written yet.
    text: Vec<u8>,
    at: u64,
    empty: bool,
    named: HashSet<u64>,
}

impl Perfetto {
    /// Starts an empty trace, which is complete JSON in a regular file.
    pub fn new(file: File, about: About) -> io::Result<Self> {
        let regular = file.metadata()?.is_file();
        if regular {
            file.set_len(0)?;
        }
        let more: Map<String, Json> = about
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let head = json!({"displayTimeUnit": "ns", "otherData": more}).to_string();
        let mut this = Self {
            file,
            regular,
            about,
            text: Vec::new(),
            at: 0,
            empty: true,
            named: HashSet::new(),
        };
        // The object is left open, and gets the array of events.
        this.text.extend(head.trim_end_matches('}').as_bytes());
        if !this.text.ends_with(b"}") {
            this.text.push(b'}');
        }
        this.text.extend(b",\"traceEvents\":[");
        this.give()?;
        Ok(this)
    }

    fn give(&mut self) -> io::Result<()> {
        let len = self.text.len() as u64;
        if self.regular {
            self.text.extend(CLOSE);
            if let Err(error) = self.file.write_all_at(&self.text, self.at) {
                // The disk may be full. Restore the file as it was before.
                self.text.clear();
                let _ = self.file.set_len(self.at);
                let _ = self.file.write_all_at(CLOSE, self.at);
                return Err(error);
            }
        } else {
            self.file.write_all(&self.text)?;
        }
        self.at += len;
        self.text.clear();
        Ok(())
    }

    fn object(&mut self, text: &str) {
        let separator: &[u8] = if self.empty { b"\n" } else { b",\n" };
        self.empty = false;
        self.text.extend(separator);
        self.text.extend(text.as_bytes());
    }

    /// Formats a time as microseconds since the trace was created, without rounding nanoseconds.
    fn time(&self, time: u64) -> String {
        let ns = self.about.clock.between(self.about.began, time);
        format!("{}.{:03}", ns / 1000, ns % 1000)
    }

    fn event(&mut self, event: &Event<'_>, cpu: u32) {
        let task = &event.process.task;
        // A process outside the reader's pid namespace has no id here. Its key is used instead.
        let pid = match task.pid {
            0 => event.process.key,
            pid => pid.into(),
        };
        if self.named.insert(event.process.key) {
            let name = json!({"name": "process_name", "ph": "M", "pid": pid, "tid": event.thread,
                "args": {"name": task.comm}});
            self.object(&name.to_string());
        }
        let marker = &event.marker;
        let mut args: Map<String, Json> = marker
            .values(event.payload)
            .map(|(name, value)| (name.to_owned(), exact(value)))
            .collect();
        // A field's name cannot begin with this character.
        args.insert("$cpu".to_owned(), cpu.into());
        let provider = marker.name.split(':').next().unwrap_or_default();
        let text = format!(
            "{{\"name\":{},\"cat\":{},\"ph\":\"i\",\"s\":\"t\",\"ts\":{},\"pid\":{pid},\"tid\":{},\"args\":{}}}",
            json!(marker.name),
            json!(provider),
            self.time(event.time),
            event.thread,
            Json::Object(args),
        );
        self.object(&text);
    }
}

/// Converts a value to JSON. A number that a double does not represent becomes a text.
fn exact(value: Value<'_>) -> Json {
    match value {
        Value::Unsigned(n) if n < EXACT => n.into(),
        Value::Signed(n) if n.unsigned_abs() < EXACT => n.into(),
        Value::Single(n) if n.is_finite() => json!(f64::from(n)),
        Value::Double(n) if n.is_finite() => json!(n),
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        other => other.to_string().into(),
    }
}

impl Output for Perfetto {
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        for event in &packet.events {
            self.event(event, packet.place.cpu);
        }
        for loss in &packet.losses {
            let text = format!(
                "{{\"name\":\"events lost\",\"ph\":\"i\",\"s\":\"g\",\"ts\":{},\"pid\":0,\"tid\":0,\"args\":{}}}",
                self.time(loss.time),
                json!({"count": loss.count, "$cpu": packet.place.cpu}),
            );
            self.object(&text);
        }
        Ok(())
    }

    fn round(&mut self, _until: u64) -> io::Result<()> {
        match self.text.is_empty() {
            true => Ok(()),
            false => self.give(),
        }
    }

    fn gone(&mut self, key: u64) -> io::Result<()> {
        self.named.remove(&key);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.give()?;
        if !self.regular {
            self.file.write_all(CLOSE)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.at + CLOSE.len() as u64
    }
}
