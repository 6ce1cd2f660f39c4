// SPDX-License-Identifier: GPL-2.0

//! Families: rows of instances for things that come and go, found by key in any
//! context, made in process context.
//!
//! ```text
//!   probe (any context)                     worker (process context)
//!     find(key) -> row: count               make(key): perf_add() its instances
//!     nothing: want(key), count as missed   publish the row
//! ```
//!
//! A thing's first events, before its row is there, are counted as missed by
//! the provider: nothing is lost silently. Where there is no memory for a row,
//! a later event asks again. The table is fixed in size, so that
//! no one can exhaust memory by making devices; what finds no place stays
//! missed: no instance is made for it, and the log says so once.

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

/// Rows at the most.
const ROWS: usize = 1024;
/// Places for them: one in four has a row at the most, so that there is one within a key's reach.
const PLACES: usize = 4 * ROWS;
/// Places looked at for one key.
const REACH: usize = 64;
/// Keys that may wait for the worker at once.
const WAITING: usize = 32;
/// How long nothing is asked for after there was no memory.
const PAUSE_NS: u64 = 1_000_000_000;
/// A place whose row has gone; searches go on past it.
const GONE: u64 = 1;
/// One whose row is to go: nobody finds it any more, but who found it may still use it. The second
/// is the worker's, which waits for those.
const LEAVES: u64 = 2;
const LEFT: u64 = 3;
/// Of [`Family::full`] and [`Family::refused`].
const TO_SAY: u32 = 1;
const SAID: u32 = 2;

/// Monotonic time. Any context but NMI.
#[inline]
fn now_ns() -> u64 {
    // SAFETY: No requirements; the seqlock it reads excludes NMI only.
    (unsafe { bindings::ktime_get() }) as u64
}

/// What a thing is known by: a short text and a number.
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

    /// A key; the text ends at the first NUL.
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
        // 0 to 3 mean something else in the table.
        key.hash |= 4;
        key
    }

    /// A key that is a number only.
    #[inline]
    pub fn number_only(number: u32) -> Self {
        Self::new(&[0; 32], number)
    }

    /// The text, fit for a name.
    #[inline]
    pub fn text(&self) -> Text<'_> {
        Text(self.text.split(|b| *b == 0).next().unwrap_or(&[]))
    }

    /// The number.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Bytes from the kernel as UTF-8 without control characters. What is not is
/// written as `\xNN`, and so is a backslash, so that no two texts look alike.
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

/// One place of the table.
struct Place<R> {
    hash: Atomic<u64>,
    row: UnsafeCell<*mut Row<R>>,
}

struct Row<R> {
    key: Key,
    value: R,
}

/// One key on its way to the worker.
struct Wish {
    /// 0 free, 1 being written, else complete, and the key's hash.
    state: Atomic<u64>,
    key: UnsafeCell<Key>,
}

/// A thing that was announced while the rows of others were leaving.
struct Late {
    key: Key,
    /// The text that its instances' names contain.
    name: Key,
}

/// The lock of the notices of network interfaces, held.
struct Notices(());

impl Notices {
    /// Process context; that lock is not held.
    #[inline]
    fn lock() -> Self {
        // SAFETY: Process context; given back by drop.
        unsafe { shim::pfc_notices_lock() };
        Self(())
    }
}

impl Drop for Notices {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Taken in `lock`.
        unsafe { shim::pfc_notices_unlock() };
    }
}

