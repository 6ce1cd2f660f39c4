// SPDX-License-Identifier: GPL-2.0

//! tutorial_provider: counts the signals that are delivered: all of them, and SIGUSR1.

use kernel::prelude::*;
use provider::probe::SignalDeliver;
use provider::{EventHandler, Instance, InstanceSpec, Probes};

module! {
    type: Provider,
    name: "tutorial_provider",
    authors: ["The perfcounters developers"],
    description: "perfcounters: the provider of Documentation/providers.md",
    license: "GPL",
}

/// The number of SIGUSR1.
const USR1: u32 = 10;

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    all: Instance,
    usr1: Instance,
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let add = |name, help| InstanceSpec::events(help).add_instance(name);
        let mut probes = Probes::new(Counts {
            all: add(fmt!("tutorial/signals"), c"Signals delivered")?,
            usr1: add(fmt!("tutorial/usr1"), c"SIGUSR1 delivered")?,
        })?;
        probes.attach::<SignalDeliver<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl EventHandler<SignalDeliver<'_>> for Counts {
    fn handle_event(&self, signal: SignalDeliver<'_>) {
        self.all.counter().add(1);
        if signal.number == USR1 {
            self.usr1.counter().add(1);
        }
    }
}
