// SPDX-License-Identifier: GPL-2.0

//! Child processes of traced processes.
//!
//! A child of fork() inherits the markers of its parent. The child also inherits the parent's
//! mappings of the device, but with no pages mapped (`VM_WIPEONFORK`). A child of fork() becomes a
//! separate traced process when it first accesses a page of its mappings of the device or makes an
//! ioctl. The child need not open the device, whose node may be missing in the child's mount
//! namespace. When fork() copies the mappings, the child's task does not exist yet, so the child is
//! first recorded with the identity of its parent (see [`identify_and_get_leader`]).
//!
//! A child of vfork(), or of clone() with `CLONE_VM` but without `CLONE_THREAD`, shares its
//! parent's memory, including the `struct perftrace_thread` of the parent's thread. A child that
//! shares its parent's memory has no restartable sequence (rseq) registered, so this module marks
//! the shared `struct perftrace_thread` before the child runs.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVec};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;
use trace_rules::abi::THREAD_SHARED;
use trace_rules::sorted::MAX_VISITS_PER_LOCK_HOLD;

use crate::child_memory::ForkedChildMemory;
use crate::clock::trace_clock;
use crate::ends::end_process;
use crate::helpers;
use crate::membership::join_traces;
use crate::process::Process;
use crate::process_memory::{LiveProcess, ProcessPages};
use crate::registry::{add_process, check_process_limit, with_room_for_process, TRACING};
use crate::sorted::search;
use base::access::Identity;
use base::address_space::Mm;
use base::global_mutex;
use base::task::{for_each_task, Pid, TaskRef};
use base::tracepoint::{EventHandler, Probes, TaskNew};

global_mutex! {
    /// The tracepoint probe that reports new processes that share the memory of a traced process.
    /// While the mutex `SHARED_MEMORY_PROBE` is held, the kernel takes its tracepoint locks.
    /// `SHARED_MEMORY_PROBE` and `TRACING` are not nested.
    pub(crate) static SHARED_MEMORY_PROBE: Mutex<Option<Probes<SharedMemoryProbe>>> = None;
}

/// The probe that finds new processes that share the memory of another process. The probe is
/// attached when the first process attaches to the device.
pub(crate) struct SharedMemoryProbe;

impl EventHandler<TaskNew<'_>> for SharedMemoryProbe {
    fn handle_event(&self, event: TaskNew<'_>) {
        if event.shares {
            queue_shared_thread_mark(event.task);
        }
    }
}

/// Queues work that `task` does before it first enters user mode. `task` is a new child that shares
/// the memory of the current task and has not run yet.
#[expect(unsafe_code, reason = "a call of C")]
fn queue_shared_thread_mark(task: TaskRef<'_>) {
    // SAFETY: `task` is valid by the invariant of `TaskRef`, and the current task is creating it.
    unsafe { helpers::pt_queue_shared_thread(task.as_ptr()) }
}

/// Attaches the [`SharedMemoryProbe`] if it is not attached yet. Called before a process is traced.
/// May sleep.
pub(crate) fn attach_probe() -> Result {
    let mut sharing = SHARED_MEMORY_PROBE.lock();
    if sharing.is_none() {
        let mut probes = Probes::new(SharedMemoryProbe)?;
        probes.attach::<TaskNew<'_>>()?;
        *sharing = Some(probes);
    }
    Ok(())
}

/// Detaches the [`SharedMemoryProbe`] when the module is unloaded.
pub(crate) fn detach_probe() {
    *SHARED_MEMORY_PROBE.lock() = None;
}

/// Counts a child that shares the memory of a traced process, if the child's task work could not be
/// allocated. The events of a child without task work appear as events of its parent's thread.
#[expect(unsafe_code, reason = "called by C")]
#[no_mangle]
extern "C" fn pt_count_untraced(mm: usize) {
    let mut all = TRACING.lock();
    if let Some(key) = all.key_of_mm(mm) {
        all.count_untraced(key);
    }
}

/// Marks the `struct perftrace_thread` that the calling process shares with its parent. `parent` is
/// the id of the thread that created the child. Called in the child before the child enters user
/// mode.
#[expect(unsafe_code, reason = "called by C")]
#[no_mangle]
extern "C" fn pt_mark_shared_thread(parent: u32) {
    let Some(mm) = Mm::of_current() else { return };
    let mut all = TRACING.lock();
    let Some(key) = all.key_of_mm(mm.address()) else {
        return;
    };
    let Ok(copies) = all.live_process(key).map(|process| process.library_copies) else {
        return;
    };
    drop(all);
    let number = u64::from(parent) << 32;
    for (at, _) in copies.iter().filter(|(_, files)| *files != 0) {
        replace_tls_words_if_equal(*at, number, [0, number | THREAD_SHARED]);
    }
}

