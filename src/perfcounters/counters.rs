// SPDX-License-Identifier: GPL-2.0

//! The one registry of this machine: what perf_add() and perf_del() do.

use engine::layout::{Layout, MAX_PAGES_PER_CHUNK};
use engine::registry::Registry;
use engine::spec::Spec;
use kernel::prelude::*;
use kernel::str::BStr;

use crate::pages::Pages;
use crate::sys::lock::{self, REGISTRY};
use crate::sys::{cpu, misc};

/// The registry exists; drop takes it and its pages away.
pub(crate) struct Loaded(());

impl Loaded {
    /// An empty registry. Called once, from module init.
    pub(crate) fn new(pages_per_chunk: u32) -> Result<Self> {
        lock::init();
        let layout = Layout::new(cpu::nr_cpu_ids(), pages_per_chunk).ok_or_else(|| {
            pr_err!("pages_per_chunk={pages_per_chunk}: give 1 to {MAX_PAGES_PER_CHUNK}\n");
            EINVAL
        })?;
        if cpu::nr_cpu_ids() > engine::abi::MAX_CPUS {
            pr_err!("more than {} possible CPUs\n", engine::abi::MAX_CPUS);
            return Err(ERANGE);
        }
        let [a, b] = [misc::random::<8>(), misc::random::<8>()];
        let key = (u64::from_ne_bytes(a), u64::from_ne_bytes(b));
        let registry = Pages::new(layout)
            .and_then(|pages| Registry::new(layout, key, pages))
            .map_err(to_errno)?;
        *REGISTRY.lock() = Some(registry);
        Ok(Self(()))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        *REGISTRY.lock() = None;
    }
}

fn to_errno(error: engine::error::Error) -> Error {
    Error::from_errno(error.errno().wrapping_neg())
}

/// perf_add(): the number, or a negative errno with a line in the kernel log.
pub(crate) fn add(spec: &Spec<'_>) -> i32 {
    if !misc::may_sleep() {
        pr_warn!("perf_add() from atomic context: call it where you may sleep\n");
        return EINVAL.to_errno();
    }
    let mut registry = REGISTRY.lock();
    let Some(registry) = registry.as_mut() else {
        return ENODEV.to_errno();
    };
    match registry.add(spec) {
        // Numbers are below 65536.
        Ok(instance) => instance as i32,
        Err(error) => {
            pr_notice!(
                "cannot add {:?}: {}\n",
                BStr::from_bytes(spec.name),
                error.advice()
            );
            error.errno().wrapping_neg()
        }
    }
}

/// perf_del().
pub(crate) fn del(instance: i32) {
    if !misc::may_sleep() {
        pr_warn!("perf_del({instance}) from atomic context: call it where you may sleep\n");
        return;
    }
    let deleted = match (u32::try_from(instance), REGISTRY.lock().as_mut()) {
        (Ok(instance), Some(registry)) => registry.del(instance).is_ok(),
        _ => false,
    };
    if !deleted {
        pr_notice!("perf_del({instance}): no such live instance\n");
    }
}

/// A CPU has come online, or is about to go. Its values stay either way.
pub(crate) fn cpu_online(cpu: u32, online: bool) {
    if let Some(registry) = REGISTRY.lock().as_ref() {
        registry.store().header().set_online(cpu, online);
    }
}
