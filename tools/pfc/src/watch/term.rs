// SPDX-License-Identifier: GPL-2.0

//! The interactive mode: sets up the terminal, draws, handles keys, and restores the terminal also
//! after a panic or a signal.

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
use crate::watch::app::App;
use crate::watch::sampler::Sampler;
use crate::watch::view::{self, Look};

/// Longest wait in one step. Signals are noticed after this time at the latest.
const PATIENCE: Duration = Duration::from_millis(200);

pub fn run(device: &Path, args: &WatchArgs, look: Look) -> Result<(), Failure> {
    // Dormant rows are shown in grey, so that other rows do not move when a driver is unloaded.
    let pattern = args.select.pattern().dormant(true);
    let sampler = Sampler::open(device, pattern)?;
    if sampler.is_empty() && !args.select.patterns.is_empty() {
        return Err(Failure::no_match(&args.select.joined_patterns()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    // SIGHUP is not caught: a closed terminal needs no restoring, and a read of events from it
    // would not return.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::Terminal)?;
    }
    // try_init() also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let result = watch(&mut terminal, sampler, args, look, &stop);
    ratatui::restore();
    result.map_err(Failure::Terminal)
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut sampler: Sampler,
    args: &WatchArgs,
    look: Look,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut app = App::new(Duration::from_millis(args.interval));
    let mut seen = 0;
    // The first rates are shown after 200 ms at the latest, even if the interval is longer.
    let mut due = Instant::now() + app.interval.min(PATIENCE);
    look_again(&mut sampler, &mut app);
    while !stop.load(Ordering::Relaxed) && !app.quit {
        terminal.draw(|screen| view::draw(screen, &mut app, look))?;
        let wait = match app.paused {
            true => PATIENCE,
            false => due.saturating_duration_since(Instant::now()).min(PATIENCE),
        };
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let before = app.interval;
                    app.key(key);
                    if app.interval < before {
                        due = due.min(Instant::now() + app.interval);
                    }
                }
                // Other events, such as a resize, need no handling: the loop draws the screen
                // again.
                _ => {}
            }
        }
        if !app.paused && Instant::now() >= due {
            look_again(&mut sampler, &mut app);
            seen += 1;
            if args.count.is_some_and(|count| seen >= count) {
                break;
            }
            due = (due + app.interval).max(Instant::now());
        }
    }
    Ok(())
}

fn look_again(sampler: &mut Sampler, app: &mut App) {
    match sampler.frame() {
        Ok(frame) => app.show(frame),
        // The last frame stays on the screen, and the next interval tries again.
        Err(error) => app.trouble = Some(Failure::from(error).to_string()),
    }
}
