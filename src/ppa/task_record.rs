// SPDX-License-Identifier: GPL-2.0

//! Records of accounted tasks, and an index of the records of living tasks by task address.

#![expect(unsafe_code, reason = "memory of records, freed by RCU")]

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::ptr::NonNull;

use kernel::alloc::flags::{GFP_ATOMIC, GFP_KERNEL, GFP_KERNEL_ACCOUNT, __GFP_NOWARN};
use kernel::alloc::{Flags, KBox, KVVec};
use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;
use ppa_rules::{Cpu, Task, TaskHistory, TaskSnapshot, NR_VALUES};
use protocols::sync::Word;

use crate::helpers;
use base::account::MemoryCharge;
use base::cpu;
use base::task::{TaskIds, TaskRef};

/// The record of a task: the values and the identity of the task. `task_state` is the first field,
/// at the address of the record.
#[repr(C)]
pub(crate) struct TaskRecord {
    pub(crate) task_state: Task<KVVec<Word>>,
    pub(crate) task_address: usize,
    pub(crate) is_kernel: bool,
    /// True if the task is a ksoftirqd thread, which runs softirqs on behalf of other tasks.
    pub(crate) is_softirqd: bool,
    /// Nonzero if the task is selected in `/proc/ppa`: it is accounted even if other tasks are not.
    pub(crate) individually_accounted: Word,
    pub(super) start_boottime_ns: u64,
    /// The sums of the task's earlier records; `None` if this is the first record. The lock
    /// `ACCOUNTING` excludes readers while the history is written.
    pub(crate) history: Option<Arc<TaskHistory<KVVec<Word>>>>,
    /// The memory of the record, charged to the user of the task until the task exits; `None`
    /// before the record belongs to a task. Other threads change `charge` only in
    /// [`end_charge`](Self::end_charge).
    charge: UnsafeCell<Option<MemoryCharge>>,
    /// Nonzero when `end_charge` has been called.
    charge_ended: Word,
    /// The ids and the name that the task had when the record was filled or, later, when it exited.
    /// Word 0 holds the ids of the user and the parent process, word 1 those of the thread and the
    /// process. Words 2 and 3 hold the name.
    saved_ids_and_name: [Word; 4],
    /// The next record with the same hash in the index.
    hash_next: Word,
    /// The next record of a `RemovedRecordList`.
    pub(super) list_next: Word,
    pub(super) rcu_head: Opaque<bindings::callback_head>,
}

// SAFETY: Any thread may access the fields of a record other than `rcu_head`, and may drop `charge`
// and `history`. Only RCU accesses `rcu_head`.
unsafe impl Send for TaskRecord {}
// SAFETY: The words of a record and of its history are atomic. Only RCU accesses `rcu_head`. While
// the record is shared, only one call of `end_charge` accesses `charge`, and all other fields do
// not change.
unsafe impl Sync for TaskRecord {}

impl TaskRecord {
    /// Creates the record of a task, with values for each group of `scaling` CPUs. May sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the user of the task would exceed the limit `user_kb`, `ENOMEM`.
    pub(crate) fn new(
        task: TaskRef<'_>,
        scaling: u32,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        let record = Self::alloc(scaling, GFP_KERNEL_ACCOUNT)?;
        Self::fill_and_begin(record, task, false, latencies, now)
    }

    /// Creates the record of a new task, with values for each group of `scaling` CPUs. `calling`
    /// says whether the task is in a system call. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the user of the task would exceed the limit `user_kb`, `ENOMEM`.
    pub(crate) fn new_atomic(
        task: TaskRef<'_>,
        calling: bool,
        scaling: u32,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        // The kernel charges an allocation with GFP_ATOMIC to the control group even if the group
        // exceeds its limit, so a full control group does not leave its tasks without records.
        // `GFP_KERNEL_ACCOUNT & !GFP_KERNEL` is `__GFP_ACCOUNT`.
        let account = GFP_KERNEL_ACCOUNT & !GFP_KERNEL;
        let record = Self::alloc(scaling, GFP_ATOMIC | account | __GFP_NOWARN)?;
        Self::fill_and_begin(record, task, calling, latencies, now)
    }

    /// Creates a record, with an empty history, that will replace the record of a task. May sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the user of the task would exceed the limit `user_kb`, `ENOMEM`.
    pub(crate) fn new_replacement(
        task: TaskRef<'_>,
        scaling: u32,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        let mut record = Self::alloc(scaling, GFP_KERNEL_ACCOUNT)?;
        let nr_values = record.task_state.nr_groups().wrapping_mul(NR_VALUES);
        let values = words(nr_values, GFP_KERNEL_ACCOUNT)?;
        record.history = Some(Arc::new(
            TaskHistory::new(values, scaling),
            GFP_KERNEL_ACCOUNT,
        )?);
        Self::fill_and_begin(record, task, false, latencies, now)
    }

