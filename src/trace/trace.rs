// SPDX-License-Identifier: GPL-2.0

//! A trace: the rules for the processes that can join it, the events that it records, and its
//! buffers.
//!
//! ```text
//!   CREATE   begin           begin_end           finish_end         free_trace_if_unused
//!   -------> -----> active -----------> ending ------------> ended --------------------> freed
//! ```
//!
//! A trace that is active or ending has a slot. While a trace is ending, its processes are removed
//! one by one, and no process can join the trace. The buffers of a trace that has ended can be read
//! while files refer to the trace.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::cred::Credential;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use protocols::{filter, structure::FromBytes, trace_buffer::BufferRange};
use trace_rules::abi::{self, flag, Create, Info, KEY_KERNEL, KEY_SHARED};
use trace_rules::sorted::{search_limited, LimitedSearch};

use crate::buffer::Buffer;
use crate::buffer_set::{sets_per_lock_hold, BufferSet, BufferSetSums, LossCounts};
use crate::clock::nr_clock_restarts;
use crate::fault_memory::{BufferParams, FaultMemory, NeededMemory};
use crate::glob_cache::{GlobCache, TraceGlobs};
use crate::kernel_events::KernelEvents;
use crate::page::{Page, PAGE_SIZE};
use crate::process::{Process, Slot};
use crate::reader_signal::ReaderSignal;
use crate::sorted::{move_to_larger_list, search};
use base::access::Identity;
use base::account::{MemoryCharge, ResourceCharge};
use base::module::ModuleRef;
use base::tracepoint::Probes;
use base::{access, cpu};

/// Limits for the ended processes of one trace: bytes of memory, and number of processes. Above a
/// limit, the oldest ended processes are removed from the trace, even if their events were not
/// read.
const MAX_ENDED_PROCESS_BYTES: u64 = 64 << 20;
const MAX_ENDED_PROCESSES: u64 = 4096;

/// Flags that cannot be combined with `WAIT`. The buffer of a flight recorder is never full. A
/// trace that is kept without an open file may have no reader. In a shared trace, another process
/// could make a thread wait for ever.
const WAIT_CONFLICTING_FLAGS: u32 = flag::FLIGHT | flag::KEEP | flag::SHARED;

/// Default limit, in milliseconds, for the time that a thread waits for room in a full buffer.
const DEFAULT_WAIT_MS: u32 = 10_000;

/// Flags that cannot be combined, because processes of different users must not write into one
/// buffer.
const EXCLUSIVE_FLAGS: u32 = flag::SHARED | flag::ALL_USERS;

/// A buffer with unread data: the key of its process, its CPU, the buffer, the range of the unread
/// data, and the count of lost events.
pub(crate) type UnreadBuffer = (u64, u32, Arc<Buffer>, BufferRange, u64);

/// The state of a trace, with its slot.
#[derive(Clone, Copy)]
enum State {
    /// The trace has ended, or was just created.
    Slotless,
    Active(usize),
    Ending(usize),
}

/// The state of a trace.
pub(crate) struct TraceState(State);

impl TraceState {
    /// The state of a trace that was just created.
    pub(crate) const NEW: Self = Self(State::Slotless);

    /// Returns the slot of the trace, or `None` after the trace has ended.
    pub(crate) fn slot(&self) -> Option<usize> {
        match self.0 {
            State::Slotless => None,
            State::Active(slot) | State::Ending(slot) => Some(slot),
        }
    }

    /// Returns whether processes can join the trace.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.0, State::Active(_))
    }

    /// Puts a new trace into its slot.
    pub(crate) fn begin(&mut self, slot: usize) {
        self.0 = State::Active(slot);
    }

    /// Starts the end of the trace and returns its slot, or `None` if the trace is not active.
    pub(crate) fn begin_end(&mut self) -> Option<usize> {
        let State::Active(slot) = self.0 else {
            return None;
        };
        self.0 = State::Ending(slot);
        Some(slot)
    }

    /// Ends the trace, which gives up its slot.
    pub(crate) fn finish_end(&mut self) {
        self.0 = State::Slotless;
    }
}

