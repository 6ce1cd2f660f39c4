// SPDX-License-Identifier: GPL-2.0

//! `pfc doctor`: what keeps events from being counted, and what to do.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use perfmon::{Context, Map, Scope, DEVICE};
use rustix::thread::gettid;
use serde_json::{json, Value};

use crate::cli::JsonArgs;
use crate::failure::Failure;
use crate::out::Out;
use crate::stat::events::{privileged, Machine};
use crate::stat::place::place;
use crate::stat::{is_busy, refused, Recipe};

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Well,
    /// It is so, and nothing is wrong with it.
    Note,
    Problem,
}

/// What was looked at.
struct Check {
    what: &'static str,
    state: State,
    found: String,
    /// What to do.
    remedy: String,
}

fn well(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        what,
        state: State::Well,
        found: found.into(),
        remedy: String::new(),
    }
}

fn note(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        state: State::Note,
        ..well(what, found)
    }
}

fn problem(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check {
        state: State::Problem,
        remedy: remedy.into(),
        ..well(what, found)
    }
}

pub fn run(args: &JsonArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let checks = all();
    if args.json {
        let list: Vec<Value> = checks
            .iter()
            .map(|c| {
                json!({"check": c.what, "state": c.state.word(), "found": c.found,
                    "remedy": c.remedy})
            })
            .collect();
        writeln!(out, "{}", json!({"checks": list}))?;
    } else {
        for c in &checks {
            writeln!(out, "{:<8} {:<12} {}", c.state.word(), c.what, c.found)?;
            if !c.remedy.is_empty() {
                writeln!(out, "{:>21} {}", "->", c.remedy)?;
            }
        }
    }
    Ok(match checks.iter().any(|c| c.state == State::Problem) {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

fn all() -> Vec<Check> {
    let map = Map::read().unwrap_or_default();
    let cpu = Cpu::read();
    let loaded = attempt();
    let busy = loaded
        .as_ref()
        .is_some_and(|r| r.as_ref().is_err_and(is_busy));
    vec![
        modules(&cpu),
        device(),
        description(&map, &cpu),
        pmu(&map, &cpu),
        watchdog(),
        holders("perf", "anon_inode:[perf_event]", busy),
        holders("contexts", DEVICE, false),
        create(),
        load(loaded),
        rdpmc(),
        lockdown(),
        rights(),
    ]
}

/// A file's text, without blanks around it.
fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// What /proc/cpuinfo says of the first processor.
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

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    fn module(&self) -> &'static str {
        match self.vendor.as_str() {
            "AuthenticAMD" => "pfm_amd",
            _ => "pfm_intel",
        }
    }
}

fn modules(cpu: &Cpu) -> Check {
    let what = "modules";
    let there = |name: &str| Path::new("/sys/module").join(name).exists();
    let wanted = ["perfcounters", cpu.module()];
    let missing: Vec<&str> = wanted.into_iter().filter(|m| !there(m)).collect();
    if missing.is_empty() {
        return well(what, wanted.join(", "));
    }
    problem(
        what,
        format!("not loaded: {}", missing.join(", ")),
        format!("load them: modprobe {}", missing.join("; modprobe ")),
    )
}

fn device() -> Check {
    let what = "device";
    match fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => well(what, format!("{DEVICE} can be opened")),
        Err(e) => problem(what, format!("{DEVICE}: {e}"), advice(&e)),
    }
}

/// What to do about an error, without what it was for.
fn advice(error: &io::Error) -> String {
    let text = refused("", error).to_string();
    text.trim_start_matches("cannot : ").to_owned()
}

fn description(map: &Map, cpu: &Cpu) -> Check {
    let what = "description";
    match &map.hardware {
        Some(d) => well(
            what,
            format!("{}: {} PMCs, {} PMDs", d.name, d.pmcs.len(), d.pmds.len()),
        ),
        None => problem(
            what,
            "no description of the processor's registers",
            format!(
                "load it: modprobe {}; if that fails, dmesg says why",
                cpu.module()
            ),
        ),
    }
}

