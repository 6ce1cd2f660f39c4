// SPDX-License-Identifier: GPL-2.0

//! Samples the threads of a command that pfc follows with ptrace.

use std::io;

use perfmon::ring::Ring;
use perfmon::Context;

use super::lost::LostRecords;
use super::{ActiveContext, Contexts, Sampler};
use crate::record::freq::FreqController;
use crate::record::tasks::now;
use crate::stat::command::FollowHandler;

impl FollowHandler for Contexts {
    const STOP_AT_EXIT: bool = true;

    fn process_forked(&mut self, process: u32) {
        // If the kernel refuses to open the perf events, /proc is read when the process calls exec.
        let time = now();
        if self.open_task_events(Some(&[process])) {
            self.add_existing(vec![process], time);
        }
    }

    fn create_context(&self) -> io::Result<Option<Context>> {
        self.config.create_context().map(Some)
    }

    fn insert_attached(&mut self, thread: u32, context: Context) -> io::Result<()> {
        let ring = Ring::open(&context)?;
        let controller = |s: &Sampler| s.frequency.map(|f| FreqController::new(f, s.period));
        let live = ActiveContext {
            ring,
            controllers: self.config.samplers.iter().map(controller).collect(),
            context,
            lost: LostRecords::default(),
            is_ended: false,
        };
        self.live.insert(thread, live);
        Ok(())
    }

    fn attach_new_thread(&mut self, thread: u32) {
        self.tasks.record_fork(thread, now());
        self.attach_and_start(thread);
    }

    fn command_executed(&mut self, thread: u32) {
        self.tasks.record_exec(thread, now());
        self.attach_and_start(thread);
    }

    fn thread_executed(&mut self, former_tid: u32, tid: u32) -> io::Result<()> {
        if former_tid != tid {
            self.thread_exited(tid)?;
            if let Some(live) = self.live.remove(&former_tid) {
                self.live.insert(tid, live);
            }
        }
        // The samples in the ring belong to the program before the exec, so the ring is read before
        // the exec is recorded.
        if !self.is_flight_recorder {
            self.drain_ring(tid);
        }
        self.tasks.record_exec(tid, now());
        Ok(())
    }

    fn before_thread_exit(&mut self, thread: u32) {
        // After a process has exited, its mappings can no longer be read from /proc.
        self.tasks.record_exit(thread, now());
    }

    fn thread_exited(&mut self, thread: u32) -> io::Result<()> {
        if let Some(live) = self.live.get_mut(&thread) {
            let causes = live.read_messages(self.config.scope);
            self.short_counts.add(thread, causes);
            // A flight recorder keeps the context of the exited thread, so that the next file also
            // has the thread's last samples.
            live.is_ended = true;
        }
        if !self.is_flight_recorder {
            self.drain_ring(thread);
            self.close(thread);
        }
        Ok(())
    }
}

impl Contexts {
    fn attach_and_start(&mut self, thread: u32) {
        if self.is_stopped {
            return;
        }
        let started = self
            .attach(thread)
            .and_then(|()| self.start_context(thread));
        if let Err(error) = started {
            self.live.remove(&thread);
            self.failed_threads += 1;
            self.first_error.get_or_insert(error);
        }
    }
}
