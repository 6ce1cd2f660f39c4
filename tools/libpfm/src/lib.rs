// SPDX-License-Identifier: GPL-2.0

//! Bindings of libpfm4: lists the tables of events of this processor, and translates the name of an
//! event to the register value that counts it.
#![expect(unsafe_code, reason = "a C library")]

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

/// Privilege levels of perfmon/pfmlib.h: 0 is kernel mode, 3 is user mode.
const PFM_PLM0: c_int = 0x1;
const PFM_PLM3: c_int = 0x8;
/// Asks libpfm to encode an event as the values to write to hardware registers, and not in the form
/// that an operating system takes.
const PFM_OS_NONE: c_int = 0;
/// The error code that pfm_get_pmu_info() returns for a number beyond the last table.
const PFM_ERR_INVAL: c_int = -2;
/// The type of a table that lists events of the processor core.
const PFM_PMU_TYPE_CORE: c_int = 1;
/// The type of a table that lists events of the operating system.
const PFM_PMU_TYPE_OS_GENERIC: c_int = 3;
/// The error code that libpfm returns if no table has an event of the given name.
const PFM_ERR_NOTFOUND: c_int = -4;

/// C's `pfm_pmu_info_t`: a table of events.
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
    /// Flags of the PMU: bit 0 is set if the machine has the PMU, bit 1 if the PMU is the default
    /// of the architecture.
    flags: c_uint,
}

/// C's `pfm_pmu_encode_arg_t`: argument and result of pfm_get_os_event_encoding().
#[repr(C)]
struct EncodeArg {
    codes: *mut u64,
    fstr: *mut *mut c_char,
    size: usize,
    count: c_int,
    idx: c_int,
}

/// C's `pfm_event_info_t`: the description of an event.
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

/// An error code of libpfm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(c_int);

impl Error {
    /// Returns true if no table of this processor has an event of the given name.
    pub fn is_not_found(self) -> bool {
        self.0 == PFM_ERR_NOTFOUND
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: pfm_strerror() accepts any number and returns a static string.
        let text = unsafe { CStr::from_ptr(pfm_strerror(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl std::error::Error for Error {}

fn error_code_to_result(code: c_int) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}

/// Initializes the library, once for all threads.
fn initialize_libpfm() -> Result<(), Error> {
    static INIT_RESULT: OnceLock<c_int> = OnceLock::new();
    // SAFETY: `OnceLock` calls pfm_initialize() once. All other functions of the library are called
    // after pfm_initialize(), except pfm_strerror(), which needs no initialization.
    error_code_to_result(*INIT_RESULT.get_or_init(|| unsafe { pfm_initialize() }))
}

/// A table of events, which describes one PMU that libpfm knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTable {
    /// Name of the table in libpfm; `name::EVENT` is the full name of an event.
    pub name: String,
    /// Description of the PMU or processor.
    pub description: String,
    /// Number of events in the table.
    pub nr_events: u32,
    /// Number of general counters according to libpfm.
    pub nr_counters: u32,
    /// Number of fixed counters according to libpfm.
    pub nr_fixed_counters: u32,
}

/// Returns the tables of events of this processor and of the operating system.
///
/// # Errors
///
/// Returns the error of pfm_initialize().
pub fn list_event_tables() -> Result<Vec<EventTable>, Error> {
    initialize_libpfm()?;
    let mut tables = Vec::new();
    for number in 0.. {
        let (code, info) = read_pmu_info(number);
        match code {
            0 if info.flags & 1 != 0 => tables.push(EventTable {
                name: copy_c_string(info.name),
                description: copy_c_string(info.desc),
                nr_events: info.nevents.unsigned_abs(),
                nr_counters: info.num_cntrs.unsigned_abs(),
                nr_fixed_counters: info.num_fixed_cntrs.unsigned_abs(),
            }),
            PFM_ERR_INVAL => break,
            _ => {}
        }
    }
    Ok(tables)
}

/// Returns the error code of pfm_get_pmu_info() and the description of table `number`. The caller
/// must have initialized the library.
fn read_pmu_info(number: c_int) -> (c_int, PmuInfo) {
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
    // SAFETY: The caller has initialized the library. `info` is valid for writes, and its `size` is
    // set.
    let code = unsafe { pfm_get_pmu_info(number, &mut info) };
    (code, info)
}

/// Copies a string of libpfm. `at` is null or points to a static string.
fn copy_c_string(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: `at` is from a table of the library, whose strings are NUL-terminated and static.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// The kind of events in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Events of the processor core.
    Core,
    /// Events of the operating system. The encoding of an event of the operating system is not a
    /// register value.
    System,
    /// Events of other sources: uncore units, power, tracepoints of the kernel.
    Other,
}

/// The encoding of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Value of the control register that makes a counter count the event. If the name of the event
    /// selects user mode or kernel mode, the event is counted in the selected mode only; otherwise
    /// it is counted in both modes. The table of the event determines whether `select` also has the
    /// bits for user mode and kernel mode and the enable bit of the counter.
    pub select: u64,
    /// True if the event needs values in other registers as well.
    pub needs_other_registers: bool,
    /// Kind of the table that the event is in.
    pub kind: EventKind,
}

/// Returns the encoding of the event with the given name.
///
/// # Errors
///
/// Returns the error of libpfm; see [`Error::is_not_found`].
pub fn encode_event(event: &str) -> Result<Encoding, Error> {
    initialize_libpfm()?;
    let name = CString::new(event).map_err(|_| Error(PFM_ERR_NOTFOUND))?;
    // No table of libpfm encodes an event in more than 8 words. On some machines the words of an
    // encoding after the first word are values of other registers, for example filters.
    let mut codes = [0u64; 8];
    let mut arg = EncodeArg {
        codes: codes.as_mut_ptr(),
        fstr: ptr::null_mut(),
        size: size_of::<EncodeArg>(),
        count: codes.len() as c_int,
        idx: 0,
    };
    // SAFETY: The library is initialized. `arg.codes` has room for `arg.count` words, `arg.fstr` is
    // null, and `name` is a NUL-terminated string.
    error_code_to_result(unsafe {
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
    // SAFETY: The library is initialized. `event` is valid for writes, and its `size` is set.
    error_code_to_result(unsafe { pfm_get_event_info(arg.idx, PFM_OS_NONE, &mut event) })?;
    let kind = match read_pmu_info(event.pmu) {
        (0, info) if info.kind == PFM_PMU_TYPE_CORE => EventKind::Core,
        (0, info) if info.kind == PFM_PMU_TYPE_OS_GENERIC => EventKind::System,
        _ => EventKind::Other,
    };
    let [select, more @ ..] = codes;
    Ok(Encoding {
        select,
        needs_other_registers: more.iter().any(|word| *word != 0),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_libpfm_lists_tables_and_refuses_unknown_events() {
        let all = list_event_tables().expect("libpfm");
        assert!(all.iter().all(|t| !t.name.is_empty() && t.nr_events > 0));
        assert!(encode_event("no_such_event_anywhere").is_err_and(Error::is_not_found));
        assert!(encode_event("a\0b").is_err());
    }
}
