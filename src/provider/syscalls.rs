// SPDX-License-Identifier: GPL-2.0

//! pfc_syscalls: system calls, by number.
//!
//! There is an instance for each system call of this kernel: `syscalls/<name>` for calls of 64-bit
//! programs, `syscalls/i386/<name>` for calls of 32-bit programs and calls by `int 0x80`, and
//! `syscalls/x32/<name>` for calls of x32 programs. In each of these ABIs the numbers mean other
//! calls. `syscalls/unknown` counts calls whose number is not in the table of their ABI.

use kernel::prelude::*;
use perfcounters::provider::probe::{Abi, SysEnter};
use perfcounters::provider::{Handler, Instance, InstanceSpec, Probes};

module! {
    type: Provider,
    name: "pfc_syscalls",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: system calls by number",
    license: "GPL",
}

/// The names of the system calls of x86_64, i386 and x32, by number; `None` for numbers without a
/// call.
static NAMES: [&[Option<&str>]; 3] = include!(env!("PFC_SYSCALL_NAMES"));

/// The instances of one ABI, by the number of the call.
type CallInstances = KVec<Option<Instance>>;

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    x86_64: CallInstances,
    i386: CallInstances,
    x32: CallInstances,
    unknown: Instance,
}

/// Adds an instance for each name, with `prefix` before the name.
fn add_instances(
    call: &InstanceSpec,
    prefix: &str,
    names: &[Option<&str>],
) -> Result<CallInstances> {
    let mut calls = KVec::with_capacity(names.len(), GFP_KERNEL)?;
    for name in names {
        let instance = match name {
            Some(name) => Some(call.add(fmt!("syscalls/{prefix}{name}"))?),
            None => None,
        };
        calls.push(instance, GFP_KERNEL)?;
    }
    Ok(calls)
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let call = InstanceSpec::events(c"Calls of this system call by 64-bit programs");
        let i386 = InstanceSpec::events(c"Calls of this system call by 32-bit programs");
        let x32 = InstanceSpec::events(c"Calls of this system call by x32 programs");
        let mut names = NAMES;
        // Without support of an ABI the kernel knows no calls of it.
        if !cfg!(CONFIG_IA32_EMULATION) {
            names[1] = &[];
        }
        if !cfg!(CONFIG_X86_X32_ABI) {
            names[2] = &[];
        }
        let mut probes = Probes::new(Counts {
            x86_64: add_instances(&call, "", names[0])?,
            i386: add_instances(&i386, "i386/", names[1])?,
            x32: add_instances(&x32, "x32/", names[2])?,
            unknown: InstanceSpec::events(c"System calls with unknown numbers")
                .add(fmt!("syscalls/unknown"))?,
        })?;
        probes.attach::<SysEnter<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl Handler<SysEnter<'_>> for Counts {
    fn on(&self, event: SysEnter<'_>) {
        let abi = event.abi();
        let calls = match abi {
            Abi::X86_64 => &self.x86_64,
            Abi::I386 => &self.i386,
            Abi::X32 => &self.x32,
        };
        let known = event.index(abi).and_then(|n| calls.get(n)?.as_ref());
        known.unwrap_or(&self.unknown).counter().add(1);
    }
}
