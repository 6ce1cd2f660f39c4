// SPDX-License-Identifier: GPL-2.0

//! Lists of the records of tasks that were removed from the index.

#![expect(unsafe_code, reason = "memory of records, freed by RCU")]

use core::ptr::NonNull;

use kernel::alloc::KBox;
use kernel::bindings;
use protocols::sync::Word;

use crate::task_record::{RemovedRecord, TaskRecord};
use base::rcu;

/// A linked list of records that were removed from the index. Records can be pushed in any context.
///
/// # Invariants
///
/// The list owns a record from the push of the record until the record is taken or freed.
pub(crate) struct RemovedRecordList {
    first: Word,
}

impl RemovedRecordList {
    /// Creates an empty list.
    pub(crate) fn new() -> Self {
        Self {
            first: Word::new(0),
        }
    }

    /// Adds a record to the front of the list. Callable in any context.
    pub(crate) fn push(&self, record: RemovedRecord) {
        let record = record.into_raw();
        loop {
            let first = self.first.load_relaxed();
            // SAFETY: `RemovedRecord` has passed the record's ownership to this call.
            unsafe { record.as_ref() }.list_next.store_relaxed(first);
            // Release: pairs with the acquires in `each` and `take_all`, so that the record is
            // complete.
            if self
                .first
                .try_cmpxchg_release(first, record.as_ptr() as u64)
            {
                return;
            }
        }
    }

    /// Calls `look` with each record of the list. The caller makes sure that no record is taken
    /// from the list during the call.
    pub(crate) fn each(&self, mut look: impl FnMut(&TaskRecord)) {
        // Acquire: pairs with the release in `push`, so that the records are complete.
        let mut next = self.first.load_acquire();
        // SAFETY: The list owns the record, by the type's invariant, and by the function's contract
        // no record is taken during the call. Records that are pushed during the call are not
        // visited: `push` inserts them before the record at which the walk began.
        while let Some(record) = unsafe { (next as *const TaskRecord).as_ref() } {
            look(record);
            next = record.list_next.load_relaxed();
        }
    }

    fn take_all(&self) -> u64 {
        loop {
            // Acquire: pairs with the release in `push`.
            let first = self.first.load_acquire();
            if first == 0 || self.first.try_cmpxchg_release(first, 0) {
                return first;
            }
        }
    }

    /// Empties the list. RCU frees the records after a grace period. Must not be called under a
    /// run-queue lock.
    pub(crate) fn free_later(&self) {
        /// # Safety
        ///
        /// Called only by RCU, with the `rcu_head` field of a record.
        unsafe extern "C" fn free(rcu_head: *mut bindings::callback_head) {
            let record = rcu_head.wrapping_byte_sub(core::mem::offset_of!(TaskRecord, rcu_head));
            // SAFETY: The record is from `into_raw`, and a grace period has elapsed since the
            // record was removed from the index.
            drop(unsafe { KBox::from_raw(record.cast::<TaskRecord>()) });
        }
        let mut next = self.take_all();
        while let Some(record) = NonNull::new(next as *mut TaskRecord) {
            // SAFETY: The list owns the record, by the type's invariant, and passes it to RCU.
            // `list_next` is read before RCU may free the record.
            unsafe {
                next = record.as_ref().list_next.load_relaxed();
                bindings::call_rcu(record.as_ref().rcu_head.get(), Some(free));
            }
        }
    }

    /// Empties the list, waits for a grace period, and passes each record to `each`. May sleep.
    pub(crate) fn take_all_after_grace_period(&self, each: &mut dyn FnMut(KBox<TaskRecord>)) {
        let mut next = self.take_all();
        if next != 0 {
            rcu::synchronize();
        }
        while let Some(record) = NonNull::new(next as *mut TaskRecord) {
            // SAFETY: The list owns the record, by the type's invariant. After the grace period no
            // search uses the record.
            let record = unsafe { KBox::from_raw(record.as_ptr()) };
            next = record.list_next.load_relaxed();
            each(record);
        }
    }
}

impl Drop for RemovedRecordList {
    fn drop(&mut self) {
        self.take_all_after_grace_period(&mut drop);
    }
}