/// A trace's part of the quotas of the user that created the trace.
pub(crate) struct TraceQuota {
    /// Counts the trace in `Resource::PFC_HELD_TRACES` until the trace is freed.
    pub(super) _charge_until_freed: ResourceCharge,
    /// Counts the trace in `Resource::PFC_TRACES` until the trace ends.
    pub(super) charge_until_ended: Option<ResourceCharge>,
}

/// A trace that is active, is ending, or has ended and is not freed yet.
pub(crate) struct Trace {
    /// The unique number of the trace, which is never used again.
    pub(crate) id: u64,
    /// The state of the trace, and its slot.
    pub(crate) state: TraceState,
    /// The count of the trace's ended processes, and the size in bytes of these processes and their
    /// buffers.
    nr_ended: u64,
    ended_bytes: u64,
    /// The flags given to `PERFTRACE_CREATE`, and `FILTERED` if the trace has a filter.
    pub(crate) flags: u32,
    /// Size in bytes of the memory for records in each buffer of the trace.
    pub(crate) buffer_bytes: u32,
    /// The id, in the initial namespace, of the user that created the trace.
    pub(crate) owner: u32,
    /// Limit, in milliseconds, for the time that a thread waits for room in a full buffer.
    pub(crate) wait_ms: u32,
    pub(crate) name: [u8; abi::MAX_NAME_BYTES],
    /// Globs that select the markers whose events the trace records.
    pub(crate) globs: [u8; abi::MAX_FIELDS_BYTES],
    /// The cache that stores which marker names match `globs`.
    pub(crate) glob_cache: GlobCache,
    /// The page with the filter program, which processes map. `None` if the trace has no filter.
    pub(crate) filter: Option<Page>,
    /// The time at which the trace was created, in ticks of the clock of traces.
    pub(crate) began: u64,
    /// Number of restarts of the clock before the trace was created.
    pub(crate) nr_clock_restarts: u64,
    /// True if the reader's last pass over all buffers is complete: `PERFTRACE_READ` has returned
    /// `ENOENT` since the pass began.
    is_pass_complete: bool,
    /// The buffer sets of the trace, sorted by the key of the process.
    pub(crate) sets: KVVec<BufferSet>,
    /// Keeps the module loaded while the trace is kept without an open file (`KEEP`).
    pub(crate) module_ref: Option<ModuleRef>,
    /// The probes of kernel events, or `None` if the trace records no kernel events.
    pub(crate) kernel_probes: Option<Probes<KernelEvents>>,
    /// Number of open files that refer to the trace.
    pub(crate) nr_files: u64,
    /// The number (`FileTraceRef`) of the open file that reads the trace. 0 if no file reads the
    /// trace.
    pub(crate) reader_file_id: u64,
    /// Wakes the trace's reader, and the threads that wait for room in a buffer.
    pub(crate) signal: Arc<ReaderSignal>,
    /// The counts of lost data of buffers that were freed.
    freed_losses: LossCounts,
    /// Number of ended processes that were removed although they had unread data.
    dropped: u64,
    /// Number of processes that were removed because the trace's creator had lost the permission to
    /// trace them, and of processes that could not join because the creator may not stop them.
    denied: u64,
    /// Number of processes, markers and buffers that could not be added because memory was short or
    /// a limit was reached. Failures to add a page to an existing buffer are counted in the buffer.
    nr_failures_to_add: u64,
    /// The charge for the memory of the trace and its buffer sets, without the buffers.
    charge: MemoryCharge,
    /// Counts the trace in the quotas of the user that created the trace. Set when the trace gets a
    /// slot.
    pub(crate) quota: Option<TraceQuota>,
}

