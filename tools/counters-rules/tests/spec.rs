// SPDX-License-Identifier: GPL-2.0

//! Tests of the function that checks a request to add an instance, and of the errors that it
//! returns.
#![cfg(not(loom))]

use counters_rules::abi::{Kind, Unit, HELP_MAX, NAME_MAX};
use counters_rules::error::Error;
use counters_rules::spec::{Spec, MAX_BUCKETS, MAX_DECIMAL_EXPONENT};
use proptest::prelude::*;

fn error_of_name(spec: &Spec<'_>) -> Option<Error> {
    spec.to_checked_desc().err()
}

#[test]
fn r0_10_invalid_names_are_refused() {
    let name = |name| error_of_name(&Spec::counter(name));
    assert_eq!(name(b""), Some(Error::NameEmpty));
    assert_eq!(name(&[b'x'; NAME_MAX]), Some(Error::TooLong));
    assert_eq!(name(&[b'x'; 100_000]), Some(Error::TooLong));
    assert_eq!(name(&[b'x'; NAME_MAX - 1]), None);
    for bad in [
        &b"a\nb"[..],
        b"a\0b",
        b"\0",
        b"\x1b[2J",
        b"\x7f",
        "nel\u{85}".as_bytes(),
        b"\xff",
        b"half \xc3",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
    ] {
        assert_eq!(name(bad), Some(Error::NotText), "{bad:?}");
    }
    for good in [
        "a",
        "block/sda1/read_bytes",
        "/dev/ide/host0/part5",
        "größe",
        "日本",
        " ",
    ] {
        assert_eq!(name(good.as_bytes()), None, "{good}");
    }
}

#[test]
fn spec_invalid_help_texts_are_refused() {
    let help = |help| {
        error_of_name(&Spec {
            help,
            ..Spec::counter(b"x")
        })
    };
    assert_eq!(help(b""), None);
    assert_eq!(help(&[b'x'; HELP_MAX - 1]), None);
    assert_eq!(help(&[b'x'; HELP_MAX]), Some(Error::TooLong));
    assert_eq!(help(b"two\nlines"), Some(Error::NotText));
    assert_eq!(help(b"\xff"), Some(Error::NotText));
}

#[test]
fn spec_kind_and_number_of_slots_are_checked() {
    let shape = |kind: u16, unit: u16, exponent: i8, nr_slots: u16| {
        error_of_name(&Spec {
            kind,
            unit,
            exponent,
            nr_slots,
            ..Spec::counter(b"x")
        })
    };
    let bad = Some(Error::BadSpec);
    let histogram = Kind::Histogram as u16;
    for kind in 0..histogram {
        assert_eq!(shape(kind, 0, 0, 0), None);
        assert_eq!(shape(kind, 0, 0, 1), None);
        assert_eq!(shape(kind, 0, 0, 2), bad);
    }
    assert_eq!(shape(histogram + 1, 0, 0, 1), bad);
    assert_eq!(shape(u16::MAX, 0, 0, 1), bad);
    assert_eq!(shape(0, Unit::Pages as u16, 0, 1), None);
    assert_eq!(shape(0, Unit::Pages as u16 + 1, 0, 1), bad);
    assert_eq!(shape(0, 0, MAX_DECIMAL_EXPONENT, 1), None);
    assert_eq!(shape(0, 0, -MAX_DECIMAL_EXPONENT, 1), None);
    assert_eq!(shape(0, 0, MAX_DECIMAL_EXPONENT + 1, 1), bad);
    assert_eq!(shape(0, 0, i8::MIN, 1), bad);
    for (slots, refused) in [(0, true), (1, true), (2, false), (MAX_BUCKETS, false)] {
        assert_eq!(shape(histogram, 0, 0, slots).is_some(), refused, "{slots}");
    }
    assert_eq!(shape(histogram, 0, 0, MAX_BUCKETS + 1), bad);
}

#[test]
fn spec_every_error_has_an_errno_and_advice() {
    for (error, errno) in [
        (Error::NameEmpty, 22),
        (Error::BadSpec, 22),
        (Error::TooLong, 36),
        (Error::NotText, 84),
        (Error::Exists, 17),
        (Error::Unknown, 2),
        (Error::Full, 28),
        (Error::NoMemory, 12),
    ] {
        assert_eq!(error.errno(), errno);
        assert!(!error.explanation().is_empty());
    }
}

proptest! {
    #[test]
    fn spec_any_bytes_are_kept_or_refused(
        name: Vec<u8>, help: Vec<u8>, kind in 0..7u16, unit in 0..10u16, exponent: i8, nr_slots: u16,
    ) {
        let spec = Spec { name: &name, help: &help, kind, unit, exponent, nr_slots };
        if let Ok(desc) = spec.to_checked_desc() {
            prop_assert_eq!(desc.name(), &name[..]);
            prop_assert_eq!(desc.help(), &help[..]);
            prop_assert!(!name.is_empty() && name.len() < NAME_MAX);
            prop_assert!(Kind::from_raw(desc.kind).is_some());
            prop_assert!(desc.nr_slots >= 1);
            prop_assert_eq!(desc.incarnation, 0);
        }
    }

    #[test]
    fn spec_printable_names_are_accepted(name in "[^\\p{C}]{1,30}") {
        prop_assert!(Spec::counter(name.as_bytes()).to_checked_desc().is_ok());
    }
}

#[test]
fn spec_converted_to_words_and_back_is_unchanged() {
    for raw in 0..5 {
        let kind = Kind::from_raw(raw).expect("a kind");
        assert_eq!(kind as u16, raw);
        assert!(!kind.name().is_empty());
    }
    for raw in 0..8 {
        let unit = Unit::from_raw(raw).expect("a unit");
        assert_eq!(unit as u16, raw);
        assert!(!unit.name().is_empty());
    }
}
