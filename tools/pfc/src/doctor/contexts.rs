// SPDX-License-Identifier: GPL-2.0

//! Checks of monitoring contexts: the PMU, its users, and whether a context can be created and
//! attached.

use std::fs;
use std::io;
use std::path::Path;

use perfmon::{Context, RegisterMap, Scope, PERFMON_DEVICE_PATH};
use rustix::thread::gettid;

use super::kernel_log::find_last_matching_message;
use super::modules::CheckedModules;
use super::{devices, note_check, ok_check, problem_check, read_trimmed_file, Check};
use crate::stat::assign::assign_events_to_registers;
use crate::stat::events::{has_perfmon_capability, MachineProperties};
use crate::stat::{syscall_failure, CountingContextConfig};
use crate::target::is_ebusy;

/// Makes all checks of monitoring contexts. A context is created before the map of registers is
/// read, because the kernel loads PMU descriptions when the first context is created.
pub fn run_context_checks(modules: &CheckedModules) -> Vec<Check> {
    let created = modules
        .is_loaded("perfmon")
        .then(|| Context::create(Scope::Thread).map(drop));
    let map = RegisterMap::load_pmus_and_read().unwrap_or_default();
    let cpu = CpuInfo::read();
    let attached = try_attach_with_hardware_counter();
    let is_in_use = attached
        .as_ref()
        .is_some_and(|r| r.as_ref().is_err_and(is_ebusy));
    let has_pmu = cpu.has_pmu(&map);
    vec![
        devices::CONTEXTS_DEVICE.check(modules),
        check_pmu_presence(&cpu, has_pmu),
        check_pmu_description(modules, &map, &cpu, has_pmu),
        check_nmi_watchdog(has_pmu),
        check_kvm_guests(),
        check_processes_with_open_file("perf", "anon_inode:[perf_event]", is_in_use),
        check_processes_with_open_file("contexts", PERFMON_DEVICE_PATH, false),
        check_context_creation(created),
        check_context_attachment(modules, attached, has_pmu),
        check_rdpmc_access(has_pmu),
        check_perfmon_capability(),
    ]
}

/// The vendor and the flags of the first processor in /proc/cpuinfo.
struct CpuInfo {
    vendor: String,
    flags: Vec<String>,
}

