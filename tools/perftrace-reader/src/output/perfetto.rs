// SPDX-License-Identifier: GPL-2.0

//! JSON in the trace event format, which ui.perfetto.dev and chrome://tracing read.
//!
//! A file is whole JSON after each round: what closes it is written behind each time, and
//! written over the next time.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use serde_json::{json, Map, Value as Json};

use crate::fields::Value;
use crate::output::{About, Event, Output, Packet};

const CLOSE: &[u8] = b"\n]}\n";
/// Whole numbers above are not exact where all numbers are doubles.
const EXACT: u64 = 1 << 53;

/// JSON to a file, or to a pipe.
#[derive(Debug)]
pub struct Perfetto {
    file: File,
    /// Can what was written be written over?
    regular: bool,
    about: About,
    /// Not written yet.
    text: Vec<u8>,
    at: u64,
    empty: bool,
    named: HashSet<u64>,
}

impl Perfetto {
    /// An empty trace, already whole in a file.
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
        // The object stays open, and has an array more.
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
                // The disk is full, perhaps: what there was before is whole again.
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

    /// Microseconds since the trace was made, exactly.
    fn time(&self, time: u64) -> String {
        let ns = self.about.clock.between(self.about.began, time);
        format!("{}.{:03}", ns / 1000, ns % 1000)
    }

    fn event(&mut self, event: &Event<'_>, cpu: u32) {
        let task = &event.process.task;
        // One that is not in our name space has no number here; its key is its own.
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
        // No field's name has such a character.
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

/// What would not be the same as a double is text.
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
