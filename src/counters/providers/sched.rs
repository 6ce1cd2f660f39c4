// SPDX-License-Identifier: GPL-2.0

//! pfc_sched: counts events of the scheduler.
//!
//! Summed over all CPUs, `sched/context_switches` corresponds to `ctxt` in /proc/stat, and
//! `sched/forks` corresponds to `processes` in /proc/stat.

use kernel::prelude::*;
use provider::probe::{
    ProcessExec, ProcessExit, SchedMigrate, SchedSwitch, SchedWakeup, SchedWakeupNew, TaskNew,
};
use provider::{EventHandler, Instance, InstanceSpec, Probes};

module! {
    type: Provider,
    name: "pfc_sched",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: context switches, wakeups, migrations, forks, exits",
    license: "GPL",
}

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    switches: Instance,
    preemptions: Instance,
    wakeups: Instance,
    migrations: Instance,
    forks: Instance,
    execs: Instance,
    exits: Instance,
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let add = |name, help| InstanceSpec::events(help).add_instance(name);
        let mut probes = Probes::new(Counts {
            switches: add(
                fmt!("sched/context_switches"),
                c"Context switches, from one task to another",
            )?,
            preemptions: add(
                fmt!("sched/preemptions"),
                c"Context switches away from tasks that were still runnable",
            )?,
            wakeups: add(
                fmt!("sched/wakeups"),
                c"Task wakeups, including the first of new tasks",
            )?,
            migrations: add(
                fmt!("sched/migrations"),
                c"Migrations of tasks to another CPU",
            )?,
            forks: add(
                fmt!("sched/forks"),
                c"Tasks created: processes, threads, kernel threads",
            )?,
            execs: add(fmt!("sched/execs"), c"Programs executed")?,
            exits: add(fmt!("sched/exits"), c"Tasks exited")?,
        })?;
        probes.attach::<SchedSwitch<'_>>()?;
        probes.attach::<SchedWakeup<'_>>()?;
        probes.attach::<SchedWakeupNew<'_>>()?;
        probes.attach::<SchedMigrate<'_>>()?;
        probes.attach::<TaskNew<'_>>()?;
        probes.attach::<ProcessExec<'_>>()?;
        probes.attach::<ProcessExit<'_>>()?;
        Ok(Self { _probes: probes })
    }
}

impl EventHandler<SchedSwitch<'_>> for Counts {
    fn handle_event(&self, event: SchedSwitch<'_>) {
        self.switches.counter().add(1);
        if event.preempted {
            self.preemptions.counter().add(1);
        }
    }
}

impl EventHandler<SchedWakeup<'_>> for Counts {
    fn handle_event(&self, _: SchedWakeup<'_>) {
        self.wakeups.counter().add(1);
    }
}

impl EventHandler<SchedWakeupNew<'_>> for Counts {
    fn handle_event(&self, _: SchedWakeupNew<'_>) {
        self.wakeups.counter().add(1);
    }
}

impl EventHandler<SchedMigrate<'_>> for Counts {
    fn handle_event(&self, _: SchedMigrate<'_>) {
        self.migrations.counter().add(1);
    }
}

impl EventHandler<TaskNew<'_>> for Counts {
    fn handle_event(&self, _: TaskNew<'_>) {
        self.forks.counter().add(1);
    }
}

impl EventHandler<ProcessExec<'_>> for Counts {
    fn handle_event(&self, _: ProcessExec<'_>) {
        self.execs.counter().add(1);
    }
}

impl EventHandler<ProcessExit<'_>> for Counts {
    fn handle_event(&self, _: ProcessExit<'_>) {
        self.exits.counter().add(1);
    }
}
