// SPDX-License-Identifier: GPL-2.0

//! Finds the functions of the kernel and its modules in /proc/kallsyms.

use std::fs;

use crate::record::parse_proc_modules;
use crate::text_file;

/// The object name for functions of the kernel image, as opposed to modules.
pub const KERNEL_IMAGE_OBJECT: &str = "[kernel.kallsyms]";

/// A kernel function: its name, and the kernel image or module that contains it.
#[derive(Debug)]
pub struct KernelFunction<'a> {
    pub name: &'a str,
    /// [`KERNEL_IMAGE_OBJECT`], or the name of the module in brackets.
    pub object: &'a str,
}

/// The functions of the running kernel.
pub struct KernelSymbols {
    /// The contents of /proc/kallsyms. A function's name is parsed only when the function is looked
    /// up.
    kallsyms_text: String,
    /// The address of each function, in ascending order, and the offset of its name in `text`.
    functions: Vec<(u64, usize)>,
    /// The first address of the kernel's text; `None` if the symbol _text is missing.
    text_start: Option<u64>,
    /// The first address after the kernel's text; `None` if the symbol _etext is missing.
    text_end: Option<u64>,
    /// The name in brackets, the address and the size of each loaded module.
    modules: Vec<(String, u64, u64)>,
}

impl KernelSymbols {
    /// Reads the functions from /proc/kallsyms. Returns `None` if the file cannot be read, or if
    /// all addresses are hidden.
    pub fn read_running_kernel() -> Option<Self> {
        // In some kernels, names contain bytes that are not UTF-8.
        let bytes = fs::read("/proc/kallsyms").ok()?;
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => visible::escape_invalid_utf8(error.as_bytes()).into_owned(),
        };
        let modules = text_file::read_text_escaping_non_utf8("/proc/modules").unwrap_or_default();
        Self::parse(text, &modules)
    }

    /// Parses lines of the form "ADDRESS KIND NAME" or "ADDRESS KIND NAME [MODULE]", and the lines of
    /// /proc/modules.
    pub(super) fn parse(text: String, modules: &str) -> Option<Self> {
        let mut functions = Vec::new();
        let (mut text_start, mut text_end) = (None, None);
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let begin = at;
            at += line.len();
            let Some((address, rest)) = line.split_once(' ') else {
                continue;
            };
            if !matches!(rest.as_bytes(), [b't' | b'T' | b'w' | b'W', b' ', ..]) {
                continue;
            }
            match u64::from_str_radix(address, 16) {
                Ok(0) | Err(_) => {}
                Ok(known) => {
                    let name_at = begin + address.len() + 3;
                    functions.push((known, name_at));
                    match kallsyms_name_at(&text, name_at) {
                        "_text" => text_start = text_start.or(Some(known)),
                        "_etext" => text_end = text_end.or(Some(known)),
                        _ => {}
                    }
                }
            }
        }
        // If several functions have the same address, the first one in the list is kept.
        functions.sort_by_key(|&(address, _)| address);
        functions.dedup_by_key(|&mut (address, _)| address);
        (!functions.is_empty()).then_some(Self {
            kallsyms_text: text,
            functions,
            text_start,
            text_end,
            modules: parse_proc_modules(modules),
        })
    }

    /// Returns the first address of the kernel's text, or `None` if the symbol _text is missing.
    pub fn text_start(&self) -> Option<u64> {
        self.text_start
    }

    /// Returns the address of a loaded module, whose name is in brackets.
    pub fn module_start(&self, name: &str) -> Option<u64> {
        let (_, start, _) = self.modules.iter().find(|(module, _, _)| module == name)?;
        Some(*start)
    }

    /// Returns false if an address is behind the end of `object`, which is the kernel image or a
    /// module. This check is needed because /proc/kallsyms does not have the size of the last
    /// function.
    fn is_before_object_end(&self, address: u64, object: &str) -> bool {
        if object == KERNEL_IMAGE_OBJECT {
            return self.text_end.is_none_or(|end| address < end);
        }
        let module = self.modules.iter().find(|(module, _, _)| module == object);
        module.is_none_or(|(_, start, size)| address < start.saturating_add(*size))
    }

    /// Returns the function that contains an address, and the offset of the address in the
    /// function.
    pub fn find(&self, address: u64) -> Option<(KernelFunction<'_>, u64)> {
        let above = self
            .functions
            .partition_point(|&(begin, _)| begin <= address);
        let &(begin, at) = self.functions.get(above.checked_sub(1)?)?;
        let name = kallsyms_name_at(&self.kallsyms_text, at);
        let rest_of_line = self.kallsyms_text[at + name.len()..].lines().next();
        let module = rest_of_line.unwrap_or_default().trim_ascii_start();
        let object = if module.is_empty() {
            KERNEL_IMAGE_OBJECT
        } else {
            module
        };
        self.is_before_object_end(address, object)
            .then_some((KernelFunction { name, object }, address - begin))
    }
}

/// Returns the name that starts at the offset `at` in the text of /proc/kallsyms and ends before
/// white space.
fn kallsyms_name_at(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    let end = rest.find(|c: char| c.is_ascii_whitespace());
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_kernel_functions_are_found_by_module() {
        // As in a real kernel, other symbols have the addresses of _text and _etext.
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 t one\n\
                    ffffffff82000000 D data\nffffffff81001000 T __static_call_text_end\n\
                    ffffffff81001000 T _etext\nffffffffc0000000 t two\t[mod]\n";
        let modules = "mod 4096 0 - Live 0xffffffffc0000000\n";
        let kernel = KernelSymbols::parse(text.to_owned(), modules).expect("symbols");
        let find = |a| kernel.find(a).map(|(f, o)| (f.name, f.object, o));
        assert_eq!(kernel.text_start(), Some(0xffff_ffff_8100_0000));
        assert_eq!(
            find(0xffff_ffff_8100_0104),
            Some(("one", KERNEL_IMAGE_OBJECT, 4))
        );
        assert_eq!(find(0xffff_ffff_c000_0001), Some(("two", "[mod]", 1)));
        assert_eq!(kernel.module_start("[mod]"), Some(0xffff_ffff_c000_0000));
        for outside in [
            0xffff_ffff_8000_0000,
            0xffff_ffff_8100_1000,
            0xffff_ffff_c000_1000,
        ] {
            assert_eq!(find(outside), None, "{outside:x}");
        }
        let hidden = "0000000000000000 T _text\n".to_owned();
        assert!(KernelSymbols::parse(hidden, "").is_none());
    }
}