/// Stores `new` in two words of the current thread's thread-local storage. The words are at offset
/// `at` from the thread pointer. Does nothing if the second word (offset `at` + 8) is not `was`, or
/// if the memory is not accessible.
#[expect(unsafe_code, reason = "a call of C")]
fn replace_tls_words_if_equal(at: i64, was: u64, new: [u64; 2]) {
    // SAFETY: The caller is in process context and holds no lock, so user memory may be accessed.
    unsafe { helpers::pt_replace_thread_words(at, was, new[0], new[1]) }
}

/// Creates the child of a traced process when fork() copies one of the parent's mappings. Returns
/// the child's key, or 0 if the child cannot be traced. Called by the parent; may sleep.
pub(crate) fn create_forked_child(parent: u64, mm: usize) -> u64 {
    // The child may already be in the list of processes, because fork() calls this function for
    // each of the parent's two mappings. If the parent has ended, no child is created.
    let known = || {
        let mut all = TRACING.lock();
        let other = all.key_of_mm(mm);
        let parent = all
            .live_process(parent)
            .map(|parent| parent.nr_inherited_markers_and_bytes());
        other.map_or(parent.map_err(|_| 0), Err)
    };
    loop {
        let needs = match known() {
            Ok(needs) => needs,
            Err(key) => return key,
        };
        // Allocate the memory for the child while `TRACING` is not held.
        let room = ForkedChildMemory::new(needs).and_then(|room| {
            let place = KBox::<Process>::new_uninit(GFP_KERNEL_ACCOUNT)?;
            Ok((room, place))
        });
        match room.and_then(|(room, place)| insert_forked_child(parent, mm, room, place)) {
            // The parent has registered more markers since `needs` was read, so try again.
            Err(EAGAIN) => {}
            Err(_) => {
                TRACING.lock().count_untraced(parent);
                return 0;
            }
            Ok(key) => return key,
        }
    }
}

/// Adds a child to the lists of processes and of address spaces. Returns `EAGAIN` if the memory in
/// `room` is too small for the parent's markers.
fn insert_forked_child(
    parent: u64,
    mm: usize,
    room: ForkedChildMemory,
    place: KBox<core::mem::MaybeUninit<Process>>,
) -> Result<u64> {
    with_room_for_process(|all| {
        check_process_limit(all)?;
        let key = all.next_key;
        let parent = all.live_process(parent)?;
        if !room.has_room_for(parent.nr_inherited_markers_and_bytes()) {
            return Err(EAGAIN);
        }
        let child = parent.create_child(key, mm, room);
        all.next_key = key.wrapping_add(1);
        add_process(all, KBox::write(place, child))?;
        Ok(key)
    })
}

/// A child of fork() that still has the identity of its parent.
struct UnidentifiedChild {
    key: u64,
    /// The address of the child's address space.
    mm: usize,
    /// The leader of the oldest process with this address space, if the search has found one.
    leader: Option<ARef<Task>>,
}

/// Returns the leader of a traced process. If the process is a child of fork() that still has the
/// identity of its parent, this function first identifies the child. May sleep; the caller does not
/// hold `TRACING`.
///
/// # Errors
///
/// `ESRCH` if the process has ended, or if no task has its address space: fork() has not created
/// the child yet, or the process is exiting. `ENOMEM`.
pub(crate) fn identify_and_get_leader(key: u64) -> Result<ARef<Task>> {
    if TRACING.lock().live_process(key)?.has_parents_identity {
        identify_children_from_key(key)?;
    }
    let mut all = TRACING.lock();
    let process = all.live_process(key)?;
    let leader = process.leader().filter(|_| !process.has_parents_identity);
    Ok(leader.ok_or(ESRCH)?.clone())
}

/// Identifies the child of fork() with this key. The search for its leader visits all threads in
/// the system. Therefore the same search also identifies children among the
/// [`MAX_VISITS_PER_LOCK_HOLD`] processes from this key on, if they still have the identity of
/// their parents. A caller that gets the leaders of many children, one after the other, then needs
/// fewer searches.
///
/// # Errors
///
/// `ESRCH` if the process is exiting, `ENOMEM`.
fn identify_children_from_key(key: u64) -> Result {
    let mut children = unidentified_children_from_key(key)?;
    for_each_task(&mut |task| {
        let at = search(&children, task.mm_address() as u64, |c| c.mm as u64);
        if let Some(child) = at.ok().and_then(|at| children.get_mut(at)) {
            if child.leader.is_none() {
                child.leader = Some(task.leader());
            }
        }
    });
    for child in children {
        let Some(leader) = child.leader else { continue };
        let identified = identify_child(child.key, leader);
        if child.key == key {
            identified?;
        }
    }
    Ok(())
}

