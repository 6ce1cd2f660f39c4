// SPDX-License-Identifier: GPL-2.0

//! Tests that names are demangled as perf does it, and that the work on a name is limited.

use super::cpp::CppNameParser;
use super::text::MAX_DEMANGLING_WORK;
use super::*;

/// Mangled names, and the names that perf and c++filt -p print for them.
const MANGLED_AND_SOURCE_NAMES: [(&str, &str); 28] = [
    ("_ZN3foo3barEi", "foo::bar"),
    ("_ZL6staticv", "static"),
    (
        "_ZN12_GLOBAL__N_11fEv.constprop.0",
        "(anonymous namespace)::f",
    ),
    ("_ZN1AC2ERKS_", "A::A"),
    ("_ZN1AIiED0Ev", "A<int>::~A"),
    ("_ZN1AIiEltIiEEbRKS0_", "A<int>::operator< <int>"),
    ("_ZNK1AcvbEv", "A::operator bool"),
    ("_ZN1XcvT_IiEEv", "X::operator int<int>"),
    ("_ZN1XcvPFvT_EIiEEv", "X::operator void (*)(int)<int>"),
    ("_Zli2_kPKc", "operator\"\" _k"),
    ("_Znwm", "operator new"),
    ("_ZThn16_N1A1fEv", "non-virtual thunk to A::f()"),
    (
        "_ZNKSt3setIiSt4lessIiESaIiEE4sizeEv",
        "std::set<int, std::less<int>, std::allocator<int> >::size",
    ),
    (
        "_ZNSsC1ERKSs",
        "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string",
    ),
    (
        "_ZNSt8functionIFvvEEC1IZ4mainEUlvE_vEEOT_",
        "std::function<void ()>::function<main::{lambda()#1}, void>",
    ),
    (
        "_ZZN1A1fEicENKUlRT_E0_clIdEEDaS1_",
        "A::f(int, char)::{lambda(auto:1&)#2}::operator()<double>",
    ),
    (
        "_ZZ1fIJicEEvDpRKT_E1x",
        "f<int, char>(int const&, char const&)::x",
    ),
    (
        "_Z1fIPFivEPA3_iM1AiMS4_KFvvEEvv",
        "f<int (*)(), int (*) [3], int A::*, void (A::*)() const>",
    ),
    (
        "_Z1fILi3ELb1ELm4ELin5ELc97EEvv",
        "f<3, true, 4ul, -5, (char)97>",
    ),
    ("_Z1fIXplLi1ELi2EEEvv", "f<(1)+(2)>"),
    (
        "_ZNSt9enable_ifIXsr11is_integralIiEE5valueEiE1gEv",
        "std::enable_if<is_integral<int>::value, int>::g",
    ),
    // Names with C++20 constraints, as clang and gcc mangle them.
    (
        "_ZN2DB5Field6createIcQeqstT_Li1EEEvPKS2_m",
        "DB::Field::create<char>",
    ),
    ("_Z1fITk1CiEvv", "f<int>"),
    (
        "_ZN3FooIiE6methodITk4TrueIT_EiEEvS3_",
        "Foo<int>::method<int>",
    ),
    ("_Z1fIiQaa1CIT_E1DIS0_EEEvv", "f<int>"),
    ("_ZN3FooIdEC2IiEET_QrqQ1CITL0__EE", "Foo<double>::Foo<int>"),
    ("_Z1fITpTk1CJicEEvDpT_", "f<int, char>"),
    ("_ZNH1A1fES_i", "A::f"),
];

#[test]
fn r1_9_names_are_demangled_as_by_perf() {
    for (mangled, name) in MANGLED_AND_SOURCE_NAMES {
        assert_eq!(demangle(mangled).as_deref(), Some(name), "{mangled}");
    }
    assert_eq!(demangle("main"), None);
    let legacy = "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE";
    let rust = demangle(legacy);
    assert_eq!(rust.as_deref(), Some("core::fmt::Write::write_fmt"));
    let v0 = demangle("_RNvMs0_NtCs5l0EXMQXRMU_4core3fmtNtB5_9Formatter9write_str");
    assert_eq!(v0.as_deref(), Some("<core::fmt::Formatter>::write_str"));
}

#[test]
fn r1_9_deeply_nested_names_are_demangled() {
    // Forty nested templates, as in programs that use expression templates.
    let types = format!("{}ii{}", "1AI".repeat(40), "E".repeat(40));
    let name = demangle(&format!("_ZN1BI{types}E1fEv")).expect("a name");
    assert!(name.starts_with("B<A<A<A<") && name.ends_with("> >::f"));
    assert_eq!(name.matches("A<").count(), 40);
}

