// SPDX-License-Identifier: GPL-2.0

//! pfc_mm: counts page faults in user mode and page faults in kernel mode.
//!
//! The provider counts faults that the CPU has raised. `pgfault` in /proc/vmstat counts only faults
//! that reach the memory manager, and counts a fault again after a retry. `pgfault` also counts
//! faults that get_user_pages() handles, for which the CPU has raised no exception.

use kernel::prelude::*;
use provider::probe::{PageFaultKernel, PageFaultUser};
use provider::{EventHandler, Instance, InstanceSpec, Probes};

module! {
    type: Provider,
    name: "pfc_mm",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: page faults",
    license: "GPL",
}

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    user: Instance,
    kernel: Instance,
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let add = |name, help| InstanceSpec::events(help).add_instance(name);
        let mut probes = Probes::new(Counts {
            user: add(
                fmt!("mm/page_faults_user"),
                c"Page faults raised in user mode",
            )?,
            kernel: add(
                fmt!("mm/page_faults_kernel"),
                c"Page faults raised in the kernel",
            )?,
        })?;
        probes.attach::<PageFaultUser<'_>>()?;
        probes.attach::<PageFaultKernel<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl EventHandler<PageFaultUser<'_>> for Counts {
    fn handle_event(&self, _: PageFaultUser<'_>) {
        self.user.counter().add(1);
    }
}

impl EventHandler<PageFaultKernel<'_>> for Counts {
    fn handle_event(&self, _: PageFaultKernel<'_>) {
        self.kernel.counter().add(1);
    }
}
