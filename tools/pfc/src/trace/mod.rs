// SPDX-License-Identifier: GPL-2.0

//! `pfc trace`: records and shows events of user programs, through `/dev/perftrace`.
//!
//! | file | contents |
//! |---|---|
//! | `args.rs` | the command line |
//! | `create.rs` | creates a trace, and warns if no running program has a marker for the trace |
//! | `sink.rs` | the output of a trace, with its format and path |
//! | `recorder.rs` | writes the events of a trace to the output until the trace ends |
//! | `summary.rs` | progress messages, and the summary with the reasons why events are missing |
//! | `list.rs` | lists traces and markers |
//! | `arm.rs` | `pfc trace arm` and `pfc trace release` |

pub mod args;
mod arm;
mod create;
mod list;
mod recorder;
mod sink;
mod summary;

use std::path::Path;
use std::process::ExitCode;

use perftrace_reader::{Device, Reader, Source, FLIGHT, KEEP};

use crate::error::{Failure, TryingTo};
use crate::output::Out;
use crate::stat::event_loop::EventLoop;
use crate::stat::exit_code_of_command;
use crate::trace::args::{
    LiveArgs, OutputFormat, SnapshotArgs, StartArgs, TraceArgs, TraceCommand,
};
use crate::trace::recorder::TraceRecorder;
use crate::trace::sink::TraceSink;

pub fn run(args: &TraceArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    match &args.command {
        TraceCommand::Start(args) => return start_trace(args, file),
        TraceCommand::Stop(args) => {
            Device::open()?.open_trace(&args.name)?.end()?;
            message!("[ pfc trace: trace '{}' has ended ]", args.name);
        }
        TraceCommand::Snapshot(args) => write_trace_snapshot(args, file)?,
        TraceCommand::Live(args) => show_live_events(args, file)?,
        TraceCommand::List(args) => {
            let mut out = Out::open_atomic(file)?;
            list::run(args, &mut out)?;
            out.finish()?;
        }
        TraceCommand::Arm => arm::arm_device()?,
        TraceCommand::Release(args) => arm::release_device(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn start_trace(args: &StartArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    if args.flight {
        create::create_trace(&args.name, &args.config, FLIGHT | KEEP)?;
        let name = &args.name;
        message!("[ pfc trace: '{name}' keeps the newest events; pfc trace snapshot {name} writes them, pfc trace stop {name} ends it ]");
        return Ok(ExitCode::SUCCESS);
    }
    // The event loop catches signals. The event loop is made first, so that no signal is missed
    // during the setup of the trace.
    let event_loop = EventLoop::new().trying_to("catch signals")?;
    let trace = create::create_trace(&args.name, &args.config, 0)?;
    let sink = TraceSink::open(args.format, file, &args.name, &trace.info()?)?;
    let recorder = TraceRecorder::new(trace, sink, event_loop)?;
    let status = recorder.record_until_end(&args.command)?;
    Ok(status.map_or(ExitCode::SUCCESS, exit_code_of_command))
}

fn write_trace_snapshot(args: &SnapshotArgs, file: Option<&Path>) -> Result<(), Failure> {
    let trace = Device::open()?.open_trace(&args.name)?;
    let info = trace.info()?;
    if !info.has_flag(FLIGHT) {
        return Err(Failure::Refused(format!(
            "trace '{}' is not a flight recorder; its events are written by the pfc trace start that created it",
            args.name
        )));
    }
    let mut sink = TraceSink::open(args.format, file, &args.name, &info)?;
    sink.publish_header()?;
    let mut reader = Reader::new(&info);
    let result = reader
        .read_round(&trace, sink.output.as_mut())
        .map_err(|e| sink.to_failure(e));
    let result = sink.finish(result.map(drop));
    summary::print_summary(&reader.totals(), &trace.info()?, &sink);
    result
}

fn show_live_events(args: &LiveArgs, file: Option<&Path>) -> Result<(), Failure> {
    let event_loop = EventLoop::new().trying_to("catch signals")?;
    let trace = match &args.name {
        Some(name) => Device::open()?.open_trace(name)?,
        None => {
            let name = format!("live-{}", std::process::id());
            create::create_trace(&name, &args.config, 0)?
        }
    };
    let info = trace.info()?;
    let sink = TraceSink::open(OutputFormat::Text, file, &info.name, &info)?;
    let recorder = TraceRecorder::new(trace, sink, event_loop)?;
    match &args.name {
        Some(_) => recorder.record_without_ending_trace().map(|_| ()),
        None => recorder.record_until_end(&[]).map(|_| ()),
    }
}
