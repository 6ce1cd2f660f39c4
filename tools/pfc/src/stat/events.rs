// SPDX-License-Identifier: GPL-2.0

//! Resolves event names: perf's generic names, soft registers, counter pages, raw codes and
//! libpfm4's names. The kernel module knows registers and codes only, so pfc resolves the names.

use std::path::Path;

use perfcounters::{Counters, InstanceState};
use perfmon::RegisterMap;

use super::architectural_events::ArchitecturalEvents;
use super::event_code::{
    add_modes_of_libpfm_code, is_libpfm_code_plausible, new_raw_event_code, resolve_generic_name,
    EventCode, Vendor,
};
use super::parse_cpu_list;
use crate::error::Failure;
use crate::pmu::read_register_map_or_empty;
use crate::units::ScaledUnit;

/// The properties of the machine that determine the meaning of event names.
pub struct MachineProperties {
    pub register_map: RegisterMap,
    pub vendor: Option<Vendor>,
    /// The CPU family from `/proc/cpuinfo`, as a number; 0 if `/proc/cpuinfo` does not name a
    /// family.
    pub family: u32,
    pub model: u32,
    /// Intel's architectural events that the processor can count.
    pub architectural_events: ArchitecturalEvents,
    /// True if this process has CAP_PERFMON or CAP_SYS_ADMIN, and may therefore count the kernel
    /// and other users' threads.
    pub is_privileged: bool,
    /// True if CPUs are counted instead of threads.
    pub is_system_wide: bool,
}

/// The source of an event's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSource {
    Hardware(EventCode),
    /// A soft register: a PMD (data register) that counts software events of the kernel.
    Soft(u16),
    /// An instance of the counter pages, by its number.
    Instance(u32),
    /// The event is not available on this machine.
    Missing,
}

/// An event that the user named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name of the event in the output.
    pub name: String,
    pub source: EventSource,
    pub unit: String,
    /// The factor by which a count is multiplied to get the value in `unit`.
    pub scale: f64,
    /// The reason why the event is not available, if the reason is known.
    pub missing_reason: Option<String>,
}

impl Event {
    fn new(name: &str, source: EventSource) -> Self {
        Self {
            name: name.to_owned(),
            source,
            unit: String::new(),
            scale: 1.0,
            missing_reason: None,
        }
    }

    /// Returns the name of the event without modes, such as `:u`.
    pub fn name_without_modes(&self) -> &str {
        split_mode_suffixes(&self.name).0
    }
}

/// Converts libpfm4's spellings of perf's names, such as `INSTRUCTIONS` and `perf::instructions`,
/// to perf's spelling. Returns `None` if the name is not one of libpfm4's spellings of perf's
/// names.
fn normalize_perf_name(name: &str) -> Option<String> {
    let stripped = name.strip_prefix("perf::");
    let is_upper_case = name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    (stripped.is_some() || is_upper_case).then(|| stripped.unwrap_or(name).to_ascii_lowercase())
}

/// Returns the number of the soft register for one of perf's software events.
fn find_soft_register(name: &str, is_system_wide: bool) -> Option<u16> {
    Some(match name {
        "cpu-clock" => perfmon::CPU_CLOCK_PMD,
        // The task clock exists only for tasks. If CPUs are counted, the CPU clock is counted in
        // its place.
        "task-clock" if is_system_wide => perfmon::CPU_CLOCK_PMD,
        "task-clock" => perfmon::TASK_CLOCK_PMD,
        "context-switches" | "cs" => perfmon::CONTEXT_SWITCHES_PMD,
        "page-faults" | "faults" => perfmon::PAGE_FAULTS_PMD,
        "cpu-migrations" | "migrations" => perfmon::MIGRATIONS_PMD,
        "major-faults" => perfmon::MAJOR_FAULTS_PMD,
        _ => return None,
    })
}

