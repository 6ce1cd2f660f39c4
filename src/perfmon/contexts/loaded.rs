// SPDX-License-Identifier: GPL-2.0

//! Functions that find a context by its address in the per-CPU words ([`crate::per_cpu`]) or in the
//! table of monitored threads ([`crate::contexts::thread_table`]).

#![expect(unsafe_code, reason = "addresses of contexts in shared words")]

use perfmon_rules::register_map::Scope;

use crate::contexts::context::Context;
use crate::contexts::thread_table;
use crate::per_cpu;

/// Returns this CPU's context of the scope `scope`. `Scope::Thread` selects the current thread's
/// context that is programmed into this CPU's PMU. `Scope::System` selects the context that is
/// attached to this CPU. Called with interrupts or preemption off.
#[inline]
pub(crate) fn loaded_context<'a>(scope: Scope) -> Option<&'a Context> {
    // SAFETY: The per-CPU word is 0 or the address of a context. A context is freed one RCU grace
    // period after its removal from the per-CPU word, so it is valid while preemption is off.
    unsafe { (per_cpu::loaded_address(scope) as *const Context).as_ref() }
}

/// Finds the context of a task. Preemption must stay off while the result is used. Another CPU may
/// detach the context meanwhile, and even attach it to another task. The caller therefore checks
/// the context's target under the context's lock.
#[inline]
pub(crate) fn context_of_task<'a>(task: usize) -> Option<&'a Context> {
    // SAFETY: The table has addresses of contexts. A context is freed one RCU grace period after
    // its entry was removed (`Deferral::free_context`). The context is therefore valid while
    // preemption is off.
    unsafe {
        thread_table::context_address(task)
            .cast::<Context>()
            .as_ref()
    }
}
