// SPDX-License-Identifier: GPL-2.0

//! `/dev/perfmon`: calls on contexts. Turns user space's structures into calls of
//! [`crate::contexts`].

use core::mem::{offset_of, size_of, MaybeUninit};

use engine::calls::{self, Ctx, Load, Pmc, Pmd, Start, Vector};
use engine::context::{Error, Registers};
use engine::pmu::Scope;
use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_int, c_long, c_uint, c_ulong};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use kernel::uaccess::{UserPtr, UserSlice};

use super::file::{Device, Ops};
use super::sched;
use crate::contexts::Context;
use crate::pmu::{self, refused};

static PERFMON_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::THIS_MODULE.as_ptr(),
    open: Some(open),
    release: Some(release),
    unlocked_ioctl: Some(ioctl),
    mmap: Some(super::selfpage::mmap),
    llseek: Some(bindings::noop_llseek),
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
        // Until nobody who found it before still looks at it.
        sched::synchronize();
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
        return create(opened, read(arg)?);
    }
    // Taken out of the lock: a call may sleep, others go on.
    let context = opened.lock().clone().ok_or(EINVAL)?;
    match command {
        calls::WRITE_PMCS => write_pmcs(&context, read(arg)?),
        calls::WRITE_PMDS => write_pmds(&context, read(arg)?),
        calls::READ_PMDS => read_pmds(&context, read(arg)?),
        calls::LOAD => {
            let load: Load = read(arg)?;
            load.check().map_err(refused)?;
            context.load(load.load_pid)
        }
        calls::UNLOAD => context.unload(),
        calls::START => {
            if address != 0 {
                let start: Start = read(arg)?;
                start.check().map_err(refused)?;
            }
            context.start()
        }
        calls::STOP => context.stop(),
        _ => Err(ENOTTY),
    }
}

/// A structure that user space gives: numbers only, so that any bytes are one.
///
/// # Safety
///
/// All bit patterns are values, and there is no padding.
unsafe trait Given: Copy {}
// SAFETY: Numbers, without padding: src/engine/calls.rs asserts the sizes.
unsafe impl Given for Ctx {}
// SAFETY: As above.
unsafe impl Given for Load {}
// SAFETY: As above.
unsafe impl Given for Start {}
// SAFETY: As above.
unsafe impl Given for Vector {}
// SAFETY: As above.
unsafe impl Given for Pmc {}
// SAFETY: As above.
unsafe impl Given for Pmd {}

fn read<T: Given>(at: UserPtr) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: Its bytes, which are initialised.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    UserSlice::new(at, size_of::<T>())
        .reader()
        .read_slice(bytes)?;
    // SAFETY: Initialised, and any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// The elements of a vector, in one copy.
fn elements<T: Given>(vector: &Vector) -> Result<KVec<T>> {
    let nr = vector.nr as usize;
    if vector.size as usize != size_of::<T>() {
        return Err(EINVAL);
    }
    if nr > calls::VECTOR_MAX / size_of::<T>() {
        return Err(E2BIG);
    }
    let mut all = KVec::with_capacity(nr, GFP_KERNEL)?;
    let first = UserPtr::from_addr(usize::try_from(vector.items)?);
    let place = all.spare_capacity_mut().as_mut_ptr();
    // SAFETY: There is room for `nr` elements.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(
            place.cast::<MaybeUninit<u8>>(),
            nr.wrapping_mul(size_of::<T>()),
        )
    };
    UserSlice::new(first, bytes.len())
        .reader()
        .read_raw(bytes)?;
    // SAFETY: So many are initialised, as any bytes are one, and there is room.
    unsafe { all.inc_len(nr) };
    Ok(all)
}

fn create(opened: &Opened, ctx: Ctx) -> Result {
    let scope = ctx.scope().map_err(refused)?;
    if scope == Scope::System && !sched::is_perfmon_capable() {
        return Err(EPERM);
    }
    pmu::load();
    // Before the lock, under which nothing is taken that others hold.
    let context = Context::new(scope);
    let mut opened = opened.lock();
    if opened.is_some() {
        return Err(EBUSY);
    }
    *opened = Some(context?);
    Ok(())
}

fn write_pmcs(context: &Context, vector: Vector) -> Result {
    let privileged = sched::is_kernel_open();
    let described = context.described();
    let mut values = KVec::new();
    for pmc in elements::<Pmc>(&vector)? {
        pmc.check().map_err(refused)?;
        let (number, flags) = (pmc.reg_num, pmc.reg_flags);
        let allowed = |value| {
            let map = described.map();
            Registers::check_pmc(&map, context.scope(), privileged, number, flags, value)
                .map_err(refused)
        };
        // What a description makes of it is looked at like what the caller wrote.
        let value = allowed(described.check(number, allowed(pmc.reg_value)?)?)?;
        values.push((number, flags, value), GFP_KERNEL)?;
    }
    context.write_pmcs(&values)
}

fn pmds(context: &Context, vector: &Vector) -> Result<KVec<Pmd>> {
    let map = context.described().map();
    let given = elements::<Pmd>(vector)?;
    for pmd in &given {
        pmd.check().map_err(refused)?;
        let register = map.pmd(pmd.reg_num).ok_or(refused(Error::NoRegister))?;
        register.usable(context.scope()).map_err(refused)?;
    }
    Ok(given)
}

fn write_pmds(context: &Context, vector: Vector) -> Result {
    context.write_pmds(&pmds(context, &vector)?)
}

fn read_pmds(context: &Context, vector: Vector) -> Result {
    let mut given = pmds(context, &vector)?;
    context.read_pmds(&mut given)?;
    let first = usize::try_from(vector.items)?;
    for (n, pmd) in given.iter().enumerate() {
        let at = n
            .wrapping_mul(size_of::<Pmd>())
            .wrapping_add(offset_of!(Pmd, reg_value));
        let at = UserPtr::from_addr(first.wrapping_add(at));
        UserSlice::new(at, size_of::<u64>())
            .writer()
            .write(&pmd.reg_value)?;
    }
    Ok(())
}
