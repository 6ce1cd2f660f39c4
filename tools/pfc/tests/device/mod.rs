// SPDX-License-Identifier: GPL-2.0

//! Test support: a fake device file for `pfc`, and functions that run `pfc` as a user does.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use counters_rules::abi::{Kind, Unit};
use counters_rules::spec::Spec;
use perfcounters::fake::FakeCounters;
use serde_json::Value;
use tempfile::TempDir;

/// A fake counter device. Each test has a device of its own.
pub struct Device {
    pub fake: FakeCounters,
    pub path: PathBuf,
    _directory: TempDir,
}

impl Device {
    pub fn new(cpus: u32) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = directory.path().join("perfcounters");
        let fake = FakeCounters::create(&path, cpus, 1).expect("a file");
        Self {
            fake,
            path,
            _directory: directory,
        }
    }

    /// Makes a device with two CPUs and one or more instances of most kinds. One of the instances
    /// is dormant.
    pub fn with_instances() -> Self {
        let mut this = Self::new(2);
        let switches = this.add("sched/context_switches", Kind::Counter, Unit::Events, 0, 1);
        let bytes = this.add("block/sda1/read_bytes", Kind::Counter, Unit::Bytes, 0, 1);
        let time = this.add("sched/run_time", Kind::Time, Unit::Seconds, -9, 1);
        let peak = this.add("sched/latency_max", Kind::Peak, Unit::Seconds, -9, 1);
        let latency = this.add("block/sda1/latency", Kind::Histogram, Unit::Seconds, -9, 8);
        this.add("syscalls/getpid", Kind::Counter, Unit::Events, 0, 1);
        let deleted = this.add("block/sdb/reads", Kind::Counter, Unit::Events, 0, 1);
        let (zero, one) = (this.fake.cpu(0), this.fake.cpu(1));
        zero.adjust_if_live(switches, 40);
        one.adjust_if_live(switches, 2);
        zero.adjust_if_live(bytes, 3 << 20);
        zero.adjust_if_live(time, 1_500_000_000);
        one.adjust_if_live(peak, 12_345);
        zero.add_without_seqflag(latency + 3, 5);
        one.add_without_seqflag(latency + 7, 1);
        zero.adjust_if_live(deleted, 9);
        this.fake.del(deleted).expect("live");
        this
    }

    pub fn add(&mut self, name: &str, kind: Kind, unit: Unit, exponent: i8, nr_slots: u16) -> u32 {
        let spec = Spec {
            name: name.as_bytes(),
            help: b"what it counts",
            kind: kind as u16,
            unit: unit as u16,
            exponent,
            nr_slots,
        };
        self.fake.add(&spec).expect("room")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pfc"));
        command.arg("--device").arg(&self.path).args(args);
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> RunResult {
        RunResult::from_output(self.command(args).output().expect("pfc runs"))
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pfc runs")
    }
}

pub struct RunResult {
    pub exit_status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl RunResult {
    pub fn from_output(output: Output) -> Self {
        Self {
            exit_status: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Returns the standard output of `pfc`. Fails if the exit status of `pfc` is not 0 or if there
    /// are error messages.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(
            (self.exit_status, self.err.as_str()),
            (Some(0), ""),
            "{}",
            self.out
        );
        assert!(!self.out.contains('\x1b'), "colours in a pipe");
        self.out
    }

    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

pub fn pfc(args: &[&str]) -> RunResult {
    // Without a PATH, pfc cannot run modprobe, which would load modules of this machine.
    let output = Command::new(env!("CARGO_BIN_EXE_pfc"))
        .args(args)
        .env("PATH", "")
        .output();
    RunResult::from_output(output.expect("pfc runs"))
}

/// Checks that `pfc` refuses the command line `args`, with exit status 2, no output, and an error
/// message that contains `word`.
pub fn assert_refused(args: &[&str], word: &str) {
    let run = pfc(args);
    assert_eq!(
        (run.exit_status, run.out.as_str()),
        (Some(2), ""),
        "{args:?}"
    );
    assert!(run.err.contains(word), "{args:?}: {}", run.err);
    assert!(!run.err.contains("panicked"), "{args:?}: {}", run.err);
}

/// Sends a signal to a child process.
pub fn send_signal(child: &Child, signal: &str) {
    let command = format!("kill -{signal} {}", child.id());
    let status = Command::new("sh").args(["-c", &command]).status();
    assert!(status.expect("sh runs").success(), "{command}");
}

/// A child process that is killed when the test ends, even if the test fails.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `is_done` returns true. Fails with the message `problem` if this takes too long.
#[track_caller]
pub fn wait_until(problem: &str, mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < fuzz::scale_timeout(120), "{problem}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a child process has ended. Returns its exit status, or `None` if a signal killed it.
#[track_caller]
pub fn wait_for_exit(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("the process does not end", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// Returns what a process, which has ended, has written to its piped stderr.
pub fn read_stderr(child: &mut Child) -> String {
    let mut bytes = Vec::new();
    let mut stderr = child.stderr.take().expect("piped");
    stderr.read_to_end(&mut bytes).expect("a read");
    String::from_utf8(bytes).expect("text")
}
