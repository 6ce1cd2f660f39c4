// SPDX-License-Identifier: GPL-2.0

//! The functions of libperfmon that C programs call. On success a function returns 0, or the value
//! that its description names. On failure a function of libperfmon returns -1 and sets errno.
#![expect(unsafe_code, reason = "functions of the C ABI, given C's pointers")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ops::Deref;
use core::ptr::{null, NonNull};

use perfmon::selfpage::{read_counter, SelfPage, SelfPageMapping};
use perfmon_rules::abi::{
    Ctx, Load, Pmc, Pmd, Runs, SetDesc, SetInfo, Start, Status, CREATE_EVTSETS, DELETE_EVTSETS,
    GETINFO_EVTSETS, LOAD, PAUSE, READ_PMDS, READ_RUNS, RESTART, START, STATUS, STOP, UNLOAD,
    WRITE_PMCS, WRITE_PMDS,
};

use crate::device::{
    call_ioctl, call_vector_ioctl, create_context_or_close, fail_with_errno, open_device,
    SamplingFormat,
};
use crate::event::can_count_selected_events;
use crate::ring::Ring;

/// Creates a context and returns its file descriptor.
///
/// `smpl_name` is null or the name of a sampling format. If `smpl_name` is null, the function
/// ignores the argument of the format.
///
/// # Safety
///
/// `ctx` is null or valid for reads. `smpl_name` is null or a NUL-terminated string, in which case
/// `smpl_arg` has `smpl_size` bytes.
#[no_mangle]
pub unsafe extern "C" fn pfm_create_context(
    ctx: *const Ctx,
    smpl_name: *const c_char,
    smpl_arg: *const c_void,
    smpl_size: usize,
) -> c_int {
    let format = (!smpl_name.is_null()).then_some(SamplingFormat {
        name: smpl_name,
        arg: smpl_arg,
        arg_size: smpl_size,
    });
    match open_device() {
        -1 => -1,
        // SAFETY: By the function's contract `ctx`, the name and the argument are valid for reads.
        fd => unsafe { create_context_or_close(fd, ctx, format) },
    }
}

/// Writes PMCs (control registers). Fails with `EINVAL` if a PMC selects an event that its counter
/// cannot count. On a hybrid processor, events are not checked.
///
/// # Safety
///
/// `pmcs` points to `n` elements that are valid for reads.
#[no_mangle]
pub unsafe extern "C" fn pfm_write_pmcs(fd: c_int, pmcs: *mut Pmc, n: c_int) -> c_int {
    if !can_count_selected_events(pmcs, n) {
        return fail_with_errno(libc::EINVAL);
    }
    // SAFETY: By the function's contract `pmcs` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, WRITE_PMCS, pmcs, n) }
}

/// Writes PMDs (data registers) of a context.
///
/// # Safety
///
/// `pmds` points to `n` elements that are valid for reads.
#[no_mangle]
pub unsafe extern "C" fn pfm_write_pmds(fd: c_int, pmds: *mut Pmd, n: c_int) -> c_int {
    // SAFETY: By the function's contract `pmds` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, WRITE_PMDS, pmds, n) }
}

/// Reads PMDs (data registers) of a context.
///
/// # Safety
///
/// `pmds` points to `n` elements that are valid for reads and writes, and that no other thread
/// accesses during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_read_pmds(fd: c_int, pmds: *mut Pmd, n: c_int) -> c_int {
    // SAFETY: By the function's contract `pmds` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, READ_PMDS, pmds, n) }
}

/// Attaches a context to a thread or a CPU.
///
/// # Safety
///
/// `load` is null, or an address that the kernel may read.
#[no_mangle]
pub unsafe extern "C" fn pfm_load_context(fd: c_int, load: *const Load) -> c_int {
    // SAFETY: By the function's contract the kernel may read `load`.
    unsafe { call_ioctl(fd, LOAD, load.cast()) }
}

/// Detaches a context from its thread or CPU.
#[no_mangle]
pub extern "C" fn pfm_unload_context(fd: c_int) -> c_int {
    // SAFETY: The ioctl has no argument, and the kernel does not access memory.
    unsafe { call_ioctl(fd, UNLOAD, null()) }
}

/// Starts counting in a context.
///
/// # Safety
///
/// `start` is null, or an address that the kernel may read.
#[no_mangle]
pub unsafe extern "C" fn pfm_start(fd: c_int, start: *const Start) -> c_int {
    // SAFETY: By the function's contract the kernel may read `start`.
    unsafe { call_ioctl(fd, START, start.cast()) }
}

