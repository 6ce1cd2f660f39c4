// SPDX-License-Identifier: GPL-2.0

//! The interactive mode of `pfc watch`: shows frames on the screen and handles keys.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use ratatui::Frame;

use crate::cli::WatchArgs;
use crate::error::Failure;
use crate::live::keys::Key;
use crate::live::{self, LiveScreen};
use crate::watch::app::WatchApp;
use crate::watch::sampler::CounterSampler;
use crate::watch::view::{self, Theme};

struct WatchScreen {
    sampler: CounterSampler,
    app: WatchApp,
    theme: Theme,
}

impl LiveScreen for WatchScreen {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        view::draw_watch_screen(frame, &mut self.app, self.theme);
    }

    fn handle_key(&mut self, key: Key) -> ControlFlow<()> {
        self.app.handle_key(key);
        match self.app.is_quitting {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn update_interval(&self) -> Option<Duration> {
        (!self.app.is_paused).then_some(self.app.interval)
    }

    fn update_values(&mut self) -> Result<ControlFlow<()>, Failure> {
        match self.sampler.take_frame() {
            Ok(frame) => self.app.set_frame(frame),
            // If no frame could be taken, the last frame stays on the screen, and a new frame is
            // taken after the next interval.
            Err(error) => self.app.frame_error = Some(Failure::from(error).to_string()),
        }
        Ok(ControlFlow::Continue(()))
    }
}

pub fn run(device: &Path, args: &WatchArgs, theme: Theme) -> Result<(), Failure> {
    // Dormant instances keep their rows, in grey, so that other rows do not move when a driver is
    // unloaded.
    let pattern = args.select.pattern().include_dormant(true);
    let sampler = CounterSampler::open(device, pattern)?;
    if sampler.is_empty() && !args.select.patterns.is_empty() {
        return Err(Failure::no_matching_instance(
            &args.select.joined_patterns(),
        ));
    }
    let mut screen = WatchScreen {
        sampler,
        app: WatchApp::new(Duration::from_millis(args.interval)),
        theme,
    };
    screen.update_values()?;
    live::run_live_screen(&mut screen, args.count)
}
