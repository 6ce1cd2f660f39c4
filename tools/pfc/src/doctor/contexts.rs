// SPDX-License-Identifier: GPL-2.0

//! Checks of monitoring contexts: the PMU, its users, and whether a context can be created and
//! attached.

use std::fs;
use std::io;
use std::path::Path;

use perfmon::{Context, Map, Scope, DEVICE};
use rustix::thread::gettid;

use super::modules::Modules;
use super::{devices, module, note, problem, text, well, Check};
use crate::stat::events::{privileged, Machine};
use crate::stat::place::place;
use crate::stat::{is_busy, refused, Recipe};

/// Makes all checks. A context is created before the map of registers is read, because the kernel
/// loads PMU descriptions when the first context is created.
pub fn checks(modules: &Modules) -> Vec<Check> {
    let made = modules
        .is_loaded()
        .then(|| Context::create(Scope::Thread).map(drop));
    let map = Map::read().unwrap_or_default();
    let cpu = Cpu::read();
    let loaded = attempt();
    let busy = loaded
        .as_ref()
        .is_some_and(|r| r.as_ref().is_err_and(is_busy));
    let has_pmu = cpu.has_pmu(&map);
    vec![
        devices::contexts(modules),
        pmu(&cpu, has_pmu),
        description(modules, &map, &cpu, has_pmu),
        watchdog(has_pmu),
        guests(),
        holders("perf", "anon_inode:[perf_event]", busy),
        holders("contexts", DEVICE, false),
        create(made),
        load(loaded, has_pmu),
        rdpmc(has_pmu),
        rights(),
    ]
}

/// The vendor and the flags of the first processor in /proc/cpuinfo.
struct Cpu {
    vendor: String,
    flags: Vec<String>,
}

impl Cpu {
    fn read() -> Self {
        let all = text("/proc/cpuinfo").unwrap_or_default();
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

    /// Returns true if there is a PMU: a description of it is registered, or the processor's flags
    /// show one.
    fn has_pmu(&self, map: &Map) -> bool {
        map.hardware.is_some()
            || match self.vendor.as_str() {
                "GenuineIntel" => self.has("arch_perfmon"),
                // AMD's manual says that all its processors have four counters. A hypervisor may
                // hide them.
                "AuthenticAMD" | "HygonGenuine" => {
                    !self.has("hypervisor") || self.has("perfctr_core")
                }
                _ => false,
            }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    fn module(&self) -> &'static str {
        match self.vendor.as_str() {
            "AuthenticAMD" | "HygonGenuine" => "pfm_amd",
            _ => "pfm_intel",
        }
    }
}

/// Returns advice for an error, without the part that says what failed.
fn advice(error: &io::Error) -> String {
    let text = refused("", error).to_string();
    text.trim_start_matches("cannot : ").to_owned()
}

fn description(modules: &Modules, map: &Map, cpu: &Cpu, has_pmu: bool) -> Check {
    let what = "description";
    if let Some(d) = &map.hardware {
        return well(
            what,
            format!("{}: {} PMCs, {} PMDs", d.name, d.pmcs.len(), d.pmds.len()),
        );
    }
    if !has_pmu {
        return well(what, "not needed: there is no PMU");
    }
    let (none, name) = ("no PMU description for this processor", cpu.module());
    let found = match module::log(|said| said.starts_with("perfcounters: perfmon: ")).pop() {
        Some(said) => format!("{none}; kernel log: {said}"),
        None => none.to_owned(),
    };
    match modules.has((name, true)) {
        false => problem(what, found, format!("load it: modprobe {name}")),
        true => problem(
            what,
            found,
            format!("{name} is loaded but does not support this PMU; see dmesg | grep {name}"),
        ),
    }
}

fn pmu(cpu: &Cpu, there: bool) -> Check {
    let what = "PMU";
    match (there, cpu.has("hypervisor")) {
        (true, _) => well(what, format!("PMU of {} found", cpu.vendor)),
        (false, true) => note(
            what,
            "the hypervisor provides no PMU to this virtual machine; only software events are counted",
        )
        .or("for hardware events, enable the virtual PMU on the host (QEMU/KVM: -cpu host,pmu=on)"),
        (false, false) => note(
            what,
            format!(
                "no known PMU (vendor {}); only software events are counted",
                cpu.vendor
            ),
        ),
    }
}

fn watchdog(has_pmu: bool) -> Check {
    let what = "watchdog";
    match text("/proc/sys/kernel/nmi_watchdog").as_deref() {
        Some("0") => well(what, "the NMI watchdog is off"),
        None => well(what, "no NMI watchdog in this kernel"),
        Some(_) if !has_pmu => well(
            what,
            "the NMI watchdog is on, but there is no counter for it",
        ),
        Some(_) => problem(
            what,
            "the NMI watchdog uses a counter on each CPU",
            "free it until the next boot: sysctl kernel.nmi_watchdog=0",
        ),
    }
}

/// Checks for guests of KVM, whose virtual PMU uses the host's.
fn guests() -> Check {
    let what = "guests";
    let mediated = ["kvm_intel", "kvm_amd"].iter().any(|module| {
        let path = format!("/sys/module/{module}/parameters/enable_mediated_pmu");
        text(path).is_some_and(|value| value == "Y")
    });
    let found = processes_with("anon_inode:kvm-vm");
    match (found.is_empty(), mediated) {
        (true, _) => well(what, "no process with a KVM guest found"),
        (false, false) => note(
            what,
            format!(
                "KVM guests: {}; their own counters stop while a context uses the PMU, and \
                 samples in guests have no address",
                found.join(", ")
            ),
        ),
        (false, true) => problem(
            what,
            format!(
                "KVM guests: {}; they have exclusive use of the PMU while they run",
                found.join(", ")
            ),
            "load kvm_intel or kvm_amd with enable_mediated_pmu=N, or end the guests",
        ),
    }
}

/// Returns the name and the ID of each process, except this one, that has a file open whose link in
/// /proc/PID/fd is `link`.
fn processes_with(link: &str) -> Vec<String> {
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
            let name = text(entry.path().join("comm")).unwrap_or_default();
            Some(format!("{name} ({number})"))
        })
        .collect()
}

