// SPDX-License-Identifier: GPL-2.0

//! `/dev/perfmon`: calls on contexts. Turns user space's structures into calls of
//! [`crate::contexts`].

use core::mem::{offset_of, size_of};

use engine::calls::{
    self, Create, Ctx, Load, Pmc, Pmd, Runs, SetDesc, SetInfo, Start, Status, Vector,
};
use engine::context::{check_pmc, Error, SHORT};
use engine::pmu::{kind, Scope};
use engine::sampling::Message;
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use kernel::uaccess::{UserPtr, UserSlice};

use super::file::{is_ready, Device, Ops};
use super::format::{self, Areas, Buffer};
use super::user::{read, read_all, write, write_all, Given};
use super::{misc, nmi, rights};
use crate::contexts::{Context, Kind};
use crate::formats::{self, Wanted};
use crate::pmu::{self, refused};

static PERFMON_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
    open: Some(open),
    release: Some(release),
    unlocked_ioctl: Some(ioctl),
    // All structures are the same there: numbers of their own size, in natural order.
    #[cfg(CONFIG_COMPAT)]
    compat_ioctl: bindings::compat_ptr_ioctl,
    read: Some(read_message),
    poll: Some(poll),
    fasync: Some(fasync),
    mmap: Some(super::selfpage::mmap),
    ..pin_init::zeroed()
});

/// Makes the device appear.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"perfmon", &PERFMON_OPS, 0o660)
}

