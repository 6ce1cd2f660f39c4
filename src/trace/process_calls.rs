// SPDX-License-Identifier: GPL-2.0

//! System calls of traced processes: attaching, registering markers, counting mappings, and waiting
//! for room in buffers.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use trace_rules::abi::{self, flag, Marker, KEY_SHARED, NO_MARKER_NUMBER, NR_TRACES};

use crate::children;
use crate::ends::end_process;
use crate::log::log_refused_tracing;
use crate::marker::{MarkerMemory, RegisteredMarker};
use crate::marker_bits::set_marker_bit_for_all_traces;
use crate::membership::join_traces;
use crate::page::Page;
use crate::permission::recheck_or_remove_process;
use crate::process::Process;
pub(crate) use crate::process_memory::offset_within_range;
use crate::process_memory::{range_start, PlaceholderPage};
use crate::registry::{add_process, check_process_limit, with_room_for_process, Tracing, TRACING};
use crate::trace::Trace;
use base::access::Identity;
use base::account::is_limit_or_memory_error;
use base::address_space::{InodeMapping, Mm};
use base::{clock, cpu};

/// Maximum number of open files of the device through which one process is attached. Each copy of
/// the perftrace library in a process opens the device once.
const MAX_FILES_PER_PROCESS: u32 = 256;

/// The traced process that called `PERFTRACE_ATTACH` on an open file of the device.
pub(super) struct AttachedFile {
    pub(super) key: u64,
    pub(super) mm: Mm,
    /// The value of `perftrace_attach.thread`.
    pub(super) thread_offset: i64,
    /// A page that is mapped instead of a trace's buffers if the trace does not exist or does not
    /// trace the process. The page is also mapped in children that cannot be traced.
    pub(super) placeholder: Arc<PlaceholderPage>,
}

impl Drop for AttachedFile {
    fn drop(&mut self) {
        detach_file(self.key, self.thread_offset);
    }
}

/// The result of attaching a process: its key, the addresses of its mappings of the device, and its
/// placeholder page.
pub(crate) type AttachResult = (u64, [u64; 2], Arc<PlaceholderPage>);

/// Attaches the calling process, or adds a file to the process if the process is already attached.
/// May sleep.
///
/// # Errors
///
/// `EBUSY` if the file and the process's first file have different device nodes. `ENODEV` if the
/// module is about to be unloaded. `ENOSPC`, `EDQUOT` or `ENOMEM` if a limit is reached or memory
/// is short. `ENOSPC`, `EDQUOT` and `ENOMEM` are logged, and each trace that the process could have
/// joined counts them.
pub(crate) fn attach(mm: &Mm, mapping: InodeMapping, shared: bool) -> Result<AttachResult> {
    let attached = attach_without_counting_failures(mm, mapping, shared);
    if let Some(error) = attached
        .as_ref()
        .err()
        .filter(|error| is_limit_or_memory_error(**error))
    {
        let uid = Identity::of_current().uid;
        let mut all = TRACING.lock();
        let wanted = |trace: &&mut KBox<Trace>| trace.accepts_user(uid, shared);
        for trace in all.traces.iter_mut().filter(wanted) {
            trace.count_untraced();
        }
        drop(all);
        log_refused_tracing(false, *error);
    }
    attached
}

/// Attaches the calling process without counting failures. See [`attach`].
fn attach_without_counting_failures(
    mm: &Mm,
    mapping: InodeMapping,
    shared: bool,
) -> Result<AttachResult> {
    let key = match children::attach_and_get_current_key(mm) {
        Err(ESRCH) => {
            let mut all = TRACING.lock();
            all.check_not_unloading()?;
            check_process_limit(&all)?;
            let key = all.next_key;
            all.next_key = key.wrapping_add(1);
            key
        }
        own => {
            let key = own?;
            let mut all = TRACING.lock();
            let was_shared = all.live_process(key)?.can_join_shared;
            let joined = attach_further_file(&mut all, key, mapping, shared)?;
            drop(all);
            // If no earlier call for the process had `shared` set, the process can join shared
            // traces from this call on.
            if shared && !was_shared {
                join_traces(joined.0);
            }
            return Ok(joined);
        }
    };
    children::attach_probe()?;
    // Allocate the page of zeros before `TRACING` is taken, because waiting for memory may take
    // long.
    let mut zero_page = Some(Page::new()?);
    let process = Process::new(key, mm, mapping, shared)?;
    let nobodys = process.placeholder().ok_or(ESRCH)?.clone();
    let process = KBox::new(process, GFP_KERNEL_ACCOUNT)?;
    let joined = with_room_for_process(|all| {
        if let Some(key) = all.key_of_mm(mm.address()) {
            return attach_further_file(all, key, mapping, shared);
        }
        all.check_not_unloading()?;
        check_process_limit(all)?;
        if all.zero_page.is_none() {
            all.zero_page = zero_page.take();
        }
        add_process(all, process)?;
        Ok((key, [0, 0], nobodys))
    })?;
    join_traces(joined.0);
    Ok(joined)
}