/// A table of rows of type `R`.
///
/// # Invariants
///
/// - A place's `row` is written before its `hash` is published and not freed
///   before a grace period after the hash was taken back.
/// - Only one thread at a time inserts and removes: in a family of things that are announced the one
///   that holds the lock of the notices, in any other the worker. Only the worker frees: of places
///   that it has found [`LEAVES`], after a grace period for all of them.
/// - `late` is reached by the one that holds the lock of the notices.
#[repr(C)]
pub struct Family<R> {
    // First: the worker gets its address.
    work: Opaque<bindings::work_struct>,
    make: fn(&Key) -> Result<R>,
    /// Of what it is, in the plural, for the log.
    what: &'static str,
    places: KVec<Place<R>>,
    wishes: [Wish; WAITING],
    /// How many places have a key.
    rows: Atomic<usize>,
    /// How many of these are [`LEAVES`] or [`LEFT`].
    leaves: Atomic<usize>,
    /// Things that wait for the rows that leave, in the order in which they came; and their number.
    late: UnsafeCell<KVec<Late>>,
    nr_late: Atomic<usize>,
    /// One found no place: to be said; and was said. One could not be made: the same.
    full: Atomic<u32>,
    refused: Atomic<u32>,
    /// No wishes before this time: there was no memory for the last one.
    resume: Atomic<u64>,
    _rows: PhantomData<R>,
}

// SAFETY: Protocol above; rows are shared as `&R`.
unsafe impl<R: Send + Sync> Send for Family<R> {}
// SAFETY: Fields change by the protocol of this file only; rows are shared as `&R`.
unsafe impl<R: Send + Sync> Sync for Family<R> {}

