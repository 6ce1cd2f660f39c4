// SPDX-License-Identifier: GPL-2.0

//! Records which threads and CPUs have short counts (counts that miss events), and why.

use std::collections::BTreeMap;

use perfmon::{status, Message, Scope, Status};

/// A set of reasons why counts are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingCountCauses(u8);

impl MissingCountCauses {
    /// The empty set: no counts are missing.
    pub const NONE: Self = Self(0);
    /// The context ended because a CPU does not have all registers of the context.
    pub const ENDED_ON_UNSUITABLE_CPU: Self = Self(1);
    /// The context ended because an administrator's context needed its registers.
    pub const ENDED_BY_EVICTION: Self = Self(2);
    /// The CPU was offline for some time, or is still without a context after it was offline.
    pub const CPU_OFFLINE: Self = Self(4);
    /// The kernel has set PERFMON_REGFL_SHORT for a value, but no message has given the reason.
    pub const UNKNOWN_REASON: Self = Self(8);
    /// The thread ran for some time on CPUs that lack some registers of the context, and was not
    /// counted there.
    pub const PAUSED_ON_UNSUITABLE_CPU: Self = Self(16);
    /// The causes after which the context has ended, although its thread or CPU continued to run.
    const CAUSES_OF_EARLY_END: Self =
        Self(Self::ENDED_ON_UNSUITABLE_CPU.0 | Self::ENDED_BY_EVICTION.0 | Self::UNKNOWN_REASON.0);

    /// Each cause with its name in CSV and JSON, and a sentence in which `{}` stands for the thread
    /// or CPU.
    const CAUSES_WITH_SENTENCES: [(Self, &'static str, &'static str); 5] = [
        (
            Self::ENDED_ON_UNSUITABLE_CPU,
            "fault",
            "counting {} ended early: a CPU lacks some of the registers; use CPUs of one kind (taskset)",
        ),
        (
            Self::ENDED_BY_EVICTION,
            "evicted",
            "counting {} ended early: a program of the administrator took the registers; count again after it has ended",
        ),
        (
            Self::CPU_OFFLINE,
            "offline",
            "counting {} omitted the time in which the CPU was offline",
        ),
        (
            Self::UNKNOWN_REASON,
            "short",
            "counting {} ended early: unknown reason, such as the exec of a set-uid or unreadable program; run pfc as root, or see the kernel log",
        ),
        (
            Self::PAUSED_ON_UNSUITABLE_CPU,
            "elsewhere",
            "counting {} omitted the time on CPUs that lack some of the registers; use CPUs of one kind (taskset)",
        ),
    ];

    /// Returns the cause of missing counts that a message of a context names; [`Self::NONE`] if the
    /// message names no cause of missing counts.
    pub fn from_message(message: Message, scope: Scope) -> Self {
        match message {
            Message::Fault => Self::ENDED_ON_UNSUITABLE_CPU,
            Message::Evicted => Self::ENDED_BY_EVICTION,
            Message::End if scope == Scope::System => Self::CPU_OFFLINE,
            Message::End | Message::Overflow { .. } | Message::Other(_) => Self::NONE,
        }
    }

    /// Returns the cause that the status of a context names.
    pub fn from_status(status: &Status) -> Self {
        match status.elsewhere != 0 || status.flags & status::ELSEWHERE != 0 {
            true => Self::PAUSED_ON_UNSUITABLE_CPU,
            false => Self::NONE,
        }
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns the union of two sets of causes. [`Self::UNKNOWN_REASON`] is dropped if there is a
    /// more precise cause.
    pub fn union_preferring_known(self, other: Self) -> Self {
        let all = self.0 | other.0;
        match all & !Self::UNKNOWN_REASON.0 {
            0 => Self(all),
            precise => Self(precise),
        }
    }

    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the names of the causes in the set, as CSV and JSON have them.
    pub fn names(self) -> Vec<&'static str> {
        let all = Self::CAUSES_WITH_SENTENCES
            .iter()
            .filter(|(cause, ..)| self.intersects(*cause));
        all.map(|(_, name, _)| *name).collect()
    }
}

/// The threads or CPUs for which counts are missing, with the causes.
#[derive(Clone, Debug, Default)]
pub struct IncompleteTargets {
    causes_by_target: BTreeMap<u32, MissingCountCauses>,
}

impl IncompleteTargets {
    pub fn add(&mut self, target: u32, causes: MissingCountCauses) {
        if !causes.is_empty() {
            let causes_of_target = self.causes_by_target.entry(target).or_default();
            *causes_of_target = causes_of_target.union_preferring_known(causes);
        }
    }

    /// Returns true if the context of a thread or CPU has ended early.
    pub fn has_any_ended_early(&self) -> bool {
        let mut targets = self.causes_by_target.keys();
        targets.any(|target| self.has_target_ended_early(*target))
    }

    /// Returns true if the context of the thread or CPU `target` has ended early.
    pub fn has_target_ended_early(&self, target: u32) -> bool {
        let causes = self.causes_by_target.get(&target);
        causes.is_some_and(|causes| causes.intersects(MissingCountCauses::CAUSES_OF_EARLY_END))
    }

