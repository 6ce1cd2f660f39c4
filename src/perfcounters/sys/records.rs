// SPDX-License-Identifier: GPL-2.0

//! Records of tasks that are accounted: by their tasks' addresses while these live, in lists
//! when they have ended.

use core::mem::size_of;
use core::ptr::NonNull;

use engine::accounting::{Task, NR_VALUES};
use engine::sync::Word;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVVec};
use kernel::bindings;
use kernel::prelude::*;
use kernel::types::Opaque;

use super::task::{TaskRef, Who};
use super::{cpu, sched, shim};

/// A task's words, and who it is. The words are first: the same address.
#[repr(C)]
pub(crate) struct Record {
    pub(crate) words: Task<KVVec<Word>>,
    pub(crate) address: usize,
    pub(crate) kernel: bool,
    /// It runs softirqs for others.
    pub(crate) softirqd: bool,
    /// It is accounted by itself, whatever is with others.
    pub(crate) own: bool,
    pub(super) began: u64,
    /// Who it was when it ended: user and parent's process, thread and process, name.
    last: [Word; 4],
    /// The next one of its hash.
    chain: Word,
    /// The next one of a list.
    next: Word,
    rcu: Opaque<bindings::callback_head>,
}

// SAFETY: Words and numbers, but for what RCU has of it, which only RCU touches.
unsafe impl Send for Record {}
// SAFETY: Words and numbers; what RCU has of it only RCU touches.
unsafe impl Sync for Record {}

impl Record {
    /// A record with values for each group of so many CPUs. May sleep.
    pub(crate) fn new(
        task: TaskRef<'_>,
        calling: bool,
        scaling: u32,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        let mut record = Self::blank(scaling)?;
        record.words.set_out(calling, latencies, now);
        record.fill(task);
        Ok(record)
    }