impl CpuInfo {
    fn read() -> Self {
        let all = read_trimmed_file("/proc/cpuinfo").unwrap_or_default();
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
    fn has_pmu(&self, map: &RegisterMap) -> bool {
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

    fn pmu_module_name(&self) -> &'static str {
        match self.vendor.as_str() {
            "AuthenticAMD" | "HygonGenuine" => "pfm_amd",
            _ => "pfm_intel",
        }
    }
}

/// Returns the advice for an error of a monitoring context: the error message without its first
/// word "cannot".
fn context_error_remedy(error: &io::Error) -> String {
    let text = syscall_failure("", error).to_string();
    text.trim_start_matches("cannot : ").to_owned()
}

/// The text that replaces the finding of a check if the check needs perfmon.ko and perfmon.ko is
/// not loaded.
const PERFMON_NOT_LOADED_FINDING: &str = "not tried: perfmon is not loaded";

fn check_pmu_description(
    modules: &CheckedModules,
    map: &RegisterMap,
    cpu: &CpuInfo,
    has_pmu: bool,
) -> Check {
    let subject = "description";
    if !modules.is_loaded("perfmon") {
        return note_check(subject, PERFMON_NOT_LOADED_FINDING);
    }
    if let Some(d) = &map.hardware {
        return ok_check(
            subject,
            format!("{}: {} PMCs, {} PMDs", d.name, d.pmcs.len(), d.pmds.len()),
        );
    }
    if !has_pmu {
        return ok_check(subject, "not needed: there is no PMU");
    }
    let (missing, name) = (
        "no PMU description for this processor",
        cpu.pmu_module_name(),
    );
    let found = match find_last_matching_message(|message| message.starts_with("perfmon: ")) {
        Some(message) => format!("{missing}; kernel log: {message}"),
        None => missing.to_owned(),
    };
    match modules.is_loaded(name) {
        false => problem_check(subject, found, format!("load it: modprobe {name}")),
        true => problem_check(
            subject,
            found,
            format!("{name} is loaded but does not support this PMU; see dmesg | grep {name}"),
        ),
    }
}

fn check_pmu_presence(cpu: &CpuInfo, has_pmu: bool) -> Check {
    let subject = "PMU";
    match (has_pmu, cpu.has_flag("hypervisor")) {
        (true, _) => ok_check(subject, format!("PMU of {} found", cpu.vendor)),
        (false, true) => note_check(
            subject,
            "the hypervisor provides no PMU to this virtual machine; only software events are counted",
        )
        .with_remedy("for hardware events, enable the virtual PMU on the host (QEMU/KVM: -cpu host,pmu=on)"),
        (false, false) => note_check(
            subject,
            format!(
                "no known PMU (vendor {}); only software events are counted",
                cpu.vendor
            ),
        ),
    }
}

fn check_nmi_watchdog(has_pmu: bool) -> Check {
    let subject = "watchdog";
    match read_trimmed_file("/proc/sys/kernel/nmi_watchdog").as_deref() {
        Some("0") => ok_check(subject, "the NMI watchdog is off"),
        None => ok_check(subject, "no NMI watchdog in this kernel"),
        Some(_) if !has_pmu => ok_check(
            subject,
            "the NMI watchdog is on, but there is no counter for it",
        ),
        Some(_) => problem_check(
            subject,
            "the NMI watchdog uses a counter on each CPU",
            "free it until the next boot: sysctl kernel.nmi_watchdog=0",
        ),
    }
}

/// Checks whether processes run KVM guests, whose virtual PMUs use counters of the host's PMU, and
/// whether KVM's mediated PMU is enabled.
fn check_kvm_guests() -> Check {
    let is_mediated = |module: &&str| {
        let path = format!("/sys/module/{module}/parameters/enable_mediated_pmu");
        read_trimmed_file(path).is_some_and(|value| value == "Y")
    };
    let module = ["kvm_intel", "kvm_amd"].into_iter().find(is_mediated);
    let guests = find_processes_with_open_file("anon_inode:kvm-vm");
    make_kvm_guests_check(&guests.join(", "), module)
}

/// Returns the result of [`check_kvm_guests`]. `guests` names the processes of KVM guests, and
/// `mediated` is the module of KVM whose mediated PMU is enabled.
fn make_kvm_guests_check(guests: &str, mediated: Option<&str>) -> Check {
    let subject = "guests";
    let found = match guests {
        "" => "no process with a KVM guest found".to_owned(),
        _ => format!("KVM guests: {guests}"),
    };
    match mediated {
        Some(module) => {
            let finding = format!(
                "{found}; {module} has enable_mediated_pmu=Y: guests with a PMU overwrite the \
                 counters of contexts"
            );
            let remedy = format!("end the guests, and load {module} with enable_mediated_pmu=N");
            match guests {
                "" => note_check(subject, finding).with_remedy(remedy),
                _ => problem_check(subject, finding, remedy),
            }
        }
        None if guests.is_empty() => ok_check(subject, found),
        None => note_check(
            subject,
            format!(
                "{found}; their own counters stop while a context uses the PMU, and samples in \
                 guests have no address"
            ),
        ),
    }
}

/// Returns the name and the ID of each process whose directory /proc/PID/fd contains a link with
/// the target `link`. The result does not include the process of pfc itself.
fn find_processes_with_open_file(link: &str) -> Vec<String> {
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
            let name = read_trimmed_file(entry.path().join("comm")).unwrap_or_default();
            Some(format!("{name} ({number})"))
        })
        .collect()
}

/// Lists the processes that have perf events or monitoring contexts open. Some of these processes
/// may not use the PMU.
fn check_processes_with_open_file(subject: &'static str, link: &str, is_in_the_way: bool) -> Check {
    let found = find_processes_with_open_file(link);
    if found.is_empty() {
        return ok_check(subject, "no process found that has any open");
    }
    let users = format!("open in: {}", found.join(", "));
    match is_in_the_way {
        true => problem_check(
            subject,
            users,
            "end these processes or wait for them; perf and contexts cannot share the PMU",
        ),
        false => note_check(subject, users),
    }
}

