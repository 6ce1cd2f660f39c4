// SPDX-License-Identifier: GPL-2.0

//! pfc_irq: counts hard interrupts by line and by x86 vector, and softirqs.
//!
//! The instance of a line is `irq/<line>/<handler>`, with the names that /proc/interrupts shows.
//! The instance is added at the first interrupt of the line. An interrupt of a shared line is
//! counted once, for the line's first handler.

use core::pin::Pin;

use kernel::prelude::*;
use provider::probe::{self, IrqEntry, SoftirqEntry};
use provider::{EventHandler, Instance, InstanceSpec, Key, KeyedCounters, Probes};

module! {
    type: Provider,
    name: "pfc_irq",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: interrupts by line and vector, softirqs",
    license: "GPL",
}

/// The names of the softirqs by number, as in /proc/softirqs.
const SOFTIRQS: [&str; 10] = [
    "hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu",
];

macro_rules! vectors {
    ($($event:ident $field:ident $name:literal $help:literal,)*) => {
        /// Counters of the vectors that do not belong to an interrupt line.
        struct VectorCounters {
            $($field: Instance,)*
        }

        impl VectorCounters {
            fn new() -> Result<Self> {
                Ok(Self {
                    $($field: InstanceSpec::events($help)
                        .add_instance(fmt!("irq/vector/{}", $name))?,)*
                })
            }

            fn attach(probes: &mut Probes<Counts>) -> Result {
                $(probes.attach::<probe::$event<'_>>()?;)*
                Ok(())
            }
        }

        $(impl EventHandler<probe::$event<'_>> for Counts {
            fn handle_event(&self, _: probe::$event<'_>) {
                self.vectors.$field.counter().add(1);
            }
        })*
    };
}

vectors! {
    LocalTimer local_timer "local_timer" c"Local APIC timer interrupts (LOC)",
    Reschedule reschedule "reschedule" c"Rescheduling interrupts (RES)",
    CallFunction call_function "call_function" c"Function calls to all other CPUs (part of CAL)",
    CallFunctionSingle call_single "call_function_single" c"Function calls to one CPU (part of CAL)",
    IrqWork irq_work "irq_work" c"IRQ work interrupts (IWI)",
    PlatformIpi platform_ipi "platform_ipi" c"Platform interprocessor interrupts (PLT)",
    ErrorApic error_apic "error_apic" c"APIC error interrupts (ERR)",
    SpuriousApic spurious_apic "spurious_apic" c"Spurious interrupts (SPU)",
    ThermalApic thermal_apic "thermal_apic" c"Thermal event interrupts (TRM)",
    ThresholdApic threshold_apic "threshold_apic" c"Machine-check threshold interrupts (THR)",
    DeferredErrorApic deferred_error "deferred_error_apic" c"Deferred error interrupts (DFR)",
}

struct Provider {
    _probes: Probes<Counts>,
}

struct Counts {
    lines: Pin<KBox<KeyedCounters<Instance>>>,
    unnamed: Instance,
    softirqs: KVec<Instance>,
    vectors: VectorCounters,
}

fn add_line_instance(key: &Key) -> Result<Instance> {
    InstanceSpec::events(c"Interrupts on this line").add_instance(fmt!(
        "irq/{}/{}",
        key.number(),
        key.text()
    ))
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut softirqs = KVec::with_capacity(SOFTIRQS.len(), GFP_KERNEL)?;
        for name in SOFTIRQS {
            let runs = InstanceSpec::events(c"Runs of this softirq")
                .add_instance(fmt!("softirq/{name}"))?;
            softirqs.push(runs, GFP_KERNEL)?;
        }
        let mut probes = Probes::new(Counts {
            lines: KeyedCounters::new("interrupt lines", add_line_instance, None)?,
            unnamed: InstanceSpec::events(c"Interrupts on lines without a counter of their own")
                .add_instance(fmt!("irq/unnamed"))?,
            softirqs,
            vectors: VectorCounters::new()?,
        })?;
        probes.attach::<IrqEntry<'_>>()?;
        probes.attach::<SoftirqEntry<'_>>()?;
        VectorCounters::attach(&mut probes)?;
        Ok(Self { _probes: probes })
    }
}

impl EventHandler<IrqEntry<'_>> for Counts {
    fn handle_event(&self, event: IrqEntry<'_>) {
        if !event.action.is_first_of_line(event.irq) {
            return;
        }
        let key = event.action.key(event.irq);
        match self.lines.find(&key) {
            Some(line) => line.counter().add(1),
            None => {
                self.unnamed.counter().add(1);
                self.lines.request(&key);
            }
        }
    }
}

impl EventHandler<SoftirqEntry<'_>> for Counts {
    fn handle_event(&self, event: SoftirqEntry<'_>) {
        if let Some(softirq) = self.softirqs.get(event.vector as usize) {
            softirq.counter().add(1);
        }
    }
}
