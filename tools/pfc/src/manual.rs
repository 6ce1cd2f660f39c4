// SPDX-License-Identifier: GPL-2.0

//! `pfc completions` and `pfc man`: hidden subcommands, with which packages generate their files.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::atomic_file::AtomicFile;
use crate::cli::Cli;
use crate::error::Failure;
use crate::output::Out;

/// The section head that clap_mangen puts before the text behind the options, and the first line of
/// that text.
const EXTRA: &str = ".SH EXTRA\nExamples:\n";

pub fn completions(shell: clap_complete::Shell, out: &mut Out) -> Result<(), Failure> {
    // The generator panics if a write fails. Writes to a vector cannot fail.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pfc", &mut text);
    out.write_all(&text)?;
    Ok(())
}

pub fn pages(directory: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let Some(directory) = directory else {
        page(Cli::command(), "pfc", out)?;
        return Ok(());
    };
    let write = |name: &str, command: clap::Command| {
        let path = directory.join(format!("{name}.1"));
        AtomicFile::create(&path)
            .and_then(|mut file| {
                page(command, name, &mut file)?;
                file.commit()
            })
            .map_err(|e| Failure::Create(path, e))
    };
    let mut all = Cli::command();
    all.build();
    each("pfc", &all, &write)
}

/// Writes the page of a command, and those of its visible subcommands, recursively.
fn each(
    name: &str,
    command: &clap::Command,
    write: &impl Fn(&str, clap::Command) -> Result<(), Failure>,
) -> Result<(), Failure> {
    write(name, command.clone())?;
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        each(&format!("{name}-{}", below.get_name()), below, write)?;
    }
    Ok(())
}

fn page(command: clap::Command, name: &str, to: &mut impl Write) -> io::Result<()> {
    // The title of a page is one word: `pfc`, `pfc-list` and so on.
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut text)?;
    // The text behind the options begins with "Examples:" in all of pfc's commands, so its section
    // is named EXAMPLES.
    let text = String::from_utf8_lossy(&text);
    to.write_all(text.replace(EXTRA, ".SH EXAMPLES\n").as_bytes())
}
