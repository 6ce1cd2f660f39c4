// SPDX-License-Identifier: GPL-2.0

//! Formats dates and times in UTC.

use jiff::{SignedDuration, Timestamp};

/// Formats nanoseconds since 1970 as `2026-11-20T23:53:02.123456789Z`. `digits` is the number of
/// digits after the decimal point, at most 9.
pub fn format_utc(ns: u64, digits: usize) -> String {
    let time = Timestamp::UNIX_EPOCH + SignedDuration::from_nanos_i128(ns.into());
    format!("{time:.digits$}")
}

/// Formats a time in nanoseconds since 1970 as a time of day in UTC: `23:53:02`.
pub fn format_time_of_day(ns: u64) -> String {
    format_utc(ns, 0)[11..19].to_owned()
}

/// Formats a boot ID of 16 bytes as `01234567-89ab-cdef-0123-456789abcdef`.
pub fn format_boot_id(id: &[u8; 16]) -> String {
    let mut text = String::new();
    for (n, byte) in id.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_formats_dates_and_times_of_day() {
        for (ns, digits, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_399_000_000_000, 0, "2000-02-28T23:59:59Z"),
            (951_782_400_123_456_789, 3, "2000-02-29T00:00:00.123Z"),
            (
                1_795_218_782_000_000_001,
                9,
                "2026-11-20T23:53:02.000000001Z",
            ),
        ] {
            assert_eq!(format_utc(ns, digits), text);
        }
        assert_eq!(format_time_of_day(1_795_218_782_000_000_000), "23:53:02");
    }
}
