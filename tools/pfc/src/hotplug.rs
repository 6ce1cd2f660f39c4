// SPDX-License-Identifier: GPL-2.0

//! Tracks which CPUs go offline and come online while `pfc stat`, `pfc record` or `pfc top`
//! monitors them.
//!
//! The context of a CPU ends when the CPU goes offline. When the CPU is online again, pfc attaches
//! a new context to it. The time in which a monitored CPU has no context is called a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::limits;
use crate::record::monotonic_now_ns;
use crate::stat::parse_cpu_list;
use crate::text_file;

/// The sysfs file with the list of online CPUs. The kernel does not notify readers of the list of
/// online CPUs when a CPU goes offline or comes online.
pub const ONLINE_CPUS_PATH: &str = "/sys/devices/system/cpu/online";
/// The sysfs file with the list of the CPUs that the machine has, online or offline.
const PRESENT_CPUS_PATH: &str = "/sys/devices/system/cpu/present";
/// The time between two reads of [`ONLINE_CPUS_PATH`] while a monitored CPU is offline.
const OFFLINE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two reads of [`ONLINE_CPUS_PATH`] while all monitored CPUs have contexts. A CPU
/// that comes online for the first time gets its first context within `IDLE_POLL_INTERVAL`.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A time in which a CPU was not monitored, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitoringGap {
    pub cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl MonitoringGap {
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns))
    }
}

/// Returns the total duration of each CPU's gaps.
pub fn sum_gaps_by_cpu(gaps: &[MonitoringGap]) -> BTreeMap<u32, Duration> {
    let mut all = BTreeMap::new();
    for gap in gaps {
        *all.entry(gap.cpu).or_default() += gap.duration();
    }
    all
}

/// The monitored CPUs, and the gaps in which these CPUs had no context.
#[derive(Debug)]
pub struct MonitoredCpus {
    /// The CPUs that the user selected; `None` for all CPUs.
    selected_cpus: Option<BTreeSet<u32>>,
    attached_cpus: BTreeSet<u32>,
    /// The CPUs that have lost their context and have no new one yet. Each CPU is mapped to the
    /// time at which its current gap began.
    detached_at_ns: BTreeMap<u32, u64>,
    /// The gaps that have ended, but were not yet returned by [`Self::take_gaps`] or
    /// [`Self::take_ended_gaps`].
    ended_gaps: Vec<MonitoringGap>,
    /// The time at which monitoring began. If a CPU was offline when monitoring began, its first
    /// gap starts at `began_at_ns`.
    began_at_ns: u64,
    next_online_check: Instant,
    /// The error of the last read of [`ONLINE_CPUS_PATH`]; `None` if the last read succeeded.
    online_cpus_read_error: Option<io::Error>,
}

/// Returns the CPUs that are online, in ascending order.
///
/// # Errors
///
/// Returns the error of reading [`ONLINE_CPUS_PATH`], or `InvalidData` if the file does not contain
/// a list of CPUs.
pub fn read_online_cpus() -> io::Result<Vec<u32>> {
    read_cpu_list(ONLINE_CPUS_PATH)
}

/// Returns the CPUs that the machine has, online or offline, in ascending order.
///
/// # Errors
///
/// Returns the error of reading [`PRESENT_CPUS_PATH`], or `InvalidData` if the file does not
/// contain a list of CPUs.
pub fn read_present_cpus() -> io::Result<Vec<u32>> {
    read_cpu_list(PRESENT_CPUS_PATH)
}

