// SPDX-License-Identifier: GPL-2.0

//! System calls on files of `/dev/perftrace` that create, open, end, pause, list and read traces.

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::{filter, structure::FromBytes};
use trace_rules::abi::{
    self as abi, flag, Create, Describe, Info, KEY_KERNEL, KEY_SHARED, NR_TRACES,
};
use trace_rules::sorted::LimitedSearch;

use crate::buffer_set::BufferSetSums;
use crate::children;
use crate::clock;
use crate::ends::{begin_pass_and_remove_read, for_each_process_in_slot, free_trace_if_unused};
use crate::kernel_events::{KernelEvents, KERNEL_MARKERS};
use crate::lock_yielder::LockYielder;
use crate::marker;
use crate::marker_bits::set_all_marker_bits_of_process;
use crate::membership::add_joinable_processes;
use crate::page::Page;
use crate::permission::Caller;
use crate::process::Process;
use crate::reader_signal::ReaderSignal;
use crate::registry::{Tracing, TRACING};
use crate::sorted::{allocate_list_for_more_than, move_to_larger_list};
use crate::trace::{Trace, UnreadBuffer};
use base::access::{self, uid_in_caller_namespace};
use base::account::{Resource, ResourceCharge};
use base::clock::realtime_ns;
use base::module::ModuleRef;
use base::task::has_fatal_signal;
use base::tracepoint::Probes;

/// Limit for concurrent calls of [`open`] by one user without CAP_PERFMON.
const MAX_CONCURRENT_OPENS_PER_USER: usize = 8;

/// A file's reference to a trace. When no file refers to a trace any more, the trace ends, unless
/// the trace was created with `flag::KEEP`.
pub(crate) struct FileTraceRef {
    /// The id of the trace.
    pub(crate) id: u64,
    /// The unique number of this file. [`Trace::reader_file_id`] is the number of the file that
    /// reads the trace.
    file_id: u64,
    /// Wakes the readers of the trace.
    pub(crate) signal: Arc<ReaderSignal>,
}

impl Drop for FileTraceRef {
    fn drop(&mut self) {
        let ends = {
            let mut all = TRACING.lock();
            let Ok(trace) = all.trace(self.id) else {
                return;
            };
            trace.nr_files = trace.nr_files.wrapping_sub(1);
            if trace.reader_file_id == self.file_id {
                trace.reader_file_id = 0;
            }
            trace.nr_files == 0 && !trace.has_flag(flag::KEEP)
        };
        if ends {
            let _ = end(self.id);
        }
        free_trace_if_unused(self.id);
    }
}

impl Tracing {
    /// Creates a file's reference to a trace. The caller has counted the file in `Trace::nr_files`.
    fn trace_ref_for_counted_file(&mut self, id: u64, signal: Arc<ReaderSignal>) -> FileTraceRef {
        let file_id = self.id();
        FileTraceRef {
            id,
            file_id,
            signal,
        }
    }

    /// Returns the data of `PERFTRACE_INFO`, with the sums over the trace's buffers.
    fn info(&self, trace: &Trace, sums: &BufferSetSums) -> Info {
        let clock = clock::trace_clock();
        let info = trace.info(sums);
        let has_restarted = clock::nr_clock_restarts() != trace.nr_clock_restarts;
        let unstable = if clock.is_unstable() || has_restarted {
            flag::UNSTABLE
        } else {
            0
        };
        Info {
            flags: info.flags | unstable,
            slot: trace.state.slot().map_or(u32::MAX, |slot| slot as u32),
            uid: uid_in_caller_namespace(trace.owner),
            clock: clock.is_user_clock_monotonic().into(),
            khz: clock.khz,
            ticks: clock.now_by_user_readable_clock(),
            realtime: realtime_ns(),
            ..info
        }
    }
}

