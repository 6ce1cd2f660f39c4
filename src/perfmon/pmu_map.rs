// SPDX-License-Identifier: GPL-2.0

//! The file `/proc/perfmon_map`: its creation, and its content.

#![expect(unsafe_code, reason = "calls of C, and the callback of a file")]

use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_void};
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use perfmon_rules::register_map::{kind, Register};

use crate::cpu_kinds::{self, CpuKind};
use crate::helpers;
use crate::pmu_description::printable_name;
use crate::pmus::PMUS;

/// Prints the content of `/proc/perfmon_map`: a line for each register of each PMU description.
fn show_pmus(seq: &SeqFile) {
    for pmu in &PMUS.lock().all {
        seq_print!(seq, "# {}\n", printable_name(pmu.name()));
        if pmu.first() == 0 {
            show_core_types(seq);
        }
        for (n, (name, r)) in pmu
            .named_pmcs()
            .enumerate()
            .filter(|(_, (_, r))| r.exists())
        {
            seq_print!(
                seq,
                "PMC{} {} address={:#x} reset={:#x} reserved={:#x}{}",
                usize::from(pmu.first()).wrapping_add(n),
                printable_name(name),
                r.address,
                r.reset,
                r.reserved | r.interrupt,
                scope_suffix(r)
            );
            show_cpus_and_end_line(seq, &|kind| pmu.first() != 0 || kind.has_pmc(n as u32));
        }
        for (n, (name, r)) in pmu
            .named_pmds()
            .enumerate()
            .filter(|(_, (_, r))| r.exists())
        {
            let n = usize::from(pmu.first()).wrapping_add(n);
            if !r.is(kind::VIRTUAL) {
                seq_print!(
                    seq,
                    "PMD{} {} address={:#x} width={} pmcs={:#x} rdpmc={:#x}{}",
                    n,
                    printable_name(name),
                    r.address,
                    r.width,
                    r.pmcs,
                    r.rdpmc,
                    scope_suffix(r)
                );
                show_cpus_and_end_line(seq, &|kind| kind.has_pmd(n as u32));
            } else {
                let what = match r.is(kind::COUNTER) {
                    true => "counter",
                    false => "value",
                };
                seq_print!(
                    seq,
                    "PMD{} {} virtual {} width={} pmcs={:#x}{}\n",
                    n,
                    printable_name(name),
                    what,
                    r.mask().count_ones(),
                    r.pmcs,
                    scope_suffix(r)
                );
            }
        }
    }
}

/// Prints the end of a register's line. If some CPUs do not have the register, first prints the
/// list of CPUs that have it.
fn show_cpus_and_end_line(seq: &SeqFile, has: &dyn Fn(&CpuKind) -> bool) {
    let known = || cpu_kinds::each_cpu_ever_online().filter(|(_, kind)| !kind.has_no_registers());
    if !known().all(|(_, kind)| has(&kind)) {
        show_cpu_list(
            seq,
            &mut known().filter(|(_, kind)| has(kind)).map(|(cpu, _)| cpu),
        );
    }
    seq_print!(seq, "\n");
}

/// Prints, for a hybrid processor, a line for each core type with the CPUs of that type.
fn show_core_types(seq: &SeqFile) {
    let mut last = None;
    while let Some(core) = cpu_kinds::each_cpu_ever_online()
        .map(|(_, kind)| kind.core)
        .filter(|core| *core != 0 && last.is_none_or(|last| *core > last))
        .min()
    {
        last = Some(core);
        seq_print!(seq, "CORE {:#x}", core);
        let of = |kind: &CpuKind| kind.core == core;
        show_cpu_list(
            seq,
            &mut cpu_kinds::each_cpu_ever_online()
                .filter(|(_, kind)| of(kind))
                .map(|(cpu, _)| cpu),
        );
        seq_print!(seq, "\n");
    }
}

/// Prints a list of CPUs, for example ` cpus=0,2-3`.
fn show_cpu_list(seq: &SeqFile, cpus: &mut dyn Iterator<Item = u32>) {
    let mut range: Option<(u32, u32)> = None;
    let mut before = " cpus=";
    let mut end = |(first, last): (u32, u32)| {
        match first == last {
            true => seq_print!(seq, "{}{}", before, first),
            false => seq_print!(seq, "{}{}-{}", before, first, last),
        }
        before = ",";
    };
    for cpu in cpus {
        range = match range {
            Some((first, last)) if last.wrapping_add(1) == cpu => Some((first, cpu)),
            Some(whole) => {
                end(whole);
                Some((cpu, cpu))
            }
            None => Some((cpu, cpu)),
        };
    }
    if let Some(whole) = range {
        end(whole);
    }
}

fn scope_suffix(register: Register) -> &'static str {
    match register.kind & (kind::SYSTEM | kind::THREAD) {
        kind::SYSTEM => " system-wide",
        kind::THREAD => " thread",
        _ => "",
    }
}

/// The file /proc/perfmon_map. Dropping this value removes the file.
pub(crate) struct MapFile(());

impl MapFile {
    /// Creates the file /proc/perfmon_map.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: `pfm_create_map_file()` is called once. `show_map` is a function of this module,
        // and drop removes the file.
        to_result(unsafe { helpers::pfm_create_map_file(Some(show_map)) })?;
        Ok(Self(()))
    }
}

impl Drop for MapFile {
    fn drop(&mut self) {
        // SAFETY: `create` has created the file. `pfm_remove_map_file()` waits for readers of the
        // file.
        unsafe { helpers::pfm_remove_map_file() }
    }
}

/// Shows /proc/perfmon_map.
///
/// # Safety
///
/// Only seq_file calls this function.
unsafe extern "C" fn show_map(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: seq_file passes its `struct seq_file`, which is valid during the call.
    show_pmus(unsafe { SeqFile::from_raw(seq) });
    0
}
