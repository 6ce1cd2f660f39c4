// SPDX-License-Identifier: GPL-2.0

//! Instances (named counters): the catalogue of all instances, selections from the catalogue, and
//! name patterns. Each change of the set of instances begins a new *generation*; a catalogue
//! describes one generation.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use counters_rules::abi::{self, Desc, Kind, Unit};

use crate::error::Error;
use crate::map::DeviceMap;
use crate::raw;

/// The state of an instance: whether its owner still updates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// The instance exists, and its owner updates it.
    Live,
    /// The owner has deleted the instance. A deleted instance keeps its number and its last values.
    Dormant,
}

impl InstanceState {
    /// Returns the name of the state, as it appears in all output of pfc.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Dormant => "dormant",
        }
    }
}

/// The description of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The number of the instance. A name keeps its number while `perfcounters.ko` is loaded, with
    /// one exception: a name gets a new number if it is added again with more slots, and the slots
    /// do not fit at the old number.
    pub number: u32,
    /// The name of the instance, such as `block/sda1/read_bytes`. Control characters in the name
    /// are replaced by escape sequences.
    pub name: String,
    /// The help text: one sentence, or empty. Control characters in the text are replaced by escape
    /// sequences.
    pub help: String,
    /// The kind of the instance. The kind determines how the values of several CPUs are combined,
    /// and how two snapshots are compared. A kind that this reader does not know is treated as a
    /// gauge, or as a histogram if the instance has several slots.
    pub effective_kind: Kind,
    /// The raw number of the kind if this reader does not know the kind; otherwise `None`.
    pub unknown_kind: Option<u16>,
    /// The unit of the values: `value` means `value * 10^exponent` units. A unit that this reader
    /// does not know is treated as `Unit::None`.
    pub unit: Unit,
    /// The power of ten by which the values are multiplied: for nanoseconds the unit is seconds and
    /// the exponent is -9.
    pub exponent: i8,
    /// Number of 64-bit slots per CPU: the number of buckets of a histogram, otherwise 1.
    pub nr_slots: u16,
    /// The incarnation: how many times the name was added so far. After the first addition of the
    /// name, the incarnation is 1.
    pub incarnation: u32,
    /// The state of the instance: live or dormant.
    pub state: InstanceState,
    /// CLOCK_REALTIME in nanoseconds when the instance was last added.
    pub created_ns: u64,
    /// CLOCK_REALTIME in nanoseconds when the instance became dormant; 0 while it is live.
    pub ended_ns: u64,
}

impl Instance {
    /// Checks a descriptor and converts it to an [`Instance`]. Returns `None` if the descriptor is
    /// free.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the number, the kind and the number of slots in the descriptor
    /// contradict each other.
    fn from_desc(number: u32, desc: &Desc) -> Result<Option<Self>, Error> {
        let state = match desc.state {
            abi::LIVE => InstanceState::Live,
            abi::DORMANT => InstanceState::Dormant,
            _ => return Ok(None),
        };
        let known = Kind::from_raw(desc.kind);
        let kind = known.unwrap_or(match desc.nr_slots {
            1 => Kind::Gauge,
            _ => Kind::Histogram,
        });
        if desc.instance != number || desc.nr_slots == 0 {
            return Err(Error::Corrupt(
                "descriptor with the number of another instance, or without slots",
            ));
        }
        if kind != Kind::Histogram && desc.nr_slots != 1 {
            return Err(Error::Corrupt(
                "several slots in an instance that is not a histogram",
            ));
        }
        Ok(Some(Self {
            number,
            name: escape_to_printable(desc.name()),
            help: escape_to_printable(desc.help()),
            effective_kind: kind,
            unknown_kind: known.is_none().then_some(desc.kind),
            unit: Unit::from_raw(desc.unit).unwrap_or(Unit::None),
            exponent: desc.exponent,
            nr_slots: desc.nr_slots,
            incarnation: desc.incarnation,
            state,
            created_ns: desc.created_ns,
            ended_ns: desc.ended_ns,
        }))
    }

    /// Returns the name of the kind, or the raw number of a kind that this reader does not know.
    pub fn kind_name(&self) -> Cow<'static, str> {
        match self.unknown_kind {
            Some(number) => number.to_string().into(),
            None => self.effective_kind.name().into(),
        }
    }

    /// Returns true if the slots are histogram buckets whose bounds are powers of two. Returns
    /// false for an unknown kind with several slots, because its slots may not be buckets.
    pub fn has_log2_buckets(&self) -> bool {
        self.effective_kind == Kind::Histogram && self.unknown_kind.is_none()
    }

    /// Returns the range of slot numbers of the instance, which is the same on every CPU.
    fn slot_numbers(&self) -> Range<u32> {
        self.number..self.number.saturating_add(u32::from(self.nr_slots))
    }
}

/// Converts bytes to text that can be printed. The kernel accepts only UTF-8 without control
/// characters, but a file that was not written by the kernel can contain any bytes.
fn escape_to_printable(bytes: &[u8]) -> String {
    visible::escape_bytes(bytes).into_owned()
}

