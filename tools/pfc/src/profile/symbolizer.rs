// SPDX-License-Identifier: GPL-2.0

//! Finds the functions of addresses, in the files of a process, in perf maps, in the vDSO and in
//! the running kernel.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use super::address_space::{AddressSpace, Processes};
use super::demangle::{demangle, MAX_DEMANGLED_NAME_BYTES};
use super::files::{FileIdentity, ERROR_ANOTHER_BUILD};
use super::kernel::{self, KernelFunction, KernelSymbols};
use super::perf_map::PerfMap;
use super::symbols::{Symbols, PLT_SUFFIX, UNKNOWN_NAME};
use super::Frame;
use crate::kernel_identity::KernelIdentity;
use crate::record::read_loaded_modules;

/// The name of the vDSO's mapping, and prefixes of the names of mappings into which a just-in-time
/// compiler may write code: anonymous memory, and files that exist only in memory.
const VDSO_MAPPING: &str = "[vdso]";
const JIT_MAPPING_PREFIXES: [&str; 6] = [
    "//anon",
    "[",
    "/memfd:",
    "/dev/zero",
    "/anon_hugepage",
    "/SYSV",
];

/// Returns true if a just-in-time compiler may have written the code of a mapping.
fn is_jit_mapping(object: &str) -> bool {
    object != VDSO_MAPPING && JIT_MAPPING_PREFIXES.iter().any(|p| object.starts_with(p))
}

/// The maximum number of files whose symbols a live display keeps from one table to the next.
const MAX_KEPT_SYMBOL_FILES: usize = 1024;

/// The symbols for all samples: of mapped files, perf maps, the vDSO and the running kernel.
#[derive(Default)]
pub struct Symbolizer {
    symbols_by_file: HashMap<(Rc<OsStr>, FileIdentity), Result<Symbols, &'static str>>,
    /// The file lookups that were tried, each with the process ID, and the path and the identity of
    /// the file. No lookup is repeated.
    tried_file_lookups: HashSet<(i32, Rc<OsStr>, FileIdentity)>,
    /// The paths of files whose symbols were not used because the files were changed after they
    /// were mapped.
    files_changed_after_mapping: BTreeSet<Rc<OsStr>>,
    /// The list of build IDs in the file's header, by path.
    pub recorded_build_ids: HashMap<OsString, Vec<u8>>,
    perf_maps: HashMap<i32, PerfMap>,
    /// The time at which each process started its program, by an exec or a fork, if the records
    /// have that time.
    program_starts: HashMap<i32, SystemTime>,
    vdso_symbols: Option<Option<Symbols>>,
    demangled_names: HashMap<Rc<str>, Rc<str>>,
    /// The path of each mapped file in the form that frames show. All frames of a file share one
    /// copy of the path.
    displayed_name_by_object: HashMap<Rc<OsStr>, Rc<str>>,
    /// True if frames of inlined functions are added to stacks.
    pub finds_inlined: bool,
    /// The symbols of the running kernel. `Some(None)` means that kernel addresses are hidden.
    pub kernel_symbols: Option<Option<KernelSymbols>>,
    /// The modules that were loaded when `kernel_symbols` was read: the name in brackets, the
    /// address and the size of each module.
    pub modules_at_kallsyms_read: Vec<(String, u64, u64)>,
    /// The first address of the kernel's text when the file was written.
    pub recorded_kernel_text_start: Option<u64>,
    /// The kernel on which the file was written, and the running kernel.
    pub recorded_kernel: KernelIdentity,
    pub running_kernel: OnceCell<KernelIdentity>,
}

impl Symbolizer {
    /// Drops the perf maps and file lookups of the ended processes `pids`, and all cached names.
    /// Drops the symbols of all files if there are more than [`MAX_KEPT_SYMBOL_FILES`] files.
    pub fn drop_processes_and_caches(&mut self, pids: &HashSet<i32>) {
        self.demangled_names.clear();
        self.displayed_name_by_object.clear();
        self.files_changed_after_mapping.clear();
        self.perf_maps.retain(|pid, _| !pids.contains(pid));
        self.program_starts.retain(|pid, _| !pids.contains(pid));
        self.tried_file_lookups
            .retain(|(pid, _, _)| !pids.contains(pid));
        if self.symbols_by_file.len() > MAX_KEPT_SYMBOL_FILES {
            self.symbols_by_file.clear();
            self.tried_file_lookups.clear();
        }
    }

