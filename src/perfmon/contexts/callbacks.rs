// SPDX-License-Identifier: GPL-2.0

//! The functions that the deferred work of a context (`src/perfmon/helpers/deferral.c`) and the
//! workers of perfmon (`src/perfmon/helpers/pmu.c`) call.

#![expect(unsafe_code, reason = "called by C with the addresses of contexts")]

use kernel::ffi::c_void;
use kernel::sync::Arc;
use perfmon_rules::register_map::Scope;

use crate::contexts::context::{loaded_or_attached_context, Context, ContextState};
use crate::helpers;
use crate::session;
use base::cpu;

/// Drops the reference to `context` that the caller of `Deferral::put_context_rcu` has given up.
///
/// # Safety
///
/// Called only by `src/perfmon/helpers/deferral.c`, in a worker, once for each call of
/// `Deferral::put_context_rcu`.
#[no_mangle]
unsafe extern "C" fn pfm_context_put(context: *const c_void) {
    // SAFETY: The pointer is from `Arc::into_raw`, by the requirement of
    // `Deferral::put_context_rcu`.
    drop(unsafe { Arc::from_raw(context.cast::<Context>()) });
}

/// Ends `context`, unless the context was detached after `blocker` had blocked its thread. Called
/// when the process that attached the context has exited, or has lost the permission to stop the
/// context's thread.
///
/// # Safety
///
/// Called only by `src/perfmon/helpers/deferral.c`, in the sleeping thread, inside an RCU read-side
/// critical section, with the context that is attached to the deferral.
#[no_mangle]
unsafe extern "C" fn pfm_end_refused(context: *const c_void, blocker: *const helpers::Blocker) {
    let is_that = |state: &ContextState| {
        let own = state.blocker.as_ref();
        own.is_some_and(|own| own.raw.as_ptr().cast_const() == blocker)
    };
    // SAFETY: `Deferral::put_context_rcu` clears the pointer before it starts the grace period
    // after which the context is freed. The caller read the pointer inside an RCU read-side
    // critical section.
    unsafe { (*context.cast::<Context>()).end_without_permission_if(&is_that) };
}

/// Checks again whether the context's user may monitor the context's thread.
///
/// # Safety
///
/// Called only by `src/perfmon/helpers/deferral.c`, in a worker, with the context that is attached
/// to the deferral.
#[no_mangle]
unsafe extern "C" fn pfm_recheck_permission(context: *const c_void) {
    // SAFETY: The deferral is a field of the context. The drop of the deferral cancels the
    // permission check, or waits until the check has ended. If the check returns an error, the
    // check is repeated the next time that the context's thread is scheduled in.
    let _ = unsafe { (*context.cast::<Context>()).recheck_permission() };
}

/// Does the deferred work of a context, in the timer if `timer` is set, otherwise in the irq_work.
///
/// # Safety
///
/// Called only by `src/perfmon/helpers/deferral.c`, with interrupts off, with the context that is
/// attached to the deferral.
#[no_mangle]
unsafe extern "C" fn pfm_deferred_work(context: *const c_void, timer: bool) {
    // SAFETY: The deferral is a field of the context. The drop of the deferral waits for the
    // irq_work and the timer.
    unsafe { (*context.cast::<Context>()).handle_timer_or_irq_work(timer) }
}

/// Reads the counters of all contexts that are in a PMU, on every CPU, so that no counter wraps
/// unnoticed.
#[no_mangle]
extern "C" fn pfm_wrap_timer_work() {
    cpu::call_on_all_cpus(&|| {
        for scope in [Scope::Thread, Scope::System] {
            if let Some(context) = loaded_or_attached_context(scope) {
                context.sync_and_deliver_if_local();
            }
        }
    });
}

#[no_mangle]
extern "C" fn pfm_detach_idle_probes() {
    session::detach_idle_probes();
}
