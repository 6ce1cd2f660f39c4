// SPDX-License-Identifier: GPL-2.0

//! Traced processes: their markers, and the pages from which a process learns the markers whose
//! events it has to write.
//!
//! ```text
//!    ATTACH             end            take_unreferenced_process
//!   --------> attached -----> ended ---------------------------> freed
//!                ^
//!    fork()      | attach_as_child
//!   --------> unattached: a child that has not accessed its mappings yet
//! ```
//!
//! An attached process has a mapping and pages (`control`). A process that has ended has no mapping
//! and no pages; its markers are kept while a trace has buffers of the process.

use core::cmp::Ordering;

use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::task::Task;
use trace_rules::abi::{self, flag, Control, NR_MARKERS, NR_TRACES};

use crate::child_memory::ForkedChildMemory;
use crate::clock::trace_clock;
use crate::marker::{MarkerMemory, RegisteredMarker};
use crate::page::{Page, PAGE_SIZE};
use crate::process_memory::{
    count_process_of_caller, max_processes_per_user, range_start, DenyingTraces, LiveProcess,
    PlaceholderPage, ProcessPages, NR_MARKER_PAGES, WORDS_PER_PAGE,
};
use crate::sorted::move_to_larger_list;
use base::access::{AccessTargetSnapshot, Identity};
use base::account::{MemoryCharge, Resource, ResourceCharge};
use base::address_space::{InodeMapping, Mm};
use base::cpu;
use base::task::{self, Pid};

/// Index of the first word of the trace slots in the control page, and number of words per slot.
const SLOTS_FIRST_WORD: usize = size_of::<Control>() / 4;
const WORDS_PER_SLOT: usize = 4;

/// A slot of the control page, which describes a trace to the process.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Generation of the slot: odd while the slot has a trace, and different for each trace.
    pub(crate) generation: u32,
    /// Flags of the trace; the process sees only the flags in `PROCESS_VISIBLE`.
    pub(crate) flags: u32,
    /// Size of a buffer's memory for records, in bytes, minus 1.
    pub(crate) mask: u32,
    /// Limit, in milliseconds, for the time that a thread waits for room in a full buffer. 0 if
    /// threads do not wait.
    pub(crate) wait_ms: u32,
}

/// Maximum number of copies of the perftrace library in one process for which the offset of `struct
/// perftrace_thread` is recorded.
const MAX_RECORDED_LIBRARY_COPIES: usize = 4;
/// The copies of the perftrace library in a process. Each element has the offset from the thread
/// pointer to `struct perftrace_thread`, and the number of files by which the copy has attached. An
/// unused element has 0 files.
pub(crate) type LibraryCopies = [(i64, u32); MAX_RECORDED_LIBRARY_COPIES];