    /// Returns a sentence for each cause for which counts are missing. `activity` is the word for
    /// the activity in the returned sentences, such as "counting".
    pub fn cause_sentences(&self, scope: Scope, activity: &str) -> Vec<String> {
        let sentence = |(cause, _, text): &(MissingCountCauses, &str, &str)| {
            let affected = self
                .causes_by_target
                .iter()
                .filter(|(_, c)| c.intersects(*cause));
            let targets: Vec<u32> = affected.map(|(target, _)| *target).collect();
            let kind = match scope {
                Scope::Thread => "thread",
                Scope::System => "CPU",
            };
            let subject = match targets.as_slice() {
                [] => return None,
                [one] => format!("{kind} {one}"),
                [first, ..] => format!("{} {kind}s ({first} and others)", targets.len()),
            };
            let text = text.replace("{}", &subject);
            Some(text.replacen("counting", activity, 1))
        };
        MissingCountCauses::CAUSES_WITH_SENTENCES
            .iter()
            .filter_map(sentence)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingCountCauses as Causes, *};

    #[test]
    fn r9_6_each_cause_has_a_name_and_a_sentence() {
        let mut shorts = IncompleteTargets::default();
        assert!(shorts.cause_sentences(Scope::Thread, "counting").is_empty());
        shorts.add(7, Causes::NONE);
        shorts.add(12, Causes::ENDED_BY_EVICTION);
        let sentences = shorts.cause_sentences(Scope::Thread, "counting");
        let [evicted] = &sentences[..] else {
            panic!("{sentences:?}");
        };
        assert!(evicted.starts_with("counting thread 12 ended early: "));
        shorts.add(
            13,
            Causes::ENDED_BY_EVICTION.union_preferring_known(Causes::ENDED_ON_UNSUITABLE_CPU),
        );
        let sentences = shorts.cause_sentences(Scope::System, "sampling");
        for (sentence, begin) in sentences.iter().zip([
            "sampling CPU 13 ended early: ",
            "sampling 2 CPUs (12 and others) ended",
        ]) {
            assert!(sentence.starts_with(begin), "{sentences:?}");
        }
        assert_eq!(sentences.len(), 2);
        for (one, other, names) in [
            (
                Causes::ENDED_BY_EVICTION,
                Causes::ENDED_ON_UNSUITABLE_CPU,
                &["fault", "evicted"][..],
            ),
            (Causes::UNKNOWN_REASON, Causes::NONE, &["short"]),
            (
                Causes::UNKNOWN_REASON,
                Causes::ENDED_BY_EVICTION,
                &["evicted"],
            ),
            (
                Causes::UNKNOWN_REASON,
                Causes::PAUSED_ON_UNSUITABLE_CPU,
                &["elsewhere"],
            ),
        ] {
            assert_eq!(one.union_preferring_known(other).names(), names);
        }
    }

    #[test]
    fn r9_6_time_on_unsuitable_cpus_is_a_cause() {
        let causes = |flags, elsewhere| {
            Causes::from_status(&Status {
                flags,
                elsewhere,
                ..Status::default()
            })
        };
        assert!(causes(status::STARTED, 0).is_empty());
        assert_eq!(causes(status::STARTED, 1), Causes::PAUSED_ON_UNSUITABLE_CPU);
        assert_eq!(
            causes(status::ELSEWHERE, 0),
            Causes::PAUSED_ON_UNSUITABLE_CPU
        );
        let mut shorts = IncompleteTargets::default();
        shorts.add(5, Causes::PAUSED_ON_UNSUITABLE_CPU);
        let sentences = shorts.cause_sentences(Scope::Thread, "sampling");
        assert!(sentences[0].starts_with("sampling thread 5 omitted the time "));
    }

    #[test]
    fn r9_6_time_offline_and_on_unsuitable_cpus_is_no_early_end() {
        let mut shorts = IncompleteTargets::default();
        shorts.add(1, Causes::CPU_OFFLINE);
        shorts.add(2, Causes::PAUSED_ON_UNSUITABLE_CPU);
        assert!(!shorts.has_any_ended_early());
        for cause in [
            Causes::ENDED_ON_UNSUITABLE_CPU,
            Causes::ENDED_BY_EVICTION,
            Causes::UNKNOWN_REASON,
        ] {
            let mut shorts = shorts.clone();
            shorts.add(1, cause);
            // The reason is known to be that the CPU was offline.
            let is_known = cause == Causes::UNKNOWN_REASON;
            assert_eq!(shorts.has_any_ended_early(), !is_known);
            shorts.add(3, cause);
            assert!(shorts.has_any_ended_early());
        }
    }

    #[test]
    fn r9_6_end_message_means_offline_cpu() {
        for (message, scope, causes) in [
            (Message::End, Scope::Thread, Causes::NONE),
            (Message::End, Scope::System, Causes::CPU_OFFLINE),
            (
                Message::Fault,
                Scope::Thread,
                Causes::ENDED_ON_UNSUITABLE_CPU,
            ),
            (Message::Evicted, Scope::Thread, Causes::ENDED_BY_EVICTION),
            (Message::Other(9), Scope::System, Causes::NONE),
        ] {
            assert_eq!(Causes::from_message(message, scope), causes);
        }
    }
}