/// A copy of the set of all instances, at one generation.
#[derive(Debug)]
pub struct InstanceCatalogue {
    pub(crate) generation: u64,
    pub(crate) boot_id: [u8; 16],
    pub(crate) cpus: Arc<[u32]>,
    pub(crate) slots_per_chunk: u32,
    instances: Vec<Instance>,
    index_by_name: HashMap<String, usize>,
}

impl InstanceCatalogue {
    /// Creates an empty catalogue of the generation `u64::MAX`. The kernel counts generations from
    /// zero, and never reaches `u64::MAX`.
    pub(crate) fn empty(boot_id: [u8; 16], cpus: Arc<[u32]>) -> Self {
        Self {
            generation: u64::MAX,
            boot_id,
            cpus,
            slots_per_chunk: 1,
            instances: Vec::new(),
            index_by_name: HashMap::new(),
        }
    }

    /// Copies all descriptors of instances from the mapped device. If the generation has changed
    /// during the copy, the caller must discard the result, even if the result is an error.
    pub(crate) fn copy_from_map(
        map: &DeviceMap,
        generation: u64,
        boot_id: [u8; 16],
        cpus: Arc<[u32]>,
    ) -> Result<Self, Error> {
        let per_chunk = map.layout().slots_per_chunk();
        let nr_slots = map.extent().nr_slots;
        let mut instances: Vec<Instance> = Vec::new();
        let mut index_by_name = HashMap::new();
        let mut next_free = 1;
        for number in 1..nr_slots {
            let Some(words) = map.descriptor_words(number) else {
                break;
            };
            let Some(instance) = Instance::from_desc(number, &raw::desc_from_words(words))? else {
                continue;
            };
            let range = instance.slot_numbers();
            if range.start < next_free || range.end > nr_slots {
                return Err(Error::Corrupt(
                    "slot shared by two instances, or beyond the last one",
                ));
            }
            if range.start / per_chunk != (range.end - 1) / per_chunk {
                return Err(Error::Corrupt("histogram crosses the end of its chunk"));
            }
            next_free = range.end;
            index_by_name.insert(instance.name.clone(), instances.len());
            instances.push(instance);
        }
        Ok(Self {
            generation,
            boot_id,
            cpus,
            slots_per_chunk: per_chunk,
            instances,
            index_by_name,
        })
    }

    /// Returns the generation of the set of instances.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the boot id of the module `perfcounters.ko` that gave the instances their numbers.
    /// The boot id changes each time the module is loaded.
    pub fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }

    /// Returns the possible CPUs in ascending order. Every snapshot has one row for each possible
    /// CPU.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Returns all instances in the order of their numbers, including dormant ones.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Returns the live or dormant instance with this name.
    pub fn find(&self, name: &str) -> Option<&Instance> {
        self.instances.get(*self.index_by_name.get(name)?)
    }

    /// Returns the live or dormant instance with this number.
    pub fn get(&self, number: u32) -> Option<&Instance> {
        let at = self
            .instances
            .binary_search_by_key(&number, |i| i.number)
            .ok()?;
        self.instances.get(at)
    }

    /// Selects the instances that match a pattern.
    pub fn select(self: &Arc<Self>, pattern: &InstancePattern) -> Selection {
        let mut selected = Vec::new();
        let mut ranges: Vec<SlotRange> = Vec::new();
        let mut values_per_cpu = 0;
        for (index, instance) in self.instances.iter().enumerate() {
            if !pattern.matches(instance) {
                continue;
            }
            selected.push(SelectedInstance {
                catalogue_index: index,
                first_column: values_per_cpu,
            });
            values_per_cpu += usize::from(instance.nr_slots);
            let chunk = instance.number / self.slots_per_chunk;
            let first = (instance.number % self.slots_per_chunk) as usize;
            let len = usize::from(instance.nr_slots);
            match ranges.last_mut() {
                Some(last) if last.chunk == chunk && last.first + last.len == first => {
                    last.len += len;
                }
                _ => ranges.push(SlotRange { chunk, first, len }),
            }
        }
        Selection {
            catalogue: Arc::clone(self),
            selected,
            ranges,
            values_per_cpu,
        }
    }
}

/// A range of adjacent slots in one chunk, which are copied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub chunk: u32,
    pub first: usize,
    pub len: usize,
}

/// A selected instance: its index in the catalogue, and the column of its first value in a CPU's
/// row of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectedInstance {
    pub catalogue_index: usize,
    pub first_column: usize,
}

/// Selected instances of a catalogue, with the positions of their values in the mapping.
#[derive(Debug)]
pub struct Selection {
    pub(crate) catalogue: Arc<InstanceCatalogue>,
    pub(crate) selected: Vec<SelectedInstance>,
    pub(crate) ranges: Vec<SlotRange>,
    pub(crate) values_per_cpu: usize,
}

impl Selection {
    /// Returns the catalogue from which the selection was made.
    pub fn catalogue(&self) -> &Arc<InstanceCatalogue> {
        &self.catalogue
    }

