// SPDX-License-Identifier: GPL-2.0

//! Tests process accounting with random sequences of all events of a CPU. The model adds each tick
//! to the sum of its kind (user, system, interrupt or idle time).

use std::cell::Cell;

use ppa_rules::{
    value, Cpu, LatencyBounds, SwitchReason, Task, TaskHistory, TaskSnapshot, NR_LATENCIES,
    NR_VALUES,
};
use proptest::prelude::*;
use protocols::sync::Word;

const NR_TASKS: usize = 3;
/// Index of the idle task.
const IDLE_TASK_INDEX: usize = NR_TASKS;

#[derive(Clone, Debug)]
enum AccountingEvent {
    Advance(u64),
    /// A switch to a task: the index of the task, and the index of the reason.
    Switch(usize, u8),
    SyscallEnter,
    SyscallExit,
    /// Seccomp checks a system call.
    SyscallCheck,
    /// The running task executes kernel code until it returns to user mode.
    EnterKernel,
    /// An interrupt: the ticks that each handler takes, and the number of handlers.
    Interrupt(u64, u8),
    /// A softirq that is interrupted once: the ticks before, in and after the interrupt.
    Softirq(u64, u64, u64),
    Wake(usize),
    /// The task whose index is given gets a new accounting record. The values of the old record are
    /// kept in the history of the task.
    Replace(usize),
    /// All values are read and compared with the model.
    Read,
}

fn any_event() -> impl Strategy<Value = AccountingEvent> {
    prop_oneof![
        (1u64..1000).prop_map(AccountingEvent::Advance),
        (0..=NR_TASKS, 0u8..3).prop_map(|(t, reason)| AccountingEvent::Switch(t, reason)),
        Just(AccountingEvent::SyscallEnter),
        Just(AccountingEvent::SyscallExit),
        Just(AccountingEvent::SyscallCheck),
        Just(AccountingEvent::EnterKernel),
        (1u64..500, 1u8..4)
            .prop_map(|(ticks, handlers)| AccountingEvent::Interrupt(ticks, handlers)),
        (1u64..300, 0u64..300, 1u64..300).prop_map(|(a, b, c)| AccountingEvent::Softirq(a, b, c)),
        (0..NR_TASKS).prop_map(AccountingEvent::Wake),
        (0..NR_TASKS).prop_map(AccountingEvent::Replace),
        Just(AccountingEvent::Read),
    ]
}

#[derive(Default)]
struct Model {
    user: u64,
    system: u64,
    interrupts: u64,
    idle: u64,
    softirq: u64,
    sched: [u64; NR_TASKS],
    syscall_time: [u64; NR_TASKS],
    interrupted: [u64; NR_TASKS],
    switches: [[u64; 3]; NR_TASKS],
    latency: [u64; NR_TASKS],
    runq: [u64; NR_TASKS],
}

fn zero_values(nr_groups: usize) -> Vec<Word> {
    (0..nr_groups * NR_VALUES).map(|_| Word::new(0)).collect()
}

fn new_task_with_groups(nr_groups: usize, cpus_per_group: u32) -> Task<Vec<Word>> {
    Task::new(zero_values(nr_groups - 1), cpus_per_group)
}

fn new_task() -> Task<Vec<Word>> {
    new_task_with_groups(1, 1)
}