/// Splits a word into the name and the modes at its end, as (user, kernel). The modes are `None` if
/// the word has no modes.
fn split_mode_suffixes(word: &str) -> (&str, Option<(bool, bool)>) {
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

impl MachineProperties {
    /// Reads the properties of this machine. `counted` has the CPUs that are counted. It is `None`
    /// if threads are counted, because threads can run on any CPU. The result has only those
    /// registers that exist on all counted CPUs or, if threads are counted, on all CPUs of the
    /// machine.
    pub fn read(counted: Option<&[u32]>) -> Result<Self, Failure> {
        let is_on_all = |list: &str| match (counted, parse_cpu_list(list)) {
            (Some(counted), Some(there)) => counted.iter().all(|cpu| there.contains(cpu)),
            _ => list.is_empty(),
        };
        let register_map = read_register_map_or_empty()?.retain_hardware_registers(is_on_all);
        let vendor = register_map.hardware.as_ref().and_then(|d| match &d.name {
            name if name.starts_with("intel") => Some(Vendor::Intel),
            name if name.starts_with("amd") => Some(Vendor::Amd),
            _ => None,
        });
        let cpuinfo =
            crate::text_file::read_text_escaping_non_utf8("/proc/cpuinfo").unwrap_or_default();
        let number = |key: &str| {
            let value = |line: &str| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().parse().ok())?
            };
            cpuinfo.lines().find_map(value).unwrap_or(0)
        };
        Ok(Self {
            register_map,
            vendor,
            family: number("cpu family"),
            model: number("model"),
            architectural_events: match vendor {
                Some(Vendor::Intel) => ArchitecturalEvents::read(),
                _ => ArchitecturalEvents::ALL,
            },
            is_privileged: has_perfmon_capability(),
            is_system_wide: counted.is_some(),
        })
    }

    /// Returns true if the word names a soft register or an instance of the counter pages, even if
    /// the register or instance is not available.
    pub fn is_software_event_name(&self, word: &str) -> bool {
        let name = split_mode_suffixes(word).0;
        let normalized = normalize_perf_name(name);
        let name = normalized.as_deref().unwrap_or(name);
        word.starts_with("counter:") || find_soft_register(name, self.is_system_wide).is_some()
    }

    fn has_soft_register(&self, number: u16) -> bool {
        let other_scope = match self.is_system_wide {
            true => "thread",
            false => "system-wide",
        };
        self.register_map
            .pmd(number)
            .is_some_and(|r| r.is_counter && r.allowed_context_scope != other_scope)
    }

    /// Returns the events that perf stat counts by default, without events that are not available.
    /// If the machine has no PMU, the hardware events are included in the result, and are shown as
    /// not supported.
    pub fn default_events(&self) -> Vec<Event> {
        let names = [
            if self.is_system_wide {
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
            .filter_map(|name| self.resolve_event_name(name, Path::new("")).ok())
            .filter(|event| {
                let no_pmu = self.vendor.is_none() && !self.is_software_event_name(&event.name);
                event.source != EventSource::Missing || no_pmu
            })
            .collect()
    }

    /// Resolves an event name of the option `-e`. `device` is the device of the counter pages.
    pub fn resolve_event_name(&self, word: &str, device: &Path) -> Result<Event, Failure> {
        if let Some(name) = word.strip_prefix("counter:") {
            return self.resolve_instance(word, name, device);
        }
        let (name, mut requested) = split_mode_suffixes(word);
        if name.is_empty() {
            return Err(Failure::Refused(format!(
                "no event name in '{word}'; see pfc stat --help"
            )));
        }
        let normalized = normalize_perf_name(name);
        let name = normalized.as_deref().unwrap_or(name);
        if let Some(number) = find_soft_register(name, self.is_system_wide) {
            let is_one_mode = requested.is_some_and(|modes| modes != (true, true));
            let source = match self.has_soft_register(number) && !is_one_mode {
                true => EventSource::Soft(number),
                false => EventSource::Missing,
            };
            let mut event = Event::new(word, source);
            event.missing_reason = is_one_mode.then(|| {
                "the kernel counts it in both modes together; leave out :u or :k".to_owned()
            });
            if matches!(number, perfmon::CPU_CLOCK_PMD | perfmon::TASK_CLOCK_PMD) {
                (event.unit, event.scale) = ("msec".to_owned(), 1e-6);
            }
            return Ok(event);
        }
        let resolved =
            match resolve_generic_name(name, self.vendor, self.family, &self.register_map) {
                Some(Some(code)) => self.resolve_architectural_event(code),
                Some(None) => Err(self.explain_missing_event("")),
                None => self.resolve_raw_or_libpfm_name(word, name, &mut requested)?,
            };
        let resolved = resolved.and_then(|code| self.add_counter_mask(code));
        Ok(self.make_event_with_modes(word, resolved, requested))
    }

    /// Returns the reason why an event name was not found: the processor has no such event, or the
    /// machine has no PMU.
    fn explain_missing_event(&self, hint: &str) -> String {
        match self.vendor {
            Some(_) => format!("no such event on this processor{hint}"),
            None => "this machine has no usable PMU".to_owned(),
        }
    }

    /// Returns the code with which perf counts one of its generic events on this processor. Returns
    /// an error with the reason if CPUID says that the processor cannot count the event.
    fn resolve_architectural_event(&self, code: EventCode) -> Result<EventCode, String> {
        let Some(vendor @ Vendor::Intel) = self.vendor else {
            return Ok(code);
        };
        let events = self.architectural_events;
        let select = events.find_countable_code(self.family, self.model, code.select);
        select
            .map(|select| new_raw_event_code(select, vendor))
            .ok_or_else(|| "CPUID says that this processor cannot count it".to_owned())
    }

    /// Resolves a raw code or one of libpfm4's names. Adds the modes inside a name of libpfm4 to the
    /// modes `requested`. An error of the inner `Result` is the reason why the event is not
    /// available. An error of the outer `Result` ends `pfc`.
    fn resolve_raw_or_libpfm_name(
        &self,
        word: &str,
        name: &str,
        requested: &mut Option<(bool, bool)>,
    ) -> Result<Result<EventCode, String>, Failure> {
        let Some(vendor) = self.vendor else {
            return Ok(Err(self.explain_missing_event("")));
        };
        let hardware = self.register_map.hardware.as_ref();
        let nr_core_types = hardware.map_or(0, |d| d.core_types.len());
        if nr_core_types > 1 {
            return Ok(Err(
                "the code may select another event on the other core type".to_owned(),
            ));
        }
        let hex = name.strip_prefix('r').filter(|h| !h.is_empty());
        if let Some(Ok(raw)) = hex.map(|h| u64::from_str_radix(h, 16)) {
            return Ok(Ok(new_raw_event_code(raw, vendor)));
        }
        let event = match libpfm::encode_event(name) {
            Ok(event) => event,
            Err(error) if error.is_not_found() => {
                let hint = "; pfc pmu lists the libpfm4 tables that are searched";
                return Ok(Err(self.explain_missing_event(hint)));
            }
            Err(error) => return Err(Failure::Refused(format!("'{word}': libpfm4: {error}"))),
        };
        let code = new_raw_event_code(event.select, vendor);
        if event.kind == libpfm::EventKind::Core {
            *requested = add_modes_of_libpfm_code(event.select, *requested);
            if *requested == Some((false, false)) {
                return Err(Failure::Refused(format!(
                    "no mode is selected in '{word}'; add :u or :k"
                )));
            }
        }
        let result = match (event.kind, event.needs_other_registers) {
            (libpfm::EventKind::Core, false) if !is_libpfm_code_plausible(name, code) => {
                Err(format!(
                    "libpfm4's code for it, {:#x}, is that of another event; \
                     use the raw code from the processor's manual",
                    code.select
                ))
            }
            (libpfm::EventKind::Core, false) => Ok(code),
            // An event that needs a second register is not supported. If add_counter_mask() finds
            // the second register in its tables, the error names the second register.
            (libpfm::EventKind::Core, true) => self.add_counter_mask(code).and(Err(
                "it needs a second register, which is not programmed".to_owned(),
            )),
            (libpfm::EventKind::System, _) => {
                Err("it is an event of perf, not of this processor".to_owned())
            }
            (libpfm::EventKind::Other, _) => {
                Err("the cores of this processor do not count it".to_owned())
            }
        };
        Ok(result)
    }

    /// Sets [`EventCode::general_counter_mask`], the mask of the counters that can count the event.
    /// Returns an error with the reason if no counter can count the event by itself.
    fn add_counter_mask(&self, code: EventCode) -> Result<EventCode, String> {
        use perfmon::constraints::{
            amd_counter_mask, amd_extra_resource, intel_counter_mask, intel_extra_resource,
            ExtraResource,
        };
        let (extra_resource, general_counter_mask) = match self.vendor {
            Some(Vendor::Intel) => (
                intel_extra_resource(self.family, self.model, code.select),
                intel_counter_mask(self.family, self.model, code.select),
            ),
            Some(Vendor::Amd) => (
                amd_extra_resource(self.family, code.select),
                amd_counter_mask(self.family, code.select),
            ),
            None => (None, u64::MAX),
        };
        match extra_resource {
            Some(ExtraResource::Register(name)) => Err(format!(
                "it needs a second register, {name}, which is not programmed"
            )),
            Some(ExtraResource::Merge) => {
                Err("it needs two counters merged into one, which is not programmed".to_owned())
            }
            None if code.is_fixed_only && code.fixed_counter.is_none() => Err(
                "no fixed counter has its code, and general counters do not count event number 0"
                    .to_owned(),
            ),
            None if general_counter_mask == 0 => {
                Err("no counter of a core can count it".to_owned())
            }
            None => Ok(EventCode {
                general_counter_mask,
                ..code
            }),
        }
    }

    /// Makes an event with the modes in which the event is counted. As in perf, an event without
    /// modes counts user and kernel mode. If the user may not count the kernel, an event without
    /// modes counts user mode only, and `:u` is appended to its name.
    fn make_event_with_modes(
        &self,
        word: &str,
        resolved: Result<EventCode, String>,
        requested: Option<(bool, bool)>,
    ) -> Event {
        let (user, kernel) = requested.unwrap_or((true, self.is_privileged));
        let name = match requested {
            None if !self.is_privileged => format!("{word}:u"),
            _ => word.to_owned(),
        };
        match resolved {
            Ok(code) => {
                let code = EventCode {
                    counts_user: user,
                    counts_kernel: kernel,
                    ..code
                };
                Event::new(&name, EventSource::Hardware(code))
            }
            Err(reason) => Event {
                missing_reason: Some(reason),
                ..Event::new(&name, EventSource::Missing)
            },
        }
    }

    fn resolve_instance(&self, word: &str, name: &str, device: &Path) -> Result<Event, Failure> {
        let catalogue = Counters::open_path(device)?.catalogue()?;
        let instance = catalogue
            .find(name)
            .filter(|i| i.state == InstanceState::Live)
            .ok_or_else(|| Failure::no_matching_instance(name))?;
        let source = match self.has_soft_register(perfmon::FIRST_INSTANCE_REGISTER) {
            true => EventSource::Instance(instance.number),
            false => EventSource::Missing,
        };
        let raw_unit = ScaledUnit::of_instance_descriptor(instance).raw_unit_name();
        Ok(Event {
            unit: if matches!(raw_unit.as_str(), "-" | "events") {
                String::new()
            } else {
                raw_unit
            },
            ..Event::new(word, source)
        })
    }
}

/// Returns true if this process has CAP_PERFMON or CAP_SYS_ADMIN.
pub fn has_perfmon_capability() -> bool {
    use rustix::thread::{capabilities, CapabilitySet};
    capabilities(None).is_ok_and(|c| {
        c.effective
            .intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::event_code::NON_EVENT_BITS;
    use super::*;

    /// Makes a machine with `general` general counters and, for Intel, three fixed counters.
    pub fn make_test_machine(vendor: Vendor, general: u16, soft: bool) -> MachineProperties {
        let mut text = String::new();
        text.push_str(match vendor {
            Vendor::Intel => "# intel-arch\n",
            Vendor::Amd => "# amd-v2\n",
        });
        for n in 0..general {
            let mask = 1 << n;
            text += &format!(
                "PMC{n} S address=0x1 reset=0x0 reserved=0xffffff0000180000\n\
                 PMD{n} C address=0x1 width=48 pmcs={mask:#x} rdpmc=0\n"
            );
        }
        if vendor == Vendor::Intel {
            text.push_str("PMC16 F address=0x38d reset=0x0 reserved=0xfffffffffffff888\n");
            for n in 16..19 {
                text += &format!("PMD{n} C address=0x1 width=48 pmcs=0x10000 rdpmc=0\n");
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
        MachineProperties {
            register_map: RegisterMap::parse(&text),
            vendor: Some(vendor),
            family: 0x17,
            model: 0,
            architectural_events: ArchitecturalEvents::ALL,
            is_privileged: true,
            is_system_wide: false,
        }
    }

    fn resolve(machine: &MachineProperties, word: &str) -> Event {
        machine.resolve_event_name(word, Path::new("")).expect(word)
    }

    fn code_of(event: &Event) -> EventCode {
        match event.source {
            EventSource::Hardware(code) => code,
            _ => panic!("{event:?}"),
        }
    }

    #[test]
    fn r1_16_generic_names_resolve_to_vendor_codes() {
        let intel = make_test_machine(Vendor::Intel, 4, false);
        let amd = make_test_machine(Vendor::Amd, 6, false);
        let cycles = code_of(&resolve(&intel, "cycles"));
        assert_eq!((cycles.select, cycles.fixed_counter), (0x3c, Some(1)));
        let cycles = code_of(&resolve(&amd, "cpu-cycles"));
        assert_eq!((cycles.select, cycles.fixed_counter), (0x76, None));
        assert!(code_of(&resolve(&intel, "ref-cycles")).is_fixed_only);
        assert_eq!(code_of(&resolve(&amd, "ref-cycles")).select, 0x1_0000_0120);
        assert_eq!(resolve(&amd, "bus-cycles").source, EventSource::Missing);
    }

    #[test]
    fn r1_16_mode_suffixes_have_perf_meaning() {
        let mut machine = make_test_machine(Vendor::Intel, 4, false);
        let modes = |machine: &MachineProperties, word| {
            let event = resolve(machine, word);
            let code = code_of(&event);
            (code.counts_user, code.counts_kernel, event.name)
        };
        for (word, user, kernel) in [
            ("cycles", true, true),
            ("cycles:u", true, false),
            ("r1c2:k", false, true),
            ("cycles:uk", true, true),
        ] {
            assert_eq!(modes(&machine, word), (user, kernel, word.into()));
        }
        assert!(modes(&machine, "r1c2:u:k").0);
        machine.is_privileged = false;
        assert_eq!(modes(&machine, "cycles"), (true, false, "cycles:u".into()));
        assert!(machine.resolve_event_name(":u", Path::new("")).is_err());
        assert_eq!(resolve(&machine, "cycles").name_without_modes(), "cycles");
    }

    #[test]
    fn r1_16_raw_codes_keep_non_mode_bits() {
        let machine = make_test_machine(Vendor::Intel, 4, false);
        let select = code_of(&resolve(&machine, "r5301c2")).select;
        assert_eq!(select, 0x01_01c2 & !NON_EVENT_BITS);
        assert_eq!(code_of(&resolve(&machine, "r20c0")).fixed_counter, None);
        assert_eq!(code_of(&resolve(&machine, "rc0")).fixed_counter, Some(0));
    }

    #[test]
    fn r1_16_raw_codes_of_fixed_counters_are_resolved() {
        let machine = make_test_machine(Vendor::Intel, 4, false);
        let code = code_of(&resolve(&machine, "r100"));
        assert_eq!((code.fixed_counter, code.is_fixed_only), (Some(0), true));
        let code = code_of(&resolve(&machine, "r200:u"));
        assert_eq!((code.fixed_counter, code.is_fixed_only), (Some(1), true));
        for word in ["r0", "r500", "r8000", "r1000100"] {
            let event = resolve(&machine, word);
            assert_eq!(event.source, EventSource::Missing, "{word}");
            let reason = event.missing_reason.expect(word);
            assert!(reason.contains("event number 0"), "{reason}");
        }
        let machine = make_test_machine(Vendor::Amd, 6, false);
        assert_eq!(code_of(&resolve(&machine, "r100")).select, 0x100);
    }

    #[test]
    fn r1_16_event_with_second_register_is_missing() {
        let mut machine = make_test_machine(Vendor::Intel, 4, false);
        assert_eq!(code_of(&resolve(&machine, "r1b7")).select, 0x1b7);
        // Family 6, model 0x5e is Skylake.
        (machine.family, machine.model) = (6, 0x5e);
        for word in ["r1b7", "r1bb:u", "r5301cd", "r1c6"] {
            let event = resolve(&machine, word);
            assert_eq!(event.source, EventSource::Missing, "{word}");
            let why = event.missing_reason.expect(word);
            assert!(why.contains("second register"), "{why}");
        }
        assert!(resolve(&machine, "r2cd").missing_reason.is_none());
    }

    #[test]
    fn r1_16_software_event_names_resolve_to_registers() {
        let with = make_test_machine(Vendor::Intel, 4, true);
        let without = make_test_machine(Vendor::Intel, 4, false);
        assert_eq!(resolve(&with, "cs").source, EventSource::Soft(258));
        assert_eq!(resolve(&with, "faults").source, EventSource::Soft(259));
        assert_eq!(resolve(&with, "faults:uk").source, EventSource::Soft(259));
        assert_eq!(resolve(&with, "task-clock").unit, "msec");
        assert_eq!(resolve(&without, "cs").source, EventSource::Missing);
        assert_eq!(with.default_events().len(), 8);
        assert_eq!(without.default_events().len(), 4);
        assert!(with.is_software_event_name("PAGE-FAULTS:u"));
    }

    #[test]
    fn r1_16_software_events_of_one_mode_are_missing() {
        let mut machine = make_test_machine(Vendor::Intel, 4, true);
        for is_privileged in [true, false] {
            machine.is_privileged = is_privileged;
            for word in ["page-faults:u", "page-faults:k", "task-clock:u", "CS:k"] {
                let event = resolve(&machine, word);
                assert_eq!(event.source, EventSource::Missing, "{word}");
                let reason = event.missing_reason.expect(word);
                assert!(reason.contains("both modes"), "{reason}");
            }
            let event = resolve(&machine, "page-faults");
            assert_eq!(event.source, EventSource::Soft(259));
            assert_eq!(event.name, "page-faults");
        }
    }
}
