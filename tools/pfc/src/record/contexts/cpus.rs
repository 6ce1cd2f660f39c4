// SPDX-License-Identifier: GPL-2.0

//! Attaches contexts to CPUs, also to CPUs that come online during a recording. Also records the
//! gaps, which are periods in which a CPU was not sampled.

use std::io;

use super::SamplingContexts;
use crate::data::SampleId;
use crate::hotplug::{cpu_may_be_online, MonitoredCpus, MonitoringGap};

impl SamplingContexts {
    /// Attaches a context to each of the CPUs. A CPU that goes offline is sampled again when it
    /// comes back online. If `samples_all` is true, a CPU that is not in `cpus` is sampled from the
    /// time when it comes online.
    pub fn attach_contexts_to_cpus(
        &mut self,
        cpus: &[u32],
        samples_all: bool,
    ) -> Result<(), (u32, io::Error)> {
        let mut monitored = MonitoredCpus::new(cpus, samples_all);
        for cpu in cpus {
            match self.attach_context(*cpu) {
                Err(_) if !cpu_may_be_online(*cpu) => monitored.mark_detached(*cpu),
                done => done.map_err(|e| (*cpu, e))?,
            }
        }
        self.monitored_cpus = Some(monitored);
        Ok(())
    }

    /// Attaches and starts contexts on the CPUs that have come online, unless
    /// [`SamplingContexts::stop`] was called.
    pub(super) fn attach_newly_online_cpus(&mut self) {
        if self.is_stopped {
            return;
        }
        let online = self
            .monitored_cpus
            .as_mut()
            .map(MonitoredCpus::find_cpus_to_attach);
        for cpu in online.unwrap_or_default() {
            match self.resume_sampling_on_cpu(cpu) {
                Ok(()) => {
                    self.restart_errors_by_cpu.remove(&cpu);
                    self.monitored_cpus
                        .iter_mut()
                        .for_each(|cpus| cpus.mark_attached(cpu));
                }
                // The CPU may have gone offline before the context was attached. The next check for
                // online CPUs tries again to attach a context to the CPU.
                Err(error) => {
                    self.contexts_by_target.remove(&cpu);
                    if cpu_may_be_online(cpu) {
                        self.restart_errors_by_cpu.insert(cpu, error);
                    }
                }
            }
        }
    }

    /// Starts a context on a CPU that has come online. The CPU's perf event for process records is
    /// opened before, if it is not open yet.
    fn resume_sampling_on_cpu(&mut self, cpu: u32) -> io::Result<()> {
        if let Some(events) = &self.perf_task_events {
            if events.lacks_event_on(cpu) {
                self.restart_tracking_on_cpus(&[cpu]);
            }
        }
        self.attach_context(cpu)?;
        self.start_context(cpu)
    }

    /// Calls `take`, which returns gaps in the sampling of CPUs. Writes records of the start and
    /// the end of each gap, and adds the gap's duration to the total of its CPU.
    pub fn record_cpu_gaps(&mut self, take: fn(&mut MonitoredCpus) -> Vec<MonitoringGap>) {
        let id = self.config.sampling_pmds.first().map_or(0, |s| s.event_id);
        for gap in self.monitored_cpus.as_mut().map_or(Vec::new(), take) {
            *self.unsampled_time_by_cpu.entry(gap.cpu).or_default() += gap.duration();
            for (is_start, time) in [(true, gap.start_ns), (false, gap.end_ns)] {
                let sample_id = SampleId {
                    pid: u32::MAX,
                    tid: u32::MAX,
                    time,
                    cpu: gap.cpu,
                    id,
                };
                self.drained_records
                    .records
                    .encode_cpu_offline(is_start, &sample_id);
            }
        }
    }
}
