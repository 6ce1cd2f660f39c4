// SPDX-License-Identifier: GPL-2.0

//! Event names: perf's generic names, soft registers, counter pages, raw codes and libpfm4's names.
//! The kernel module knows registers and codes only; names are resolved here.

use std::path::Path;

use perfcounters::{Counters, State};
use perfmon::Map;

use super::cpus;
use crate::failure::Failure;
use crate::units::Measure;

/// The vendor of the processor's PMU description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Intel,
    Amd,
}

/// The properties of the machine on which the meaning of event names depends.
pub struct Machine {
    pub map: Map,
    pub vendor: Option<Vendor>,
    /// The CPU family, like the model from `/proc/cpuinfo`; 0 if it is not found.
    pub family: u32,
    pub model: u32,
    /// The process has CAP_PERFMON or CAP_SYS_ADMIN: it may count the kernel and other users'
    /// threads.
    pub privileged: bool,
    /// CPUs are counted instead of threads.
    pub system_wide: bool,
}

/// The event of a hardware counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Event select, unit mask and the other bits of the PMC, without modes.
    pub select: u64,
    /// The number of the Intel fixed counter that counts the same event.
    pub fixed: Option<u16>,
    /// No general counter can count the event.
    pub only_fixed: bool,
    /// A bit mask of the general counters that can count the event.
    pub counters: u64,
    pub user: bool,
    pub kernel: bool,
}

/// The source of an event's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Hardware(Code),
    /// A soft register: a PMD of the kernel's own events.
    Soft(u16),
    /// An instance of the counter pages, by its number.
    Instance(u32),
    /// The event is not available.
    Missing,
}

/// An event of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name that is shown.
    pub name: String,
    pub what: What,
    pub unit: String,
    /// The factor that converts a count to that unit.
    pub scale: f64,
    /// The reason why the event is not available, if it is known.
    pub why: Option<String>,
}

impl Event {
    fn new(name: &str, what: What) -> Self {
        Self {
            name: name.to_owned(),
            what,
            unit: String::new(),
            scale: 1.0,
            why: None,
        }
    }

    /// Returns the name without modes.
    pub fn base(&self) -> &str {
        modes(&self.name).0
    }
}

/// Bits of a raw code that do not select the event: user, kernel, interrupt and enable.
const NOT_CODE: u64 = (1 << 16) | (1 << 17) | (1 << 20) | (1 << 22);

const fn code(select: u64) -> Code {
    Code {
        select,
        fixed: None,
        only_fixed: false,
        counters: u64::MAX,
        user: false,
        kernel: false,
    }
}

/// Makes the code of a raw event select. On Intel it also finds the fixed counter for the event;
/// codes with event number 0 are for fixed counters only.
fn coded(select: u64, vendor: Vendor) -> Code {
    let mut code = code(select & !NOT_CODE);
    if vendor == Vendor::Intel {
        (code.fixed, code.only_fixed) = match code.select {
            0x00c0 => (Some(0), false),
            0x003c => (Some(1), false),
            0x0300 => (Some(2), true),
            0x0400 => (Some(3), true),
            _ => (None, false),
        };
    }
    code
}

