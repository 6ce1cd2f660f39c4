// SPDX-License-Identifier: GPL-2.0

//! Creates a trace, and warns if no running program has a marker for the trace.

use std::collections::BTreeSet;

use perfcounters::InstancePattern;
use perftrace_reader::filter;
use perftrace_reader::{
    Device, Error, MarkerInfo, Trace, TraceConfig, MAX_FILTER_BYTES, MAX_VISITED_MARKERS,
    PERFTRACE_DEVICE_PATH,
};

use crate::error::Failure;
use crate::module;
use crate::trace::args::TraceConfigArgs;
use crate::trace::arm;

/// Maximum number of markers that the warning lists if no marker matches the user's globs.
const MAX_SHOWN_MARKERS: usize = 12;

/// Creates the trace. Prints a warning if no running program has a marker that matches the globs of
/// the trace.
pub fn create_trace(name: &str, config: &TraceConfigArgs, flags: u32) -> Result<Trace, Failure> {
    let filter = match &config.filter {
        Some(text) => compile_filter(text)?,
        None => Vec::new(),
    };
    let recipe = TraceConfig {
        name: name.to_owned(),
        markers: config.joined_marker_globs()?,
        flags: flags | config.trace_flags(),
        buffer_bytes: config.size.unwrap_or(0),
        max_wait_for_room_ms: config.blocking_timeout.unwrap_or(0),
        filter,
    };
    load_and_arm_if_no_device();
    let trace = Device::open()?.create_trace(&recipe)?;
    if config.kernel.is_empty() {
        if let Some(globs) = globs_of_program_markers(&config.events) {
            warn_if_no_marker_matches(&globs);
        }
    }
    Ok(trace)
}

/// If there is no device and the caller is root, loads perftrace.ko and announces the device to
/// running programs.
fn load_and_arm_if_no_device() {
    if !module::try_load_if_no_device("perftrace", PERFTRACE_DEVICE_PATH) {
        return;
    }
    // Programs that started before the device existed attach only after a call of `arm_device`. An
    // error of `arm_device` is only a warning, because programs that start later are traced without
    // it.
    if let Err(error) = arm::arm_device() {
        message!("pfc: programs that began before are not traced: {error}");
    }
}

fn compile_filter(text: &str) -> Result<Vec<u8>, Failure> {
    let program = filter::compile_filter(text)
        .map_err(|error| Failure::InvalidFilter(filter_error_message(text, &error)))?;
    match program.len() <= MAX_FILTER_BYTES {
        true => Ok(program),
        false => Err(Failure::Refused(format!(
            "the filter is too long: {} bytes when compiled, the limit is {MAX_FILTER_BYTES}",
            program.len()
        ))),
    }
}

/// Returns an error message that shows the filter, with a caret under the place of the error.
fn filter_error_message(text: &str, error: &filter::Error) -> String {
    let before = text.get(..error.position).unwrap_or(text);
    let blanks = " ".repeat(visible::escape(before).chars().count());
    let (text, message) = (visible::escape(text), visible::escape(&error.message));
    format!("invalid filter: {message}\n  {text}\n  {blanks}^")
}

/// Returns the globs that can match markers of programs, which are the globs that do not begin with
/// `kernel:`. Returns `None` if all globs begin with `kernel:`.
fn globs_of_program_markers(globs: &[String]) -> Option<Vec<String>> {
    let mut programs = globs.to_vec();
    programs.retain(|glob| !glob.starts_with("kernel:"));
    (globs.is_empty() || !programs.is_empty()).then_some(programs)
}

/// Prints a warning if no running program has a marker that matches one of the globs.
fn warn_if_no_marker_matches(globs: &[String]) {
    let mut names = BTreeSet::new();
    let mut is_matched = false;
    let visit = |marker: MarkerInfo| {
        is_matched = is_selected_by_globs(globs, &marker.name);
        names.insert(marker.name);
        !is_matched
    };
    let Ok(is_complete) = Device::open().and_then(|device| device.visit_markers(visit)) else {
        return;
    };
    if !is_matched {
        message!(
            "pfc: {}",
            no_marker_matches_message(globs, &names, is_complete)
        );
    }
}

fn is_selected_by_globs(globs: &[String], name: &str) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob_matches_name(glob, name))
}

/// Returns the text of the warning that no marker matches one of the globs. `names` are the names
/// of the visited markers. `is_complete` is false if there are markers that were not visited.
fn no_marker_matches_message(
    globs: &[String],
    names: &BTreeSet<String>,
    is_complete: bool,
) -> String {
    if names.is_empty() {
        return "no program with markers is running yet; programs that start later will be traced"
            .to_owned();
    }
    let globs = globs.join(",");
    let what = match is_complete {
        true => format!("no marker matches '{globs}' yet"),
        false => format!("none of the first {MAX_VISITED_MARKERS} markers matches '{globs}'"),
    };
    let listed: Vec<&str> = names
        .iter()
        .take(MAX_SHOWN_MARKERS)
        .map(String::as_str)
        .collect();
    let more = match names.len().saturating_sub(MAX_SHOWN_MARKERS) {
        0 if is_complete => String::new(),
        0 => " and more".to_owned(),
        n => format!(" and {n} more (pfc trace list --markers)"),
    };
    let listed = listed.join(", ");
    format!("{what}; markers of running programs: {listed}{more}")
}

/// Returns whether the glob matches the whole name of a marker.
fn glob_matches_name(glob: &str, name: &str) -> bool {
    match glob.contains(['*', '?', '[', '\\']) {
        true => InstancePattern::new(&[glob.to_owned()]).matches_name(name),
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

    fn make_name_set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn r3_10_caret_marks_filter_error_position() {
        let error = |position, message: &str| filter::Error {
            position,
            message: message.to_owned(),
        };
        let text = filter_error_message("é > x\n", &error(4, "a number"));
        assert_eq!(text, "invalid filter: a number\n  é > x\\n\n     ^");
        assert!(filter_error_message("a", &error(99, "more")).ends_with("\n   ^"));
    }

    #[test]
    fn r3_8_warning_lists_markers_if_none_matches() {
        let names = make_name_set(&["app:begin", "app:end"]);
        let globs = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).into()).collect() };
        let kernel_only = globs(&["kernel:sched_switch"]);
        assert_eq!(globs_of_program_markers(&kernel_only), None);
        assert_eq!(globs_of_program_markers(&[]), Some(Vec::new()));
        let both = globs(&["kernel:sched_switch", "app:*"]);
        assert_eq!(globs_of_program_markers(&both), Some(globs(&["app:*"])));
        let wanted = |words: &[&str]| {
            let globs = globs(words);
            names.iter().any(|name| is_selected_by_globs(&globs, name))
        };
        assert!(wanted(&["app:*"]) && wanted(&["x", "app:end"]) && wanted(&[]));
        assert!(!wanted(&["app"]));
        let text = no_marker_matches_message(&globs(&["app"]), &names, true);
        assert!(text.ends_with("app:begin, app:end"), "{text}");
        let text = no_marker_matches_message(&[], &make_name_set(&[]), true);
        assert!(text.starts_with("no program with markers"), "{text}");
        let many: BTreeSet<String> = (0..20).map(|n| format!("a:{n:02}")).collect();
        let text = no_marker_matches_message(&globs(&["b:*"]), &many, true);
        assert!(text.contains("a:11 and 8 more"), "{text}");
        let text = no_marker_matches_message(&globs(&["b:*"]), &names, false);
        let begin = "none of the first 131072 markers matches 'b:*'; ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.ends_with("app:end and more"), "{text}");
    }
}