proptest! {
    #[test]
    fn r4_5_each_tick_is_counted_where_the_model_counts_it(
        events in prop::collection::vec(any_event(), 1..200),
    ) {
        let clock = Cell::new(1_000_000u64);
        let cpu = Cpu::new(0);
        let mut tasks: Vec<_> = (0..NR_TASKS).map(|_| new_task()).collect();
        let mut histories: Vec<_> = (0..NR_TASKS).map(|_| None).collect();
        let bounds = LatencyBounds::new(100);
        let mut model = Model::default();
        let mut running = IDLE_TASK_INDEX;
        // The flags of each task: `in_syscall` is true while its time is system time, and
        // `in_kernel` is true if its system time ends at the return to user mode.
        let (mut in_syscall, mut in_kernel) = ([false; NR_TASKS], [false; NR_TASKS]);
        let (mut woken, mut ready) = ([None::<(u64, bool)>; NR_TASKS], [None; NR_TASKS]);
        let mut interrupts = 0;
        for task in &tasks {
            task.begin(false, true, clock.get());
        }
        cpu.begin(true, clock.get());
        let start = clock.get();
        let advance = |ticks: u64| clock.set(clock.get() + ticks);
        for event in events {
            match event {
                AccountingEvent::Advance(ticks) => {
                    advance(ticks);
                    match running {
                        IDLE_TASK_INDEX => model.idle += ticks,
                        t => {
                            model.sched[t] += ticks;
                            if in_syscall[t] {
                                model.system += ticks;
                                model.syscall_time[t] += ticks;
                            } else {
                                model.user += ticks;
                            }
                        }
                    }
                }
                AccountingEvent::Switch(next, reason) => {
                    if next == running {
                        continue;
                    }
                    let reasons = [
                        SwitchReason::Blocked,
                        SwitchReason::Expired,
                        SwitchReason::Preempted,
                    ];
                    let switch_reason = reasons[usize::from(reason)];
                    let now = clock.get();
                    if let Some(t) = tasks.get(running).map(|_| running) {
                        model.switches[t][usize::from(reason)] += 1;
                        ready[t] = (switch_reason != SwitchReason::Blocked).then_some(now);
                        woken[t] = woken[t].filter(|_| switch_reason == SwitchReason::Blocked);
                    }
                    if next != IDLE_TASK_INDEX {
                        if let Some((then, _)) = woken[next].take() {
                            model.latency[next] += now - then;
                        } else if let Some(then) = ready[next] {
                            model.runq[next] += now - then;
                        }
                        ready[next] = None;
                    }
                    let prev = (tasks.get(running), switch_reason);
                    let after = (tasks.get(next), &bounds);
                    let idle = || next == IDLE_TASK_INDEX;
                    cpu.begin_switch();
                    if let Some(task) = tasks.get(next) {
                        task.begin_switch_in();
                    }
                    let returns = match cpu.uninterrupted_run_ticks(now) {
                        Some(own) => cpu.switch_fast(own, prev, after, idle, now),
                        None => cpu.switch(prev, after, idle, now),
                    };
                    prop_assert_eq!(returns, next != IDLE_TASK_INDEX && in_kernel[next]);
                    running = next;
                }
                AccountingEvent::SyscallEnter => {
                    if running != IDLE_TASK_INDEX {
                        cpu.syscall_enter(|| tasks.get(running), || clock.get());
                        (in_syscall[running], in_kernel[running]) = (true, false);
                    }
                }
                AccountingEvent::SyscallExit => {
                    if running != IDLE_TASK_INDEX {
                        cpu.syscall_exit(|| tasks.get(running), || clock.get());
                        (in_syscall[running], in_kernel[running]) = (false, false);
                    }
                }
                AccountingEvent::SyscallCheck => {
                    if running != IDLE_TASK_INDEX {
                        cpu.syscall_seccomp_check(|| clock.get());
                        in_syscall[running] = true;
                    }
                }
                AccountingEvent::EnterKernel => {
                    if running != IDLE_TASK_INDEX {
                        cpu.enter_kernel(|| clock.get());
                        (in_syscall[running], in_kernel[running]) = (true, true);
                    }
                }
                AccountingEvent::Interrupt(ticks, handlers) => {
                    for handler in 0..handlers {
                        cpu.irq_enter(handler == 0, || clock.get());
                        advance(ticks);
                        cpu.irq_exit(|| clock.get());
                    }
                    let ticks = ticks * u64::from(handlers);
                    interrupts += 1;
                    model.interrupts += ticks;
                    if running != IDLE_TASK_INDEX {
                        model.interrupted[running] += ticks;
                    }
                }
                AccountingEvent::Softirq(before, inside, after) => {
                    cpu.softirq_enter(1, false, || clock.get());
                    advance(before);
                    cpu.irq_enter(true, || clock.get());
                    advance(inside);
                    cpu.irq_exit(|| clock.get());
                    advance(after);
                    cpu.softirq_exit(|| clock.get());
                    interrupts += 1;
                    let all = before + inside + after;
                    model.interrupts += all;
                    model.softirq += before + after;
                    if running != IDLE_TASK_INDEX {
                        model.interrupted[running] += all;
                    }
                }
                AccountingEvent::Wake(t) => {
                    tasks[t].wake(clock.get());
                    // If a task is woken more than once, its latency begins with the last wakeup. A
                    // task that is ready to run has not slept, so its wakeup is ignored.
                    if ready[t].is_none() {
                        woken[t] = Some((clock.get(), t != running));
                    }
                }
                AccountingEvent::Replace(t) => {
                    let (old, now) = (std::mem::replace(&mut tasks[t], new_task()), clock.get());
                    tasks[t].begin(false, true, now);
                    let copied = tasks[t].copy_cpu_mode_and_wait_start(&old);
                    if running == t {
                        cpu.begin_switch();
                        cpu.replace_task(Some(&old), tasks.get(t), now);
                    }
                    old.end(now);
                    tasks[t].recopy_wait_start(copied, &old);
                    let history = TaskHistory::new(zero_values(1), 1);
                    history.add_record(&old, histories[t].as_ref());
                    histories[t] = Some(history);
                }
                AccountingEvent::Read => {
                    let v = cpu.values(true, || clock.get()).expect("nobody changes it");
                    prop_assert_eq!(v[..4].iter().sum::<u64>(), clock.get() - start);
                }
            }
        }
        let now = clock.get();
        let v = cpu.values(true, || now).expect("nobody changes it");
        prop_assert_eq!(&v[..4], &[model.user, model.system, model.interrupts, model.idle]);
        prop_assert_eq!((v[5], v[6]), (interrupts, model.softirq));
        for (t, task) in tasks.iter().enumerate() {
            let mut read = task.read(|| now, |_| Some(&cpu)).expect("nobody changes it");
            if let Some(history) = &histories[t] {
                history.add_to_snapshot(&mut read, &mut []);
            }
            let value_of = |index: usize| read.values[index];
            prop_assert_eq!(value_of(value::SCHED), model.sched[t]);
            prop_assert_eq!(value_of(value::SYSTEM), model.syscall_time[t]);
            prop_assert_eq!(value_of(value::INTERRUPTS), model.interrupted[t]);
            // If the task waits for a CPU, add the time that it has waited so far. It has waited
            // since its wakeup, or since it was switched out while it was ready to run.
            let (waits, is_ready) = match (running == t, woken[t], ready[t]) {
                (false, Some((then, true)), _) => (now - then, 0),
                (false, None, Some(then)) => (0, now - then),
                _ => (0, 0),
            };
            prop_assert_eq!(value_of(value::LATENCY), model.latency[t] + waits);
            prop_assert_eq!(
                [value_of(value::BLOCKED), value_of(value::EXPIRED), value_of(value::PREEMPTED)],
                model.switches[t]
            );
            prop_assert_eq!(read.running, running == t);
            prop_assert_eq!(read.involuntary_wait_ticks, model.runq[t] + is_ready);
            prop_assert_eq!(read.counted_ticks, now - start);
        }
    }
}