/// A process that is traced, or that has ended and is still in a trace.
pub(crate) struct Process {
    /// The unique number of the process, which is never used again.
    pub(crate) key: u64,
    /// The user and the name of the process.
    pub(crate) identity: Identity,
    /// The thread-group ID of the process.
    pub(crate) pid: Pid,
    /// The address of the process's `mm_struct`, only used for comparison.
    pub(crate) mm: usize,
    /// The key that selects the range of the process in the device file. If the process has
    /// attached itself, `range_key` is equal to `key`. A child of fork() has its parent's
    /// `range_key`.
    pub(crate) range_key: u64,
    /// The copies of the perftrace library in the process.
    pub(crate) library_copies: LibraryCopies,
    /// The thread id in the `struct perftrace_thread` that the process inherited at fork(): the id
    /// of the thread that called fork(), in the thread's PID namespace. 0 if the structure was
    /// cleared, or if the parent was not a traced process.
    pub(crate) forker_tid: u32,
    /// True for a child of fork() whose `identity`, `pid` and `leader_and_access` are those of
    /// its parent, because the child did not exist yet when they were recorded.
    pub(crate) has_parents_identity: bool,
    /// The thread-group leader, and its credentials and dumpability at the last permission check.
    /// `Tracing::choose_traces_keeping_ended` sets `leader_and_access` to `None` when the process
    /// has ended: the leader's task, signals and credentials need more memory than all other
    /// fields.
    leader_and_access: Option<LiveProcess>,
    /// Bit mask of the slots whose traces the process is in.
    slot_mask: u32,
    /// The traces that have counted the process in `denied`.
    pub(crate) denying_traces: DenyingTraces,
    /// Bit mask of the slots for which the process may have pages mapped.
    mapped_slot_mask: u32,
    /// The device node whose pages the process maps, or `None` after the process has ended.
    mapping: Option<InodeMapping>,
    /// True if the process was attached with `PERFTRACE_SHARED` and can join shared traces too.
    pub(crate) can_join_shared: bool,
    /// True if the process was asked to detach from the module.
    pub(crate) is_detaching: bool,
    /// The time at which the process was first traced, in ticks of the clock of traces.
    pub(crate) began: u64,
    /// Number of open files of the device through which the process is attached.
    pub(crate) nr_files: u32,
    /// Number of mappings of the device in the process.
    pub(crate) nr_mappings: u32,
    /// The addresses of the mappings of all read-only pages and of all buffers, or 0.
    pub(crate) piece_addresses: [u64; 2],
    /// The markers of the process, by number.
    pub(crate) markers: KVVec<Arc<RegisteredMarker>>,
    /// The number of registrations of each marker. A marker whose registrations were all removed
    /// stays in the list with the count 0, because records may still refer to the marker.
    registration_counts: KVVec<u32>,
    /// The numbers of the markers, sorted by the markers' names and fields. With 4,096 markers, the
    /// sorted list keeps the search for a marker short while `TRACING` is held.
    sorted_marker_numbers: KVVec<u16>,
    /// The control page of the process. `control` and `marker_word_pages` are `None` after the
    /// process has ended, and in a child of fork() that has not accessed its mappings yet.
    control: Option<Page>,
    /// The pages of marker words, one 32-bit word for each marker: bit t of the word is set if the
    /// trace in slot t records the marker's events.
    marker_word_pages: [Option<Page>; NR_MARKER_PAGES],
    /// The placeholder page of the process. A child of fork() gets a placeholder page of its own,
    /// because the child must not see data of the parent.
    placeholder: Option<Arc<PlaceholderPage>>,
    /// The charge for the memory of the process's state, markers and pages.
    charge: MemoryCharge,
    /// Counts the process in a user's quota of processes. After the process has ended, this user is
    /// the owner of the trace that keeps the process. `None` if the process will be dropped.
    process_count_charge: Option<ResourceCharge>,
}

impl Process {
    /// Number of bytes that are charged for a process without markers.
    const BYTES_WITHOUT_MARKERS: usize = size_of::<Self>().saturating_add(2 * PAGE_SIZE);

    /// Creates the state of the calling process, or returns `ENOSPC`, `EDQUOT`, `ESRCH` or
    /// `ENOMEM`. May sleep.
    pub(crate) fn new(key: u64, mm: &Mm, mapping: InodeMapping, shared: bool) -> Result<Self> {
        let process_count_charge = count_process_of_caller()?;
        let awake = ProcessPages::new(key, None, trace_clock())?;
        let bytes = Self::BYTES_WITHOUT_MARKERS.wrapping_add(awake.pid.allocated_bytes());
        let charge = MemoryCharge::of_caller(bytes)?;
        Ok(Self {
            key,
            identity: awake.identity,
            pid: awake.pid,
            mm: mm.address(),
            mapping: Some(mapping),
            can_join_shared: shared,
            is_detaching: false,
            began: awake.began,
            nr_files: 1,
            nr_mappings: 0,
            piece_addresses: [0, 0],
            markers: KVVec::new(),
            registration_counts: KVVec::new(),
            range_key: key,
            library_copies: [(0, 0); MAX_RECORDED_LIBRARY_COPIES],
            forker_tid: 0,
            has_parents_identity: false,
            leader_and_access: Some(awake.leader_and_access),
            slot_mask: 0,
            denying_traces: DenyingTraces::default(),
            mapped_slot_mask: 0,
            sorted_marker_numbers: KVVec::new(),
            control: Some(awake.control),
            charge,
            process_count_charge: Some(process_count_charge),
            marker_word_pages: awake.marker_word_pages,
            placeholder: Some(awake.placeholder),
        })
    }