/// Stops counting in a context.
#[no_mangle]
pub extern "C" fn pfm_stop(fd: c_int) -> c_int {
    // SAFETY: The ioctl has no argument, and the kernel does not access memory.
    unsafe { call_ioctl(fd, STOP, null()) }
}

/// Stores in `status` the state of a context (`PERFMON_STATUS_*`) and its statistics since it was
/// attached: how often and how long sampling was throttled, and how many samples were lost during
/// that time.
///
/// # Safety
///
/// `status` is null, or an address that the kernel may write.
#[no_mangle]
pub unsafe extern "C" fn pfm_get_status(fd: c_int, status: *mut Status) -> c_int {
    // SAFETY: By the function's contract the kernel may write `status`.
    unsafe { call_ioctl(fd, STATUS, status.cast()) }
}

/// Resumes a context that was masked by an overflow.
#[no_mangle]
pub extern "C" fn pfm_restart(fd: c_int) -> c_int {
    // SAFETY: The ioctl has no argument, and the kernel does not access memory.
    unsafe { call_ioctl(fd, RESTART, null()) }
}

/// Pauses the ring of a context if `paused` is not 0; otherwise resumes the ring.
#[no_mangle]
pub extern "C" fn pfm_pause(fd: c_int, paused: c_int) -> c_int {
    let paused = u32::from(paused != 0);
    // SAFETY: The local variable `paused` is valid for reads during the call.
    unsafe { call_ioctl(fd, PAUSE, (&raw const paused).cast()) }
}

/// Creates or changes event sets.
///
/// # Safety
///
/// `sets` points to `n` elements that are valid for reads and writes, and that no other thread
/// accesses during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_create_evtsets(fd: c_int, sets: *mut SetDesc, n: c_int) -> c_int {
    // SAFETY: By the function's contract `sets` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, CREATE_EVTSETS, sets, n) }
}

/// Deletes event sets.
///
/// # Safety
///
/// `sets` points to `n` elements that are valid for reads and writes, and that no other thread
/// accesses during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_delete_evtsets(fd: c_int, sets: *mut SetDesc, n: c_int) -> c_int {
    // SAFETY: By the function's contract `sets` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, DELETE_EVTSETS, sets, n) }
}

/// Returns the state of event sets: runs, times and usable registers.
///
/// # Safety
///
/// `sets` points to `n` elements that are valid for reads and writes, and that no other thread
/// accesses during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_getinfo_evtsets(fd: c_int, sets: *mut SetInfo, n: c_int) -> c_int {
    // SAFETY: By the function's contract `sets` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, GETINFO_EVTSETS, sets, n) }
}

/// Returns sums over all runs of event sets, for example the sums of the times and of the counts
/// (`struct perfmon_runs`).
///
/// # Safety
///
/// `sets` points to `n` elements that are valid for reads and writes, and that no other thread
/// accesses during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_read_runs(fd: c_int, sets: *mut Runs, n: c_int) -> c_int {
    // SAFETY: By the function's contract `sets` points to `n` elements that the kernel may access.
    unsafe { call_vector_ioctl(fd, READ_RUNS, sets, n) }
}

/// Maps the self page of a context and stores the address of the mapping in `page`.
///
/// # Safety
///
/// `page` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_map(fd: c_int, page: *mut NonNull<SelfPage>) -> c_int {
    match SelfPageMapping::new(fd) {
        Ok(mapping) => {
            // SAFETY: By the function's contract `page` is valid for writes.
            unsafe { page.write(mapping.into_raw()) };
            0
        }
        // ENODEV means that the file cannot be mapped, so the file is not a context.
        Err(libc::ENODEV) => fail_with_errno(libc::EBADF),
        Err(error) => fail_with_errno(error),
    }
}

/// Unmaps a self page.
///
/// # Safety
///
/// `page` is null, or was stored by [`pfm_self_map`] and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_unmap(page: Option<NonNull<SelfPage>>) -> c_int {
    match page {
        Some(page) => {
            // SAFETY: By the function's contract `page` is from `into_raw()` and is not used again.
            drop(unsafe { SelfPageMapping::from_raw(page) });
            0
        }
        None => fail_with_errno(libc::EINVAL),
    }
}