#[test]
fn r4_4_latencies_fall_into_their_histogram_buckets() {
    // The clock of this test has ticks of 10 ns.
    let bounds = LatencyBounds::new(100_000);
    let us = 100;
    for (ticks, place) in [
        (0, 0),
        (10 * us - 1, 0),
        (10 * us, 1),
        (100 * us, 2),
        (1_000 * us, 3),
        (10_000 * us, 4),
        (100_000 * us, 5),
        (1_000_000 * us, 6),
        (10_000_000 * us, 7),
        (u64::MAX, 7),
    ] {
        assert_eq!(bounds.bucket(ticks), place, "{ticks}");
    }
}

#[test]
fn r4_4_wakeups_are_blocks_if_the_histogram_was_off() {
    let mut read = TaskSnapshot {
        values: [0; NR_VALUES],
        involuntary_wait_ticks: 0,
        counted_ticks: 0,
        latencies: [0; NR_LATENCIES],
        cpu: 0,
        running: false,
    };
    assert_eq!(read.wakeups(), 0);
    read.values[value::BLOCKED] = 100;
    for (counted, wakeups) in [(0, 100), (98, 100), (99, 99), (101, 101)] {
        read.latencies[1] = counted;
        assert_eq!(read.wakeups(), wakeups, "the histogram counts {counted}");
    }
}

