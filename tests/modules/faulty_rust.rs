// SPDX-License-Identifier: GPL-2.0

//! Reads freed memory in Rust, which shows that the debug kernel checks Rust code as well. Only the
//! test faulty.sh loads this module. The module faulty.c commits faults of several kinds in C.

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
        // KFENCE guards one of many allocations, and reports its fault instead of KASAN. Of several
        // allocations in a row, KASAN guards at least one.
        for _ in 0..4 {
            let stale = KBox::into_raw(KBox::new([0u8; 24], GFP_KERNEL)?);
            // SAFETY: `stale` was returned by `KBox::into_raw()` above and is converted back only
            // once.
            drop(unsafe { KBox::from_raw(stale) });
            // SAFETY: The read is unsound on purpose: the memory was freed above.
            let seen = unsafe { stale.cast::<u8>().wrapping_add(8).read_volatile() };
            pr_info!("read {} from freed memory\n", seen);
        }
        Ok(Self)
    }
}
