// SPDX-License-Identifier: GPL-2.0

//! Writes call stacks as lines for flame graph programs: `command;outermost;...;innermost samples`.

use std::collections::{BTreeMap, HashMap};

use super::{Frame, Profile};

/// The suffix of the names of kernel functions.
const KERNEL_SUFFIX: &str = "_[k]";

/// The suffix of the names of inlined functions, as in the output of stackcollapse-perf.pl.
const INLINED_SUFFIX: &str = "_[i]";

/// Returns a name in the form for a folded line: semicolons are replaced by colons, and control
/// characters are escaped.
fn escape_folded_name(name: &str) -> String {
    visible::escape(name).replace(';', ":")
}

/// The distinct call stacks of the samples, sorted by the names of their frames, with the outermost
/// frame first. Each name is stored only once, because complete lines of deep stacks would need
/// much memory.
#[derive(Debug, Default)]
pub struct FoldedStacks {
    /// All names, in ascending order.
    names: Vec<String>,
    /// The number of samples of each stack. The key of a stack is the indices of its names, with
    /// the outermost frame first.
    samples_by_stack: BTreeMap<Vec<usize>, u64>,
}

impl FoldedStacks {
    /// Adds up the samples of equal stacks.
    fn new(stacks: impl Iterator<Item = (Vec<usize>, u64)>, names: Vec<String>) -> Self {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|a, b| names[*a].cmp(&names[*b]));
        // `places[n]` is the index of `names[n]` in `sorted`. Equal names have the same index.
        let mut places = vec![0; names.len()];
        let mut sorted: Vec<String> = Vec::new();
        for at in order {
            if sorted.last() != Some(&names[at]) {
                sorted.push(names[at].clone());
            }
            places[at] = sorted.len() - 1;
        }
        let mut all = BTreeMap::new();
        for (mut stack, samples) in stacks {
            stack.iter_mut().for_each(|name| *name = places[*name]);
            *all.entry(stack).or_default() += samples;
        }
        Self {
            names: sorted,
            samples_by_stack: all,
        }
    }

    /// Returns the names of each stack, the outermost first, and its number of samples.
    pub fn iter(&self) -> impl Iterator<Item = (impl Iterator<Item = &str> + '_, u64)> + '_ {
        self.samples_by_stack.iter().map(move |(stack, samples)| {
            let names = stack.iter().map(move |at| self.names[*at].as_str());
            (names, *samples)
        })
    }

    #[cfg(test)]
    pub fn from_folded_lines(lines: &[(&str, u64)]) -> Self {
        let mut names = Vec::new();
        let stacks: Vec<(Vec<usize>, u64)> = lines
            .iter()
            .map(|(line, samples)| {
                let begin = names.len();
                names.extend(line.split(';').map(str::to_owned));
                ((begin..names.len()).collect(), *samples)
            })
            .collect();
        Self::new(stacks.into_iter(), names)
    }
}

/// Returns the name of a frame as it appears in a folded line.
fn folded_frame_name(frame: &Frame) -> String {
    let mut name = match frame.has_known_symbol() {
        true => escape_folded_name(&frame.symbol),
        false => format!(
            "[{}]",
            escape_folded_name(frame.object_file_name().trim_matches(['[', ']']))
        ),
    };
    if frame.is_kernel {
        name.push_str(KERNEL_SUFFIX);
    }
    if frame.is_inlined {
        name.push_str(INLINED_SUFFIX);
    }
    name
}

/// Returns the number of samples of each stack. The first name in a stack is the name of the
/// thread.
pub fn fold_stacks(profile: &Profile) -> FoldedStacks {
    let mut names: Vec<String> = Vec::new();
    // The index of each name. The key has the properties of a frame that determine its name.
    let mut indices: HashMap<(&str, &str, bool, bool), usize> = HashMap::new();
    let frames: Vec<usize> = profile
        .frames
        .iter()
        .map(|frame| {
            let object = if frame.has_known_symbol() {
                ""
            } else {
                &*frame.object
            };
            let key = (&*frame.symbol, object, frame.is_kernel, frame.is_inlined);
            *indices.entry(key).or_insert_with(|| {
                names.push(folded_frame_name(frame));
                names.len() - 1
            })
        })
        .collect();
    let mut commands: HashMap<&str, usize> = HashMap::new();
    for sample in &profile.samples {
        commands
            .entry(&*sample.command)
            .or_insert_with_key(|command| {
                names.push(escape_folded_name(command));
                names.len() - 1
            });
    }
    let stacks = profile.samples.iter().map(|sample| {
        let frames = sample.stack.iter().rev().map(|n| frames[*n]);
        let command = commands[&*sample.command];
        let stack: Vec<usize> = [command].into_iter().chain(frames).collect();
        (stack, 1)
    });
    FoldedStacks::new(stacks, names)
}

#[cfg(test)]
mod tests {
    use super::super::tests::synthetic_profile;
    use super::*;

    #[test]
    fn r1_10_folded_lines_have_no_control_characters() {
        let mut profile = synthetic_profile();
        profile.frames[0].symbol = "f\n1;\x1b[31m".into();
        profile.samples[0].command = "a\tb".into();
        profile.samples.truncate(1);
        let stacks = fold_stacks(&profile);
        let names: Vec<&str> = stacks.iter().next().expect("a stack").0.collect();
        assert_eq!(names, ["a\\tb", "main", "f\\n1:\\x1b[31m"]);
    }
}