    /// Returns the numbers of markers and of charged bytes that a child of fork() inherits.
    pub(crate) fn nr_inherited_markers_and_bytes(&self) -> (usize, usize) {
        (self.markers.len(), self.charge.bytes())
    }

    /// Creates the state of a child of fork() in the memory `room`, with the current markers of its
    /// parent. `room` is large enough. The child has no pages until it accesses its mappings.
    pub(crate) fn create_child(&self, key: u64, mm: usize, room: ForkedChildMemory) -> Self {
        let mut child = Self {
            key,
            identity: self.identity,
            pid: room.parent_pid,
            mm,
            mapping: self.mapping,
            can_join_shared: self.can_join_shared,
            is_detaching: false,
            began: self.began,
            nr_files: 1,
            nr_mappings: 0,
            piece_addresses: [0, 0],
            markers: room.markers,
            registration_counts: room.registration_counts,
            range_key: self.range_key,
            library_copies: self.library_copies,
            // If the parent is a child of fork() whose `struct perftrace_thread` is not cleared
            // yet, the new child inherits the same thread id as the parent.
            forker_tid: match self.forker_tid {
                0 => task::current_tid_in_own_namespace(),
                inherited => inherited,
            },
            has_parents_identity: true,
            leader_and_access: Some(room.parent_leader_and_access),
            slot_mask: 0,
            denying_traces: DenyingTraces::default(),
            mapped_slot_mask: 0,
            sorted_marker_numbers: room.sorted_marker_numbers,
            control: None,
            charge: room.charge,
            process_count_charge: Some(room.process_count_charge),
            marker_word_pages: [const { None }; NR_MARKER_PAGES],
            placeholder: None,
        };
        for known in &self.markers {
            let _ = child.markers.push_within_capacity(known.clone());
        }
        for count in &self.registration_counts {
            let _ = child.registration_counts.push_within_capacity(*count);
        }
        for number in &self.sorted_marker_numbers {
            let _ = child.sorted_marker_numbers.push_within_capacity(*number);
        }
        child
    }

    /// Returns whether the process is a child of fork() that has not accessed its mappings yet.
    pub(crate) fn is_unattached_child(&self) -> bool {
        !self.has_ended() && self.control.is_none()
    }

    /// Replaces the identity that a child of fork() has from its parent. Does nothing if the child
    /// already has an identity of its own.
    pub(crate) fn identify_child(&mut self, identity: Identity, pid: Pid, live: LiveProcess) {
        if core::mem::take(&mut self.has_parents_identity) {
            self.identity = identity;
            self.pid = pid;
            self.leader_and_access = Some(live);
        }
    }

    /// Gives a child of fork() an identity and pages of its own when the child first accesses its
    /// mappings. Returns false if the child already has pages or has ended.
    pub(crate) fn attach_as_child(&mut self, awake: ProcessPages) -> bool {
        if !self.is_unattached_child() {
            return false;
        }
        self.has_parents_identity = false;
        self.identity = awake.identity;
        self.pid = awake.pid;
        self.leader_and_access = Some(awake.leader_and_access);
        self.began = awake.began;
        self.control = Some(awake.control);
        self.marker_word_pages = awake.marker_word_pages;
        self.placeholder = Some(awake.placeholder);
        true
    }

    /// Changes by one the number of files by which a copy of the library has attached: up if `more`
    /// is true, otherwise down. `at` is the offset of the copy's `struct perftrace_thread`. Does
    /// nothing if `at` is 0.
    pub(crate) fn add_or_subtract_library_file(&mut self, at: i64, more: bool) {
        let mut copies = self.library_copies.iter_mut();
        let known = copies.find(|(known, files)| *known == at && *files != 0);
        match (known, more) {
            (Some((_, files)), true) => *files = files.saturating_add(1),
            (Some((_, files)), false) => *files = files.wrapping_sub(1),
            (None, true) if at != 0 => {
                let mut copies = self.library_copies.iter_mut();
                if let Some(room) = copies.find(|(_, files)| *files == 0) {
                    *room = (at, 1);
                }
            }
            _ => {}
        }
    }

    /// Returns whether the process is in the trace that occupies a slot.
    pub(crate) fn is_in_slot(&self, slot: usize) -> bool {
        slot < NR_TRACES && self.slot_mask & 1u32.wrapping_shl(slot as u32) != 0
    }