fn check_context_creation(created: Option<io::Result<()>>) -> Check {
    let subject = "create";
    match created {
        None => note_check(subject, PERFMON_NOT_LOADED_FINDING),
        Some(Ok(())) => ok_check(subject, "a context can be created"),
        Some(Err(e)) if is_ebusy(&e) => problem_check(
            subject,
            "cannot create a context: no PMU description is registered",
            "load a description: modprobe pfm_intel or pfm_amd, or pfm_soft for software events",
        ),
        Some(Err(e)) => problem_check(
            subject,
            format!("cannot create a context: {e}"),
            context_error_remedy(&e),
        ),
    }
}

/// Tries to attach a context with a hardware counter to this thread. Returns `None` if no hardware
/// counter is available.
fn try_attach_with_hardware_counter() -> Option<io::Result<()>> {
    let machine = MachineProperties::read(None).ok()?;
    let event = machine
        .resolve_event_name("instructions:u", Path::new(""))
        .ok()?;
    let plan = assign_events_to_registers(&[event], &machine.register_map);
    let config = CountingContextConfig::new(Scope::Thread, &plan, None);
    (!config.is_empty())
        .then(|| config.check_can_attach(gettid().as_raw_nonzero().get().unsigned_abs()))
}

fn check_context_attachment(
    modules: &CheckedModules,
    attached: Option<io::Result<()>>,
    has_pmu: bool,
) -> Check {
    let subject = "load";
    match attached {
        None if !modules.is_loaded("perfmon") => note_check(subject, PERFMON_NOT_LOADED_FINDING),
        None if !has_pmu => ok_check(subject, "not tried: there is no PMU"),
        None => problem_check(
            subject,
            "not tried: no hardware counter is available",
            "see the checks PMU and description above",
        ),
        Some(Ok(())) => ok_check(subject, "a context with a hardware counter can be attached"),
        Some(Err(e)) if is_ebusy(&e) => problem_check(
            subject,
            "the PMU is in use",
            "end the users listed above; if there are none, see the kernel log (dmesg)",
        ),
        Some(Err(e)) => problem_check(
            subject,
            format!("cannot attach a context with a hardware counter: {e}"),
            context_error_remedy(&e),
        ),
    }
}

fn check_rdpmc_access(has_pmu: bool) -> Check {
    let subject = "RDPMC";
    if !has_pmu {
        return ok_check(subject, "not available: there is no PMU");
    }
    match read_trimmed_file("/sys/bus/event_source/devices/cpu/rdpmc").as_deref() {
        None => note_check(subject, "unknown: perf has no file rdpmc"),
        Some("0") => note_check(
            subject,
            "disabled for programs; writing 1 to /sys/bus/event_source/devices/cpu/rdpmc allows it to those that perf counts",
        ),
        Some("1") => ok_check(subject, "allowed for programs that perf counts"),
        Some(_) => ok_check(subject, "allowed for all programs"),
    }
}

fn check_perfmon_capability() -> Check {
    let subject = "CAP_PERFMON";
    match has_perfmon_capability() {
        true => ok_check(
            subject,
            "kernel mode, CPUs and threads of all users can be counted",
        ),
        false => note_check(
            subject,
            "missing: only own programs can be counted, in user mode",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckState;
    use super::*;

    #[test]
    fn r1_16_mediated_pmu_of_kvm_is_reported() {
        let state = |guests, mediated| make_kvm_guests_check(guests, mediated).state;
        assert_eq!(state("", None), CheckState::Ok);
        assert_eq!(state("qemu (7)", None), CheckState::Note);
        assert_eq!(state("", Some("kvm_amd")), CheckState::Note);
        assert_eq!(state("qemu (7)", Some("kvm_amd")), CheckState::Problem);
        let finding = make_kvm_guests_check("qemu (7)", Some("kvm_intel")).finding;
        assert!(finding.starts_with("KVM guests: qemu (7); kvm_intel has"));
    }
}
