// SPDX-License-Identifier: GPL-2.0

//! CTF 2 output: a directory with a file `metadata`, and a file for each buffer.
//!
//! Each buffer, not each CPU, is a data stream. The times of events are in order only within a
//! buffer, and each buffer has its own count of lost events. Each packet has the events that were
//! returned by one read of a buffer. Before a packet, the output writes the metadata for the events
//! of the packet. If the recorder is killed while it writes a packet, the file of the buffer may
//! end with an incomplete packet.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{openat, statat, unlinkat, AtFlags, Dir, Mode, OFlags};

use crate::fields::{self, FieldType, FieldValue};
use crate::output::schema::{self, PACKET_MAGIC, STREAM_CLASS_ID};
use crate::output::{Event, Output, Packet, TraceProperties};
use crate::source::BufferId;

/// The file with the metadata of a trace.
const METADATA_FILE_NAME: &str = "metadata";

/// The file of a data stream.
#[derive(Debug)]
struct CtfStream {
    number: u64,
    directory: Rc<OwnedFd>,
    /// The name of the file in `directory`.
    name: String,
    /// Size in bytes of the complete packets in the file.
    len: u64,
    nr_packets: u64,
    /// The end time of the last packet of the stream.
    last_packet_end_time: u64,
    /// Number of lost events that the last packet reports.
    reported_lost: u64,
    /// Number of lost events that the buffer has counted so far.
    lost: u64,
}

/// The directory of a trace. Its files are opened through the open directory. If the directory is
/// renamed or replaced during a recording, no file is written to another directory.
#[derive(Debug)]
pub struct CtfOutput {
    directory: Rc<OwnedFd>,
    metadata: File,
    /// Size in bytes of the complete fragments in the file `metadata`.
    metadata_size: u64,
    began: u64,
    streams: HashMap<BufferId, CtfStream>,
    /// True for each class that the metadata describes; the index is the number of the class.
    is_class_described: Vec<bool>,
    next_stream_number: u64,
    bytes_written: u64,
    /// Number of events in complete packets.
    nr_events_written: u64,
}

impl CtfOutput {
    /// Creates a trace in the directory at `path`. Creates the directory if it does not exist; an
    /// existing directory must be empty.
    pub fn create(path: &Path, properties: &TraceProperties) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Self::create_in(File::open(path)?.into(), properties)
    }

    /// Creates a trace in an open directory, which must be empty.
    pub fn create_in(directory: OwnedFd, properties: &TraceProperties) -> io::Result<Self> {
        for entry in Dir::read_from(&directory)? {
            if ![c".", c".."].contains(&entry?.file_name()) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
        }
        let flags = OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let metadata = open_for_write(&directory, METADATA_FILE_NAME, flags)?;
        let mut ctf = Self {
            directory: Rc::new(directory),
            metadata,
            metadata_size: 0,
            began: properties.began,
            streams: HashMap::new(),
            is_class_described: Vec::new(),
            next_stream_number: 0,
            bytes_written: 0,
            nr_events_written: 0,
        };
        let head: Vec<u8> = schema::trace_header_fragments(properties)
            .iter()
            .flat_map(schema::encode_fragment)
            .collect();
        if let Err(error) = ctf.append_metadata(&head) {
            // Remove the metadata, because a trace with incomplete metadata cannot be read.
            let _ = unlinkat(&ctf.directory, METADATA_FILE_NAME, AtFlags::empty());
            return Err(error);
        }
        Ok(ctf)
    }

    fn append_metadata(&mut self, fragments: &[u8]) -> io::Result<()> {
        if let Err(error) = self.metadata.write_all(fragments) {
            // Remove the incomplete fragment, which would make the whole metadata unreadable.
            let _ = self.metadata.set_len(self.metadata_size);
            return Err(error);
        }
        self.metadata_size += fragments.len() as u64;
        self.bytes_written += fragments.len() as u64;
        Ok(())
    }

    /// Writes the metadata of those classes of events that the metadata does not describe yet.
    fn describe_new_classes(&mut self, events: &[Event<'_>]) -> io::Result<()> {
        let mut fragments = Vec::new();
        for event in events {
            let class = event.marker.class_number as usize;
            if class >= self.is_class_described.len() {
                self.is_class_described.resize(class + 1, false);
            }
            if !std::mem::replace(&mut self.is_class_described[class], true) {
                fragments.extend(schema::encode_fragment(&schema::event_class_fragment(
                    &event.marker,
                )));
            }
        }
        match fragments.is_empty() {
            true => Ok(()),
            false => self.append_metadata(&fragments),
        }
    }

    /// Closes the data stream of a buffer. If there are lost events that no packet has reported,
    /// writes an empty packet that reports them.
    fn close_stream(&mut self, buffer: BufferId) -> io::Result<()> {
        if let Some(mut stream) = self.streams.remove(&buffer) {
            if stream.lost > stream.reported_lost {
                stream.reported_lost = stream.lost;
                self.bytes_written += stream.write_packet(
                    buffer.cpu,
                    &[],
                    (stream.last_packet_end_time, stream.last_packet_end_time),
                )?;
            }
        }
        Ok(())
    }
}

