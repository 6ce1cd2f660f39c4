// SPDX-License-Identifier: GPL-2.0

//! Names of functions that are in no ELF file: the kernel's, its modules', and those of
//! just-in-time compilers.

use std::fs;

use super::files::{is_ours, open, whole};
use super::symbols::Symbols;

/// What the kernel is called.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// A function of the kernel.
#[derive(Debug)]
pub struct Function<'a> {
    pub name: &'a str,
    /// [`KERNEL`], or the module in brackets.
    pub object: &'a str,
}

/// The running kernel's functions.
pub struct Kernel {
    /// The kernel's list: a name is looked at when it is asked for.
    text: String,
    /// Their addresses, ascending, and where in `text` their names begin.
    all: Vec<(u64, usize)>,
    /// Where the kernel's text begins.
    begin: Option<u64>,
}

impl Kernel {
    /// Those that may be seen here. `None`: all addresses are hidden.
    pub fn running() -> Option<Self> {
        // Names are not all ASCII in every kernel.
        let bytes = fs::read("/proc/kallsyms").ok()?;
        Self::parse(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(odd) => String::from_utf8_lossy(odd.as_bytes()).into_owned(),
        })
    }

    /// Of lines "ADDRESS KIND NAME" or "ADDRESS KIND NAME [MODULE]".
    fn parse(text: String) -> Option<Self> {
        let mut all = Vec::new();
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
                Ok(known) => all.push((known, begin + address.len() + 3)),
            }
        }
        // Of several names the first stays.
        all.sort_by_key(|&(address, _)| address);
        all.dedup_by_key(|&mut (address, _)| address);
        let begin = all
            .iter()
            .find(|&&(_, at)| name(&text, at) == "_text")
            .map(|&(address, _)| address);
        (!all.is_empty()).then_some(Self { text, all, begin })
    }

    /// Where its text begins.
    pub fn text(&self) -> Option<u64> {
        self.begin
    }

    /// The function of an address, and how far it is in it.
    pub fn find(&self, address: u64) -> Option<(Function<'_>, u64)> {
        let above = self.all.partition_point(|&(begin, _)| begin <= address);
        let &(begin, at) = self.all.get(above.checked_sub(1)?)?;
        let name = name(&self.text, at);
        let behind = self.text[at + name.len()..].lines().next();
        let module = behind.unwrap_or_default().trim_ascii_start();
        let object = if module.is_empty() { KERNEL } else { module };
        Some((Function { name, object }, address - begin))
    }
}

/// The name that begins there.
fn name(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    let end = rest.find(|c: char| c.is_ascii_whitespace());
    &rest[..end.unwrap_or(rest.len())]
}

/// Bytes of such a list.
const LARGEST_MAP: u64 = 256 << 20;

/// What a just-in-time compiler has written about its functions.
pub fn compiled(pid: i32) -> Option<Symbols> {
    let path = format!("/tmp/perf-{pid}.map");
    let file = open(path.as_ref()).ok()?;
    if !is_ours(&file.metadata().ok()?) {
        return None;
    }
    let bytes = whole(&file, LARGEST_MAP).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let symbol = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let hex = |word: Option<&str>| {
            let word = word?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        Some((hex(words.next())?, hex(words.next())?, words.next()?.into()))
    };
    Some(Symbols::new(text.lines().filter_map(symbol).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_9_the_kernels_functions_by_module() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t one\nffffffff82000000 D data\n\
                    ffffffffc0000000 t two\t[mod]\n";
        let kernel = Kernel::parse(text.to_owned()).expect("symbols");
        let find = |a| kernel.find(a).map(|(f, o)| (f.name, f.object, o));
        assert_eq!(kernel.text(), Some(0xffff_ffff_8100_0000));
        assert_eq!(find(0xffff_ffff_8100_0104), Some(("one", KERNEL, 4)));
        assert_eq!(find(0xffff_ffff_c000_0001), Some(("two", "[mod]", 1)));
        assert_eq!(find(0xffff_ffff_8000_0000), None);
        assert!(Kernel::parse("0000000000000000 T _text\n".to_owned()).is_none());
    }
}