    /// Makes `record` the record of a task by [`fill`](Self::fill), and begins to count at time
    /// `now`.
    fn fill_and_begin(
        mut record: KBox<Self>,
        task: TaskRef<'_>,
        calling: bool,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        record.task_state.begin(calling, latencies, now);
        record.fill(task)?;
        Ok(record)
    }

    /// Creates a record that belongs to no task yet. Returns `ENOMEM` if memory is short. May sleep
    /// if the allocation flags `flags` allow it.
    pub(crate) fn alloc(scaling: u32, flags: Flags) -> Result<KBox<Self>> {
        let others = Self::groups(scaling).saturating_sub(1);
        Ok(KBox::new(
            Self {
                task_state: Task::new(words(others.wrapping_mul(NR_VALUES), flags)?, scaling),
                task_address: 0,
                is_kernel: false,
                is_softirqd: false,
                individually_accounted: Word::new(0),
                start_boottime_ns: 0,
                history: None,
                charge: UnsafeCell::new(None),
                charge_ended: Word::new(0),
                saved_ids_and_name: Default::default(),
                hash_next: Word::new(0),
                list_next: Word::new(0),
                rcu_head: Opaque::uninit(),
            },
            flags,
        )?)
    }

    /// Returns the number of groups of `scaling` CPUs on this machine.
    pub(crate) fn groups(scaling: u32) -> usize {
        let before = scaling.max(1).wrapping_sub(1);
        let cpus = cpu::nr_cpu_ids().wrapping_add(before);
        cpus.checked_div(scaling.max(1)).unwrap_or(1) as usize
    }

    /// Returns the size of the record in memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let group = size_of::<[Word; NR_VALUES]>();
        let groups = self.task_state.nr_groups().wrapping_mul(group);
        let history = match self.history {
            Some(_) => size_of::<TaskHistory<KVVec<Word>>>().wrapping_add(groups),
            None => 0,
        };
        // The values of the first group are in the record itself.
        let others = groups.saturating_sub(group);
        others.wrapping_add(history).wrapping_add(size_of::<Self>()) as u64
    }

    /// Returns the values of the task up to now, including those of its history, and stores the
    /// values for each group of CPUs in `groups`. `cpu` returns the [`Cpu`] with a given number.
    /// Returns `None` if the values are being changed. The caller holds the lock `ACCOUNTING`.
    pub(crate) fn read<'a>(
        &self,
        clock: impl Fn() -> u64,
        cpu: impl Fn(u32) -> Option<&'a Cpu>,
        groups: &mut [[u64; NR_VALUES]],
    ) -> Option<TaskSnapshot> {
        let mut read = self.task_state.read_groups(clock, cpu, groups)?;
        if let Some(history) = &self.history {
            history.add_to_snapshot(&mut read, groups);
        }
        Some(read)
    }

    /// Returns how often a signal was delivered to the task. The caller holds the lock
    /// `ACCOUNTING`.
    pub(crate) fn signals(&self, number: usize) -> u32 {
        let earlier = self.history.as_ref().map_or(0, |h| h.signals(number));
        self.task_state.signals(number).wrapping_add(earlier)
    }

    /// Makes this the record of a task, and charges the memory of the record to the user of the
    /// task. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the user would exceed the limit `user_kb`, `ENOMEM`. After an error the record
    /// is unchanged.
    pub(crate) fn fill(&mut self, task: TaskRef<'_>) -> Result {
        let charge = MemoryCharge::of_task(task, self.bytes() as usize)?;
        *self.charge.get_mut() = Some(charge);
        self.task_address = task.address();
        self.is_kernel = task.is_kernel();
        self.is_softirqd = task.is_softirqd();
        self.start_boottime_ns = task.start_boottime_ns();
        // The ids are saved here, because the task may be exiting already. The probe of
        // `sched_process_exit`, which also saves the ids, may have run before the record was in the
        // index.
        self.save_ids_and_name(task);
        Ok(())
    }

    /// Removes from the record the charge for its memory, and returns the charge, which holds
    /// credentials. Called when the task exits. The record of an ended task may wait long for a
    /// reader, and must not keep the keyrings and the user namespace of the credentials, which
    /// count towards limits of the user.
    ///
    /// The caller drops the result with preemption on, because `users_lock`, which the drop takes,
    /// sleeps in a kernel with `PREEMPT_RT`.
    #[must_use]
    pub(crate) fn end_charge(&self) -> Option<MemoryCharge> {
        if !self.charge_ended.try_cmpxchg_release(0, 1) {
            return None;
        }
        // SAFETY: `charge_ended` changes from 0 to 1 only once, so no other call accesses `charge`.
        // The caller keeps the record from being freed.
        unsafe { (*self.charge.get()).take() }
    }

    /// Saves the ids and the name of the task, which are needed after the task has ended.
    pub(crate) fn save_ids_and_name(&self, task: TaskRef<'_>) {
        let who = task.ids(true);
        let name = task.name();
        let [ids, numbers, first, second] = &self.saved_ids_and_name;
        ids.store_relaxed(u64::from(who.uid) | u64::from(who.ppid) << 32);
        numbers.store_relaxed(u64::from(who.pid) | u64::from(who.tgid) << 32);
        for (word, half) in [first, second].into_iter().zip(name.chunks_exact(8)) {
            let half = half
                .first_chunk()
                .map_or(0, |half| u64::from_ne_bytes(*half));
            word.store_relaxed(half);
        }
    }

    /// Returns the saved user id of the task, in the initial user namespace.
    pub(crate) fn saved_uid(&self) -> u32 {
        self.saved_ids_and_name().0.uid
    }

    /// Returns the ids and the name that `save_ids_and_name` has saved.
    pub(super) fn saved_ids_and_name(&self) -> (TaskIds, [u8; 16]) {
        let [ids, numbers, first, second] = &self.saved_ids_and_name;
        let (ids, numbers) = (ids.load_relaxed(), numbers.load_relaxed());
        let mut name = [0; 16];
        for (to, word) in name.chunks_exact_mut(8).zip([first, second]) {
            to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        let who = TaskIds {
            uid: ids as u32,
            ppid: (ids >> 32) as u32,
            pid: numbers as u32,
            tgid: (numbers >> 32) as u32,
            reaped: 0,
        };
        (who, name)
    }
}