impl Trace {
    /// Creates a trace that belongs to the caller and has no slot yet. Returns `EINVAL`, `EPERM`
    /// (`ALL_USERS` without `CAP_PERFMON`), `EDQUOT` or `ENOMEM`. May sleep.
    pub(crate) fn new(id: u64, create: &Create, filter: Option<Page>, began: u64) -> Result<Self> {
        let name = filter::text_before_nul(&create.name).ok_or(EINVAL)?;
        let globs = filter::text_before_nul(&create.markers).ok_or(EINVAL)?;
        if create.flags & !flag::ALL != 0
            || !filter::is_valid_name_without_colon(name)
            || !filter::is_valid_glob_list(globs)
            || (create.flags & flag::WAIT != 0 && create.flags & WAIT_CONFLICTING_FLAGS != 0)
            || create.flags & EXCLUSIVE_FLAGS == EXCLUSIVE_FLAGS
            || (create.flags & flag::WAIT == 0 && create.wait_ms != 0)
            || create.reserved != 0
        {
            return Err(EINVAL);
        }
        let bytes = match (create.bytes, create.flags & flag::SHARED) {
            (0, 0) => 16 << 10,
            (0, _) => 1 << 20,
            (bytes, _) => bytes,
        };
        let sizes = abi::MIN_BUFFER_BYTES..=abi::MAX_BUFFER_BYTES;
        if !bytes.is_power_of_two() || !sizes.contains(&bytes) {
            return Err(EINVAL);
        }
        if create.flags & flag::ALL_USERS != 0 && !access::is_perfmon_capable() {
            return Err(EPERM);
        }
        let page = if filter.is_some() { PAGE_SIZE } else { 0 };
        let charge = MemoryCharge::of_caller(size_of::<Self>().wrapping_add(page))?;
        let filtered = if filter.is_some() { flag::FILTERED } else { 0 };
        Ok(Self {
            id,
            state: TraceState::NEW,
            nr_ended: 0,
            ended_bytes: 0,
            flags: create.flags | filtered,
            buffer_bytes: bytes,
            owner: Identity::of_current().uid,
            wait_ms: match create.wait_ms {
                0 => DEFAULT_WAIT_MS,
                ms => ms,
            },
            name: create.name,
            globs: create.markers,
            glob_cache: GlobCache::default(),
            filter,
            began,
            nr_clock_restarts: nr_clock_restarts(),
            is_pass_complete: false,
            sets: KVVec::new(),
            module_ref: None,
            kernel_probes: None,
            nr_files: 1,
            reader_file_id: 0,
            signal: ReaderSignal::new()?,
            freed_losses: LossCounts::default(),
            dropped: 0,
            denied: 0,
            nr_failures_to_add: 0,
            charge,
            quota: None,
        })
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the credentials with which permission to trace a process is checked.
    pub(crate) fn creator_credentials(&self) -> ARef<Credential> {
        self.charge.user().clone()
    }

    /// Returns whether `name` is the name of the trace.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        filter::text_before_nul(&self.name) == Some(name)
    }

    /// Returns whether a process is in the trace and has not ended.
    pub(crate) fn has_live(&self, process: &Process) -> bool {
        self.state
            .slot()
            .is_some_and(|slot| process.is_in_slot(slot))
            && !process.has_ended()
    }

    /// Returns whether a process is not in the trace and can join it. The caller checks whether the
    /// trace's creator may trace the process.
    pub(crate) fn may_join(&self, process: &Process) -> bool {
        !self.has_live(process) && self.accepts_process(process) && !process.is_unattached_child()
    }

    /// Returns whether a process can join the trace now or at its first access to its mappings.
    pub(crate) fn accepts_process(&self, process: &Process) -> bool {
        self.accepts_user(process.identity.uid, process.can_join_shared) && !process.has_ended()
    }

    /// Returns whether a process of the user `uid` can join the trace. `shared` is set if the
    /// process can also join shared traces.
    pub(crate) fn accepts_user(&self, uid: u32, shared: bool) -> bool {
        let user = self.has_flag(flag::ALL_USERS) || uid == self.owner;
        self.state.is_active() && user && (shared || !self.has_flag(flag::SHARED))
    }

    /// Counts a process or a marker that could not be traced, because memory was short, a limit was
    /// reached, or the permission to trace the process could not be checked.
    pub(crate) fn count_untraced(&mut self) {
        self.nr_failures_to_add = self.nr_failures_to_add.wrapping_add(1);
    }

    /// Counts a process that is not in the trace, because the trace's creator may not trace or stop
    /// it. A process is counted once.
    pub(crate) fn count_denied_process(&mut self, process: &mut Process) {
        if process.denying_traces.record(self.state.slot(), self.id) {
            self.denied = self.denied.wrapping_add(1);
        }
    }

    /// Returns a copy of the globs of the trace.
    pub(crate) fn trace_globs(&self) -> TraceGlobs {
        TraceGlobs::new(self.id, self.globs, self.has_flag(flag::PAUSED))
    }

