// SPDX-License-Identifier: GPL-2.0

//! File operations of `/dev/perftrace`, which readers of traces and traced processes use. The
//! operations copy structures from and to user space, and call [`crate::trace_calls`] and
//! [`crate::process_calls`].

#![expect(unsafe_code, reason = "wait queues, and functions that C calls")]

use core::mem::size_of;
use core::pin::Pin;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVVec};
use kernel::bindings;
use kernel::error::Result;
use kernel::fs::LocalFile;
use kernel::new_mutex;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex, UniqueArc};
use kernel::uaccess::{UserPtr, UserSlice};
use protocols::filter;
use protocols::structure::FromBytes;
use protocols::trace_buffer::BufferRange;
use trace_rules::abi::{
    self, call, Attach, Create, Describe, Info, Marker, Markers, Notify, Process, Read, Release,
    Room, MAX_FILTER_BYTES, NO_MARKER_NUMBER, NR_MARKERS,
};

use crate::buffer::Buffer;
use crate::children;
use crate::clock::trace_clock;
use crate::detach::{self, DeviceOps, FileMappedAfterDetach};
use crate::ends;
use crate::log::log_refused_tracing;
use crate::mapping;
use crate::permission;
use crate::process_calls::{self, AttachedFile};
use crate::stats;
use crate::trace_calls::{self, FileTraceRef};
use base::access;
use base::account::is_limit_or_memory_error;
use base::address_space::{InodeMapping, Mm};
use base::device::{
    file_private_data, Device, FileOperationTables, FileOperations, ModuleReady, PageFault, Vma,
};
use base::errno;
use base::task::{has_fatal_signal, is_compat_syscall};
use base::user_memory::{read, read_array, values_as_bytes, write, write_array};

/// Set at the end of module init, after the last step that can fail. The device cannot be opened
/// before `MODULE_READY` is set.
pub(crate) static MODULE_READY: ModuleReady = ModuleReady::new();

static PERFTRACE_OPERATIONS: FileOperationTables<DeviceFile> = FileOperationTables::new();

/// The registered device `/dev/perftrace`. Dropping this value removes the device, and then frees
/// all state of user tracing.
pub(crate) struct TraceDevice {
    _device: Device,
    _tracing_cleanup: TracingCleanup,
}

/// Frees the state of user tracing on drop. `TracingCleanup` is dropped after the device.
struct TracingCleanup;

impl Drop for TracingCleanup {
    fn drop(&mut self) {
        children::detach_probe();
        // SAFETY: The caller is in process context. `pt_cancel_unreported_work()` cancels work that
        // only one probe queues, and `detach_probe()` has detached this probe.
        unsafe { crate::helpers::pt_cancel_unreported_work() };
        ends::free_all_traces_and_processes();
    }
}

impl TraceDevice {
    /// Registers the device `/dev/perftrace`.
    pub(crate) fn register() -> Result<Self> {
        Ok(Self {
            _device: Device::register(c"perftrace", &PERFTRACE_OPERATIONS, 0o666)?,
            _tracing_cleanup: TracingCleanup,
        })
    }
}

/// The use of an open file of `/dev/perftrace`. A new file has no [`FileRole`] until an ioctl sets
/// it.
enum FileRole {
    /// A process has attached by a `PERFTRACE_ATTACH` call on this file, and is traced.
    Process(AttachedFile),
    /// A trace was created or opened through this file.
    Trace(FileTraceRef),
}

/// The private data of an open file of `/dev/perftrace`.
#[pin_data]
struct DeviceFile {
    #[pin]
    role: Mutex<Option<Arc<FileRole>>>,
    /// Serialises threads that read a trace through the same file.
    #[pin]
    read_mutex: Mutex<()>,
    /// Set after PERFTRACE_RELEASE on this file, while processes that were asked to detach are
    /// still attached.
    has_pending_detach_request: AtomicBool,
}