/// A record that was removed from the index.
///
/// # Invariants
///
/// No new search finds the record. Only the owner of the `RemovedRecord` may free the record, a
/// grace period after its removal.
pub(crate) struct RemovedRecord(NonNull<TaskRecord>);

impl RemovedRecord {
    /// Passes the ownership of the record to the caller.
    pub(crate) fn into_raw(self) -> NonNull<TaskRecord> {
        self.0
    }

    /// Returns the record.
    pub(crate) fn get(&self) -> &TaskRecord {
        // SAFETY: The record is not freed while `self` owns it, by the type's invariant.
        unsafe { self.0.as_ref() }
    }
}

/// The number of hash buckets of the index; a power of two.
const NR_BUCKETS: usize = 1 << 14;

/// The records of living tasks by task address. Unlike the id of a task, the address does not
/// change while the task lives. The index is searched without a lock and changed under
/// `index_lock`.
///
/// # Invariants
///
/// Each head and each `hash_next` of a record is 0 or the address of a record. A removed record is
/// freed after a grace period, and its `hash_next` remains valid until then. The index has
/// `NR_BUCKETS` heads.
pub(crate) struct TaskIndex(KVVec<Word>);

impl TaskIndex {
    /// Creates an empty index. Returns `ENOMEM` if memory is short. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // INVARIANT: The index has `NR_BUCKETS` heads, which are all 0.
        Ok(Self(words(NR_BUCKETS, GFP_KERNEL_ACCOUNT)?))
    }

    #[inline(always)]
    fn head(&self, address: usize) -> &Word {
        // Task structures are at least 64 bytes apart, so the low 6 bits of an address are dropped.
        // A multiplication spreads bits 6 to 37 of the address over the hash.
        let hash = ((address >> 6) as u32).wrapping_mul(0x9e37_79b9) >> (32 - NR_BUCKETS.ilog2());
        // SAFETY: The hash is below `NR_BUCKETS`, a power of two, and the index has `NR_BUCKETS`
        // heads by the type's invariant.
        unsafe { self.0.get_unchecked(hash as usize) }
    }

    /// Finds the record of a task. Preemption is off, or RCU is read-locked, while the result is
    /// used.
    #[inline(always)]
    pub(crate) fn get(&self, address: usize) -> Option<&TaskRecord> {
        // Acquire: pairs with the releases in `insert` and `replace`, so that the record is
        // complete.
        let mut at = self.head(address).load_acquire();
        loop {
            // SAFETY: `at` is 0 or the address of a record, by the type's invariant. A removed
            // record is not freed while the caller has preemption off or holds rcu_read_lock().
            let record = unsafe { (at as *const TaskRecord).as_ref()? };
            if record.task_address == address {
                return Some(record);
            }
            // Acquire: pairs with the releases in `insert`, `replace` and `unlink`.
            at = record.hash_next.load_acquire();
        }
    }

    /// Calls `change`, which changes the index, with `index_lock` held.
    fn with_index_lock<T>(change: impl FnOnce() -> T) -> T {
        // SAFETY: `index_lock` is released below. `index_lock` is a raw spinlock that turns
        // interrupts off, so that the scheduler's probes can take it.
        let flags = unsafe { helpers::ppa_index_lock() };
        let done = change();
        // SAFETY: `index_lock` was taken above, and taking it has returned these flags.
        unsafe { helpers::ppa_index_unlock(flags) };
        done
    }

    /// Inserts the record of a task. Returns `record` to the caller if the task has a record
    /// already.
    pub(crate) fn insert(&self, record: KBox<TaskRecord>) -> Option<KBox<TaskRecord>> {
        let head = self.head(record.task_address);
        Self::with_index_lock(|| {
            if self.get(record.task_address).is_some() {
                return Some(record);
            }
            record.hash_next.store_relaxed(head.load_relaxed());
            // Release: pairs with the acquire in `get`.
            head.store_release(KBox::into_raw(record) as u64);
            None
        })
    }

    /// Removes the record of a task from the index. The caller owns the removed record, but code
    /// that found it before the removal may still use it.
    pub(crate) fn take(&self, address: usize) -> Option<RemovedRecord> {
        Self::with_index_lock(|| Self::unlink(self.head(address), address))
    }

    /// Inserts `record`, and removes the record that its task had before. A concurrent search finds
    /// either the old or the new record.
    pub(crate) fn replace(&self, record: KBox<TaskRecord>) -> Option<RemovedRecord> {
        let address = record.task_address;
        let head = self.head(address);
        Self::with_index_lock(|| {
            record.hash_next.store_relaxed(head.load_relaxed());
            let record = KBox::into_raw(record);
            // Release: pairs with the acquire in `get`.
            head.store_release(record as u64);
            // SAFETY: The record was inserted above. `index_lock` is held, so that no other call
            // removes the record.
            Self::unlink(unsafe { &(*record).hash_next }, address)
        })
    }

    /// Removes the record of a task from the list that begins at `place`. `index_lock` is held.
    fn unlink(mut place: &Word, address: usize) -> Option<RemovedRecord> {
        loop {
            let at = place.load_relaxed();
            // SAFETY: `at` is 0 or the address of a record, by the type's invariant. `index_lock`
            // is held, so that no other call removes a record during the search.
            let record = unsafe { (at as *const TaskRecord).as_ref()? };
            if record.task_address == address {
                // Release: pairs with the acquire in `get`, so that the next record is complete.
                place.store_release(record.hash_next.load_relaxed());
                // INVARIANT: The record was unlinked under the lock, by this call only.
                return NonNull::new(at as *mut TaskRecord).map(RemovedRecord);
            }
            place = &record.hash_next;
        }
    }

    /// Returns the first record after position `place`, and the position of that record; `None`
    /// after the last record. The position of a record consists of its hash and its address, so a
    /// walk in the order of positions misses no record that stays in the index during the walk.
    /// Preemption is off, or RCU is read-locked, while the result is used.
    pub(crate) fn next_after(&self, place: u64) -> Option<(&TaskRecord, u64)> {
        let mut hash = place >> 48;
        while let Some(head) = self.0.get(hash as usize) {
            let mut first: Option<(&TaskRecord, u64)> = None;
            let mut at = head.load_acquire();
            // SAFETY: `at` is 0 or the address of a record, by the type's invariant. A removed
            // record is not freed while the caller has preemption off or holds rcu_read_lock().
            while let Some(record) = unsafe { (at as *const TaskRecord).as_ref() } {
                // The upper 16 bits are the same in all addresses of task structures.
                let own = hash << 48 | (record.task_address as u64 & (u64::MAX >> 16));
                if own > place && first.is_none_or(|(_, least)| own < least) {
                    first = Some((record, own));
                }
                // Acquire: pairs with the releases in `insert`, `replace` and `unlink`.
                at = record.hash_next.load_acquire();
            }
            if first.is_some() {
                return first;
            }
            hash = hash.wrapping_add(1);
        }
        None
    }
}

impl Drop for TaskIndex {
    fn drop(&mut self) {
        for head in &self.0 {
            let mut at = head.load_relaxed();
            while let Some(record) = NonNull::new(at as *mut TaskRecord) {
                // SAFETY: The pointer is from `into_raw` in `insert` or `replace`. The probes are
                // already detached, so no code searches the index.
                let record = unsafe { KBox::from_raw(record.as_ptr()) };
                at = record.hash_next.load_relaxed();
            }
        }
    }
}

/// Creates `nr` words with the value 0. Returns `ENOMEM` if memory is short. May sleep if the
/// allocation flags `flags` allow it.
fn words(nr: usize, flags: Flags) -> Result<KVVec<Word>> {
    let mut words = KVVec::with_capacity(nr, flags)?;
    for _ in 0..nr {
        words.push(Word::new(0), flags)?;
    }
    Ok(words)
}