/// Lists the processes that have perf events or contexts open. Not all of these use the PMU.
fn holders(what: &'static str, link: &str, in_the_way: bool) -> Check {
    let found = processes_with(link);
    if found.is_empty() {
        return well(what, "no process found that has any open");
    }
    let who = format!("open in: {}", found.join(", "));
    match in_the_way {
        true => problem(
            what,
            who,
            "end these processes or wait for them; perf and contexts cannot share the PMU",
        ),
        false => note(what, who),
    }
}

fn create(made: Option<io::Result<()>>) -> Check {
    let what = "create";
    match made {
        None => note(what, "not tried: perfcounters is not loaded"),
        Some(Ok(())) => well(what, "a context can be created"),
        Some(Err(e)) if is_busy(&e) => problem(
            what,
            "cannot create a context: no PMU description is registered",
            "load a description: modprobe pfm_intel or pfm_amd, or pfm_soft for software events",
        ),
        Some(Err(e)) => problem(what, format!("cannot create a context: {e}"), advice(&e)),
    }
}

/// Tries to attach a context with a hardware counter to this thread. Returns `None` if no counter
/// is available.
fn attempt() -> Option<io::Result<()>> {
    let machine = Machine::here(None);
    let event = machine.event("instructions:u", Path::new("")).ok()?;
    let plan = place(&[event], &machine.map);
    let recipe = Recipe::new(Scope::Thread, &plan, None);
    (!recipe.is_empty()).then(|| recipe.try_on(gettid().as_raw_nonzero().get().unsigned_abs()))
}

fn load(loaded: Option<io::Result<()>>, has_pmu: bool) -> Check {
    let what = "load";
    match loaded {
        None if !has_pmu => well(what, "not tried: there is no PMU"),
        None => problem(
            what,
            "not tried: no hardware counter is available",
            "see the checks PMU and description above",
        ),
        Some(Ok(())) => well(what, "a context with a hardware counter can be attached"),
        Some(Err(e)) if is_busy(&e) => problem(
            what,
            "the PMU is in use",
            "end the users listed above; if there are none, see the kernel log (dmesg)",
        ),
        Some(Err(e)) => problem(
            what,
            format!("cannot attach a context with a hardware counter: {e}"),
            advice(&e),
        ),
    }
}

fn rdpmc(has_pmu: bool) -> Check {
    let what = "RDPMC";
    if !has_pmu {
        return well(what, "not available: there is no PMU");
    }
    match text("/sys/bus/event_source/devices/cpu/rdpmc").as_deref() {
        None => note(what, "unknown: perf has no file rdpmc"),
        Some("0") => note(
            what,
            "disabled for programs; writing 1 to /sys/bus/event_source/devices/cpu/rdpmc allows it to those that perf counts",
        ),
        Some("1") => well(what, "allowed for programs that perf counts"),
        Some(_) => well(what, "allowed for all programs"),
    }
}

fn rights() -> Check {
    let what = "CAP_PERFMON";
    match privileged() {
        true => well(
            what,
            "kernel mode, CPUs and threads of all users can be counted",
        ),
        false => note(
            what,
            "missing: only own programs can be counted, in user mode",
        ),
    }
}