    /// Records whether the process is in the trace of a slot. A process that joins a trace is
    /// recorded before [`announce_trace_begin`](Self::announce_trace_begin) is called.
    pub(crate) fn record_in_slot(&mut self, slot: usize, is: bool) {
        let bit = 1u32.wrapping_shl(slot as u32);
        self.slot_mask = if is {
            self.slot_mask | bit
        } else {
            self.slot_mask & !bit
        };
    }

    /// Records that a page is mapped for a slot, even if no trace is in the slot.
    pub(crate) fn mark_slot_mapped(&mut self, slot: usize) {
        self.mapped_slot_mask |= 1u32.wrapping_shl(slot as u32);
    }

    /// Unmaps the process's pages for a slot, if any such page may be mapped.
    pub(crate) fn unmap_slot_pages(&mut self, slot: usize) {
        let bit = 1u32.wrapping_shl(slot as u32);
        let Some(mapping) = self.mapping.filter(|_| self.mapped_slot_mask & bit != 0) else {
            return;
        };
        self.mapped_slot_mask &= !bit;
        let bytes = u64::from(cpu::nr_cpu_ids()) << abi::BUFFER_STRIDE_SHIFT;
        let at = |from: u64, each: u64| {
            let within = (slot as u64).wrapping_mul(each).wrapping_add(from);
            range_start(self.range_key).wrapping_add(within)
        };
        mapping.unmap(at(abi::map::BUFFERS, bytes), bytes);
        mapping.unmap(at(abi::map::FILTERS, PAGE_SIZE as u64), PAGE_SIZE as u64);
    }

    /// Returns whether the credentials or the dumpability of the process have changed since the
    /// permission to trace it was last checked.
    pub(crate) fn have_credentials_changed(&self) -> bool {
        let alive = self.leader_and_access.as_ref();
        alive.is_some_and(|alive| {
            !alive
                .access_snapshot
                .was_unchanged_until_exec(&alive.leader)
        })
    }

    /// Returns the leader of the process, and the process's credentials and dumpability at the last
    /// permission check. Returns `None` after [`drop_leader`](Self::drop_leader).
    pub(crate) fn leader_and_access(&self) -> Option<&LiveProcess> {
        self.leader_and_access.as_ref()
    }

    /// Returns the leader of the process, or `None` after [`drop_leader`](Self::drop_leader).
    pub(crate) fn leader(&self) -> Option<&ARef<Task>> {
        self.leader_and_access.as_ref().map(|alive| &alive.leader)
    }

    /// Records the process's credentials and dumpability at a check of the permission to trace it.
    /// If the process has executed another program since the last call, records nothing and returns
    /// false.
    pub(crate) fn record_check_if_same_program(&mut self, seen: AccessTargetSnapshot) -> bool {
        let Some(alive) = &mut self.leader_and_access else {
            return true;
        };
        let same = seen.runs_same_program(&alive.leader, &alive.access_snapshot);
        if same {
            alive.access_snapshot = seen;
        }
        same
    }

    /// Drops the leader. Called when permission to trace the ended process was checked a last time.
    pub(crate) fn drop_leader(&mut self) {
        self.leader_and_access = None;
    }

    /// Returns the number of registrations of a marker.
    pub(crate) fn nr_registrations(&self, number: usize) -> u32 {
        self.registration_counts.get(number).copied().unwrap_or(0)
    }

    /// Returns whether the process maps the device node of `mapping`.
    pub(crate) fn maps_device_node(&self, mapping: InodeMapping) -> bool {
        self.mapping == Some(mapping)
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.is_none()
    }

    /// Records that the process has ended, and frees its pages. Returns false if the end of the
    /// process was already recorded.
    pub(crate) fn end(&mut self) -> bool {
        if self.mapping.take().is_none() {
            return false;
        }
        self.placeholder = None;
        let word_pages = self.marker_word_pages.iter_mut();
        let nr_word_pages = word_pages.filter_map(Option::take).count();
        let pages = nr_word_pages.wrapping_add(usize::from(self.control.take().is_some()));
        let order = core::mem::replace(&mut self.sorted_marker_numbers, KVVec::new());
        let bytes = pages.wrapping_mul(PAGE_SIZE);
        self.charge
            .uncharge(bytes.wrapping_add(order.len().wrapping_mul(2)));
        true
    }