/// Returns the children of fork() that still have the identities of their parents, among
/// [`MAX_VISITS_PER_LOCK_HOLD`] processes from the key `from` on. The list is sorted by the
/// addresses of the address spaces.
fn unidentified_children_from_key(from: u64) -> Result<KVec<UnidentifiedChild>> {
    let capacity = MAX_VISITS_PER_LOCK_HOLD;
    let mut children = KVec::<UnidentifiedChild>::with_capacity(capacity, GFP_KERNEL_ACCOUNT)?;
    let collect = |process: &KBox<Process>| -> Option<()> {
        if process.has_parents_identity && !process.has_ended() {
            let (Ok(at) | Err(at)) = search(&children, process.mm as u64, |c| c.mm as u64);
            let child = UnidentifiedChild {
                key: process.key,
                mm: process.mm,
                leader: None,
            };
            let _ = children.insert_within_capacity(at, child);
        }
        None
    };
    let _ = TRACING.lock().search_processes(from, collect);
    Ok(children)
}

/// Gives a child of fork() the identity of the process whose leader is `leader`. The caller has
/// found the leader by the child's address space. Returns `ESRCH` if the process is exiting,
/// `ENOMEM`.
fn identify_child(key: u64, leader: ARef<Task>) -> Result {
    let who = Identity::of_task(&leader);
    let pid = Pid::of_process(&leader).ok_or(ESRCH)?;
    let live = LiveProcess::of_leader(leader)?;
    // If the process has not ended, its address space has existed since before the search. The
    // leader that was found with this address space is therefore the leader of the child.
    let mut all = TRACING.lock();
    all.live_process(key)?.identify_child(who, pid, live);
    Ok(())
}

/// Makes a child of fork() a separate traced process. Called when the child accesses a page of its
/// mappings or makes an ioctl. Returns true if this call has made the child a traced process: the
/// caller then has to call [`add_forked_child_to_traces`]. Called by the child itself; may sleep.
///
/// # Errors
///
/// `EFAULT` if a kernel thread accesses the page on behalf of the child, `ESRCH` if the child has
/// ended, `ENOMEM`, `EDQUOT`.
pub(crate) fn attach_forked_child_to_device(key: u64) -> Result<bool> {
    let markers = {
        let mut all = TRACING.lock();
        let process = all.live_process(key)?;
        if !process.is_unattached_child() {
            return Ok(false);
        }
        process.nr_inherited_markers_and_bytes().0
    };
    if TaskRef::of_task(current!()).is_kernel() {
        return Err(EFAULT);
    }
    let awake = ProcessPages::new(key, Some(markers), trace_clock())?;
    Ok(TRACING.lock().live_process(key)?.attach_as_child(awake))
}

/// Ends a child of fork() that cannot be traced, and counts the failure in the traces that could
/// have recorded the child's events.
pub(crate) fn end_untraceable_child(key: u64) {
    let mut all = TRACING.lock();
    all.count_untraced(key);
    end_process(&mut all, key);
}

/// Returns the key of the calling process, or `ESRCH` if the process is not traced. If the process
/// is a child of fork() and makes its first ioctl, this function first makes it a traced process.
pub(crate) fn attach_and_get_current_key(mm: &Mm) -> Result<u64> {
    let key = TRACING.lock().key_of_mm(mm.address()).ok_or(ESRCH)?;
    if attach_forked_child_to_device(key)? {
        add_forked_child_to_traces(mm);
    }
    Ok(key)
}

/// Clears each `struct perftrace_thread` that the calling process has inherited from its parent,
/// and then adds the process to traces. Called after [`attach_forked_child_to_device`] has returned
/// true. May sleep, and accesses user memory.
pub(crate) fn add_forked_child_to_traces(mm: &Mm) {
    let mut all = TRACING.lock();
    let Some(key) = all.key_of_mm(mm.address()) else {
        return;
    };
    let Ok(process) = all.live_process(key) else {
        return;
    };
    let forker = core::mem::take(&mut process.forker_tid);
    let copies = process.library_copies;
    drop(all);
    let known = |(_, files): &&(i64, u32)| forker != 0 && *files != 0;
    for (at, _) in copies.iter().filter(known) {
        let number = u64::from(forker) << 32;
        replace_tls_words_if_equal(*at, number, [0, 0]);
        // If the parent's thread has created a child by vfork() and has written no event since, its
        // structure still has the mark, and this process, which has its own memory, inherits it.
        replace_tls_words_if_equal(*at, number | THREAD_SHARED, [0, 0]);
    }
    join_traces(key);
}

#[expect(unsafe_code, reason = "called by C")]
#[no_mangle]
extern "C" fn pt_add_forked_child_to_traces() {
    if let Some(mm) = Mm::of_current() {
        add_forked_child_to_traces(&mm);
    }
}
