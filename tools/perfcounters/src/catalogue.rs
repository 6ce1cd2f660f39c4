// SPDX-License-Identifier: GPL-2.0

//! The set of instances at one generation, and parts of it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use engine::abi::{self, Desc, Kind, Unit};

use crate::error::Error;
use crate::map::Map;
use crate::raw;

/// Does the owner of an instance still exist?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It counts.
    Live,
    /// Its owner has gone; number and last values stay.
    Dormant,
}

impl State {
    /// The word for it, everywhere.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Dormant => "dormant",
        }
    }
}

/// What one instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its number; the same name keeps it as long as the counters are loaded, unless it comes
    /// back with more slots.
    pub number: u32,
    /// Its name, such as `block/sda1/read_bytes`; no control characters.
    pub name: String,
    /// One sentence, or empty; no control characters.
    pub help: String,
    /// How values of several CPUs, and of two snapshots, combine. Of one that this reader does
    /// not know: as a gauge's, or a histogram's if there are several slots.
    pub kind: Kind,
    /// The number of a kind that this reader does not know.
    pub unknown_kind: Option<u16>,
    /// A value is value * 10^exponent of this.
    pub unit: Unit,
    /// See `unit`; -9 for nanoseconds.
    pub exponent: i8,
    /// 64-bit slots per CPU: 1, but a histogram has one per bucket.
    pub slots: u16,
    /// 1 for the first life, one more each time the name came back.
    pub incarnation: u32,
    /// Live or dormant.
    pub state: State,
    /// CLOCK_REALTIME in nanoseconds when this life began.
    pub created_ns: u64,
    /// CLOCK_REALTIME in nanoseconds when it became dormant, 0 while live.
    pub ended_ns: u64,
}

impl Instance {
    /// `None`: there is no instance.
    fn from_desc(number: u32, desc: &Desc) -> Result<Option<Self>, Error> {
        let state = match desc.state {
            abi::LIVE => State::Live,
            abi::DORMANT => State::Dormant,
            _ => return Ok(None),
        };
        let known = Kind::from_raw(desc.kind);
        let kind = known.unwrap_or(match desc.nr_slots {
            1 => Kind::Gauge,
            _ => Kind::Histogram,
        });
        if desc.instance != number || desc.nr_slots == 0 {
            return Err(Error::Corrupt("a descriptor is not where it belongs"));
        }
        if kind != Kind::Histogram && desc.nr_slots != 1 {
            return Err(Error::Corrupt("a plain instance has several slots"));
        }
        Ok(Some(Self {
            number,
            name: text(desc.name()),
            help: text(desc.help()),
            kind,
            unknown_kind: known.is_none().then_some(desc.kind),
            unit: Unit::from_raw(desc.unit).unwrap_or(Unit::None),
            exponent: desc.exponent,
            slots: desc.nr_slots,
            incarnation: desc.incarnation,
            state,
            created_ns: desc.created_ns,
            ended_ns: desc.ended_ns,
        }))
    }

    /// The word for its kind; of one that this reader does not know: its number.
    pub fn kind_name(&self) -> Cow<'static, str> {
        match self.unknown_kind {
            Some(number) => number.to_string().into(),
            None => self.kind.name().into(),
        }
    }

    /// Do its slots count values by powers of two? Those of a kind that is not known may not.
    pub fn is_histogram(&self) -> bool {
        self.kind == Kind::Histogram && self.unknown_kind.is_none()
    }

    /// The slots of each CPU that are this instance's.
    fn run(&self) -> Range<u32> {
        self.number..self.number.saturating_add(u32::from(self.slots))
    }
}

/// Text that can be shown: the kernel sends no other, a stray file might.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

/// The set of instances at one generation.
#[derive(Debug)]
pub struct Catalogue {
    pub(crate) generation: u64,
    pub(crate) boot_id: [u8; 16],
    pub(crate) cpus: Arc<[u32]>,
    pub(crate) slots_per_chunk: u32,
    instances: Vec<Instance>,
    by_name: HashMap<String, usize>,
}

