// SPDX-License-Identifier: GPL-2.0

//! Creates a trace, and warns if no running program has a marker for the trace.

use std::collections::BTreeSet;

use perfcounters::Pattern;
use perftrace_reader::filter::{self, compile};
use perftrace_reader::{Device, Error, Trace, TraceConfig, DEVICE, FILTER_MAX};

use crate::error::Failure;
use crate::module;
use crate::trace::args::ConfigArgs;
use crate::trace::arm;

/// Maximum number of markers that the warning lists if no marker matches the user's globs.
const MAX_LISTED: usize = 12;

/// Creates the trace. Prints a warning if no running program has a marker that matches the globs of
/// the trace.
pub fn create_trace(name: &str, config: &ConfigArgs, flags: u32) -> Result<Trace, Failure> {
    let filter = match &config.filter {
        Some(text) => compile_filter(text)?,
        None => Vec::new(),
    };
    let recipe = TraceConfig {
        name: name.to_owned(),
        markers: config.markers()?,
        flags: flags | config.flags(),
        bytes: config.size.unwrap_or(0),
        wait_ms: config.blocking_timeout.unwrap_or(0),
        filter,
    };
    load_module();
    let trace = Device::open()?.create(&recipe)?;
    if config.kernel.is_empty() {
        warn_if_unmatched(&config.events);
    }
    Ok(trace)
}

/// If there is no device and the caller is root, loads perftrace.ko and announces the device to
/// running programs.
fn load_module() {
    if !module::load("perftrace", DEVICE) {
        return;
    }
    // Programs that started before the device existed attach only after a call of `arm`. An error
    // of `arm` is only a warning, because programs that start later are traced without `arm`.
    if let Err(error) = arm::arm() {
        message!("pfc: programs that began before are not traced: {error}");
    }
}

fn compile_filter(text: &str) -> Result<Vec<u8>, Failure> {
    let program = compile(text).map_err(|error| Failure::Refused(filter_message(text, &error)))?;
    match program.len() <= FILTER_MAX {
        true => Ok(program),
        false => Err(Failure::Refused(format!(
            "the filter is too long: {} bytes when compiled, the limit is {FILTER_MAX}",
            program.len()
        ))),
    }
}

/// Returns an error message that shows the filter, with a caret under the place of the error.
fn filter_message(text: &str, error: &filter::Error) -> String {
    let before = text.get(..error.position).unwrap_or(text);
    let blanks = " ".repeat(visible::escape(before).chars().count());
    let (text, message) = (visible::escape(text), &error.message);
    format!("invalid filter: {message}\n  {text}\n  {blanks}^")
}

/// Prints a warning if no running program has a marker that matches one of the globs.
fn warn_if_unmatched(globs: &[String]) {
    let Ok(markers) = Device::open().and_then(|device| device.markers()) else {
        return;
    };
    let names: BTreeSet<String> = markers.into_iter().map(|m| m.name).collect();
    if let Some(text) = unmatched_message(globs, &names) {
        message!("pfc: {text}");
    }
}

/// Returns the text of the warning if no marker matches one of the globs, and `None` if a marker
/// matches.
fn unmatched_message(globs: &[String], names: &BTreeSet<String>) -> Option<String> {
    let is_wanted = |name: &String| globs.is_empty() || globs.iter().any(|g| glob_matches(g, name));
    if names.iter().any(is_wanted) {
        return None;
    }
    if names.is_empty() {
        return Some(
            "no program with markers is running yet; programs that start later will be traced"
                .to_owned(),
        );
    }
    let listed: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
    let more = match names.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        n => format!(" and {n} more (pfc trace list --markers)"),
    };
    Some(format!(
        "no marker matches '{}' yet; markers of running programs: {}{more}",
        globs.join(","),
        listed.join(", ")
    ))
}

/// Returns whether the glob matches the whole name of a marker.
fn glob_matches(glob: &str, name: &str) -> bool {
    match glob.contains(['*', '?', '[', '\\']) {
        true => Pattern::new(&[glob.to_owned()]).matches_name(name),
        false => glob == name,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // An error of writing the output becomes `Failure::Write`, so that `pfc` exits without
            // an error message if the output is a closed pipe.
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
        let error = filter::Error {
            position: 4,
            message: "a number".to_owned(),
        };
        let text = filter_message("é > x\n", &error);
        assert_eq!(text, "invalid filter: a number\n  é > x\\n\n     ^");
        let beyond = filter::Error {
            position: 99,
            message: "more".to_owned(),
        };
        assert!(filter_message("a", &beyond).ends_with("\n   ^"));
    }

    #[test]
    fn r3_8_what_is_there_is_said_where_nothing_matches() {
        let names = set(&["app:begin", "app:end"]);
        let globs = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).into()).collect() };
        assert_eq!(unmatched_message(&globs(&["app:*"]), &names), None);
        assert_eq!(unmatched_message(&globs(&["x", "app:end"]), &names), None);
        assert_eq!(unmatched_message(&[], &names), None);
        let text = unmatched_message(&globs(&["app"]), &names).expect("no such name");
        assert!(text.contains("app:begin, app:end"), "{text}");
        assert!(unmatched_message(&[], &set(&[])).is_some());
        let many: BTreeSet<String> = (0..20).map(|n| format!("a:{n:02}")).collect();
        let text = unmatched_message(&globs(&["b:*"]), &many).expect("none of them");
        assert!(text.contains("a:11 and 8 more"), "{text}");
    }
}
