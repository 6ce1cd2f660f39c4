// SPDX-License-Identifier: GPL-2.0

//! Children of traced processes. By `fork()` they have their parents' mappings, in which nothing
//! is, and so their markers. They are somebody as soon as they look at a page, which needs no
//! call, no file and no name of the device: there need be none where they are.
//!
//! By `vfork()` they have their parents' memory, what a thread has of its own included, but no
//! restartable sequence: they are told apart there before they run.

use engine::trace::THREAD_SHARED;
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;

use crate::provider::{Handler, Probes};
use crate::sys::lock::{SHARING, TRACING};
use crate::sys::ppa::Clock;
use crate::sys::probe::TaskNew;
use crate::sys::process::{change_thread, Mm};
use crate::sys::task::TaskRef;
use crate::tracing::attached::{add, end_process, may_attach, with_room};
use crate::tracing::news::tell_traces;
use crate::tracing::process::{Awake, Inheritance, Process};

/// What tells of processes that have another one's memory, from the first that is traced on.
pub(crate) struct Sharing;

impl Handler<TaskNew<'_>> for Sharing {
    fn on(&self, event: TaskNew<'_>) {
        if event.shares {
            event.task.shares_later();
        }
    }
}

/// Somebody is about to be traced. May sleep.
pub(crate) fn watch() -> Result {
    let mut sharing = SHARING.lock();
    if sharing.is_none() {
        let mut probes = Probes::new(Sharing)?;
        probes.attach::<TaskNew<'_>>()?;
        *sharing = Some(probes);
    }
    Ok(())
}

/// The module goes.
pub(crate) fn watch_no_more() {
    *SHARING.lock() = None;
}

/// Counts a child that shares the memory of a traced process and is taken for a thread of it,
/// because memory for its task work was short.
pub(crate) fn missed(mm: usize) {
    let mut all = TRACING.lock();
    if let Some(key) = all.of_mm(mm) {
        all.miss(key);
    }
}

/// The calling process has the memory of another one, whose thread of this number made it: what
/// that thread has of its own is marked, as the two share it.
pub(crate) fn shares(parent: u32) {
    let Some(mm) = Mm::calls() else { return };
    let mut all = TRACING.lock();
    let Some(key) = all.of_mm(mm.address()) else {
        return;
    };
    let Ok(threads) = all.living(key).map(|process| process.threads) else {
        return;
    };
    drop(all);
    let number = u64::from(parent) << 32;
    for at in threads.iter().filter(|at| **at != 0) {
        change_thread(*at, number, [0, number | THREAD_SHARED]);
    }
}

/// A child has a copy of a piece of a process: its key, or 0: it cannot be traced. By its parent;
/// may sleep.
pub(crate) fn inherit(parent: u64, mm: usize) -> u64 {
    // Of the other piece, or else there is nobody to be a child of.
    let known = || {
        let mut all = TRACING.lock();
        let other = all.of_mm(mm);
        let parent = all.living(parent).map(|parent| parent.needs());
        other.map_or(parent.map_err(|_| 0), Err)
    };
    loop {
        let needs = match known() {
            Ok(needs) => needs,
            Err(key) => return key,
        };
        // Memory is got without the lock.
        let room = Inheritance::new(needs).and_then(|room| {
            let place = KBox::<Process>::new_uninit(GFP_KERNEL_ACCOUNT)?;
            Ok((room, place))
        });
        match room.and_then(|(room, place)| born(parent, mm, room, place)) {
            // It has more markers by now.
            Err(EAGAIN) => {}
            Err(_) => {
                TRACING.lock().miss(parent);
                return 0;
            }
            Ok(key) => return key,
        }
    }
}

fn born(
    parent: u64,
    mm: usize,
    room: Inheritance,
    place: KBox<core::mem::MaybeUninit<Process>>,
) -> Result<u64> {
    with_room(|all| {
        may_attach(all)?;
        let key = all.next_key;
        let parent = all.living(parent)?;
        if !room.fits(parent) {
            return Err(EAGAIN);
        }
        let child = parent.child(key, mm, room);
        all.next_key = key.wrapping_add(1);
        add(all, KBox::write(place, child))?;
        Ok(key)
    })
}

/// A process looks at a page, or calls: a child that does so for the first time is somebody from
/// now on, and has to be told to traces. By itself; may sleep. `EFAULT`: it is the kernel that
/// looks, in its name.
pub(crate) fn wake(key: u64) -> Result<bool> {
    let markers = {
        let mut all = TRACING.lock();
        let process = all.living(key)?;
        if !process.is_asleep() {
            return Ok(false);
        }
        process.needs().0
    };
    if TaskRef::of(current!()).is_kernel() {
        return Err(EFAULT);
    }
    let awake = Awake::new(key, Some(markers), Clock::of_traces())?;
    Ok(TRACING.lock().living(key)?.wake(awake))
}

/// A child cannot be traced.
pub(crate) fn give_up(key: u64) {
    let mut all = TRACING.lock();
    all.miss(key);
    end_process(&mut all, key);
}

/// The process that calls, if it is traced: a child, too.
pub(crate) fn own(mm: &Mm) -> Result<u64> {
    let key = TRACING.lock().of_mm(mm.address()).ok_or(ESRCH)?;
    if wake(key)? {
        begins(mm);
    }
    Ok(key)
}

/// The calling process is somebody: its thread is not its parent's, and traces hear of it. May
/// sleep, and touch user memory.
pub(crate) fn begins(mm: &Mm) {
    let mut all = TRACING.lock();
    let Some(key) = all.of_mm(mm.address()) else {
        return;
    };
    let Ok(process) = all.living(key) else { return };
    let forker = core::mem::take(&mut process.forker);
    let threads = process.threads;
    drop(all);
    for at in threads.iter().filter(|at| forker != 0 && **at != 0) {
        change_thread(*at, u64::from(forker) << 32, [0, 0]);
    }
    tell_traces(key);
}
