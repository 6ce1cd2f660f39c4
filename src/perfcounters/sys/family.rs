// SPDX-License-Identifier: GPL-2.0

//! Families: tables that give each device or interface its instances (a *row*). A row is found by
//! key in any context, and created in process context.
//!
//! ```text
//!   probe (any context)                     worker (process context)
//!     find(key) -> row: count               make(key): perf_add() its instances
//!     none: want(key), count as missed      publish the row
//! ```
//!
//! The provider counts the events of a thing that has no row yet as missed: no event is lost
//! silently. If there is no memory for a row, a later event requests it again.
//!
//! The size of the table is fixed, so that creating devices cannot exhaust memory. A thing that
//! finds no bucket in the table gets no instances: its events remain missed, and the log says so
//! once.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::{null_mut, NonNull};

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::code::{ENOMEM, ENOSPC};
use kernel::error::Result;
use kernel::fmt;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::types::Opaque;

use super::shim;

/// The maximum number of rows.
const ROWS: usize = 1024;
/// Places in the table. At most one in four holds a row, so that a free bucket is usually within
/// [`REACH`].
const PLACES: usize = 4 * ROWS;
/// Places that are searched for one key.
const REACH: usize = 64;
/// Requests for rows that may wait for the worker at the same time.
const WAITING: usize = 32;
/// The time for which no row is requested after a failed allocation, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000_000;
/// State of a bucket whose row was dropped; searches continue past it.
const GONE: u64 = 1;
/// States of a bucket whose row was removed but not dropped. No search finds it any more, but a
/// probe that found it before may still use it. `remove` sets the first state, the worker the
/// second before it waits for the probes.
const LEAVES: u64 = 2;
const LEFT: u64 = 3;
/// States of [`Family::full`] and [`Family::refused`]: a log line is due, or was written.
const TO_SAY: u32 = 1;
const SAID: u32 = 2;

/// Returns the monotonic time in nanoseconds. Any context but NMI.
#[inline]
fn now_ns() -> u64 {
    // SAFETY: Not called in an NMI, in which the seqlock of the clock could not be read.
    (unsafe { bindings::ktime_get() }) as u64
}

/// Identifies a thing: a short text and a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    hash: u64,
    text: [u8; 32],
    number: u32,
}

impl Key {
    const NONE: Self = Self {
        hash: 0,
        text: [0; 32],
        number: 0,
    };

    /// Creates a key. The text ends at its first NUL.
    #[inline]
    pub fn new(text: &[u8; 32], number: u32) -> Self {
        let mut key = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            text: [0; 32],
            number,
        };
        for (to, from) in key.text.iter_mut().zip(text) {
            if *from == 0 {
                break;
            }
            *to = *from;
            key.hash = (key.hash ^ u64::from(*from)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        key.hash = (key.hash ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key.hash ^= key.hash >> 29;
        // The values 0 to 3 are states of a bucket and of a wish, and no hashes.
        key.hash |= 4;
        key
    }

    /// Creates a key that has a number only.
    #[inline]
    pub fn number_only(number: u32) -> Self {
        Self::new(&[0; 32], number)
    }

    /// Returns the text, in a form that is valid in an instance's name.
    #[inline]
    pub fn text(&self) -> Text<'_> {
        Text(self.text.split(|b| *b == 0).next().unwrap_or(&[]))
    }

    /// Returns the number.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Formats bytes from the kernel as UTF-8 without control characters. Invalid bytes, control
/// characters and backslashes are written as `\xNN`, so that different texts stay different.
#[derive(Clone, Copy)]
pub struct Text<'a>(pub(super) &'a [u8]);

impl fmt::Display for Text<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;

        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        f.write_fmt(kernel::prelude::fmt!("\\x{byte:02x}"))?;
                    }
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                f.write_fmt(kernel::prelude::fmt!("\\x{byte:02x}"))?;
            }
        }
        Ok(())
    }
}

/// One bucket of the table. `hash` is 0 (free), one of the states above, or the hash of the row's
/// key.
struct Bucket<R> {
    hash: Atomic<u64>,
    row: UnsafeCell<*mut Row<R>>,
}

