// SPDX-License-Identifier: GPL-2.0

//! Tests of the event loop of live screens: runs `pfc watch` on a pseudo-terminal.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use device::{send_signal, wait_for_exit, wait_until, Device, KillOnDrop};
use fuzz::scale_timeout;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Winsize};

const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const CLEAR: &str = "\x1b[2J";

/// `pfc watch` on a pseudo-terminal.
struct Screen {
    device: Device,
    pfc: KillOnDrop,
    master: File,
    slave: OwnedFd,
    output: Vec<u8>,
    /// The position in `output` behind the last text that `read_until` has found.
    found_at: usize,
}

fn set_size(master: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size).expect("a terminal");
}

impl Screen {
    /// Starts `pfc watch` with SIGHUP ignored. `prefix` is empty, or a command that runs
    /// `pfc watch`, such as setsid.
    fn start(prefix: &[&str], args: &[&str]) -> Self {
        let device = Device::with_instances();
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a pseudo-terminal");
        grantpt(&master).expect("a pseudo-terminal");
        unlockpt(&master).expect("a pseudo-terminal");
        let name = ptsname(&master, Vec::new()).expect("a pseudo-terminal");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).expect("a pseudo-terminal");
        let master = File::from(master);
        set_size(&master, 100, 20);
        let watch = device.command(&[&["watch"], args].concat());
        let mut command = Command::new("env");
        command.args(prefix);
        command.args(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
        command.arg(watch.get_program()).args(watch.get_args());
        let copy = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(copy()).stdout(copy()).stderr(Stdio::null());
        let pfc = KillOnDrop(command.spawn().expect("sh runs"));
        Self {
            device,
            pfc,
            master,
            slave,
            output: Vec::new(),
            found_at: 0,
        }
    }

    /// Reads the output of pfc until it contains `text`. Searches only after the text that the
    /// previous call has found. Returns all output.
    fn read_until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + scale_timeout(20);
        loop {
            let rest = self.output.get(self.found_at..).unwrap_or_default();
            if let Some(at) = rest.windows(text.len()).position(|w| w == text.as_bytes()) {
                self.found_at += at + text.len();
                return String::from_utf8_lossy(&self.output).into_owned();
            }
            let output = String::from_utf8_lossy(rest);
            assert!(Instant::now() < deadline, "no {text:?} in {output:?}");
            let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            if poll(&mut fds, Some(&wait)).expect("poll") > 0 {
                let mut bytes = [0; 4096];
                let len = self.master.read(&mut bytes).expect("output");
                self.output.extend(&bytes[..len]);
            }
        }
    }

    fn type_bytes(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("a terminal");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("a terminal").local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn signal(&self, signal: &str) {
        send_signal(&self.pfc.0, signal);
    }
}

#[track_caller]
fn assert_ends(pfc: &mut KillOnDrop) {
    assert_eq!(wait_for_exit(&mut pfc.0), Some(0));
}

#[test]
fn pfc_watch_ends_when_the_terminal_hangs_up_with_sighup_ignored() {
    let mut screen = Screen::start(&[], &[]);
    screen.read_until("/SECOND");
    let Screen {
        mut pfc, master, ..
    } = screen;
    drop(master);
    assert_ends(&mut pfc);
}

/// The terminal hangs up while pfc has received only a part of an escape sequence.
#[test]
fn pfc_watch_ends_when_the_terminal_hangs_up_within_a_key() {
    let mut screen = Screen::start(&["setsid", "-c", "-w"], &[]);
    screen.read_until("/SECOND");
    screen.type_bytes(b"\x1b[1");
    let Screen {
        mut pfc, master, ..
    } = screen;
    drop(master);
    assert_ends(&mut pfc);
}

#[test]
fn pfc_watch_restores_the_terminal_after_each_signal() {
    for signal in ["TERM", "INT", "HUP"] {
        let mut screen = Screen::start(&[], &[]);
        let output = screen.read_until("/SECOND");
        assert!(output.contains(ENTER_SCREEN) && screen.is_raw());
        screen.signal(signal);
        screen.read_until(LEAVE_SCREEN);
        assert_ends(&mut screen.pfc);
        assert!(!screen.is_raw(), "raw mode after SIG{signal}");
    }
}

/// pfc handles a signal and makes its updates while an escape sequence is incomplete.
#[test]
fn pfc_watch_does_not_wait_for_the_end_of_a_key() {
    let mut screen = Screen::start(&[], &["-i", "50"]);
    screen.read_until("/SECOND");
    screen.type_bytes(b"\x1b[");
    let n = screen.device.fake.find("syscalls/getpid").expect("there");
    screen.device.fake.cpu(0).adjust_if_live(n, 987_654);
    screen.read_until("987");
    // The byte B completes the escape sequence of the key Down. The key Down selects a row, and
    // `pfc watch` draws the selected row in reverse video.
    screen.type_bytes(b"B");
    screen.read_until("\x1b[7m");
    screen.type_bytes(b"\x1b[");
    screen.signal("TERM");
    screen.read_until(LEAVE_SCREEN);
    assert_ends(&mut screen.pfc);
}

#[test]
fn pfc_watch_draws_again_when_the_terminal_is_resized() {
    let mut screen = Screen::start(&["setsid", "-c", "-w"], &["-i", "3600000"]);
    screen.read_until("/SECOND");
    set_size(&screen.master, 60, 10);
    screen.read_until(CLEAR);
    screen.read_until("/SECOND");
    screen.type_bytes(b"q");
    screen.read_until(LEAVE_SCREEN);
    assert_ends(&mut screen.pfc);
    assert!(!screen.is_raw());
}

/// Returns true if the process is blocked in ppoll() without a timeout, as `pfc watch` is while the
/// terminal accepts no bytes. Between two updates, `pfc watch` is in ppoll() with a timeout.
fn is_in_poll_without_timeout(process: &Child) -> bool {
    const PPOLL: &str = "271";
    let path = format!("/proc/{}/syscall", process.id());
    let call = std::fs::read_to_string(path).expect("a process");
    let words: Vec<&str> = call.split_whitespace().collect();
    matches!(words[..], [PPOLL, _, _, "0x0", ..])
}

/// A signal ends pfc even if the terminal accepts no bytes.
#[test]
fn pfc_watch_ends_by_a_signal_while_the_terminal_takes_no_bytes() {
    let mut screen = Screen::start(&[], &["-i", "10"]);
    let fake = &mut screen.device.fake;
    let add = |n| fake.add_counter(&format!("many/{n}")).expect("room");
    let names: Vec<u32> = (0..40).map(add).collect();
    set_size(&screen.master, 200, 60);
    screen.read_until("/SECOND");
    // The test itself fills the terminal, because pfc could take long to do so on a busy machine.
    // Then the test changes values until pfc has bytes to write and waits for the terminal.
    let name = ptsname(&screen.master, Vec::new()).expect("a pseudo-terminal");
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let filler = rustix::fs::open(name, flags, Mode::empty()).expect("a pseudo-terminal");
    let mut filler = File::from(filler);
    while filler.write(&[b' '; 1024]).is_ok() {}
    wait_until("the terminal takes all bytes", || {
        for (by, n) in (1..).zip(&names) {
            screen.device.fake.cpu(0).adjust_if_live(*n, by * 1_234_567);
        }
        is_in_poll_without_timeout(&screen.pfc.0)
    });
    screen.signal("TERM");
    assert_ends(&mut screen.pfc);
    assert!(!screen.is_raw());
}
