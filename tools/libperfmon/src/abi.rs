// SPDX-License-Identifier: GPL-2.0

//! The functions of the C library.
#![expect(unsafe_code, reason = "functions of the C ABI, given C's pointers")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{null, NonNull};

use engine::calls::{
    Ctx, Load, Pmc, Pmd, Runs, SetDesc, SetInfo, Start, Status, CREATE_EVTSETS, DELETE_EVTSETS,
    GETINFO_EVTSETS, LOAD, PAUSE, READ_PMDS, READ_RUNS, RESTART, START, STATUS, STOP, UNLOAD,
    WRITE_PMCS, WRITE_PMDS,
};
use selfpage::{counter, Mapping, SelfPage};

use crate::device::{call, call_vector, create, open, refuse, Format};
use crate::ring::Ring;

/// A new context. Without a sampling format, its argument is not looked at.
///
/// # Safety
///
/// As in C: `ctx` is null, or can be read; so can what a format wants.
#[no_mangle]
pub unsafe extern "C" fn pfm_create_context(
    ctx: *const Ctx,
    smpl_name: *const c_char,
    smpl_arg: *const c_void,
    smpl_size: usize,
) -> c_int {
    let format = (!smpl_name.is_null()).then_some(Format {
        name: smpl_name,
        arg: smpl_arg,
        arg_size: smpl_size,
    });
    match open() {
        -1 => -1,
        // SAFETY: By the caller's word.
        fd => unsafe { create(fd, ctx, format) },
    }
}

/// Configures.
///
/// # Safety
///
/// As in C: there are `n` at `pmcs`.
#[no_mangle]
pub unsafe extern "C" fn pfm_write_pmcs(fd: c_int, pmcs: *mut Pmc, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, WRITE_PMCS, pmcs, n) }
}

/// Writes data.
///
/// # Safety
///
/// As in C: there are `n` at `pmds`.
#[no_mangle]
pub unsafe extern "C" fn pfm_write_pmds(fd: c_int, pmds: *mut Pmd, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, WRITE_PMDS, pmds, n) }
}

/// Reads data.
///
/// # Safety
///
/// As in C: there are `n` at `pmds`, and nobody else looks at them.
#[no_mangle]
pub unsafe extern "C" fn pfm_read_pmds(fd: c_int, pmds: *mut Pmd, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, READ_PMDS, pmds, n) }
}

/// Attaches.
///
/// # Safety
///
/// As in C: `load` is null, or an address that the kernel may read.
#[no_mangle]
pub unsafe extern "C" fn pfm_load_context(fd: c_int, load: *const Load) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call(fd, LOAD, load.cast()) }
}

/// Detaches.
#[no_mangle]
pub extern "C" fn pfm_unload_context(fd: c_int) -> c_int {
    // SAFETY: It has no argument.
    unsafe { call(fd, UNLOAD, null()) }
}

/// Counts.
///
/// # Safety
///
/// As in C: `start` is null, or an address that the kernel may read.
#[no_mangle]
pub unsafe extern "C" fn pfm_start(fd: c_int, start: *const Start) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call(fd, START, start.cast()) }
}

/// Counts no more.
#[no_mangle]
pub extern "C" fn pfm_stop(fd: c_int) -> c_int {
    // SAFETY: It has no argument.
    unsafe { call(fd, STOP, null()) }
}

/// State since it was attached: `PERFMON_STATUS_*`, storms and what was lost in them.
///
/// # Safety
///
/// As in C: `status` is null, or an address that the kernel may write.
#[no_mangle]
pub unsafe extern "C" fn pfm_get_status(fd: c_int, status: *mut Status) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call(fd, STATUS, status.cast()) }
}

/// Goes on after a notification.
#[no_mangle]
pub extern "C" fn pfm_restart(fd: c_int) -> c_int {
    // SAFETY: It has no argument.
    unsafe { call(fd, RESTART, null()) }
}

/// Writes no records, or does so again.
#[no_mangle]
pub extern "C" fn pfm_pause(fd: c_int, paused: c_int) -> c_int {
    let paused = u32::from(paused != 0);
    // SAFETY: It lives until the call is over.
    unsafe { call(fd, PAUSE, (&raw const paused).cast()) }
}

/// Makes event sets, or changes them.
///
/// # Safety
///
/// As in C: there are `n` at `sets`, and nobody else looks at them.
#[no_mangle]
pub unsafe extern "C" fn pfm_create_evtsets(fd: c_int, sets: *mut SetDesc, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, CREATE_EVTSETS, sets, n) }
}

/// Removes event sets.
///
/// # Safety
///
/// As in C: there are `n` at `sets`, and nobody else looks at them.
#[no_mangle]
pub unsafe extern "C" fn pfm_delete_evtsets(fd: c_int, sets: *mut SetDesc, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, DELETE_EVTSETS, sets, n) }
}

