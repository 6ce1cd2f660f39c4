// SPDX-License-Identifier: GPL-2.0

//! Creation of a trace.

use std::collections::BTreeSet;

use perfcounters::Pattern;
use perftrace_filter::compile;
use perftrace_reader::{Device, Error, Recipe, Trace, FILTER_MAX};

use crate::error::Failure;
use crate::trace::args::Wanted;

/// Maximum number of existing markers that are listed if none of them is wanted.
const NAMES: usize = 12;

/// Creates the trace. Prints a message if no running program has a marker that it wants.
pub fn make(name: &str, wanted: &Wanted, flags: u32) -> Result<Trace, Failure> {
    let filter = match &wanted.filter {
        Some(text) => program(text)?,
        None => Vec::new(),
    };
    let recipe = Recipe {
        name: name.to_owned(),
        markers: wanted.markers()?,
        flags: flags | wanted.flags(),
        bytes: wanted.size.unwrap_or(0),
        wait_ms: wanted.blocking_timeout.unwrap_or(0),
        filter,
    };
    let trace = Device::open()?.create(&recipe)?;
    if wanted.kernel.is_empty() {
        warn(&wanted.events);
    }
    Ok(trace)
}

fn program(text: &str) -> Result<Vec<u8>, Failure> {
    let program = compile(text).map_err(|error| Failure::Refused(pointed(text, &error)))?;
    match program.len() <= FILTER_MAX {
        true => Ok(program),
        false => Err(Failure::Refused(format!(
            "the filter is too long: {} bytes when compiled, the limit is {FILTER_MAX}",
            program.len()
        ))),
    }
}

/// Returns a message with the filter, and a caret under the error.
fn pointed(text: &str, error: &perftrace_filter::Error) -> String {
    // Control characters could move the caret to another place, so they are replaced by blanks.
    let shown = |text: &str| -> String {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        text.chars().map(plain).collect()
    };
    let before = text.get(..error.position).unwrap_or(text);
    let blanks = " ".repeat(before.chars().count());
    let (text, message) = (shown(text), &error.message);
    format!("invalid filter: {message}\n  {text}\n  {blanks}^")
}

/// Prints a message if no program has a marker that is wanted.
fn warn(globs: &[String]) {
    let Ok(markers) = Device::open().and_then(|device| device.markers()) else {
        return;
    };
    let names: BTreeSet<String> = markers.into_iter().map(|m| m.name).collect();
    if let Some(text) = nothing(globs, &names) {
        eprintln!("pfc: {text}");
    }
}

/// Returns the message if no marker matches, else `None`.
fn nothing(globs: &[String], names: &BTreeSet<String>) -> Option<String> {
    let is_wanted = |name: &String| globs.is_empty() || globs.iter().any(|g| matches(g, name));
    if names.iter().any(is_wanted) {
        return None;
    }
    if names.is_empty() {
        return Some(
            "no program with markers is running yet; programs that start later will be traced"
                .to_owned(),
        );
    }
    let some: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
    let more = match names.len().saturating_sub(NAMES) {
        0 => String::new(),
        n => format!(" and {n} more (pfc trace list --markers)"),
    };
    Some(format!(
        "no marker matches '{}' yet; markers of running programs: {}{more}",
        globs.join(","),
        some.join(", ")
    ))
}

/// Returns whether the glob matches the whole name.
fn matches(glob: &str, name: &str) -> bool {
    match glob.contains(['*', '?', '[', '\\']) {
        true => Pattern::new(&[glob.to_owned()]).matches_name(name),
        false => glob == name,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // A closed pipe must be recognised as a write error.
            Error::Write(e) => Self::Write(e),
            error => Self::Tracing(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn r3_10_a_caret_is_under_what_is_wrong() {
        let error = perftrace_filter::Error {
            position: 4,
            message: "a number".to_owned(),
        };
        let text = pointed("é > x\n", &error);
        assert_eq!(text, "invalid filter: a number\n  é > x \n     ^");
        let beyond = perftrace_filter::Error {
            position: 99,
            message: "more".to_owned(),
        };
        assert!(pointed("a", &beyond).ends_with("\n   ^"));
    }

    #[test]
    fn r3_8_what_is_there_is_said_where_nothing_matches() {
        let names = set(&["app:begin", "app:end"]);
        let globs = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).into()).collect() };
        assert_eq!(nothing(&globs(&["app:*"]), &names), None);
        assert_eq!(nothing(&globs(&["x", "app:end"]), &names), None);
        assert_eq!(nothing(&[], &names), None);
        let text = nothing(&globs(&["app"]), &names).expect("no such name");
        assert!(text.contains("app:begin, app:end"), "{text}");
        assert!(nothing(&[], &set(&[])).is_some());
        let many: BTreeSet<String> = (0..20).map(|n| format!("a:{n:02}")).collect();
        let text = nothing(&globs(&["b:*"]), &many).expect("none of them");
        assert!(text.contains("a:11 and 8 more"), "{text}");
    }
}