#[test]
fn r1_9_a_name_that_would_be_too_long_stays_mangled() {
    let long = format!("_Z1fI{}Evv", "3abc".repeat(4000));
    assert!(long.len() < MAX_MANGLED_NAME_BYTES);
    assert_eq!(demangle(&long), None);
    // A Rust function in which the type of each argument refers twice to the type of the previous
    // argument.
    let mut rust = String::from("_RINvC1a1fTuuE");
    let mut at = rust.len() - 6;
    for _ in 0..30 {
        let back = at - 2;
        at = rust.len();
        rust.push_str(&format!("TB{0}_B{0}_E", encode_base62(back)));
    }
    rust.push('E');
    assert!(rustc_demangle::try_demangle(&rust).is_ok());
    assert_eq!(demangle(&rust), None);
}

fn encode_base62(mut number: usize) -> String {
    const BASE62_DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut text = String::new();
    number -= 1;
    loop {
        text.insert(0, char::from(BASE62_DIGITS[number % 62]));
        number /= 62;
        if number == 0 {
            return text;
        }
    }
}

/// Demangles a name. Returns the demangled name, and the work that was counted for it.
fn demangle_and_count_work(name: &str) -> (Option<String>, usize) {
    let mut parser = CppNameParser::new(name).expect("a mangled name");
    let text = parser.read_encoding(false);
    (text, parser.limits.spent_work)
}

#[test]
fn r1_9_work_on_a_name_that_doubles_in_each_part_is_limited() {
    // f<A<int, int>, A<A<int, int>, A<int, int> >, ...>: each argument is twice as long as the
    // previous argument, so that the whole name would have 10^11 letters.
    let digits: Vec<char> = ('1'..='9').chain('A'..='Z').collect();
    let doubled: Vec<String> = digits.iter().map(|d| format!("S0_IS{d}_S{d}_E")).collect();
    let (text, work) = demangle_and_count_work(&format!("_Z1fI1AIiiE{}Evv", doubled.concat()));
    assert_eq!(text, None);
    assert!(work < 100_000, "{work}");
    // For each use of a parameter pack, the parser reads the types of the pack again.
    let doubled: Vec<String> = (0..30).map(|n| format!("DpT{n}_DpT{n}_")).collect();
    let packs = format!("_ZZ1fIJ{}EEvDpT_ENKUlvE_clEv", doubled.concat());
    let (text, work) = demangle_and_count_work(&packs);
    assert!(text.is_none_or(|text| text.len() <= MAX_DEMANGLED_NAME_BYTES));
    assert!(work <= 2 * MAX_DEMANGLING_WORK, "{work}");
}

#[test]
fn r1_9_nesting_depth_of_a_name_is_limited() {
    for part in [
        "P",
        "UlPFv",
        "IXsrDT",
        "N1AIXcvDT",
        "S_I",
        "Z1fI",
        "1AIJ",
        "LZ",
        "UlTt",
    ] {
        let (text, work) = demangle_and_count_work(&format!("_Z1f{}", part.repeat(3000)));
        assert!(text.is_none_or(|text| text == "f"));
        assert!(work < 10_000, "{part}: {work}");
    }
}

#[test]
fn r1_9_damaged_names_cause_no_panic() {
    // Demangling does not panic on any prefix of a name, or on a name with one changed letter.
    let names = MANGLED_AND_SOURCE_NAMES.iter().map(|(name, _)| *name);
    let max = usize::MAX;
    let number = [
        format!("_Z{max}x"),
        format!("_Z1fIXsr{max}xE"),
        format!("_ZUt{max}_"),
    ];
    for name in names.chain(number.iter().map(String::as_str)) {
        for end in 2..name.len() {
            for replacement in ["", "E", "_", "S_", "T_", "I", "Dp", "Q", "99"] {
                let changed = [&name[..end], replacement, &name[end + 1..]].concat();
                for text in [&changed, &changed[..end]] {
                    if let Some(mut parser) = CppNameParser::new(text) {
                        let _ = parser.read_encoding(false);
                        assert!(
                            parser.limits.spent_work <= 2 * MAX_DEMANGLING_WORK,
                            "{text}"
                        );
                    }
                }
            }
        }
    }
}
