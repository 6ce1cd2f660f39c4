// SPDX-License-Identifier: GPL-2.0

//! The process-accounting state of a CPU: 64-bit words with times and counts, the functions that
//! update these words at task switches, and consistent reads of the words. A *run* lasts from one
//! task switch on the CPU to the next. The *own* time of a run is its time without interrupts.

use super::seqcount::{retry_read, SeqCount};
use super::task::{LatencyBounds, Task, ValueWords};
use super::values::{
    add, is_system_time_mode, value, SwitchReason, IDLE, KERNEL_UNTIL_USER_MODE, NR_CPU_VALUES,
    USER,
};
use protocols::sync::{fence_acquire, Word};

/// Number of softirqs that the kernel has.
const NR_SOFTIRQS: usize = 10;

/// The time of interrupts in one word, so that a reader always reads a consistent value. Bits 1 to
/// 63 hold the sum of the interrupts' end times minus the sum of their start times. Bit 0 is 1
/// while an interrupt is running.
#[derive(Default)]
pub(super) struct IrqTime(pub(super) Word);

/// The value of an [`IrqTime`] word at the beginning of a run. The default, `u64::MAX`, is odd and
/// therefore differs from the value at the beginning of any run.
pub(super) struct IrqTimeAtRunStart(pub(super) Word);

impl Default for IrqTimeAtRunStart {
    fn default() -> Self {
        Self(Word::new(u64::MAX))
    }
}

/// The accounting state of a CPU, in 64-bit words. While a CPU is online, only the CPU itself
/// writes its words. Only functions that account interrupts write the interrupt times and counts.
#[derive(Default)]
#[repr(C)]
pub struct Cpu {
    pub(super) seqcount: SeqCount,
    /// The number of the CPU, plus 1.
    number_plus_1: Word,
    /// The mode: `USER`, `SYSTEM`, `KERNEL_UNTIL_USER_MODE` or `IDLE`.
    pub(super) mode: Word,
    /// The ticks of the present run, without interrupts, before the current interval of system time
    /// began. 0 if this interval began in an earlier run.
    pub(super) own_ticks_at_system_time_start: Word,
    /// Time at which the present run began; 0 if accounting has not begun on the CPU.
    run_start: Word,
    /// Bits 1 to 63 hold the interrupt time at the beginning of the present run, and bit 0 is 0.
    /// This word is equal to `irq_time` as long as no interrupt has taken time during the run.
    irq_time_at_run_start: IrqTimeAtRunStart,
    /// The value of `nr_hardirqs` when the present run began.
    pub(super) nr_hardirqs_at_run_start: Word,
    /// Ticks of finished runs, including those of the idle task.
    finished_run_ticks: Word,
    /// Ticks of system time. An interval of system time is added at its end or at a switch.
    pub(super) system: Word,
    /// Ticks of finished runs of the idle task.
    idle: Word,
    /// Number of system calls.
    pub(super) calls: Word,
    /// Nonzero while the CPU is going offline or is offline.
    offline: Word,
    /// Nonzero while a system-call probe is updating words of this CPU.
    pub(super) updating_mode: Word,
    /// Interrupt time, including softirqs.
    pub(super) irq_time: IrqTime,
    /// Number of updates of `irq_time` that are in progress. An update reads the clock and then
    /// changes `irq_time`.
    pub(super) irq_updates_in_progress: Word,
    /// Number of interrupts nested in the interrupt that `irq_time` measures.
    pub(super) nr_nested_irqs: Word,
    /// Number of hard interrupts.
    pub(super) nr_hardirqs: Word,
    /// Time of hard interrupts.
    pub(super) hardirq_time: IrqTime,
    /// Number of hard interrupts nested in the hard interrupt that `hardirq_time` measures.
    pub(super) nr_nested_hardirqs: Word,
    /// The running softirq. The low 32 bits hold the softirq's number + 1, or 0 if no softirq is
    /// running. Bit 32 is set if the time of the softirq counts as interrupt time.
    pub(super) running_softirq: Word,
    /// Time at which the running softirq began.
    pub(super) softirq_start: Word,
    /// Total time of hard interrupts up to the beginning of the running softirq.
    pub(super) hardirq_time_at_softirq_start: Word,
    /// Time of each softirq.
    pub(super) softirq_time: [Word; NR_SOFTIRQS],
    /// Number of times that each softirq ran.
    pub(super) softirq_count: [Word; NR_SOFTIRQS],
    /// Time at which the machine was last suspended.
    suspend_start: Word,
}

/// The kernel's numbers of the softirqs that `/proc/rawsysppa` lists: HI, TASKLET, TIMER, NET_TX,
/// NET_RX.
const LISTED_SOFTIRQS: [usize; 5] = [0, 6, 1, 2, 3];

