// SPDX-License-Identifier: GPL-2.0

//! Keyed counters: tables that map a key to an *entry*. The key identifies an *object*, such as a
//! device or a network interface; the entry holds the object's counter instances. Entries are found
//! in any context and created in process context.
//!
//! ```text
//!   probe (any context)                     worker (process context)
//!     find(key) -> entry: count               create(key): perf_add() its instances
//!     none: request(key), count as missed     publish the entry
//! ```
//!
//! Events of an object without an entry are not lost silently: the provider counts them as missed.
//! If an object's entry cannot be allocated, a later event of the object requests the entry again.
//!
//! The size of a table is fixed, so that creating devices cannot exhaust memory. If a table has no
//! free bucket for an object, the object gets no instances, all events of the object are counted as
//! missed, and one line is logged for the table. After an entry was removed, another object without
//! an entry may get one.

#![expect(unsafe_code, reason = "entries that probes read without a lock")]

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::{null_mut, NonNull};

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVVec};
use kernel::bindings;
use kernel::error::code::{ENOMEM, ENOSPC};
use kernel::error::Result;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::types::Opaque;

use base::helpers;
use base::key::Key;
use base::net::RtnlLock;

/// The maximum number of entries in a table.
const MAX_ENTRIES: usize = 1024;
/// Number of buckets in a table. At most one bucket in four holds an entry, so that a free bucket
/// is usually within [`MAX_PROBES`].
const NR_BUCKETS: usize = 4 * MAX_ENTRIES;
/// Maximum number of buckets that are searched for one key.
const MAX_PROBES: usize = 64;
/// Maximum number of requests for entries that wait for the worker at the same time.
const MAX_PENDING_REQUESTS: usize = 32;
/// Length of the pause, in nanoseconds, in which no entry is requested after an allocation of an
/// entry has failed.
const ALLOCATION_RETRY_PAUSE_NS: u64 = 1_000_000_000;
/// State of a bucket whose entry was dropped. A search does not end at a bucket in state
/// `BUCKET_TOMBSTONE`, but goes on to the next bucket.
const BUCKET_TOMBSTONE: u64 = 1;
/// States of a bucket whose entry was removed but not dropped yet. A search does not find a removed
/// entry, but a tracepoint probe that found the entry before its removal may still use it. `remove`
/// sets `BUCKET_REMOVING`; the worker sets `BUCKET_DRAINING` before it waits until the running
/// probes have returned.
const BUCKET_REMOVING: u64 = 2;
const BUCKET_DRAINING: u64 = 3;
/// A value of [`KeyedCounters::full_log_state`]: a line has to be written to the kernel log.
const LOG_LINE_DUE: u32 = 1;
/// A value of [`KeyedCounters::full_log_state`] and [`KeyedCounters::refused_log_state`]: the line
/// was written to the kernel log.
const LOG_LINE_WRITTEN: u32 = 2;

/// Returns CLOCK_MONOTONIC in nanoseconds. May be called in any context except an NMI.
#[inline]
fn monotonic_ns() -> u64 {
    // SAFETY: The caller is not in an NMI, where ktime_get() could wait forever for the clock's
    // seqlock.
    (unsafe { bindings::ktime_get() }) as u64
}

/// A bucket of the table. `hash_or_state` is 0 (free), `BUCKET_TOMBSTONE`, `BUCKET_REMOVING`,
/// `BUCKET_DRAINING`, or the hash of the entry's key.
struct Bucket<R> {
    hash_or_state: Atomic<u64>,
    entry: UnsafeCell<*mut Entry<R>>,
}

struct Entry<R> {
    key: Key,
    value: R,
}

/// A slot for a request to the worker to create an entry.
struct EntryRequest {
    /// 0 if the slot is free, 1 while `key` is being written, otherwise the hash of the complete
    /// `key`.
    hash_or_state: Atomic<u64>,
    key: UnsafeCell<Key>,
}

/// An object that gets its entry later: the worker creates the entry after it has dropped the
/// removed entries of the table.
struct DeferredObject {
    key: Key,
    /// The part of the instances' names that identifies the object.
    name: Key,
}

