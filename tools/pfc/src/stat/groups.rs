// SPDX-License-Identifier: GPL-2.0

//! Parses the syntax `{a,b},c` of `-e`, in which events in braces are a group and share an event
//! set.

use super::events::Event;
use crate::error::Failure;

/// Parses the event names of `-e`, which were split at commas. Returns each event name and, if the
/// event is in a group, the number of the group.
pub fn parse_event_groups(words: &[String]) -> Result<Vec<(String, Option<usize>)>, Failure> {
    let invalid = |word: &str| {
        Failure::Refused(format!(
            "invalid braces in '{word}'; write a group as {{cycles,instructions}}"
        ))
    };
    let (mut all, mut group, mut nr_groups) = (Vec::new(), None, 0);
    for word in words {
        let mut name = word.as_str();
        if let Some(rest) = name.strip_prefix('{') {
            if group.is_some() {
                return Err(invalid(word));
            }
            group = Some(nr_groups);
            nr_groups += 1;
            name = rest;
        }
        let (name, closes_group) = match name.strip_suffix('}') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name.is_empty() || name.contains(['{', '}']) || (closes_group && group.is_none()) {
            return Err(invalid(word));
        }
        all.push((name.to_owned(), group));
        if closes_group {
            group = None;
        }
    }
    match (group, words.last()) {
        (Some(_), Some(word)) => Err(invalid(word)),
        _ => Ok(all),
    }
}

/// Makes the error for a group that does not fit in one event set.
pub fn group_too_large_failure(
    events: &[Event],
    groups: &[Option<usize>],
    group: usize,
    event: usize,
) -> Failure {
    let names: Vec<&str> = events
        .iter()
        .zip(groups)
        .filter(|(_, g)| **g == Some(group))
        .map(|(e, _)| e.name.as_str())
        .collect();
    let left = events.get(event).map_or("", |e| e.name.as_str());
    Failure::Refused(format!(
        "cannot count {{{}}} together: no counter is left for {left}; take it out of the braces",
        names.join(",")
    ))
}

#[cfg(test)]
mod tests {

    #[test]
    fn r1_12_braces_group_events() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split(',').map(str::to_owned).collect();
            super::parse_event_groups(&words).map(|all| {
                let group = |(w, g): (String, Option<usize>)| match g {
                    Some(g) => format!("{w}:{g}"),
                    None => w,
                };
                all.into_iter().map(group).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(parse("a,{b,c},d,{e}").expect("right"), "a b:0 c:0 d e:1");
        for wrong in ["{a", "a}", "{a,{b}}", "{}", "a,,b", "{a}b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
