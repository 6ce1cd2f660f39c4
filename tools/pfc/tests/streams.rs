// SPDX-License-Identifier: GPL-2.0

//! Tests of `pfc` with standard output and standard error that cannot be written: a full disk
//! (`/dev/full`), pipes without a reader, and a closed standard output. Also tests that no control
//! characters are written.

mod device;

use std::fs::File;
use std::process::{Command, Stdio};

use device::Device;
use rustix::fs::{open, Mode, OFlags};

/// Returns a stream in which each write fails with ENOSPC.
fn full() -> Stdio {
    let file = File::options().write(true).open("/dev/full");
    file.expect("a device").into()
}

/// Returns the write end of a pipe whose read end is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn pfc_with_a_full_stderr_keeps_output_and_status() {
    let device = Device::with_instances();
    device.fake.cpu(1).begin_update();
    for stderr in [full, closed_pipe] {
        // The values are printed. The warning about the inconsistent snapshot is lost, because
        // standard error cannot be written.
        let mut command = device.command(&["read", "switches"]);
        let run = command.stderr(stderr()).output().expect("pfc runs");
        let out = String::from_utf8(run.stdout).expect("text");
        assert!(out.contains("42"), "{out}");
        assert_eq!(run.status.code(), Some(0), "{}", run.status);

        let mut command = device.command(&["list", "nothing-like-it"]);
        let run = command.stderr(stderr()).output().expect("pfc runs");
        assert_eq!(run.status.code(), Some(1), "{}", run.status);
        let mut command = device.command(&["bake"]);
        let run = command.stderr(stderr()).output().expect("pfc runs");
        assert_eq!(run.status.code(), Some(2), "{}", run.status);
    }
}

/// Command lines that write to standard output.
const WRITERS: [&[&str]; 10] = [
    &["--help"],
    &["--version"],
    &["stat", "--help"],
    &["list"],
    &["read", "--json"],
    &["watch", "--count", "1", "-i", "10"],
    &["export", "--openmetrics"],
    &["export", "--openmetrics", "--listen", "127.0.0.1:0"],
    &["man"],
    &["completions", "bash"],
];

#[test]
fn pfc_with_a_closed_stdout_reports_the_error_if_it_writes() {
    let device = Device::with_instances();
    let file = device.path.with_extension("list");
    let to_file = ["list", "-o", file.to_str().expect("text")];
    for args in WRITERS.into_iter().chain([&to_file[..]]) {
        let pfc = device.command(args);
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" >&-", "sh"]);
        shell.arg(pfc.get_program()).args(pfc.get_args());
        let run = shell.output().expect("pfc runs");
        let err = String::from_utf8(run.stderr).expect("text");
        let expected = match args == to_file {
            true => (Some(0), ""),
            false => (
                Some(2),
                "pfc: cannot write to standard output: Bad file descriptor (os error 9)\n",
            ),
        };
        assert_eq!((run.status.code(), err.as_str()), expected, "{args:?}");
    }
    // std ignores the error EBADF of a write to a file that is not open for writing.
    for flags in [OFlags::RDONLY, OFlags::PATH] {
        let null = open("/dev/null", flags, Mode::empty()).expect("a device");
        let run = device.command(&["list"]).stdout(null).output();
        assert_eq!(run.expect("pfc runs").status.code(), Some(2), "{flags:?}");
    }
    // Some programs open /dev/null for reading and writing as the standard output of a command.
    let null = File::options().read(true).write(true).open("/dev/null");
    let mut command = device.command(&["list"]);
    let run = command.stdout(null.expect("a device")).output();
    assert_eq!(run.expect("pfc runs").status.code(), Some(0));
}

#[test]
fn pfc_with_a_full_stdout_reports_the_error() {
    let device = Device::with_instances();
    for args in WRITERS {
        let run = device.command(args).stdout(full()).output();
        let run = run.expect("pfc runs");
        let err = String::from_utf8(run.stderr).expect("text");
        let expected =
            "pfc: cannot write to standard output: No space left on device (os error 28)\n";
        assert_eq!(err, expected, "{args:?}");
        assert_eq!(run.status.code(), Some(2), "{args:?}");

        let run = device.command(args).stdout(closed_pipe()).output();
        let run = run.expect("pfc runs");
        let err = String::from_utf8(run.stderr).expect("text");
        assert_eq!((run.status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn pfc_errors_show_control_characters_of_arguments() {
    let device = Device::with_instances();
    for (args, shown) in [
        (&["report", "-i", "no\x1b[31m\x07"][..], "no\\x1b[31m\\x07"),
        (&["list", "no\x1b[31m\x07"], "no\\x1b[31m\\x07"),
        (&["list", "--no\x07x\n\x1b[2J"], "'--no\\x07x\\n\\x1b[2J'"),
    ] {
        // clap copies escape sequences of the arguments to a pipe only if CLICOLOR_FORCE is set.
        // With CLICOLOR_FORCE, clap also writes colours.
        let mut command = device.command(args);
        let run = command.env("CLICOLOR_FORCE", "1").output();
        let err = String::from_utf8(run.expect("pfc runs").stderr).expect("text");
        let err = err.replace("\x1b[33m", "").replace("\x1b[0m", "");
        assert!(err.contains(shown), "{args:?}: {err:?}");
        assert!(!err.contains('\x07') && !err.contains("\x1b[2J"), "{err:?}");
    }
}