/// Opens a trace by its name: a trace of the caller or, with `CAP_PERFMON`, of any user.
///
/// # Errors
///
/// `ENOENT` if no such trace exists; `EPERM` if the security modules do not let the caller inspect
/// a task that has the credentials of the trace's creator; `EBUSY` if the user already has
/// [`MAX_CONCURRENT_OPENS_PER_USER`] concurrent calls of this function.
pub(crate) fn open(name: &[u8]) -> Result<(FileTraceRef, Info)> {
    let caller = Caller::new();
    let all = TRACING.lock();
    let has_name =
        |t: &&KBox<Trace>| t.state.is_active() && t.has_name(name) && caller.may_open_trace(t);
    let named = || all.traces.iter().filter(has_name);
    let own = named().find(|trace| trace.owner == caller.uid);
    let found = own.or(named().next()).ok_or(ENOENT)?;
    let (id, maker) = (found.id, found.creator_credentials());
    drop(all);
    if !caller.is_perfmon_capable {
        // Limit the concurrent calls of one user, because each call of check_access_to_cred_owner()
        // creates a kernel thread that exists until the call returns.
        let _asks = ResourceCharge::of_caller(
            Resource::PFC_PERMISSION_CHECKS,
            MAX_CONCURRENT_OPENS_PER_USER,
            EBUSY,
        )?;
        access::check_access_to_cred_owner(&maker)?;
    }
    let mut all = TRACING.lock();
    let trace = all.trace(id).map_err(|_| ENOENT)?;
    if !trace.state.is_active() {
        return Err(ENOENT);
    }
    trace.nr_files = trace.nr_files.wrapping_add(1);
    let signal = trace.signal.clone();
    let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
    // `PERFTRACE_OPEN` returns no sums over the buffers of the trace.
    let info = all.info(trace, &BufferSetSums::default());
    Ok((all.trace_ref_for_counted_file(id, signal), info))
}

/// Ends a trace. An ended trace can still be read. Returns `ENOENT` if the trace has already ended.
pub(crate) fn end(id: u64) -> Result {
    let mut all = TRACING.lock();
    all.trace(id)?;
    let (slot, going) = all.begin_end(id).ok_or(ENOENT)?;
    drop(all);
    for_each_process_in_slot(slot, |all, key| {
        all.remove_process_from_slot(key, slot);
        true
    });
    TRACING.lock().finish_end(id, slot);
    drop(going);
    Ok(())
}

/// Pauses or resumes a trace. A paused trace records no events. Returns `EINTR` if the caller is
/// killed before all processes are resumed: the trace is then paused again, so that it does not
/// record the events of some processes only.
pub(crate) fn set_paused(id: u64, pause: bool) -> Result {
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if trace.has_flag(flag::PAUSED) == pause {
        // Without this return, resuming a trace that is not paused would clear the markers' bits
        // for a moment and lose events.
        return Ok(());
    }
    trace.flags = match pause {
        true => trace.flags | flag::PAUSED,
        false => trace.flags & !flag::PAUSED,
    };
    if let Some(probes) = &trace.kernel_probes {
        probes.state().set_paused(pause);
    }
    let slot = trace.state.slot().unwrap_or(NR_TRACES);
    let end = all.next_key;
    drop(all);
    if pause {
        // Stop if a concurrent call has resumed or ended the trace, because that call updates the
        // marker bits of the trace's processes.
        for_each_process_in_slot(slot, |all, key| {
            let trace = all.traces.iter().find(|trace| trace.id == id);
            let paused =
                trace.is_some_and(|t| t.state.slot() == Some(slot) && t.has_flag(flag::PAUSED));
            if let (true, Ok(process)) = (paused, all.process(key)) {
                process.clear_slot_bits(slot);
            }
            paused
        });
        return Ok(());
    }
    let mut from = 0u64;
    let mut call = LockYielder::new();
    // Processes that attach during the call set the bits of their markers themselves.
    while from < end {
        if has_fatal_signal() {
            set_paused(id, true)?;
            return Err(EINTR);
        }
        let next = TRACING.lock().find_process_in_slot_from(from, slot);
        from = match next {
            LimitedSearch::Found(key) => {
                set_all_marker_bits_of_process(id, key, &mut call);
                key.wrapping_add(1)
            }
            LimitedSearch::From(key) => key,
            LimitedSearch::End => break,
        };
    }
    Ok(())
}

