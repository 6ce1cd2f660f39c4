// SPDX-License-Identifier: GPL-2.0

//! Writes call stacks as lines for flame graph programs: `command;outermost;...;innermost samples`.

use std::collections::BTreeMap;

use super::{Profile, Sample};

/// The suffix of the names of kernel functions.
const KERNEL_SUFFIX: &str = "_[k]";

/// The suffix of the names of inlined functions, as in the output of stackcollapse-perf.pl.
const INLINED_SUFFIX: &str = "_[i]";

/// Returns a name for a line: semicolons are replaced by colons, and control characters are made
/// visible.
fn folded_name(name: &str) -> String {
    visible::escape(name).replace(';', ":")
}

/// Returns the stack of a sample as one line.
fn folded_line(profile: &Profile, sample: &Sample) -> String {
    let mut line = folded_name(&sample.command);
    for frame in profile.stack(sample).rev() {
        line.push(';');
        match frame.is_known() {
            true => line.push_str(&folded_name(&frame.symbol)),
            false => line.push_str(&format!(
                "[{}]",
                folded_name(frame.short_object().trim_matches(['[', ']']))
            )),
        }
        if frame.is_kernel {
            line.push_str(KERNEL_SUFFIX);
        }
        if frame.is_inlined {
            line.push_str(INLINED_SUFFIX);
        }
    }
    line
}

/// Returns the number of samples of each stack.
pub fn fold_stacks(profile: &Profile) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for sample in &profile.samples {
        *all.entry(folded_line(profile, sample)).or_default() += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::synthetic;
    use super::*;

    #[test]
    fn r1_10_a_line_has_no_control_characters() {
        let mut profile = synthetic();
        profile.frames[0].symbol = "f\n1;\x1b[31m".into();
        profile.samples[0].command = "a\tb".into();
        let line = folded_line(&profile, &profile.samples[0]);
        assert_eq!(line, "a\\tb;main;f\\n1:\\x1b[31m");
    }
}