impl CtfStream {
    /// Writes the events as one packet. If the write of a packet fails, splits its events into two
    /// smaller packets, and writes as many events as possible. Returns the number of bytes and of
    /// events that were written.
    fn write_events_that_fit(
        &mut self,
        cpu: u32,
        events: &[Event<'_>],
    ) -> (u64, u64, io::Result<()>) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return (0, 0, Ok(()));
        };
        match self.write_packet(cpu, events, (first.time, last.time)) {
            Ok(bytes) => (bytes, events.len() as u64, Ok(())),
            Err(error) if events.len() == 1 => (0, 0, Err(error)),
            Err(error) => {
                let (begin, end) = events.split_at(events.len() / 2);
                let (mut bytes, mut nr, result) = self.write_events_that_fit(cpu, begin);
                if result.is_ok() {
                    let (more_bytes, more, _) = self.write_events_that_fit(cpu, end);
                    (bytes, nr) = (bytes + more_bytes, nr + more);
                }
                (bytes, nr, Err(error))
            }
        }
    }

    /// Writes `events` as one packet. Returns the size of the packet in bytes.
    fn write_packet(
        &mut self,
        cpu: u32,
        events: &[Event<'_>],
        (begin, end): (u64, u64),
    ) -> io::Result<u64> {
        let mut bytes = Vec::with_capacity(128 + events.len() * 64);
        bytes.extend(PACKET_MAGIC.to_ne_bytes());
        bytes.extend(STREAM_CLASS_ID.to_ne_bytes());
        bytes.extend(self.number.to_ne_bytes());
        let sizes_offset = bytes.len();
        // Leave space for the total size and the content size in bits, which are equal because
        // packets have no padding.
        bytes.extend([0; 16]);
        for word in [begin, end, self.reported_lost, self.nr_packets] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(cpu.to_ne_bytes());
        for event in events {
            encode_event(event, &mut bytes);
        }
        let bits = (bytes.len() as u64 * 8).to_ne_bytes();
        bytes[sizes_offset..sizes_offset + 8].copy_from_slice(&bits);
        bytes[sizes_offset + 8..sizes_offset + 16].copy_from_slice(&bits);
        // If the user has removed the file of a stream, it is not created again: a file without its
        // first packets could not be read.
        let flags = match self.len {
            0 => OFlags::CREATE | OFlags::EXCL,
            _ => OFlags::empty(),
        };
        let file = open_for_write(&self.directory, &self.name, flags)?;
        if let Err(error) = file.write_all_at(&bytes, self.len) {
            // The write may have failed because the disk is full. Remove the incomplete packet,
            // which would make the whole stream unreadable. A file without packets is removed.
            let _ = match self.len {
                0 => unlinkat(&self.directory, &self.name, AtFlags::empty()).map_err(Into::into),
                len => file.set_len(len),
            };
            return Err(error);
        }
        self.len += bytes.len() as u64;
        self.nr_packets += 1;
        self.last_packet_end_time = end;
        Ok(bytes.len() as u64)
    }
}