impl<R: Send + Sync> Family<R> {
    /// An empty family of what is called so in the plural; `make` adds the instances of a new row.
    /// Process context.
    #[inline]
    pub fn new(what: &'static str, make: fn(&Key) -> Result<R>) -> Result<Pin<KBox<Self>>> {
        let mut places = KVec::with_capacity(PLACES, GFP_KERNEL)?;
        for _ in 0..PLACES {
            let place = Place {
                hash: Atomic::new(0),
                row: UnsafeCell::new(null_mut()),
            };
            places.push(place, GFP_KERNEL)?;
        }
        // First the memory: a family whose work is not initialised must not be
        // dropped, as it would be where there is no box for it.
        let memory = KBox::new_uninit(GFP_KERNEL)?;
        let this = KBox::into_pin(KBox::write(
            memory,
            Self {
                work: Opaque::uninit(),
                make,
                what,
                places,
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
        // SAFETY: Pinned; the function takes the first field's address.
        unsafe { shim::pfc_work_init(this.work.get(), Self::run) };
        Ok(this)
    }

    /// The row of a key. Any context; call it in a probe, whose end is waited
    /// for before a row that was removed is dropped.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<&R> {
        self.find_place(key).ok().flatten().map(|row| &row.value)
    }

    /// `Err`: not there; `Ok(None)`: there, but no row could be made.
    #[inline]
    fn find_place(&self, key: &Key) -> Result<Option<&Row<R>>, ()> {
        for place in self.around(key) {
            // Pairs with the release in `insert`: the row is complete.
            let hash = place.hash.load(Acquire);
            if hash == 0 {
                break;
            }
            if hash == key.hash {
                // SAFETY: Written before the hash was published, and not freed
                // while we are in a probe, by the type's invariants.
                match unsafe { place.row.get().read().as_ref() } {
                    None => return Ok(None),
                    Some(row) if row.key == *key => return Ok(Some(row)),
                    Some(_) => {}
                }
            }
        }
        Err(())
    }

    #[inline]
    fn around(&self, key: &Key) -> impl Iterator<Item = &Place<R>> {
        let start = (key.hash >> 20) as usize;
        (0..REACH).filter_map(move |i| self.places.get(start.wrapping_add(i) % PLACES))
    }

    /// Would a row of this key find a place? Any context.
    #[inline]
    fn has_room(&self, key: &Key) -> bool {
        self.rows.load(Relaxed) < ROWS
            && self
                .around(key)
                .any(|place| place.hash.load(Relaxed) <= GONE)
    }

    /// Something found no place. Any context but with a run-queue lock held or in NMI.
    #[cold]
    fn is_full(&self) {
        if self.full.load(Relaxed) == 0 && self.full.cmpxchg(0, TO_SAY, Relaxed).is_ok() {
            // SAFETY: Initialised in `new`.
            unsafe { shim::pfc_work_queue(self.work.get()) };
        }
    }

    /// Asks for a row. Any context but with a run-queue lock held or in NMI.
    #[inline]
    pub fn want(&self, key: &Key) {
        if self.find_place(key).is_ok() || now_ns() < self.resume.load(Relaxed) {
            return;
        }
        // Without one, whatever is made for it would have to go again.
        if !self.has_room(key) {
            return self.is_full();
        }
        for wish in &self.wishes {
            // Pairs with the release in `run`: the wish is free, and its key read.
            match wish.state.load(Acquire) {
                hash if hash == key.hash => return,
                // Full: whoever is second sees that it is taken; pairs with itself.
                0 if wish.state.cmpxchg(0, 1, Full).is_ok() => {
                    // SAFETY: Ours alone in state 1.
                    unsafe { wish.key.get().write(*key) };
                    // Pairs with the worker's acquire.
                    wish.state.store(key.hash, Release);
                    // SAFETY: Initialised in `new`.
                    unsafe { shim::pfc_work_queue(self.work.get()) };
                    return;
                }
                _ => {}
            }
        }
    }

    /// Makes and publishes the row of a thing that was announced, if there is room for it, with
    /// instances of that name. The log says once what has none, and why. `ENOMEM`: later there may
    /// be memory. Process context, with the lock of the notices held, by which callers exclude each
    /// other.
    ///
    /// While a row is leaving, the worker makes the new one later, as the old one may have the same
    /// names. This function must not wait for the worker. The worker waits for probes, and a
    /// SCHED_FIFO thread that has preempted a probe prolongs that for as long as it runs. All
    /// changes of interfaces on the machine would wait for the lock of the notices meanwhile.
    #[inline]
    pub fn add(&self, key: &Key, name: &Key) -> Result {
        if self.leaves.load(Relaxed) == 0 && self.nr_late.load(Relaxed) == 0 {
            return self.try_insert(key, || (self.make)(name));
        }
        // SAFETY: The caller holds the lock of the notices, by the type's invariant.
        let late = unsafe { &mut *self.late.get() };
        if late.len() >= ROWS {
            self.is_full();
            return Ok(());
        }
        let (key, name) = (*key, *name);
        late.push(Late { key, name }, GFP_KERNEL)?;
        self.nr_late.store(late.len(), Relaxed);
        // The worker may have dropped the rows that leave before it could see this.
        // SAFETY: Initialised in `new`.
        unsafe { shim::pfc_work_queue(self.work.get()) };
        Ok(())
    }

    /// Makes the rows that wait for those that left, unless more are leaving by now: then the
    /// worker runs once more. The worker.
    fn add_late(&self) {
        // `add` queues the work after it has counted: the run that follows sees the count.
        if self.nr_late.load(Relaxed) == 0 {
            return;
        }
        let _notices = Notices::lock();
        if self.leaves.load(Relaxed) != 0 {
            return;
        }
        // SAFETY: The lock of the notices is held.
        let late = unsafe { &mut *self.late.get() };
        for Late { key, name } in late.drain_all() {
            // Without memory the thing stays without a row: its notice came once.
            let _ = self.try_insert(&key, || (self.make)(&name));
        }
        self.nr_late.store(0, Relaxed);
    }

    /// Makes and publishes a row, where none is leaving.
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
                        "no instances for {}, {} {} the first of them (error {}): all without are counted together\n",
                        self.what,
                        key.text(),
                        key.number(),
                        error.to_errno()
                    );
                }
                // Memory may come back, what else is wrong stays.
                match error {
                    ENOMEM => Err(ENOMEM),
                    _ => self.insert(key, None),
                }
            }
        }
    }

    /// Publishes a row. There is room for it.
    #[inline]
    fn insert(&self, key: &Key, value: Option<R>) -> Result {
        let row = match value {
            Some(value) => KBox::into_raw(KBox::new(Row { key: *key, value }, GFP_KERNEL)?),
            None => null_mut(),
        };
        for place in self.around(key) {
            // Pairs with the worker's release.
            let hash = place.hash.load(Acquire);
            if hash <= GONE {
                // SAFETY: No hash is published here, so nobody reads `row`:
                // those who did are gone, for whom the worker waited.
                unsafe { place.row.get().write(row) };
                // Pairs with the acquire in `find`.
                place.hash.store(key.hash, Release);
                self.rows.add(1, Relaxed);
                return Ok(());
            }
        }
        if let Some(row) = NonNull::new(row) {
            // SAFETY: From `into_raw` above, never published.
            drop(unsafe { KBox::from_raw(row.as_ptr()) });
        }
        Err(ENOSPC)
    }

    /// Takes a row away; it is dropped a moment later, after all probes that may use it. Process
    /// context, with the lock of the notices held.
    #[inline]
    pub fn remove(&self, key: &Key) {
        if self.nr_late.load(Relaxed) != 0 {
            // SAFETY: The caller holds the lock of the notices, by the type's invariant.
            let late = unsafe { &mut *self.late.get() };
            if let Some(at) = late.iter().position(|late| late.key == *key) {
                let _ = late.remove(at);
                self.nr_late.store(late.len(), Relaxed);
                return;
            }
        }
        for place in self.around(key) {
            if place.hash.load(Relaxed) != key.hash {
                continue;
            }
            // SAFETY: Only we write it.
            let row = unsafe { place.row.get().read() };
            // SAFETY: A row, or null; alive until the worker, which waits, drops it.
            if unsafe { row.as_ref() }.is_some_and(|row| row.key != *key) {
                continue;
            }
            self.leaves.add(1, Relaxed);
            place.hash.store(LEAVES, Relaxed);
            // SAFETY: Initialised in `new`.
            unsafe { shim::pfc_work_queue(self.work.get()) };
            return;
        }
    }

    /// Drops the rows that leave: one wait for all of them. The worker.
    fn drop_those_that_left(&self) {
        // `remove` queues the work after it has counted: the run that follows sees the count.
        if self.leaves.load(Relaxed) == 0 {
            return;
        }
        for place in &self.places {
            let _ = place.hash.cmpxchg(LEAVES, LEFT, Relaxed);
        }
        // SAFETY: Process context.
        unsafe { shim::pfc_tracepoint_sync() };
        let left = |place: &&Place<R>| place.hash.load(Relaxed) == LEFT;
        for place in self.places.iter().filter(left) {
            // SAFETY: Ours in this state.
            let row = unsafe { place.row.get().read() };
            if let Some(row) = NonNull::new(row) {
                // SAFETY: From `into_raw`; no probe uses it any more.
                drop(unsafe { KBox::from_raw(row.as_ptr()) });
            }
            // Pairs with the load in `insert`: the row was read.
            place.hash.store(GONE, Release);
            self.rows.add(usize::MAX, Relaxed);
            self.leaves.add(usize::MAX, Relaxed);
        }
    }

    /// # Safety
    ///
    /// Called by the kernel, with the work that `new` initialised.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The first field of a pinned family, alive until drop has
        // cancelled the work.
        let this = unsafe { &*work.cast::<Self>() };
        this.drop_those_that_left();
        this.add_late();
        for wish in &this.wishes {
            // Pairs with the release in `want`.
            if wish.state.load(Acquire) <= 1 {
                continue;
            }
            // SAFETY: Complete; nobody writes it in this state.
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
                "no place for more than {} {}: all others are counted together\n",
                ROWS,
                this.what
            );
        }
    }
}

impl<R> Drop for Family<R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Initialised in `new`. No probe can queue it again: the
        // provider's probes are detached before its state is dropped.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
        for place in &self.places {
            // SAFETY: Nobody else is left.
            let row = unsafe { place.row.get().read() };
            if place.hash.load(Relaxed) > GONE && !row.is_null() {
                // SAFETY: From `into_raw` in `insert`.
                drop(unsafe { KBox::from_raw(row) });
            }
        }
    }
}