/// Returns the data of `PERFTRACE_INFO`. While the sums over the trace's buffers are computed,
/// `TRACING` is released again and again.
///
/// # Errors
///
/// `EINVAL` if no trace has the id `id`, `EINTR` if the caller is being killed.
pub(crate) fn info(id: u64) -> Result<Info> {
    let mut call = LockYielder::new();
    let (mut from, mut sums) = (0u64, BufferSetSums::default());
    loop {
        let all = TRACING.lock();
        let trace = all.traces.iter().find(|t| t.id == id).ok_or(EINVAL)?;
        match trace.add_buffer_set_sums(from, &mut sums) {
            Some(next) => from = next,
            None => return Ok(all.info(trace, &sums)),
        }
        drop(all);
        if has_fatal_signal() {
            return Err(EINTR);
        }
        call.sleep_if_busy();
    }
}

/// Searches the slots from `slot` on for a trace that the caller may open, and returns its data
/// (`PERFTRACE_INFO`). Returns `ENOENT` if no such trace exists, `EINTR` if the caller is being
/// killed.
pub(crate) fn next_trace(slot: u32) -> Result<Info> {
    let caller = Caller::new();
    for slot in slot as usize..NR_TRACES {
        let mut all = TRACING.lock();
        let trace = all
            .trace_in_slot(slot)
            .filter(|trace| caller.may_open_trace(trace));
        let Some(id) = trace.map(|trace| trace.id) else {
            continue;
        };
        drop(all);
        match info(id) {
            Ok(info) if info.slot as usize == slot => return Ok(info),
            Err(EINTR) => return Err(EINTR),
            // The trace has ended since it was found in the slot.
            _ => {}
        }
    }
    Err(ENOENT)
}

/// Returns the next buffer of a trace with unread data, in order of process keys and CPUs, after
/// the buffer of the process `key` and the CPU `cpu`. A call with the key 0 begins a new pass over
/// all buffers of the trace.
///
/// # Errors
///
/// `EBUSY` if another open file is the reader of the trace, `ENOENT` if no following buffer in the
/// order of keys and CPUs has unread data, `EINTR` if the caller is being killed.
pub(crate) fn next_unread_as_reader(
    held: &FileTraceRef,
    key: u64,
    cpu: u32,
) -> Result<UnreadBuffer> {
    let FileTraceRef { id, file_id, .. } = *held;
    let mut all = TRACING.lock();
    let trace = all.trace(id)?;
    if !trace.has_flag(flag::FLIGHT) {
        if trace.reader_file_id != 0 && trace.reader_file_id != file_id {
            return Err(EBUSY);
        }
        trace.reader_file_id = file_id;
    }
    if key == 0 {
        trace.signal.clear_pending();
    }
    drop(all);
    let mut call = LockYielder::new();
    if key == 0 {
        begin_pass_and_remove_read(id, &mut call);
    }
    let (mut key, mut cpu) = (key, cpu);
    while !has_fatal_signal() {
        let found = TRACING.lock().trace(id)?.next(key, cpu);
        match found {
            LimitedSearch::Found(unread) => return Ok(unread),
            LimitedSearch::From(next) => (key, cpu) = (next, u32::MAX),
            LimitedSearch::End => return Err(ENOENT),
        }
        call.sleep_if_busy();
    }
    Err(EINTR)
}

/// Returns whether a trace has ended, for poll().
pub(crate) fn has_ended(id: u64) -> bool {
    let all = TRACING.lock();
    let trace = all.traces.iter().find(|t| t.id == id);
    trace.is_none_or(|trace| trace.state.slot().is_none())
}

/// Returns the `struct perftrace_process` of a process in a trace, or `ENOENT` if the process is
/// not in the trace.
pub(crate) fn process_info_if_in_trace(id: u64, key: u64) -> Result<abi::Process> {
    let mut all = TRACING.lock();
    let nobody = abi::Process {
        key,
        ..abi::Process::ZERO
    };
    all.trace(id)?.buffer_set(key).ok_or(ENOENT)?;
    if key == KEY_KERNEL {
        return Ok(abi::Process {
            nr_markers: KERNEL_MARKERS.len() as u32,
            comm: *b"kernel\0\0\0\0\0\0\0\0\0\0",
            ..nobody
        });
    }
    if key == KEY_SHARED {
        return Ok(nobody);
    }
    Ok(process_info(all.process(key).map_err(|_| ENOENT)?))
}

