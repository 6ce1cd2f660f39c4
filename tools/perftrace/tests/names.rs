// SPDX-License-Identifier: GPL-2.0

//! Tests that the macro and the kernel accept the same names. The tested names include names of the
//! maximum length, and names that are one character longer.

use std::panic::catch_unwind;

use perftrace::Site;
use protocols::filter::{is_valid_field_list, is_valid_marker_name};

/// Returns true if the macro accepts a marker. In a constant, a failed check is a compile error; in
/// this function, it is a panic.
fn macro_accepts_marker(name: &str, fields: &[String]) -> bool {
    let fields = fields
        .iter()
        .fold(String::new(), |text, field| text + " " + field);
    let text: &'static str = Box::leak(format!("{name}\0{fields}\0").into_boxed_str());
    catch_unwind(|| Site::new(text, 0)).is_ok()
}

/// Returns true if the kernel accepts the marker, by the checks of `checked_name_and_fields()` in
/// `src/trace/marker.rs`.
fn kernel_accepts_marker(name: &str, fields: &[String]) -> bool {
    !name.starts_with("kernel:")
        && is_valid_marker_name(name.as_bytes())
        && is_valid_field_list(fields.join(" ").as_bytes())
}

fn check_macro_and_kernel(name: &str, fields: &[String], accepted: bool) {
    assert_eq!(
        kernel_accepts_marker(name, fields),
        accepted,
        "the kernel: {name} {fields:?}"
    );
    assert_eq!(
        macro_accepts_marker(name, fields),
        accepted,
        "the macro: {name} {fields:?}"
    );
}

#[test]
fn r3_7_macro_and_kernel_accept_the_same_marker_names() {
    for length in 1..=70 {
        check_macro_and_kernel(&format!("a:{}", "n".repeat(length)), &[], length + 2 < 64);
        check_macro_and_kernel(&format!("{}:n", "a".repeat(length)), &[], length + 2 < 64);
    }
    for (name, good) in [
        ("kernel:event", false),
        ("kernels:event", true),
        ("kerne:event", true),
        ("a:kernel", true),
        ("größe:event", false),
        ("a:r#type", false),
        ("_:_9", true),
    ] {
        check_macro_and_kernel(name, &[], good);
    }
}

#[test]
fn r3_7_macro_and_kernel_accept_the_same_fields() {
    let numbered = |nr: usize, length: usize| -> Vec<String> {
        (0..nr).map(|n| format!("{n:0>length$}:u8")).collect()
    };
    for length in 1..=70 {
        check_macro_and_kernel(
            "a:n",
            &[format!("{}:u8", "f".repeat(length))],
            length <= max_field_name_bytes(),
        );
    }
    // The text of the fields, with types and blanks, has 244 to 283 bytes; the limit is 255.
    for last in 1..=40 {
        let mut fields = numbered(12, 16);
        fields.push(format!("{}:u8", "f".repeat(last)));
        let bytes = fields.join(" ").len();
        check_macro_and_kernel(
            "a:n",
            &fields,
            bytes < 256 && last <= max_field_name_bytes(),
        );
    }
    let twice = ["one:u8", "two:u8", "one:s16"].map(String::from);
    check_macro_and_kernel("a:n", &twice, false);
    let begins_alike = ["one:u8", "on:u8", "onee:u8"].map(String::from);
    check_macro_and_kernel("a:n", &begins_alike, true);
    check_macro_and_kernel("a:n", &["r#type:u8".into()], false);
}

/// Returns the maximum length of a field's name in bytes.
const fn max_field_name_bytes() -> usize {
    protocols::filter::MAX_FIELD_NAME_BYTES
}