    /// Removes a process that the trace's creator may not trace any more, with the process's unread
    /// data.
    pub(crate) fn remove_denied_process(&mut self, process: &mut Process) {
        if let Some(place) = self.set_index(process.key) {
            self.remove(place);
        }
        self.count_denied_process(process);
    }

    /// Returns the contents of the trace's slot in the control page of a process.
    pub(crate) fn control_slot(&self, generation: u32) -> Slot {
        Slot {
            generation,
            flags: self.flags,
            mask: self.buffer_bytes.wrapping_sub(1),
            wait_ms: match self.has_flag(flag::WAIT) {
                true => self.wait_ms,
                false => 0,
            },
        }
    }

    /// Creates the trace's buffers for kernel events, with all their pages, because probes cannot
    /// allocate memory. May sleep.
    pub(crate) fn add_kernel_buffers(&mut self) -> Result {
        let mut set = BufferSet::new(KEY_KERNEL, cpu::nr_cpu_ids())?;
        let flight = self.has_flag(flag::FLIGHT);
        let records = self.buffer_bytes as usize;
        let all_bytes = Buffer::bytes_without_records(self.buffer_bytes).wrapping_add(records);
        for (place, cpu) in set.buffers.iter_mut().zip(0u32..u32::MAX) {
            if cpu::is_possible(cpu) {
                let charge = self.charge.charge_same_user(all_bytes)?;
                let buffer = Buffer::new(self.buffer_bytes, flight, charge)?;
                buffer.allocate_all_pages()?;
                *place = Some(Arc::new(buffer, GFP_KERNEL_ACCOUNT)?);
            }
        }
        let bytes = set.memory_without_buffers();
        let mut charge = self.charge.charge_same_user(bytes)?;
        self.sets.push(set, GFP_KERNEL_ACCOUNT)?;
        self.charge.absorb(&mut charge);
        Ok(())
    }

    /// Returns the parameters with which buffers of the trace are allocated.
    pub(crate) fn buffer_params(&self) -> BufferParams {
        BufferParams {
            trace: self.id,
            bytes: self.buffer_bytes,
            flight: self.has_flag(flag::FLIGHT),
            payer: self.charge.empty_for_same_user(),
        }
    }

    /// Returns the memory charge of the trace, which belongs to the user that created the trace.
    pub(crate) fn memory_charge(&self) -> &MemoryCharge {
        &self.charge
    }

    /// Returns the index in `sets` of the buffer set with the key `key`, or `None`.
    fn set_index(&self, key: u64) -> Option<usize> {
        search(&self.sets, key, |set| set.key).ok()
    }

    /// Returns the buffer set with the key `key`, or `None` if the trace has no such set.
    pub(crate) fn buffer_set(&self, key: u64) -> Option<&BufferSet> {
        self.sets.get(self.set_index(key)?)
    }

    /// Makes sure that the trace has a buffer set for `key`. If the set does not exist, it is taken
    /// from `spare`. If `spare` has no memory for the buffer set, the error names the memory that
    /// the caller has to allocate.
    fn ensure_buffer_set(&mut self, key: u64, spare: &mut FaultMemory) -> Result<(), NeededMemory> {
        let Err(place) = search(&self.sets, key, |set| set.key) else {
            return Ok(());
        };
        let nr = self.sets.len();
        if nr == self.sets.capacity() {
            if spare.set_list.capacity() <= nr {
                return Err(NeededMemory::SetList(nr));
            }
            move_to_larger_list(&mut self.sets, core::mem::take(&mut spare.set_list));
        }
        let (mut set, mut charge) = spare.set.take().ok_or(NeededMemory::BufferSet)?;
        set.key = key;
        let done = self.sets.insert_within_capacity(place, set);
        done.map_err(|_| NeededMemory::BufferSet)?;
        self.charge.absorb(&mut charge);
        self.signal.notify_reader();
        Ok(())
    }

