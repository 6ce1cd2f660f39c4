// SPDX-License-Identifier: GPL-2.0

//! Formats dates and times in UTC.

/// Formats nanoseconds since 1970 as `2026-11-20T23:53:02.123456789Z`. `digits` is the number of
/// digits after the decimal point, at most 9.
pub fn format_utc(ns: u64, digits: usize) -> String {
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    if digits > 0 {
        let fraction = format!("{ns:09}");
        text.push('.');
        text.push_str(&fraction[..digits.min(9)]);
    }
    text.push('Z');
    text
}

/// Formats a time in nanoseconds since 1970 as a time of day in UTC: `23:53:02`.
pub fn format_time_of_day(ns: u64) -> String {
    format_utc(ns, 0)[11..19].to_owned()
}

/// Converts a number of days since 1 January 1970 to year, month and day. The calculation uses
/// years that begin in March, so that the leap day is the last day of a year.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
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
    fn pfc_dates_are_right() {
        assert_eq!(format_utc(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(
            format_utc(951_782_399_000_000_000, 0),
            "2000-02-28T23:59:59Z"
        );
        assert_eq!(
            format_utc(951_782_400_123_456_789, 3),
            "2000-02-29T00:00:00.123Z"
        );
        assert_eq!(
            format_utc(1_795_218_782_000_000_001, 9),
            "2026-11-20T23:53:02.000000001Z"
        );
        assert_eq!(format_time_of_day(1_795_218_782_000_000_000), "23:53:02");
    }
}