    /// Returns the number of bytes that are charged for the process.
    pub(crate) fn memory(&self) -> u64 {
        self.charge.bytes() as u64
    }

    /// Moves the memory charge and the quota count of an ended process to the owner of a trace that
    /// keeps the process. Returns `EDQUOT` or `ENOSPC` if the owner would exceed a limit. After an
    /// error, the process may be in no user's quota: the caller then tries the next trace or drops
    /// the process.
    pub(crate) fn charge_trace_owner(&mut self, payer: &MemoryCharge) -> Result {
        let charge = payer.charge_same_user(self.charge.bytes())?;
        // Drop the old quota count before the new one is created. If the trace's owner is the user
        // of the process, two counts of the process could exceed the user's limit.
        self.process_count_charge = None;
        self.process_count_charge = Some(ResourceCharge::of_user(
            payer.user(),
            Resource::PFC_PROCESSES,
            max_processes_per_user(),
            ENOSPC,
        )?);
        self.charge = charge;
        Ok(())
    }

    /// Returns the placeholder page of the process. Returns `None` for a child of fork() before its
    /// first access, and after the process has ended.
    pub(crate) fn placeholder(&self) -> Option<&Arc<PlaceholderPage>> {
        self.placeholder.as_ref()
    }

    /// Returns the address of a page that the process reads, or `None` if the page does not exist.
    /// `number` 0 is the control page, and the pages of marker words follow it.
    pub(crate) fn page(&self, number: usize) -> Option<usize> {
        match number.checked_sub(1) {
            None => Some(self.control.as_ref()?.address()),
            Some(number) => Some(self.marker_word_pages.get(number)?.as_ref()?.address()),
        }
    }

    /// Announces a new trace to the process, in a slot of the process's control page. Called before
    /// any marker's bit is set for the trace.
    pub(crate) fn announce_trace_begin(&self, number: usize, slot: Slot) {
        let Some(control) = &self.control else { return };
        let at = SLOTS_FIRST_WORD.wrapping_add(number.min(NR_TRACES).wrapping_mul(WORDS_PER_SLOT));
        control.store_word_release(at.wrapping_add(1), slot.flags & flag::PROCESS_VISIBLE);
        control.store_word_release(at.wrapping_add(2), slot.mask);
        control.store_word_release(at.wrapping_add(3), slot.wait_ms);
        // Store the generation last, with release: a process that sees the new generation also sees
        // the slot's other words.
        control.store_word_release(at, slot.generation);
    }

    /// Announces to the process that the trace in a slot has ended. Called after the bits of all
    /// markers were cleared for the trace. Only the slot's generation changes: a thread that has
    /// read a marker's word before the bit was cleared may still use the slot's other words.
    pub(crate) fn announce_trace_end(&self, number: usize, generation: u32) {
        let Some(control) = &self.control else { return };
        let at = SLOTS_FIRST_WORD.wrapping_add(number.min(NR_TRACES).wrapping_mul(WORDS_PER_SLOT));
        control.store_word_release(at, generation);
    }

    /// Clears the bits of all markers for a slot.
    pub(crate) fn clear_slot_bits(&self, slot: usize) {
        for number in 0..self.markers.len() {
            self.set_marker_bit(number, slot, false);
        }
    }

    /// Sets or clears the bit of a marker for a slot.
    fn set_marker_bit(&self, number: usize, slot: usize, on: bool) {
        let page = self
            .marker_word_pages
            .get(number / WORDS_PER_PAGE)
            .and_then(Option::as_ref);
        let (Some(page), true) = (page, slot < NR_TRACES) else {
            return;
        };
        let (word, bit) = (page.load_word(number % WORDS_PER_PAGE), 1u32 << slot);
        let new = if on { word | bit } else { word & !bit };
        if new != word {
            page.store_word_release(number % WORDS_PER_PAGE, new);
        }
    }