    /// Returns the address of page `number` of a process's buffer in the trace. A missing buffer or
    /// page is taken from `spare`. Returns `None` if the buffer cannot have the page `number`. If
    /// `spare` has no memory for the buffer or page, the error names the memory that the caller has
    /// to allocate.
    pub(crate) fn page_or_insert_spare(
        &mut self,
        key: u64,
        cpu: usize,
        number: usize,
        spare: &mut FaultMemory,
    ) -> Result<Option<usize>, NeededMemory> {
        if number > self.buffer_bytes as usize / PAGE_SIZE {
            return Ok(None);
        }
        let shared = self.has_flag(flag::SHARED);
        if shared {
            // In a shared trace, each process also has an empty buffer set. The empty set keeps the
            // process and its markers for as long as the shared buffers may have records of the
            // process.
            self.ensure_buffer_set(key, spare)?;
        }
        let key = if shared { KEY_SHARED } else { key };
        self.ensure_buffer_set(key, spare)?;
        let sets = &mut self.sets;
        let at = search(sets, key, |set| set.key).map_err(|_| NeededMemory::BufferSet)?;
        let Some(place) = sets.get_mut(at).and_then(|set| set.buffers.get_mut(cpu)) else {
            return Ok(None);
        };
        if place.is_none() {
            // Writers first access page 0, which has the counts of the buffer. If page 0 could not
            // be allocated, no other page is needed, because records cannot be found without the
            // counts.
            if number != 0 {
                return Ok(None);
            }
            *place = Some(spare.buffer.take().ok_or(NeededMemory::Buffer)?);
        }
        let page = place
            .as_ref()
            .and_then(|b| b.page_or_insert_spare(number, &mut spare.page));
        page.map(Some).ok_or(NeededMemory::Page)
    }

    /// Counts a page fault that could not allocate the page of a buffer, so that events are lost.
    pub(crate) fn count_alloc_failure(&mut self, key: u64, cpu: usize) {
        let shared = self.has_flag(flag::SHARED);
        let set = self.buffer_set(if shared { KEY_SHARED } else { key });
        match set.and_then(|set| set.buffers.get(cpu)?.as_ref()) {
            Some(buffer) => buffer.count_alloc_failure(),
            None => self.nr_failures_to_add = self.nr_failures_to_add.wrapping_add(1),
        }
    }

    /// Searches for the next buffer of the trace with unread data, in order of process keys and
    /// CPUs, after the buffer of process `key` and CPU `cpu`. If `cpu` is `u32::MAX`, the search
    /// begins with the first buffer of process `key`. If the result is `End`, the reader's pass
    /// over all buffers is complete.
    pub(crate) fn next(&mut self, key: u64, cpu: u32) -> LimitedSearch<UnreadBuffer> {
        let unread = |set: &BufferSet| {
            let mut buffers = set.buffers.iter().zip(0u32..u32::MAX);
            buffers.find_map(|(place, number)| {
                let after = set.key > key || cpu == u32::MAX || number > cpu;
                let buffer = place.as_ref().filter(|_| after)?;
                let span = buffer.unread_or_lost_range()?;
                let lost = buffer.check_and_get_lost_count();
                Some((set.key, number, buffer.clone(), span, lost))
            })
        };
        let found = search_limited(&self.sets, key, sets_per_lock_hold(), |set| set.key, unread);
        if matches!(found, LimitedSearch::End) {
            self.is_pass_complete = true;
        }
        found
    }

    /// Removes and returns the buffer set at an index of `sets`.
    fn remove(&mut self, place: usize) -> Option<BufferSet> {
        let set = self.sets.remove(place).ok()?;
        self.freed_losses.add(&set);
        self.charge.uncharge(set.memory_without_buffers());
        if let Some(bytes) = set.total_bytes_if_ended() {
            self.nr_ended = self.nr_ended.wrapping_sub(1);
            self.ended_bytes = self.ended_bytes.wrapping_sub(bytes);
        }
        Some(set)
    }

    /// Begins the reader's next pass over all buffers. Returns whether its last pass is complete.
    pub(crate) fn begin_read_pass(&mut self) -> bool {
        core::mem::take(&mut self.is_pass_complete)
    }

