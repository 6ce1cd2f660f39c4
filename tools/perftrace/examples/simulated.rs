// SPDX-License-Identifier: GPL-2.0

//! Prints the contents of the files of simulated kernels. Prints a line for each marker, with the
//! number of its registrations, and a line for each record of trace 0, in the order of time.
#![allow(clippy::disallowed_methods, reason = "an example with ASCII arguments")]
#![allow(
    clippy::disallowed_macros,
    reason = "a test reads the output, and a panic fails the test"
)]

use std::path::Path;

use perftrace::simulate::SimulatedKernel;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let kernel = SimulatedKernel::open_existing_file(Path::new(&path))?;
        let markers = kernel.markers();
        for (text, refs) in &markers {
            println!("marker {refs} {text}");
        }
        let mut records: Vec<_> = kernel
            .cpus()
            .flat_map(|cpu| kernel.read_records(0, cpu))
            .collect();
        records.sort_by_key(|record| record.time);
        for record in records {
            let bytes: Vec<u8> = record
                .words_after_header
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            let text = markers.get(usize::from(record.marker));
            let name = text.and_then(|(text, _)| text.split(' ').next());
            println!("{} {}", name.unwrap_or("?"), bytes.escape_ascii());
        }
    }
    Ok(())
}
