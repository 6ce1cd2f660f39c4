// SPDX-License-Identifier: GPL-2.0

//! `pfc doctor`: finds out why counters, contexts, accounting or tracing do not work, and says what
//! to do. It only reads; it changes no settings.
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
mod machine;
mod module;
mod modules;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{json, Value};

use crate::cli::JsonArgs;
use crate::error::Failure;
use crate::output::Out;

/// Version of the `--json` format. It changes when an existing field changes its meaning.
const SCHEMA: u32 = 1;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Well,
    /// A fact worth knowing, which is not a problem.
    Note,
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// A check: its subject, its result and what was found.
struct Check {
    what: &'static str,
    state: State,
    found: String,
    /// Advice; empty if there is nothing to do.
    remedy: String,
}

fn well(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        what,
        state: State::Well,
        found: found.into(),
        remedy: String::new(),
    }
}

fn note(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        state: State::Note,
        ..well(what, found)
    }
}

fn problem(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    note(what, found).but(State::Problem, remedy)
}

impl Check {
    fn but(self, state: State, remedy: impl Into<String>) -> Self {
        Self {
            state,
            remedy: remedy.into(),
            ..self
        }
    }

    /// Adds advice to a note.
    fn or(self, remedy: impl Into<String>) -> Self {
        self.but(State::Note, remedy)
    }
}

/// A heading and the checks under it.
type Section = (&'static str, Vec<Check>);

pub fn run(args: &JsonArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let modules = modules::Modules::find();
    let sections: Vec<Section> = vec![
        ("machine", machine::checks(&modules)),
        ("modules", modules.checks()),
        ("counters", counters(&modules)),
        ("contexts", contexts::checks(&modules)),
        ("accounting", accounting(&modules)),
        ("tracing", tracing(&modules)),
    ];
    let all = || sections.iter().flat_map(|(_, checks)| checks);
    let problems = all().filter(|c| c.state == State::Problem).count();
    match args.json {
        true => writeln!(out, "{}", document(&sections, &modules, problems))?,
        false => print(&sections, out)?,
    }
    Ok(match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn print(sections: &[Section], out: &mut Out) -> Result<(), Failure> {
    for (n, (name, checks)) in sections.iter().enumerate() {
        let before = if n == 0 { "" } else { "\n" };
        writeln!(out, "{before}{name}:")?;
        for c in checks {
            writeln!(out, "{:<8} {:<12} {}", c.state.word(), c.what, c.found)?;
            if !c.remedy.is_empty() {
                writeln!(out, "{:>21} {}", "->", c.remedy)?;
            }
        }
    }
    Ok(())
}

fn document(sections: &[Section], modules: &modules::Modules, problems: usize) -> Value {
    let mut checks = Vec::new();
    for (section, of) in sections {
        for c in of {
            checks.push(
                json!({"section": section, "check": c.what, "state": c.state.word(),
                "found": c.found, "remedy": c.remedy}),
            );
        }
    }
    json!({
        "schema": SCHEMA,
        "pfc": env!("CARGO_PKG_VERSION"),
        "kernel": machine::release(),
        "version": text("/proc/version"),
        "modules": modules.document(),
        "problems": problems,
        "checks": checks,
    })
}

fn counters(modules: &modules::Modules) -> Vec<Check> {
    vec![
        devices::counters(modules),
        devices::names(modules),
        modules.providers(),
    ]
}

fn accounting(modules: &modules::Modules) -> Vec<Check> {
    vec![devices::accounting(modules), machine::clock_of_accounting()]
}

fn tracing(modules: &modules::Modules) -> Vec<Check> {
    vec![
        devices::tracing(modules),
        machine::rseq(),
        machine::clock_of_tracing(),
    ]
}

/// Returns the text of a file without white space at its ends. `None` if it cannot be read.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}
