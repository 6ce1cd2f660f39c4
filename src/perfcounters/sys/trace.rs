// SPDX-License-Identifier: GPL-2.0

//! `/dev/perftrace`: calls on traces, of traced processes, and what these map. Turns user
//! space's structures into calls of [`crate::tracing`].

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use engine::filter;
use engine::trace::{self, call, Attach, Create, Describe, Info, Marker, Markers, Notify};
use engine::trace::{Control, Process, Read, Release, Room, Span};
use engine::trace::{FILTER_MAX, NO_NUMBER, NR_MARKERS};
use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVVec};
use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_int, c_long, c_uint, c_ulong};
use kernel::new_mutex;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex, UniqueArc};
use kernel::uaccess::{UserPtr, UserSlice};

use super::areas;
use super::buffers::Buffer;
use super::file::{is_ready, Device, Ops};
use super::leave::Wake;
use super::ppa::Clock;
use super::process::{is_dying, is_limit, say_refused, Mapping, Mm};
use super::rights;
use super::user::{bytes_of, read, read_all, write, write_all, Given};
use crate::tracing::attached::Nobodys;
use crate::tracing::{self, children, Held};

pub(super) static OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
    open: Some(open),
    release: Some(release),
    unlocked_ioctl: Some(ioctl),
    #[cfg(CONFIG_COMPAT)]
    compat_ioctl: Some(compat_ioctl),
    poll: Some(poll),
    mmap: Some(areas::mmap),
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
        children::watch_no_more();
        // SAFETY: Process context. The probe that adds to what the worker says has gone.
        unsafe { super::shim::pt_untold_end() };
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
pub(super) enum Role {
    /// A traced process.
    Process(Attached),
    /// The hold of a trace.
    Trace(Held),
}

pub(super) struct Attached {
    pub(super) key: u64,
    pub(super) mm: Mm,
    /// What `perftrace_attach.thread` was.
    thread: i64,
    /// What it and children that cannot be traced write where there is no trace.
    pub(super) nobodys: Arc<Nobodys>,
}

#[pin_data]
pub(super) struct Opened {
    #[pin]
    role: Mutex<Option<Arc<Role>>>,
    /// One at a time reads.
    #[pin]
    reading: Mutex<()>,
    /// By it processes are asked to let go of the module, and have not all done so.
    releases: AtomicBool,
}

impl Drop for Attached {
    fn drop(&mut self) {
        tracing::attached::detach(self.key, self.thread);
    }
}

