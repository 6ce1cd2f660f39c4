// SPDX-License-Identifier: GPL-2.0

//! Functions for lists that are sorted by key. The memory of a sorted list is allocated while the
//! lock of the list is not held.

use kernel::alloc::KVVec;
use kernel::prelude::*;

use crate::buffers::GFP_NO_OOM;

/// Searches a list that is sorted by key. Returns the index of the element with this key, or else
/// the index at which such an element must be inserted. Page faults call this function: unlike
/// `binary_search`, it has no panic path.
pub(crate) fn search<T>(all: &[T], key: u64, key_of: impl Fn(&T) -> u64) -> Result<usize, usize> {
    let (mut from, mut to) = (0usize, all.len());
    while from < to {
        let middle = from.wrapping_add(to.wrapping_sub(from) / 2);
        match all.get(middle).map(&key_of) {
            Some(found) if found == key => return Ok(middle),
            Some(found) if found < key => from = middle.wrapping_add(1),
            _ => to = middle,
        }
    }
    Err(from)
}

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