/// Returns the `struct perftrace_process` of a process, even if the process is in no trace. Returns
/// `ENOENT` if no such process exists, the process has ended, or the caller may not trace the
/// process; `EINTR` or `ENOMEM` if the permission could not be checked.
pub(crate) fn process_info_if_traceable(key: u64) -> Result<abi::Process> {
    let may_trace = may_trace(&Caller::new(), key)?;
    let mut all = TRACING.lock();
    match all.live_process(key) {
        Ok(process) if may_trace => Ok(process_info(process)),
        _ => Err(ENOENT),
    }
}

/// Returns whether the caller may trace a process; false if the process has ended. Returns `EINTR`
/// or `ENOMEM` if the check could not be made. May sleep; the caller does not hold `TRACING`.
fn may_trace(caller: &Caller, key: u64) -> Result<bool> {
    match children::identify_and_get_leader(key) {
        Ok(leader) => caller.may_trace(&leader),
        Err(ESRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a `struct perftrace_process` from the state of a process.
fn process_info(process: &Process) -> abi::Process {
    abi::Process {
        key: process.key,
        pid: process.pid.number(),
        uid: uid_in_caller_namespace(process.identity.uid),
        flags: if process.has_ended() { abi::ENDED } else { 0 },
        nr_markers: process.markers.len() as u32,
        began: process.began,
        comm: process.identity.comm,
    }
}

/// Returns a marker of a process in a trace, or `ENOENT` if no such marker exists.
pub(crate) fn describe_marker(id: u64, key: u64, number: u32) -> Result<Describe> {
    let mut all = TRACING.lock();
    all.trace(id)?.buffer_set(key).ok_or(ENOENT)?;
    if key == KEY_KERNEL {
        let (name, fields) = KERNEL_MARKERS.get(number as usize).ok_or(ENOENT)?;
        return Ok(Describe {
            key,
            number,
            refs: 1,
            marker: marker::abi_marker(name, fields, number as usize),
        });
    }
    let process = all.process(key).map_err(|_| ENOENT)?;
    let known = process.markers.get(number as usize).ok_or(ENOENT)?;
    Ok(Describe {
        key,
        number,
        refs: process.nr_registrations(number as usize),
        marker: known.abi_marker(number as usize),
    })
}

/// Returns the first marker that the caller may trace. The search starts at marker `number` of
/// process `key`, and continues with the processes that have higher keys. Returns `ENOENT` if no
/// such marker exists, or `EINTR` if the caller is being killed.
///
/// Processes that attach during the call are not searched. If they were searched, the call would
/// not end while a program creates processes faster than the call searches them.
pub(crate) fn next_marker(key: u64, number: u32) -> Result<Describe> {
    let caller = Caller::new();
    let (mut key, mut number) = (key, number as usize);
    let end = TRACING.lock().next_key;
    let mut call = LockYielder::new();
    loop {
        if has_fatal_signal() {
            return Err(EINTR);
        }
        let found = TRACING.lock().next_marker_from(key, number);
        (key, number) = match found {
            LimitedSearch::Found(found) if found.key < end => {
                if may_trace(&caller, found.key)? {
                    return Ok(found);
                }
                // The caller may not trace this process, so continue with the next process.
                (found.key.wrapping_add(1), 0)
            }
            LimitedSearch::From(next) => (next, 0),
            _ => return Err(ENOENT),
        };
        call.sleep_if_busy();
    }
}

/// Creates and begins a trace. Returns a file's reference to the trace, and the slot of the trace.
/// May sleep.
///
/// # Errors
///
/// `EINVAL` for invalid arguments, `EEXIST` if the user has a trace with this name, `EBUSY` if no
/// slot is free or a quota is exhausted, `EDQUOT`, `ENOMEM`, or `ENODEV` if the module is about to
/// be unloaded. `EINTR` if the caller is killed before all running processes have joined the trace:
/// the trace is then ended, even with `flag::KEEP`. `EPERM` if the trace records kernel events or
/// processes of all users and the caller has no `CAP_PERFMON`.
pub(crate) fn create(create: &Create, filter: KVVec<u8>) -> Result<(FileTraceRef, usize)> {
    let page = match filter.is_empty() {
        true => None,
        false => {
            let mut page = Page::new()?;
            page.copy_to_start(&filter);
            Some(page)
        }
    };
    let id = TRACING.lock().id();
    let start_ticks = clock::trace_clock().now_by_user_readable_clock();
    let trace = Trace::new(id, create, page, start_ticks)?;
    let mut trace = KBox::new(trace, GFP_KERNEL_ACCOUNT)?;
    let globs = filter::text_before_nul(&create.markers).unwrap_or(b"");
    // Kernel events are selected only by globs that start with `kernel:`, not by `*`.
    let kernels = || {
        globs
            .split(|byte| *byte == b' ')
            .filter(|g| g.starts_with(b"kernel:"))
    };
    let wants = |name: &[u8]| kernels().any(|glob| filter::matches_glob(glob, name));
    // Declare `going`, which has the probes, before `TRACING` is taken. If the function fails, the
    // probes are then dropped after `TRACING` is released. A drop detaches the probes and waits
    // until none is running.
    let mut going = None;
    if kernels().next().is_some() {
        // Require `CAP_PERFMON`, because kernel events come from all tasks. perf's sysctl may allow
        // users without this capability to monitor the kernel, but only in their own threads.
        let may = access::is_perfmon_capable() && access::may_monitor_kernel();
        may.then_some(()).ok_or(EPERM)?;
        trace.add_kernel_buffers()?;
        going = Some(attach_kernel_probes(&trace, filter, &wants)?);
    }
    if let Some(probes) = &going {
        probes.state().set_paused(true);
    }
    let signal = trace.signal.clone();
    let mut room = KVVec::new();
    let mut all = loop {
        let mut all = TRACING.lock();
        let nr = all.traces.len();
        if all.traces.capacity() > nr {
            break all;
        }
        if room.capacity() > nr {
            move_to_larger_list(&mut all.traces, room);
            break all;
        }
        drop(all);
        room = allocate_list_for_more_than(nr)?;
    };
    all.check_not_unloading()?;
    let name = filter::text_before_nul(&create.name).ok_or(EINVAL)?;
    let same =
        |t: &KBox<Trace>| t.state.slot().is_some() && t.owner == trace.owner && t.has_name(name);
    if all.traces.iter().any(same) {
        return Err(EEXIST);
    }
    let (slot, shares) = all.find_slot_and_charge_quota()?;
    trace.quota = Some(shares);
    let paused = trace.has_flag(flag::PAUSED);
    trace.module_ref = trace.has_flag(flag::KEEP).then(ModuleRef::of_this_module);
    trace.kernel_probes = going.take();
    all.begin(trace, slot)?;
    if let Some(probes) = &all.trace(id)?.kernel_probes {
        probes.state().set_paused(paused);
    }
    let held = all.trace_ref_for_counted_file(id, signal);
    drop(all);
    if let Err(error) = add_joinable_processes(id) {
        let _ = end(id);
        return Err(error);
    }
    Ok((held, slot))
}

/// Attaches the probes of the kernel events for which `wants` returns true. The probes write to the
/// trace's buffers for kernel events.
fn attach_kernel_probes(
    trace: &Trace,
    filter: KVVec<u8>,
    wants: &dyn Fn(&[u8]) -> bool,
) -> Result<Probes<KernelEvents>> {
    let set = trace.buffer_set(KEY_KERNEL).ok_or(EINVAL)?;
    let mut buffers = KVec::with_capacity(set.buffers.len(), GFP_KERNEL)?;
    for buffer in &set.buffers {
        buffers.push(buffer.clone(), GFP_KERNEL)?;
    }
    KernelEvents::attach(buffers, filter, trace.signal.clone(), wants)
}
