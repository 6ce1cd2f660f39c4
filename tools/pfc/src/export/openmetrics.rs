// SPDX-License-Identifier: GPL-2.0

//! OpenMetrics 1.0, the text that Prometheus reads.

use std::io::{self, Write};

use perfcounters::Snapshot;

use crate::export::{Format, Options, Writer};

pub const FORMAT: Format = Format {
    flag: "openmetrics",
    help: "OpenMetrics 1.0 text, for Prometheus and its like",
    writer: |options| Box::new(Text(options.clone())),
};

struct Text(Options);

impl Writer for Text {
    fn write(&mut self, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
        for reading in snapshot.readings() {
            if self.0.sum {
                writeln!(out, "# {} {}", reading.instance().name, reading.total())?;
            }
        }
        writeln!(out, "# EOF")
    }
}
