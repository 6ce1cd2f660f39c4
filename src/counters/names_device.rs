// SPDX-License-Identifier: GPL-2.0

//! `/dev/perfcounters_names` lists the numbers, states and names of the counter instances as text.
//!
//! ```text
//! # perfcounters generation 12 boot_id 5f0c...
//! 1 TAB live TAB sched/context_switches
//! 2 TAB dormant TAB block/sdb/reads
//! ```
//!
//! The name is the last column because it may contain blanks. The text is generated once for each
//! open file, by the first read(), so that all reads of the open file see the same generation of
//! the registry. The memory of the text is charged to the control group of the process that first
//! reads the file, and to the user of this process.
//!
//! The text is generated in parts of [`MAX_INSTANCES_PER_LOCK_HOLD`] instances, and the lock
//! `REGISTRY` is released after each part. A driver that adds or deletes an instance waits at most
//! until one part of the text is complete. If instances were added or deleted while `REGISTRY` was
//! released, the text is generated again from its beginning. After [`MAX_TRIES_IN_PARTS`] attempts
//! the whole text is generated without releasing `REGISTRY`.
//!
//! No memory is allocated under `REGISTRY`, because an allocation that is charged to a full control
//! group can take seconds. [`NamesTextBuilder::reserve_instance_lines`] allocates the memory before
//! `REGISTRY` is taken.

use core::fmt::{self, Write};
use core::ops::Range;

use base::account::MemoryCharge;
use counters_rules::abi::{DORMANT, LIVE, NAME_MAX};
use counters_rules::registry::{Registry, RegistryStore};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::VVec;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::instances::{MAX_INSTANCES_PER_LOCK_HOLD, REGISTRY};
use crate::pages::RegistryPages;

/// Maximum number of bytes of the first line: the generation has at most 20 digits, and the boot ID
/// has 32 digits.
const MAX_FIRST_LINE_BYTES: usize = 26 + 20 + 9 + 32 + 1;

/// Maximum number of bytes of the line of an instance. The number of an instance has at most 5
/// digits, because it is below 65,536. A name is shorter than [`NAME_MAX`].
const MAX_INSTANCE_LINE_BYTES: usize = 5 + 1 + 7 + 1 + NAME_MAX + 1;

/// The text of `/dev/perfcounters_names`. Only
/// [`reserve_instance_lines`](Self::reserve_instance_lines) allocates memory.
struct NamesTextBuilder(VVec<u8>);

impl Write for NamesTextBuilder {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Maximum number of attempts to generate the text in parts.
const MAX_TRIES_IN_PARTS: u32 = 8;

/// Returns the whole text of `/dev/perfcounters_names`, and the charge of its memory to the caller.
/// May sleep.
///
/// # Errors
///
/// `ENODEV` while the registry of instances does not exist, `EDQUOT` if the caller would exceed its
/// memory limit, `ENOMEM`.
pub(crate) fn generate_text() -> Result<(VVec<u8>, MemoryCharge)> {
    for _ in 0..MAX_TRIES_IN_PARTS {
        if let Some(text) = generate_text_in_parts()? {
            return text.finish();
        }
    }
    generate_text_at_once()?.finish()
}

/// Generates the whole text without releasing the lock `REGISTRY`.
fn generate_text_at_once() -> Result<NamesTextBuilder> {
    let mut text = NamesTextBuilder(VVec::new());
    let mut nr_slots = 0;
    loop {
        text.reserve_instance_lines(nr_slots)?;
        let registry = REGISTRY.lock();
        let registry = registry.as_ref().ok_or(ENODEV)?;
        if registry.nr_slots() <= nr_slots {
            text.push_first_line(registry)?;
            text.push_instance_lines(registry, 1..registry.nr_slots())?;
            return Ok(text);
        }
        nr_slots = registry.nr_slots();
    }
}

/// Generates the whole text in parts, and releases the lock `REGISTRY` after each part. Returns
/// `None` if instances were added or deleted while `REGISTRY` was released.
fn generate_text_in_parts() -> Result<Option<NamesTextBuilder>> {
    let mut text = NamesTextBuilder(VVec::new());
    let (mut at, mut generation) = (1_u32, None);
    loop {
        text.reserve_instance_lines(MAX_INSTANCES_PER_LOCK_HOLD)?;
        let registry = REGISTRY.lock();
        let registry = registry.as_ref().ok_or(ENODEV)?;
        let now = registry.store().header().generation().read_begin();
        match generation {
            None => text.push_first_line(registry)?,
            Some(begun) if begun != now => return Ok(None),
            Some(_) => {}
        }
        generation = Some(now);
        let end = at
            .saturating_add(MAX_INSTANCES_PER_LOCK_HOLD)
            .min(registry.nr_slots());
        text.push_instance_lines(registry, at..end)?;
        if end == registry.nr_slots() {
            return Ok(Some(text));
        }
        at = end;
    }
}

impl NamesTextBuilder {
    /// Allocates memory for the first line and the lines of `nr` instances. Called without the lock
    /// `REGISTRY`.
    fn reserve_instance_lines(&mut self, nr: u32) -> Result {
        let bytes = MAX_INSTANCE_LINE_BYTES.saturating_mul(nr as usize);
        self.0.reserve(
            bytes.saturating_add(MAX_FIRST_LINE_BYTES),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(())
    }

    /// Appends bytes without allocating memory. Returns `ENOMEM` if there is no room.
    fn push(&mut self, bytes: &[u8]) -> Result {
        if self.0.capacity().saturating_sub(self.0.len()) < bytes.len() {
            return Err(ENOMEM);
        }
        Ok(self.0.extend_from_slice(bytes, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns the text in as few pages as possible, and the charge of these pages to the caller.
    /// Called without the lock `REGISTRY`.
    fn finish(self) -> Result<(VVec<u8>, MemoryCharge)> {
        let pages = self.0.len().div_ceil(PAGE_SIZE);
        let bytes = pages.saturating_mul(PAGE_SIZE);
        let charge = MemoryCharge::of_caller(bytes)?;
        let mut text = VVec::with_capacity(bytes, GFP_KERNEL_ACCOUNT)?;
        text.extend_from_slice(&self.0, GFP_KERNEL_ACCOUNT)?;
        Ok((text, charge))
    }

    /// Appends the first line of the text, with the generation of the registry and the boot ID.
    fn push_first_line(&mut self, registry: &Registry<RegistryPages>) -> Result {
        let header = registry.store().header();
        let generation = header.generation().read_begin();
        write!(self, "# perfcounters generation {generation} boot_id ").map_err(|_| ENOMEM)?;
        for byte in header.boot_id() {
            write!(self, "{byte:02x}").map_err(|_| ENOMEM)?;
        }
        self.push(b"\n")
    }

    /// Appends a line for each live or dormant instance in the range `instances`.
    fn push_instance_lines(
        &mut self,
        registry: &Registry<RegistryPages>,
        instances: Range<u32>,
    ) -> Result {
        for instance in instances {
            let desc = registry.store().desc(instance);
            let state = match desc.state {
                LIVE => "live",
                DORMANT => "dormant",
                _ => continue,
            };
            write!(self, "{instance}\t{state}\t").map_err(|_| ENOMEM)?;
            self.push(desc.name())?;
            self.push(b"\n")?;
        }
        Ok(())
    }
}