/// A table of entries whose values are of type `R`.
///
/// # Invariants
///
/// - A bucket's `entry` is written before the bucket's `hash_or_state` is published. After
///   `hash_or_state` was replaced, one grace period passes before the entry is freed.
/// - Only one thread at a time inserts and removes entries: the holder of the RTNL mutex in a table
///   whose entries are added by [`add_or_defer`](Self::add_or_defer), or the worker in a table
///   whose entries are requested by [`request`](Self::request).
/// - Only the worker frees entries: the worker collects all buckets in state [`BUCKET_REMOVING`],
///   waits for one grace period, and frees the entries of these buckets.
/// - `deferred_objects` is accessed by the holder of the RTNL mutex only.
#[repr(C)]
pub struct KeyedCounters<R> {
    // `work` is the first field, because the worker gets the address of `work` and casts it to the
    // table.
    work: Opaque<bindings::work_struct>,
    create: fn(&Key) -> Result<R>,
    /// Calls [`add_or_defer`](Self::add_or_defer) for each object that exists. `None` in a table
    /// whose entries are requested by [`request`](Self::request).
    add_existing_objects: Option<fn(&Self, &RtnlLock)>,
    /// The plural noun for the objects of the table in log lines.
    plural_noun: &'static str,
    buckets: KVVec<Bucket<R>>,
    pending: [EntryRequest; MAX_PENDING_REQUESTS],
    /// The number of buckets that have a key, including those whose entry is being removed.
    nr_occupied_buckets: Atomic<usize>,
    /// The number of buckets that are in state [`BUCKET_REMOVING`] or [`BUCKET_DRAINING`].
    nr_removing: Atomic<usize>,
    /// The objects whose entries the worker creates after it has dropped the removed entries,
    /// oldest object first. `nr_deferred` is the length of `deferred_objects`.
    deferred_objects: UnsafeCell<KVVec<DeferredObject>>,
    nr_deferred: Atomic<usize>,
    /// The number of existing objects that were passed to [`add_or_defer`](Self::add_or_defer) and
    /// have no entry, because the table was full or memory was short. Changed with the RTNL mutex
    /// held.
    nr_objects_without_entry: Atomic<usize>,
    /// State of the log line about an object for which the table had no room: 0, [`LOG_LINE_DUE`]
    /// or [`LOG_LINE_WRITTEN`].
    full_log_state: Atomic<u32>,
    /// State of the log line about an entry that could not be created: 0 or [`LOG_LINE_WRITTEN`].
    refused_log_state: Atomic<u32>,
    /// A time in nanoseconds of CLOCK_MONOTONIC, before which no entry is requested. Set when an
    /// entry could not be allocated.
    no_requests_before_ns: Atomic<u64>,
    _values: PhantomData<R>,
}

// SAFETY: Entries are shared as `&R` and dropped by the worker. All changes of a table's fields
// follow the rules in the type's invariants.
unsafe impl<R: Send + Sync> Send for KeyedCounters<R> {}
// SAFETY: All changes of a table's fields follow the rules in the type's invariants, and entries
// are shared as `&R`.
unsafe impl<R: Send + Sync> Sync for KeyedCounters<R> {}

impl<R: Send + Sync> KeyedCounters<R> {
    /// Creates an empty table. `plural_noun` is the noun for the table's objects in log lines, such
    /// as "disks". `create` is called to add the instances of a new entry. `add_existing_objects`
    /// is needed if entries are added by [`add_or_defer`](Self::add_or_defer): it calls
    /// `add_or_defer` for each object that exists. If the table was full or memory was short, the
    /// worker calls `add_existing_objects` later, with the RTNL mutex held. Called in process
    /// context.
    #[inline]
    pub fn new(
        plural_noun: &'static str,
        create: fn(&Key) -> Result<R>,
        add_existing_objects: Option<fn(&Self, &RtnlLock)>,
    ) -> Result<Pin<KBox<Self>>> {
        let mut buckets = KVVec::with_capacity(NR_BUCKETS, GFP_KERNEL)?;
        for _ in 0..NR_BUCKETS {
            let bucket = Bucket {
                hash_or_state: Atomic::new(0),
                entry: UnsafeCell::new(null_mut()),
            };
            buckets.push(bucket, GFP_KERNEL)?;
        }
        // The memory for the table is allocated before the table is built. With `KBox::new`, a
        // failed allocation would drop the table, and this drop would use the uninitialised `work`.
        let memory = KBox::new_uninit(GFP_KERNEL)?;
        let this = KBox::into_pin(KBox::write(
            memory,
            Self {
                work: Opaque::uninit(),
                create,
                add_existing_objects,
                plural_noun,
                buckets,
                pending: [const {
                    EntryRequest {
                        hash_or_state: Atomic::new(0),
                        key: UnsafeCell::new(Key::NONE),
                    }
                }; MAX_PENDING_REQUESTS],
                nr_occupied_buckets: Atomic::new(0),
                nr_removing: Atomic::new(0),
                deferred_objects: UnsafeCell::new(KVVec::new()),
                nr_deferred: Atomic::new(0),
                nr_objects_without_entry: Atomic::new(0),
                full_log_state: Atomic::new(0),
                refused_log_state: Atomic::new(0),
                no_requests_before_ns: Atomic::new(0),
                _values: PhantomData,
            },
        ));
        // SAFETY: The table is pinned, and `work` is the table's first field. Drop cancels the
        // work.
        unsafe { helpers::pfc_work_init(this.work.get(), Some(Self::run)) };
        Ok(this)
    }