/// Opens a file of the trace. Links are not followed: another user who owns the directory could
/// redirect the output to any file by a link.
fn open_for_write(directory: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Appends the bytes of an event.
fn encode_event(event: &Event<'_>, to: &mut Vec<u8>) {
    let process = &event.process.info;
    to.extend(event.marker.class_number.to_ne_bytes());
    to.extend(event.time.to_ne_bytes());
    to.extend(process.pid.to_ne_bytes());
    to.extend(event.thread.to_ne_bytes());
    let name = process.comm.split('\0').next().unwrap_or_default();
    to.extend_from_slice(name.as_bytes());
    to.push(0);
    encode_fields(event, to);
    if event.marker.is_syscall {
        let name = event.marker.syscall_name(event.payload).unwrap_or_default();
        to.extend_from_slice(name.as_bytes());
        to.push(0);
    }
}

/// Appends the bytes of an event's fields.
fn encode_fields(event: &Event<'_>, to: &mut Vec<u8>) {
    // The fields of a record are already in the format of CTF, except texts that are not UTF-8.
    if event
        .marker
        .fields
        .iter()
        .all(|f| f.kind != FieldType::Text)
    {
        to.extend_from_slice(event.payload);
        return;
    }
    let mut rest = event.payload;
    for field in &event.marker.fields {
        let before = rest;
        match fields::take_field_value(field.kind, &mut rest) {
            Some(FieldValue::Text(bytes)) => {
                to.extend(visible::escape_invalid_utf8(bytes).as_bytes());
                to.push(0);
            }
            _ => to.extend(&before[..before.len() - rest.len()]),
        }
    }
}

impl Output for CtfOutput {
    fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.describe_new_classes(&packet.events)?;
        let cpu = packet.buffer.cpu;
        let first = packet.losses.iter().map(|l| l.time);
        let first = first.chain(packet.events.first().map(|e| e.time)).min();
        let began = self.began.min(first.unwrap_or(self.began));
        let stream = match self.streams.entry(packet.buffer) {
            Entry::Occupied(stream) => stream.into_mut(),
            Entry::Vacant(vacant) => {
                let number = self.next_stream_number;
                self.next_stream_number += 1;
                let mut name = format!("stream_{}_{cpu}", packet.buffer.key);
                // A process that left the trace and joined it again gets a second stream.
                if statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    name = format!("{name}_{number}");
                }
                vacant.insert(CtfStream {
                    number,
                    directory: Rc::clone(&self.directory),
                    name,
                    len: 0,
                    nr_packets: 0,
                    last_packet_end_time: began,
                    reported_lost: 0,
                    lost: 0,
                })
            }
        };
        stream.lost = stream.lost.max(packet.total_lost);
        if packet.total_lost > 0 && stream.nr_packets == 0 {
            // Readers of CTF compute losses as the difference between the counts of two successive
            // packets. Begin the stream with an empty packet, so that the first packet with losses
            // has a predecessor.
            self.bytes_written += stream.write_packet(cpu, &[], (began, began))?;
        }
        let mut nr_written = 0;
        let losses = packet.losses.iter().map(|l| (l.nr_events_before, Some(l)));
        for (end, loss) in losses.chain([(packet.events.len(), None)]) {
            let events = packet.events.get(nr_written..end).unwrap_or_default();
            if !events.is_empty() {
                let (bytes, nr, result) = stream.write_events_that_fit(cpu, events);
                self.bytes_written += bytes;
                self.nr_events_written += nr;
                result?;
            }
            nr_written = end.max(nr_written);
            if let Some(loss) = loss {
                stream.reported_lost = stream.reported_lost.max(loss.total);
                stream.lost = stream.lost.max(stream.reported_lost);
                self.bytes_written +=
                    stream.write_packet(cpu, &[], (stream.last_packet_end_time, loss.time))?;
            }
        }
        Ok(())
    }

    fn note_process_exit(&mut self, key: u64) -> io::Result<()> {
        let buffers: Vec<BufferId> = self
            .streams
            .keys()
            .filter(|p| p.key == key)
            .copied()
            .collect();
        buffers
            .into_iter()
            .try_for_each(|buffer| self.close_stream(buffer))
    }

    fn finish(&mut self) -> io::Result<()> {
        let buffers: Vec<BufferId> = self.streams.keys().copied().collect();
        buffers
            .into_iter()
            .try_for_each(|buffer| self.close_stream(buffer))
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn nr_events_written(&self) -> u64 {
        self.nr_events_written
    }
}
