// SPDX-License-Identifier: GPL-2.0

//! The interactive mode of `pfc watch`: sets up the terminal, draws the screen and handles keys.
//! The terminal is restored also after a panic or a signal.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::WatchArgs;
use crate::error::Failure;
use crate::message;
use crate::watch::app::App;
use crate::watch::sampler::Sampler;
use crate::watch::view::{self, Theme};

/// Longest time to wait for a key before the loop checks for signals and for a new frame.
const MAX_WAIT: Duration = Duration::from_millis(200);

pub fn run(device: &Path, args: &WatchArgs, theme: Theme) -> Result<(), Failure> {
    // Dormant rows are shown in grey, so that other rows do not move when a driver is unloaded.
    let pattern = args.select.pattern().dormant(true);
    let sampler = Sampler::open(device, pattern)?;
    if sampler.is_empty() && !args.select.patterns.is_empty() {
        return Err(Failure::no_match(&args.select.joined_patterns()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    // SIGHUP is not caught: a closed terminal need not be restored, and a read of events from a
    // closed terminal would not return.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::Terminal)?;
    }
    // try_init() also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let result = run_terminal(&mut terminal, sampler, args, theme, &stop);
    message::restore_terminal(terminal);
    result.map_err(Failure::Terminal)
}

fn run_terminal(
    terminal: &mut DefaultTerminal,
    mut sampler: Sampler,
    args: &WatchArgs,
    theme: Theme,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut app = App::new(Duration::from_millis(args.interval));
    let mut nr_frames = 0;
    // The first rates are shown after 200 ms at the latest, even if the interval is longer than 200
    // ms.
    let mut due = Instant::now() + app.interval.min(MAX_WAIT);
    update_frame(&mut sampler, &mut app);
    while !stop.load(Ordering::Relaxed) && !app.quit {
        terminal.draw(|screen| view::draw(screen, &mut app, theme))?;
        let wait = match app.paused {
            true => MAX_WAIT,
            false => due.saturating_duration_since(Instant::now()).min(MAX_WAIT),
        };
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let before = app.interval;
                    app.handle_key(key);
                    if app.interval < before {
                        due = due.min(Instant::now() + app.interval);
                    }
                }
                // Other events than keys, such as a resize, need no handling: the loop draws the
                // screen again.
                _ => {}
            }
        }
        if !app.paused && Instant::now() >= due {
            update_frame(&mut sampler, &mut app);
            nr_frames += 1;
            if args.count.is_some_and(|count| nr_frames >= count) {
                break;
            }
            due = (due + app.interval).max(Instant::now());
        }
    }
    Ok(())
}

fn update_frame(sampler: &mut Sampler, app: &mut App) {
    match sampler.frame() {
        Ok(frame) => app.set_frame(frame),
        // If no frame could be taken, the last frame stays on the screen, and a new frame is taken
        // after the next interval.
        Err(error) => app.error = Some(Failure::from(error).to_string()),
    }
}