    /// Drops perf maps and symbols of files that have changed and, if modules were loaded or
    /// unloaded, the symbols of the kernel and the mappings of modules. The symbols are read again
    /// for the next sample that needs them.
    pub fn drop_changed_symbols(&mut self, kernel_mappings: &mut AddressSpace) {
        self.perf_maps
            .retain(|pid, known| !known.may_have_changed(*pid));
        let all = self.symbols_by_file.iter();
        let changed = all.filter(|(_, symbols)| symbols.as_ref().is_ok_and(Symbols::has_changed));
        let changed: HashSet<_> = changed.map(|(file, _)| file.clone()).collect();
        self.symbols_by_file
            .retain(|file, _| !changed.contains(file));
        self.tried_file_lookups.retain(|(_, path, identity)| {
            changed.is_empty() || !changed.contains(&(path.clone(), identity.clone()))
        });
        if self.kernel_symbols.is_some() && self.modules_at_kallsyms_read != read_loaded_modules() {
            self.kernel_symbols = None;
            // After the mappings of modules are dropped, the module of an address is taken from the
            // symbols of the kernel.
            *kernel_mappings = AddressSpace::default();
        }
    }

    /// Records the time at which a process has started a program, and drops the perf map of the
    /// earlier program or process with the same ID.
    pub fn replace_program(&mut self, pid: i32, time: Option<SystemTime>) {
        self.perf_maps.remove(&pid);
        match time {
            Some(time) => self.program_starts.insert(pid, time),
            None => self.program_starts.remove(&pid),
        };
    }

    #[cfg(test)]
    pub fn nr_file_lookups(&self) -> usize {
        self.tried_file_lookups
            .len()
            .max(self.symbols_by_file.len())
    }

    pub fn frame_without_function(address: u64, is_kernel: bool, object: Rc<str>) -> Frame {
        Frame {
            address,
            is_kernel,
            object,
            symbol: UNKNOWN_NAME.into(),
            offset: 0,
            is_inlined: false,
        }
    }

    fn running_kernel(&self) -> &KernelIdentity {
        self.running_kernel
            .get_or_init(KernelIdentity::of_running_kernel)
    }

    fn recorded_kernel_may_be_running(&self) -> bool {
        self.recorded_kernel
            .may_be_same_build(self.running_kernel())
    }

    /// Returns true if the file is known to be of another machine or of another boot, so that its
    /// process IDs are those of other processes. Files of perf do not have the boot ID.
    fn was_recorded_in_another_boot(&self) -> bool {
        let (recorded, running) = (&self.recorded_kernel, self.running_kernel());
        let has_boot_id = !recorded.boot_id.is_empty();
        !recorded.may_be_same_build(running) || has_boot_id && !recorded.is_same_boot(running)
    }