impl DeviceFile {
    /// Creates the private data of a file without a role.
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            role <- new_mutex!(None),
            read_mutex <- new_mutex!(()),
            has_pending_detach_request: AtomicBool::new(false),
        })
    }

    fn role(&self) -> Option<Arc<FileRole>> {
        self.role.lock().clone()
    }

    /// Creates a [`FileRole`] with `make`, and stores it in the file. If a concurrent call has
    /// stored a role first, passes the new role to `undo` and drops it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the file has a role already, or the error of `make`.
    fn set_role(
        &self,
        make: impl FnOnce() -> Result<FileRole>,
        undo: impl FnOnce(&FileRole),
    ) -> Result {
        let room = UniqueArc::<FileRole>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        if self.role().is_some() {
            return Err(EBUSY);
        }
        // The new role is created before `role` is locked, because mmap() and page faults take the
        // lock of `role`.
        let made: Arc<FileRole> = room.write(make()?).into();
        let mut role = self.role.lock();
        if role.is_none() {
            *role = Some(made);
            return Ok(());
        }
        drop(role);
        undo(&made);
        Err(EBUSY)
    }
}

#[vtable]
impl FileOperations for DeviceFile {
    /// Opens `/dev/perftrace`. The new file is bound to no process and no trace yet.
    fn open(_: &LocalFile) -> Result<Pin<KBox<Self>>> {
        MODULE_READY.check()?;
        KBox::pin_init(Self::new(), GFP_KERNEL_ACCOUNT)
    }

    /// Dropping the private data detaches the process that called `PERFTRACE_ATTACH` on the file,
    /// or drops the file's reference to a trace.
    fn release(&self, _: *mut bindings::file) {
        // If PERFTRACE_RELEASE was called on this file, and not all processes have detached yet,
        // closing the file lets processes attach again.
        if self.has_pending_detach_request.load(Relaxed) {
            detach::cancel_detach();
        }
    }

    /// Returns `EOPNOTSUPP` to an i386 or x32 program, and logs the reason once. An i386 program
    /// cannot store 64 bits at once, as a writer to trace buffers must. The tracing library
    /// supports neither i386 nor x32.
    fn ioctl(&self, file: &LocalFile, command: u32, arg: UserPtr) -> Result {
        if is_compat_syscall() {
            pr_warn_once!(
                "perftrace: 32-bit programs cannot be traced, nor trace others; build them for 64 \
                 bits\n"
            );
            return Err(errno::eopnotsupp());
        }
        dispatch_ioctl(file, self, command, arg)
    }

