// SPDX-License-Identifier: GPL-2.0

//! `pfc doctor`: finds out why counters, contexts, accounting or tracing do not work, and prints
//! remedies. The checks of `pfc doctor` change no settings.
//!
//! | file | checks |
//! |---|---|
//! | `machine.rs` `config.rs` | the kernel, its configuration and lockdown, limits, the clock |
//! | `modules.rs` `module.rs` | the modules: installed, built for this kernel, loaded |
//! | `devices.rs` | permissions of the device files |
//! | `contexts.rs` | the PMU and its users |

mod config;
mod contexts;
mod devices;
#[cfg(test)]
mod fuzz;
mod machine;
mod module;
mod modules;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{json, Value};

use crate::cli::JsonArgs;
use crate::error::Failure;
use crate::output::Out;
use crate::text_file;

/// Version of the JSON format of `pfc doctor`. The version changes when the meaning of an existing
/// field of the JSON format changes.
const SCHEMA: u32 = 1;

/// The result of a check of `pfc doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckState {
    Ok,
    /// A fact that the user should know, which is not a problem.
    Note,
    Problem,
}

impl CheckState {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One check of `pfc doctor`: its subject, its result and the finding.
struct Check {
    subject: &'static str,
    state: CheckState,
    found: String,
    /// Advice for the user; empty if there is nothing to do.
    remedy: String,
}

fn ok(subject: &'static str, found: impl Into<String>) -> Check {
    Check {
        subject,
        state: CheckState::Ok,
        found: found.into(),
        remedy: String::new(),
    }
}

fn note(subject: &'static str, found: impl Into<String>) -> Check {
    Check {
        state: CheckState::Note,
        ..ok(subject, found)
    }
}

fn problem(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    note(subject, found).with_state(CheckState::Problem, remedy)
}

impl Check {
    fn with_state(self, state: CheckState, remedy: impl Into<String>) -> Self {
        Self {
            state,
            remedy: remedy.into(),
            ..self
        }
    }

    /// Returns the check as a note with advice for the user.
    fn with_remedy(self, remedy: impl Into<String>) -> Self {
        self.with_state(CheckState::Note, remedy)
    }
}

/// A section of the output of `pfc doctor`: a heading and the checks below the heading.
type Section = (&'static str, Vec<Check>);

pub fn run(args: &JsonArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let modules = modules::Modules::find();
    let sections: Vec<Section> = vec![
        ("machine", machine::run_checks(&modules)),
        ("modules", modules.run_checks()),
        ("counters", check_counters(&modules)),
        ("contexts", contexts::run_checks(&modules)),
        ("accounting", check_accounting(&modules)),
        ("tracing", check_tracing(&modules)),
    ];
    let all_checks = || sections.iter().flat_map(|(_, checks)| checks);
    let problems = all_checks()
        .filter(|c| c.state == CheckState::Problem)
        .count();
    match args.json {
        true => writeln!(out, "{}", report_json(&sections, &modules, problems))?,
        false => print_sections(&sections, out)?,
    }
    Ok(match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn print_sections(sections: &[Section], out: &mut Out) -> Result<(), Failure> {
    for (n, (name, checks)) in sections.iter().enumerate() {
        let separator = if n == 0 { "" } else { "\n" };
        writeln!(out, "{separator}{name}:")?;
        for c in checks {
            let found = visible::escape(&c.found);
            writeln!(out, "{:<8} {:<12} {found}", c.state.name(), c.subject)?;
            if !c.remedy.is_empty() {
                writeln!(out, "{:>21} {}", "->", visible::escape(&c.remedy))?;
            }
        }
    }
    Ok(())
}

fn report_json(sections: &[Section], modules: &modules::Modules, problems: usize) -> Value {
    let mut checks = Vec::new();
    for (section, section_checks) in sections {
        for c in section_checks {
            checks.push(
                json!({"section": section, "check": c.subject, "state": c.state.name(),
                "found": c.found, "remedy": c.remedy}),
            );
        }
    }
    json!({
        "schema": SCHEMA,
        "pfc": env!("CARGO_PKG_VERSION"),
        "kernel": machine::release(),
        "version": read_trimmed("/proc/version"),
        "modules": modules.to_json(),
        "problems": problems,
        "checks": checks,
    })
}

fn check_counters(modules: &modules::Modules) -> Vec<Check> {
    vec![
        devices::check_counters_device(modules),
        devices::check_names_device(modules),
        modules.check_providers(),
    ]
}

fn check_accounting(modules: &modules::Modules) -> Vec<Check> {
    vec![
        devices::check_accounting_device(modules),
        machine::check_accounting_clock(),
    ]
}

fn check_tracing(modules: &modules::Modules) -> Vec<Check> {
    vec![
        devices::check_tracing_device(modules),
        machine::check_rseq(),
        machine::check_tracing_clock(),
    ]
}

/// Returns the text of a file without white space at both ends. Returns `None` if the file cannot
/// be read.
fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    Some(text_file::read(path).ok()?.trim().to_owned())
}