/// Resolves perf's generic names. Returns `Some(None)` if this machine cannot count the event, and
/// `None` if the name is not a generic one.
fn generic(name: &str, vendor: Option<Vendor>, family: u32, map: &Map) -> Option<Option<Code>> {
    use Vendor::{Amd, Intel};
    // AMD's Zen and later. Earlier families have other cache events.
    let zen = family >= 0x17;
    // The event for reference cycles exists since PerfMonV2.
    let v2 = map.hardware.as_ref().is_some_and(|d| d.name == "amd-v2");
    let select = match (name, vendor) {
        ("cycles" | "cpu-cycles", Some(Intel)) => 0x3c,
        ("cycles" | "cpu-cycles", Some(Amd)) => 0x76,
        ("instructions", Some(_)) => 0xc0,
        ("branches" | "branch-instructions", Some(Intel)) => 0xc4,
        ("branches" | "branch-instructions", Some(Amd)) => 0xc2,
        ("branch-misses", Some(Intel)) => 0xc5,
        ("branch-misses", Some(Amd)) => 0xc3,
        ("cache-references", Some(Intel)) => 0x4f2e,
        ("cache-references", Some(Amd)) if zen => 0xff60,
        ("cache-references", Some(Amd)) => 0x077d,
        ("cache-misses", Some(Intel)) => 0x412e,
        ("cache-misses", Some(Amd)) if zen => 0x0964,
        ("cache-misses", Some(Amd)) => 0x077e,
        ("ref-cycles", Some(Intel)) => 0x0300,
        ("ref-cycles", Some(Amd)) if v2 => 0x1_0000_0120,
        ("bus-cycles", Some(Intel)) => 0x013c,
        (
            "cycles"
            | "cpu-cycles"
            | "instructions"
            | "branches"
            | "branch-instructions"
            | "branch-misses"
            | "cache-references"
            | "cache-misses"
            | "ref-cycles"
            | "bus-cycles",
            _,
        ) => return Some(None),
        _ => return None,
    };
    Some(vendor.map(|vendor| coded(select, vendor)))
}

/// Converts libpfm4's spellings of perf's names, `INSTRUCTIONS` and `perf::instructions`. Returns
/// `None` if the name has another form.
fn in_lower_case(name: &str) -> Option<String> {
    let plain = name.strip_prefix("perf::");
    let is_loud = name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    (plain.is_some() || is_loud).then(|| plain.unwrap_or(name).to_ascii_lowercase())
}

/// Returns the soft register for one of perf's names.
fn soft(name: &str, system_wide: bool) -> Option<u16> {
    Some(match name {
        "cpu-clock" => perfmon::CPU_CLOCK,
        // A CPU has no task clock, so its clock takes the place.
        "task-clock" if system_wide => perfmon::CPU_CLOCK,
        "task-clock" => perfmon::TASK_CLOCK,
        "context-switches" | "cs" => perfmon::CONTEXT_SWITCHES,
        "page-faults" | "faults" => perfmon::PAGE_FAULTS,
        "cpu-migrations" | "migrations" => perfmon::MIGRATIONS,
        "major-faults" => perfmon::MAJOR_FAULTS,
        _ => return None,
    })
}

/// Splits a word into the name and the modes at its end, (user, kernel). The modes are `None` if
/// there are none.
fn modes(word: &str) -> (&str, Option<(bool, bool)>) {
    let (mut name, mut user, mut kernel) = (word, false, false);
    while let Some((before, last)) = name.rsplit_once(':') {
        if last.is_empty() || !last.chars().all(|c| matches!(c, 'u' | 'k')) {
            break;
        }
        user |= last.contains('u');
        kernel |= last.contains('k');
        name = before;
    }
    (name, (user || kernel).then_some((user, kernel)))
}