    /// Reports whether the file's trace has data to read, and whether the trace has ended.
    fn poll(
        &self,
        file: &LocalFile,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        let role = self.role();
        let Some(FileRole::Trace(held)) = role.as_deref() else {
            return bindings::POLLERR;
        };
        // SAFETY: The file holds its `FileRole::Trace`, which holds the wait queue of the trace.
        unsafe { held.signal.reader_notifier().poll(file, table) };
        let mut events = 0;
        if held.signal.may_have_unread_data() {
            events |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if trace_calls::has_ended(held.id) {
            events |= bindings::POLLHUP;
        }
        events
    }

    fn mmap(&self, vma: &mut Vma) -> Result {
        match self.role().as_deref() {
            Some(FileRole::Process(attached)) => {
                mapping::map(attached, vma, PERFTRACE_OPERATIONS.mappings())
            }
            _ => Err(EINVAL),
        }
    }

    fn vma_open(&self, vma: &mut Vma) {
        mapping::add_copied_mapping(vma);
    }

    fn vma_close(&self, vma: &Vma) {
        mapping::subtract_removed_mapping(vma);
    }

    fn fault(&self, fault: &PageFault<'_>) -> bindings::vm_fault_t {
        let _span = stats::fault_timer();
        match self.role().as_deref() {
            Some(FileRole::Process(attached)) => mapping::handle_page_fault(attached, fault),
            _ => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}

/// Carries out an ioctl of `/dev/perftrace`.
fn dispatch_ioctl(file: &LocalFile, opened: &DeviceFile, command: u32, arg: UserPtr) -> Result {
    match command {
        call::ATTACH => return attach(file, opened, arg),
        call::CREATE => return create(opened, arg),
        call::OPEN => return open_trace(opened, arg),
        call::NEXT_TRACE => {
            let info: Info = read_exact_size_structure(arg)?;
            return write(arg, &trace_calls::next_trace(info.slot)?);
        }
        call::NEXT_MARKER => {
            let from: Describe = read(arg)?;
            return write(arg, &trace_calls::next_marker(from.key, from.number)?);
        }
        call::RELEASE => return request_or_cancel_detach(opened, arg),
        _ => {}
    }
    let role = opened.role();
    if command == call::PROCESS && !matches!(role.as_deref(), Some(FileRole::Trace(_))) {
        let from: Process = read(arg)?;
        return write(arg, &trace_calls::process_info_if_traceable(from.key)?);
    }
    let role = role.ok_or(EINVAL)?;
    match &*role {
        FileRole::Process(attached) => {
            // A child of fork() inherits its parent's file, but is traced as a separate process
            // with its own key.
            let key = match attached.mm.is_current() {
                true => attached.key,
                false => children::attach_and_get_current_key(&Mm::of_current().ok_or(ESRCH)?)?,
            };
            match command {
                call::REGISTER => register_or_unregister_markers(key, arg, true),
                call::UNREGISTER => register_or_unregister_markers(key, arg, false),
                call::NOTIFY => {
                    let Notify { slot, cpu } = read(arg)?;
                    process_calls::notify_reader(key, slot, cpu)
                }
                call::WAIT_ROOM => {
                    let Room { slot, cpu, tail } = read(arg)?;
                    process_calls::wait_for_room(key, slot, cpu, tail)
                }
                _ => Err(ENOTTY),
            }
        }
        FileRole::Trace(held) => match command {
            call::INFO => {
                let _: Info = read_exact_size_structure(arg)?;
                write(arg, &trace_calls::info(held.id)?)
            }
            call::READ => read_next_records(opened, held, arg),
            call::PROCESS => {
                let from: Process = read(arg)?;
                write(
                    arg,
                    &trace_calls::process_info_if_in_trace(held.id, from.key)?,
                )
            }
            call::DESCRIBE => {
                let Describe { key, number, .. } = read(arg)?;
                write(arg, &trace_calls::describe_marker(held.id, key, number)?)
            }
            call::PAUSE => match read::<u32>(arg)? {
                0 => trace_calls::set_paused(held.id, false),
                1 => trace_calls::set_paused(held.id, true),
                _ => Err(EINVAL),
            },
            call::END => trace_calls::end(held.id),
            _ => Err(ENOTTY),
        },
    }
}

fn request_or_cancel_detach(opened: &DeviceFile, arg: UserPtr) -> Result {
    let mut given: Release = read_exact_size_structure(arg)?;
    if !access::may_load_modules() {
        return Err(EPERM);
    }
    let device = DeviceOps::new(&PERFTRACE_OPERATIONS);
    let left = match (given.flags, given.wake as i32) {
        (abi::RESUME, -1) => {
            detach::cancel_detach();
            0
        }
        (0, -1) => detach::request_detach(&device, None)? as u32,
        (0, fd) => detach::request_detach(&device, Some(&FileMappedAfterDetach::get(fd)?))? as u32,
        _ => return Err(EINVAL),
    };
    // Relaxed: only `release` reads `has_pending_detach_request`, when no other thread uses the
    // file.
    opened.has_pending_detach_request.store(left != 0, Relaxed);
    given.left = left;
    write(arg, &given)
}

/// Copies from user space a structure whose first field contains the structure's size. Returns
/// `EINVAL` if the first field is not the size of `T`.
fn read_exact_size_structure<T: FromBytes>(arg: UserPtr) -> Result<T> {
    match read::<u32>(arg)? as usize == size_of::<T>() {
        true => read(arg),
        false => Err(EINVAL),
    }
}

/// Attaches the calling process through `file`: from now on traces can record its events.
fn attach(file: &LocalFile, opened: &DeviceFile, arg: UserPtr) -> Result {
    let mut attach: Attach = read_exact_size_structure(arg)?;
    if attach.flags & !abi::flag::SHARED != 0 {
        return Err(EINVAL);
    }
    // SAFETY: `file` is open as long as the process is attached: each mapping holds the file, and
    // `release` detaches the process.
    let mapping = unsafe { InodeMapping::of_file(file.as_ptr()) }.ok_or(EINVAL)?;
    let make = || {
        let mm = Mm::of_current().ok_or(EINVAL)?;
        let shared = attach.flags & abi::flag::SHARED != 0;
        let (key, pieces, nobodys) = process_calls::attach(&mm, mapping, shared)?;
        (attach.key, [attach.control, attach.buffers]) = (key, pieces);
        let thread_offset = attach.thread as i64;
        process_calls::count_attached_library_file(key, thread_offset);
        Ok(FileRole::Process(AttachedFile {
            key,
            mm,
            thread_offset,
            placeholder: nobodys,
        }))
    };
    opened.set_role(make, |_| ())?;
    attach.nr_cpus = base::cpu::nr_cpu_ids();
    attach.stride = abi::BUFFER_STRIDE_SHIFT;
    attach.bytes = process_calls::buffer_area_bytes();
    write(arg, &attach)
}

/// The maximum number of markers that one ioctl registers or unregisters.
const MAX_MARKERS_PER_CALL: usize = NR_MARKERS;

fn register_or_unregister_markers(key: u64, arg: UserPtr, on: bool) -> Result {
    let mut given: Markers = read_exact_size_structure(arg)?;
    let nr = given.nr as usize;
    if nr > MAX_MARKERS_PER_CALL {
        return Err(E2BIG);
    }
    let at = usize::try_from(given.markers)?;
    let mut markers = read_array::<Marker>(given.markers, nr)?;
    let (mut done, mut limit) = (Ok(()), None);
    (given.bad, given.refused) = (u32::MAX, 0);
    for (n, marker) in (0u32..).zip(markers.iter_mut()) {
        let one = match on {
            true => process_calls::register_marker(key, marker),
            false => process_calls::unregister_marker(key, marker.number),
        };
        if let Err(error) = one {
            given.refused = given.refused.wrapping_add(1);
            limit = limit.or(is_limit_or_memory_error(error).then_some(error));
            if done.is_ok() {
                given.bad = n;
                done = Err(error);
            }
        }
    }
    if on {
        if let Err(error) = write_array(UserPtr::from_addr(at), &markers) {
            // The caller did not get the numbers of the markers, because the copy to user space
            // failed. The markers are therefore unregistered again.
            for marker in markers.iter().filter(|m| m.number != NO_MARKER_NUMBER) {
                let _ = process_calls::unregister_marker(key, marker.number);
            }
            return Err(error);
        }
        if let Some(limit) = limit {
            log_refused_tracing(true, limit);
        }
    }
    if done.is_err() {
        write(arg, &given)?;
    }
    done
}

fn create(opened: &DeviceFile, arg: UserPtr) -> Result {
    let mut create: Create = read_exact_size_structure(arg)?;
    let nr = create.filter_bytes as usize;
    if nr > MAX_FILTER_BYTES {
        return Err(E2BIG);
    }
    let program = read_array::<u8>(create.filter, nr)?;
    let mut position = u32::MAX;
    if nr != 0 && filter::check(&program, &mut position).is_err() {
        create.position = position;
        write(arg, &create)?;
        return Err(EINVAL);
    }
    let make = || {
        let (held, slot) = trace_calls::create(&create, program)?;
        create.slot = slot as u32;
        Ok(FileRole::Trace(held))
    };
    // If the file is already bound to a process or a trace, end the new trace: a trace that was
    // created with `KEEP` does not end when its `FileTraceRef` is dropped.
    opened.set_role(make, |role| {
        if let FileRole::Trace(held) = role {
            let _ = trace_calls::end(held.id);
        }
    })?;
    write(arg, &create)
}

fn open_trace(opened: &DeviceFile, arg: UserPtr) -> Result {
    let mut create: Create = read_exact_size_structure(arg)?;
    let name = create.name;
    let name = filter::text_before_nul(&name).ok_or(EINVAL)?;
    let make = || {
        let (held, info) = trace_calls::open(name)?;
        create.flags = info.flags;
        create.bytes = info.bytes;
        create.slot = info.slot;
        create.markers = info.markers;
        Ok(FileRole::Trace(held))
    };
    // If the file is already bound to a process or a trace, nothing is to be undone: dropping
    // `held` drops the file's reference to the opened trace.
    opened.set_role(make, |_| ())?;
    write(arg, &create)
}

/// Number of bytes that are copied at a time, through a kernel buffer. A copy to user memory can
/// take arbitrarily long, because user space may handle its page faults itself (userfaultfd). The
/// permission to read is therefore checked again for each chunk.
const COPY_CHUNK_BYTES: usize = 16 << 10;

fn read_next_records(opened: &DeviceFile, held: &FileTraceRef, arg: UserPtr) -> Result {
    // Threads that read through this file are serialised, so that each byte is returned once and in
    // order.
    let _others = opened.read_mutex.lock();
    let mut given: Read = read(arg)?;
    let capacity = given.bytes;
    loop {
        if has_fatal_signal() {
            return Err(EINTR);
        }
        let (key, cpu, buffer, span, lost) =
            trace_calls::next_unread_as_reader(held, given.key, given.cpu)?;
        (given.key, given.cpu) = (key, cpu);
        (given.lost, given.position) = (lost, span.position);
        given.ticks = trace_clock().now_by_user_readable_clock();
        given.bytes = span.bytes;
        if !permission::may_read_after_recheck(held.id, key)? {
            continue;
        }
        if span.bytes > capacity {
            write(arg, &given)?;
            return Err(ENOSPC);
        }
        let to = UserPtr::from_addr(usize::try_from(given.to)?);
        let Some(bytes) = copy_range_to_user(held, key, &buffer, &span, to)? else {
            continue;
        };
        given.bytes = bytes;
        write(arg, &given)?;
        if !buffer.flight {
            buffer.set_reported_lost(given.lost);
            buffer.advance(span.next_position);
            held.signal.wake_waiting_writers();
        }
        return Ok(());
    }
}

/// Copies the range `span` of a process's buffer to user space. Returns the number of valid bytes,
/// or `None` if the reader is no longer permitted to trace the process.
///
/// The permission is checked after each chunk has been copied to the kernel buffer, and before the
/// chunk is copied to user space. The function therefore never returns data that the process writes
/// after the reader has lost the permission, even if the copy to user memory takes long.
fn copy_range_to_user(
    held: &FileTraceRef,
    key: u64,
    buffer: &Buffer,
    span: &BufferRange,
    to: UserPtr,
) -> Result<Option<u32>> {
    let all = span.bytes as usize;
    let mut writer = UserSlice::new(to, all).writer();
    let mut piece = KVVec::from_elem(
        0u64,
        all.min(COPY_CHUNK_BYTES).div_ceil(8),
        GFP_KERNEL_ACCOUNT,
    )?;
    let mut done = 0usize;
    while done < all {
        let bytes = all.wrapping_sub(done).min(COPY_CHUNK_BYTES);
        let piece = piece.get_mut(..bytes / 8).ok_or(EINVAL)?;
        buffer.copy(span, done, piece);
        let good = buffer.bytes_not_overwritten(span) as usize;
        if !permission::may_read_after_recheck(held.id, key)? {
            return Ok(None);
        }
        let good = good.saturating_sub(done).min(bytes);
        writer.write_slice(values_as_bytes(piece).get(..good).ok_or(EINVAL)?)?;
        done = done.wrapping_add(good);
        // The rest of the range is not valid: the writer of the flight recorder has overwritten it.
        if good < bytes {
            break;
        }
    }
    Ok(Some(done as u32))
}

/// Returns whether a file of `/dev/perftrace` belongs to a traced process.
///
/// # Safety
///
/// `file` is a file of `/dev/perftrace` to which the caller holds a reference.
#[no_mangle]
unsafe extern "C" fn pt_is_attached(file: *mut bindings::file) -> bool {
    // SAFETY: By the function's requirement `file` is open and one of `/dev/perftrace`.
    let role = unsafe { file_private_data::<DeviceFile>(file) }.role();
    matches!(role.as_deref(), Some(FileRole::Process(_)))
}