/// Counts one more open file of an attached process.
///
/// # Errors
///
/// `EBUSY` if the file and the process's first file have different device nodes, `ENOSPC` if the
/// process has [`MAX_FILES_PER_PROCESS`] files already, `ENODEV` if the module is about to be
/// unloaded.
fn attach_further_file(
    all: &mut Tracing,
    key: u64,
    mapping: InodeMapping,
    shared: bool,
) -> Result<AttachResult> {
    all.check_not_unloading()?;
    let process = all.live_process(key)?;
    // All files of a process must have the same device node. The module unmaps pages of a process
    // through the device node of the process's first file, even after this file is closed.
    if !process.maps_device_node(mapping) {
        return Err(EBUSY);
    }
    if process.nr_files >= MAX_FILES_PER_PROCESS {
        return Err(ENOSPC);
    }
    let nobodys = process.placeholder().ok_or(ESRCH)?.clone();
    process.nr_files = process.nr_files.wrapping_add(1);
    process.can_join_shared |= shared;
    Ok((process.key, process.piece_addresses, nobodys))
}

/// Returns whether the address space of the process `key` is `mm`.
pub(crate) fn has_address_space(key: u64, mm: usize) -> bool {
    TRACING
        .lock()
        .process(key)
        .is_ok_and(|process| process.mm == mm)
}

/// Returns the offset in the device file at which the range of the process `key` begins.
pub(crate) fn process_range_offset(key: u64) -> u64 {
    let mut all = TRACING.lock();
    range_start(all.process(key).map_or(key, |process| process.range_key))
}

/// Records that the process `key` has added a mapping of the device at the address `at` or, if
/// `one_more` is false, has removed it. `piece` is the part of the device that is mapped: the
/// read-only pages or the buffers. `whole` is set if the mapping covers all read-only pages or all
/// buffers. When its last mapping is removed, the process counts as ended.
pub(crate) fn add_or_subtract_mapping(
    key: u64,
    piece: usize,
    at: u64,
    whole: bool,
    one_more: bool,
) {
    let mut all = TRACING.lock();
    let Ok(process) = all.process(key) else {
        return;
    };
    process.nr_mappings = match one_more {
        true => process.nr_mappings.saturating_add(1),
        false => process.nr_mappings.saturating_sub(1),
    };
    if let Some(known) = process.piece_addresses.get_mut(piece) {
        match one_more {
            // If `whole` is false, the kernel has split a mapping, and the new mapping is one of
            // the parts. After the split of a piece (the read-only pages or the buffers), no
            // mapping covers the whole piece any more.
            true => *known = if whole { at } else { 0 },
            false if *known == at => *known = 0,
            false => {}
        }
    }
    if process.nr_mappings == 0 {
        end_process(&mut all, key);
    }
}

/// Counts one more file of a copy of the perftrace library. The copy keeps its `struct
/// perftrace_thread` at the offset `at` from the thread pointer.
pub(crate) fn count_attached_library_file(key: u64, at: i64) {
    if let Ok(process) = TRACING.lock().live_process(key) {
        process.add_or_subtract_library_file(at, true);
    }
}

/// Records that a copy of the perftrace library has closed its file of the device. `thread_offset`
/// is the offset of the copy's `struct perftrace_thread`. When the last such file of a process is
/// closed, the process counts as ended.
pub(crate) fn detach_file(key: u64, thread_offset: i64) {
    let mut all = TRACING.lock();
    let Ok(process) = all.process(key) else {
        return;
    };
    process.add_or_subtract_library_file(thread_offset, false);
    process.nr_files = process.nr_files.saturating_sub(1);
    if process.nr_files == 0 {
        end_process(&mut all, key);
    }
}