impl Machine {
    /// Reads the properties of this machine. `on` has the CPUs that are counted; `None` if threads
    /// are counted, which run on any CPU. Registers that one of these CPUs lacks are left out.
    pub fn here(on: Option<&[u32]>) -> Self {
        let have = |list: &str| match (on, cpus(list)) {
            (Some(on), Some(there)) => on.iter().all(|cpu| there.contains(cpu)),
            _ => list.is_empty(),
        };
        // If the module is not loaded, the map has no registers.
        let map = Map::read().unwrap_or_default().of_cpus(have);
        let vendor = map.hardware.as_ref().and_then(|d| match &d.name {
            name if name.starts_with("intel") => Some(Vendor::Intel),
            name if name.starts_with("amd") => Some(Vendor::Amd),
            _ => None,
        });
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let number = |key: &str| {
            let value = |line: &str| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().parse().ok())?
            };
            cpuinfo.lines().find_map(value).unwrap_or(0)
        };
        Self {
            map,
            vendor,
            family: number("cpu family"),
            model: number("model"),
            privileged: privileged(),
            system_wide: on.is_some(),
        }
    }

    /// Returns true if the word names a soft register or a counter page instance, available or not.
    pub fn is_soft_name(&self, word: &str) -> bool {
        word.starts_with("counter:") || soft(modes(word).0, self.system_wide).is_some()
    }

    fn has_soft(&self, number: u16) -> bool {
        let other = match self.system_wide {
            true => "thread",
            false => "system-wide",
        };
        self.map
            .pmd(number)
            .is_some_and(|r| r.is_counter && r.scope != other)
    }

    /// Returns the events that perf stat counts by default, without those that are not available.
    /// Hardware events are kept if there is no PMU at all, and shown as not supported.
    pub fn default_events(&self) -> Vec<Event> {
        let names = [
            if self.system_wide {
                "cpu-clock"
            } else {
                "task-clock"
            },
            "context-switches",
            "cpu-migrations",
            "page-faults",
            "cycles",
            "instructions",
            "branches",
            "branch-misses",
        ];
        names
            .iter()
            .filter_map(|name| self.event(name, Path::new("")).ok())
            .filter(|event| {
                let no_pmu = self.vendor.is_none() && !self.is_soft_name(&event.name);
                event.what != What::Missing || no_pmu
            })
            .collect()
    }

    /// Resolves a word of `-e`. `device` is the device of the counter pages.
    pub fn event(&self, word: &str, device: &Path) -> Result<Event, Failure> {
        if let Some(name) = word.strip_prefix("counter:") {
            return self.instance(word, name, device);
        }
        let (name, asked) = modes(word);
        if name.is_empty() {
            return Err(Failure::Refused(format!(
                "no event name in '{word}'; see pfc stat --help"
            )));
        }
        let plain = in_lower_case(name);
        let name = plain.as_deref().unwrap_or(name);
        if let Some(number) = soft(name, self.system_wide) {
            let what = match self.has_soft(number) {
                true => What::Soft(number),
                false => What::Missing,
            };
            let mut event = Event::new(word, what);
            if matches!(number, perfmon::CPU_CLOCK | perfmon::TASK_CLOCK) {
                (event.unit, event.scale) = ("msec".to_owned(), 1e-6);
            }
            return Ok(event);
        }
        let found = match generic(name, self.vendor, self.family, &self.map) {
            Some(found) => found.ok_or_else(|| self.unknown("")),
            None => self.by_code(word, name)?,
        };
        let found = found.and_then(|code| self.countable(code));
        Ok(self.with_modes(word, found, asked))
    }

    /// Returns the reason for a name that was not found: this processor has no such event, or there
    /// is no PMU.
    fn unknown(&self, hint: &str) -> String {
        match self.vendor {
            Some(_) => format!("no such event on this processor{hint}"),
            None => "this machine has no usable PMU".to_owned(),
        }
    }

    /// Resolves a raw code or one of libpfm4's names. The inner error is the reason why the event
    /// is not available; the outer one ends the program.
    fn by_code(&self, word: &str, name: &str) -> Result<Result<Code, String>, Failure> {
        let Some(vendor) = self.vendor else {
            return Ok(Err(self.unknown("")));
        };
        let cores = self.map.hardware.as_ref().map_or(0, |d| d.cores.len());
        if cores > 1 {
            return Ok(Err(
                "the code may select another event on the other core type".to_owned(),
            ));
        }
        let hex = name.strip_prefix('r').filter(|h| !h.is_empty());
        if let Some(Ok(raw)) = hex.map(|h| u64::from_str_radix(h, 16)) {
            return Ok(Ok(coded(raw, vendor)));
        }
        let event = match libpfm::encode(name) {
            Ok(event) => event,
            Err(error) if error.is_not_found() => {
                let hint = "; pfc pmu lists the libpfm4 tables that are searched";
                return Ok(Err(self.unknown(hint)));
            }
            Err(error) => return Err(Failure::Refused(format!("'{word}': libpfm4: {error}"))),
        };
        let code = coded(event.select, vendor);
        let whole = match (event.kind, event.has_more) {
            (libpfm::Kind::Core, false) => Ok(code),
            // If the second register is known, countable() returns an error with its name.
            (libpfm::Kind::Core, true) => self.countable(code).and(Err(
                "it needs a second register, which is not programmed".to_owned(),
            )),
            (libpfm::Kind::System, _) => {
                Err("it is an event of perf, not of this processor".to_owned())
            }
            (libpfm::Kind::Other, _) => {
                Err("the cores of this processor do not count it".to_owned())
            }
        };
        Ok(whole)
    }

    /// Adds the mask of the counters that can count the event. Returns the reason if no counter
    /// alone can.
    fn countable(&self, code: Code) -> Result<Code, String> {
        use perfmon::constraints::{lacking_of_amd, lacking_of_intel, of_amd, of_intel, Lacking};
        let (lacking, counters) = match self.vendor {
            Some(Vendor::Intel) => (
                lacking_of_intel(self.family, self.model, code.select),
                of_intel(self.family, self.model, code.select),
            ),
            Some(Vendor::Amd) => (
                lacking_of_amd(self.family, code.select),
                of_amd(self.family, code.select),
            ),
            None => (None, u64::MAX),
        };
        match lacking {
            Some(Lacking::Register(name)) => Err(format!(
                "it needs a second register, {name}, which is not programmed"
            )),
            Some(Lacking::Merge) => {
                Err("it needs two counters merged into one, which is not programmed".to_owned())
            }
            None if counters == 0 => Err("no counter of a core can count it".to_owned()),
            None => Ok(Code { counters, ..code }),
        }
    }

    /// Makes the event with its modes. As in perf, an event without modes counts user and kernel
    /// mode. If the user may not count the kernel, it counts user mode only, and `:u` is appended
    /// to the name.
    fn with_modes(
        &self,
        word: &str,
        found: Result<Code, String>,
        asked: Option<(bool, bool)>,
    ) -> Event {
        let (user, kernel) = asked.unwrap_or((true, self.privileged));
        let name = match asked {
            None if !self.privileged => format!("{word}:u"),
            _ => word.to_owned(),
        };
        match found {
            Ok(code) => {
                let code = Code {
                    user,
                    kernel,
                    ..code
                };
                Event::new(&name, What::Hardware(code))
            }
            Err(why) => Event {
                why: Some(why),
                ..Event::new(&name, What::Missing)
            },
        }
    }

    fn instance(&self, word: &str, name: &str, device: &Path) -> Result<Event, Failure> {
        let catalogue = Counters::open_path(device)?.catalogue()?;
        let instance = catalogue
            .find(name)
            .filter(|i| i.state == State::Live)
            .ok_or_else(|| Failure::no_match(name))?;
        let what = match self.has_soft(perfmon::INSTANCE) {
            true => What::Instance(instance.number),
            false => What::Missing,
        };
        let coin = Measure::inside(instance).coin();
        Ok(Event {
            unit: if matches!(coin.as_str(), "-" | "events") {
                String::new()
            } else {
                coin
            },
            ..Event::new(word, what)
        })
    }
}

