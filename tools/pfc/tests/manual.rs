// SPDX-License-Identifier: GPL-2.0

//! Tests that the manual pages have the same options, examples and commands as the output of
//! `--help`.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn pfc(args: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_pfc")).args(args).output();
    let run = run.expect("pfc runs");
    assert!(run.status.success(), "{args:?}: {run:?}");
    String::from_utf8(run.stdout).expect("text")
}

/// Returns the words of a text that begin with two dashes.
fn options(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .collect()
}

/// Returns the help of the command that a manual page describes: the page `pfc-ppa-on` describes
/// `pfc ppa on`. The names of pfc's subcommands contain no dashes.
fn help_of(page: &str) -> String {
    let mut args: Vec<&str> = page.split('-').skip(1).collect();
    args.push("--help");
    pfc(&args)
}

/// Returns the subcommands that a help text lists.
fn commands(help: &str) -> Vec<&str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

#[test]
fn pfc_each_command_has_a_manual_page_that_says_what_its_help_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    pfc(&["man", directory.to_str().expect("text")]);
    let mut left = vec!["pfc".to_owned()];
    let mut seen = 0;
    while let Some(page) = left.pop() {
        let text = fs::read_to_string(directory.join(format!("{page}.1"))).expect(&page);
        let plain = ["\\fB", "\\fI", "\\fR", "\\fP"]
            .iter()
            .fold(text.replace("\\-", "-"), |text, font| {
                text.replace(font, "")
            });
        let help = help_of(&page);
        assert!(text.contains(".SH EXAMPLES\n"), "{page} has no examples");
        assert!(help.contains("Examples:"), "{page}: --help has no examples");
        assert!(help.lines().all(|l| l.chars().count() <= 100), "{page}");
        let missing: Vec<_> = options(&help)
            .difference(&options(&plain))
            .copied()
            .collect();
        assert!(missing.is_empty(), "{page}: not in the page: {missing:?}");
        let examples = help.split("Examples:\n").nth(1).expect("examples");
        for line in examples.lines().filter(|line| line.starts_with("  pfc ")) {
            let line = line.replace('\'', "\\*(Aq");
            assert!(plain.contains(&line), "{page}: not in the page: {line}");
        }
        for name in commands(&help) {
            left.push(format!("{page}-{name}"));
        }
        seen += 1;
    }
    let pages = fs::read_dir(directory).expect("pages").count();
    assert_eq!(pages, seen, "pages that no help lists");
    assert!(pages > 20, "{pages} pages");
}
