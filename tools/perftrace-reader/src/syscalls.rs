// SPDX-License-Identifier: GPL-2.0

//! The names of system calls. An event of the kernel's marker `kernel:sys_enter` has the number and
//! the ABI of a system call. All output formats show the system call's name as a further field.

use std::sync::OnceLock;

/// The name and the fields of the kernel's marker for system calls.
pub const SYSCALL_MARKER: (&str, &str) = ("kernel:sys_enter", "number:s64 abi:str");
/// The name of the field in which outputs show the name of the system call.
pub const SYSCALL_NAME_FIELD: &str = "name";

/// The tables of system calls, which `syscalls.awk` makes from the tables in the kernel source. A
/// line with `abi:` and a name begins the table of an ABI. A word `N:` means that the next word is
/// the name of call N.
const SYSCALL_TABLES_TEXT: &str = include_str!("syscalls.txt");

/// The bit that is set in the number of every x32 call (`__X32_SYSCALL_BIT`). The index of an x32
/// call in its table is the number without `X32_SYSCALL_BIT`.
const X32_SYSCALL_BIT: i64 = 1 << 30;

/// The table of an ABI: its name, and the names of its calls by number.
type SyscallTable = (&'static str, Vec<Option<&'static str>>);

/// Returns the name of the call `number` of an ABI, or `None` if there is no such call.
pub fn syscall_name(abi: &[u8], number: i64) -> Option<&'static str> {
    static PARSED_TABLES: OnceLock<Vec<SyscallTable>> = OnceLock::new();
    let all = PARSED_TABLES.get_or_init(|| parse_tables(SYSCALL_TABLES_TEXT));
    let (name, calls) = all.iter().find(|(name, _)| name.as_bytes() == abi)?;
    let index = match (*name, number) {
        ("x32", X32_SYSCALL_BIT..) => number - X32_SYSCALL_BIT,
        ("x32", _) => return None,
        _ => number,
    };
    *calls.get(usize::try_from(index).ok()?)?
}

fn parse_tables(text: &'static str) -> Vec<SyscallTable> {
    let mut all: Vec<SyscallTable> = Vec::new();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    while let Some(word) = words.next() {
        match word.strip_suffix(':') {
            Some("abi") => all.push((words.next().unwrap_or_default(), Vec::new())),
            Some(number) => {
                if let (Some((_, calls)), Ok(number)) = (all.last_mut(), number.parse()) {
                    calls.resize(number, None);
                }
            }
            None => {
                if let Some((_, calls)) = all.last_mut() {
                    calls.push(Some(word));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_11_syscall_is_named_by_the_table_of_its_abi() {
        for (abi, number, wanted) in [
            ("x86_64", 0, Some("read")),
            ("x86_64", 20, Some("writev")),
            ("x86_64", 39, Some("getpid")),
            ("x86_64", 334, Some("rseq")),
            ("x86_64", 336, Some("uprobe")),
            ("x86_64", 337, None),
            ("x86_64", 423, None),
            ("x86_64", 424, Some("pidfd_send_signal")),
            ("i386", 0, Some("restart_syscall")),
            ("i386", 20, Some("getpid")),
            ("i386", 24, Some("getuid")),
            ("i386", 158, Some("sched_yield")),
            ("i386", 439, Some("faccessat2")),
            ("x32", X32_SYSCALL_BIT, Some("read")),
            ("x32", X32_SYSCALL_BIT + 39, Some("getpid")),
            // In x32, the system call that has number 13 in x86_64 has another number.
            ("x86_64", 13, Some("rt_sigaction")),
            ("x32", X32_SYSCALL_BIT + 13, None),
            ("x32", X32_SYSCALL_BIT + 512, Some("rt_sigaction")),
            ("x86_64", 512, None),
            ("x32", X32_SYSCALL_BIT + 547, Some("pwritev2")),
            ("x32", X32_SYSCALL_BIT + 548, None),
            ("x32", 39, None),
            ("x32", i64::MAX, None),
            ("x86_64", X32_SYSCALL_BIT + 39, None),
            ("x86_64", -1, None),
            ("i386", i64::MIN, None),
            ("arm", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(
                syscall_name(abi.as_bytes(), number),
                wanted,
                "{abi} {number}"
            );
        }
    }
}
