// SPDX-License-Identifier: GPL-2.0

//! Parser of `/proc/perfmon_map`, the list of the logical registers of this machine.

use std::io;

use rustix::io::Errno;

use crate::abi::FIRST_SOFT_REGISTER;
use crate::context::{Context, Scope};

/// Path of the register map.
const REGISTER_MAP_PATH: &str = "/proc/perfmon_map";

/// A PMC: a register that configures a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmcInfo {
    /// The logical number of the PMC.
    pub number: u16,
    /// The name of the PMC in the processor's manual.
    pub name: String,
    /// The address of the PMC's MSR.
    pub address: u64,
    /// The value of the PMC before the first write.
    pub reset: u64,
    /// Bits of the PMC that a write does not change.
    pub reserved: u64,
    /// `thread` or `system-wide` if only contexts of this kind may use the register; empty if both
    /// kinds may use it.
    pub allowed_context_scope: String,
    /// The CPUs that have the register, such as 0,2-3; empty if all CPUs have the register.
    pub cpus: String,
}

/// A PMD: a register that holds data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmdInfo {
    /// The logical number of the PMD.
    pub number: u16,
    /// The name of the PMD in the processor's manual.
    pub name: String,
    /// The address of the PMD's MSR; `None` if the PMD is not a hardware register.
    pub address: Option<u64>,
    /// Width of the counter in bits.
    pub width: u32,
    /// Bit n is set if the n-th PMC of the PMU description controls the PMD.
    pub pmc_mask: u64,
    /// The index of the counter for RDPMC.
    pub rdpmc_index: Option<u32>,
    /// True for a counter; false for a register that shows a current value.
    pub is_counter: bool,
    /// `thread` or `system-wide` if only contexts of this kind may use the register; empty if both
    /// kinds may use it.
    pub allowed_context_scope: String,
    /// The CPUs that have the register, such as 0,2-3; empty if all CPUs have the register.
    pub cpus: String,
}

/// The registers of one PMU description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmuDescription {
    /// The name of the PMU description.
    pub name: String,
    /// The PMCs (control registers).
    pub pmcs: Vec<PmcInfo>,
    /// The PMDs (data registers).
    pub pmds: Vec<PmdInfo>,
    /// The core types of a hybrid processor, such as Intel's 0x20 (Atom) and 0x40 (Core); empty for
    /// other processors.
    pub core_types: Vec<String>,
}

impl PmuDescription {
    /// Returns the PMC with this number.
    pub fn pmc(&self, number: u16) -> Option<&PmcInfo> {
        self.pmcs.iter().find(|r| r.number == number)
    }

    /// Returns the PMD with this number.
    pub fn pmd(&self, number: u16) -> Option<&PmdInfo> {
        self.pmds.iter().find(|r| r.number == number)
    }

    fn has_only_hardware_registers(&self) -> bool {
        let numbers = self.pmcs.iter().map(|r| r.number);
        numbers
            .chain(self.pmds.iter().map(|r| r.number))
            .all(|n| n < FIRST_SOFT_REGISTER)
    }
}

/// All registers of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterMap {
    /// The registers of the processor, if a PMU description for the processor is loaded.
    pub hardware: Option<PmuDescription>,
    /// The soft registers, which the kernel provides.
    pub soft: Vec<PmuDescription>,
}

#[expect(clippy::disallowed_methods, reason = "the module writes ASCII")]
fn read_register_map_text() -> io::Result<String> {
    std::fs::read_to_string(REGISTER_MAP_PATH)
}

/// Returns true if a file could not be opened because too many files are open.
fn has_too_many_open_files(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

impl RegisterMap {
    /// Reads the current register map. If the map is empty, makes the kernel load the PMU
    /// descriptions, and reads the map again. The error is `NotFound` if the module is not loaded.
    pub fn load_pmus_and_read() -> io::Result<Self> {
        let text = read_register_map_text()?;
        if !text.is_empty() {
            return Ok(Self::parse(&text));
        }
        // The kernel loads the PMU descriptions when the first context is created, even if the
        // creation fails later.
        match Context::create(Scope::Thread) {
            // If too many files are open, `Context::create` fails before the kernel loads the PMU
            // descriptions.
            Err(e) if has_too_many_open_files(&e) => return Err(e),
            _ => {}
        }
        Ok(Self::parse(&read_register_map_text()?))
    }

    /// Removes each hardware register if `is_common` returns false for the register's list of CPUs.
    /// The list is empty for a register that all CPUs have.
    pub fn retain_hardware_registers(mut self, is_common: impl Fn(&str) -> bool) -> Self {
        if let Some(hardware) = &mut self.hardware {
            hardware.pmcs.retain(|r| is_common(&r.cpus));
            hardware.pmds.retain(|r| is_common(&r.cpus));
        }
        self
    }

    /// Returns the PMC with this number.
    pub fn pmc(&self, number: u16) -> Option<&PmcInfo> {
        self.descriptions().find_map(|d| d.pmc(number))
    }

    /// Returns the PMD with this number.
    pub fn pmd(&self, number: u16) -> Option<&PmdInfo> {
        self.descriptions().find_map(|d| d.pmd(number))
    }

    /// Returns all PMU descriptions: first the description of the processor's PMU, if it is loaded,
    /// and then the descriptions of the soft registers.
    pub fn descriptions(&self) -> impl Iterator<Item = &PmuDescription> {
        self.hardware.iter().chain(&self.soft)
    }

    /// Parses the text of `/proc/perfmon_map`. Ignores unknown lines and words, which a later
    /// version of the kernel module may print.
    pub fn parse(text: &str) -> Self {
        let mut all: Vec<PmuDescription> = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# ") {
                all.push(PmuDescription {
                    name: name.trim().to_owned(),
                    ..PmuDescription::default()
                });
            } else if let Some(description) = all.last_mut() {
                parse_register(line, description);
            }
        }
        let mut map = Self::default();
        for description in all {
            if description.has_only_hardware_registers() {
                map.hardware = Some(description);
            } else {
                map.soft.push(description);
            }
        }
        map
    }
}

