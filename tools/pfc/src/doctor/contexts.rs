// SPDX-License-Identifier: GPL-2.0

//! Checks of monitoring contexts: the PMU, its users, and whether a context can be created and
//! attached.

use std::fs;
use std::io;
use std::path::Path;

use perfmon::{Context, Map, Scope, DEVICE};
use rustix::thread::gettid;

use super::modules::Modules;
use super::{devices, module, note, ok, problem, read_trimmed, Check};
use crate::stat::assign::assign;
use crate::stat::events::{is_privileged, Machine};
use crate::stat::{syscall_failure, ContextConfig};
use crate::target::is_ebusy;

/// Makes all checks of monitoring contexts. A context is created before the map of registers is
/// read, because the kernel loads PMU descriptions when the first context is created.
pub fn run_checks(modules: &Modules) -> Vec<Check> {
    let created = modules
        .has(("perfmon", true))
        .then(|| Context::create(Scope::Thread).map(drop));
    let map = Map::read().unwrap_or_default();
    let cpu = CpuInfo::read();
    let attached = try_attach();
    let is_in_use = attached
        .as_ref()
        .is_some_and(|r| r.as_ref().is_err_and(is_ebusy));
    let has_pmu = cpu.has_pmu(&map);
    vec![
        devices::check_contexts_device(modules),
        check_pmu(&cpu, has_pmu),
        check_description(modules, &map, &cpu, has_pmu),
        check_watchdog(has_pmu),
        check_kvm_guests(),
        check_users("perf", "anon_inode:[perf_event]", is_in_use),
        check_users("contexts", DEVICE, false),
        check_create(created),
        check_attach(modules, attached, has_pmu),
        check_rdpmc(has_pmu),
        check_capability(),
    ]
}

/// The vendor and the flags of the first processor in /proc/cpuinfo.
struct CpuInfo {
    vendor: String,
    flags: Vec<String>,
}

impl CpuInfo {
    fn read() -> Self {
        let all = read_trimmed("/proc/cpuinfo").unwrap_or_default();
        let value = |key: &str| {
            all.lines()
                .find_map(|l| l.strip_prefix(key)?.split_once(':'))
                .map_or("", |(_, value)| value.trim())
        };
        Self {
            vendor: value("vendor_id").to_owned(),
            flags: value("flags").split(' ').map(str::to_owned).collect(),
        }
    }

    /// Returns true if this machine has a PMU: a PMU description is registered, or the processor's
    /// flags show a PMU.
    fn has_pmu(&self, map: &Map) -> bool {
        map.hardware.is_some()
            || match self.vendor.as_str() {
                "GenuineIntel" => self.has_flag("arch_perfmon"),
                // Each AMD processor has four counters, as AMD's manual says. Under a hypervisor,
                // the flag perfctr_core shows whether the guest can use these counters.
                "AuthenticAMD" | "HygonGenuine" => {
                    !self.has_flag("hypervisor") || self.has_flag("perfctr_core")
                }
                _ => false,
            }
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    fn module_name(&self) -> &'static str {
        match self.vendor.as_str() {
            "AuthenticAMD" | "HygonGenuine" => "pfm_amd",
            _ => "pfm_intel",
        }
    }
}

/// Returns the advice for an error of a monitoring context: the error message without its first
/// word "cannot".
fn error_remedy(error: &io::Error) -> String {
    let text = syscall_failure("", error).to_string();
    text.trim_start_matches("cannot : ").to_owned()
}

/// The finding of a check that needs perfmon.ko, printed if perfmon.ko is not loaded.
const NOT_LOADED: &str = "not tried: perfmon is not loaded";

fn check_description(modules: &Modules, map: &Map, cpu: &CpuInfo, has_pmu: bool) -> Check {
    let subject = "description";
    if !modules.has(("perfmon", true)) {
        return note(subject, NOT_LOADED);
    }
    if let Some(d) = &map.hardware {
        return ok(
            subject,
            format!("{}: {} PMCs, {} PMDs", d.name, d.pmcs.len(), d.pmds.len()),
        );
    }
    if !has_pmu {
        return ok(subject, "not needed: there is no PMU");
    }
    let (missing, name) = ("no PMU description for this processor", cpu.module_name());
    let found = match module::kernel_log(|message| message.starts_with("perfmon: ")).pop() {
        Some(message) => format!("{missing}; kernel log: {message}"),
        None => missing.to_owned(),
    };
    match modules.has((name, true)) {
        false => problem(subject, found, format!("load it: modprobe {name}")),
        true => problem(
            subject,
            found,
            format!("{name} is loaded but does not support this PMU; see dmesg | grep {name}"),
        ),
    }
}

fn check_pmu(cpu: &CpuInfo, has_pmu: bool) -> Check {
    let subject = "PMU";
    match (has_pmu, cpu.has_flag("hypervisor")) {
        (true, _) => ok(subject, format!("PMU of {} found", cpu.vendor)),
        (false, true) => note(
            subject,
            "the hypervisor provides no PMU to this virtual machine; only software events are counted",
        )
        .with_remedy("for hardware events, enable the virtual PMU on the host (QEMU/KVM: -cpu host,pmu=on)"),
        (false, false) => note(
            subject,
            format!(
                "no known PMU (vendor {}); only software events are counted",
                cpu.vendor
            ),
        ),
    }
}

