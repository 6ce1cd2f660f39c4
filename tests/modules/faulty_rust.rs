// SPDX-License-Identifier: GPL-2.0

//! Uses memory after its end, in Rust: shows that a debug kernel watches Rust
//! code too. Never loaded elsewhere; faulty.c has the faults of C.

use kernel::prelude::*;

module! {
    type: FaultyRust,
    name: "faulty_rust",
    authors: ["The perfcounters developers"],
    description: "A fault in Rust, for the rig's own test",
    license: "GPL",
}

struct FaultyRust;

impl kernel::Module for FaultyRust {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let stale = KBox::into_raw(KBox::new([0u8; 24], GFP_KERNEL)?);
        // SAFETY: `stale` is a box's.
        drop(unsafe { KBox::from_raw(stale) });
        // SAFETY: None: this is the fault.
        let seen = unsafe { stale.cast::<u8>().wrapping_add(8).read_volatile() };
        pr_info!("read {} from freed memory\n", seen);
        Ok(Self)
    }
}
