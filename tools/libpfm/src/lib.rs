// SPDX-License-Identifier: GPL-2.0

//! libpfm4: what the events of this processor are called, and which values of
//! its registers count them.
#![expect(unsafe_code, reason = "a C library")]
#![expect(
    clippy::disallowed_methods,
    reason = "the rule is the kernel's, for its own kind of char"
)]

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

/// perfmon/pfmlib.h: levels of privilege.
const PFM_PLM0: c_int = 0x1;
const PFM_PLM3: c_int = 0x8;
/// The values of registers, for no operating system.
const PFM_OS_NONE: c_int = 0;
/// pfm_get_pmu_info(): no table has this number any more.
const PFM_ERR_INVAL: c_int = -2;
/// Tables of the processor's core, and of the operating system.
const PFM_PMU_TYPE_CORE: c_int = 1;
const PFM_PMU_TYPE_OS_GENERIC: c_int = 3;
const PFM_ERR_NOTFOUND: c_int = -4;

/// `pfm_pmu_info_t`.
#[repr(C)]
struct PmuInfo {
    name: *const c_char,
    desc: *const c_char,
    size: usize,
    pmu: c_int,
    kind: c_int,
    nevents: c_int,
    first_event: c_int,
    max_encoding: c_int,
    num_cntrs: c_int,
    num_fixed_cntrs: c_int,
    /// Bit 0: present here; bit 1: the architecture's default.
    flags: c_uint,
}

/// `pfm_pmu_encode_arg_t`.
#[repr(C)]
struct EncodeArg {
    codes: *mut u64,
    fstr: *mut *mut c_char,
    size: usize,
    count: c_int,
    idx: c_int,
}

/// `pfm_event_info_t`.
#[repr(C)]
struct EventInfo {
    name: *const c_char,
    desc: *const c_char,
    equiv: *const c_char,
    size: usize,
    code: u64,
    pmu: c_int,
    dtype: c_int,
    idx: c_int,
    nattrs: c_int,
    reserved: c_int,
    flags: c_uint,
}

#[link(name = "pfm", kind = "static")]
extern "C" {
    fn pfm_initialize() -> c_int;
    fn pfm_strerror(code: c_int) -> *const c_char;
    fn pfm_get_pmu_info(pmu: c_int, output: *mut PmuInfo) -> c_int;
    fn pfm_get_event_info(event: c_int, os: c_int, output: *mut EventInfo) -> c_int;
    fn pfm_get_os_event_encoding(
        name: *const c_char,
        levels: c_int,
        os: c_int,
        args: *mut c_void,
    ) -> c_int;
}

/// A refusal of libpfm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(c_int);

impl Error {
    /// No table of this processor has an event of that name.
    pub fn is_not_found(self) -> bool {
        self.0 == PFM_ERR_NOTFOUND
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: it takes any number, and gives a text that stays.
        let text = unsafe { CStr::from_ptr(pfm_strerror(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl std::error::Error for Error {}

fn checked(code: c_int) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}

/// The library, once for all threads.
fn initialized() -> Result<(), Error> {
    static DONE: OnceLock<c_int> = OnceLock::new();
    // SAFETY: called once, before any other function of the library.
    checked(*DONE.get_or_init(|| unsafe { pfm_initialize() }))
}

/// A table of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What libpfm calls it; `name::EVENT` is an event of it.
    pub name: String,
    /// The processor, in words.
    pub description: String,
    /// How many events it has.
    pub events: u32,
    /// General counters, as libpfm knows them.
    pub counters: u32,
    /// Fixed counters.
    pub fixed: u32,
}

/// The tables that are of this processor; those of the operating system, too.
pub fn tables() -> Result<Vec<Table>, Error> {
    initialized()?;
    let mut tables = Vec::new();
    for number in 0.. {
        let (found, info) = pmu_info(number);
        match found {
            0 if info.flags & 1 != 0 => tables.push(Table {
                name: text(info.name),
                description: text(info.desc),
                events: info.nevents.unsigned_abs(),
                counters: info.num_cntrs.unsigned_abs(),
                fixed: info.num_fixed_cntrs.unsigned_abs(),
            }),
            PFM_ERR_INVAL => break,
            _ => {}
        }
    }
    Ok(tables)
}

/// What is known of a table; once the library is initialized.
fn pmu_info(number: c_int) -> (c_int, PmuInfo) {
    let mut info = PmuInfo {
        name: ptr::null(),
        desc: ptr::null(),
        size: size_of::<PmuInfo>(),
        pmu: 0,
        kind: 0,
        nevents: 0,
        first_event: 0,
        max_encoding: 0,
        num_cntrs: 0,
        num_fixed_cntrs: 0,
        flags: 0,
    };
    // SAFETY: initialized; the structure is ours, and says its size.
    let found = unsafe { pfm_get_pmu_info(number, &mut info) };
    (found, info)
}

/// A text that the library keeps for ever.
fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the caller has it from a table, whose names end with a 0 and stay.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// Whose events a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The processor core's.
    Core,
    /// The operating system's, whose values are no register's.
    System,
    /// Another unit's: of the socket, of power, of the kernel's trace.
    Other,
}

/// How an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The value of the control register that counts it, in user mode and in the kernel if
    /// its name does not say otherwise. Whether the bits of modes and of enabling are in it
    /// depends on the table.
    pub select: u64,
    /// It takes more than that register.
    pub has_more: bool,
    /// Of which table it is.
    pub kind: Kind,
}

/// How an event is counted.
pub fn encode(event: &str) -> Result<Encoding, Error> {
    initialized()?;
    let name = CString::new(event).map_err(|_| Error(PFM_ERR_NOTFOUND))?;
    // As many words as any table asks for: more are filters of some machines.
    let mut codes = [0u64; 8];
    let mut arg = EncodeArg {
        codes: codes.as_mut_ptr(),
        fstr: ptr::null_mut(),
        size: size_of::<EncodeArg>(),
        count: codes.len() as c_int,
        idx: 0,
    };
    // SAFETY: initialized; `arg` has as many codes as it says, and no string.
    checked(unsafe {
        pfm_get_os_event_encoding(
            name.as_ptr(),
            PFM_PLM0 | PFM_PLM3,
            PFM_OS_NONE,
            ptr::from_mut(&mut arg).cast(),
        )
    })?;
    let mut event = EventInfo {
        name: ptr::null(),
        desc: ptr::null(),
        equiv: ptr::null(),
        size: size_of::<EventInfo>(),
        code: 0,
        pmu: 0,
        dtype: 0,
        idx: 0,
        nattrs: 0,
        reserved: 0,
        flags: 0,
    };
    // SAFETY: initialized; the structure is ours, and says its size.
    checked(unsafe { pfm_get_event_info(arg.idx, PFM_OS_NONE, &mut event) })?;
    let kind = match pmu_info(event.pmu) {
        (0, info) if info.kind == PFM_PMU_TYPE_CORE => Kind::Core,
        (0, info) if info.kind == PFM_PMU_TYPE_OS_GENERIC => Kind::System,
        _ => Kind::Other,
    };
    let [select, more @ ..] = codes;
    Ok(Encoding {
        select,
        has_more: more.iter().any(|word| *word != 0),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_libpfm_encodes_by_the_name_of_a_table() {
        let all = tables().expect("libpfm");
        assert!(all.iter().all(|t| !t.name.is_empty() && t.events > 0));
        assert!(encode("no_such_event_anywhere").is_err_and(Error::is_not_found));
        assert!(encode("a\0b").is_err());
    }
}