/// Registers a marker of a process. Stores the number of the marker or the errno in `marker`. May
/// sleep.
pub(crate) fn register_marker(key: u64, marker: &mut Marker) -> Result {
    // `TRACING` is taken for each marker, so that other threads can take the lock between two
    // markers.
    let linked = RegisteredMarker::new(marker).and_then(|known| {
        let known = Arc::new(known, GFP_KERNEL_ACCOUNT)?;
        let mut room = MarkerMemory::default();
        let (number, new) = loop {
            let mut all = TRACING.lock();
            let process = all.live_process(key)?;
            match process.register_marker(&known, &mut room) {
                Err(error) if error == EAGAIN => {
                    let (nr, _) = process.nr_inherited_markers_and_bytes();
                    drop(all);
                    room = MarkerMemory::with_room_for_more_than(nr)?;
                }
                registered => break registered?,
            }
        };
        if new {
            set_marker_bit_for_all_traces(key, number, &known);
        }
        Ok(number)
    });
    if linked
        .as_ref()
        .is_err_and(|error| is_limit_or_memory_error(*error))
    {
        // Count the failure in the traces that could have recorded the marker's events.
        TRACING.lock().count_untraced(key);
    }
    (marker.number, marker.error) = match &linked {
        Ok(number) => (*number as u32, 0),
        Err(error) => (NO_MARKER_NUMBER, error.to_errno().unsigned_abs()),
    };
    linked.map(|_| ())
}

/// Removes one registration of a marker. Returns `EINVAL` if no marker with this number is
/// registered.
pub(crate) fn unregister_marker(key: u64, number: u32) -> Result {
    TRACING
        .lock()
        .live_process(key)?
        .unregister_marker(number as usize)
}

/// Wakes the reader of the trace in a slot, because the process's buffer of the CPU `cpu` has
/// unread data. Returns `ENOENT` if the buffer does not exist, for example because memory was
/// short.
pub(crate) fn notify_reader(key: u64, slot: u32, cpu: u32) -> Result {
    let mut all = TRACING.lock();
    if cpu >= cpu::nr_cpu_ids() {
        return Err(EINVAL);
    }
    let trace = all.trace_in_slot(slot as usize).ok_or(ENOENT)?;
    let member = trace.buffer_set(key).ok_or(ENOENT)?;
    let set = match trace.has_flag(flag::SHARED) {
        true => trace.buffer_set(KEY_SHARED).ok_or(ENOENT)?,
        false => member,
    };
    if !set.buffers.get(cpu as usize).is_some_and(Option::is_some) {
        return Err(ENOENT);
    }
    trace.signal.notify_reader();
    Ok(())
}

/// Waits until the reader has made room in a full buffer.
///
/// `tail` is the read position at which the buffer was full. The trace has a limit for the time
/// that a thread waits. This time begins with the first call that waits at the position `tail`. A
/// thread that repeats the call after a signal does not get more time.
///
/// # Errors
///
/// `EINVAL` if the trace was created without `flag::WAIT`, `ENOENT` if the buffer does not exist or
/// the trace's creator has lost the permission to read the process, `ETIMEDOUT`, `EINTR`, `ENOMEM`.
pub(crate) fn wait_for_room(key: u64, slot: u32, cpu: u32, tail: u64) -> Result {
    let (buffer, signal, end, id) = {
        let mut all = TRACING.lock();
        let trace = all.trace_in_slot(slot as usize).ok_or(ENOENT)?;
        if !trace.has_flag(flag::WAIT) {
            return Err(EINVAL);
        }
        let set = trace.buffer_set(key).ok_or(ENOENT)?;
        let buffer = set.buffers.get(cpu as usize).and_then(Option::as_ref);
        let buffer = buffer.ok_or(ENOENT)?.clone();
        trace.signal.notify_reader();
        let since = buffer.get_or_set_room_wait_start_ns(tail, clock::monotonic_ns());
        let end = match trace.wait_ms {
            u32::MAX => u64::MAX,
            ms => since.saturating_add(u64::from(ms).wrapping_mul(1_000_000)),
        };
        (buffer, trace.signal.clone(), end, trace.id)
    };
    let is_full = || buffer.read_position() == tail;
    // If another thread's wait for this position has timed out, do not wait again.
    if is_full() && clock::monotonic_ns() >= end {
        return Err(ETIMEDOUT);
    }
    recheck_or_remove_process(key, id, false)?;
    loop {
        let left = end.saturating_sub(clock::monotonic_ns());
        let some = left.min(PERMISSION_RECHECK_NS);
        if signal.wait_for_room(|| !is_full(), some)? {
            return Ok(());
        }
        if some == left {
            return Err(ETIMEDOUT);
        }
        recheck_or_remove_process(key, id, true)?;
    }
}

/// Interval, in nanoseconds, at which a thread that waits for room checks whether the trace's
/// creator still has the permission to read the thread's process.
const PERMISSION_RECHECK_NS: u64 = 1_000_000_000;

/// Returns the size in bytes of the area in which a process maps its buffers.
pub(crate) fn buffer_area_bytes() -> u64 {
    (u64::from(cpu::nr_cpu_ids()) << abi::BUFFER_STRIDE_SHIFT).wrapping_mul(NR_TRACES as u64)
}