fn check_watchdog(has_pmu: bool) -> Check {
    let subject = "watchdog";
    match read_trimmed("/proc/sys/kernel/nmi_watchdog").as_deref() {
        Some("0") => ok(subject, "the NMI watchdog is off"),
        None => ok(subject, "no NMI watchdog in this kernel"),
        Some(_) if !has_pmu => ok(
            subject,
            "the NMI watchdog is on, but there is no counter for it",
        ),
        Some(_) => problem(
            subject,
            "the NMI watchdog uses a counter on each CPU",
            "free it until the next boot: sysctl kernel.nmi_watchdog=0",
        ),
    }
}

/// Checks whether processes run KVM guests, whose virtual PMUs use counters of the host's PMU.
fn check_kvm_guests() -> Check {
    let subject = "guests";
    let mediated = ["kvm_intel", "kvm_amd"].iter().any(|module| {
        let path = format!("/sys/module/{module}/parameters/enable_mediated_pmu");
        read_trimmed(path).is_some_and(|value| value == "Y")
    });
    let found = processes_with_open("anon_inode:kvm-vm");
    match (found.is_empty(), mediated) {
        (true, _) => ok(subject, "no process with a KVM guest found"),
        (false, false) => note(
            subject,
            format!(
                "KVM guests: {}; their own counters stop while a context uses the PMU, and \
                 samples in guests have no address",
                found.join(", ")
            ),
        ),
        (false, true) => problem(
            subject,
            format!(
                "KVM guests: {}; they have exclusive use of the PMU while they run",
                found.join(", ")
            ),
            "load kvm_intel or kvm_amd with enable_mediated_pmu=N, or end the guests",
        ),
    }
}

/// Returns the name and the ID of each process that has a link with the target `link` in its
/// directory /proc/PID/fd. The result does not include the process of pfc itself.
fn processes_with_open(link: &str) -> Vec<String> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let has = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).ok()?;
        files
            .flatten()
            .any(|f| fs::read_link(f.path()).is_ok_and(|to| to == Path::new(link)))
            .then_some(())
    };
    all.flatten()
        .filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            if number == std::process::id() {
                return None;
            }
            has(&entry.path())?;
            let name = read_trimmed(entry.path().join("comm")).unwrap_or_default();
            Some(format!("{name} ({number})"))
        })
        .collect()
}

/// Lists the processes that have perf events or monitoring contexts open. Not all processes with
/// perf events or contexts use the PMU.
fn check_users(subject: &'static str, link: &str, is_in_the_way: bool) -> Check {
    let found = processes_with_open(link);
    if found.is_empty() {
        return ok(subject, "no process found that has any open");
    }
    let users = format!("open in: {}", found.join(", "));
    match is_in_the_way {
        true => problem(
            subject,
            users,
            "end these processes or wait for them; perf and contexts cannot share the PMU",
        ),
        false => note(subject, users),
    }
}

fn check_create(created: Option<io::Result<()>>) -> Check {
    let subject = "create";
    match created {
        None => note(subject, NOT_LOADED),
        Some(Ok(())) => ok(subject, "a context can be created"),
        Some(Err(e)) if is_ebusy(&e) => problem(
            subject,
            "cannot create a context: no PMU description is registered",
            "load a description: modprobe pfm_intel or pfm_amd, or pfm_soft for software events",
        ),
        Some(Err(e)) => problem(
            subject,
            format!("cannot create a context: {e}"),
            error_remedy(&e),
        ),
    }
}

/// Tries to attach a context with a hardware counter to this thread. Returns `None` if no hardware
/// counter is available.
fn try_attach() -> Option<io::Result<()>> {
    let machine = Machine::read(None).ok()?;
    let event = machine.resolve("instructions:u", Path::new("")).ok()?;
    let plan = assign(&[event], &machine.map);
    let config = ContextConfig::new(Scope::Thread, &plan, None);
    (!config.is_empty()).then(|| config.try_attach(gettid().as_raw_nonzero().get().unsigned_abs()))
}

fn check_attach(modules: &Modules, attached: Option<io::Result<()>>, has_pmu: bool) -> Check {
    let subject = "load";
    match attached {
        None if !modules.has(("perfmon", true)) => note(subject, NOT_LOADED),
        None if !has_pmu => ok(subject, "not tried: there is no PMU"),
        None => problem(
            subject,
            "not tried: no hardware counter is available",
            "see the checks PMU and description above",
        ),
        Some(Ok(())) => ok(subject, "a context with a hardware counter can be attached"),
        Some(Err(e)) if is_ebusy(&e) => problem(
            subject,
            "the PMU is in use",
            "end the users listed above; if there are none, see the kernel log (dmesg)",
        ),
        Some(Err(e)) => problem(
            subject,
            format!("cannot attach a context with a hardware counter: {e}"),
            error_remedy(&e),
        ),
    }
}

fn check_rdpmc(has_pmu: bool) -> Check {
    let subject = "RDPMC";
    if !has_pmu {
        return ok(subject, "not available: there is no PMU");
    }
    match read_trimmed("/sys/bus/event_source/devices/cpu/rdpmc").as_deref() {
        None => note(subject, "unknown: perf has no file rdpmc"),
        Some("0") => note(
            subject,
            "disabled for programs; writing 1 to /sys/bus/event_source/devices/cpu/rdpmc allows it to those that perf counts",
        ),
        Some("1") => ok(subject, "allowed for programs that perf counts"),
        Some(_) => ok(subject, "allowed for all programs"),
    }
}

fn check_capability() -> Check {
    let subject = "CAP_PERFMON";
    match is_privileged() {
        true => ok(
            subject,
            "kernel mode, CPUs and threads of all users can be counted",
        ),
        false => note(
            subject,
            "missing: only own programs can be counted, in user mode",
        ),
    }
}