fn read_cpu_list(path: &str) -> io::Result<Vec<u32>> {
    let list = text_file::read_text_escaping_non_utf8(path)?;
    parse_cpu_list(list.trim()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Returns a number that changes each time the CPU comes online. Returns `None` if the CPU is
/// offline.
///
/// The number is the inode of the CPU's directory `topology` in sysfs. The kernel removes the
/// directory when the CPU goes offline, and makes a new one when the CPU comes online.
pub fn read_cpu_generation(cpu: u32) -> Option<u64> {
    let topology = fs::metadata(format!("/sys/devices/system/cpu/cpu{cpu}/topology"));
    Some(topology.ok()?.ino())
}

/// Returns false if the CPU is offline, and true if the CPU is online or [`ONLINE_CPUS_PATH`]
/// cannot be read. Called after a failed call on the CPU: if the result is true, the caller reports
/// the error of that call. A CPU that was online when the user's list of CPUs was checked can be
/// offline now.
pub fn cpu_may_be_online(cpu: u32) -> bool {
    read_online_cpus().map_or(true, |online| online.contains(&cpu))
}

impl MonitoredCpus {
    /// Makes a `MonitoredCpus` in which the CPUs in `attached` have contexts. If `selects_all` is
    /// true, each CPU that is not in `attached` is monitored from the time when it comes online.
    pub fn new(attached: &[u32], selects_all: bool) -> Self {
        let attached: BTreeSet<u32> = attached.iter().copied().collect();
        Self {
            selected_cpus: (!selects_all).then(|| attached.clone()),
            attached_cpus: attached,
            detached_at_ns: BTreeMap::new(),
            ended_gaps: Vec::new(),
            began_at_ns: monotonic_now_ns(),
            next_online_check: Instant::now() + IDLE_POLL_INTERVAL,
            online_cpus_read_error: None,
        }
    }

    /// Begins a gap in the monitoring of the CPU `cpu`, which is offline or has lost its context.
    pub fn mark_detached(&mut self, cpu: u32) {
        self.attached_cpus.remove(&cpu);
        self.detached_at_ns.insert(cpu, monotonic_now_ns());
        self.next_online_check = Instant::now();
    }

    /// Ends the gap in the monitoring of the CPU `cpu`. Called when the CPU has a context again.
    pub fn mark_attached(&mut self, cpu: u32) {
        let start_ns = self.detached_at_ns.remove(&cpu).unwrap_or(self.began_at_ns);
        self.attached_cpus.insert(cpu);
        self.ended_gaps.push(MonitoringGap {
            cpu,
            start_ns,
            end_ns: monotonic_now_ns(),
        });
    }

    /// Returns the time from which [`Self::find_cpus_to_attach`] reads the list of online CPUs
    /// again.
    pub fn next_online_check(&self) -> Instant {
        self.next_online_check
    }

    /// Returns true if a CPU has lost its context and has no new one yet.
    pub fn has_open_gap(&self) -> bool {
        !self.detached_at_ns.is_empty()
    }

    /// Returns true if a CPU has lost its context and has no new one yet, or if a gap has ended and
    /// was not yet returned by [`Self::take_gaps`] or [`Self::take_ended_gaps`].
    pub fn has_unreported_gap(&self) -> bool {
        self.has_open_gap() || !self.ended_gaps.is_empty()
    }

    /// Returns the CPUs that are online and need a context. Returns no CPUs before the time
    /// [`Self::next_online_check`], or if [`ONLINE_CPUS_PATH`] cannot be read: see
    /// [`Self::describe_online_cpus_read_error`].
    pub fn find_cpus_to_attach(&mut self) -> Vec<u32> {
        let now = Instant::now();
        if now < self.next_online_check {
            return Vec::new();
        }
        self.next_online_check = now
            + match self.has_open_gap() {
                true => OFFLINE_POLL_INTERVAL,
                false => IDLE_POLL_INTERVAL,
            };
        self.select_cpus_to_attach(read_online_cpus())
    }

    /// Returns the CPUs of `online` that need a context, and keeps the error of reading `online`.
    fn select_cpus_to_attach(&mut self, online: io::Result<Vec<u32>>) -> Vec<u32> {
        match online {
            Ok(online) => {
                self.online_cpus_read_error = None;
                self.select_cpus_without_context(&online)
            }
            Err(error) => {
                self.online_cpus_read_error = Some(error);
                Vec::new()
            }
        }
    }

    /// Returns a message if the last read of [`ONLINE_CPUS_PATH`] failed.
    pub fn describe_online_cpus_read_error(&self) -> Option<String> {
        let error = self.online_cpus_read_error.as_ref()?;
        let advice = limits::advice_on_resource_error(error);
        Some(format!(
            "cannot read {ONLINE_CPUS_PATH}: {error}{advice}; \
             CPUs that have come online are missing"
        ))
    }

    fn select_cpus_without_context(&self, online: &[u32]) -> Vec<u32> {
        let is_wanted = |cpu: &&u32| {
            let is_selected = self
                .selected_cpus
                .as_ref()
                .is_none_or(|all| all.contains(cpu));
            is_selected && !self.attached_cpus.contains(cpu)
        };
        online.iter().filter(is_wanted).copied().collect()
    }

    /// Returns all gaps in the monitoring that no call has returned yet. If a CPU still has no
    /// context, the part of its gap up to now is returned, and the rest of the gap becomes a new
    /// gap.
    pub fn take_gaps(&mut self) -> Vec<MonitoringGap> {
        let end_ns = monotonic_now_ns();
        let mut gaps = self.take_ended_gaps();
        for (cpu, start_ns) in &mut self.detached_at_ns {
            gaps.push(MonitoringGap {
                cpu: *cpu,
                start_ns: std::mem::replace(start_ns, end_ns),
                end_ns,
            });
        }
        gaps
    }

    /// Returns the gaps in the monitoring that have ended and that no call has returned yet.
    pub fn take_ended_gaps(&mut self) -> Vec<MonitoringGap> {
        std::mem::take(&mut self.ended_gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotplug_reattached_cpu_keeps_its_gap() {
        let mut cpus = MonitoredCpus::new(&[0, 1], true);
        assert!(cpus.select_cpus_without_context(&[0, 1]).is_empty() && !cpus.has_unreported_gap());
        cpus.mark_detached(1);
        assert!(cpus.has_open_gap());
        assert!(cpus.next_online_check() <= Instant::now());
        assert!(cpus.select_cpus_without_context(&[0]).is_empty());
        assert_eq!(cpus.select_cpus_without_context(&[0, 1]), [1]);
        let first = cpus.take_gaps();
        cpus.mark_attached(1);
        assert!(cpus.select_cpus_without_context(&[0, 1]).is_empty() && !cpus.has_open_gap());
        let second = cpus.take_gaps();
        let [(a, b)] = [(first[0], second[0])];
        assert_eq!((first.len(), second.len(), a.cpu, b.cpu), (1, 1, 1, 1));
        assert!(a.start_ns <= a.end_ns && a.end_ns == b.start_ns && b.start_ns <= b.end_ns);
        assert!(cpus.take_gaps().is_empty() && !cpus.has_unreported_gap());
        let sum = sum_gaps_by_cpu(&[a, b]);
        assert_eq!(sum[&1].as_nanos() as u64, b.end_ns - a.start_ns);
    }

    #[test]
    fn hotplug_unreadable_list_of_cpus_is_a_problem_until_it_is_read() {
        let mut cpus = MonitoredCpus::new(&[0, 1], true);
        cpus.mark_detached(1);
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(cpus.select_cpus_to_attach(Err(error)).is_empty());
        let problem = cpus.describe_online_cpus_read_error().expect("a problem");
        let begin = "cannot read /sys/devices/system/cpu/online: Too many open files (os error 24); the limit of open files is ";
        assert!(problem.starts_with(begin), "{problem}");
        assert_eq!(cpus.select_cpus_to_attach(Ok(vec![0, 1])), [1]);
        assert_eq!(cpus.describe_online_cpus_read_error(), None);
    }

    #[test]
    fn hotplug_new_cpu_attaches_unless_cpus_selected() {
        let mut all = MonitoredCpus::new(&[0], true);
        assert_eq!(all.select_cpus_without_context(&[0, 2]), [2]);
        let began_at = all.began_at_ns;
        all.mark_attached(2);
        assert_eq!(all.take_ended_gaps()[0].start_ns, began_at);
        let listed = MonitoredCpus::new(&[0, 1], false);
        assert!(listed.select_cpus_without_context(&[0, 1, 2]).is_empty());
    }
}
