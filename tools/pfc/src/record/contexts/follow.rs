// SPDX-License-Identifier: GPL-2.0

//! Samples the threads of a command that pfc follows with ptrace.

use std::io;

use perfmon::ring::Ring;
use perfmon::Context;

use super::{SamplingContext, SamplingContexts, SamplingPmdConfig};
use crate::record::freq::FreqController;
use crate::record::lost::LostRecordCounts;
use crate::record::tasks::monotonic_now_ns;
use crate::stat::command::FollowedThreadHandler;

impl FollowedThreadHandler for SamplingContexts {
    const STOP_THREADS_AT_EXIT: bool = true;

    fn on_command_forked(&mut self, process: u32) {
        // If the kernel refuses to open the perf events, /proc is read when the process calls exec.
        let time = monotonic_now_ns();
        if self.open_perf_task_events(Some(&[process])) {
            self.record_existing_processes(vec![process], time);
        }
    }

    fn create_context(&self) -> io::Result<Option<Context>> {
        self.config.create_context().map(Some)
    }

    fn insert_attached_context(&mut self, thread: u32, context: Context) -> io::Result<()> {
        let ring = Ring::open(&context)?;
        let controller = |s: &SamplingPmdConfig| {
            s.target_frequency_hz
                .map(|f| FreqController::new(f, s.initial_period))
        };
        let live = SamplingContext {
            ring,
            frequency_controllers: self.config.sampling_pmds.iter().map(controller).collect(),
            context,
            lost_records: LostRecordCounts::default(),
            has_ended: false,
        };
        self.contexts_by_target.insert(thread, live);
        Ok(())
    }

    fn attach_to_new_thread(&mut self, thread: u32) {
        self.process_recorder
            .record_new_thread(thread, monotonic_now_ns());
        self.attach_and_start_context(thread);
    }

    fn on_command_executed(&mut self, thread: u32) {
        self.process_recorder
            .record_process_exec(thread, monotonic_now_ns());
        self.attach_and_start_context(thread);
    }

    fn on_thread_executed(&mut self, former_tid: u32, tid: u32) -> io::Result<()> {
        if former_tid != tid {
            self.on_thread_exited(tid)?;
            if let Some(live) = self.contexts_by_target.remove(&former_tid) {
                self.contexts_by_target.insert(tid, live);
            }
        }
        // The samples in the ring belong to the program before the exec, so the ring is read before
        // the exec is recorded.
        if !self.is_flight_recorder {
            self.drain_sample_ring(tid);
        }
        self.process_recorder
            .record_process_exec(tid, monotonic_now_ns());
        Ok(())
    }

    fn before_thread_exit(&mut self, thread: u32) {
        // After a process has exited, its mappings can no longer be read from /proc.
        self.process_recorder
            .record_thread_exit(thread, monotonic_now_ns());
    }

    fn on_thread_exited(&mut self, thread: u32) -> io::Result<()> {
        if let Some(live) = self.contexts_by_target.get_mut(&thread) {
            let causes = live.take_end_causes(self.config.scope);
            self.incomplete_targets.add(thread, causes);
        }
        self.keep_samples_and_close_context(thread);
        Ok(())
    }
}

impl SamplingContexts {
    fn attach_and_start_context(&mut self, thread: u32) {
        if self.is_stopped {
            return;
        }
        let started = self
            .attach_context(thread)
            .and_then(|()| self.start_context(thread));
        if let Err(error) = started {
            self.contexts_by_target.remove(&thread);
            self.nr_unsampled_threads += 1;
            self.first_thread_error.get_or_insert(error);
        }
    }
}