    /// Registers a marker, or counts one more registration of a registered marker. Returns the
    /// number of the marker, and whether the registration is the only one: in that case the caller
    /// has to set the marker's bits.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the process has [`NR_MARKERS`] markers, `EDQUOT` if the memory limit of the
    /// process's user is reached, `EAGAIN` if `room` is too small. After `EAGAIN` the caller
    /// allocates memory for more markers and calls again.
    pub(crate) fn register_marker(
        &mut self,
        new: &Arc<RegisteredMarker>,
        room: &mut MarkerMemory,
    ) -> Result<(usize, bool)> {
        let (name, fields) = (&new.name, &new.fields);
        let found = self.sorted_marker_numbers.binary_search_by(|number| {
            let known = self.markers.get(usize::from(*number));
            known.map_or(Ordering::Greater, |known| known.cmp(name, fields))
        });
        let number = match found {
            Ok(place) => usize::from(*self.sorted_marker_numbers.get(place).ok_or(EINVAL)?),
            Err(at) => {
                let number = self.markers.len();
                if number >= NR_MARKERS {
                    return Err(ENOSPC);
                }
                if !self.reserve_room_for_marker(room) {
                    return Err(EAGAIN);
                }
                let place = self.marker_word_pages.get_mut(number / WORDS_PER_PAGE);
                let place = place.ok_or(ENOSPC)?;
                let mut charge = self.charge.charge_same_user(new.memory())?;
                if place.is_none() {
                    let mut page = self.charge.charge_same_user(PAGE_SIZE)?;
                    *place = Some(room.page.take().ok_or(EAGAIN)?);
                    charge.absorb(&mut page);
                    if let Some(mapping) = &self.mapping {
                        let page = number / WORDS_PER_PAGE * PAGE_SIZE;
                        let at = abi::map::WORDS.wrapping_add(page as u64);
                        mapping.unmap(
                            range_start(self.range_key).wrapping_add(at),
                            PAGE_SIZE as u64,
                        );
                    }
                }
                let _ = self.markers.push_within_capacity(new.clone());
                let _ = self.registration_counts.push_within_capacity(0);
                let _ = self
                    .sorted_marker_numbers
                    .insert_within_capacity(at, number as u16);
                self.charge.absorb(&mut charge);
                number
            }
        };
        let count = self.registration_counts.get_mut(number).ok_or(EINVAL)?;
        *count = count.checked_add(1).ok_or(EINVAL)?;
        Ok((number, *count == 1))
    }

    /// Makes sure that the lists of markers have capacity for one more marker. If a list is full,
    /// moves the lists to `room`. Returns false if `room` is too small.
    fn reserve_room_for_marker(&mut self, room: &mut MarkerMemory) -> bool {
        let nr = self.markers.len();
        let fits = |all: [usize; 3]| all.iter().all(|capacity| *capacity > nr);
        let page = self
            .marker_word_pages
            .get(nr / WORDS_PER_PAGE)
            .is_some_and(Option::is_none);
        if page && room.page.is_none() {
            return false;
        }
        let Self {
            markers,
            registration_counts,
            sorted_marker_numbers: order,
            ..
        } = self;
        if fits([
            markers.capacity(),
            registration_counts.capacity(),
            order.capacity(),
        ]) {
            return true;
        }
        let made = [
            room.markers.capacity(),
            room.registration_counts.capacity(),
            room.sorted_marker_numbers.capacity(),
        ];
        if !fits(made) {
            return false;
        }
        let made = core::mem::take(room);
        move_to_larger_list(markers, made.markers);
        move_to_larger_list(registration_counts, made.registration_counts);
        move_to_larger_list(order, made.sorted_marker_numbers);
        room.page = made.page;
        true
    }

    /// Removes one registration of a marker. Returns `EINVAL` if the marker is not registered.
    pub(crate) fn unregister_marker(&mut self, number: usize) -> Result {
        let count = self.registration_counts.get_mut(number).ok_or(EINVAL)?;
        *count = count.checked_sub(1).ok_or(EINVAL)?;
        if *count == 0 {
            for slot in 0..NR_TRACES {
                self.set_marker_bit(number, slot, false);
            }
        }
        Ok(())
    }

    /// Sets or clears the bit that says whether the trace in a slot records the events of a marker.
    /// The bit stays clear if the marker has no registration.
    pub(crate) fn set_marker_bit_if_registered(&self, number: usize, slot: usize, wanted: bool) {
        self.set_marker_bit(number, slot, wanted && self.nr_registrations(number) != 0);
    }
}