    /// Searches for the buffer set of an ended process whose data were all read, from the key
    /// `from` on, and removes the set. Called when the reader begins a pass over all buffers.
    /// `was_complete` is the result of [`begin_read_pass`](Self::begin_read_pass).
    pub(crate) fn take_completely_read_set(
        &mut self,
        from: u64,
        was_complete: bool,
    ) -> LimitedSearch<BufferSet> {
        if self.has_flag(flag::FLIGHT) || self.nr_ended == 0 {
            return LimitedSearch::End;
        }
        let is_shared = self.has_flag(flag::SHARED);
        let (Ok(at) | Err(at)) = search(&self.sets, from, |set| set.key);
        let end = at.wrapping_add(sets_per_lock_hold());
        for place in at..end {
            let Some(set) = self.sets.get_mut(place) else {
                return LimitedSearch::End;
            };
            if !set.test_read_and_begin_pass(is_shared, was_complete) {
                continue;
            }
            let next = set.key.wrapping_add(1);
            return match self.remove(place) {
                Some(set) => LimitedSearch::Found(set),
                None => LimitedSearch::From(next),
            };
        }
        let next = self.sets.get(end);
        next.map_or(LimitedSearch::End, |set| LimitedSearch::From(set.key))
    }

    /// Counts an ended process and its memory: the process's buffers, and `bytes` for its other
    /// state.
    pub(crate) fn count_ended_process(&mut self, key: u64, bytes: u64) {
        let Some(set) = self.set_index(key).and_then(|at| self.sets.get_mut(at)) else {
            return;
        };
        if set.ended_state_bytes.is_none() {
            set.ended_state_bytes = Some(bytes);
            self.nr_ended = self.nr_ended.wrapping_add(1);
            let ended_bytes = set.total_bytes_if_ended().unwrap_or(0);
            self.ended_bytes = self.ended_bytes.wrapping_add(ended_bytes);
        }
    }

    /// If the trace's ended processes exceed [`MAX_ENDED_PROCESSES`] or
    /// [`MAX_ENDED_PROCESS_BYTES`], removes the oldest of them from the trace and returns its key.
    pub(crate) fn drop_oldest_if_over_limit(&mut self) -> Option<u64> {
        if self.ended_bytes <= MAX_ENDED_PROCESS_BYTES && self.nr_ended <= MAX_ENDED_PROCESSES {
            return None;
        }
        // The first element is the oldest process: `sets` is sorted by key, and later processes
        // have higher keys.
        let has_ended = |set: &&BufferSet| set.ended_state_bytes.is_some();
        let key = self.sets.iter().find(has_ended)?.key;
        self.drop_process(key);
        Some(key)
    }

    /// Removes an ended process, even if it has unread data, because the process would exceed the
    /// limits of the trace's user.
    pub(crate) fn drop_process(&mut self, key: u64) {
        if let Some(place) = self.set_index(key) {
            self.remove(place);
            self.dropped = self.dropped.wrapping_add(1);
        }
    }

    /// Adds the next buffer sets to `sums`, from the key `from` on. Returns the key from which to
    /// continue, or `None` after the last set. The first call, with `from` 0, also adds the losses
    /// of the sets that were removed from the trace.
    ///
    /// `sums` may lack the losses of a set that is removed between two calls, but never has them
    /// twice.
    pub(crate) fn add_buffer_set_sums(&self, from: u64, sums: &mut BufferSetSums) -> Option<u64> {
        if from == 0 {
            sums.losses = self.freed_losses;
        }
        let add = |set: &BufferSet| -> Option<()> {
            sums.add(set);
            None
        };
        match search_limited(&self.sets, from, sets_per_lock_hold(), |set| set.key, add) {
            LimitedSearch::From(key) => Some(key),
            _ => None,
        }
    }

    /// Returns the data of `PERFTRACE_INFO`, with the sums over all buffer sets. The caller fills
    /// in the clocks and the slot.
    pub(crate) fn info(&self, sums: &BufferSetSums) -> Info {
        Info {
            size: size_of::<Info>() as u32,
            flags: self.flags,
            bytes: self.buffer_bytes,
            nr_cpus: cpu::nr_cpu_ids(),
            uid: self.owner,
            began: self.began,
            nr_processes: sums.nr_processes,
            memory: sums.memory,
            lost: sums.losses.lost,
            cut: sums.losses.discarded_bytes,
            dropped: self.dropped,
            denied: self.denied,
            no_memory: sums.losses.no_memory.wrapping_add(self.nr_failures_to_add),
            name: self.name,
            markers: self.globs,
            ..Info::ZERO
        }
    }
}