impl Catalogue {
    /// A set of nothing, of no generation that the kernel has (it counts up
    /// from zero).
    pub(crate) fn empty(boot_id: [u8; 16], cpus: Arc<[u32]>) -> Self {
        Self {
            generation: u64::MAX,
            boot_id,
            cpus,
            slots_per_chunk: 1,
            instances: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    /// Copies the descriptors. The caller discards the result, good or bad, if
    /// the generation did not hold meanwhile.
    pub(crate) fn copy(
        map: &Map,
        generation: u64,
        boot_id: [u8; 16],
        cpus: Arc<[u32]>,
    ) -> Result<Self, Error> {
        let per_chunk = map.layout().slots_per_chunk();
        let nr_slots = map.extent().slots;
        let mut instances: Vec<Instance> = Vec::new();
        let mut by_name = HashMap::new();
        let mut free = 1;
        for number in 1..nr_slots {
            let Some(words) = map.desc(number) else { break };
            let Some(instance) = Instance::from_desc(number, &raw::desc(words))? else {
                continue;
            };
            let run = instance.run();
            if run.start < free || run.end > nr_slots {
                return Err(Error::Corrupt("two instances share a slot"));
            }
            if run.start / per_chunk != (run.end - 1) / per_chunk {
                return Err(Error::Corrupt("a histogram crosses its chunk"));
            }
            free = run.end;
            by_name.insert(instance.name.clone(), instances.len());
            instances.push(instance);
        }
        Ok(Self {
            generation,
            boot_id,
            cpus,
            slots_per_chunk: per_chunk,
            instances,
            by_name,
        })
    }

    /// The generation this is the set of.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Which load of `perfcounters.ko` the numbers belong to.
    pub fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }

    /// The possible CPUs, ascending: the rows of every snapshot.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// All instances by number, dormant ones included.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// The instance with this name.
    pub fn find(&self, name: &str) -> Option<&Instance> {
        self.instances.get(*self.by_name.get(name)?)
    }

    /// The instance with this number.
    pub fn get(&self, number: u32) -> Option<&Instance> {
        let at = self
            .instances
            .binary_search_by_key(&number, |i| i.number)
            .ok()?;
        self.instances.get(at)
    }

    /// The instances that match.
    pub fn select(self: &Arc<Self>, pattern: &Pattern) -> Selection {
        let mut picks = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        let mut width = 0;
        for (index, instance) in self.instances.iter().enumerate() {
            if !pattern.matches(instance) {
                continue;
            }
            picks.push(Pick {
                index,
                column: width,
            });
            width += usize::from(instance.slots);
            let chunk = instance.number / self.slots_per_chunk;
            let first = (instance.number % self.slots_per_chunk) as usize;
            let len = usize::from(instance.slots);
            match runs.last_mut() {
                Some(last) if last.chunk == chunk && last.first + last.len == first => {
                    last.len += len;
                }
                _ => runs.push(Run { chunk, first, len }),
            }
        }
        Selection {
            catalogue: Arc::clone(self),
            picks,
            runs,
            width,
        }
    }
}

/// Neighbouring slots in a chunk, copied in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub chunk: u32,
    pub first: usize,
    pub len: usize,
}

/// A selected instance: which, and where its values lie in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub index: usize,
    pub column: usize,
}

/// A part of a catalogue, and the words that hold its values.
#[derive(Debug)]
pub struct Selection {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) picks: Vec<Pick>,
    pub(crate) runs: Vec<Run>,
    pub(crate) width: usize,
}

impl Selection {
    /// What was selected from.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// The selected instances, by number.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Instance> + '_ {
        self.picks
            .iter()
            .map(|pick| &self.catalogue.instances[pick.index])
    }

    /// Values of one CPU: the slots of all selected instances, in order.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Was nothing selected?
    pub fn is_empty(&self) -> bool {
        self.picks.is_empty()
    }

    pub(crate) fn pick(&self, number: u32) -> Option<Pick> {
        let at = self
            .picks
            .binary_search_by_key(&number, |p| self.catalogue.instances[p.index].number)
            .ok()?;
        self.picks.get(at).copied()
    }
}

/// Which instances are wanted: those that match any of some words.
///
/// A word with `*`, `?` or `[` is a glob for the whole name, `*` passing over
/// slashes too; any other word is looked for anywhere in the name. No words:
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    words: Vec<String>,
    dormant: bool,
}

impl Pattern {
    /// Live instances whose names match one of these words.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self {
            words: words.into_iter().map(Into::into).collect(),
            dormant: false,
        }
    }

    /// All live instances.
    pub fn all() -> Self {
        Self::default()
    }

    /// Dormant instances too, or not.
    pub fn dormant(mut self, too: bool) -> Self {
        self.dormant = too;
        self
    }

    /// Is this instance wanted?
    pub fn matches(&self, instance: &Instance) -> bool {
        (self.dormant || instance.state == State::Live) && self.matches_name(&instance.name)
    }

    /// Does a name match one of the words?
    pub fn matches_name(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| word_matches(word, name))
    }
}

fn word_matches(word: &str, name: &str) -> bool {
    if word.contains(['*', '?', '[']) {
        let word: Vec<char> = word.chars().collect();
        let name: Vec<char> = name.chars().collect();
        glob(&word, &name)
    } else {
        name.contains(word)
    }
}

/// Matches a glob without ever going back further than the last star.
fn glob(word: &[char], name: &[char]) -> bool {
    let (mut w, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if word.get(w) == Some(&'*') {
            star = Some((w, n));
            w += 1;
        } else if let Some(next) = one(word, w, name[n]) {
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

/// Where the pattern goes on if its element at `w` takes the character.
fn one(word: &[char], w: usize, c: char) -> Option<usize> {
    match word.get(w)? {
        '?' => Some(w + 1),
        '[' => match class(word, w, c) {
            Some((true, next)) => Some(next),
            Some((false, _)) => None,
            // No closing bracket: it is a bracket.
            None => (c == '[').then_some(w + 1),
        },
        other => (*other == c).then_some(w + 1),
    }
}

/// `[abc]`, `[a-z]`, `[!a]`: does it take the character, where does it end?
fn class(word: &[char], w: usize, c: char) -> Option<(bool, usize)> {
    let mut at = w + 1;
    let negated = matches!(word.get(at), Some('!' | '^'));
    if negated {
        at += 1;
    }
    let close = at + 1 + word.get(at + 1..)?.iter().position(|c| *c == ']')?;
    let mut hit = false;
    while at < close {
        if word[at + 1] == '-' && at + 2 < close {
            hit |= (word[at]..=word[at + 2]).contains(&c);
            at += 3;
        } else {
            hit |= word[at] == c;
            at += 1;
        }
    }
    Some((hit != negated, close + 1))
}

#[cfg(test)]
mod tests {
    use super::word_matches;

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
            assert_eq!(word_matches(word, name), hit, "{word} {name}");
        }
    }
}
