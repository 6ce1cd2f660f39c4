// SPDX-License-Identifier: GPL-2.0

//! pfc_syscalls: counts system calls by number.
//!
//! Each 64-bit system call of this kernel has an instance with the name of the call.
//! `syscalls/compat` counts calls of 32-bit and x32 programs, which use other call numbers.
//! `syscalls/unknown` counts calls with invalid numbers.

use kernel::prelude::*;
use perfcounters::provider::probe::SysEnter;
use perfcounters::provider::{Handler, Instance, InstanceSpec, Probes};

module! {
    type: Provider,
    name: "pfc_syscalls",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: system calls by number",
    license: "GPL",
}

/// The names of the system calls by number; `None` for a number without a call.
static NAMES: &[Option<&str>] = include!(env!("PFC_SYSCALL_NAMES"));

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    calls: KVec<Option<Instance>>,
    compat: Instance,
    unknown: Instance,
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let call = InstanceSpec::events(c"Calls of this system call by 64-bit programs");
        let mut calls = KVec::with_capacity(NAMES.len(), GFP_KERNEL)?;
        for name in NAMES {
            let instance = match name {
                Some(name) => Some(call.add(fmt!("syscalls/{name}"))?),
                None => None,
            };
            calls.push(instance, GFP_KERNEL)?;
        }
        let mut probes = Probes::new(Counts {
            calls,
            compat: InstanceSpec::events(c"System calls of 32-bit and x32 programs")
                .add(fmt!("syscalls/compat"))?,
            unknown: InstanceSpec::events(c"System calls with unknown numbers")
                .add(fmt!("syscalls/unknown"))?,
        })?;
        probes.attach::<SysEnter<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl Handler<SysEnter<'_>> for Counts {
    fn on(&self, event: SysEnter<'_>) {
        let known = usize::try_from(event.number)
            .ok()
            .and_then(|n| self.calls.get(n)?.as_ref());
        let instance = match known {
            _ if event.is_compat() => &self.compat,
            Some(instance) => instance,
            None => &self.unknown,
        };
        instance.counter().add(1);
    }
}