    /// Returns the value of a key's entry. Called in a tracepoint probe, which may run in any
    /// context. The probe may use the value until the probe returns, because an entry is dropped
    /// only after all probes that may have found the entry have returned.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<&R> {
        self.find_key(key).ok().flatten().map(|entry| &entry.value)
    }

    /// Returns the entry of a key. Returns `Err` if the key is not in the table, and `Ok(None)` if
    /// the key is in the table but its entry could not be created.
    #[inline]
    fn find_key(&self, key: &Key) -> Result<Option<&Entry<R>>, ()> {
        for bucket in self.probe_sequence(key) {
            // Pairs with the release in `insert`: a search that sees the hash of an entry sees the
            // complete entry.
            let hash = bucket.hash_or_state.load(Acquire);
            if hash == 0 {
                break;
            }
            if hash == key.hash {
                // SAFETY: By the type's invariants the entry was written before the hash was
                // published, and is not freed while this probe runs.
                match unsafe { bucket.entry.get().read().as_ref() } {
                    None => return Ok(None),
                    Some(entry) if entry.key == *key => return Ok(Some(entry)),
                    Some(_) => {}
                }
            }
        }
        Err(())
    }

    #[inline]
    fn probe_sequence(&self, key: &Key) -> impl Iterator<Item = &Bucket<R>> {
        let start = (key.hash >> 20) as usize;
        (0..MAX_PROBES).filter_map(move |i| self.buckets.get(start.wrapping_add(i) % NR_BUCKETS))
    }

    /// Returns whether the table has a free bucket for an entry of this key. Callable in any
    /// context.
    #[inline]
    fn has_room(&self, key: &Key) -> bool {
        self.nr_occupied_buckets.load(Relaxed) < MAX_ENTRIES
            && self
                .probe_sequence(key)
                .any(|bucket| bucket.hash_or_state.load(Relaxed) <= BUCKET_TOMBSTONE)
    }

    /// Asks the worker to log that the table had no free bucket for an object. May be called in any
    /// context except an NMI, but not under a run-queue lock.
    #[cold]
    fn request_table_full_log(&self) {
        let state = &self.full_log_state;
        if state.load(Relaxed) == 0 && state.cmpxchg(0, LOG_LINE_DUE, Relaxed).is_ok() {
            // SAFETY: `new` has initialised the work.
            unsafe { helpers::pfc_work_queue(self.work.get()) };
        }
    }

    /// Requests that the worker creates an entry for `key`. May be called in any context except an
    /// NMI, but not under a run-queue lock.
    #[inline]
    pub fn request(&self, key: &Key) {
        if self.find_key(key).is_ok() || monotonic_ns() < self.no_requests_before_ns.load(Relaxed) {
            return;
        }
        // Without a free bucket the worker could not insert the entry, so the entry is not
        // requested.
        if !self.has_room(key) {
            return self.request_table_full_log();
        }
        for pending in &self.pending {
            // Pairs with the release in `run`: if the slot is free, the worker has already read the
            // slot's last key.
            match pending.hash_or_state.load(Acquire) {
                hash if hash == key.hash => return,
                // `Full` ordering: pairs with the cmpxchg of concurrent calls of `request`. Only
                // the call whose cmpxchg succeeds takes this slot of `pending`.
                0 if pending.hash_or_state.cmpxchg(0, 1, Full).is_ok() => {
                    // SAFETY: While `hash_or_state` is 1, only the caller that has set it accesses
                    // `key`.
                    unsafe { pending.key.get().write(*key) };
                    // Pairs with the worker's acquire in `run`: the worker reads the complete key.
                    pending.hash_or_state.store(key.hash, Release);
                    // SAFETY: `new` has initialised the work.
                    unsafe { helpers::pfc_work_queue(self.work.get()) };
                    return;
                }
                _ => {}
            }
        }
    }

    /// Creates and publishes the entry of the object `key`, if the object has no entry and the
    /// table has a free bucket. The names of the entry's instances contain `name`. If no entry can
    /// be created, the reason is logged once for the table. If the table is full or memory is
    /// short, the worker tries again after an entry was removed.
    ///
    /// Context: process context. The caller holds the RTNL mutex, which serialises callers.
    ///
    /// If removed entries are not dropped yet, the worker creates the new entry after it has
    /// dropped them, because the instances of a removed entry may have the same names.
    /// `add_or_defer` must not wait for the worker: during the wait, every other change of network
    /// interfaces would wait for the RTNL mutex. The worker's wait can be long: if a SCHED_FIFO
    /// thread has preempted a probe, the worker waits until that probe has run again and returned.
    #[inline]
    pub fn add_or_defer(&self, key: &Key, name: &Key) {
        if self.find_key(key).is_ok() {
            return;
        }
        let added = if self.nr_removing.load(Relaxed) == 0 && self.nr_deferred.load(Relaxed) == 0 {
            self.try_insert(key, name)
        } else {
            self.defer_entry_creation(key, name)
        };
        if added.is_err() {
            self.nr_objects_without_entry.add(1, Relaxed);
        }
    }

    /// Lets the worker create the entry of an object after it has dropped the removed entries.
    /// Called with the RTNL mutex held.
    fn defer_entry_creation(&self, key: &Key, name: &Key) -> Result {
        // SAFETY: The caller holds the RTNL mutex, and by the type's invariant only the holder of
        // the mutex accesses `deferred_objects`.
        let deferred = unsafe { &mut *self.deferred_objects.get() };
        if deferred.len() >= MAX_ENTRIES {
            self.request_table_full_log();
            return Err(ENOSPC);
        }
        let (key, name) = (*key, *name);
        deferred.push(DeferredObject { key, name }, GFP_KERNEL)?;
        self.nr_deferred.store(deferred.len(), Relaxed);
        // Queue the work again: the run that `remove` has queued may have found `deferred_objects`
        // empty before this object was added. A run that has found `deferred_objects` empty creates
        // no entry.
        // SAFETY: `new` has initialised the work.
        unsafe { helpers::pfc_work_queue(self.work.get()) };
        Ok(())
    }

    /// Returns whether some objects have no entry and the table has room for at least one of them.
    fn has_room_for_missing(&self) -> bool {
        self.nr_objects_without_entry.load(Relaxed) != 0
            && self.nr_occupied_buckets.load(Relaxed) < MAX_ENTRIES
    }

    /// Creates the entries of the objects in `deferred_objects`, and then, if the table has room,
    /// of other objects that have no entry. If removed entries still wait to be dropped, leaves
    /// `deferred_objects` unchanged for the worker's next run. Called by the worker.
    fn create_missing_entries(&self) {
        // `add_or_defer` raises `nr_deferred` before it queues the work, so that the next run of
        // the worker sees the new value. Only the worker drops entries, so only this run or a later
        // run of the worker can make room for an object without an entry.
        if self.nr_deferred.load(Relaxed) == 0 && !self.has_room_for_missing() {
            return;
        }
        let rtnl = RtnlLock::lock();
        if self.nr_removing.load(Relaxed) != 0 {
            return;
        }
        // SAFETY: The RTNL mutex is held, and by the type's invariant only the holder of the mutex
        // accesses `deferred_objects`.
        let deferred = unsafe { &mut *self.deferred_objects.get() };
        for DeferredObject { key, name } in deferred.drain_all() {
            if self.try_insert(&key, &name).is_err() {
                self.nr_objects_without_entry.add(1, Relaxed);
            }
        }
        self.nr_deferred.store(0, Relaxed);
        if !self.has_room_for_missing() {
            return;
        }
        if let Some(add_existing_objects) = self.add_existing_objects {
            // `add_existing_objects` counts again all objects that remain without an entry.
            self.nr_objects_without_entry.store(0, Relaxed);
            add_existing_objects(self, &rtnl);
        }
    }

    /// Creates and publishes an entry with instances whose names contain `name`. The caller has
    /// checked that no entry is being removed.
    ///
    /// # Errors
    ///
    /// Returns `ENOSPC` if the table has no free bucket for the key, and `ENOMEM` if memory is
    /// short. A later call for the same object may succeed.
    #[inline]
    fn try_insert(&self, key: &Key, name: &Key) -> Result {
        if !self.has_room(key) {
            self.request_table_full_log();
            return Err(ENOSPC);
        }
        match (self.create)(name) {
            Ok(value) => self.insert(key, Some(value)),
            Err(error) => {
                if self
                    .refused_log_state
                    .cmpxchg(0, LOG_LINE_WRITTEN, Relaxed)
                    .is_ok()
                {
                    kernel::pr_notice!(
                        "cannot add counters for {}, first for {} {} (error {}); those without are counted together\n",
                        self.plural_noun,
                        name.text(),
                        key.number(),
                        error.to_errno()
                    );
                }
                // ENOMEM may be temporary. An error other than ENOMEM is permanent: the key is
                // inserted without an entry.
                match error {
                    ENOMEM => Err(ENOMEM),
                    _ => self.insert(key, None),
                }
            }
        }
    }

    /// Inserts `key` into the table, with an entry that has `value`, or without an entry if `value`
    /// is `None`. Returns `ENOMEM` if memory is short. Returns `ENOSPC` if the table has no free
    /// bucket for the key; callers check for a free bucket first.
    #[inline]
    fn insert(&self, key: &Key, value: Option<R>) -> Result {
        let entry = match value {
            Some(value) => KBox::into_raw(KBox::new(Entry { key: *key, value }, GFP_KERNEL)?),
            None => null_mut(),
        };
        for bucket in self.probe_sequence(key) {
            // Pairs with the worker's release in `drop_removed`: the worker has already read the
            // bucket's previous entry.
            let hash = bucket.hash_or_state.load(Acquire);
            if hash <= BUCKET_TOMBSTONE {
                // SAFETY: No search reads the `entry` of a bucket without a published hash, and the
                // worker has waited for earlier readers of `entry`.
                unsafe { bucket.entry.get().write(entry) };
                // Pairs with the acquire in `find_key`: a search that sees the hash sees the
                // complete entry.
                bucket.hash_or_state.store(key.hash, Release);
                self.nr_occupied_buckets.add(1, Relaxed);
                return Ok(());
            }
        }
        if let Some(entry) = NonNull::new(entry) {
            // SAFETY: The pointer is from `into_raw` above, and was never published.
            drop(unsafe { KBox::from_raw(entry.as_ptr()) });
        }
        Err(ENOSPC)
    }

    /// Removes the entry of an object for which [`add_or_defer`](Self::add_or_defer) was called.
    /// The worker drops the entry after all probes that may have found it have returned. Called in
    /// process context, with the RTNL mutex held.
    #[inline]
    pub fn remove(&self, key: &Key) {
        if self.nr_deferred.load(Relaxed) != 0 {
            // SAFETY: The caller holds the RTNL mutex, and by the type's invariant only the holder
            // of the mutex accesses `deferred_objects`.
            let deferred = unsafe { &mut *self.deferred_objects.get() };
            if let Some(at) = deferred.iter().position(|deferred| deferred.key == *key) {
                let _ = deferred.remove(at);
                self.nr_deferred.store(deferred.len(), Relaxed);
                return;
            }
        }
        for bucket in self.probe_sequence(key) {
            if bucket.hash_or_state.load(Relaxed) != key.hash {
                continue;
            }
            // SAFETY: Only the holder of the RTNL mutex writes entries of this table, by the type's
            // invariant.
            let entry = unsafe { bucket.entry.get().read() };
            // SAFETY: The pointer is null or points to an entry that is not dropped: the worker
            // drops only the entries of buckets in state `BUCKET_DRAINING`.
            if unsafe { entry.as_ref() }.is_some_and(|entry| entry.key != *key) {
                continue;
            }
            self.nr_removing.add(1, Relaxed);
            bucket.hash_or_state.store(BUCKET_REMOVING, Relaxed);
            // SAFETY: `new` has initialised the work.
            unsafe { helpers::pfc_work_queue(self.work.get()) };
            return;
        }
        // The object has no entry.
        let nr = self.nr_objects_without_entry.load(Relaxed);
        self.nr_objects_without_entry
            .store(nr.saturating_sub(1), Relaxed);
    }

    /// Waits once until all running tracepoint probes have returned, and then drops the removed
    /// entries. Called by the worker.
    fn drop_removed(&self) {
        // `remove` increments `nr_removing` before it queues the work, so that the next run of the
        // worker sees the new value.
        if self.nr_removing.load(Relaxed) == 0 {
            return;
        }
        for bucket in &self.buckets {
            let _ = bucket
                .hash_or_state
                .cmpxchg(BUCKET_REMOVING, BUCKET_DRAINING, Relaxed);
        }
        // SAFETY: The worker is in process context, and holds no lock for which a probe could wait.
        unsafe { helpers::pfc_tracepoint_sync() };
        let is_removed = |b: &&Bucket<R>| b.hash_or_state.load(Relaxed) == BUCKET_DRAINING;
        for bucket in self.buckets.iter().filter(is_removed) {
            // SAFETY: In state `BUCKET_DRAINING` only the worker accesses the entry.
            let entry = unsafe { bucket.entry.get().read() };
            if let Some(entry) = NonNull::new(entry) {
                // SAFETY: The pointer is from `into_raw` in `insert`. No search finds a removed
                // entry, and the probes that had found this entry have returned.
                drop(unsafe { KBox::from_raw(entry.as_ptr()) });
            }
            // Pairs with the acquire in `insert`: the worker has read the bucket's `entry` before
            // `insert` writes a new one.
            bucket.hash_or_state.store(BUCKET_TOMBSTONE, Release);
            self.nr_occupied_buckets.add(usize::MAX, Relaxed);
            self.nr_removing.add(usize::MAX, Relaxed);
        }
    }

    /// Runs the worker of a table: drops removed entries, and creates deferred and requested
    /// entries.
    ///
    /// # Safety
    ///
    /// Called only by the kernel, with the work that `new` has initialised.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work is the first field of a pinned table, which lives until drop has
        // cancelled the work.
        let this = unsafe { &*work.cast::<Self>() };
        this.drop_removed();
        this.create_missing_entries();
        for pending in &this.pending {
            // Pairs with the release in `request`: the worker reads the complete key.
            if pending.hash_or_state.load(Acquire) <= 1 {
                continue;
            }
            // SAFETY: The slot holds a complete key, which is not written again until
            // `hash_or_state` is 0.
            let key = unsafe { pending.key.get().read() };
            if this.find_key(&key).is_err() {
                if this.try_insert(&key, &key) == Err(ENOMEM) {
                    let end_ns = monotonic_ns().saturating_add(ALLOCATION_RETRY_PAUSE_NS);
                    this.no_requests_before_ns.store(end_ns, Relaxed);
                }
            }
            // Pairs with the acquire in `request`: the worker has read the key before `request`
            // writes a new one.
            pending.hash_or_state.store(0, Release);
        }
        if this
            .full_log_state
            .cmpxchg(LOG_LINE_DUE, LOG_LINE_WRITTEN, Relaxed)
            .is_ok()
        {
            kernel::pr_notice!(
                "limit of {} {} reached; all others are counted together\n",
                MAX_ENTRIES,
                this.plural_noun
            );
        }
    }
}

impl<R> Drop for KeyedCounters<R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has initialised the work. No probe queues the work again, as a provider's
        // probes are detached before its state is dropped.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
        for bucket in &self.buckets {
            // SAFETY: `&mut self` and the cancelled work exclude all other accesses.
            let entry = unsafe { bucket.entry.get().read() };
            if bucket.hash_or_state.load(Relaxed) > BUCKET_TOMBSTONE && !entry.is_null() {
                // SAFETY: The pointer is from `into_raw` in `insert`, and is dropped once.
                drop(unsafe { KBox::from_raw(entry) });
            }
        }
    }
}
