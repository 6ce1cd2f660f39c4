// SPDX-License-Identifier: GPL-2.0

//! Counts the threads of a command that pfc follows with ptrace, and the thread that has taken over
//! the ID of a selected process at an exec.

use std::io;

use perfmon::Context;

use super::{add_sums, union_of_causes, AttachedContext, CountingContexts};
use crate::stat::command::FollowedThreadHandler;
use crate::stat::estimate::CountSums;
use crate::stat::short_counts::MissingCountCauses;
use crate::target::attach_after_exec;

impl FollowedThreadHandler for CountingContexts {
    const STOP_THREADS_AT_EXIT: bool = false;

    fn create_context(&self) -> io::Result<Option<Context>> {
        match self.config.is_empty() {
            true => Ok(None),
            false => self.config.create_context().map(Some),
        }
    }

    fn insert_attached_context(&mut self, thread: u32, context: Context) -> io::Result<()> {
        self.contexts.insert(thread, context.into());
        Ok(())
    }

    fn attach_to_new_thread(&mut self, thread: u32) {
        let started = self
            .attach_context(thread)
            .and_then(|()| self.start_context(thread));
        if let Err(error) = started {
            self.contexts.remove(&thread);
            self.nr_uncounted_threads += 1;
            self.first_thread_error.get_or_insert(error);
        }
    }

    fn on_thread_executed(&mut self, former_tid: u32, tid: u32) -> io::Result<()> {
        if former_tid != tid {
            self.on_thread_exited(tid)?;
            if let Some(context) = self.contexts.remove(&former_tid) {
                self.contexts.insert(tid, context);
            }
        }
        Ok(())
    }

    fn on_thread_exited(&mut self, thread: u32) -> io::Result<()> {
        match self.contexts.remove(&thread) {
            Some(attached) => self.close_thread_context(thread, attached),
            None => Ok(()),
        }
    }
}

impl CountingContexts {
    /// Closes the contexts of the first threads of selected processes that have ended. If a context
    /// has not ended early and an exec has given the ID of the process to another thread, attaches a
    /// context to that thread and starts it.
    pub(super) fn follow_execs(&mut self) -> io::Result<()> {
        let has_ended = |attached: &AttachedContext| attached.end_causes.is_some();
        let mut ended = self.followed_processes.clone();
        ended.retain(|process| self.contexts.get(process).is_some_and(has_ended));
        for process in ended {
            self.followed_processes.remove(&process);
            if let Some(attached) = self.contexts.remove(&process) {
                let values = self.config.read_context_sums(&attached.context)?;
                self.incomplete_targets
                    .add(process, union_of_causes(&values));
                let causes = match self.incomplete_targets.has_ended_early(process) {
                    true => MissingCountCauses::NONE,
                    false => self.follow_exec(process),
                };
                let end_causes = attached.end_causes.map(|known| known.union(causes));
                let attached = AttachedContext {
                    end_causes,
                    ..attached
                };
                self.close_thread_context(process, attached)?;
            }
        }
        Ok(())
    }

    /// Attaches a context to the thread to which an exec has given the process ID `process`, and
    /// starts the context. Returns the cause of missing counts; [`MissingCountCauses::NONE`] if
    /// there is no such thread.
    fn follow_exec(&mut self, process: u32) -> MissingCountCauses {
        let attached = attach_after_exec(process, || {
            self.attach_context(process)?;
            self.start_context(process)
        });
        match attached {
            Ok(false) => MissingCountCauses::NONE,
            Ok(true) => {
                self.followed_processes.insert(process);
                MissingCountCauses::EXEC
            }
            Err(error) => {
                self.nr_uncounted_threads += 1;
                self.first_thread_error.get_or_insert(error);
                MissingCountCauses::NONE
            }
        }
    }

    /// Adds the counts of a thread that has exited to the sums, and closes the context of the
    /// thread.
    fn close_thread_context(
        &mut self,
        thread: u32,
        mut attached: AttachedContext,
    ) -> io::Result<()> {
        let values = self.config.read_context_sums(&attached.context)?;
        let early_causes = attached.read_end_causes(self.config.scope)?;
        let values: Vec<CountSums> = values
            .iter()
            .map(|sum| sum.with_missing_count_causes(early_causes))
            .collect();
        self.incomplete_targets
            .add(thread, union_of_causes(&values));
        add_sums(&mut self.sums_of_closed_contexts, &values);
        if self.config.cascade_threshold.is_some() {
            self.throttling_of_closed_contexts
                .add(&attached.context.status()?);
        }
        Ok(())
    }
}
