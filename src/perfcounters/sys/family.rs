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
//! missed.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::{null_mut, NonNull};

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::code::ENOMEM;
use kernel::error::Result;
use kernel::fmt;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::types::Opaque;

use super::shim;

/// Rows at the most.
const ROWS: usize = 1024;
/// Places looked at for one key.
const REACH: usize = 64;
/// Keys that may wait for the worker at once.
const WAITING: usize = 32;
/// How long nothing is asked for after there was no memory.
const PAUSE_NS: u64 = 1_000_000_000;
/// A place whose row has gone; searches go on past it.
const GONE: u64 = 1;

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
        // 0 and 1 mean something else in the table.
        key.hash |= 2;
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

/// A table of rows of type `R`.
///
/// # Invariants
///
/// - A place's `row` is written before its `hash` is published and not freed
///   before a grace period after the hash was taken back.
/// - Only one thread at a time inserts and removes: the worker, or the one that
///   holds the lock of the notices.
#[repr(C)]
pub struct Family<R> {
    // First: the worker gets its address.
    work: Opaque<bindings::work_struct>,
    make: fn(&Key) -> Result<R>,
    places: KVec<Place<R>>,
    wishes: [Wish; WAITING],
    /// No wishes before this time: there was no memory for the last one.
    resume: Atomic<u64>,
    _rows: PhantomData<R>,
}

// SAFETY: Protocol above; rows are shared as `&R`.
unsafe impl<R: Send + Sync> Send for Family<R> {}
// SAFETY: As above.
unsafe impl<R: Send + Sync> Sync for Family<R> {}

impl<R: Send + Sync> Family<R> {
    /// An empty family; `make` adds the instances of a new row. Process context.
    #[inline]
    pub fn new(make: fn(&Key) -> Result<R>) -> Result<Pin<KBox<Self>>> {
        let mut places = KVec::with_capacity(ROWS, GFP_KERNEL)?;
        for _ in 0..ROWS {
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
                places,
                wishes: [const {
                    Wish {
                        state: Atomic::new(0),
                        key: UnsafeCell::new(Key::NONE),
                    }
                }; WAITING],
                resume: Atomic::new(0),
                _rows: PhantomData,
            },
        ));
        // SAFETY: Pinned; the function takes the first field's address.
        unsafe { shim::pfc_work_init(this.work.get(), Self::run) };
        Ok(this)
    }

    /// The row of a key. Any context; call it in a probe, whose end is what
    /// [`Family::remove`] waits for.
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
        (0..REACH).filter_map(move |i| self.places.get(start.wrapping_add(i) % ROWS))
    }

    /// Asks for a row. Any context but with a run-queue lock held or in NMI.
    #[inline]
    pub fn want(&self, key: &Key) {
        if self.find_place(key).is_ok() || now_ns() < self.resume.load(Relaxed) {
            return;
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

    /// Publishes a row that was made. Process context, one at a time.
    #[inline]
    pub fn insert(&self, key: &Key, value: Option<R>) -> Result {
        let row = match value {
            Some(value) => KBox::into_raw(KBox::new(Row { key: *key, value }, GFP_KERNEL)?),
            None => null_mut(),
        };
        for place in self.around(key) {
            let hash = place.hash.load(Relaxed);
            if hash <= GONE {
                // SAFETY: No hash is published here, so nobody reads `row`:
                // those who did are gone since `remove` waited.
                unsafe { place.row.get().write(row) };
                // Pairs with the acquire in `find`.
                place.hash.store(key.hash, Release);
                return Ok(());
            }
        }
        if let Some(row) = NonNull::new(row) {
            // SAFETY: From `into_raw` above, never published.
            drop(unsafe { KBox::from_raw(row.as_ptr()) });
        }
        Err(kernel::error::code::ENOSPC)
    }

    /// Takes a row away and drops it, after all probes that may use it. Process
    /// context, one at a time; sleeps for a grace period.
    #[inline]
    pub fn remove(&self, key: &Key) {
        for place in self.around(key) {
            if place.hash.load(Relaxed) != key.hash {
                continue;
            }
            // SAFETY: Only we write it.
            let row = unsafe { place.row.get().read() };
            // SAFETY: A row, or null; alive until we drop it.
            if unsafe { row.as_ref() }.is_some_and(|row| row.key != *key) {
                continue;
            }
            // Pairs with the acquire in `find_place`; who saw the row is waited for.
            place.hash.store(GONE, Release);
            // SAFETY: Process context.
            unsafe { shim::pfc_tracepoint_sync() };
            if !row.is_null() {
                // SAFETY: From `into_raw`; no probe uses it any more.
                drop(unsafe { KBox::from_raw(row) });
            }
            return;
        }
    }

    /// # Safety
    ///
    /// Called by the kernel, with the work that `new` initialised.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The first field of a pinned family, alive until drop has
        // cancelled the work.
        let this = unsafe { &*work.cast::<Self>() };
        for wish in &this.wishes {
            // Pairs with the release in `want`.
            if wish.state.load(Acquire) <= 1 {
                continue;
            }
            // SAFETY: Complete; nobody writes it in this state.
            let key = unsafe { wish.key.get().read() };
            if this.find_place(&key).is_err() {
                let row = (this.make)(&key);
                if row.is_err() {
                    kernel::pr_notice!(
                        "perfcounters: no instances for {} {}\n",
                        key.text(),
                        key.number()
                    );
                }
                // Memory may come back, what else is wrong stays.
                let again = match row {
                    Err(error) if error == ENOMEM => Err(error),
                    row => this.insert(&key, row.ok()),
                };
                if again == Err(ENOMEM) {
                    this.resume
                        .store(now_ns().saturating_add(PAUSE_NS), Relaxed);
                }
            }
            // Pairs with the acquire in `want`.
            wish.state.store(0, Release);
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