/// What an open file has: a context, once it was created.
type Opened = Mutex<Option<Arc<Context>>>;

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn open(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    from_result(|| {
        is_ready()?;
        let opened = KBox::pin_init(new_mutex!(None::<Arc<Context>>), GFP_KERNEL_ACCOUNT)?;
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
    let context = opened.lock().take();
    if let Some(context) = context {
        let _ = context.unload();
        context.close();
    }
    0
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    // SAFETY: Set in open, taken back in release.
    let opened = unsafe { &*(*file).private_data.cast::<Opened>() };
    match call(opened, command, arg) {
        Ok(()) => 0,
        Err(error) => error.to_errno() as c_long,
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn read_message(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    _: *mut bindings::loff_t,
) -> isize {
    let done = || -> Result<usize> {
        // SAFETY: A file of ours.
        let context = unsafe { context_of(file)? };
        context.settle_doubt()?;
        // SAFETY: The file is open.
        let waits = unsafe { (*file).f_flags } & bindings::O_NONBLOCK == 0;
        if count < size_of::<Message>() {
            return Err(EINVAL);
        }
        let message = loop {
            if let Some(message) = context.message() {
                break message;
            }
            if !waits {
                return Err(EAGAIN);
            }
            context.bell.wait(|| context.has_message())?;
        };
        write(UserPtr::from_addr(to as usize), &message)
            .inspect_err(|_| context.put_back(&message))?;
        Ok(size_of::<Message>())
    };
    match done() {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
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
    let Ok(context) = (unsafe { context_of(file) }) else {
        return bindings::POLLERR;
    };
    // SAFETY: The context stays while its file is open, and who waits holds that.
    unsafe { context.bell.poll(file, table) };
    match context.has_message() {
        true => bindings::POLLIN | bindings::POLLRDNORM,
        false => 0,
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn fasync(fd: c_int, file: *mut bindings::file, on: c_int) -> c_int {
    // SAFETY: A file of ours.
    match unsafe { context_of(file) } {
        // SAFETY: As the kernel gave them.
        Ok(context) => unsafe { context.bell.fasync(fd, file, on) },
        // It can have been turned on only for a context.
        Err(_) if on == 0 => 0,
        Err(error) => error.to_errno(),
    }
}

/// The context of a file of ours. `EINVAL` if it has none yet.
///
/// # Safety
///
/// `file` is one of `/dev/perfmon`, and open.
pub(super) unsafe fn context_of(file: *mut bindings::file) -> Result<Arc<Context>> {
    // SAFETY: Set in open, taken back in release.
    let opened = unsafe { &*(*file).private_data.cast::<Opened>() };
    let context = opened.lock().clone();
    context.ok_or(EINVAL)
}

fn call(opened: &Opened, command: u32, address: usize) -> Result {
    let arg = UserPtr::from_addr(address);
    if command == calls::CREATE {
        return create(opened, read(arg)?, None);
    }
    if command == calls::CREATE_FORMAT {
        let create_arg: Create = read(arg)?;
        return create(opened, create_arg.ctx, Some(&create_arg));
    }
    // Taken out of the lock: a call may sleep, others go on.
    let any = || opened.lock().clone().ok_or(EINVAL);
    let context = || any().and_then(|context| context.settle_doubt().map(|()| context));
    match command {
        calls::WRITE_PMCS => write_pmcs(&*context()?, read(arg)?),
        calls::WRITE_PMDS => write_pmds(&*context()?, read(arg)?),
        calls::READ_PMDS => read_pmds(&*context()?, read(arg)?),
        calls::LOAD => {
            let load: Load = read(arg)?;
            load.check().map_err(refused)?;
            context()?.load(load.load_pid, load.load_set)
        }
        calls::UNLOAD => any()?.unload(),
        calls::START => {
            let set = match address {
                0 => None,
                _ => {
                    let start: Start = read(arg)?;
                    start.check().map_err(refused)?;
                    Some(start.start_set)
                }
            };
            context()?.start(set)
        }
        calls::STOP => context()?.stop(),
        calls::STATUS => write(arg, &context()?.status()),
        calls::CREATE_EVTSETS => create_sets(&*context()?, read(arg)?),
        calls::DELETE_EVTSETS => delete_sets(&*context()?, read(arg)?),
        calls::GETINFO_EVTSETS => set_infos(&*context()?, read(arg)?),
        calls::READ_RUNS => read_runs(&*context()?, read(arg)?),
        calls::RESTART => context()?.restart(),
        calls::PAUSE => match read::<u32>(arg)? {
            0 => context()?.pause(false),
            1 => context()?.pause(true),
            _ => Err(EINVAL),
        },
        _ => Err(ENOTTY),
    }
}

// SAFETY: Numbers, without padding: src/engine/sampling.rs asserts the size.
unsafe impl Given for Message {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Ctx {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Create {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Load {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Start {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Vector {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Pmc {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Pmd {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for SetDesc {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for SetInfo {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Runs {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Status {}

/// The elements of a vector, in one copy.
fn elements<T: Given>(vector: &Vector) -> Result<KVVec<T>> {
    let nr = vector.nr as usize;
    if vector.size as usize != size_of::<T>() {
        return Err(EINVAL);
    }
    if nr > calls::VECTOR_MAX / size_of::<T>() {
        return Err(E2BIG);
    }
    read_all(vector.items, nr)
}

/// What a context samples into, by the name or the number of a format.
fn buffer_of(create: &Create) -> Result<(Buffer, Arc<Areas>)> {
    // One more, to see that it is too long.
    let mut name = [0u8; calls::FORMAT_NAME + 1];
    let wanted = if create.name == 0 {
        Wanted::Uuid(create.uuid)
    } else {
        let at = UserPtr::from_addr(usize::try_from(create.name)?);
        Wanted::Name(
            UserSlice::new(at, name.len())
                .reader()
                .strcpy_into_buf(&mut name)?,
        )
    };
    let format = formats::find(&wanted)?;
    let bytes = usize::try_from(create.arg_size)?;
    if bytes != format.arg_size() {
        return Err(EINVAL);
    }
    let mut arg = format::argument(bytes)?;
    let at = UserPtr::from_addr(usize::try_from(create.arg)?);
    // SAFETY: Its bytes, which are initialised.
    let into = unsafe { core::slice::from_raw_parts_mut(arg.as_mut_ptr().cast::<u8>(), bytes) };
    UserSlice::new(at, bytes).reader().read_slice(into)?;
    Buffer::new(format, &arg)
}

fn create(opened: &Opened, ctx: Ctx, format: Option<&Create>) -> Result {
    let scope = ctx.scope().map_err(refused)?;
    if scope == Scope::System && !rights::is_perfmon_capable() {
        return Err(EPERM);
    }
    pmu::load();
    // Before the lock, under which nothing is taken that others hold.
    let buffer = format.map(buffer_of).transpose()?;
    let context = Context::new(Kind {
        scope,
        silent: ctx.ctx_flags & calls::FL_OVFL_NO_MSG != 0,
        blocks: ctx.ctx_flags & calls::FL_NOTIFY_BLOCK != 0,
        core: ctx.ctx_core,
        buffer,
    });
    let mut opened = opened.lock();
    if opened.is_some() {
        return Err(EBUSY);
    }
    *opened = Some(context?);
    Ok(())
}

fn write_pmcs(context: &Context, vector: Vector) -> Result {
    let privileged = rights::is_kernel_open();
    let described = context.described();
    let mut values = elements::<Pmc>(&vector)?;
    for pmc in &mut values {
        pmc.check().map_err(refused)?;
        let (number, flags) = (pmc.reg_num, pmc.reg_flags);
        let allowed = |value| {
            let map = described.map();
            check_pmc(&map, context.scope(), privileged, number, flags, value).map_err(refused)
        };
        // What a description makes of it is looked at like what the caller wrote.
        pmc.reg_value = allowed(described.check(number, allowed(pmc.reg_value)?)?)?;
    }
    context.write_pmcs(&values)
}

fn pmds(
    context: &Context,
    vector: &Vector,
    check: fn(&Pmd) -> Result<(), Error>,
) -> Result<KVVec<Pmd>> {
    let map = context.described().map();
    let given = elements::<Pmd>(vector)?;
    for pmd in &given {
        check(pmd).map_err(refused)?;
        let register = map.pmd(pmd.reg_num).ok_or(refused(Error::NoRegister))?;
        register.usable(context.scope()).map_err(refused)?;
    }
    Ok(given)
}

fn write_pmds(context: &Context, vector: Vector) -> Result {
    let map = context.described().map();
    let mut given = pmds(context, &vector, Pmd::check)?;
    for pmd in &mut given {
        if pmd.reg_random_seed == 0 {
            pmd.reg_random_seed = u32::from_ne_bytes(misc::random());
        }
        let counts = |number: u16| map.pmd(number).is_some_and(|r| r.is(kind::COUNTER));
        let usable = |number: u16| {
            map.pmd(number)
                .is_some_and(|r| r.usable(context.scope()).is_ok())
        };
        let (mut smpl, mut reset) = (pmd.reg_smpl_pmds.iter(), pmd.reg_reset_pmds.iter());
        if (pmd.samples() && !counts(pmd.reg_num))
            || !smpl.all(|n| usable(n as u16))
            || !reset.all(|n| usable(n as u16) && counts(n as u16))
        {
            return Err(EINVAL);
        }
    }
    context.write_pmds(&given)
}

fn read_pmds(context: &Context, vector: Vector) -> Result {
    let mut given = pmds(context, &vector, Pmd::check_read)?;
    context.read_pmds(&mut given)?;
    let first = usize::try_from(vector.items)?;
    for (n, pmd) in given.iter().enumerate() {
        let at = first.wrapping_add(n.wrapping_mul(size_of::<Pmd>()));
        let flags = UserPtr::from_addr(at.wrapping_add(offset_of!(Pmd, reg_flags)));
        UserSlice::new(flags, size_of::<u32>())
            .writer()
            .write(&pmd.reg_flags)?;
        for (field, value) in [
            (offset_of!(Pmd, reg_value), pmd.reg_value),
            (offset_of!(Pmd, reg_last_reset_val), pmd.reg_last_reset_val),
        ] {
            let at = UserPtr::from_addr(at.wrapping_add(field));
            UserSlice::new(at, size_of::<u64>())
                .writer()
                .write(&value)?;
        }
    }
    Ok(())
}

/// Gives the elements of a vector back.
fn write_back<T: Given>(vector: &Vector, all: &[T]) -> Result {
    write_all(UserPtr::from_addr(usize::try_from(vector.items)?), all)
}

fn create_sets(context: &Context, vector: Vector) -> Result {
    let mut given = elements::<SetDesc>(&vector)?;
    let mut wanted = KVec::with_capacity(given.len(), GFP_KERNEL)?;
    for set in &mut given {
        let terms = set.terms(nmi::resolution()).map_err(refused)?;
        set.set_timeout = terms.timeout();
        wanted.push((set.set_id, terms), GFP_KERNEL)?;
    }
    // Before there are any, which nobody could take back.
    write_back(&vector, &given)?;
    context.create_sets(&wanted)
}

fn delete_sets(context: &Context, vector: Vector) -> Result {
    let given = elements::<SetDesc>(&vector)?;
    let mut ids = KVec::with_capacity(given.len(), GFP_KERNEL)?;
    if given.iter().any(|set| set.reserved != [0; 6]) {
        return Err(EINVAL);
    }
    for set in &given {
        ids.push(set.set_id, GFP_KERNEL)?;
    }
    context.delete_sets(&ids)
}

fn set_infos(context: &Context, vector: Vector) -> Result {
    let mut given = elements::<SetInfo>(&vector)?;
    if given.iter().any(|set| set.reserved != [0; 6]) {
        return Err(EINVAL);
    }
    context.set_infos(&mut given)?;
    write_back(&vector, &given)
}

fn read_runs(context: &Context, vector: Vector) -> Result {
    let mut given = elements::<Runs>(&vector)?;
    if given.iter().any(|runs| runs.reg_flags & !SHORT != 0) {
        return Err(EINVAL);
    }
    context.read_runs(&mut given)?;
    write_back(&vector, &given)
}