/// What became of event sets.
///
/// # Safety
///
/// As in C: there are `n` at `sets`, and nobody else looks at them.
#[no_mangle]
pub unsafe extern "C" fn pfm_getinfo_evtsets(fd: c_int, sets: *mut SetInfo, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, GETINFO_EVTSETS, sets, n) }
}

/// How the turns of event sets differed.
///
/// # Safety
///
/// As in C: there are `n` at `sets`, and nobody else looks at them.
#[no_mangle]
pub unsafe extern "C" fn pfm_read_runs(fd: c_int, sets: *mut Runs, n: c_int) -> c_int {
    // SAFETY: By the caller's word.
    unsafe { call_vector(fd, READ_RUNS, sets, n) }
}

/// Maps the self page of a context.
///
/// # Safety
///
/// As in C: there is room for an address at `page`.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_map(fd: c_int, page: *mut NonNull<SelfPage>) -> c_int {
    match Mapping::new(fd) {
        Ok(mapping) => {
            // SAFETY: By the caller's word.
            unsafe { page.write(mapping.into_raw()) };
            0
        }
        // What is no context has no page.
        Err(libc::ENODEV) => refuse(libc::EBADF),
        Err(error) => refuse(error),
    }
}

/// Unmaps it.
///
/// # Safety
///
/// As in C: `page` is null, or of [`pfm_self_map`] and not used any more.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_unmap(page: Option<NonNull<SelfPage>>) -> c_int {
    match page {
        Some(page) => {
            // SAFETY: By the caller's word.
            drop(unsafe { Mapping::from_raw(page) });
            0
        }
        None => refuse(libc::EINVAL),
    }
}

/// Reads a PMD of the calling thread's context, without a system call if that is
/// possible.
///
/// # Safety
///
/// As in C: `page` is null or mapped, and there is room for a number at `value`.
#[no_mangle]
pub unsafe extern "C" fn pfm_self_read(
    fd: c_int,
    page: Option<&SelfPage>,
    pmd: c_uint,
    value: *mut u64,
) -> c_int {
    let Ok(reg_num) = u16::try_from(pmd) else {
        return refuse(libc::EINVAL);
    };
    let mut got = page.and_then(|page| counter(page, reg_num));
    if got.is_none() {
        let mut pmd = Pmd {
            reg_num,
            ..Pmd::default()
        };
        // SAFETY: There is one, and it is this function's.
        if unsafe { call_vector(fd, READ_PMDS, &raw mut pmd, 1) } == 0 {
            got = Some(pmd.reg_value);
        }
    }
    match got {
        Some(got) => {
            // SAFETY: By the caller's word.
            unsafe { value.write(got) };
            0
        }
        None => -1,
    }
}

/// Maps the ring of a context.
///
/// # Safety
///
/// As in C: there is room for an address at `ring`.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_open(fd: c_int, ring: *mut NonNull<Ring>) -> c_int {
    match Ring::open(fd) {
        Ok(opened) => {
            // SAFETY: By the caller's word.
            unsafe { ring.write(opened) };
            0
        }
        // What is no context has no ring.
        Err(libc::ENODEV) => refuse(libc::EBADF),
        Err(error) => refuse(error),
    }
}

/// Unmaps it.
///
/// # Safety
///
/// As in C: `ring` is null, or of [`pfm_ring_open`] and not used any more.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_close(ring: Option<NonNull<Ring>>) -> c_int {
    match ring {
        Some(ring) => {
            // SAFETY: By the caller's word.
            unsafe { Ring::close(ring) };
            0
        }
        None => refuse(libc::EINVAL),
    }
}

/// Takes what a backward ring holds now: the next record read is its newest.
///
/// # Safety
///
/// As in C: `ring` is null, or of [`pfm_ring_open`], and no other thread uses it.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_snapshot(ring: Option<&mut Ring>) -> c_int {
    match ring {
        Some(ring) => {
            ring.snapshot();
            0
        }
        None => refuse(libc::EINVAL),
    }
}

/// Copies the next record: 1; there is none: 0.
///
/// # Safety
///
/// As for [`pfm_ring_snapshot`], and there is room for an address at `record`.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_read(ring: Option<&mut Ring>, record: *mut *const u64) -> c_int {
    match ring.map(Ring::next) {
        Some(Ok(Some(copy))) => {
            // SAFETY: By the caller's word.
            unsafe { record.write(copy.as_ptr()) };
            1
        }
        Some(Ok(None)) => 0,
        Some(Err(error)) => refuse(error),
        None => refuse(libc::EINVAL),
    }
}

/// Records that could not be written, so far.
///
/// # Safety
///
/// As for [`pfm_ring_snapshot`], and there is room for a number at `lost`.
#[no_mangle]
pub unsafe extern "C" fn pfm_ring_lost(ring: Option<&Ring>, lost: *mut u64) -> c_int {
    match ring {
        Some(ring) => {
            // SAFETY: By the caller's word.
            unsafe { lost.write(ring.lost()) };
            0
        }
        None => refuse(libc::EINVAL),
    }
}
