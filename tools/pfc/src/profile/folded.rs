// SPDX-License-Identifier: GPL-2.0

//! Writes call stacks as lines for flame graph programs: `command;outermost;...;innermost samples`.

use std::collections::BTreeMap;

use super::{Profile, Sample};

/// The suffix of the names of kernel functions.
const KERNEL_SUFFIX: &str = "_[k]";

/// The suffix of the names of inlined functions, as in the output of stackcollapse-perf.pl.
const INLINED_SUFFIX: &str = "_[i]";

/// Returns the stack of a sample as one line. Semicolons in names are replaced by colons.
fn folded_line(profile: &Profile, sample: &Sample) -> String {
    let mut line = sample.command.replace(';', ":");
    for frame in profile.stack(sample).rev() {
        line.push(';');
        match frame.is_known() {
            true => line.push_str(&frame.symbol.replace(';', ":")),
            false => line.push_str(&format!(
                "[{}]",
                frame.short_object().trim_matches(['[', ']'])
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