fn pmu(map: &Map, cpu: &Cpu) -> Check {
    let what = "PMU";
    let guest = cpu.has("hypervisor");
    let says = match cpu.vendor.as_str() {
        "GenuineIntel" => cpu.has("arch_perfmon"),
        // All of them have four counters, says the manual.
        "AuthenticAMD" => !guest || cpu.has("perfctr_core"),
        _ => false,
    };
    match (map.hardware.is_some() || says, guest) {
        (true, _) => well(what, format!("{} has one", cpu.vendor)),
        (false, true) => problem(
            what,
            "a virtual machine whose hypervisor shows no PMU",
            "have its host turn it on (QEMU/KVM: -cpu host,pmu=on); the kernel's own events work without",
        ),
        (false, false) => problem(
            what,
            format!("none that is known, by {}", cpu.vendor),
            "only the kernel's own events can be counted here",
        ),
    }
}

fn watchdog() -> Check {
    let what = "watchdog";
    match text("/proc/sys/kernel/nmi_watchdog").as_deref() {
        Some("0") => well(what, "the NMI watchdog is off"),
        None => well(what, "there is no NMI watchdog"),
        Some(_) => problem(
            what,
            "the NMI watchdog has a counter on each CPU",
            "sysctl kernel.nmi_watchdog=0 frees it until the next boot",
        ),
    }
}

/// Processes with such a file open, other than this one.
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

/// Events of perf's, or contexts, that are open. Not every one of them needs the PMU.
fn holders(what: &'static str, link: &str, in_the_way: bool) -> Check {
    let found = processes_with(link);
    if found.is_empty() {
        return well(what, "nobody is seen to have any open");
    }
    let who = format!("open in: {}", found.join(", "));
    match in_the_way {
        true => problem(
            what,
            who,
            "end them, or wait for them: perf and contexts do not share the PMU",
        ),
        false => note(what, who),
    }
}

fn create() -> Check {
    let what = "create";
    match Context::create(Scope::Thread) {
        Ok(_) => well(what, "a context can be made"),
        Err(e) if is_busy(&e) => problem(
            what,
            "a context cannot be made: no register is described",
            "load a description: modprobe pfm_intel, pfm_amd, or pfm_soft for the kernel's own",
        ),
        Err(e) => problem(what, format!("a context cannot be made: {e}"), advice(&e)),
    }
}

/// A counter of the hardware, on this thread; `None` if there is none.
fn attempt() -> Option<io::Result<()>> {
    let machine = Machine::here(false);
    let event = machine.event("instructions:u", Path::new("")).ok()?;
    let plan = place(&[event], &machine.map);
    let recipe = Recipe::new(Scope::Thread, &plan, None);
    (!recipe.is_empty()).then(|| recipe.try_on(gettid().as_raw_nonzero().get().unsigned_abs()))
}

fn load(loaded: Option<io::Result<()>>) -> Check {
    let what = "load";
    match loaded {
        None => problem(
            what,
            "there is no hardware counter to try",
            "see the description and the PMU above",
        ),
        Some(Ok(())) => well(what, "a context with a hardware counter can be attached"),
        Some(Err(e)) if is_busy(&e) => problem(
            what,
            "the PMU is in use",
            "end who is named above; if nobody is, the kernel's log says more (dmesg)",
        ),
        Some(Err(e)) => problem(what, format!("it cannot be attached: {e}"), advice(&e)),
    }
}

fn rdpmc() -> Check {
    let what = "RDPMC";
    match text("/sys/bus/event_source/devices/cpu/rdpmc").as_deref() {
        None => note(what, "perf says nothing of it"),
        Some("0") => note(
            what,
            "not for programs; 1 in /sys/bus/event_source/devices/cpu/rdpmc lets those use it that perf counts",
        ),
        Some("1") => well(what, "for programs that perf counts"),
        Some(_) => well(what, "for all programs"),
    }
}

fn lockdown() -> Check {
    let what = "lockdown";
    let modes = text("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|m| m.split(']').next());
    match mode {
        None | Some("none") => well(what, "off"),
        Some(_) if Path::new("/sys/module/perfcounters").exists() => {
            note(what, "on; the modules are loaded nevertheless")
        }
        Some(mode) => problem(
            what,
            format!("{mode}: modules must be signed"),
            "sign them with a key that the machine trusts, or turn Secure Boot off",
        ),
    }
}

fn rights() -> Check {
    let what = "CAP_PERFMON";
    match privileged() {
        true => well(
            what,
            "the kernel, CPUs and everybody's threads can be counted",
        ),
        false => note(what, "not there: only own programs, in user mode"),
    }
}