/// Returns true if this process has CAP_PERFMON or CAP_SYS_ADMIN.
pub fn privileged() -> bool {
    use rustix::thread::{capabilities, CapabilitySet};
    capabilities(None).is_ok_and(|c| {
        c.effective
            .intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Makes a machine with this number of general counters and, for Intel, three fixed ones.
    pub fn machine(vendor: Vendor, general: u16, soft: bool) -> Machine {
        let mut text = String::new();
        text.push_str(match vendor {
            Vendor::Intel => "# intel-arch\n",
            Vendor::Amd => "# amd-v2\n",
        });
        for n in 0..general {
            text.push_str(&format!(
                "PMC{n} S address=0x1 reset=0x0 reserved=0xffffff0000180000\n"
            ));
            text.push_str(&format!(
                "PMD{n} C address=0x1 width=48 pmcs={:#x} rdpmc=0\n",
                1 << n
            ));
        }
        if vendor == Vendor::Intel {
            text.push_str("PMC16 F address=0x38d reset=0x0 reserved=0xfffffffffffff888\n");
            for n in 16..19 {
                text.push_str(&format!(
                    "PMD{n} C address=0x1 width=48 pmcs=0x10000 rdpmc=0\n"
                ));
            }
        }
        if soft {
            text.push_str("# soft\n");
            for n in 272..276 {
                text.push_str(&format!("PMC{n} I address=0x0 reset=0x0 reserved=0x0\n"));
            }
            for n in (256..262).chain(272..276) {
                text.push_str(&format!("PMD{n} C virtual counter width=64 pmcs=0x0\n"));
            }
        }
        Machine {
            map: Map::parse(&text),
            vendor: Some(vendor),
            family: 0x17,
            model: 0,
            privileged: true,
            system_wide: false,
        }
    }

    fn named(machine: &Machine, word: &str) -> Event {
        machine.event(word, Path::new("")).expect(word)
    }

    fn hardware(event: &Event) -> Code {
        match event.what {
            What::Hardware(code) => code,
            _ => panic!("{event:?}"),
        }
    }

    #[test]
    fn r1_16_generic_names_are_this_vendors() {
        let intel = machine(Vendor::Intel, 4, false);
        let amd = machine(Vendor::Amd, 6, false);
        let cycles = hardware(&named(&intel, "cycles"));
        assert_eq!((cycles.select, cycles.fixed), (0x3c, Some(1)));
        let cycles = hardware(&named(&amd, "cpu-cycles"));
        assert_eq!((cycles.select, cycles.fixed), (0x76, None));
        assert!(hardware(&named(&intel, "ref-cycles")).only_fixed);
        assert_eq!(hardware(&named(&amd, "ref-cycles")).select, 0x1_0000_0120);
        assert_eq!(named(&amd, "bus-cycles").what, What::Missing);
    }

    #[test]
    fn r1_16_modes_are_perfs() {
        let mut machine = machine(Vendor::Intel, 4, false);
        let modes = |machine: &Machine, word| {
            let event = named(machine, word);
            let code = hardware(&event);
            (code.user, code.kernel, event.name)
        };
        assert_eq!(modes(&machine, "cycles"), (true, true, "cycles".into()));
        assert_eq!(
            modes(&machine, "cycles:u"),
            (true, false, "cycles:u".into())
        );
        assert_eq!(modes(&machine, "r1c2:k"), (false, true, "r1c2:k".into()));
        assert!(modes(&machine, "r1c2:u:k").0);
        assert_eq!(
            modes(&machine, "cycles:uk"),
            (true, true, "cycles:uk".into())
        );
        machine.privileged = false;
        assert_eq!(modes(&machine, "cycles"), (true, false, "cycles:u".into()));
        assert!(machine.event(":u", Path::new("")).is_err());
        assert_eq!(named(&machine, "cycles").base(), "cycles");
    }

    #[test]
    fn r1_16_raw_codes_keep_what_is_not_a_mode() {
        let machine = machine(Vendor::Intel, 4, false);
        assert_eq!(
            hardware(&named(&machine, "r5301c2")).select,
            0x01_01c2 & !NOT_CODE
        );
        assert_eq!(hardware(&named(&machine, "r20c0")).fixed, None);
        assert_eq!(hardware(&named(&machine, "rc0")).fixed, Some(0));
    }

    #[test]
    fn r1_16_what_needs_a_second_register_is_missing() {
        let mut machine = machine(Vendor::Intel, 4, false);
        assert_eq!(hardware(&named(&machine, "r1b7")).select, 0x1b7);
        // Family 6, model 0x5e is Skylake.
        (machine.family, machine.model) = (6, 0x5e);
        for word in ["r1b7", "r1bb:u", "r5301cd", "r1c6"] {
            let event = named(&machine, word);
            assert_eq!(event.what, What::Missing, "{word}");
            let why = event.why.expect(word);
            assert!(why.contains("second register"), "{why}");
        }
        assert!(named(&machine, "r2cd").why.is_none());
    }

    #[test]
    fn r1_16_names_of_the_kernels_own_registers() {
        let with = machine(Vendor::Intel, 4, true);
        let without = machine(Vendor::Intel, 4, false);
        assert_eq!(named(&with, "cs").what, What::Soft(258));
        assert_eq!(named(&with, "faults:u").what, What::Soft(259));
        assert_eq!(named(&with, "task-clock").unit, "msec");
        assert_eq!(named(&without, "cs").what, What::Missing);
        assert_eq!(with.default_events().len(), 8);
        assert_eq!(without.default_events().len(), 4);
    }
}
