// SPDX-License-Identifier: GPL-2.0

//! The status of a context, for `PERFMON_STATUS`.

use perfmon_rules::abi::{status, Status};

use crate::contexts::context::Context;
use crate::contexts::phase::Target;
use crate::contexts::sampling_state::ThrottleStats;
use base::clock;

impl Context {
    /// Updates the values of the context and returns its status for `PERFMON_STATUS`.
    pub(crate) fn status(&self) -> Status {
        let mut told = Status::default();
        self.with_state_on_access_cpu(&mut |state| {
            self.sync_and_deliver(state);
            let ThrottleStats {
                nr,
                throttled_ns,
                lost_samples,
            } = state.sampling.throttle_stats;
            told = Status {
                nr_throttles: nr,
                throttled: throttled_ns,
                lost: lost_samples,
                elsewhere: state.cpu_fit.unfit_time_ns,
                ..Status::default()
            };
            if let Some((since, until)) = state.sampling.throttle_start_end_ns {
                let now = clock::monotonic_ns_in_any_context();
                let lasts = now < until || state.phase.pmu_cpu().is_some();
                let ended = if lasts { now } else { until };
                told.throttled = throttled_ns.wrapping_add(ended.saturating_sub(since));
                told.flags |= if lasts { status::THROTTLED } else { 0 };
            }
            for (is, flag) in [
                (state.phase.is_started(), status::STARTED),
                (state.sampling.masked, status::MASKED),
                (state.phase.target() == Target::Dead, status::ENDED),
                (
                    state.phase.is_started() && state.cpu_fit.is_on_unfit_cpu(),
                    status::ELSEWHERE,
                ),
            ] {
                told.flags |= if is { flag } else { 0 };
            }
        });
        told
    }
}
