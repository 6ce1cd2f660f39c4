// SPDX-License-Identifier: GPL-2.0

//! `pfc watch`: rates, live.
//!
//! ```text
//!   sampler (counters -> Frame) --> plain (lines)
//!                               `-> app (what is shown) -> view (how) -> term
//! ```

mod plain;
mod sampler;

use std::path::Path;

use crate::cli::WatchArgs;
use crate::failure::Failure;
use crate::out::Out;

pub fn run(device: &Path, args: &WatchArgs, out: &mut Out) -> Result<(), Failure> {
    plain::run(device, args, out)
}
