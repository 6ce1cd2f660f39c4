// SPDX-License-Identifier: GPL-2.0

//! Writes the events of a trace to the output until the trace ends.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use perftrace_reader::{Reader, Source, Trace};

use crate::error::{Failure, TryingTo};
use crate::message;
use crate::stat::event_loop::{EventLoop, WakeReason};
use crate::stat::side_command::SideCommand;
use crate::trace::sink::TraceSink;
use crate::trace::summary;

/// Maximum time between two reads of the buffers of a trace.
const MAX_BUFFER_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Delay after the trace was readable but had no events, so that the loop does not spin.
const DELAY_AFTER_EMPTY_WAKEUP: Duration = Duration::from_millis(1);
/// Time to wait after the end of a trace, so that threads can complete events that they were
/// writing when the trace ended.
const EVENT_SETTLE_TIME: Duration = Duration::from_millis(10);
/// Maximum number of reads without a pause after the end of a trace, in case a program continues to
/// write events. [`TraceRecorder::drain_buffers`] makes two such passes.
const MAX_READS_PER_DRAIN_PASS: usize = 64;
/// Time between two progress messages.
const PROGRESS_MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Reads a trace and writes its events to an output.
pub struct TraceRecorder {
    trace: Trace,
    reader: Reader,
    sink: TraceSink,
    event_loop: EventLoop,
    /// The time of the last progress message; `None` if no progress messages are printed.
    last_progress_time: Option<Instant>,
}

impl TraceRecorder {
    pub fn new(trace: Trace, sink: TraceSink, event_loop: EventLoop) -> Result<Self, Failure> {
        let reader = Reader::new(&trace.info()?);
        // If the events go to standard output, no progress messages are printed: events and
        // progress messages would be mixed on the terminal.
        let progress = !sink.is_stdout() && message::is_stderr_terminal();
        Ok(Self {
            trace,
            reader,
            sink,
            event_loop,
            last_progress_time: progress.then(Instant::now),
        })
    }

    /// Records the trace until the command ends or another program ends the trace. Without a
    /// command, recording also ends when a signal arrives. Returns the exit status of the command.
    pub fn record_until_end(mut self, argv: &[OsString]) -> Result<Option<ExitStatus>, Failure> {
        let mut command = match SideCommand::spawn(argv) {
            Ok(command) => command,
            Err(failure) => {
                self.sink.discard_unpublished();
                return Err(failure);
            }
        };
        if command.is_some() {
            // The recorded command may use the terminal, so no progress messages are printed.
            self.last_progress_time = None;
        }
        let mut result = self
            .sink
            .publish_header()
            .and_then(|()| self.read_buffers_until_end(command.as_mut()));
        // The call of `end` fails if the trace has already ended, so its result is ignored.
        let _ = self.trace.end();
        if result.is_ok() {
            result = self.drain_buffers();
        }
        // The output is finished after errors as well: the output may hold events that are not
        // written yet.
        let result = self.finish_output(result);
        // pfc waits for the command, which continues to run after a write error, and after another
        // program has ended the trace.
        let status = command
            .as_mut()
            .map(|command| command.wait(&mut self.event_loop))
            .transpose()?;
        match result {
            // The status of the command is kept, because it is not an error if the reader of
            // standard output has ended.
            Err(failure) if failure.is_closed_stdout() && status.is_some() => {
                message!("pfc: the reader of standard output has ended: the events after that were not written");
                Ok(status)
            }
            result => result.map(|()| status),
        }
    }

    /// Records a trace that another program has created until the trace ends or a signal arrives,
    /// and does not end the trace.
    pub fn record_without_ending_trace(mut self) -> Result<(), Failure> {
        let result = self
            .sink
            .publish_header()
            .and_then(|()| self.read_buffers_until_end(None))
            .and_then(|()| self.drain_buffers());
        self.finish_output(result)
    }

    fn read_buffers_until_end(
        &mut self,
        mut command: Option<&mut SideCommand>,
    ) -> Result<(), Failure> {
        loop {
            let until = Some(Instant::now() + MAX_BUFFER_READ_INTERVAL);
            let wake = self
                .event_loop
                .wait_for_readable_files(until, &[self.trace.as_fd()])
                .trying_to("wait for events")?;
            let nr_events = self.read_buffers()?;
            self.print_progress();
            let has_ended = match (wake, &mut command) {
                (WakeReason::Ready, _) => self.trace.has_ended()?,
                (wake, Some(command)) => command.handle_wake_reason(wake)?,
                (wake, None) => {
                    matches!(wake, WakeReason::Interrupted | WakeReason::Terminated(_))
                }
            };
            if has_ended {
                return Ok(());
            }
            if wake == WakeReason::Ready && nr_events == 0 {
                std::thread::sleep(DELAY_AFTER_EMPTY_WAKEUP);
            }
        }
    }

    fn read_buffers(&mut self) -> Result<usize, Failure> {
        let result = self
            .reader
            .read_round(&self.trace, self.sink.output.as_mut());
        result.map_err(|e| self.sink.to_failure(e))
    }

    /// Reads the events that are left in the buffers when the recording ends.
    fn drain_buffers(&mut self) -> Result<(), Failure> {
        for _ in 0..2 {
            for _ in 0..MAX_READS_PER_DRAIN_PASS {
                if self.read_buffers()? == 0 {
                    break;
                }
            }
            std::thread::sleep(EVENT_SETTLE_TIME);
        }
        Ok(())
    }

    /// Finishes the output after the recording, which has ended with `result`, and prints the
    /// summary.
    fn finish_output(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let result = self.sink.finish(result);
        if self.last_progress_time.is_some() {
            message::clear_progress();
        }
        summary::print_summary(&self.reader.totals(), &self.trace.info()?, &self.sink);
        result
    }

    /// Prints a progress message every second, if standard error is a terminal.
    fn print_progress(&mut self) {
        if let Some(last) = self
            .last_progress_time
            .as_mut()
            .filter(|t| t.elapsed() >= PROGRESS_MESSAGE_INTERVAL)
        {
            *last = Instant::now();
            let bytes = self.sink.output.bytes_written();
            message::print_progress(&summary::progress_message(&self.reader.totals(), bytes));
        }
    }
}
