// SPDX-License-Identifier: GPL-2.0

//! The constraints of AMD processors, from the file arch/x86/events/amd/core.c of perf. The rules
//! of family 15h are those of `amd_get_event_constraints_f15h()`. From family 17h on, some events
//! need two merged counters. libpfm4 has no constraints for AMD.

/// Counter masks that the rules of family 15h use.
const COUNTER_0: u64 = 0x01;
const COUNTERS_0_TO_2: u64 = 0x07;
const COUNTER_3: u64 = 0x08;
const COUNTERS_0_AND_3: u64 = 0x09;
const COUNTERS_3_TO_5: u64 = 0x38;
const COUNTERS_0_TO_5: u64 = 0x3f;

/// Returns the event number, which is in bits 0 to 7 of the code and in four bits above the unit
/// mask.
const fn event_number(code: u64) -> u64 {
    (code & 0xff) | ((code >> 24) & 0xf00)
}

/// Returns true if the code selects more than one bit of the unit mask.
const fn selects_several_unit_bits(code: u64) -> bool {
    (code & 0xff00).count_ones() > 1
}

/// Returns the mask of the counters that can count an event of an AMD processor. In family 15h the
/// mask is 0 for events of the northbridge, which a core's counters cannot count.
pub(super) fn counter_mask(family: u32, code: u64) -> u64 {
    match family {
        0x15 => family_15h_counter_mask(code),
        _ => u64::MAX,
    }
}

fn family_15h_counter_mask(code: u64) -> u64 {
    let event = event_number(code);
    // The upper hexadecimal digit of the event number selects a unit of the processor. For each
    // unit of the processor, the rules for single events come before the rule for the unit's other
    // events.
    match (event & 0xf0, event) {
        (0x00 | 0x10, 0x000) if code & 0xf000 != 0 && code & 0x0f00 != 0 => COUNTER_3,
        (0x00 | 0x10, 0x004) if selects_several_unit_bits(code) => COUNTER_3,
        (0x00 | 0x10, 0x003 | 0x00b | 0x00d) => COUNTER_3,
        (0x00 | 0x10, _) => COUNTERS_3_TO_5,
        (0x20..=0x50 | 0xc0, 0x023 | 0x043 | 0x045 | 0x046 | 0x054 | 0x055) => COUNTERS_0_TO_2,
        (0x20..=0x50 | 0xc0, 0x02d) => COUNTER_3,
        (0x20..=0x50 | 0xc0, 0x02e) => COUNTERS_0_AND_3,
        (0x20..=0x50 | 0xc0, 0x031) if selects_several_unit_bits(code) => 0,
        (0x20..=0x50 | 0xc0, 0x031) => COUNTERS_0_TO_2,
        (0x20..=0x50 | 0xc0, 0x1c0) => COUNTERS_3_TO_5,
        (0x20..=0x50 | 0xc0, _) => COUNTERS_0_TO_5,
        (0x60..=0x90 | 0xd0, 0x08f | 0x187 | 0x188) => COUNTER_0,
        (0x60..=0x90 | 0xd0, 0x0db..=0x0df | 0x1d6 | 0x1d8) => COUNTERS_0_TO_5,
        (0x60..=0x90 | 0xd0, _) => COUNTERS_0_TO_2,
        // Event numbers with the upper digit 0xa, 0xb, 0xe or 0xf belong to the northbridge or to
        // no unit, so no counter of a core counts them.
        _ => 0,
    }
}

/// Returns true if the event needs two merged counters, because it may occur more than 15 times in
/// a cycle.
pub(super) fn needs_merged_counters(family: u32, code: u64) -> bool {
    family >= 0x17 && event_number(code) == 0x003
}