struct Row<R> {
    key: Key,
    value: R,
}

/// One request for a row, on its way to the worker.
struct Wish {
    /// 0: free. 1: being written. Otherwise the hash of the key, which is complete.
    state: Atomic<u64>,
    key: UnsafeCell<Key>,
}

/// A thing that was announced while rows of others were being removed. Its row is created later.
struct Late {
    key: Key,
    /// The text that is used in the names of its instances.
    name: Key,
}

/// Guard of the lock under which network interfaces are announced and removed (the RTNL mutex).
struct Notices(());

impl Notices {
    /// Takes the lock. Process context; the caller does not hold it.
    #[inline]
    fn lock() -> Self {
        // SAFETY: Process context, and the caller does not hold the lock. Drop releases it.
        unsafe { shim::pfc_notices_lock() };
        Self(())
    }
}

impl Drop for Notices {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `lock` has taken the lock, and it is released once.
        unsafe { shim::pfc_notices_unlock() };
    }
}

/// A table of rows of type `R`.
///
/// # Invariants
///
/// - A bucket's `row` is written before its `hash` is published, and is freed a grace period after
///   the hash was replaced.
/// - Only one thread at a time inserts and removes. In a family whose things are announced
///   ([`add`](Self::add)) it is the holder of the RTNL mutex; in another family
///   ([`want`](Self::want)) it is the worker.
/// - Only the worker frees rows: those of buckets that it has found in state [`LEAVES`], after one
///   grace period for all of them.
/// - `late` is accessed by the holder of the RTNL mutex only.
#[repr(C)]
pub struct Family<R> {
    // The first field: the worker gets its address, and casts it to the family.
    work: Opaque<bindings::work_struct>,
    make: fn(&Key) -> Result<R>,
    /// The plural noun for the things, for log lines.
    what: &'static str,
    buckets: KVec<Bucket<R>>,
    wishes: [Wish; WAITING],
    /// The number of buckets that hold a key.
    rows: Atomic<usize>,
    /// The number of these buckets that are in state [`LEAVES`] or [`LEFT`].
    leaves: Atomic<usize>,
    /// Things whose rows are created after the removed rows are dropped, in the order of their
    /// announcements; and their number.
    late: UnsafeCell<KVec<Late>>,
    nr_late: Atomic<usize>,
    /// Log lines: whether a thing found no bucket, and whether a row could not be created.
    full: Atomic<u32>,
    refused: Atomic<u32>,
    /// The time before which no row is requested, because there was no memory for the last one.
    resume: Atomic<u64>,
    _rows: PhantomData<R>,
}

// SAFETY: Rows are shared as `&R`, and dropped by the worker; the other fields change by the
// protocol of the type's invariants.
unsafe impl<R: Send + Sync> Send for Family<R> {}
// SAFETY: Fields are changed by the protocol of the type's invariants only, and rows are shared as
// `&R`.
unsafe impl<R: Send + Sync> Sync for Family<R> {}

impl<R: Send + Sync> Family<R> {
    /// Creates an empty family. `what` names its things in the plural, and `make` adds the
    /// instances of a new row. Process context.
    #[inline]
    pub fn new(what: &'static str, make: fn(&Key) -> Result<R>) -> Result<Pin<KBox<Self>>> {
        let mut buckets = KVec::with_capacity(PLACES, GFP_KERNEL)?;
        for _ in 0..PLACES {
            let bucket = Bucket {
                hash: Atomic::new(0),
                row: UnsafeCell::new(null_mut()),
            };
            buckets.push(bucket, GFP_KERNEL)?;
        }
        // The memory is allocated first. If that failed with the family already built, it would be
        // dropped, and drop uses the work, which is initialised later.
        let memory = KBox::new_uninit(GFP_KERNEL)?;
        let this = KBox::into_pin(KBox::write(
            memory,
            Self {
                work: Opaque::uninit(),
                make,
                what,
                buckets,
                wishes: [const {
                    Wish {
                        state: Atomic::new(0),
                        key: UnsafeCell::new(Key::NONE),
                    }
                }; WAITING],
                rows: Atomic::new(0),
                leaves: Atomic::new(0),
                late: UnsafeCell::new(KVec::new()),
                nr_late: Atomic::new(0),
                full: Atomic::new(0),
                refused: Atomic::new(0),
                resume: Atomic::new(0),
                _rows: PhantomData,
            },
        ));
        // SAFETY: The family is pinned and `work` is its first field; drop cancels the work.
        unsafe { shim::pfc_work_init(this.work.get(), Self::run) };
        Ok(this)
    }

