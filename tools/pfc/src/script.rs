// SPDX-License-Identifier: GPL-2.0

//! `pfc script`: prints each sample in perf script's format or as JSON, or each stack with its
//! number of samples.

use std::path::Path;

use serde_json::{json, Value};

use crate::cli::ScriptArgs;
use crate::error::Failure;
use crate::output::Out;
use crate::profile::{folded, Frame, Profile, Sample};

pub fn run(args: &ScriptArgs, out: &mut Out) -> Result<(), Failure> {
    let input = args.input.file.as_deref().map(Path::new);
    let profile = Profile::load(input, !args.input.no_inline)?;
    let event = args.input.event.as_deref();
    let profile = match args.folded {
        true => profile.select_single_event(event)?,
        false => profile.select_event(event)?,
    };
    write_samples(&profile, args, out)
}

/// Writes the samples of a profile.
pub fn write_samples(profile: &Profile, args: &ScriptArgs, out: &mut Out) -> Result<(), Failure> {
    if args.folded {
        for (stack, samples) in folded::fold_stacks(profile).iter() {
            for (n, name) in stack.enumerate() {
                let sign = if n == 0 { "" } else { ";" };
                write!(out, "{sign}{name}")?;
            }
            writeln!(out, " {samples}")?;
        }
        return Ok(());
    }
    for sample in &profile.samples {
        match args.json {
            true => out.write_json(&sample_json(profile, sample))?,
            false => print_sample(profile, sample, out)?,
        }
    }
    Ok(())
}

fn format_frame_line(frame: &Frame) -> String {
    let symbol = match frame.has_known_symbol() && !frame.is_inlined {
        true => format!("{}+{:#x}", visible::escape(&frame.symbol), frame.offset),
        false => visible::escape(&frame.symbol).into_owned(),
    };
    if frame.is_inlined {
        return format!("{:>16x} {symbol} (inlined)", frame.address);
    }
    let object = visible::escape(&frame.object);
    format!("{:>16x} {symbol} ({object})", frame.address)
}

fn print_sample(profile: &Profile, sample: &Sample, out: &mut Out) -> Result<(), Failure> {
    let cpu = sample.cpu.map_or(String::new(), |n| format!("[{n:03}] "));
    write!(
        out,
        "{:>16} {:>7} {cpu}{:>5}.{:06}: {:>10} {}: ",
        visible::escape(&sample.command),
        sample.tid,
        sample.time_ns / 1_000_000_000,
        sample.time_ns / 1000 % 1_000_000,
        sample.period,
        visible::escape(&profile.events[sample.event]),
    )?;
    if !profile.has_stacks {
        writeln!(out, "{}", format_frame_line(profile.leaf_frame(sample)))?;
        return Ok(());
    }
    writeln!(out)?;
    for frame in profile.frames_of_sample(sample) {
        writeln!(out, "\t{}", format_frame_line(frame))?;
    }
    writeln!(out)?;
    Ok(())
}

fn sample_json(profile: &Profile, sample: &Sample) -> Value {
    let frame = |frame: &Frame| {
        json!({
            "address": format!("{:#x}", frame.address),
            "symbol": frame.has_known_symbol().then_some(&*frame.symbol),
            "offset": frame.offset,
            "object": &*frame.object,
            "kernel": frame.is_kernel,
            "inlined": frame.is_inlined,
        })
    };
    json!({
        "time": sample.time_ns,
        "event": profile.events[sample.event],
        "period": sample.period,
        "command": &*sample.command,
        "pid": sample.pid,
        "tid": sample.tid,
        "cpu": sample.cpu,
        "stack": profile.frames_of_sample(sample).map(frame).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "texts of the tests")]
mod tests {
    use super::*;
    use crate::profile::tests::synthetic_profile;

    fn format_first_sample(profile: &Profile) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut out = Out::open_atomic(Some(file.path())).expect("a file");
        print_sample(profile, &profile.samples[0], &mut out).expect("room");
        out.finish().expect("room");
        std::fs::read_to_string(file).expect("a file")
    }

    #[test]
    fn r1_10_samples_are_printed_as_perf_does() {
        let mut profile = synthetic_profile();
        let head = "            prog      11 [001]     0.001000:        100 cycles: ";
        let frames =
            "\t            1004 f+0x4 (/bin/prog)\n\t            2008 main+0x8 (/bin/prog)\n";
        assert_eq!(format_first_sample(&profile), format!("{head}\n{frames}\n"));
        profile.has_stacks = false;
        assert_eq!(
            format_first_sample(&profile),
            format!("{head}            1004 f+0x4 (/bin/prog)\n")
        );
    }

    #[test]
    fn r1_10_sample_json_has_exact_values() {
        let profile = synthetic_profile();
        let value = sample_json(&profile, &profile.samples[3]);
        assert_eq!(value["time"], 4_000_000);
        assert_eq!(value["stack"][0]["symbol"], "sys_read");
        assert_eq!(value["stack"][0]["kernel"], true);
        assert_eq!(value["stack"][1]["address"], "0x2008");
        let value = sample_json(&profile, &profile.samples[4]);
        assert!(value["stack"][0]["symbol"].is_null());
    }
}
