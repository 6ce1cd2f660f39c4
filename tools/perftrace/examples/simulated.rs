// SPDX-License-Identifier: GPL-2.0

//! Prints what a program has written into the file that stood in for the kernel: a line for each
//! marker, with how often it is registered, and for each record, in the order of their times.

use std::path::Path;

use perftrace::simulate::Kernel;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let kernel = Kernel::open(Path::new(&path))?;
        let markers = kernel.markers();
        for (text, refs) in &markers {
            println!("marker {refs} {text}");
        }
        let mut records: Vec<_> = kernel.cpus().flat_map(|cpu| kernel.read(0, cpu)).collect();
        records.sort_by_key(|record| record.time);
        for record in records {
            let bytes: Vec<u8> = record
                .payload
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
