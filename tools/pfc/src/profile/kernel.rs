// SPDX-License-Identifier: GPL-2.0

//! Names of functions that are in no ELF file: the kernel's, its modules', and those of
//! just-in-time compilers.

use std::collections::HashMap;
use std::fs;
use std::rc::Rc;

use super::symbols::{whole, Symbols};

/// What the kernel is called.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// A function of the kernel.
#[derive(Debug)]
pub struct Function {
    address: u64,
    pub name: Rc<str>,
    /// [`KERNEL`], or the module in brackets.
    pub object: Rc<str>,
}

/// The running kernel's functions, ascending.
pub struct Kernel(Vec<Function>);

impl Kernel {
    /// Those that may be seen here. `None`: all addresses are hidden.
    pub fn running() -> Option<Self> {
        // Names are not all ASCII in every kernel.
        let bytes = fs::read("/proc/kallsyms").ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut all = Vec::new();
        let mut objects: HashMap<&str, Rc<str>> = HashMap::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
                let object = words.next().unwrap_or(KERNEL);
                let object = objects.entry(object).or_insert_with(|| object.into());
                all.push(Function {
                    address,
                    name: name.into(),
                    object: object.clone(),
                });
            }
        }
        // Of several names the first stays.
        all.sort_by_key(|f| f.address);
        all.dedup_by_key(|f| f.address);
        (!all.is_empty()).then_some(Self(all))
    }

    /// Where its text begins.
    pub fn text(&self) -> Option<u64> {
        self.0
            .iter()
            .find(|f| &*f.name == "_text")
            .map(|f| f.address)
    }

    /// The function of an address, and how far it is in it.
    pub fn find(&self, address: u64) -> Option<(&Function, u64)> {
        let above = self.0.partition_point(|f| f.address <= address);
        let function = self.0.get(above.checked_sub(1)?)?;
        Some((function, address - function.address))
    }
}

/// Bytes of such a list.
const LARGEST_MAP: u64 = 256 << 20;

/// What a just-in-time compiler has written about its functions.
pub fn compiled(pid: i32) -> Option<Symbols> {
    let path = format!("/tmp/perf-{pid}.map");
    let bytes = whole(path.as_ref(), LARGEST_MAP, true).ok()?;
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
        let kernel = Kernel::parse(text).expect("symbols");
        let find = |a| kernel.find(a).map(|(f, o)| (&*f.name, &*f.object, o));
        assert_eq!(kernel.text(), Some(0xffff_ffff_8100_0000));
        assert_eq!(find(0xffff_ffff_8100_0104), Some(("one", KERNEL, 4)));
        assert_eq!(find(0xffff_ffff_c000_0001), Some(("two", "[mod]", 1)));
        assert_eq!(find(0xffff_ffff_8000_0000), None);
        assert!(Kernel::parse("0000000000000000 T _text\n").is_none());
    }
}
