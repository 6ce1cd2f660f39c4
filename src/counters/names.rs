// SPDX-License-Identifier: GPL-2.0

//! `/dev/perfcounters_names` lists the numbers, states and names of the counter instances as text.
//!
//! ```text
//! # perfcounters generation 12 boot_id 5f0c...
//! 1 TAB live TAB sched/context_switches
//! 2 TAB dormant TAB block/sdb/reads
//! ```
//!
//! The name is the last column because it may contain blanks. The text is generated when the file
//! is opened, so that all reads of the open file see the same generation of the registry. The
//! memory of the text is charged to the control group of the process that opens the file.
//!
//! The text is generated in parts of [`BATCH_SIZE`] instances, and the lock `REGISTRY` is released
//! after each part. A driver that adds or deletes an instance waits at most until one part of the
//! text is complete. If instances were added or deleted while `REGISTRY` was released, the text is
//! generated again from its beginning. After [`MAX_TRIES`] attempts the whole text is generated
//! without releasing `REGISTRY`.

use core::fmt::{self, Write};
use core::ops::Range;

use counters_rules::abi::{DORMANT, LIVE};
use counters_rules::registry::{Registry, Store};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::VVec;
use kernel::prelude::*;

use crate::instances::{BATCH_SIZE, REGISTRY};
use crate::pages::Pages;

struct Text(VVec<u8>);

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0
            .extend_from_slice(s.as_bytes(), GFP_KERNEL_ACCOUNT)
            .map_err(|_| fmt::Error)
    }
}

/// Maximum number of attempts to generate the text in parts.
const MAX_TRIES: u32 = 8;

/// Returns the whole text of `/dev/perfcounters_names`. May sleep. Returns `ENODEV` while the
/// registry of instances does not exist, or `ENOMEM`.
pub(crate) fn text() -> Result<VVec<u8>> {
    for _ in 0..MAX_TRIES {
        if let Some(text) = text_in_parts()? {
            return Ok(text);
        }
    }
    let mut text = Text(VVec::new());
    let registry = REGISTRY.lock();
    let registry = registry.as_ref().ok_or(ENODEV)?;
    text.head(registry)?;
    text.lines(registry, 1..registry.nr_slots())?;
    Ok(text.0)
}

/// Generates the whole text in parts, and releases the lock `REGISTRY` after each part. Returns
/// `None` if instances were added or deleted while `REGISTRY` was released.
fn text_in_parts() -> Result<Option<VVec<u8>>> {
    let mut text = Text(VVec::new());
    let (mut at, mut generation) = (1_u32, None);
    loop {
        let registry = REGISTRY.lock();
        let registry = registry.as_ref().ok_or(ENODEV)?;
        let now = registry.store().header().generation().read_begin();
        match generation {
            None => text.head(registry)?,
            Some(begun) if begun != now => return Ok(None),
            Some(_) => {}
        }
        generation = Some(now);
        let end = at.saturating_add(BATCH_SIZE).min(registry.nr_slots());
        text.lines(registry, at..end)?;
        if end == registry.nr_slots() {
            return Ok(Some(text.0));
        }
        at = end;
    }
}

impl Text {
    /// Writes the first line of the text, with the generation of the registry and the boot ID.
    fn head(&mut self, registry: &Registry<Pages>) -> Result {
        let header = registry.store().header();
        let generation = header.generation().read_begin();
        write!(self, "# perfcounters generation {generation} boot_id ").map_err(|_| ENOMEM)?;
        for byte in header.boot_id() {
            write!(self, "{byte:02x}").map_err(|_| ENOMEM)?;
        }
        self.write_str("\n").map_err(|_| ENOMEM)
    }

    /// Writes a line for each live or dormant instance in the range `instances`.
    fn lines(&mut self, registry: &Registry<Pages>, instances: Range<u32>) -> Result {
        for instance in instances {
            let desc = registry.store().desc(instance);
            let state = match desc.state {
                LIVE => "live",
                DORMANT => "dormant",
                _ => continue,
            };
            write!(self, "{instance}\t{state}\t").map_err(|_| ENOMEM)?;
            self.0.extend_from_slice(desc.name(), GFP_KERNEL_ACCOUNT)?;
            self.write_str("\n").map_err(|_| ENOMEM)?;
        }
        Ok(())
    }
}