#[test]
fn r4_2_exit_without_entry_counts_no_time() {
    let cpu = Cpu::new(0);
    cpu.begin(true, 1000);
    cpu.irq_exit(|| 1010);
    cpu.softirq_exit(|| 1020);
    cpu.syscall_exit(|| None::<&Task<Vec<Word>>>, || 1030);
    assert_eq!(
        cpu.values(true, || 1040).expect("nobody changes it")[..6],
        [0, 0, 0, 40, 0, 0]
    );
}

#[test]
fn r4_9_times_do_not_decrease_at_the_begin_of_a_call() {
    let (cpu, task) = (Cpu::new(0), new_task());
    cpu.begin(true, 1000);
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 1100);
    // The CPU stalls after it has read the clock and before it stores that it is in a system call.
    // A reader that reads while the CPU stalls at the entry of a system call must not count time
    // after the entry as user time.
    let observed = Cell::new((None, None));
    cpu.syscall_enter(
        || Some(&task),
        || {
            let read = task.read(|| 1500, |_| Some(&cpu));
            observed.set((
                cpu.values(true, || 1500).map(|v| v[0]),
                read.map(|r| r.values[value::SCHED] - r.values[value::SYSTEM]),
            ));
            1200
        },
    );
    let after = cpu.values(true, || 1600).expect("nobody changes it");
    assert_eq!(after[..2], [100, 400]);
    let (of_cpu, of_task) = observed.get();
    assert!(of_cpu.unwrap_or(0) <= 100, "{of_cpu:?}");
    assert!(of_task.unwrap_or(0) <= 100, "{of_task:?}");
}

