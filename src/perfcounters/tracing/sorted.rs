// SPDX-License-Identifier: GPL-2.0

//! Lists that are sorted by key, and whose memory is allocated without the lock of the list.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;

/// Searches a list that is sorted by key. Returns the index of the element, or the index at which
/// to insert it. Page faults call `search`, which has no panic path, unlike `binary_search`.
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

/// Moves a list into the larger memory `room`, which was allocated without the list's lock.
pub(crate) fn move_to<T>(all: &mut KVVec<T>, room: KVVec<T>) {
    let before = core::mem::replace(all, room);
    for one in before {
        let _ = all.push_within_capacity(one);
    }
}

/// Allocates a list with room for more than `nr` elements, or returns `ENOMEM`.
pub(crate) fn reserve_beyond<T>(nr: usize) -> Result<KVVec<T>> {
    let capacity = nr.wrapping_add(nr / 2).wrapping_add(8);
    Ok(KVVec::with_capacity(capacity, GFP_KERNEL_ACCOUNT)?)
}
