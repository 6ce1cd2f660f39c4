// SPDX-License-Identifier: GPL-2.0

//! Tests that a round of the reader ends, that the reader keeps a limited amount of data, and that
//! it counts the events that it does not output under their reason.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod fake;

use std::io;

use fake::Fake;
use perftrace_reader::output::{Output, Packet};
use perftrace_reader::{Reader, Totals};

/// An output that counts events and packets, and keeps the keys of processes that have exited.
#[derive(Default)]
struct CountingOutput {
    events: u64,
    packets: u64,
    exited: Vec<u64>,
}

impl Output for CountingOutput {
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.events += packet.events.len() as u64;
        self.packets += 1;
        Ok(())
    }

    fn end_round(&mut self, _until: u64) -> io::Result<()> {
        Ok(())
    }

    fn process_exited(&mut self, key: u64) -> io::Result<()> {
        self.exited.push(key);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn events(&self) -> u64 {
        self.events
    }
}

#[test]
fn r3_7_the_exit_of_a_process_without_valid_events_is_noticed() {
    let mut fake = Fake::new().process(17, 100, "app");
    fake.add_round(&[(17, 0, &[0; 64], 7)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    for _ in 0..130 {
        reader.read_round(&fake, &mut output).expect("it is read");
        fake.remove_process(17);
    }
    assert_eq!((output.packets, &output.exited[..]), (1, &[17][..]));
    assert_eq!((reader.totals().cut, reader.totals().lost), (64, 7));
}

#[test]
fn r3_7_a_buffer_of_a_process_that_the_kernel_has_dropped_is_skipped() {
    let mut fake = Fake::new();
    fake.add_round(&[(17, 0, &[0; 64], 7)]);
    let mut output = CountingOutput::default();
    let mut reader = Reader::new(&fake.info);
    let nr = reader.read_round(&fake, &mut output).expect("it is read");
    assert_eq!((nr, output.packets), (0, 0));
    assert_eq!(reader.totals(), Totals::default());
}
