// SPDX-License-Identifier: GPL-2.0

//! pfc_syscalls: counts system calls by number.
//!
//! The same number means different calls in the ABIs x86_64, i386 and x32. Each x86_64 call of this
//! kernel has an instance `syscalls/<name>`. Calls by 32-bit programs and by `int 0x80` have
//! instances `syscalls/i386/<name>`, and x32 calls have instances `syscalls/x32/<name>`. The
//! instance of an i386 or x32 call is added at the first call, because most machines make few of
//! these calls or none. `syscalls/unnamed` counts the calls of i386 and x32 that have no instance
//! yet. `syscalls/unknown` counts calls whose number is not in the table of their ABI.

use core::pin::Pin;

use kernel::prelude::*;
use provider::probe::{SysEnter, SyscallAbi};
use provider::{EventHandler, Instance, InstanceSpec, Key, KeyedCounters, Probes};

module! {
    type: Provider,
    name: "pfc_syscalls",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: system calls by number",
    license: "GPL",
}

/// The names of the system calls of x86_64, i386 and x32, by number, and `None` for numbers without
/// a call.
static SYSCALL_NAMES_BY_ABI: [&[Option<&str>]; 3] = include!(concat!(
    env!("PFC_OUT"),
    "/counters/providers/syscall_names.rs"
));

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    /// The instances that count x86_64 calls, indexed by the number of the call.
    x86_64: KVec<Option<Instance>>,
    /// The instances that count i386 calls and x32 calls. The key of a call is its number; the
    /// numbers of x32 calls have [`X32_BIT`].
    compat_instances: Pin<KBox<KeyedCounters<Instance>>>,
    unnamed: Instance,
    unknown: Instance,
}

/// `__X32_SYSCALL_BIT`, which the number of each x32 call has. No number in the table of i386 has
/// the bit `__X32_SYSCALL_BIT`.
const X32_BIT: u32 = 1 << 30;

/// Returns the names of the system calls of an ABI, indexed by the number of the call. A kernel
/// that is built without x32 has no x32 calls.
fn names(abi: SyscallAbi) -> &'static [Option<&'static str>] {
    let [x86_64, i386, x32] = SYSCALL_NAMES_BY_ABI;
    match abi {
        SyscallAbi::X86_64 => x86_64,
        SyscallAbi::I386 => i386,
        SyscallAbi::X32 if cfg!(CONFIG_X86_X32_ABI) => x32,
        SyscallAbi::X32 => &[],
    }
}

/// Returns the name of the system call at `index` in the table of an ABI.
fn name(abi: SyscallAbi, index: usize) -> Option<&'static str> {
    *names(abi).get(index)?
}

/// Adds the instance that counts an i386 or x32 call.
fn add_compat_instance(key: &Key) -> Result<Instance> {
    let number = key.number();
    let (abi, prefix, help) = match number & X32_BIT {
        0 => (
            SyscallAbi::I386,
            "i386",
            c"Calls of this system call by 32-bit programs",
        ),
        _ => (
            SyscallAbi::X32,
            "x32",
            c"Calls of this system call by x32 programs",
        ),
    };
    let name = name(abi, (number & !X32_BIT) as usize).ok_or(EINVAL)?;
    InstanceSpec::events(help).add_instance(fmt!("syscalls/{prefix}/{name}"))
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let call = InstanceSpec::events(c"Calls of this system call by 64-bit programs");
        let names = names(SyscallAbi::X86_64);
        let mut x86_64 = KVec::with_capacity(names.len(), GFP_KERNEL)?;
        for name in names {
            let instance = match name {
                Some(name) => Some(call.add_instance(fmt!("syscalls/{name}"))?),
                None => None,
            };
            x86_64.push(instance, GFP_KERNEL)?;
        }
        let mut probes = Probes::new(Counts {
            x86_64,
            compat_instances: KeyedCounters::new(
                "system calls of i386 and x32",
                add_compat_instance,
                None,
            )?,
            unnamed: InstanceSpec::events(
                c"System calls of i386 and x32 without a counter of their own",
            )
            .add_instance(fmt!("syscalls/unnamed"))?,
            unknown: InstanceSpec::events(c"System calls with unknown numbers")
                .add_instance(fmt!("syscalls/unknown"))?,
        })?;
        probes.attach::<SysEnter<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl Counts {
    /// Returns the instance that counts an i386 or x32 call with a known number. If the call has no
    /// instance yet, requests the instance and returns `unnamed`.
    fn compat_instance(&self, number: u32) -> &Instance {
        let key = Key::from_number(number);
        self.compat_instances.find(&key).unwrap_or_else(|| {
            self.compat_instances.request(&key);
            &self.unnamed
        })
    }
}

impl EventHandler<SysEnter<'_>> for Counts {
    fn handle_event(&self, event: SysEnter<'_>) {
        let abi = event.abi();
        let instance = event.index(abi).and_then(|index| match abi {
            SyscallAbi::X86_64 => self.x86_64.get(index)?.as_ref(),
            // The number of a known call fits in 32 bits.
            SyscallAbi::I386 | SyscallAbi::X32 => {
                name(abi, index).map(|_| self.compat_instance(event.number as u32))
            }
        });
        instance.unwrap_or(&self.unknown).counter().add(1);
    }
}
