// SPDX-License-Identifier: GPL-2.0

//! `/dev/perftrace`: calls on traces, of traced processes, and what these map. Turns user
//! space's structures into calls of [`crate::tracing`].

use core::mem::size_of;

use engine::filter;
use engine::trace::{self, call, map, Attach, Create, Describe, Info, Marker, Markers, Notify};
use engine::trace::{Control, Process, Read, FILTER_MAX, NR_MARKERS};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_int, c_long, c_uint, c_ulong};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex, UniqueArc};
use kernel::uaccess::UserPtr;

use super::buffers::{Page, PAGE};
use super::costs::Span;
use super::file::{Device, Ops};
use super::ppa::Clock;
use super::process::{Mapping, Mm};
use super::shim;
use super::user::{read, read_all, write, write_all, Given};
use crate::costs::Cost;
use crate::tracing::{self, Held};

static OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
    open: Some(open),
    release: Some(release),
    unlocked_ioctl: Some(ioctl),
    poll: Some(poll),
    mmap: Some(mmap),
    llseek: Some(bindings::noop_llseek),
    ..pin_init::zeroed()
});

static VM_OPS: Ops<bindings::vm_operations_struct> = Ops(bindings::vm_operations_struct {
    open: Some(vma_open),
    close: Some(vma_close),
    fault: Some(fault),
    ..pin_init::zeroed()
});

/// The device, and all that comes by it.
pub(crate) struct Tracer {
    _device: Device,
    _last: Last,
}

/// Dropped after the device.
struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        tracing::forget_all();
    }
}

impl Tracer {
    /// Makes it appear.
    pub(crate) fn register() -> Result<Self> {
        Ok(Self {
            _device: Device::register(c"perftrace", &OPS, 0o666)?,
            _last: Last,
        })
    }
}

/// What an open file is.
enum Role {
    /// A traced process.
    Process(Attached),
    /// The hold of a trace.
    Trace(Held),
}

struct Attached {
    key: u64,
    mm: Mm,
    /// What it and its children write where there is no trace.
    nobodys: Page,
}

#[pin_data]
struct Opened {
    #[pin]
    role: Mutex<Option<Arc<Role>>>,
    /// One at a time reads.
    #[pin]
    reading: Mutex<()>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        tracing::attached::detach(self.key);
    }
}

impl Opened {
    fn role(&self) -> Option<Arc<Role>> {
        self.role.lock().clone()
    }

    /// It becomes something, once. `EBUSY`: it is something.
    fn become_(&self, make: impl FnOnce() -> Result<Role>) -> Result {
        let room = UniqueArc::<Role>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        if self.role().is_some() {
            return Err(EBUSY);
        }
        // Not under the lock, which mappings take.
        let made: Arc<Role> = room.write(make()?).into();
        let mut role = self.role.lock();
        if role.is_none() {
            *role = Some(made);
            return Ok(());
        }
        drop(role);
        // Nobody would ever end it.
        if let Role::Trace(held) = &*made {
            let _ = tracing::end(held.id);
        }
        Err(EBUSY)
    }
}

