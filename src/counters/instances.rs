// SPDX-License-Identifier: GPL-2.0

//! The implementation of `perf_add()` and `perf_del()`, which add and delete counter instances in
//! the registry.

use counters_rules::error::Error::UpdatesInFlight;
use counters_rules::layout::{Layout, MAX_PAGES_PER_CHUNK};
use counters_rules::registry::Registry;
use counters_rules::spec::Spec;
use kernel::prelude::*;
use kernel::str::{BStr, CStr};

use crate::log::{self, LogKind};
use crate::owner::ModuleOwner;
use crate::pages::RegistryPages;
use base::global_mutex;
use base::hotplug::OnlineCallbacks;
use base::{cpu, preempt, random};

global_mutex! {
    /// All instances of the counter pages; `None` before init and after exit. `REGISTRY` may be
    /// taken under any other mutex of the module. Code that holds `REGISTRY` takes no other mutex
    /// of the module, accesses no user memory, and allocates no memory that is charged to a control
    /// group. Page faults of counter pages do not take `REGISTRY`.
    pub(crate) static REGISTRY: Mutex<Option<Registry<RegistryPages>>> = None;
}

/// A guard for the registry of counter instances. Dropping the guard frees the registry and its
/// pages.
pub(crate) struct RegistryOwner(());

impl RegistryOwner {
    /// Creates an empty registry of counter instances. Called once, from module init.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pages_per_chunk` is out of range, `ERANGE` if there are too many possible CPUs,
    /// `ENOMEM`.
    pub(crate) fn new(pages_per_chunk: u32) -> Result<Self> {
        let layout = Layout::new(cpu::nr_cpu_ids(), pages_per_chunk).ok_or_else(|| {
            pr_err!("pages_per_chunk={pages_per_chunk}: must be 1 to {MAX_PAGES_PER_CHUNK}\n");
            EINVAL
        })?;
        if cpu::nr_cpu_ids() > counters_rules::abi::MAX_CPUS {
            pr_err!(
                "{} possible CPUs: at most {} are supported\n",
                cpu::nr_cpu_ids(),
                counters_rules::abi::MAX_CPUS
            );
            return Err(ERANGE);
        }
        let [a, b] = [random::random_bytes::<8>(), random::random_bytes::<8>()];
        let key = (u64::from_ne_bytes(a), u64::from_ne_bytes(b));
        let registry = RegistryPages::new(layout)
            .and_then(|pages| Registry::new(layout, key, pages))
            .map_err(to_kernel_error)?;
        *REGISTRY.lock() = Some(registry);
        Ok(Self(()))
    }
}

impl Drop for RegistryOwner {
    fn drop(&mut self) {
        *REGISTRY.lock() = None;
    }
}

fn to_kernel_error(error: counters_rules::error::Error) -> Error {
    Error::from_errno(error.errno().wrapping_neg())
}

/// Implements `perf_add()`: adds an instance and returns its number. On failure, returns a negative
/// errno; most errors are also reported in the kernel log.
pub(crate) fn add(spec: &Spec<'_>, owner: ModuleOwner) -> i32 {
    if !preempt::may_sleep() {
        log_driver_error(
            LogKind::Atomic,
            format_args!(
                "perf_add() called from atomic context; call it where sleeping is allowed"
            ),
        );
        return EINVAL.to_errno();
    }
    let added = loop {
        let death = {
            let mut registry = REGISTRY.lock();
            let Some(registry) = registry.as_mut() else {
                return ENODEV.to_errno();
            };
            match registry.add(spec) {
                Err(UpdatesInFlight(instance)) => registry.store().deletion_grace_period(instance),
                Ok(instance) => {
                    registry.store_mut().set_owner(instance, owner);
                    break Ok(instance);
                }
                refused => break refused,
            }
        };
        // Wait for the grace period without `REGISTRY`, so that other callers of perf_add() need
        // not wait.
        death.wait();
    };
    match added {
        // Instance numbers are below 65536, so the cast does not change the number.
        Ok(instance) => instance as i32,
        Err(error) => log_refused_add(spec.name, error),
    }
}

/// Logs why an instance cannot be added, and returns the negative errno.
pub(crate) fn log_refused_add(name: &[u8], error: counters_rules::error::Error) -> i32 {
    let name = BStr::from_bytes(name);
    log_driver_error(
        LogKind::Add,
        format_args!("cannot add {name:?}: {}", error.explanation()),
    );
    error.errno().wrapping_neg()
}

/// Maximum number of instances that a loop processes before it releases the lock `REGISTRY` for
/// other callers.
pub(crate) const MAX_INSTANCES_PER_LOCK_HOLD: u32 = 512;

/// Makes dormant all instances that the module `owner` has added and not deleted with `perf_del()`.
/// Called after the module was unloaded.
pub(crate) fn make_module_instances_dormant(owner: ModuleOwner, name: &CStr) {
    let (mut at, mut left) = (1_u32, 0_u32);
    loop {
        let mut registry = REGISTRY.lock();
        let Some(registry) = registry.as_mut() else {
            return;
        };
        let end = at
            .saturating_add(MAX_INSTANCES_PER_LOCK_HOLD)
            .min(registry.nr_slots());
        for instance in at..end {
            if registry.store().owner(instance) == owner && registry.del(instance).is_ok() {
                left = left.saturating_add(1);
            }
        }
        if end == registry.nr_slots() {
            break;
        }
        at = end;
    }
    if left != 0 {
        pr_notice!(
            "{name} was unloaded without perf_del() of {left} of its instances; they are dormant now\n"
        );
    }
}

/// Implements `perf_del()`: makes an instance dormant.
pub(crate) fn del(instance: i32) {
    // A negative number is an error that perf_add() returned. Do not log the failure again.
    if instance < 0 {
        return;
    }
    if !preempt::may_sleep() {
        return log_driver_error(
            LogKind::Atomic,
            format_args!("perf_del({instance}) called from atomic context; call it where sleeping is allowed"),
        );
    }
    let deleted = match (u32::try_from(instance), REGISTRY.lock().as_mut()) {
        (Ok(instance), Some(registry)) => registry.del(instance).is_ok(),
        _ => false,
    };
    if !deleted {
        log_driver_error(
            LogKind::Del,
            format_args!("perf_del({instance}): no such live instance"),
        );
    }
}

/// Logs that a driver has called `perf_add()` or `perf_del()` incorrectly. The messages about
/// drivers are rate-limited, because a driver may repeat the error for each of its devices.
fn log_driver_error(line: LogKind, what: core::fmt::Arguments<'_>) {
    if log::may_log(line) {
        pr_notice!("{what}\n");
    }
}

/// Records in the header page whether a CPU is online. The counters of a CPU that goes offline keep
/// their values.
fn set_online(cpu: u32, online: bool) {
    if let Some(registry) = REGISTRY.lock().as_ref() {
        registry.store().header().set_online(cpu, online);
    }
}

/// The hotplug callbacks of the counter pages.
pub(crate) struct Hotplug;

impl OnlineCallbacks for Hotplug {
    const NAME: &'static CStr = c"perfcounters:online";

    fn online(cpu: u32) {
        set_online(cpu, true);
    }

    fn offline(cpu: u32) {
        set_online(cpu, false);
    }
}