    /// One that is no task's yet. May sleep.
    pub(crate) fn blank(scaling: u32) -> Result<KBox<Self>> {
        let nr = Self::groups(scaling).wrapping_mul(NR_VALUES);
        Ok(KBox::new(
            Self {
                words: Task::new(words(nr)?, scaling),
                address: 0,
                kernel: false,
                softirqd: false,
                own: false,
                began: 0,
                last: Default::default(),
                chain: Word::new(0),
                next: Word::new(0),
                rcu: Opaque::uninit(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Groups of so many CPUs.
    pub(crate) fn groups(scaling: u32) -> usize {
        let before = scaling.max(1).wrapping_sub(1);
        let cpus = cpu::nr_cpu_ids().wrapping_add(before);
        cpus.checked_div(scaling.max(1)).unwrap_or(1) as usize
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let groups = self.words.nr_groups();
        groups
            .wrapping_mul(size_of::<[Word; NR_VALUES]>())
            .wrapping_add(size_of::<Self>()) as u64
    }

    /// Is a task's from now on.
    pub(crate) fn fill(&mut self, task: TaskRef<'_>) {
        self.address = task.address();
        self.kernel = task.is_kernel();
        self.softirqd = task.is_softirqd();
        self.began = task.began();
        // Until its end, of which nobody may hear if it has begun already.
        self.keep(task);
    }

    /// Who it is is kept, for when it is no more.
    pub(crate) fn keep(&self, task: TaskRef<'_>) {
        let who = task.who(true);
        let name = task.name();
        let [ids, numbers, first, second] = &self.last;
        ids.store_relaxed(u64::from(who.uid) | u64::from(who.ppid) << 32);
        numbers.store_relaxed(u64::from(who.pid) | u64::from(who.tgid) << 32);
        for (word, half) in [first, second].into_iter().zip(name.chunks_exact(8)) {
            let half = half
                .first_chunk()
                .map_or(0, |half| u64::from_ne_bytes(*half));
            word.store_relaxed(half);
        }
    }

    /// Its user, in the initial name space: as it was made, or as it ended.
    pub(crate) fn user(&self) -> u32 {
        self.kept().0.uid
    }

    /// Who it was.
    pub(super) fn kept(&self) -> (Who, [u8; 16]) {
        let [ids, numbers, first, second] = &self.last;
        let (ids, numbers) = (ids.load_relaxed(), numbers.load_relaxed());
        let mut name = [0; 16];
        for (to, word) in name.chunks_exact_mut(8).zip([first, second]) {
            to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        let who = Who {
            uid: ids as u32,
            ppid: (ids >> 32) as u32,
            pid: numbers as u32,
            tgid: (numbers >> 32) as u32,
            reaped: 0,
        };
        (who, name)
    }
}

/// A record that nobody new can find.
///
/// # Invariants
///
/// It was taken out of the index by whoever has this, who alone may free it, a grace
/// period later.
pub(crate) struct Taken(NonNull<Record>);

impl Taken {
    /// To look at.
    pub(crate) fn get(&self) -> &Record {
        // SAFETY: It is there, by the type's invariant.
        unsafe { self.0.as_ref() }
    }
}

/// Hashes of tasks' addresses; a power of two.
const HEADS: usize = 1 << 14;

/// Records by their tasks' addresses: these stay the same for as long as tasks live, which
/// their numbers do not. Looked at without a lock, changed under one.
///
/// # Invariants
///
/// A head, and the chain of each record, is 0 or a record. Who takes one out frees it after
/// a grace period; its chain still leads on. There are `HEADS` heads.
pub(crate) struct Index(KVVec<Word>);

impl Index {
    /// Without any. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // INVARIANT: so many, all 0.
        Ok(Self(words(HEADS)?))
    }

    #[inline(always)]
    fn head(&self, address: usize) -> &Word {
        // Structures lie at least 64 bytes apart; the multiplication spreads them.
        let hash = ((address >> 6) as u32).wrapping_mul(0x9e37_79b9) >> (32 - HEADS.ilog2());
        // SAFETY: Below `HEADS`, which is a power of two; by the type's invariant.
        unsafe { self.0.get_unchecked(hash as usize) }
    }

    /// A task's record. Preemption off, or under RCU, while it is used.
    #[inline(always)]
    pub(crate) fn get(&self, address: usize) -> Option<&Record> {
        // Acquire: with the release in `insert`, the record is there.
        let mut at = self.head(address).load_acquire();
        loop {
            // SAFETY: 0 or a record, by the type's invariant.
            let record = unsafe { (at as *const Record).as_ref()? };
            if record.address == address {
                return Some(record);
            }
            // Acquire: as for the head.
            at = record.chain.load_acquire();
        }
    }

    /// Changes are one at a time.
    fn locked<T>(change: impl FnOnce() -> T) -> T {
        // SAFETY: Given back here. Raw, interrupts off: fit for the scheduler.
        let flags = unsafe { shim::ppa_lock() };
        let done = change();
        // SAFETY: Taken above, with these flags.
        unsafe { shim::ppa_unlock(flags) };
        done
    }

    /// Puts a task's record in; gives it back if there is one.
    pub(crate) fn insert(&self, record: KBox<Record>) -> Option<KBox<Record>> {
        let head = self.head(record.address);
        Self::locked(|| {
            if self.get(record.address).is_some() {
                return Some(record);
            }
            record.chain.store_relaxed(head.load_relaxed());
            // Release: with the acquire in `get`.
            head.store_release(KBox::into_raw(record) as u64);
            None
        })
    }

    /// Takes a task's out, which the caller then owns, but for those who still look at it.
    pub(crate) fn take(&self, address: usize) -> Option<Taken> {
        Self::locked(|| {
            let mut place = self.head(address);
            loop {
                let at = place.load_relaxed();
                // SAFETY: 0 or a record, by the type's invariant; none goes under the lock.
                let record = unsafe { (at as *const Record).as_ref()? };
                if record.address == address {
                    // Release: with the acquire in `get`, for the one behind it.
                    place.store_release(record.chain.load_relaxed());
                    // INVARIANT: whoever changed the word has it.
                    return NonNull::new(at as *mut Record).map(Taken);
                }
                place = &record.chain;
            }
        })
    }

    /// The first record after a place, and its own; `None`: there are no more. Places are in
    /// the order of hashes, and of addresses below these: whatever comes and goes, no other
    /// is left out. Preemption off, or under RCU, while it is used.
    pub(crate) fn after(&self, place: u64) -> Option<(&Record, u64)> {
        let mut hash = place >> 48;
        while let Some(head) = self.0.get(hash as usize) {
            let mut first: Option<(&Record, u64)> = None;
            let mut at = head.load_acquire();
            // SAFETY: As in `get`.
            while let Some(record) = unsafe { (at as *const Record).as_ref() } {
                // All have the same highest 16 bits, those of the kernel.
                let own = hash << 48 | (record.address as u64 & (u64::MAX >> 16));
                if own > place && first.is_none_or(|(_, least)| own < least) {
                    first = Some((record, own));
                }
                // Acquire: as for the head.
                at = record.chain.load_acquire();
            }
            if first.is_some() {
                return first;
            }
            hash = hash.wrapping_add(1);
        }
        None
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for head in &self.0 {
            let mut at = head.load_relaxed();
            while let Some(record) = NonNull::new(at as *mut Record) {
                // SAFETY: From `into_raw`; the probes went first, and with them whoever
                // could look at it.
                let record = unsafe { KBox::from_raw(record.as_ptr()) };
                at = record.chain.load_relaxed();
            }
        }
    }
}

fn words(nr: usize) -> Result<KVVec<Word>> {
    let mut words = KVVec::with_capacity(nr, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..nr {
        words.push(Word::new(0), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(words)
}

/// Records that nobody can find any more, linked; pushed in any context.
///
/// # Invariants
///
/// Each is owned by this list, from its push to its drop.
pub(crate) struct List {
    first: Word,
}

impl List {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            first: Word::new(0),
        }
    }

    /// Puts one in.
    pub(crate) fn push(&self, record: Taken) {
        let record = record.0;
        loop {
            let first = self.first.load_relaxed();
            // SAFETY: Ours, by the type's invariant.
            unsafe { record.as_ref() }.next.store_relaxed(first);
            // Release: with the acquire in `take`, who takes it sees all of it.
            if self.first.replace(first, record.as_ptr() as u64) {
                return;
            }
        }
    }

    /// Looks at all, while nobody takes them.
    pub(crate) fn each(&self, mut look: impl FnMut(&Record)) {
        // Acquire: with the release in `push`, each record is there.
        let mut next = self.first.load_acquire();
        // SAFETY: Ours, by the type's invariant; who takes them is not there now, by the caller's
        // word, and what is pushed meanwhile is before the first.
        while let Some(record) = unsafe { (next as *const Record).as_ref() } {
            look(record);
            next = record.next.load_relaxed();
        }
    }

    fn all(&self) -> u64 {
        loop {
            // Acquire: with the release in `push`.
            let first = self.first.load_acquire();
            if first == 0 || self.first.replace(first, 0) {
                return first;
            }
        }
    }

    /// Has all freed when nobody can look at them any more. Not under a run-queue lock.
    pub(crate) fn free_later(&self) {
        /// # Safety
        ///
        /// Called by RCU, with the word that was given to it.
        unsafe extern "C" fn free(rcu: *mut bindings::callback_head) {
            let record = rcu.wrapping_byte_sub(core::mem::offset_of!(Record, rcu));
            // SAFETY: From `into_raw`; a grace period after it was taken out.
            drop(unsafe { KBox::from_raw(record.cast::<Record>()) });
        }
        let mut next = self.all();
        while let Some(record) = NonNull::new(next as *mut Record) {
            // SAFETY: Ours, by the type's invariant, and RCU's from here on.
            unsafe {
                next = record.as_ref().next.load_relaxed();
                bindings::call_rcu(record.as_ref().rcu.get(), Some(free));
            }
        }
    }

    /// Takes all, after whoever may look at them still. May sleep.
    pub(crate) fn take(&self, each: &mut dyn FnMut(KBox<Record>)) {
        let mut next = self.all();
        if next != 0 {
            sched::synchronize();
        }
        while let Some(record) = NonNull::new(next as *mut Record) {
            // SAFETY: By the type's invariant; nobody looks any more.
            let record = unsafe { KBox::from_raw(record.as_ptr()) };
            next = record.next.load_relaxed();
            each(record);
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.take(&mut drop);
    }
}