/// Reads a PMD (data register) of the calling thread's context. Makes a system call only if the
/// value cannot be computed from the self page.
///
/// # Safety
///
/// `page` is null or a self page that is mapped. `value` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_read(
    fd: c_int,
    page: Option<&SelfPage>,
    pmd: c_uint,
    value: *mut u64,
) -> c_int {
    let Ok(reg_num) = u16::try_from(pmd) else {
        return fail_with_errno(libc::EINVAL);
    };
    let mut result = page.and_then(|page| read_counter(page, reg_num));
    if result.is_none() {
        let mut pmd = Pmd {
            reg_num,
            ..Pmd::default()
        };
        // SAFETY: `pmd` is one element, which only this function accesses.
        if unsafe { call_vector_ioctl(fd, READ_PMDS, &raw mut pmd, 1) } == 0 {
            result = Some(pmd.reg_value);
        }
    }
    match result {
        Some(result) => {
            // SAFETY: By the function's contract `value` is valid for writes.
            unsafe { value.write(result) };
            0
        }
        None => -1,
    }
}

/// Maps the ring of a context and stores a handle in `ring`.
///
/// # Safety
///
/// `ring` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_open(fd: c_int, ring: *mut NonNull<Ring>) -> c_int {
    match Ring::open(fd) {
        Ok(opened) => {
            // SAFETY: By the function's contract `ring` is valid for writes.
            unsafe { ring.write(opened) };
            0
        }
        // ENODEV means that the file cannot be mapped, so the file is not a context.
        Err(libc::ENODEV) => fail_with_errno(libc::EBADF),
        Err(error) => fail_with_errno(error),
    }
}

/// Returns `ring` if it can be used in this process.
///
/// # Errors
///
/// `EINVAL` if `ring` is null, `EPERM` in a child that fork() has made since [`pfm_ring_open`].
fn check_ring_usable<R: Deref<Target = Ring>>(ring: Option<R>) -> Result<R, c_int> {
    match ring {
        Some(ring) if ring.is_mapped() => Ok(ring),
        Some(_) => Err(libc::EPERM),
        None => Err(libc::EINVAL),
    }
}

/// Unmaps a ring, and frees its memory. A child that fork() has made since [`pfm_ring_open`] has no
/// mapping of the ring, so the function only frees the memory.
///
/// # Safety
///
/// `ring` is null, or was stored by [`pfm_ring_open`] and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_close(ring: Option<NonNull<Ring>>) -> c_int {
    match ring {
        Some(ring) => {
            // SAFETY: By the function's contract `ring` is from `open()` and is not used again.
            unsafe { Ring::close(ring) };
            0
        }
        None => fail_with_errno(libc::EINVAL),
    }
}

/// Takes a snapshot of a backward ring: the next call of [`pfm_ring_read`] returns the record that
/// was the newest when the snapshot was taken.
///
/// # Safety
///
/// `ring` is null, or was stored by [`pfm_ring_open`] and no other thread uses it during the call.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_snapshot(ring: Option<&mut Ring>) -> c_int {
    match check_ring_usable(ring) {
        Ok(ring) => {
            ring.snapshot();
            0
        }
        Err(error) => fail_with_errno(error),
    }
}

/// Copies the next record and stores the address of the copy in `record`. Returns 1, or 0 if no
/// record is left.
///
/// # Safety
///
/// `ring` is null, or was stored by [`pfm_ring_open`] and no other thread uses it during the call.
/// `record` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_read(ring: Option<&mut Ring>, record: *mut *const u64) -> c_int {
    match check_ring_usable(ring).and_then(Ring::next) {
        Ok(Some(copy)) => {
            // SAFETY: By the function's contract `record` is valid for writes.
            unsafe { record.write(copy.as_ptr()) };
            1
        }
        Ok(None) => 0,
        Err(error) => fail_with_errno(error),
    }
}

/// Stores in `lost` the number of records that were lost so far.
///
/// # Safety
///
/// `ring` is null, or was stored by [`pfm_ring_open`] and no other thread uses it during the call.
/// `lost` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_lost(ring: Option<&Ring>, lost: *mut u64) -> c_int {
    match check_ring_usable(ring) {
        Ok(ring) => {
            // SAFETY: By the function's contract `lost` is valid for writes.
            unsafe { lost.write(ring.lost()) };
            0
        }
        Err(error) => fail_with_errno(error),
    }
}