    pub fn symbolize_kernel_address(
        &mut self,
        processes: &Processes,
        address: u64,
        lookback_bytes: u64,
    ) -> Frame {
        let region = processes.kernel_mappings.find(address);
        let module = region.and_then(|(region, _)| {
            let object = self.displayed_object_name(&region.object);
            (*object != *kernel::KERNEL_IMAGE_OBJECT).then_some((object, region.file_offset))
        });
        let object = match &module {
            Some((name, _)) => name.clone(),
            None => kernel::KERNEL_IMAGE_OBJECT.into(),
        };
        let unknown = Self::frame_without_function(address, true, object);
        if !self.recorded_kernel_may_be_running() {
            return unknown;
        }
        let is_same_boot = self.recorded_kernel.is_same_boot(self.running_kernel());
        if self.kernel_symbols.is_none() {
            self.modules_at_kallsyms_read = read_loaded_modules();
        }
        let kernel = self
            .kernel_symbols
            .get_or_insert_with(KernelSymbols::read_running_kernel);
        let Some(kernel) = kernel else {
            return unknown;
        };
        // The kernel's text has another address after a reboot, because of address space
        // randomization.
        let text_shift = match (kernel.text_start(), self.recorded_kernel_text_start) {
            (Some(now), Some(then)) => now.wrapping_sub(then),
            _ if is_same_boot => 0,
            _ => return unknown,
        };
        // A function of a module gets a name only if the module still has the address that it had
        // when the file was written. A module that was loaded during the recording has no mapping
        // in the file.
        let is_same_object = |function: &KernelFunction<'_>| match &module {
            Some((name, start)) => {
                let now = kernel.module_start(name);
                text_shift == 0 && *function.object == **name && now.is_none_or(|now| now == *start)
            }
            None => text_shift == 0 || function.object == kernel::KERNEL_IMAGE_OBJECT,
        };
        let function = kernel.find(
            address
                .wrapping_add(text_shift)
                .wrapping_sub(lookback_bytes),
        );
        match function.filter(|(function, _)| is_same_object(function)) {
            Some((function, offset)) => Frame {
                address,
                is_kernel: true,
                object: function.object.into(),
                symbol: function.name.into(),
                offset: offset.saturating_add(lookback_bytes),
                is_inlined: false,
            },
            None => unknown,
        }
    }

    /// Returns the frame of an address in user space, and the names of the functions that are
    /// inlined at this address, with the innermost function first.
    pub fn symbolize_user_address(
        &mut self,
        processes: &Processes,
        pid: i32,
        address: u64,
        lookback_bytes: u64,
    ) -> (Frame, Vec<Rc<str>>) {
        let mut inlined = Vec::new();
        let Some((region, at)) = processes.find_mapping(pid, address.wrapping_sub(lookback_bytes))
        else {
            let unknown = Self::frame_without_function(address, false, UNKNOWN_NAME.into());
            return (unknown, inlined);
        };
        let path = region.object.clone();
        let object = self.displayed_object_name(&path);
        let (identity, mapped_at) = (region.identity.clone(), region.mapped_at);
        let owned = |(name, offset): (&Rc<str>, u64)| (name.clone(), offset);
        let mut found = None;
        if *object == *VDSO_MAPPING {
            let symbols = self.usable_vdso_symbols(address);
            found = symbols.and_then(|s| s.find_at_file_offset(at)).map(owned);
        } else if is_jit_mapping(&object) && !self.was_recorded_in_another_boot() {
            let start = self.program_starts.get(&pid).copied();
            let perf_map = self
                .perf_maps
                .entry(pid)
                .or_insert_with(|| PerfMap::read(pid, start));
            let functions = perf_map.symbols();
            let at = address.wrapping_sub(lookback_bytes);
            found = functions.and_then(|s| s.find(at)).map(owned);
        }
        // A memfd may also contain an ELF file.
        let is_file = object.starts_with('/') && !object.starts_with("//");
        if found.is_none() && is_file {
            let finds_inlined = self.finds_inlined;
            if let Some(symbols) = self.symbols_of_mapped_file(pid, &path, identity, mapped_at) {
                found = symbols.find_at_file_offset(at).map(owned);
                if finds_inlined && found.is_some() {
                    inlined = symbols.find_inlined_at_file_offset(at);
                }
            }
        }
        let frame = match found {
            Some((name, offset)) => Frame {
                address,
                is_kernel: false,
                object,
                symbol: self.demangle_cached(name),
                offset: offset.saturating_add(lookback_bytes),
                is_inlined: false,
            },
            None => Self::frame_without_function(address, false, object),
        };
        let inlined = inlined.into_iter().map(|name| self.demangle_cached(name));
        (frame, inlined.collect())
    }

    /// Returns the path of a mapped file in the form that frames show.
    fn displayed_object_name(&mut self, path: &Rc<OsStr>) -> Rc<str> {
        let known = self.displayed_name_by_object.entry(path.clone());
        let shown = || visible::escape_invalid_utf8(path.as_bytes()).into();
        known.or_insert_with(shown).clone()
    }

    fn demangle_cached(&mut self, name: Rc<str>) -> Rc<str> {
        let known = self.demangled_names.entry(name);
        let demangled = |name: &Rc<str>| -> Rc<str> {
            let stub_of = name.strip_suffix(PLT_SUFFIX);
            match demangle(stub_of.unwrap_or(name)) {
                Some(demangled) if stub_of.is_some() => format!("{demangled}{PLT_SUFFIX}").into(),
                Some(demangled) => demangled.into(),
                // Cut a long name: a table becomes as wide as its longest cell.
                None if name.len() > MAX_DEMANGLED_NAME_BYTES => {
                    let end = (0..=MAX_DEMANGLED_NAME_BYTES)
                        .rev()
                        .find(|at| name.is_char_boundary(*at));
                    format!("{}...", &name[..end.unwrap_or(0)]).into()
                }
                None => name.clone(),
            }
        };
        known.or_insert_with_key(demangled).clone()
    }

    /// Returns the symbols of the vDSO. `None` is returned for a 32-bit process, or if the file was
    /// written on a kernel other than the running kernel.
    fn usable_vdso_symbols(&mut self, address: u64) -> Option<&Symbols> {
        if address <= u32::MAX.into() || !self.recorded_kernel_may_be_running() {
            return None;
        }
        let read = || Symbols::read_vdso().ok();
        self.vdso_symbols.get_or_insert_with(read).as_ref()
    }

    /// Returns the symbols of a file that a process has mapped at the time `mapped_at`, unless the
    /// file has no build ID and was changed later. If the file was not found for one
    /// process, it is searched for again for the next process that has mapped it, because each
    /// process may have another root directory.
    fn symbols_of_mapped_file(
        &mut self,
        pid: i32,
        path: &Rc<OsStr>,
        mapped: FileIdentity,
        mapped_at: Option<SystemTime>,
    ) -> Option<&mut Symbols> {
        let identity = match (mapped, self.recorded_build_ids.get(&**path)) {
            (FileIdentity::BuildId(id), _) => FileIdentity::BuildId(id),
            (_, Some(id)) => FileIdentity::BuildId(id.as_slice().into()),
            (mapped, None) => mapped,
        };
        let key = (path.clone(), identity);
        if !matches!(self.symbols_by_file.get(&key), Some(Ok(_))) {
            let (path, identity) = key.clone();
            if self.tried_file_lookups.insert((pid, path, identity)) {
                let found = Symbols::read_mapped_file(pid, Path::new(&key.0), &key.1);
                self.symbols_by_file.insert(key.clone(), found);
            }
        }
        let symbols = self.symbols_by_file.get_mut(&key)?.as_mut().ok()?;
        if mapped_at.is_some_and(|time| symbols.was_changed_after(time)) {
            self.files_changed_after_mapping.insert(key.0);
            return None;
        }
        Some(symbols)
    }

    /// Returns the message for the user that says why kernel functions have no names.
    fn explain_missing_kernel_names(&self) -> String {
        let (recorded, running) = (&self.recorded_kernel, self.running_kernel());
        let text = match &self.kernel_symbols {
            _ if !recorded.may_be_same_release(running) => {
                return format!(
                    "the file is of kernel {}, which does not run: its functions have no names",
                    recorded.release
                );
            }
            _ if !recorded.may_be_same_build(running) => {
                return format!(
                    "the file is of another build of kernel {} than the one that runs: the \
                     kernel's functions have no names",
                    running.release
                );
            }
            Some(None) => {
                "the kernel's symbols are hidden: run pfc as root, or sysctl \
                 kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
            }
            _ if self.recorded_kernel_text_start.is_none() && !recorded.is_same_boot(running) => {
                "the file does not have the kernel's address, and the kernel may have booted since: \
                 its functions have no names; record as root, or read the file before a boot"
            }
            _ => {
                "some of the kernel's functions have no names: their modules have gone, or lie \
                 somewhere else now"
            }
        };
        text.to_owned()
    }

    /// Returns messages for the user: which functions have no names, and what the user can do.
    pub fn explain_missing_names(&self, frames: &[Frame]) -> Vec<String> {
        let mut lines = Vec::new();
        let unknown = |is_kernel: bool| {
            frames
                .iter()
                .any(|f| f.is_kernel == is_kernel && !f.has_known_symbol())
        };
        if unknown(true) {
            lines.push(self.explain_missing_kernel_names());
        }
        let failed_files = |another: bool| -> BTreeSet<(&OsStr, &str)> {
            let failed = self
                .symbols_by_file
                .iter()
                .filter_map(|((file, _), symbols)| {
                    Some((&**file, symbols.as_ref().err().copied()?))
                });
            failed
                .filter(|(_, why)| (*why == ERROR_ANOTHER_BUILD) == another)
                .collect()
        };
        let (files, other_builds) = (failed_files(false), failed_files(true));
        if !files.is_empty() {
            let list: Vec<String> = files
                .iter()
                .map(|(f, why)| format!("{} ({why})", visible::escape_os_str(f)))
                .collect();
            lines.push(format!(
                "no names of functions in {}; install their packages of debug symbols",
                list.join(", ")
            ));
        }
        if !other_builds.is_empty() {
            let names = other_builds
                .iter()
                .map(|(file, _)| visible::escape_os_str(file));
            let list: Vec<_> = names.collect();
            lines.push(format!(
                "no names of functions in {}: the file is another build than the one that ran",
                list.join(", ")
            ));
        }
        let is_unknown_jit_code = |f: &Frame| {
            let is_mapped = *f.object != *UNKNOWN_NAME;
            !f.is_kernel && !f.has_known_symbol() && is_mapped && is_jit_mapping(&f.object)
        };
        if self.was_recorded_in_another_boot() && frames.iter().any(is_unknown_jit_code) {
            lines.push(
                "no names of functions of just-in-time compilers: the file is of another boot, in \
                 which the process IDs of perf maps (/tmp/perf-PID.map) were others"
                    .to_owned(),
            );
        }
        let old_maps = self.perf_maps.iter().filter(|(_, map)| map.is_too_old);
        let old_maps: BTreeSet<i32> = old_maps.map(|(pid, _)| *pid).collect();
        if !old_maps.is_empty() {
            let pids: Vec<String> = old_maps.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "no names of functions of just-in-time compilers in the processes {}: their perf \
                 maps (/tmp/perf-PID.map) were last written before the processes started their \
                 programs",
                pids.join(", ")
            ));
        }
        if !self.files_changed_after_mapping.is_empty() {
            let names = self.files_changed_after_mapping.iter();
            let list: Vec<_> = names.map(|file| visible::escape_os_str(file)).collect();
            lines.push(format!(
                "no names of functions in {}: the file has no build ID, and its contents or \
                 attributes were changed after it was mapped",
                list.join(", ")
            ));
        }
        lines
    }
}