#[test]
fn r4_9_offline_cpu_accumulates_no_time() {
    let (cpu, last, first) = (Cpu::new(0), new_task(), new_task());
    let all = |online, now| {
        let v = cpu.values(online, || now).expect("nobody changes it");
        [v[0], v[1], v[2], v[3]]
    };
    cpu.begin(true, 1000);
    let switch = |cpu: &Cpu, task: &Task<_>, switch_in, now| {
        switch_task(cpu, task, switch_in, SwitchReason::Blocked, now)
    };
    switch(&cpu, &last, true, 1100);
    // While the CPU goes offline, the time of the running task is accounted, but idle time is not.
    cpu.set_offline(true);
    assert_eq!(all(true, 1130), [30, 0, 0, 100]);
    assert_eq!(all(false, 1140), [40, 0, 0, 100]);
    cpu.account_last_run(Some(&last), 1150);
    assert_eq!(all(false, 5000), [50, 0, 0, 100]);
    let read = last
        .read(|| 5000, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!((read.values[value::SCHED], read.running), (50, false));
    // The CPU is online again: its first switch is from the idle task to `first`.
    switch(&cpu, &first, true, 6000);
    assert_eq!(all(true, 6020), [70, 0, 0, 100]);
    cpu.set_offline(false);
    switch(&cpu, &first, false, 6050);
    assert_eq!(all(true, 6100), [100, 0, 0, 150]);
    // A CPU may also go offline and online if accounting has not begun on it.
    let other = Cpu::new(1);
    other.account_last_run(None::<&Task<Vec<Word>>>, 7000);
    switch(&other, &last, true, 8000);
    other.set_offline(false);
    let v = other.values(true, || 8010).expect("nobody changes it");
    assert_eq!(v[..4], [10, 0, 0, 0]);
}

#[test]
fn r4_4_time_is_counted_for_each_group_of_cpus() {
    let cpus: Vec<Cpu> = (0..5).map(Cpu::new).collect();
    let task = new_task_with_groups(3, 2);
    assert_eq!(task.nr_groups(), 3);
    let mut now = 1000;
    // The task runs on all CPUs in turn. The last CPU is the only CPU of its group, and the task
    // still runs on it when its values are read.
    for (cpu, n) in cpus.iter().zip(0u32..) {
        cpu.begin(true, now);
        switch_task(cpu, &task, true, SwitchReason::Blocked, now);
        now += 10 * u64::from(n + 1);
        if n < 4 {
            switch_task(cpu, &task, false, SwitchReason::Expired, now);
        }
    }
    let mut groups = [[0; NR_VALUES]; 3];
    let read = task
        .read_groups(|| now, |n| cpus.get(n as usize), &mut groups)
        .expect("nobody changes it");
    assert_eq!(groups.map(|values| values[value::SCHED]), [30, 70, 50]);
    assert_eq!(groups.map(|values| values[value::EXPIRED]), [2, 2, 0]);
    assert_eq!(read.values[value::SCHED], 150);
    assert_eq!(read.cpu, 4);
}

/// Switches the task in (`switch_in`) or out on the CPU, at the time `now`.
fn switch_task(cpu: &Cpu, task: &Task<Vec<Word>>, switch_in: bool, reason: SwitchReason, now: u64) {
    let bounds = LatencyBounds::new(100);
    let task_ref = Some(task);
    let (before, after) = if switch_in {
        (None, task_ref)
    } else {
        (task_ref, None)
    };
    cpu.begin_switch();
    if switch_in {
        task.begin_switch_in();
    }
    cpu.switch((before, reason), (after, &bounds), || !switch_in, now);
}

#[test]
fn r4_4_wait_begins_at_the_last_wakeup() {
    let (cpu, task) = (Cpu::new(0), new_task());
    let latency = |now| {
        let read = task.read(|| now, |_| Some(&cpu));
        read.expect("nobody changes it").values[value::LATENCY]
    };
    cpu.begin(true, 1000);
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 1000);
    // The task is woken twice while it runs: long before it is switched out, and shortly before.
    task.wake(1100);
    task.wake(9000);
    switch_task(&cpu, &task, false, SwitchReason::Blocked, 9010);
    assert_eq!(latency(9100), 0, "it may sleep");
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 9200);
    assert_eq!(latency(9300), 200);
    // The task is woken while it runs, and again while it sleeps.
    task.wake(9400);
    switch_task(&cpu, &task, false, SwitchReason::Blocked, 9500);
    task.wake(20_000);
    assert_eq!(latency(20_050), 250);
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 20_100);
    assert_eq!(latency(30_000), 300);
    // The task is preempted. A preempted task has not slept, so its wakeup does not begin a wakeup
    // latency.
    switch_task(&cpu, &task, false, SwitchReason::Preempted, 30_000);
    task.wake(30_100);
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 30_500);
    let read = task
        .read(|| 30_600, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!(
        (read.involuntary_wait_ticks, read.values[value::LATENCY]),
        (500, 300)
    );
}

#[test]
fn r4_2_time_of_a_suspend_is_not_counted_for_tasks() {
    let (cpu, task) = (Cpu::new(0), new_task());
    let own = |now| {
        let read = task.read(|| now, |_| Some(&cpu));
        read.expect("nobody changes it").values[value::SCHED]
    };
    cpu.begin(true, 1000);
    switch_task(&cpu, &task, true, SwitchReason::Blocked, 1000);
    cpu.suspend(1300);
    cpu.resume(50_000);
    assert_eq!(own(50_020), 320);
    // The clock restarts at 0 during the suspension, so the time of the run before the suspension
    // is lost.
    cpu.suspend(50_100);
    cpu.resume(10);
    assert_eq!(own(30), 29);
    // If accounting has not begun on a CPU, resume() does not begin it.
    let cpu = Cpu::new(0);
    cpu.suspend(1000);
    cpu.resume(2000);
    assert!(!cpu.has_begun());
}

