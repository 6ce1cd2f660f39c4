// SPDX-License-Identifier: GPL-2.0

//! The terminal of a live screen: raw mode, keys, and output that a signal can interrupt.
//!
//! pfc opens the terminal a second time, in non-blocking mode. pfc does not set O_NONBLOCK on the
//! file descriptions that it has inherited, because the shell uses the inherited file descriptions,
//! too. In non-blocking mode, a write to a terminal that accepts no bytes does not block, and one
//! poll() waits for the terminal and for signals.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ratatui::backend::TermionBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetattr, tcsetattr, OptionalActions, Termios};

use crate::live::keys::{take_complete_keys, Key};
use crate::stat::event_loop::{EventLoop, WakeReason};

/// Control sequences that switch to the alternate screen and back. `LEAVE_ALTERNATE_SCREEN` also
/// resets the text attributes and shows the cursor.
const ENTER_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h";
const LEAVE_ALTERNATE_SCREEN: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// Maximum time that pfc waits, before it exits, for a terminal that accepts no bytes.
const MAX_TERMINAL_RESTORE_WAIT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The event that ended a wait for the terminal.
pub enum TerminalEvent {
    Keys(Vec<Key>),
    Resized,
    Timeout,
    /// A signal has arrived, or the terminal has hung up.
    End,
}

/// A buffer for the bytes that update the screen. ratatui writes them to the buffer, and pfc sends
/// them to the terminal.
#[derive(Clone, Default)]
struct DrawingBuffer(Rc<RefCell<Vec<u8>>>);

impl Write for DrawingBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A terminal in raw mode, with the terminal modes to restore.
struct RawTerminal {
    input: File,
    output: File,
    saved_modes: Termios,
}

impl RawTerminal {
    fn open() -> io::Result<Self> {
        let input = match isatty(stdin()) {
            true => reopen_nonblocking_or_dup(stdin(), "/proc/self/fd/0")?,
            false => open_nonblocking_terminal("/dev/tty")?,
        };
        let output = reopen_nonblocking_or_dup(stdout(), "/proc/self/fd/1")?;
        let saved = tcgetattr(&input)?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        Ok(Self {
            input,
            output,
            saved_modes: saved,
        })
    }

    /// Restores the modes and the screen of the terminal. Errors are ignored, because the terminal
    /// may have hung up.
    fn restore(&self) {
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.saved_modes);
        let mut fds = [PollFd::new(&self.output, PollFlags::OUT)];
        if poll(&mut fds, Some(&MAX_TERMINAL_RESTORE_WAIT)).is_ok_and(|n| n > 0) {
            let _ = (&self.output).write_all(LEAVE_ALTERNATE_SCREEN);
        }
    }
}

fn open_nonblocking_terminal(path: &str) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    options.open(path)
}

/// Opens a terminal a second time, in non-blocking mode. The file descriptor `fd` refers to the
/// terminal. If opening the terminal is not permitted, for example after su, this function
/// duplicates the file descriptor.
fn reopen_nonblocking_or_dup(fd: BorrowedFd<'_>, path: &str) -> io::Result<File> {
    open_nonblocking_terminal(path).or_else(|_| fd.try_clone_to_owned().map(File::from))
}

/// The terminal of a live screen. Dropping a `LiveTerminal` restores the terminal.
pub struct LiveTerminal {
    raw_terminal: Arc<RawTerminal>,
    event_loop: EventLoop,
    ratatui_terminal: Terminal<TermionBackend<DrawingBuffer>>,
    drawing: DrawingBuffer,
    /// Bytes that were read from the terminal and are an incomplete key.
    incomplete_key: Vec<u8>,
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        self.raw_terminal.restore();
    }
}

impl LiveTerminal {
    /// Sets the terminal to raw mode, and installs a panic hook that restores the terminal.
    pub fn open() -> io::Result<Self> {
        let event_loop = EventLoop::with_sigwinch_and_sighup()?;
        let drawing = DrawingBuffer::default();
        let ratatui_terminal = Terminal::new(TermionBackend::new(drawing.clone()))?;
        let raw = Arc::new(RawTerminal::open()?);
        let (for_panic, hook) = (Arc::clone(&raw), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            for_panic.restore();
            hook(info);
        }));
        drawing
            .0
            .borrow_mut()
            .extend_from_slice(ENTER_ALTERNATE_SCREEN);
        Ok(Self {
            raw_terminal: raw,
            event_loop,
            ratatui_terminal,
            drawing,
            incomplete_key: Vec::new(),
        })
    }

    /// Draws the screen. Returns `Break` if a signal arrived while the terminal accepted no bytes.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<ControlFlow<()>> {
        self.ratatui_terminal.draw(draw)?;
        let drawing = self.drawing.0.take();
        let mut rest = drawing.as_slice();
        while !rest.is_empty() {
            match (&self.raw_terminal.output).write(rest) {
                Ok(len) => rest = rest.get(len..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let output = [PollFd::new(&self.raw_terminal.output, PollFlags::OUT)];
                    if let WakeReason::Interrupted | WakeReason::Terminated(_) =
                        self.event_loop.wait_for_fds(None, &output)?
                    {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits for keys, a signal or a new size of the terminal, until the time `until`.
    pub fn wait_for_event(&mut self, until: Option<Instant>) -> io::Result<TerminalEvent> {
        let input = [self.raw_terminal.input.as_fd()];
        Ok(
            match self.event_loop.wait_for_readable_files(until, &input)? {
                WakeReason::Interrupted | WakeReason::Terminated(_) => TerminalEvent::End,
                WakeReason::Ready => self.read_input_event()?,
                WakeReason::Resized => TerminalEvent::Resized,
                WakeReason::Timeout | WakeReason::Child | WakeReason::SwitchOutput => {
                    TerminalEvent::Timeout
                }
            },
        )
    }

    fn read_input_event(&mut self) -> io::Result<TerminalEvent> {
        let mut bytes = [0; 1024];
        match (&self.raw_terminal.input).read(&mut bytes) {
            // In raw mode, end of file means that the terminal has hung up.
            Ok(0) => Ok(TerminalEvent::End),
            Ok(len) => {
                self.incomplete_key.extend(bytes.iter().take(len));
                Ok(TerminalEvent::Keys(take_complete_keys(
                    &mut self.incomplete_key,
                )))
            }
            // read() finds no bytes if another process has already read them from the terminal.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(TerminalEvent::Timeout),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(TerminalEvent::Timeout),
            Err(e) => Err(e),
        }
    }
}
