// SPDX-License-Identifier: GPL-2.0

//! Functions for lists that are sorted by key. The memory of a sorted list is allocated while the
//! lock of the list is not held.

use kernel::alloc::KVVec;
use kernel::prelude::*;

pub(crate) use trace_rules::sorted::search;

use crate::page::GFP_NO_OOM;

/// Moves the elements of a list into the larger list `room`, which was allocated before the lock of
/// the list was taken.
pub(crate) fn move_to_larger_list<T>(all: &mut KVVec<T>, room: KVVec<T>) {
    let before = core::mem::replace(all, room);
    for one in before {
        let _ = all.push_within_capacity(one);
    }
}

/// Allocates an empty list with capacity for more than `nr` elements, or returns `ENOMEM`.
pub(crate) fn allocate_list_for_more_than<T>(nr: usize) -> Result<KVVec<T>> {
    let capacity = nr.wrapping_add(nr / 2).wrapping_add(8);
    Ok(KVVec::with_capacity(capacity, GFP_NO_OOM)?)
}
