// SPDX-License-Identifier: GPL-2.0

//! Stacks as lines: `command;outermost;...;innermost samples`, as flame graph programs
//! take them.

use std::collections::BTreeMap;

use super::{Profile, Sample};

/// Behind names of the kernel's functions.
const KERNEL_SUFFIX: &str = "_[k]";

/// The sample's stack in one line; the semicolons in names are changed.
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
    }
    line
}

/// How many samples have each stack.
pub fn fold_stacks(profile: &Profile) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for sample in &profile.samples {
        *all.entry(folded_line(profile, sample)).or_default() += 1;
    }
    all
}