impl Opened {
    pub(super) fn role(&self) -> Option<Arc<Role>> {
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
pub(super) unsafe fn opened<'a>(file: *mut bindings::file) -> &'a Opened {
    // SAFETY: Set in open, taken back in release.
    unsafe { &*(*file).private_data.cast::<Opened>() }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        is_ready()?;
        let opened = KBox::pin_init(
            pin_init!(Opened {
                role <- new_mutex!(None),
                reading <- new_mutex!(()),
                releases: AtomicBool::new(false),
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
    let opened = unsafe { KBox::from_raw((*file).private_data.cast::<Opened>()) };
    // Who asked has ended in the midst of it.
    if opened.releases.load(Relaxed) {
        tracing::leave::resume();
    }
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

/// A 32-bit program is told, and the kernel's log says more: there is no library for one, and
/// who writes into the buffers must be able to write 64 bits at once.
///
/// # Safety
///
/// Called by the kernel, as the operation it is named after.
#[cfg(CONFIG_COMPAT)]
unsafe extern "C" fn compat_ioctl(_: *mut bindings::file, _: c_uint, _: c_ulong) -> c_long {
    pr_warn_once!(
        "perftrace: 32-bit programs cannot be traced, nor trace others; build them for 64 bits\n"
    );
    EOPNOTSUPP.to_errno() as c_long
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
            // SAFETY: Numbers, without padding: src/engine/trace.rs asserts the sizes.
            unsafe impl Given for $name {}
        )*
    };
}

given! { Attach Control Create Describe Info Marker Markers Notify Process Read Release Room }

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
        call::RELEASE => return release_all(opened, arg),
        _ => {}
    }
    let role = opened.role();
    if command == call::PROCESS && !matches!(role.as_deref(), Some(Role::Trace(_))) {
        let from: Process = read(arg)?;
        return write(arg, &tracing::any_process(from.key)?);
    }
    let role = role.ok_or(EINVAL)?;
    match &*role {
        Role::Process(attached) => {
            // A child has its parent's file, but is not its parent.
            let key = match attached.mm.is_callers() {
                true => attached.key,
                false => children::own(&Mm::calls().ok_or(ESRCH)?)?,
            };
            match command {
                call::REGISTER => register(key, arg, true),
                call::UNREGISTER => register(key, arg, false),
                call::NOTIFY => {
                    let Notify { slot, cpu } = read(arg)?;
                    tracing::attached::notify(key, slot, cpu)
                }
                call::WAIT_ROOM => {
                    let Room { slot, cpu, tail } = read(arg)?;
                    tracing::attached::wait_for_room(key, slot, cpu, tail)
                }
                _ => Err(ENOTTY),
            }
        }
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

fn release_all(opened: &Opened, arg: UserPtr) -> Result {
    let mut given: Release = sized(arg)?;
    if !rights::may_unload() {
        return Err(EPERM);
    }
    let left = match (given.flags, given.wake as i32) {
        (trace::RESUME, -1) => {
            tracing::leave::resume();
            0
        }
        (0, -1) => tracing::leave::release(None)? as u32,
        (0, fd) => tracing::leave::release(Some(&Wake::get(fd)?))? as u32,
        _ => return Err(EINVAL),
    };
    // Relaxed: looked at when nobody has the file any more.
    opened.releases.store(left != 0, Relaxed);
    given.left = left;
    write(arg, &given)
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
        let shared = attach.flags & trace::flag::SHARED != 0;
        let (key, pieces, nobodys) = tracing::attached::attach(&mm, mapping, shared)?;
        (attach.key, [attach.control, attach.buffers]) = (key, pieces);
        let thread = attach.thread as i64;
        tracing::attached::has_thread(key, thread);
        Ok(Role::Process(Attached {
            key,
            mm,
            thread,
            nobodys,
        }))
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
    let (mut done, mut limit) = (Ok(()), None);
    (given.bad, given.refused) = (u32::MAX, 0);
    for (n, marker) in (0u32..).zip(markers.iter_mut()) {
        let one = match on {
            true => tracing::attached::register(key, marker),
            false => tracing::attached::unregister(key, marker.number),
        };
        if let Err(error) = one {
            given.refused = given.refused.wrapping_add(1);
            limit = limit.or(is_limit(error).then_some(error));
            if done.is_ok() {
                given.bad = n;
                done = Err(error);
            }
        }
    }
    if on {
        if let Err(error) = write_all(UserPtr::from_addr(at), &markers) {
            // Nobody knows their numbers.
            for marker in markers.iter().filter(|m| m.number != NO_NUMBER) {
                let _ = tracing::attached::unregister(key, marker.number);
            }
            return Err(error);
        }
        if let Some(limit) = limit {
            say_refused(true, limit);
        }
    }
    if done.is_err() {
        write(arg, &given)?;
    }
    done
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

/// Bytes that are copied at once, to memory of ours first: user space's may be a page that comes
/// when its owner likes.
const PIECE: usize = 16 << 10;

fn read_next(opened: &Opened, held: &Held, arg: UserPtr) -> Result {
    // What is copied is copied once, and in order.
    let _others = opened.reading.lock();
    let mut given: Read = read(arg)?;
    let capacity = given.bytes;
    loop {
        if is_dying() {
            return Err(EINTR);
        }
        let (key, cpu, buffer) = tracing::next(held, given.key, given.cpu)?;
        (given.key, given.cpu) = (key, cpu);
        // If there is nothing any more its writer has made nonsense of it since: the one after it.
        let Some(span) = buffer.news() else { continue };
        (given.lost, given.position) = (buffer.lost(), span.position);
        given.ticks = Clock::of_traces().ticks();
        given.bytes = span.bytes;
        if !tracing::may_have(held, key)? {
            continue;
        }
        if span.bytes > capacity {
            write(arg, &given)?;
            return Err(ENOSPC);
        }
        let to = UserPtr::from_addr(usize::try_from(given.to)?);
        let Some(bytes) = give(held, key, &buffer, &span, to)? else {
            continue;
        };
        given.bytes = bytes;
        write(arg, &given)?;
        if !buffer.flight {
            buffer.told(given.lost);
            buffer.read_up_to(span.next);
            held.signal.has_read();
        }
        return Ok(());
    }
}

/// Copies a span of a process's buffer to user space: the bytes that are good. `None`: the
/// reader may not have it any more. Rights are looked at when a piece is in memory of ours:
/// however long user space's takes, what is written meanwhile is not given out.
fn give(held: &Held, key: u64, buffer: &Buffer, span: &Span, to: UserPtr) -> Result<Option<u32>> {
    let all = span.bytes as usize;
    let mut writer = UserSlice::new(to, all).writer();
    let mut piece = KVVec::from_elem(0u64, all.min(PIECE).div_ceil(8), GFP_KERNEL_ACCOUNT)?;
    let mut done = 0usize;
    while done < all {
        let bytes = all.wrapping_sub(done).min(PIECE);
        let piece = piece.get_mut(..bytes / 8).ok_or(EINVAL)?;
        buffer.copy(span, done, piece);
        let good = buffer.good(span) as usize;
        if !tracing::may_have(held, key)? {
            return Ok(None);
        }
        let good = good.saturating_sub(done).min(bytes);
        writer.write_slice(bytes_of(piece).get(..good).ok_or(EINVAL)?)?;
        done = done.wrapping_add(good);
        // Of a flight recorder: the rest was written over.
        if good < bytes {
            break;
        }
    }
    Ok(Some(done as u32))
}
