// SPDX-License-Identifier: GPL-2.0

//! Child processes of traced processes.
//!
//! A child of fork() inherits its parent's mappings, which are empty in the child
//! (`VM_WIPEONFORK`), and its parent's markers. It becomes a traced process of its own when it
//! first accesses a page or makes a call. It needs no file and no name of the device, which may be
//! missing in its mount namespace.
//!
//! A child of vfork(), or of clone() with `CLONE_VM` but without `CLONE_THREAD`, shares its
//! parent's memory, including the `struct perftrace_thread` of the parent's thread. It has no
//! restartable sequence, so that structure is marked as shared before the child runs.

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

/// The probe that finds processes that share another process's memory. Attached when the first
/// process is traced.
pub(crate) struct Sharing;

impl Handler<TaskNew<'_>> for Sharing {
    fn on(&self, event: TaskNew<'_>) {
        if event.shares {
            event.task.shares_later();
        }
    }
}

/// Attaches the probe, before a process is traced. May sleep.
pub(crate) fn watch() -> Result {
    let mut sharing = SHARING.lock();
    if sharing.is_none() {
        let mut probes = Probes::new(Sharing)?;
        probes.attach::<TaskNew<'_>>()?;
        *sharing = Some(probes);
    }
    Ok(())
}

/// Detaches the probe when the module is unloaded.
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

/// Marks the `struct perftrace_thread` that the calling process shares with its parent. `parent` is
/// the number of the thread that created it. Called in the child before it runs.
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

/// Creates the child of a traced process when fork() copies one of its mappings. Returns the
/// child's key, or 0 if it cannot be traced. Called by the parent; may sleep.
pub(crate) fn inherit(parent: u64, mm: usize) -> u64 {
    // The child may exist already, from the mapping of the other piece. Without a living parent
    // there is no child.
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
        // Allocated without the lock.
        let room = Inheritance::new(needs).and_then(|room| {
            let place = KBox::<Process>::new_uninit(GFP_KERNEL_ACCOUNT)?;
            Ok((room, place))
        });
        match room.and_then(|(room, place)| born(parent, mm, room, place)) {
            // The parent has registered more markers meanwhile.
            Err(EAGAIN) => {}
            Err(_) => {
                TRACING.lock().miss(parent);
                return 0;
            }
            Ok(key) => return key,
        }
    }
}

/// Adds a child to the lists. Returns `EAGAIN` if `room` is too small for the parent.
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

/// Makes a child of fork() a traced process of its own, when it first accesses a page or makes a
/// call. Returns true if it did so: the caller then has to call [`begins`]. Called by the process
/// itself; may sleep.
///
/// # Errors
///
/// `EFAULT` if a kernel thread accesses the page on its behalf, `ESRCH` if it has ended, `ENOMEM`,
/// `EDQUOT`.
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

/// Ends a child that cannot be traced, and counts the failure in traces.
pub(crate) fn give_up(key: u64) {
    let mut all = TRACING.lock();
    all.miss(key);
    end_process(&mut all, key);
}

/// Returns the key of the calling process, also if it is a child that makes its first call. `ESRCH`
/// if it is not traced.
pub(crate) fn own(mm: &Mm) -> Result<u64> {
    let key = TRACING.lock().of_mm(mm.address()).ok_or(ESRCH)?;
    if wake(key)? {
        begins(mm);
    }
    Ok(key)
}

/// Announces the calling process to traces, after [`wake`]. Its thread data are first separated
/// from those that it has inherited. May sleep, and access user memory.
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
