// SPDX-License-Identifier: GPL-2.0

//! `pfc doctor`: finds out why counters, contexts, accounting or tracing do not work, and prints
//! remedies. The checks of `pfc doctor` change no settings.
//!
//! | file | checks |
//! |---|---|
//! | `machine.rs` | the kernel, signatures of modules, lockdown, limits, the clock |
//! | `modules.rs` `kernel_log.rs` | the modules: installed, loaded, or refused by the kernel |
//! | `devices.rs` | permissions of the device files |
//! | `contexts.rs` | the PMU and its users |

mod contexts;
mod devices;
mod kernel_log;
mod machine;
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
const JSON_SCHEMA_VERSION: u32 = 1;

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
    finding: String,
    /// Advice for the user; empty if there is nothing to do.
    remedy: String,
}

fn ok_check(subject: &'static str, found: impl Into<String>) -> Check {
    Check {
        subject,
        state: CheckState::Ok,
        finding: found.into(),
        remedy: String::new(),
    }
}

fn note_check(subject: &'static str, found: impl Into<String>) -> Check {
    Check {
        state: CheckState::Note,
        ..ok_check(subject, found)
    }
}

fn problem_check(
    subject: &'static str,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Check {
    Check {
        state: CheckState::Problem,
        ..ok_check(subject, found).with_remedy(remedy)
    }
}

impl Check {
    /// Adds advice for the user.
    fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

/// A section of the output of `pfc doctor`: a heading and the checks below the heading.
type CheckSection = (&'static str, Vec<Check>);

pub fn run(args: &JsonArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let modules = modules::CheckedModules::read_states();
    let sections: Vec<CheckSection> = vec![
        ("machine", machine::run_machine_checks(&modules)),
        ("modules", modules.run_module_checks()),
        (
            "counters",
            vec![
                devices::COUNTERS_DEVICE.check(&modules),
                devices::COUNTER_NAMES_DEVICE.check(&modules),
                modules.check_counter_providers(),
            ],
        ),
        ("contexts", contexts::run_context_checks(&modules)),
        (
            "accounting",
            vec![
                devices::ACCOUNTING_DEVICE.check(&modules),
                machine::check_accounting_clock(),
            ],
        ),
        (
            "tracing",
            vec![
                devices::TRACING_DEVICE.check(&modules),
                machine::check_rseq_support(),
                machine::check_tracing_clock(),
            ],
        ),
    ];
    let all_checks = || sections.iter().flat_map(|(_, checks)| checks);
    let problems = all_checks()
        .filter(|c| c.state == CheckState::Problem)
        .count();
    match args.json {
        true => out.write_json(&doctor_report_json(&sections, &modules, problems))?,
        false => print_check_sections(&sections, out)?,
    }
    Ok(match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn print_check_sections(sections: &[CheckSection], out: &mut Out) -> Result<(), Failure> {
    for (n, (name, checks)) in sections.iter().enumerate() {
        let separator = if n == 0 { "" } else { "\n" };
        writeln!(out, "{separator}{name}:")?;
        for c in checks {
            let found = visible::escape(&c.finding);
            writeln!(out, "{:<8} {:<12} {found}", c.state.name(), c.subject)?;
            if !c.remedy.is_empty() {
                writeln!(out, "{:>21} {}", "->", visible::escape(&c.remedy))?;
            }
        }
    }
    Ok(())
}

fn doctor_report_json(
    sections: &[CheckSection],
    modules: &modules::CheckedModules,
    problems: usize,
) -> Value {
    let mut checks = Vec::new();
    for (section, section_checks) in sections {
        for c in section_checks {
            checks.push(
                json!({"section": section, "check": c.subject, "state": c.state.name(),
                "found": c.finding, "remedy": c.remedy}),
            );
        }
    }
    json!({
        "schema": JSON_SCHEMA_VERSION,
        "pfc": env!("CARGO_PKG_VERSION"),
        "kernel": machine::running_kernel_release(),
        "version": read_trimmed_file("/proc/version"),
        "modules": modules.to_json(),
        "problems": problems,
        "checks": checks,
    })
}

/// Returns the text of a file without white space at both ends. Returns `None` if the file cannot
/// be read.
fn read_trimmed_file(path: impl AsRef<Path>) -> Option<String> {
    Some(
        text_file::read_text_escaping_non_utf8(path)
            .ok()?
            .trim()
            .to_owned(),
    )
}