#[test]
fn r4_9_latency_that_was_read_does_not_decrease() {
    let cpus = [Cpu::new(0), Cpu::new(1)];
    let task = new_task_with_groups(2, 1);
    let bounds = LatencyBounds::new(100);
    let latencies = |now| {
        let mut groups = [[0; NR_VALUES]; 2];
        let find = |n| cpus.get(n as usize);
        task.read_groups(|| now, find, &mut groups)?;
        Some(groups.map(|values| values[value::LATENCY]))
    };
    cpus[1].begin(true, 1000);
    task.wake(1000);
    assert_eq!(latencies(1400), Some([400, 0]));
    // The scheduler reads the clock after begin_switch(). From begin_switch() to the end of
    // switch(), readers get no value.
    cpus[1].begin_switch();
    task.begin_switch_in();
    assert_eq!(latencies(1500), None);
    let after = (Some(&task), &bounds);
    cpus[1].switch((None, SwitchReason::Blocked), after, || false, 1600);
    assert_eq!(latencies(1700), Some([600, 0]));
}

#[test]
fn r4_7_history_has_the_values_of_an_earlier_record_by_group() {
    let history = |nr, cpus_per_group| TaskHistory::new(zero_values(nr), cpus_per_group);
    let old = new_task_with_groups(6, 1);
    let cpus: Vec<_> = (0..6).map(Cpu::new).collect();
    old.begin(false, true, 1000);
    let mut now = 1000;
    // The task runs for 10 ticks on CPU 0, for 20 ticks on CPU 1, and so on.
    for (n, cpu) in (0u32..).zip(&cpus) {
        cpu.begin(true, now);
        switch_task(cpu, &old, true, SwitchReason::Blocked, now);
        now += 10 * u64::from(n + 1);
        switch_task(cpu, &old, false, SwitchReason::Blocked, now);
    }
    old.count_signal(10);
    old.end(now);
    let pairs = history(3, 2);
    pairs.add_record(&old, None);
    // The task does not run while its values are counted in the record `next`. The history `pairs`
    // has groups of two CPUs. The history `threes`, to which `pairs` and `next` are added, has
    // groups of three CPUs.
    let next = new_task_with_groups(3, 2);
    next.begin(false, true, now);
    next.end(now + 5);
    let threes = history(2, 3);
    threes.add_record(&next, Some(&pairs));
    let read_with = |history: &TaskHistory<_>, groups: &mut [_]| {
        let last = new_task_with_groups(groups.len(), 1);
        last.begin(false, true, now + 5);
        let mut read = last.read(|| now + 5, |_| None).expect("nobody changes it");
        history.add_to_snapshot(&mut read, groups);
        read
    };
    let mut groups = [[0; NR_VALUES]; 3];
    read_with(&pairs, &mut groups);
    assert_eq!(groups.map(|values| values[value::SCHED]), [30, 70, 110]);
    // The values of a pair of CPUs are added as a whole to the group of `threes` that contains the
    // first CPU of the pair. The values of CPUs 2 and 3 are therefore added to the group of CPUs 0
    // to 2.
    let mut groups = [[0; NR_VALUES]; 2];
    let read = read_with(&threes, &mut groups);
    assert_eq!(groups.map(|values| values[value::SCHED]), [100, 110]);
    assert_eq!(read.values[value::SCHED], 210);
    assert_eq!(read.values[value::BLOCKED], 6);
    assert_eq!(read.counted_ticks, now + 5 - 1000);
    assert_eq!((threes.signals(10), threes.signals(9)), (1, 0));
}