/// What a file of ours has.
///
/// # Safety
///
/// It is one, and open for as long as this is used.
unsafe fn opened<'a>(file: *mut bindings::file) -> &'a Opened {
    // SAFETY: Set in open, taken back in release.
    unsafe { &*(*file).private_data.cast::<Opened>() }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        let opened = KBox::pin_init(
            pin_init!(Opened {
                role <- new_mutex!(None),
                reading <- new_mutex!(()),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: Nothing moves out of it; release takes the box back.
        let opened = unsafe { core::pin::Pin::into_inner_unchecked(opened) };
        // SAFETY: The file is being opened.
        unsafe { (*file).private_data = KBox::into_raw(opened).cast() };
        Ok(0)
    })
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: From `into_raw` in open; the file is used no more.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<Opened>()) });
    0
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    // SAFETY: A file of ours.
    match unsafe { serve(file, command, UserPtr::from_addr(arg)) } {
        Ok(()) => 0,
        Err(error) => error.to_errno() as c_long,
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn poll(
    file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: A file of ours.
    let role = unsafe { opened(file) }.role();
    let Some(Role::Trace(held)) = role.as_deref() else {
        return bindings::POLLERR;
    };
    // SAFETY: The file holds its role, and so the bell, for as long as somebody waits.
    unsafe { held.signal.bell().poll(file, table) };
    let mut events = 0;
    if held.signal.has_rung() {
        events |= bindings::POLLIN | bindings::POLLRDNORM;
    }
    if tracing::has_ended(held.id) {
        events |= bindings::POLLHUP;
    }
    events
}

/// The structures, as numbers without padding: src/engine/trace.rs asserts that.
macro_rules! given {
    ($($name:ident)*) => {
        $(
            // SAFETY: As above.
            unsafe impl Given for $name {}
        )*
    };
}

given! { Attach Control Create Describe Info Marker Markers Notify Process Read }

/// # Safety
///
/// The file is one of ours, and open.
unsafe fn serve(file: *mut bindings::file, command: u32, arg: UserPtr) -> Result {
    // SAFETY: By the function's requirement.
    let opened = unsafe { opened(file) };
    match command {
        // SAFETY: By the function's requirement.
        call::ATTACH => return unsafe { attach(file, opened, arg) },
        call::CREATE => return create(opened, arg),
        call::OPEN => return open_trace(opened, arg),
        call::NEXT_TRACE => {
            let info: Info = sized(arg)?;
            return write(arg, &tracing::next_trace(info.slot)?);
        }
        call::NEXT_MARKER => {
            let from: Describe = read(arg)?;
            return write(arg, &tracing::next_marker(from.key, from.number)?);
        }
        _ => {}
    }
    let role = opened.role();
    if command == call::PROCESS && !matches!(role.as_deref(), Some(Role::Trace(_))) {
        let from: Process = read(arg)?;
        return write(arg, &tracing::any_process(from.key)?);
    }
    let role = role.ok_or(EINVAL)?;
    match &*role {
        // A child has its parent's file, but is not its parent.
        Role::Process(attached) if !attached.mm.is_callers() => Err(ESRCH),
        Role::Process(attached) => match command {
            call::REGISTER => register(attached.key, arg, true),
            call::UNREGISTER => register(attached.key, arg, false),
            call::NOTIFY => {
                let Notify { slot, cpu } = read(arg)?;
                tracing::attached::notify(attached.key, slot, cpu)
            }
            _ => Err(ENOTTY),
        },
        Role::Trace(held) => match command {
            call::INFO => {
                let _: Info = sized(arg)?;
                write(arg, &tracing::info(held.id)?)
            }
            call::READ => read_next(opened, held, arg),
            call::PROCESS => {
                let from: Process = read(arg)?;
                write(arg, &tracing::process(held.id, from.key)?)
            }
            call::DESCRIBE => {
                let from: Describe = read(arg)?;
                write(arg, &tracing::describe(held.id, from.key, from.number)?)
            }
            call::PAUSE => match read::<u32>(arg)? {
                0 => tracing::pause(held.id, false),
                1 => tracing::pause(held.id, true),
                _ => Err(EINVAL),
            },
            call::END => tracing::end(held.id),
            _ => Err(ENOTTY),
        },
    }
}

/// A structure whose first word is its size.
fn sized<T: Given>(arg: UserPtr) -> Result<T> {
    match read::<u32>(arg)? as usize == size_of::<T>() {
        true => read(arg),
        false => Err(EINVAL),
    }
}

/// # Safety
///
/// The file is one of ours, and open.
unsafe fn attach(file: *mut bindings::file, opened: &Opened, arg: UserPtr) -> Result {
    let mut attach: Attach = sized(arg)?;
    if attach.flags & !trace::flag::SHARED != 0 {
        return Err(EINVAL);
    }
    // SAFETY: It is open for as long as the process is traced: see release.
    let mapping = unsafe { Mapping::of(file) }.ok_or(EINVAL)?;
    opened.become_(|| {
        let mm = Mm::calls().ok_or(EINVAL)?;
        let nobodys = Page::new()?;
        let shared = attach.flags & trace::flag::SHARED != 0;
        let key = tracing::attached::attach(&mm, mapping, shared)?;
        attach.key = key;
        Ok(Role::Process(Attached { key, mm, nobodys }))
    })?;
    attach.nr_cpus = super::cpu::nr_cpu_ids();
    attach.stride = trace::STRIDE;
    attach.bytes = tracing::attached::mapped_bytes();
    write(arg, &attach)
}

/// Markers that are registered or taken back at once, at most.
const AT_ONCE: usize = NR_MARKERS;

fn register(key: u64, arg: UserPtr, on: bool) -> Result {
    let mut given: Markers = sized(arg)?;
    let nr = given.nr as usize;
    if nr > AT_ONCE {
        return Err(E2BIG);
    }
    let at = usize::try_from(given.markers)?;
    let mut markers = read_all::<Marker>(given.markers, nr)?;
    let mut bad = u32::MAX;
    let done = match on {
        true => tracing::attached::register(key, &mut markers, &mut bad),
        false => {
            let mut all = markers.iter().zip(0u32..u32::MAX);
            all.try_for_each(|(marker, n)| {
                bad = n;
                tracing::attached::unregister(key, marker.number)
            })
        }
    };
    if let Err(error) = done {
        given.bad = bad;
        write(arg, &given)?;
        return Err(error);
    }
    if on {
        if let Err(error) = write_all(UserPtr::from_addr(at), &markers) {
            // Nobody knows their numbers.
            for marker in &markers {
                let _ = tracing::attached::unregister(key, marker.number);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn create(opened: &Opened, arg: UserPtr) -> Result {
    let mut create: Create = sized(arg)?;
    let nr = create.filter_bytes as usize;
    if nr > FILTER_MAX {
        return Err(E2BIG);
    }
    let program = read_all::<u8>(create.filter, nr)?;
    let mut position = u32::MAX;
    if nr != 0 && filter::check(&program, &mut position).is_err() {
        create.position = position;
        write(arg, &create)?;
        return Err(EINVAL);
    }
    opened.become_(|| {
        let (held, slot) = tracing::create(&create, program)?;
        create.slot = slot as u32;
        Ok(Role::Trace(held))
    })?;
    write(arg, &create)
}

fn open_trace(opened: &Opened, arg: UserPtr) -> Result {
    let mut create: Create = sized(arg)?;
    let name = create.name;
    let name = filter::text(&name).ok_or(EINVAL)?;
    opened.become_(|| {
        let (held, info) = tracing::open(name)?;
        create.flags = info.flags;
        create.bytes = info.bytes;
        create.slot = info.slot;
        create.markers = info.markers;
        Ok(Role::Trace(held))
    })?;
    write(arg, &create)
}

fn read_next(opened: &Opened, held: &Held, arg: UserPtr) -> Result {
    // What is copied is copied once, and in order.
    let _others = opened.reading.lock();
    let mut given: Read = read(arg)?;
    let capacity = given.bytes;
    let (key, cpu, buffer, span) = loop {
        let (key, cpu, buffer) = tracing::next(held, given.key, given.cpu)?;
        if let Some(span) = buffer.span() {
            break (key, cpu, buffer, span);
        }
        // Its writer has made nonsense of it since: the one after it.
        (given.key, given.cpu) = (key, cpu);
    };
    (given.key, given.cpu, given.bytes) = (key, cpu, span.bytes);
    (given.lost, given.position) = (buffer.lost(), span.position);
    given.ticks = Clock::choose().ticks();
    if span.bytes > capacity {
        write(arg, &given)?;
        return Err(ENOSPC);
    }
    buffer.copy(&span, UserPtr::from_addr(usize::try_from(given.to)?))?;
    given.bytes = buffer.good(&span);
    write(arg, &given)?;
    if !buffer.flight {
        buffer.read_up_to(span.next);
    }
    Ok(())
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> c_int {
    from_result(|| {
        // SAFETY: A file of ours.
        let role = unsafe { opened(file) }.role();
        let Some(Role::Process(attached)) = role.as_deref() else {
            return Err(EINVAL);
        };
        // SAFETY: The area being set up.
        let (pgoff, length, mm) = unsafe {
            let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
            (
                (*vma).vm_pgoff as u64,
                bounds.vm_end.wrapping_sub(bounds.vm_start) as u64,
                (*vma).vm_mm,
            )
        };
        let writable = pgoff == map::BUFFERS / PAGE as u64;
        let bytes = match writable {
            true => tracing::attached::mapped_bytes(),
            false => map::READ_BYTES,
        };
        if !(writable || pgoff == 0) || length != bytes || !attached.mm.is(mm) {
            return Err(EINVAL);
        }
        // SAFETY: The area being set up; the operations are static.
        to_result(unsafe { shim::pt_vma(vma, &VM_OPS.0, writable) })?;
        tracing::attached::maps(attached.key, true);
        Ok(0)
    })
}

/// One more or less of a process's own areas; a child's are nobody's.
///
/// # Safety
///
/// An area of ours.
unsafe fn count(vma: *mut bindings::vm_area_struct, more: bool) {
    // SAFETY: By the function's requirement; its file is one of ours, and open.
    let (role, mm) = unsafe { (opened((*vma).vm_file).role(), (*vma).vm_mm) };
    if let Some(Role::Process(attached)) = role.as_deref() {
        if attached.mm.is(mm) {
            tracing::attached::maps(attached.key, more);
        }
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn vma_open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: An area of ours, split, moved or copied.
    unsafe { count(vma, true) }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn vma_close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: An area of ours.
    unsafe { count(vma, false) }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    let _span = Span::begin(Cost::Faults, Cost::FaultTime);
    // SAFETY: The kernel's own, for the time of the call.
    let (vma, pgoff) = unsafe {
        let at = &(*vmf).__bindgen_anon_1;
        (at.vma, at.pgoff)
    };
    // SAFETY: An area of ours.
    let (role, mm) = unsafe { (opened((*vma).vm_file).role(), (*vma).vm_mm) };
    let Some(Role::Process(attached)) = role.as_deref() else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    let key = attached.mm.is(mm).then_some(attached.key);
    let nobodys = attached.nobodys.address();
    // SAFETY: The fault is being handled; the pages are whole ones, and the area takes such
    // (pt_vma).
    let put = |page: usize| unsafe { shim::pt_insert(vmf, page) };
    tracing::attached::fault(key, pgoff as u64, nobodys, put)
        .unwrap_or(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
}