/// Ticks of a run: `own_ticks` counts ticks outside of interrupts, `irq_ticks` ticks in interrupts.
#[derive(Clone, Copy)]
pub(super) struct RunTime {
    pub(super) own_ticks: u64,
    pub(super) irq_ticks: u64,
}

/// Returns the difference of two times, or 0 if the difference is negative. Negative differences
/// occur because the clocks of two CPUs may differ a little.
#[inline(always)]
pub(super) fn saturating_time_diff(later: u64, earlier: u64) -> u64 {
    match later.wrapping_sub(earlier) as i64 {
        ticks if ticks < 0 => 0,
        ticks => ticks as u64,
    }
}

impl Cpu {
    /// Creates the accounting state of the CPU with the number `cpu`.
    pub fn new(cpu: u32) -> Self {
        Self {
            number_plus_1: Word::new(u64::from(cpu).wrapping_add(1)),
            ..Self::default()
        }
    }

    /// Returns the ticks of the present run up to `now`; `total` is the interrupt time at `now`.
    #[inline(always)]
    pub(super) fn run_time(&self, now: u64, total: u64) -> RunTime {
        let irq_ticks = saturating_time_diff(
            total.wrapping_shl(1),
            self.irq_time_at_run_start.0.load_relaxed(),
        ) >> 1;
        RunTime {
            own_ticks: self.own_time(now, irq_ticks),
            irq_ticks,
        }
    }

    /// Returns the own time of the present run: the ticks from the start of the run to `now`, minus
    /// `interrupts`, the ticks of interrupts during the run.
    #[inline(always)]
    fn own_time(&self, now: u64, interrupts: u64) -> u64 {
        match self.run_start.load_relaxed() {
            // Accounting has not begun on this CPU.
            0 => 0,
            run => saturating_time_diff(now, run.wrapping_add(interrupts)),
        }
    }

    /// Returns the own time (ticks outside of interrupts) of the present run. Called in the context
    /// of the task, where an interrupt may occur between the reads of two words.
    #[inline(always)]
    pub(super) fn current_own_time(&self, clock: impl Fn() -> u64) -> u64 {
        let (now, total) = self.irq_time.now_and_total(&clock);
        self.run_time(now, total).own_ticks
    }

    /// Returns true if accounting has begun on this CPU, by a switch or by [`begin`](Self::begin).
    pub fn has_begun(&self) -> bool {
        self.run_start.load_relaxed() != 0
    }

    /// Begins accounting on this CPU with the running task. `idle` is true if this task is the idle
    /// task. Interrupts off.
    pub fn begin(&self, idle: bool, now: u64) {
        self.seqcount.write_begin();
        self.mode.store_relaxed(if idle { IDLE } else { USER });
        self.start_run(now);
        self.seqcount.write_end();
    }

    #[inline(always)]
    fn start_run(&self, now: u64) {
        self.own_ticks_at_system_time_start.store_relaxed(0);
        self.run_start.store_relaxed(now);
        self.start_run_irqs(now);
    }

    #[inline(always)]
    fn start_run_irqs(&self, now: u64) {
        let total = self.irq_time.total(now);
        self.irq_time_at_run_start
            .0
            .store_relaxed(total.wrapping_shl(1));
        self.nr_hardirqs_at_run_start
            .store_relaxed(self.nr_hardirqs.load_relaxed());
    }

    /// Marks the CPU as offline or online. Idle time of an offline CPU is not counted.
    pub fn set_offline(&self, away: bool) {
        self.offline.store_relaxed(away.into());
    }

    /// Records the time at which the machine is suspended. Called on the last CPU that is online,
    /// outside of interrupts, with interrupts off.
    pub fn suspend(&self, now: u64) {
        self.suspend_start.store_relaxed(now);
    }

    /// Moves the start of the present run forward, so that the run does not include the time since
    /// [`suspend`](Self::suspend). The clock may have restarted at 0 during the suspension.
    pub fn resume(&self, now: u64) {
        let run = self.run_start.load_relaxed();
        if run == 0 {
            return;
        }
        let elapsed = saturating_time_diff(self.suspend_start.load_relaxed(), run);
        self.seqcount.write_begin();
        self.run_start
            .store_relaxed(now.saturating_sub(elapsed).max(1));
        self.seqcount.write_end();
    }

    /// Accounts the last run of an offline CPU. No probe accounts the last run, because the kernel
    /// does not report the last switches to the idle task on a CPU that goes offline. Called on
    /// another CPU, after the offline CPU has stopped executing.
    pub fn account_last_run<V: ValueWords>(&self, last: Option<&Task<V>>, now: u64) {
        self.set_offline(true);
        self.begin_switch();
        let bounds = LatencyBounds::default();
        // Ignore the result, which is true if the next task continues in the mode
        // `KERNEL_UNTIL_USER_MODE`: an offline CPU has no next task.
        let _ = self.switch((last, SwitchReason::Blocked), (None, &bounds), || true, now);
    }

