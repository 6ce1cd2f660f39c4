// SPDX-License-Identifier: GPL-2.0

//! Determines the general-purpose counters that can count an event. On some processors only some of
//! the counters can count a certain event; the other counters then count nothing, or other events.

mod amd;
mod intel;

/// A range of events that only some counters count correctly.
struct CounterRule {
    /// The first event code of the range. An event is in the range if its code, masked with
    /// `code_mask`, is from `first` to `last`.
    first: u16,
    last: u16,
    code_mask: u16,
    /// Bit n is set if counter n can count the events of the range.
    counter_mask: u64,
}

const fn rule(first: u16, last: u16, code_mask: u16, counter_mask: u64) -> CounterRule {
    CounterRule {
        first,
        last,
        code_mask,
        counter_mask,
    }
}

/// An event that is counted correctly only if a second register is programmed, in addition to the
/// control register of the counter.
struct ExtraMsr {
    /// Event number and unit mask of the event.
    code: u16,
    /// The name that perf uses for the MSR that must be programmed in addition to the control
    /// register.
    msr_name: &'static str,
}

const fn extra_msr(code: u16, msr_name: &'static str) -> ExtraMsr {
    ExtraMsr { code, msr_name }
}

/// A processor model: its family number, its model number, its tables of rules, and its tables of
/// events that need a second register.
type Model = (
    u32,
    u32,
    &'static [&'static [CounterRule]],
    &'static [&'static [ExtraMsr]],
);

/// The resource that an event needs in addition to a counter and the counter's control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraResource {
    /// The Intel register with this name must be programmed in addition to the control register.
    Register(&'static str),
    /// Two counters of an AMD processor must be merged into one counter.
    Merge,
}

/// Returns what an event needs in addition to a counter on an Intel model. Returns `None` if the
/// event needs only a counter and the counter's control register, or if the model is unknown.
pub fn intel_extra_resource(family: u32, model: u32, code: u64) -> Option<ExtraResource> {
    let models = intel::INTEL_MODELS
        .iter()
        .filter(|m| (m.0, m.1) == (family, model));
    let mut extras = models.flat_map(|m| m.3).flat_map(|table| table.iter());
    let found = extras.find(|e| e.code == code as u16)?;
    Some(ExtraResource::Register(found.msr_name))
}

/// Returns what an event needs in addition to a counter on an AMD family. Returns `None` if the
/// event needs only a counter and the counter's control register.
pub fn amd_extra_resource(family: u32, code: u64) -> Option<ExtraResource> {
    amd::needs_merged_counters(family, code).then_some(ExtraResource::Merge)
}

/// Returns the mask of the counters that can count an event on an AMD family.
pub fn amd_counter_mask(family: u32, code: u64) -> u64 {
    amd::counter_mask(family, code)
}

/// Returns true if the event number of an Intel event code (bits 0 to 7) is 0. Codes with event
/// number 0 are pseudo-encodings of fixed counters, and count nothing on general counters.
pub const fn is_intel_fixed_only(code: u64) -> bool {
    code & 0xff == 0
}

/// Returns the mask of the general counters that can count an event on an Intel model. If no rule
/// matches the event, all bits of the mask are set. On a model with two kinds of CPU, the mask has
/// only the counters that can count the event on both kinds.
pub fn intel_counter_mask(family: u32, model: u32, code: u64) -> u64 {
    let models = intel::INTEL_MODELS
        .iter()
        .filter(|m| (m.0, m.1) == (family, model));
    models
        .flat_map(|m| m.2)
        .filter_map(|table| {
            // Use the first rule that matches, like perf.
            let fits = |rule: &&CounterRule| {
                (rule.first..=rule.last).contains(&(code as u16 & rule.code_mask))
            };
            table.iter().find(fits)
        })
        .fold(u64::MAX, |counters, rule| counters & rule.counter_mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_16_intel_counter_mask_follows_the_rules() {
        // On Haswell, only counter 2 can count L1D_PEND_MISS.PENDING, but all counters can count
        // another unit mask of the same event.
        assert_eq!(intel_counter_mask(6, 0x3c, 0x0148), 4);
        assert_eq!(intel_counter_mask(6, 0x3c, 0x0248), u64::MAX);
        // On Ice Lake, one rule covers a range of codes (retired loads). If several rules match a
        // code, the first rule applies.
        assert_eq!(intel_counter_mask(6, 0x7e, 0x81d0), 0xf);
        assert_eq!(intel_counter_mask(6, 0x7e, 0x04a3), 0xff);
        assert_eq!(intel_counter_mask(6, 0x7e, 0x01a3), 0xf);
        assert_eq!(intel_counter_mask(6, 0x7e, 0x00c0), u64::MAX);
        // All counters can count every event of an unknown model.
        assert_eq!(intel_counter_mask(6, 0x01, 0x0148), u64::MAX);
        assert_eq!(intel_counter_mask(0x17, 0x3c, 0x0148), u64::MAX);
    }

    #[test]
    fn r1_16_offcore_and_pebs_events_need_a_register() {
        let extra_resource = |model, code| intel_extra_resource(6, model, code);
        let register = |name| Some(ExtraResource::Register(name));
        // On Skylake, the events 0x01b7, 0x01bb, 0x01cd and 0x01c6 need a register in addition to
        // the control register of the counter.
        assert_eq!(extra_resource(0x5e, 0x01b7), register("OFFCORE_RSP_0"));
        assert_eq!(extra_resource(0x5e, 0x01bb), register("OFFCORE_RSP_1"));
        assert_eq!(
            extra_resource(0x5e, 0x01cd),
            register("PEBS_LD_LAT_THRESHOLD")
        );
        assert_eq!(extra_resource(0x5e, 0x01c6), register("PEBS_FRONTEND"));
        assert_eq!(extra_resource(0x5e, 0x00c0), None);
        // Haswell has no PEBS_FRONTEND events. On Sapphire Rapids, the OFFCORE_RSP events have
        // other codes than on Skylake.
        assert_eq!(extra_resource(0x3c, 0x01c6), None);
        assert_eq!(extra_resource(0x8f, 0x012a), register("OFFCORE_RSP_0"));
        assert_eq!(extra_resource(0x8f, 0x01b7), None);
        assert_eq!(extra_resource(0x01, 0x01b7), None);
    }

    #[test]
    fn r1_16_amd_family_15h_counter_masks() {
        let counters = |code| amd_counter_mask(0x15, code);
        assert_eq!(counters(0x0000), 0x38);
        assert_eq!(counters(0x1100), 0x08);
        assert_eq!(counters(0x0304), 0x08);
        assert_eq!(counters(0x00c0), 0x3f);
        assert_eq!(counters(0x1_0000_00c0), 0x38);
        assert_eq!(counters(0x002e), 0x09);
        assert_eq!((counters(0x0131), counters(0x0331)), (0x07, 0));
        assert_eq!(
            (counters(0x008f), counters(0x0080), counters(0x00dc)),
            (0x01, 0x07, 0x3f)
        );
        assert_eq!((counters(0x00e0), counters(0x00a0)), (0, 0));
        assert_eq!(amd_counter_mask(0x17, 0x00e0), u64::MAX);
    }

    #[test]
    fn r1_16_amd_event_3_needs_merged_counters() {
        assert_eq!(amd_extra_resource(0x17, 0xff03), Some(ExtraResource::Merge));
        assert_eq!(amd_extra_resource(0x19, 0x0803), Some(ExtraResource::Merge));
        assert_eq!(amd_extra_resource(0x15, 0xff03), None);
        assert_eq!(amd_extra_resource(0x17, 0x1_0000_0003), None);
    }
}
