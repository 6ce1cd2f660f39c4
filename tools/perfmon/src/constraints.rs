// SPDX-License-Identifier: GPL-2.0

//! Which general counters can count an event: on some processors not all of them can, and the
//! others count nothing, or something else.

mod amd;
mod intel;

/// Events of which only these counters count right.
struct Rule {
    /// Codes from here to there, of the bits of `mask`.
    first: u16,
    last: u16,
    mask: u16,
    /// Bit n: counter n.
    counters: u64,
}

const fn rule(first: u16, last: u16, mask: u16, counters: u64) -> Rule {
    Rule {
        first,
        last,
        mask,
        counters,
    }
}

/// An event that is counted whole only with a second register beside its counter's.
struct Extra {
    /// Event and unit mask.
    code: u16,
    /// perf's name of the model-specific register.
    register: &'static str,
}

const fn extra(code: u16, register: &'static str) -> Extra {
    Extra { code, register }
}

/// Family, model, rules of counters, and events with a second register.
type Model = (
    u32,
    u32,
    &'static [&'static [Rule]],
    &'static [&'static [Extra]],
);

/// Why a processor's counters alone cannot count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// Intel's: this register would have to be programmed as well.
    Register(&'static str),
    /// AMD's: two counters would have to be merged into one.
    Merge,
}

/// What an event of that code lacks on that model of Intel's, as far as that is known.
pub fn lacking_of_intel(family: u32, model: u32, code: u64) -> Option<Lacking> {
    let known = intel::MODELS
        .iter()
        .filter(|m| (m.0, m.1) == (family, model));
    let mut extras = known.flat_map(|m| m.3).flat_map(|table| table.iter());
    let found = extras.find(|e| e.code == code as u16)?;
    Some(Lacking::Register(found.register))
}

/// What an event of that code lacks in that family of AMD's.
pub fn lacking_of_amd(family: u32, code: u64) -> Option<Lacking> {
    amd::is_merged(family, code).then_some(Lacking::Merge)
}

/// AMD's counters, bit by bit, that can count an event of that code in that family.
pub fn of_amd(family: u32, code: u64) -> u64 {
    amd::counters(family, code)
}

/// Intel's general counters, bit by bit, that can count an event of that code on that model. All
/// of them, where nothing is known. Of a model with two kinds of CPU: on either.
pub fn of_intel(family: u32, model: u32, code: u64) -> u64 {
    let known = intel::MODELS
        .iter()
        .filter(|m| (m.0, m.1) == (family, model));
    known
        .flat_map(|m| m.2)
        .filter_map(|table| {
            // The first one that fits, as in perf.
            let fits = |rule: &&Rule| (rule.first..=rule.last).contains(&(code as u16 & rule.mask));
            table.iter().find(fits)
        })
        .fold(u64::MAX, |counters, rule| counters & rule.counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_some_counters_count_some_events() {
        // Haswell's L1D_PEND_MISS.PENDING, and another one of the same event.
        assert_eq!(of_intel(6, 0x3c, 0x0148), 4);
        assert_eq!(of_intel(6, 0x3c, 0x0248), u64::MAX);
        // Ice Lake's loads retired, a range; the first rule that fits counts.
        assert_eq!(of_intel(6, 0x7e, 0x81d0), 0xf);
        assert_eq!(of_intel(6, 0x7e, 0x04a3), 0xff);
        assert_eq!(of_intel(6, 0x7e, 0x01a3), 0xf);
        assert_eq!(of_intel(6, 0x7e, 0x00c0), u64::MAX);
        // Nobody knows this model.
        assert_eq!(of_intel(6, 0x01, 0x0148), u64::MAX);
        assert_eq!(of_intel(0x17, 0x3c, 0x0148), u64::MAX);
    }

    #[test]
    fn r1_16_some_events_need_a_second_register() {
        let of = |model, code| lacking_of_intel(6, model, code);
        let register = |name| Some(Lacking::Register(name));
        // Skylake.
        assert_eq!(of(0x5e, 0x01b7), register("OFFCORE_RSP_0"));
        assert_eq!(of(0x5e, 0x01bb), register("OFFCORE_RSP_1"));
        assert_eq!(of(0x5e, 0x01cd), register("PEBS_LD_LAT_THRESHOLD"));
        assert_eq!(of(0x5e, 0x01c6), register("PEBS_FRONTEND"));
        assert_eq!(of(0x5e, 0x00c0), None);
        // Haswell has no such events of its front end, Sapphire Rapids others of memory.
        assert_eq!(of(0x3c, 0x01c6), None);
        assert_eq!(of(0x8f, 0x012a), register("OFFCORE_RSP_0"));
        assert_eq!(of(0x8f, 0x01b7), None);
        assert_eq!(of(0x01, 0x01b7), None);
    }

    #[test]
    fn r1_16_amds_counters_of_family_15h() {
        let of = |code| of_amd(0x15, code);
        assert_eq!(of(0x0000), 0x38);
        assert_eq!(of(0x1100), 0x08);
        assert_eq!(of(0x0304), 0x08);
        assert_eq!(of(0x00c0), 0x3f);
        assert_eq!(of(0x1_0000_00c0), 0x38);
        assert_eq!(of(0x002e), 0x09);
        assert_eq!((of(0x0131), of(0x0331)), (0x07, 0));
        assert_eq!((of(0x008f), of(0x0080), of(0x00dc)), (0x01, 0x07, 0x3f));
        assert_eq!((of(0x00e0), of(0x00a0)), (0, 0));
        assert_eq!(of_amd(0x17, 0x00e0), u64::MAX);
    }

    #[test]
    fn r1_16_amds_merged_counters() {
        assert_eq!(lacking_of_amd(0x17, 0xff03), Some(Lacking::Merge));
        assert_eq!(lacking_of_amd(0x19, 0x0803), Some(Lacking::Merge));
        assert_eq!(lacking_of_amd(0x15, 0xff03), None);
        assert_eq!(lacking_of_amd(0x17, 0x1_0000_0003), None);
    }
}
