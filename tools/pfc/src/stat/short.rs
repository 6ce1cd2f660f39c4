// SPDX-License-Identifier: GPL-2.0

//! Short counts: why counts are missing, and for which threads or CPUs.

use std::collections::BTreeMap;

use perfmon::{status, Message, Scope, Status};

/// A set of reasons why counts are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(u8);

impl Causes {
    /// No counts are missing.
    pub const NONE: Self = Self(0);
    /// The context ended because a CPU does not have all of its registers.
    pub const FAULT: Self = Self(1);
    /// The context ended because an administrator's context needed its registers.
    pub const EVICTED: Self = Self(2);
    /// The context ended because its CPU was taken offline.
    pub const OFFLINE: Self = Self(4);
    /// A value is marked as short, but no message has given the reason.
    pub const SHORT: Self = Self(8);
    /// The thread ran for some time on CPUs without all of the registers, where it was not counted.
    pub const ELSEWHERE: Self = Self(16);

    /// Each cause with its name in CSV and JSON, and a sentence in which `{}` stands for the thread
    /// or CPU.
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (
            Self::FAULT,
            "fault",
            "counting {} ended early: a CPU lacks some of the registers; use CPUs of one kind (taskset)",
        ),
        (
            Self::EVICTED,
            "evicted",
            "counting {} ended early: a program of the administrator took the registers; count again after it has ended",
        ),
        (
            Self::OFFLINE,
            "offline",
            "counting {} ended early: the CPU went offline",
        ),
        (
            Self::SHORT,
            "short",
            "counting {} ended early: unknown reason; see the kernel log",
        ),
        (
            Self::ELSEWHERE,
            "elsewhere",
            "counting {} omitted the time on CPUs that lack some of the registers; use CPUs of one kind (taskset)",
        ),
    ];

    /// Returns the cause that a message names, if the context has ended before its target.
    pub fn of(message: Message, scope: Scope) -> Self {
        match message {
            Message::Fault => Self::FAULT,
            Message::Evicted => Self::EVICTED,
            Message::End if scope == Scope::System => Self::OFFLINE,
            Message::End | Message::Overflow { .. } | Message::Other(_) => Self::NONE,
        }
    }

    /// Returns the cause that the status of a context names.
    pub fn of_status(told: &Status) -> Self {
        match told.elsewhere != 0 || told.flags & status::ELSEWHERE != 0 {
            true => Self::ELSEWHERE,
            false => Self::NONE,
        }
    }

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns the union of both sets. [`Self::SHORT`] is dropped if there is a more precise cause.
    pub fn and(self, other: Self) -> Self {
        let all = self.0 | other.0;
        match all & !Self::SHORT.0 {
            0 => Self(all),
            said => Self(said),
        }
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the names of the causes in the set.
    pub fn names(self) -> Vec<&'static str> {
        let all = Self::ALL.iter().filter(|(cause, ..)| self.has(*cause));
        all.map(|(_, name, _)| *name).collect()
    }
}

/// The threads or CPUs whose counts are short, with the causes.
#[derive(Clone, Debug, Default)]
pub struct Shorts {
    targets: BTreeMap<u32, Causes>,
}

impl Shorts {
    pub fn add(&mut self, target: u32, causes: Causes) {
        if !causes.is_none() {
            let known = self.targets.entry(target).or_default();
            *known = known.and(causes);
        }
    }

    /// Returns a sentence for each cause. `done` is the activity that it names, such as "counting".
    pub fn sentences(&self, scope: Scope, done: &str) -> Vec<String> {
        let sentence = |(cause, _, text): &(Causes, &str, &str)| {
            let of = self.targets.iter().filter(|(_, c)| c.has(*cause));
            let targets: Vec<u32> = of.map(|(target, _)| *target).collect();
            let what = match scope {
                Scope::Thread => "thread",
                Scope::System => "CPU",
            };
            let whose = match targets.as_slice() {
                [] => return None,
                [one] => format!("{what} {one}"),
                [first, ..] => format!("{} {what}s ({first} and others)", targets.len()),
            };
            let text = text.replace("{}", &whose);
            Some(text.replacen("counting", done, 1))
        };
        Causes::ALL.iter().filter_map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r9_6_each_cause_has_a_name_and_a_sentence() {
        let mut shorts = Shorts::default();
        assert!(shorts.sentences(Scope::Thread, "counting").is_empty());
        shorts.add(7, Causes::NONE);
        shorts.add(12, Causes::EVICTED);
        let said = shorts.sentences(Scope::Thread, "counting");
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("counting thread 12 ended early: "),
            "{said:?}"
        );
        shorts.add(13, Causes::EVICTED.and(Causes::FAULT));
        let said = shorts.sentences(Scope::System, "sampling");
        assert!(
            said[0].starts_with("sampling CPU 13 ended early: "),
            "{said:?}"
        );
        assert!(
            said[1].starts_with("sampling 2 CPUs (12 and others) ended"),
            "{said:?}"
        );
        assert_eq!(
            Causes::EVICTED.and(Causes::FAULT).names(),
            ["fault", "evicted"]
        );
        assert_eq!(Causes::SHORT.and(Causes::NONE).names(), ["short"]);
        assert_eq!(Causes::SHORT.and(Causes::EVICTED).names(), ["evicted"]);
    }

    #[test]
    fn r9_6_time_elsewhere_is_a_cause() {
        let told = |flags, elsewhere| {
            Causes::of_status(&Status {
                flags,
                elsewhere,
                ..Status::default()
            })
        };
        assert!(told(status::STARTED, 0).is_none());
        assert_eq!(told(status::STARTED, 1), Causes::ELSEWHERE);
        assert_eq!(told(status::ELSEWHERE, 0), Causes::ELSEWHERE);
        assert_eq!(Causes::SHORT.and(Causes::ELSEWHERE).names(), ["elsewhere"]);
        let mut shorts = Shorts::default();
        shorts.add(5, Causes::ELSEWHERE);
        let said = shorts.sentences(Scope::Thread, "sampling");
        assert!(said[0].starts_with("sampling thread 5 omitted the time "));
    }

    #[test]
    fn r9_6_an_end_is_early_for_a_cpu_only() {
        assert!(Causes::of(Message::End, Scope::Thread).is_none());
        assert_eq!(Causes::of(Message::End, Scope::System), Causes::OFFLINE);
        assert_eq!(Causes::of(Message::Fault, Scope::Thread), Causes::FAULT);
        assert_eq!(Causes::of(Message::Evicted, Scope::Thread), Causes::EVICTED);
        assert!(Causes::of(Message::Other(9), Scope::System).is_none());
    }
}
