// SPDX-License-Identifier: GPL-2.0

//! Records the mappings of the kernel and of its modules.

use std::fs;
use std::io::{BufRead, BufReader};

use crate::data::RecordEncoder;
use crate::text_file;

/// Encodes the mappings of the kernel and of its modules, unless the kernel hides addresses from
/// this user.
pub fn encode_kernel_mappings(output: &mut RecordEncoder, id: u64) {
    let Some(start) = read_kernel_text_start() else {
        return;
    };
    let modules = read_loaded_modules();
    // The range recorded for the kernel ends at the first module, so it includes BPF programs below
    // the first module. The end of the kernel's text is not read from /proc/kallsyms. The symbol of
    // the end is near the end of this file, and reading the whole file takes long.
    let above = modules.iter().map(|m| m.1).filter(|at| *at > start);
    let end = above.min().unwrap_or(u64::MAX);
    output.encode_kernel_mmap(start, end, start, "[kernel.kallsyms]_text", id);
    for (name, at, size) in modules {
        output.encode_kernel_mmap(at, at.saturating_add(size), 0, &name, id);
    }
}

/// Returns the first address of the kernel's text, from a line near the beginning of
/// /proc/kallsyms. Returns `None` if kernel addresses are hidden.
fn read_kernel_text_start() -> Option<u64> {
    let file = fs::File::open("/proc/kallsyms").ok()?;
    // In some kernels, /proc/kallsyms has symbol names that are not UTF-8.
    let mut lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let line = lines.find(|line| line.ends_with(b" _text"))?;
    let address = line.split(|b| *b == b' ').next()?;
    let at = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    (at != 0).then_some(at)
}

/// Returns each module's name in brackets, its address and its size in bytes.
pub fn read_loaded_modules() -> Vec<(String, u64, u64)> {
    parse_proc_modules(&text_file::read_text_escaping_non_utf8("/proc/modules").unwrap_or_default())
}

/// Parses /proc/modules. Returns each module's name in brackets, its address and its size in bytes.
pub fn parse_proc_modules(text: &str) -> Vec<(String, u64, u64)> {
    let module = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, size, ..] = words[..] else {
            return None;
        };
        // The address of a module is the last word of its line, or the word before the taint flags.
        let at = words.iter().rev().find_map(|w| w.strip_prefix("0x"))?;
        let at = u64::from_str_radix(at, 16).ok().filter(|at| *at != 0)?;
        Some((format!("[{name}]"), at, size.parse().ok()?))
    };
    text.lines().filter_map(module).collect()
}
