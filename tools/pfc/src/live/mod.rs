// SPDX-License-Identifier: GPL-2.0

//! Live screens: the event loop of `pfc watch`, `pfc top` and `pfc ppa --top`.
//!
//! One poll() waits for keys, signals, a new size of the terminal and the next update. The loop
//! ends if the screen returns `Break`, after a given number of updates, if SIGHUP, SIGINT or
//! SIGTERM arrives, or if the terminal hangs up. After the loop, pfc restores the terminal.

pub mod keys;
mod terminal;

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ratatui::Frame;
use rustix::io::Errno;

use crate::error::Failure;
use crate::live::keys::Key;
use crate::live::terminal::{LiveTerminal, TerminalEvent};

/// Maximum time until the first update, so that a screen with a long interval soon shows values.
const MAX_FIRST_UPDATE_DELAY: Duration = Duration::from_millis(500);

/// The contents of a live screen.
pub trait LiveScreen {
    /// Maximum time between two calls of [`LiveScreen::poll_between_updates`]; `None` if the screen
    /// does no work between updates.
    const POLL_INTERVAL: Option<Duration> = None;

    /// Draws the screen.
    fn draw(&mut self, frame: &mut Frame<'_>);

    /// Handles a key. Returns `Break` if the key ends the program.
    fn handle_key(&mut self, key: Key) -> ControlFlow<()>;

    /// Returns the time between two updates; `None` while updates are paused.
    fn update_interval(&self) -> Option<Duration>;

    /// Updates the shown values. Returns `Break` if there will be no more values.
    fn update_values(&mut self) -> Result<ControlFlow<()>, Failure>;

    /// Does work that is due between updates, such as reading ring buffers.
    fn poll_between_updates(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Returns the time of the next update: the first time that is a whole number of intervals after
/// `due` and later than both `now` and `due`. `due` is the time at which the last update was due.
/// Updates that were missed are skipped, so delays do not accumulate.
pub fn next_update_time(due: Instant, interval: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(due).as_nanos();
    match late.checked_rem(interval.as_nanos()) {
        Some(over) => now.max(due) + interval - Duration::from_nanos(over as u64),
        None => now,
    }
}

/// Shows a screen until the screen ends, `count` updates have been made, a signal arrives, or the
/// terminal hangs up.
pub fn run_live_screen(screen: &mut impl LiveScreen, count: Option<u64>) -> Result<(), Failure> {
    let terminal = LiveTerminal::open().map_err(Failure::Terminal)?;
    match run_screen_until_end(screen, count, terminal) {
        // After a hangup, each call on the terminal fails with EIO, ENXIO or ENODEV.
        Err(Failure::Terminal(e)) if is_terminal_hangup(&e) => Ok(()),
        done => done,
    }
}

fn is_terminal_hangup(error: &io::Error) -> bool {
    [Errno::IO, Errno::NXIO, Errno::NODEV]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn run_screen_until_end<S: LiveScreen>(
    screen: &mut S,
    count: Option<u64>,
    mut terminal: LiveTerminal,
) -> Result<(), Failure> {
    let first = screen.update_interval().unwrap_or_default();
    let mut due = Instant::now() + first.min(MAX_FIRST_UPDATE_DELAY);
    let mut nr_updates = 0;
    loop {
        let drawn = terminal.draw(|frame| screen.draw(frame));
        if drawn.map_err(Failure::Terminal)?.is_break() {
            return Ok(());
        }
        let next_poll = S::POLL_INTERVAL.map(|t| Instant::now() + t);
        let next_update = screen.update_interval().map(|_| due);
        let until = next_poll.into_iter().chain(next_update).min();
        match terminal.wait_for_event(until).map_err(Failure::Terminal)? {
            TerminalEvent::End => return Ok(()),
            TerminalEvent::Timeout | TerminalEvent::Resized => {}
            TerminalEvent::Keys(keys) => {
                for key in keys {
                    if screen.handle_key(key).is_break() {
                        return Ok(());
                    }
                }
                // If a key has shortened the interval, the next update is due earlier.
                due = due.min(Instant::now() + screen.update_interval().unwrap_or_default());
            }
        }
        screen.poll_between_updates()?;
        if let Some(interval) = screen.update_interval().filter(|_| Instant::now() >= due) {
            let is_end = screen.update_values()?.is_break();
            nr_updates += 1;
            if is_end || count.is_some_and(|count| nr_updates >= count) {
                return Ok(());
            }
            due = next_update_time(due, interval, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_delays_of_updates_do_not_add_up() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(next_update_time(start, second, at(0)), at(1000));
        assert_eq!(next_update_time(start, second, at(999)), at(1000));
        assert_eq!(next_update_time(start, second, at(1000)), at(2000));
        assert_eq!(next_update_time(start, second, at(5300)), at(6000));
        // An update before its due time does not change the due times of later updates.
        assert_eq!(next_update_time(at(500), second, at(0)), at(1500));
        assert_eq!(next_update_time(start, Duration::ZERO, at(7)), at(7));
    }
}
