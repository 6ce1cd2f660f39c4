// SPDX-License-Identifier: GPL-2.0

//! `pfc completions` and `pfc man`: hidden subcommands, with which packages generate shell
//! completions and manual pages.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::atomic_file::AtomicFile;
use crate::cli::Cli;
use crate::error::Failure;
use crate::output::Out;

/// The heading that clap_mangen writes above the text after the options, and the line `Examples:`.
/// In all commands of pfc, the text after the options begins with the line `Examples:`.
const CLAP_EXTRA_HEADING: &str = ".SH EXTRA\nExamples:\n";

pub fn print_shell_completions(shell: clap_complete::Shell, out: &mut Out) -> Result<(), Failure> {
    // clap_complete panics if a write fails. Writes to a vector cannot fail.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pfc", &mut text);
    out.write_with_io_function(|out| out.write_all(&text))
}

pub fn write_manual_pages(directory: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return out.write_with_io_function(|out| render_manual_page(Cli::command(), "pfc", out));
    };
    let write = |name: &str, command: clap::Command| {
        let path = directory.join(format!("{name}.1"));
        AtomicFile::create(&path)
            .and_then(|mut file| {
                render_manual_page(command, name, &mut file)?;
                file.commit()
            })
            .map_err(|e| Failure::Create(path, e))
    };
    let mut root = Cli::command();
    root.build();
    write_page_and_subcommand_pages("pfc", &root, &write)
}

/// Writes the manual page of a command and, recursively, the manual pages of its visible
/// subcommands.
fn write_page_and_subcommand_pages(
    name: &str,
    command: &clap::Command,
    write: &impl Fn(&str, clap::Command) -> Result<(), Failure>,
) -> Result<(), Failure> {
    write(name, command.clone())?;
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_page_and_subcommand_pages(
            &format!("{name}-{}", subcommand.get_name()),
            subcommand,
            write,
        )?;
    }
    Ok(())
}

fn render_manual_page(command: clap::Command, name: &str, out: &mut impl Write) -> io::Result<()> {
    // The title of a manual page is one word, such as `pfc` or `pfc-list`.
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut text)?;
    // The text after the options begins with "Examples:" in all of pfc's commands, so the section
    // of that text is named EXAMPLES.
    let text = visible::escape_invalid_utf8(&text);
    out.write_all(
        text.replace(CLAP_EXTRA_HEADING, ".SH EXAMPLES\n")
            .as_bytes(),
    )
}
