// SPDX-License-Identifier: GPL-2.0

//! `pfc script`: each sample, as perf script prints it, as JSON, or stacks in lines.

use std::io::Write;
use std::path::Path;

use serde_json::{json, Value};

use crate::cli::ScriptArgs;
use crate::failure::Failure;
use crate::out::Out;
use crate::profile::{folded, Frame, Profile, Sample};

pub fn run(args: &ScriptArgs, out: &mut Out) -> Result<(), Failure> {
    let input = args.input.file.as_deref().map(Path::new);
    let profile = Profile::load(input)?.only(args.input.event.as_deref())?;
    if args.folded {
        for (stack, samples) in folded::folded(&profile) {
            writeln!(out, "{stack} {samples}")?;
        }
        return Ok(());
    }
    for sample in &profile.samples {
        match args.json {
            true => writeln!(out, "{}", object(&profile, sample))?,
            false => text(&profile, sample, out)?,
        }
    }
    Ok(())
}

fn place(frame: &Frame) -> String {
    let symbol = match frame.is_known() {
        true => format!("{}+{:#x}", frame.symbol, frame.offset),
        false => frame.symbol.to_string(),
    };
    format!("{:>16x} {symbol} ({})", frame.address, frame.object)
}

fn text(profile: &Profile, sample: &Sample, out: &mut Out) -> Result<(), Failure> {
    let cpu = sample.cpu.map_or(String::new(), |n| format!("[{n:03}] "));
    write!(
        out,
        "{:>16} {:>7} {cpu}{:>5}.{:06}: {:>10} {}: ",
        sample.command,
        sample.tid,
        sample.time / 1_000_000_000,
        sample.time / 1000 % 1_000_000,
        sample.period,
        profile.events[sample.event],
    )?;
    if !profile.has_stacks {
        writeln!(out, "{}", place(profile.place(sample)))?;
        return Ok(());
    }
    writeln!(out)?;
    for frame in profile.stack(sample) {
        writeln!(out, "\t{}", place(frame))?;
    }
    writeln!(out)?;
    Ok(())
}

fn object(profile: &Profile, sample: &Sample) -> Value {
    let frame = |frame: &Frame| {
        json!({
            "address": format!("{:#x}", frame.address),
            "symbol": frame.is_known().then_some(&*frame.symbol),
            "offset": frame.offset,
            "object": &*frame.object,
            "kernel": frame.is_kernel,
        })
    };
    json!({
        "time": sample.time,
        "event": profile.events[sample.event],
        "period": sample.period,
        "command": &*sample.command,
        "pid": sample.pid,
        "tid": sample.tid,
        "cpu": sample.cpu,
        "stack": profile.stack(sample).map(frame).collect::<Vec<_>>(),
    })
}
