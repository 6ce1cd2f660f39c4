// SPDX-License-Identifier: GPL-2.0

//! `pfc completions` and `pfc man`: for packages, not for people.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::out::Out;
use crate::replace::Replacement;

/// How clap_mangen heads what --help has at its end.
const EXTRA: &str = ".SH EXTRA\nExamples:\n";

pub fn completions(shell: clap_complete::Shell, out: &mut Out) -> Result<(), Failure> {
    // The generator panics when it can not write; memory it always can.
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
        Replacement::begin(&path)
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

/// Its page, and those of what is below it.
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
    // A manual page's name is one word; a subcommand's knows no other.
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut text)?;
    // What stands behind the options, as all of ours begins with them.
    let text = String::from_utf8_lossy(&text);
    to.write_all(text.replace(EXTRA, ".SH EXAMPLES\n").as_bytes())
}
