// SPDX-License-Identifier: GPL-2.0

//! Evaluates the filter of a trace with the evaluator of the crate `protocols`. The filter is in a
//! page that the process has mapped from the device.
#![expect(unsafe_code, reason = "a marker's texts, fields as bytes")]

use core::ffi::CStr;
use core::slice;

use protocols::filter::{Event, Filter};
use protocols::sync::Word;

use crate::site::Site;

/// Returns true if the filter accepts the event. The kernel has checked the filter, and the
/// evaluator tolerates any bytes. If the kernel changes the page during the evaluation, the result
/// is arbitrary. When the kernel changes a filter, it also changes the generation of the trace, so
/// the caller does not commit the record.
pub(crate) fn accepts_event(
    filter: &[Word],
    site: &Site,
    fields: &[u64],
    thread: u32,
    process: u32,
) -> bool {
    // SAFETY: By the invariant of `Site`, `text` consists of the name of the marker, a NUL,
    // the fields and a NUL. Words can be read as bytes.
    let (marker, texts, payload) = unsafe {
        let marker = CStr::from_ptr(site.text).to_bytes();
        let texts = CStr::from_ptr(site.text.add(marker.len() + 1)).to_bytes();
        let payload = slice::from_raw_parts(fields.as_ptr().cast(), size_of_val(fields));
        (marker, texts, payload)
    };
    Filter::new(filter).accepts(&Event {
        marker,
        fields: texts.strip_prefix(b" ").unwrap_or(texts),
        payload,
        thread,
        process,
    })
}
