// SPDX-License-Identifier: GPL-2.0

//! `pfc watch`: shows the rates of counters, updated at an interval.
//!
//! For each interval, the sampler computes a frame, which has the rates of the selected counters.
//! Each frame is either printed as lines of text or drawn on the screen:
//!
//! ```text
//!   sampler: counters -> IntervalFrame -> plain: lines of text
//!                                     `-> app: state of the screen --> view, bars, detail: drawing
//!                                         screen: updates and keys of the live screen
//! ```

mod app;
mod bars;
mod detail;
mod plain;
mod sampler;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::path::Path;

use crate::cli::WatchArgs;
use crate::error::Failure;
use crate::output::Out;
use crate::watch::view::Theme;

pub fn run(device: &Path, args: &WatchArgs, out: &mut Out) -> Result<(), Failure> {
    if args.plain || !out.is_terminal() {
        return plain::run(device, args, out);
    }
    let colour = out.is_coloured();
    screen::run(device, args, Theme { has_colour: colour })
}
