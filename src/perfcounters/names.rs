// SPDX-License-Identifier: GPL-2.0

//! `/dev/perfcounters_names`: the instances as text, number and name.
//!
//! ```text
//! # perfcounters generation 12 boot_id 5f0c...
//! 1 TAB live TAB sched/context_switches
//! 2 TAB dormant TAB block/sdb/reads
//! ```
//!
//! The name is last because it may hold blanks. The text is made at open, so
//! that all reads of one open file see one generation; its memory is charged to
//! the cgroup of whoever opens it.

use core::fmt::{self, Write};

use engine::abi::{DORMANT, LIVE};
use engine::registry::Store;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::VVec;
use kernel::prelude::*;

use crate::sys::lock::REGISTRY;

struct Text(VVec<u8>);

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0
            .extend_from_slice(s.as_bytes(), GFP_KERNEL_ACCOUNT)
            .map_err(|_| fmt::Error)
    }
}

/// The whole text. May sleep.
pub(crate) fn text() -> Result<VVec<u8>> {
    let mut text = Text(VVec::new());
    let registry = REGISTRY.lock();
    let registry = registry.as_ref().ok_or(ENODEV)?;
    let pages = registry.store();
    let header = pages.header();
    write!(
        text,
        "# perfcounters generation {} boot_id ",
        header.generation().enter()
    )
    .map_err(|_| ENOMEM)?;
    for byte in header.boot_id() {
        write!(text, "{byte:02x}").map_err(|_| ENOMEM)?;
    }
    text.write_str("\n").map_err(|_| ENOMEM)?;
    for instance in 1..registry.nr_slots() {
        let desc = pages.desc(instance);
        let state = match desc.state {
            LIVE => "live",
            DORMANT => "dormant",
            _ => continue,
        };
        write!(text, "{instance}\t{state}\t").map_err(|_| ENOMEM)?;
        text.0.extend_from_slice(desc.name(), GFP_KERNEL_ACCOUNT)?;
        text.write_str("\n").map_err(|_| ENOMEM)?;
    }
    Ok(text.0)
}