    /// Increments the count by which readers detect a task switch. Called before the switch reads
    /// the clock, so that no reader reports more run time than the switch will add. Interrupts off.
    #[inline(always)]
    pub fn begin_switch(&self) {
        self.seqcount.write_begin();
    }

    /// Returns the ticks of the present run if no interrupt took time during the run. If the result
    /// is `None`, the caller has to use [`switch`](Self::switch): an interrupt took time,
    /// accounting has not begun, or the clock went back. Interrupts off.
    ///
    /// The clock is the TSC, with which each interrupt takes at least one tick. An interrupt of 0
    /// ticks would not be detected here, and the next call of [`switch`](Self::switch) would count
    /// the interrupt for the task of a later run.
    #[inline(always)]
    pub fn uninterrupted_run_ticks(&self, now: u64) -> Option<u64> {
        match self.irq_time.0.load_relaxed() == self.irq_time_at_run_start.0.load_relaxed() {
            true => now.checked_sub(self.run_start.load_relaxed()),
            false => None,
        }
    }

    /// Accounts a switch from the task `prev` to the task `next`; `SwitchReason` is the reason of
    /// the switch. `prev` or `next` is `None` if that task is not accounted or is the idle task.
    /// Interrupts off. Called after [`begin_switch`](Self::begin_switch), and after
    /// [`Task::begin_switch_in`] of the next task.
    ///
    /// Returns true if the next task continues in the mode `KERNEL_UNTIL_USER_MODE`, for example in
    /// a page fault. If the result is true, the caller makes sure that
    /// [`syscall_exit`](Self::syscall_exit) is called when the CPU enters user mode.
    #[inline]
    pub fn switch<V: ValueWords>(
        &self,
        prev: (Option<&Task<V>>, SwitchReason),
        next: (Option<&Task<V>>, &LatencyBounds),
        next_idle: impl FnOnce() -> bool,
        now: u64,
    ) -> bool {
        let interrupts = self.account_irqs(prev.0, now);
        let own = self.own_time(now, interrupts);
        self.switch_fast(own, prev, next, next_idle, now)
    }

    /// Accounts a switch like [`switch`](Self::switch), but without accounting interrupts. `own` is
    /// the result of [`uninterrupted_run_ticks`](Self::uninterrupted_run_ticks).
    ///
    /// A task switch changes a task's words in steps. The writer updates the task's `seqcount`
    /// before and after each step, and this CPU's `seqcount` before and after the whole switch. A
    /// reader of the words of a running task checks the `seqcount` of the task and that of the CPU.
    #[inline(always)]
    pub fn switch_fast<V: ValueWords>(
        &self,
        own: u64,
        (prev, leave): (Option<&Task<V>>, SwitchReason),
        (next, bounds): (Option<&Task<V>>, &LatencyBounds),
        next_idle: impl FnOnce() -> bool,
        now: u64,
    ) -> bool {
        let (continues_in, system) = self.add_run_to_cpu_sums(own);
        if let Some(task) = prev {
            task.seqcount.write_begin();
            task.switch_out(continues_in, (own, system), leave, now);
            task.seqcount.write_end();
        }
        let mode = match next {
            Some(task) => task.switch_in(&self.number_plus_1, bounds, now),
            None if next_idle() => IDLE,
            None => USER,
        };
        self.mode.store_relaxed(mode);
        self.own_ticks_at_system_time_start.store_relaxed(0);
        self.run_start.store_relaxed(now);
        self.seqcount.write_end();
        mode == KERNEL_UNTIL_USER_MODE
    }

    /// Adds the time of the run to the sums of the CPU. Returns the mode in which the task
    /// continues, `USER`, `SYSTEM` or `KERNEL_UNTIL_USER_MODE`, and the unfinished system time of
    /// the task.
    #[inline(always)]
    fn add_run_to_cpu_sums(&self, own: u64) -> (u64, u64) {
        add(&self.finished_run_ticks, own);
        match self.mode.load_relaxed() {
            USER => (USER, 0),
            mode if is_system_time_mode(mode) => {
                let called = own.wrapping_sub(self.own_ticks_at_system_time_start.load_relaxed());
                add(&self.system, called);
                (mode, called)
            }
            _ => {
                match self.offline.load_relaxed() {
                    0 => add(&self.idle, own),
                    _ => add(&self.finished_run_ticks, own.wrapping_neg()),
                }
                (USER, 0)
            }
        }
    }