    /// Returns the selected instances in the order of their numbers.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Instance> + '_ {
        self.selected
            .iter()
            .map(|selected| &self.catalogue.instances[selected.catalogue_index])
    }

    /// Returns the number of values per CPU: the sum of the slots of all selected instances.
    pub fn values_per_cpu(&self) -> usize {
        self.values_per_cpu
    }

    /// Returns true if the selection contains no instance.
    pub fn is_empty(&self) -> bool {
        self.selected.is_empty()
    }

    pub(crate) fn find_by_number(&self, number: u32) -> Option<SelectedInstance> {
        let at = self
            .selected
            .binary_search_by_key(&number, |p| {
                self.catalogue.instances[p.catalogue_index].number
            })
            .ok()?;
        self.selected.get(at).copied()
    }
}

/// A pattern that selects instances by state and by name. A name is selected if it matches at least
/// one word of the pattern.
///
/// A word with `*`, `?` or `[` is a glob that must match the whole name. In a glob, `*` matches any
/// characters, also slashes. A word without `*`, `?` and `[` matches each name that contains the
/// word. A pattern without words matches every name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstancePattern {
    words: Vec<String>,
    includes_dormant: bool,
}

impl InstancePattern {
    /// Selects the live instances whose names match at least one of these words.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self {
            words: words.into_iter().map(Into::into).collect(),
            includes_dormant: false,
        }
    }

    /// Selects all live instances.
    pub fn all_live() -> Self {
        Self::default()
    }

    /// Sets whether the pattern also selects dormant (deleted) instances.
    pub fn include_dormant(mut self, include: bool) -> Self {
        self.includes_dormant = include;
        self
    }

    /// Returns true if the pattern selects the instance.
    pub fn matches(&self, instance: &Instance) -> bool {
        (self.includes_dormant || instance.state == InstanceState::Live)
            && self.matches_name(&instance.name)
    }

    /// Returns true if a name matches at least one of the words.
    pub fn matches_name(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| word_matches_name(word, name))
    }
}

fn word_matches_name(word: &str, name: &str) -> bool {
    if word.contains(['*', '?', '[']) {
        let word: Vec<char> = word.chars().collect();
        let name: Vec<char> = name.chars().collect();
        match_glob(&word, &name)
    } else {
        name.contains(word)
    }
}

/// Returns true if a name matches a glob. After a mismatch the function backtracks only to the last
/// `*`, so its run time does not grow exponentially with the number of `*` in the glob.
fn match_glob(word: &[char], name: &[char]) -> bool {
    let (mut w, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if word.get(w) == Some(&'*') {
            star = Some((w, n));
            w += 1;
        } else if let Some(next) = match_glob_element(word, w, name[n]) {
            w = next;
            n += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            w = at + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    word[w..].iter().all(|c| *c == '*')
}

/// Matches the pattern element at `w` with one character. Returns the index of the next element, or
/// `None` if the character does not match.
fn match_glob_element(word: &[char], w: usize, c: char) -> Option<usize> {
    match word.get(w)? {
        '?' => Some(w + 1),
        '[' => match match_bracket_expression(word, w, c) {
            Some((true, next)) => Some(next),
            Some((false, _)) => None,
            // Without a closing bracket, `[` matches itself.
            None => (c == '[').then_some(w + 1),
        },
        other => (*other == c).then_some(w + 1),
    }
}

/// Matches the character `c` with the bracket expression at the index `w` of a pattern, such as
/// `[abc]`, `[a-z]`, `[!a]` or `[^a]`. Returns whether the character matches, and the index of the
/// pattern element behind the bracket expression. Returns `None` if the closing bracket is missing.
fn match_bracket_expression(word: &[char], w: usize, c: char) -> Option<(bool, usize)> {
    let mut at = w + 1;
    let negated = matches!(word.get(at), Some('!' | '^'));
    if negated {
        at += 1;
    }
    let close = at + 1 + word.get(at + 1..)?.iter().position(|c| *c == ']')?;
    let mut found = false;
    while at < close {
        if word[at + 1] == '-' && at + 2 < close {
            found |= (word[at]..=word[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= word[at] == c;
            at += 1;
        }
    }
    Some((found != negated, close + 1))
}

#[cfg(test)]
mod tests {
    use super::word_matches_name;

    #[test]
    fn pfc_patterns_are_globs_or_parts_of_names() {
        for (word, name, hit) in [
            ("sched", "sched/wakeups", true),
            ("wake", "sched/wakeups", true),
            ("wakeups/", "sched/wakeups", false),
            ("sched/*", "sched/wakeups", true),
            ("*/wake*", "sched/wakeups", true),
            ("sched", "irq/4/ttyS0", false),
            ("irq/?/*", "irq/4/ttyS0", true),
            ("irq/[0-3]/*", "irq/4/ttyS0", false),
            ("irq/[0-4]/*", "irq/4/ttyS0", true),
            ("irq/[!4]/*", "irq/4/ttyS0", false),
            ("irq/[", "irq/[", true),
            ("a[b-]c", "a-c", true),
            ("*", "", true),
            ("**x**", "axb", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("x*", "ax", false),
            ("é?", "éß", true),
        ] {
            assert_eq!(word_matches_name(word, name), hit, "{word} {name}");
        }
    }
}