fn parse_register(line: &str, description: &mut PmuDescription) -> Option<()> {
    let mut words = line.split_whitespace();
    let number = words.next()?;
    let name = words.next()?.to_owned();
    let words: Vec<&str> = words.collect();
    let value = |key: &str| {
        let text = words
            .iter()
            .find_map(|w| w.strip_prefix(key)?.strip_prefix('='))?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let allowed_context_scope = words
        .iter()
        .find(|w| matches!(**w, "thread" | "system-wide"))
        .map_or(String::new(), |w| (*w).to_owned());
    let cpus = words.iter().find_map(|w| w.strip_prefix("cpus="));
    let cpus = cpus.unwrap_or_default().to_owned();
    if let Some(number) = number.strip_prefix("PMC") {
        description.pmcs.push(PmcInfo {
            number: number.parse().ok()?,
            name,
            address: value("address").unwrap_or_default(),
            reset: value("reset").unwrap_or_default(),
            reserved: value("reserved").unwrap_or_default(),
            allowed_context_scope,
            cpus,
        });
    } else if number == "CORE" {
        description.core_types.push(name);
    } else if let Some(number) = number.strip_prefix("PMD") {
        description.pmds.push(PmdInfo {
            number: number.parse().ok()?,
            name,
            address: value("address").filter(|a| *a != 0),
            width: value("width")
                .and_then(|w| w.try_into().ok())
                .unwrap_or_default(),
            pmc_mask: value("pmcs").unwrap_or_default(),
            rdpmc_index: value("rdpmc").and_then(|n| n.try_into().ok()),
            is_counter: !words.contains(&"value"),
            allowed_context_scope,
            cpus,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL_MAP_TEXT: &str = "\
# intel-arch
PMC0 IA32_PERFEVTSEL0 address=0x186 reset=0x0 reserved=0xffffffff00180000
PMC16 IA32_FIXED_CTR_CTRL address=0x38d reset=0x0 reserved=0xfffffffffffff888
PMD0 IA32_PMC0 address=0xc1 width=48 pmcs=0x1 rdpmc=0x0
PMD18 IA32_FIXED_CTR2 address=0x30b width=48 pmcs=0x10000 rdpmc=0x40000002 new=1
# soft
PMC272 INSTANCE0 address=0x0 reset=0x0 reserved=0x0
PMD257 TASK_CLOCK virtual counter width=64 pmcs=0x0 thread
PMD264 PID virtual value width=64 pmcs=0x0
not a register
";

    #[test]
    fn r1_1_register_map_text_is_parsed() {
        let map = RegisterMap::parse(INTEL_MAP_TEXT);
        let hardware = map.hardware.as_ref().expect("a PMU");
        assert_eq!(hardware.name, "intel-arch");
        assert_eq!(hardware.pmcs.len(), 2);
        assert_eq!(
            hardware.pmc(16).map(|r| r.reserved),
            Some(0xffff_ffff_ffff_f888)
        );
        let fixed = hardware.pmd(18).expect("PMD18");
        assert_eq!((fixed.width, fixed.pmc_mask), (48, 1 << 16));
        assert_eq!(fixed.rdpmc_index, Some(0x4000_0002));
        assert_eq!(map.soft.len(), 1);
        assert_eq!(map.soft[0].pmds.len(), 2);
        let clock = map.pmd(257).expect("PMD257");
        assert!(clock.is_counter && clock.address.is_none());
        assert_eq!(clock.allowed_context_scope, "thread");
        assert!(map.pmd(264).is_some_and(|r| !r.is_counter));
        assert!(map.pmc(272).is_some() && map.pmc(273).is_none());
    }

    #[test]
    fn r1_4_registers_that_some_cpus_lack_can_be_removed() {
        let map = RegisterMap::parse(
            "\
# intel-arch
CORE 0x20 cpus=1
CORE 0x40 cpus=0,2-3
PMC0 A address=0x186 reset=0x0 reserved=0x0
PMC1 B address=0x187 reset=0x0 reserved=0x0 cpus=0,2-3
PMD0 C address=0xc1 width=48 pmcs=0x1 rdpmc=0x0
PMD1 D address=0xc2 width=48 pmcs=0x2 rdpmc=0x1 cpus=0,2-3
",
        );
        let hardware = map.hardware.as_ref().expect("a PMU");
        assert_eq!(hardware.core_types, ["0x20", "0x40"]);
        assert_eq!(map.pmc(1).map(|r| r.cpus.as_str()), Some("0,2-3"));
        assert_eq!(map.pmd(1).map(|r| r.cpus.as_str()), Some("0,2-3"));
        let common = map
            .clone()
            .retain_hardware_registers(|cpus| cpus.is_empty() || cpus == "0,2-3");
        assert!(common.pmc(1).is_some() && common.pmd(1).is_some());
        let map = map.retain_hardware_registers(str::is_empty);
        assert!(map.pmc(0).is_some() && map.pmd(0).is_some());
        assert!(map.pmc(1).is_none() && map.pmd(1).is_none());
    }

    #[test]
    fn r1_1_empty_register_map_has_no_hardware_pmu() {
        assert_eq!(RegisterMap::parse(""), RegisterMap::default());
        let nameless = RegisterMap {
            hardware: Some(PmuDescription::default()),
            soft: Vec::new(),
        };
        assert_eq!(RegisterMap::parse("PMC0 x\n# \nPMD PMDx"), nameless);
    }
}
