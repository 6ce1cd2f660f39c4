// SPDX-License-Identifier: GPL-2.0

//! Text output: a line for each event, in the form of `perf script`:
//!
//! ```text
//! app 1234/1236 [003] 1795218782.123456789: app:begin: id=5 name="x"
//! ```

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::clock::Clock;
use crate::output::{Event, Output, Packet, TimeOrderedQueue};
use crate::source::BufferId;

/// The text output, which writes a line for each event to a writer. The writer must not buffer
/// text: the text output writes all lines of a round by one call, and counts the bytes that the
/// writer has accepted.
#[derive(Debug)]
pub struct TextOutput<W: Write> {
    writer: W,
    clock: Clock,
    is_coloured: bool,
    pending_lines: TimeOrderedQueue<PendingLine>,
    /// Size in bytes of the complete lines that were written.
    bytes_written: u64,
    nr_events_written: u64,
    /// True after a write has failed. After a failure nothing more is written, because the last
    /// line may be incomplete.
    has_failed: bool,
}

/// A line of the output.
#[derive(Debug)]
struct PendingLine {
    text: String,
    is_event: bool,
}

/// Escape sequence for names.
const NAME_STYLE: &str = "\x1b[1m";
/// Escape sequence for the colour of times.
const TIME_STYLE: &str = "\x1b[2m";
/// Escape sequence for the colour of lost events.
const LOSS_STYLE: &str = "\x1b[33m";
/// Escape sequence that ends the effect of the other sequences.
const END_OF_STYLE: &str = "\x1b[0m";

impl<W: Write> TextOutput<W> {
    /// Creates the text output, with or without colours.
    pub fn new(writer: W, clock: Clock, is_coloured: bool) -> Self {
        Self {
            writer,
            clock,
            is_coloured,
            pending_lines: TimeOrderedQueue::default(),
            bytes_written: 0,
            nr_events_written: 0,
            has_failed: false,
        }
    }

    fn style_if_coloured(&self, style: &'static str) -> &'static str {
        match self.is_coloured {
            true => style,
            false => "",
        }
    }

    fn format_time(&self, time: u64) -> String {
        let ns = self.clock.realtime_ns(time);
        format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
    }

    fn format_event(&self, event: &Event<'_>, buffer: BufferId) -> String {
        let process = &event.process.info;
        let (bold, dim, plain) = (
            self.style_if_coloured(NAME_STYLE),
            self.style_if_coloured(TIME_STYLE),
            self.style_if_coloured(END_OF_STYLE),
        );
        let mut line = format!(
            "{} {}/{} [{:03}] {dim}{}{plain}: {bold}{}{plain}:",
            visible::escape(&process.comm),
            process.pid,
            event.thread,
            buffer.cpu,
            self.format_time(event.time),
            visible::escape(&event.marker.name),
        );
        for (name, value) in event.marker.values(event.payload) {
            // Writing to a String cannot fail.
            let _ = write!(line, " {name}={value}");
        }
        line.push('\n');
        line
    }

    /// Adds a line that says which events are missing.
    fn push_loss_notice(&mut self, time: u64, cpu: u32, what: &str) {
        let (notice, plain) = (
            self.style_if_coloured(LOSS_STYLE),
            self.style_if_coloured(END_OF_STYLE),
        );
        let formatted = self.format_time(time);
        let line = PendingLine {
            text: format!("{notice}# {what} [{cpu:03}] {formatted}{plain}\n"),
            is_event: false,
        };
        self.pending_lines.push(time, line);
    }

    fn write_lines_until(&mut self, until: u64) -> io::Result<()> {
        let lines: Vec<PendingLine> = self.pending_lines.take_until(until).collect();
        if self.has_failed {
            return Ok(());
        }
        let text: String = lines.iter().map(|line| line.text.as_str()).collect();
        let (written, result) = try_write_all_and_flush(&mut self.writer, text.as_bytes());
        self.has_failed = result.is_err();
        let mut end = 0;
        for line in lines {
            end += line.text.len();
            if end <= written {
                self.bytes_written += line.text.len() as u64;
                self.nr_events_written += u64::from(line.is_event);
            }
        }
        result
    }
}

/// Writes and flushes the bytes. Returns the number of bytes that the writer has accepted, even if
/// the write failed.
fn try_write_all_and_flush(writer: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match writer.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Err(e)),
        }
    }
    (done, writer.flush())
}

impl<W: Write> Output for TextOutput<W> {
    fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let cpu = packet.buffer.cpu;
        if let (Some(first), bytes @ 1..) = (packet.events.first(), packet.overwritten_bytes) {
            self.push_loss_notice(first.time, cpu, &format!("{bytes} bytes overwritten"));
        }
        let mut losses = packet.losses.iter().peekable();
        for n in 0..=packet.events.len() {
            while let Some(loss) = losses.next_if(|l| l.nr_events_before == n) {
                self.push_loss_notice(loss.time, cpu, &format!("{} events lost", loss.count));
            }
            if let Some(event) = packet.events.get(n) {
                let line = PendingLine {
                    text: self.format_event(event, packet.buffer),
                    is_event: true,
                };
                self.pending_lines.push(event.time, line);
            }
        }
        Ok(())
    }

    fn end_round(&mut self, until: u64) -> io::Result<()> {
        self.write_lines_until(until)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_lines_until(u64::MAX)
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn nr_events_written(&self) -> u64 {
        self.nr_events_written
    }
}