    /// Returns the row of a key. Any context. Call it in a tracepoint probe: a removed row is
    /// dropped after all probes that may use it have returned.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<&R> {
        self.find_place(key).ok().flatten().map(|row| &row.value)
    }

    /// Returns `Err` if the key is not in the table, and `Ok(None)` if it is, but its row could not
    /// be created.
    #[inline]
    fn find_place(&self, key: &Key) -> Result<Option<&Row<R>>, ()> {
        for bucket in self.around(key) {
            // Pairs with the release in `insert`: the row is complete.
            let hash = bucket.hash.load(Acquire);
            if hash == 0 {
                break;
            }
            if hash == key.hash {
                // SAFETY: By the type's invariants the row was written before the hash was
                // published, and is not freed while this probe runs.
                match unsafe { bucket.row.get().read().as_ref() } {
                    None => return Ok(None),
                    Some(row) if row.key == *key => return Ok(Some(row)),
                    Some(_) => {}
                }
            }
        }
        Err(())
    }

    #[inline]
    fn around(&self, key: &Key) -> impl Iterator<Item = &Bucket<R>> {
        let start = (key.hash >> 20) as usize;
        (0..REACH).filter_map(move |i| self.buckets.get(start.wrapping_add(i) % PLACES))
    }

    /// Returns whether a row of this key would find a bucket. Any context.
    #[inline]
    fn has_room(&self, key: &Key) -> bool {
        self.rows.load(Relaxed) < ROWS
            && self
                .around(key)
                .any(|bucket| bucket.hash.load(Relaxed) <= GONE)
    }

    /// Records that a thing found no bucket, for a log line. Any context but NMI, and without a
    /// run-queue lock.
    #[cold]
    fn is_full(&self) {
        if self.full.load(Relaxed) == 0 && self.full.cmpxchg(0, TO_SAY, Relaxed).is_ok() {
            // SAFETY: `new` has initialised the work.
            unsafe { shim::pfc_work_queue(self.work.get()) };
        }
    }

    /// Requests a row. Any context but NMI, and without a run-queue lock.
    #[inline]
    pub fn want(&self, key: &Key) {
        if self.find_place(key).is_ok() || now_ns() < self.resume.load(Relaxed) {
            return;
        }
        // Without a bucket, instances would be added only to be removed again.
        if !self.has_room(key) {
            return self.is_full();
        }
        for wish in &self.wishes {
            // Pairs with the release in `run`: the wish is free, and its key was read.
            match wish.state.load(Acquire) {
                hash if hash == key.hash => return,
                // Full: pairs with itself in another call: only one of them takes the wish.
                0 if wish.state.cmpxchg(0, 1, Full).is_ok() => {
                    // SAFETY: In state 1 only the caller that has set it accesses the key.
                    unsafe { wish.key.get().write(*key) };
                    // Pairs with the worker's acquire in `run`.
                    wish.state.store(key.hash, Release);
                    // SAFETY: `new` has initialised the work.
                    unsafe { shim::pfc_work_queue(self.work.get()) };
                    return;
                }
                _ => {}
            }
        }
    }

    /// Creates and publishes the row of a thing that was announced, if there is room for it. Its
    /// instances are named after `name`. The log says once that a thing has no row, and why.
    /// `ENOMEM`: there may be memory later.
    ///
    /// Context: process context. The caller holds the RTNL mutex, by which callers exclude each
    /// other.
    ///
    /// While a row is being removed, the worker creates the new one later, as the old one may have
    /// the same names. This function must not wait for the worker. The worker waits for probes, and
    /// a SCHED_FIFO thread that has preempted a probe prolongs that for as long as it runs. All
    /// changes of interfaces on the machine would wait for the RTNL mutex meanwhile.
    #[inline]
    pub fn add(&self, key: &Key, name: &Key) -> Result {
        if self.leaves.load(Relaxed) == 0 && self.nr_late.load(Relaxed) == 0 {
            return self.try_insert(key, || (self.make)(name));
        }
        // SAFETY: The caller holds the RTNL mutex, under which alone `late` is accessed, by the
        // type's invariant.
        let late = unsafe { &mut *self.late.get() };
        if late.len() >= ROWS {
            self.is_full();
            return Ok(());
        }
        let (key, name) = (*key, *name);
        late.push(Late { key, name }, GFP_KERNEL)?;
        self.nr_late.store(late.len(), Relaxed);
        // Queued here as well: the worker may have dropped the removed rows before it could see the
        // new entry.
        // SAFETY: `new` has initialised the work.
        unsafe { shim::pfc_work_queue(self.work.get()) };
        Ok(())
    }

    /// Creates the rows that waited for removed ones to be dropped. If more rows were removed
    /// meanwhile, this is left to the next run of the worker. Called by the worker.
    fn add_late(&self) {
        // `add` counts before it queues the work, so that the run that follows sees the count.
        if self.nr_late.load(Relaxed) == 0 {
            return;
        }
        let _notices = Notices::lock();
        if self.leaves.load(Relaxed) != 0 {
            return;
        }
        // SAFETY: The RTNL mutex is held, under which alone `late` is accessed, by the type's
        // invariant.
        let late = unsafe { &mut *self.late.get() };
        for Late { key, name } in late.drain_all() {
            // If there is no memory, the thing stays without a row: it is announced only once.
            let _ = self.try_insert(&key, || (self.make)(&name));
        }
        self.nr_late.store(0, Relaxed);
    }

    /// Creates and publishes a row. No row is being removed.
    #[inline]
    fn try_insert(&self, key: &Key, make: impl FnOnce() -> Result<R>) -> Result {
        if !self.has_room(key) {
            self.is_full();
            return Ok(());
        }
        match make() {
            Ok(value) => self.insert(key, Some(value)),
            Err(error) => {
                if self.refused.cmpxchg(0, SAID, Relaxed).is_ok() {
                    kernel::pr_notice!(
                        "cannot add counters for {}, first for {} {} (error {}); those without are counted together\n",
                        self.what,
                        key.text(),
                        key.number(),
                        error.to_errno()
                    );
                }
                // ENOMEM may be temporary. Other errors are permanent: the key is entered without a
                // row.
                match error {
                    ENOMEM => Err(ENOMEM),
                    _ => self.insert(key, None),
                }
            }
        }
    }

    /// Publishes a row, or a key without one. `ENOSPC` if there is no room; callers check that
    /// there is.
    #[inline]
    fn insert(&self, key: &Key, value: Option<R>) -> Result {
        let row = match value {
            Some(value) => KBox::into_raw(KBox::new(Row { key: *key, value }, GFP_KERNEL)?),
            None => null_mut(),
        };
        for bucket in self.around(key) {
            // Pairs with the worker's release in `drop_those_that_left`: the old row was read.
            let hash = bucket.hash.load(Acquire);
            if hash <= GONE {
                // SAFETY: No hash is published here, so no search reads `row`. For earlier readers
                // the worker has waited.
                unsafe { bucket.row.get().write(row) };
                // Pairs with the acquire in `find_place`.
                bucket.hash.store(key.hash, Release);
                self.rows.add(1, Relaxed);
                return Ok(());
            }
        }
        if let Some(row) = NonNull::new(row) {
            // SAFETY: The pointer is from `into_raw` above, and was never published.
            drop(unsafe { KBox::from_raw(row.as_ptr()) });
        }
        Err(ENOSPC)
    }

    /// Removes a row. The worker drops it after all probes that may use it have returned. Process
    /// context, with the RTNL mutex held.
    #[inline]
    pub fn remove(&self, key: &Key) {
        if self.nr_late.load(Relaxed) != 0 {
            // SAFETY: The caller holds the RTNL mutex, under which alone `late` is accessed, by the
            // type's invariant.
            let late = unsafe { &mut *self.late.get() };
            if let Some(at) = late.iter().position(|late| late.key == *key) {
                let _ = late.remove(at);
                self.nr_late.store(late.len(), Relaxed);
                return;
            }
        }
        for bucket in self.around(key) {
            if bucket.hash.load(Relaxed) != key.hash {
                continue;
            }
            // SAFETY: Only the holder of the RTNL mutex writes rows of this family, by the type's
            // invariant.
            let row = unsafe { bucket.row.get().read() };
            // SAFETY: The pointer is null or to a row that is not dropped: the worker drops rows of
            // buckets in state `LEFT` only.
            if unsafe { row.as_ref() }.is_some_and(|row| row.key != *key) {
                continue;
            }
            self.leaves.add(1, Relaxed);
            bucket.hash.store(LEAVES, Relaxed);
            // SAFETY: `new` has initialised the work.
            unsafe { shim::pfc_work_queue(self.work.get()) };
            return;
        }
    }

    /// Drops the rows that were removed, after one wait for the probes. Called by the worker.
    fn drop_those_that_left(&self) {
        // `remove` counts before it queues the work, so that the run that follows sees the count.
        if self.leaves.load(Relaxed) == 0 {
            return;
        }
        for bucket in &self.buckets {
            let _ = bucket.hash.cmpxchg(LEAVES, LEFT, Relaxed);
        }
        // SAFETY: Process context; no lock is held that a probe could need.
        unsafe { shim::pfc_tracepoint_sync() };
        let left = |bucket: &&Bucket<R>| bucket.hash.load(Relaxed) == LEFT;
        for bucket in self.buckets.iter().filter(left) {
            // SAFETY: In state `LEFT` only the worker accesses the row.
            let row = unsafe { bucket.row.get().read() };
            if let Some(row) = NonNull::new(row) {
                // SAFETY: The pointer is from `into_raw`. No search finds the row any more, and the
                // probes that had found it have returned.
                drop(unsafe { KBox::from_raw(row.as_ptr()) });
            }
            // Pairs with the acquire in `insert`: the row was read.
            bucket.hash.store(GONE, Release);
            self.rows.add(usize::MAX, Relaxed);
            self.leaves.add(usize::MAX, Relaxed);
        }
    }

    /// The worker.
    ///
    /// # Safety
    ///
    /// Called only by the kernel, with the work that `new` has initialised.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work is the first field of a pinned family, which lives until drop has
        // cancelled the work.
        let this = unsafe { &*work.cast::<Self>() };
        this.drop_those_that_left();
        this.add_late();
        for wish in &this.wishes {
            // Pairs with the release in `want`.
            if wish.state.load(Acquire) <= 1 {
                continue;
            }
            // SAFETY: The wish holds a complete key, which is not written before the state is 0
            // again.
            let key = unsafe { wish.key.get().read() };
            if this.find_place(&key).is_err() {
                if this.try_insert(&key, || (this.make)(&key)) == Err(ENOMEM) {
                    this.resume
                        .store(now_ns().saturating_add(PAUSE_NS), Relaxed);
                }
            }
            // Pairs with the acquire in `want`.
            wish.state.store(0, Release);
        }
        if this.full.cmpxchg(TO_SAY, SAID, Relaxed).is_ok() {
            kernel::pr_notice!(
                "limit of {} {} reached; all others are counted together\n",
                ROWS,
                this.what
            );
        }
    }
}

impl<R> Drop for Family<R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has initialised the work. No probe queues it again, as a provider's probes
        // are detached before its state is dropped.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
        for bucket in &self.buckets {
            // SAFETY: `&mut self` and the cancelled work exclude all other accesses.
            let row = unsafe { bucket.row.get().read() };
            if bucket.hash.load(Relaxed) > GONE && !row.is_null() {
                // SAFETY: The pointer is from `into_raw` in `insert`, and is dropped once.
                drop(unsafe { KBox::from_raw(row) });
            }
        }
    }
}