    /// Adds the time and the number of the interrupts during the ending run to the task's values,
    /// and begins to count the interrupts of the next run. Returns the interrupt time of the ending
    /// run, in ticks.
    #[inline(always)]
    fn account_irqs<V: ValueWords>(&self, task: Option<&Task<V>>, now: u64) -> u64 {
        let interrupts = self.run_time(now, self.irq_time.total(now)).irq_ticks;
        let count = self.nr_hardirqs.load_relaxed();
        let count = count.wrapping_sub(self.nr_hardirqs_at_run_start.load_relaxed());
        self.start_run_irqs(now);
        if let Some(task) = task {
            task.add(value::INTERRUPTS, interrupts);
            task.add(value::INTERRUPT_COUNT, count);
        }
        interrupts
    }

    /// Replaces `old`, the record of the running task, by `new`. `old` is `None` if the task was
    /// not accounted before. `new` is `None` if the task is not accounted any more. `old` gets the
    /// time of the run that ends. Interrupts off. Called after
    /// [`begin_switch`](Self::begin_switch).
    pub fn replace_task<V: ValueWords>(
        &self,
        old: Option<&Task<V>>,
        new: Option<&Task<V>>,
        now: u64,
    ) {
        let interrupts = self.account_irqs(old, now);
        let own = self.own_time(now, interrupts);
        let (_, system) = self.add_run_to_cpu_sums(own);
        if let Some(old) = old {
            old.detach_running(own, system);
        }
        match (old, new) {
            (None, Some(new)) => new.attach_running(&self.number_plus_1, now),
            (Some(old), Some(new)) => new.continue_running(&self.number_plus_1, old),
            _ => {}
        }
        self.own_ticks_at_system_time_start.store_relaxed(0);
        self.run_start.store_relaxed(now);
        self.seqcount.write_end();
    }

    /// Records that `task` is already running on this CPU. Interrupts off.
    pub fn attach_running<V: ValueWords>(&self, task: &Task<V>, now: u64) {
        task.attach_running(&self.number_plus_1, now);
    }

    /// Accounts the end of a scheduler call that chose `task`. `other` is true if the scheduler
    /// switched from another task to `task`, and false if `task` continues. Preemption off.
    #[inline(always)]
    pub fn end_schedule_call<V: ValueWords>(&self, task: &Task<V>, other: bool, now: u64) {
        let Some(values) = task.current_group_values() else {
            return;
        };
        match other {
            true => add(
                &values[value::SWITCHING],
                saturating_time_diff(now, self.run_start.load_relaxed()),
            ),
            false => add(&values[value::RESCHEDULED], 1),
        }
    }

    /// Returns all values of this CPU up to now. Runs on any CPU. `online` is true if this CPU is
    /// online. Returns `None` if a writer is changing the values. `clock` must read the clock after
    /// all earlier loads.
    pub fn values(&self, online: bool, clock: impl Fn() -> u64) -> Option<[u64; NR_CPU_VALUES]> {
        let mut all = retry_read(|| {
            let start = self.seqcount.read_begin();
            let (now, total) = self.stable_irq_time(&clock)?;
            let own = self.run_time(now, total).own_ticks;
            let mut idle = self.idle.load_relaxed();
            let mut busy = self.finished_run_ticks.load_relaxed().wrapping_sub(idle);
            let mut system = self.system.load_relaxed();
            match self.stable_mode()? {
                IDLE if online && self.offline.load_relaxed() == 0 => idle = idle.wrapping_add(own),
                IDLE => {}
                mode => {
                    busy = busy.wrapping_add(own);
                    if is_system_time_mode(mode) {
                        let since = self.own_ticks_at_system_time_start.load_relaxed();
                        system = system.wrapping_add(own.saturating_sub(since));
                    }
                }
            }
            let mut all = [0; NR_CPU_VALUES];
            all[0] = busy.saturating_sub(system);
            all[1] = system;
            all[2] = total;
            all[3] = idle;
            all[4] = self.calls.load_relaxed();
            all[5] = self.nr_hardirqs.load_relaxed();
            // Pairs with the release fence in `SeqCount::write_begin`.
            fence_acquire();
            self.seqcount.is_consistent(start).then_some(all)
        })?;
        for (time, count) in self.softirq_time.iter().zip(&self.softirq_count) {
            all[6] = all[6].wrapping_add(time.load_relaxed());
            all[7] = all[7].wrapping_add(count.load_relaxed());
        }
        let mut rest = all.iter_mut().skip(8);
        for number in LISTED_SOFTIRQS {
            for words in [&self.softirq_time, &self.softirq_count] {
                if let (Some(to), Some(word)) = (rest.next(), words.get(number)) {
                    *to = word.load_relaxed();
                }
            }
        }
        Some(all)
    }
}
