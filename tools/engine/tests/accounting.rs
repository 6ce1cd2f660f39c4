// SPDX-License-Identifier: GPL-2.0

//! Tests accounting with random sequences of all events of a CPU, against a model that adds each
//! tick to the sums where it belongs.

use std::cell::Cell;

use engine::accounting::{value, Bounds, Cpu, Leave, Task, NR_VALUES};
use engine::sync::Word;
use proptest::prelude::*;

const TASKS: usize = 3;
/// Index of the idle task.
const IDLE: usize = TASKS;

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    /// A switch to another task, and the index of the reason.
    Switch(usize, u8),
    Call,
    CallEnds,
    /// An interrupt: ticks per handler, and number of handlers.
    Interrupt(u64, u8),
    /// A softirq: ticks before an interrupt, in the interrupt, and after it.
    Softirq(u64, u64, u64),
    Wake(usize),
    /// The running task gets new words, as if its accounting began now.
    Replace,
    /// All values are read and compared.
    Read,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1u64..1000).prop_map(Event::Pass),
        (0..=TASKS, 0u8..3).prop_map(|(t, why)| Event::Switch(t, why)),
        Just(Event::Call),
        Just(Event::CallEnds),
        (1u64..500, 1u8..4).prop_map(|(ticks, handlers)| Event::Interrupt(ticks, handlers)),
        (1u64..300, 0u64..300, 1u64..300).prop_map(|(a, b, c)| Event::Softirq(a, b, c)),
        (0..TASKS).prop_map(Event::Wake),
        Just(Event::Replace),
        Just(Event::Read),
    ]
}

#[derive(Default)]
struct Model {
    user: u64,
    system: u64,
    interrupts: u64,
    idle: u64,
    softirq: u64,
    sched: [u64; TASKS],
    calls_time: [u64; TASKS],
    interrupted: [u64; TASKS],
    left: [[u64; 3]; TASKS],
    latency: [u64; TASKS],
    runq: [u64; TASKS],
}

fn task() -> Task<Vec<Word>> {
    Task::new((0..NR_VALUES).map(|_| Word::new(0)).collect(), 1)
}

proptest! {
    #[test]
    fn r4_5_each_tick_is_where_it_belongs(events in prop::collection::vec(event(), 1..200)) {
        let clock = Cell::new(1_000_000u64);
        let cpu = Cpu::default();
        let mut tasks: Vec<_> = (0..TASKS).map(|_| task()).collect();
        let bounds = Bounds::new(100);
        let mut model = Model::default();
        let mut on = IDLE;
        let mut calling = [false; TASKS];
        let (mut woken, mut ready) = ([None::<(u64, bool)>; TASKS], [None; TASKS]);
        let mut interrupts = 0;
        for task in &tasks {
            task.set_out(false, true, clock.get());
        }
        cpu.begin(true, clock.get());
        let began = clock.get();
        let pass = |ticks: u64| clock.set(clock.get() + ticks);
        for event in events {
            match event {
                Event::Pass(ticks) => {
                    pass(ticks);
                    match on {
                        IDLE => model.idle += ticks,
                        t => {
                            model.sched[t] += ticks;
                            if calling[t] {
                                model.system += ticks;
                                model.calls_time[t] += ticks;
                            } else {
                                model.user += ticks;
                            }
                        }
                    }
                }
                Event::Switch(next, why) => {
                    if next == on {
                        continue;
                    }
                    let leave = [Leave::Blocked, Leave::Expired, Leave::Preempted][usize::from(why)];
                    let now = clock.get();
                    if let Some(t) = tasks.get(on).map(|_| on) {
                        model.left[t][usize::from(why)] += 1;
                        ready[t] = (leave != Leave::Blocked).then_some(now);
                        woken[t] = woken[t].filter(|_| leave == Leave::Blocked);
                    }
                    if next != IDLE {
                        if let Some((then, _)) = woken[next].take() {
                            model.latency[next] += now - then;
                        } else if let Some(then) = ready[next] {
                            model.runq[next] += now - then;
                        }
                        ready[next] = None;
                    }
                    let prev = (tasks.get(on), leave);
                    let after = (tasks.get(next), &bounds);
                    let idle = || next == IDLE;
                    cpu.begin_switch();
                    if let Some(task) = tasks.get(next) {
                        task.comes();
                    }
                    match cpu.quiet_turn(now) {
                        Some(own) => cpu.switch_quiet(own, 0, prev, after, idle, now),
                        None => cpu.switch(0, prev, after, idle, now),
                    }
                    on = next;
                }
                Event::Call => {
                    if on != IDLE && !calling[on] {
                        cpu.call(tasks.get(on), || clock.get());
                        calling[on] = true;
                    }
                }
                Event::CallEnds => {
                    if on != IDLE {
                        cpu.call_ends(tasks.get(on), || clock.get());
                        calling[on] = false;
                    }
                }
                Event::Interrupt(ticks, handlers) => {
                    for handler in 0..handlers {
                        cpu.interrupt(handler == 0, || clock.get());
                        pass(ticks);
                        cpu.interrupt_ends(|| clock.get());
                    }
                    let ticks = ticks * u64::from(handlers);
                    interrupts += 1;
                    model.interrupts += ticks;
                    if on != IDLE {
                        model.interrupted[on] += ticks;
                    }
                }
                Event::Softirq(before, inside, after) => {
                    cpu.softirq(1, false, || clock.get());
                    pass(before);
                    cpu.interrupt(true, || clock.get());
                    pass(inside);
                    cpu.interrupt_ends(|| clock.get());
                    pass(after);
                    cpu.softirq_ends(|| clock.get());
                    interrupts += 1;
                    let all = before + inside + after;
                    model.interrupts += all;
                    model.softirq += before + after;
                    if on != IDLE {
                        model.interrupted[on] += all;
                    }
                }
                Event::Wake(t) => {
                    tasks[t].wake(clock.get());
                    // The last wakeup counts. A task that is ready has not slept, so its wakeup is
                    // ignored.
                    if ready[t].is_none() {
                        woken[t] = Some((clock.get(), t != on));
                    }
                }
                Event::Replace => {
                    if on != IDLE {
                        let now = clock.get();
                        tasks[on] = task();
                        tasks[on].set_out(false, true, now);
                        cpu.begin_switch();
                        cpu.replace(0, tasks.get(on), now);
                        model.sched[on] = 0;
                        model.calls_time[on] = 0;
                        model.interrupted[on] = 0;
                        model.left[on] = [0; 3];
                        model.latency[on] = 0;
                        model.runq[on] = 0;
                        woken[on] = None;
                    }
                }
                Event::Read => {
                    let v = cpu.values(true, || clock.get()).expect("nobody changes it");
                    prop_assert_eq!(v[..4].iter().sum::<u64>(), clock.get() - began);
                }
            }
        }
        let now = clock.get();
        let v = cpu.values(true, || now).expect("nobody changes it");
        prop_assert_eq!(&v[..4], &[model.user, model.system, model.interrupts, model.idle]);
        prop_assert_eq!((v[5], v[6]), (interrupts, model.softirq));
        for (t, task) in tasks.iter().enumerate() {
            let read = task.read(|| now, |_| Some(&cpu)).expect("nobody changes it");
            let of = |index: usize| read.values[index];
            prop_assert_eq!(of(value::SCHED), model.sched[t]);
            prop_assert_eq!(of(value::SYSTEM), model.calls_time[t]);
            prop_assert_eq!(of(value::INTERRUPTS), model.interrupted[t]);
            // A task that waits now has waited until now: since its wakeup, or since it became
            // ready.
            let (waits, is_ready) = match (on == t, woken[t], ready[t]) {
                (false, Some((then, true)), _) => (now - then, 0),
                (false, None, Some(then)) => (0, now - then),
                _ => (0, 0),
            };
            prop_assert_eq!(of(value::LATENCY), model.latency[t] + waits);
            prop_assert_eq!(
                [of(value::BLOCKED), of(value::EXPIRED), of(value::PREEMPTED)],
                model.left[t]
            );
            prop_assert_eq!(read.running, on == t);
            prop_assert_eq!(read.runq, model.runq[t] + is_ready);
        }
    }
}

#[test]
fn r4_4_lengths_of_latencies() {
    // One tick is 10 ns.
    let bounds = Bounds::new(100_000);
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
        assert_eq!(bounds.place(ticks), place, "{ticks}");
    }
}

#[test]
fn r4_2_an_end_without_a_beginning_is_nothing() {
    let cpu = Cpu::default();
    cpu.begin(true, 1000);
    cpu.interrupt_ends(|| 1010);
    cpu.softirq_ends(|| 1020);
    cpu.call_ends(None::<&Task<Vec<Word>>>, || 1030);
    assert_eq!(
        cpu.values(true, || 1040).expect("nobody changes it")[..6],
        [0, 0, 0, 40, 0, 0]
    );
}

#[test]
fn r4_9_no_time_falls_where_a_call_begins() {
    let (cpu, task) = (Cpu::default(), task());
    let bounds = Bounds::new(100);
    cpu.begin(true, 1000);
    cpu.begin_switch();
    task.comes();
    cpu.switch(
        0,
        (None, Leave::Blocked),
        (Some(&task), &bounds),
        || false,
        1100,
    );
    // The CPU stalls after it has read the clock and before it writes that it is in a call. A
    // reader in this gap must not report user time beyond the begin of the call.
    let told = Cell::new((None, None));
    cpu.call(Some(&task), || {
        let read = task.read(|| 1500, |_| Some(&cpu));
        told.set((
            cpu.values(true, || 1500).map(|v| v[0]),
            read.map(|r| r.values[value::SCHED] - r.values[value::SYSTEM]),
        ));
        1200
    });
    let after = cpu.values(true, || 1600).expect("nobody changes it");
    assert_eq!(after[..2], [100, 400]);
    let (of_cpu, of_task) = told.get();
    assert!(of_cpu.unwrap_or(0) <= 100, "{of_cpu:?}");
    assert!(of_task.unwrap_or(0) <= 100, "{of_task:?}");
}

#[test]
fn r4_9_a_cpu_that_is_off_has_no_time() {
    let (cpu, last, first) = (Cpu::default(), task(), task());
    let bounds = Bounds::new(100);
    let all = |online, now| {
        let v = cpu.values(online, || now).expect("nobody changes it");
        [v[0], v[1], v[2], v[3]]
    };
    cpu.begin(true, 1000);
    let switch = |cpu: &Cpu, prev: Option<&Task<_>>, next: Option<&Task<_>>, now| {
        cpu.begin_switch();
        if let Some(task) = next {
            task.comes();
        }
        let after = (next, &bounds);
        cpu.switch(0, (prev, Leave::Blocked), after, || next.is_none(), now);
    };
    switch(&cpu, None, Some(&last), 1100);
    // The CPU is about to go offline. The running task still counts, but idle time does not.
    cpu.set_away(true);
    assert_eq!(all(true, 1130), [30, 0, 0, 100]);
    assert_eq!(all(false, 1140), [40, 0, 0, 100]);
    cpu.die(0, Some(&last), 1150);
    assert_eq!(all(false, 5000), [50, 0, 0, 100]);
    let read = last
        .read(|| 5000, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!((read.values[value::SCHED], read.running), (50, false));
    // Back online: the first switch is from the idle task to `first`.
    switch(&cpu, None, Some(&first), 6000);
    assert_eq!(all(true, 6020), [70, 0, 0, 100]);
    cpu.set_away(false);
    switch(&cpu, Some(&first), None, 6050);
    assert_eq!(all(true, 6100), [100, 0, 0, 150]);
    // A CPU on which accounting has not begun can go offline and come back, too.
    let other = Cpu::default();
    other.die(1, None::<&Task<Vec<Word>>>, 7000);
    switch(&other, None, Some(&last), 8000);
    other.set_away(false);
    let v = other.values(true, || 8010).expect("nobody changes it");
    assert_eq!(v[..4], [10, 0, 0, 0]);
}

#[test]
fn r4_4_each_group_of_cpus_has_its_part() {
    let cpus: Vec<Cpu> = (0..5).map(|_| Cpu::default()).collect();
    let words = (0..3 * NR_VALUES).map(|_| Word::new(0)).collect();
    let task: Task<Vec<Word>> = Task::new(words, 2);
    let bounds = Bounds::new(100);
    assert_eq!(task.nr_groups(), 3);
    let mut now = 1000;
    // The task runs on all CPUs in turn. The last CPU is a group of its own, on which the task
    // still runs.
    for (cpu, n) in cpus.iter().zip(0..) {
        cpu.begin(true, now);
        cpu.begin_switch();
        task.comes();
        cpu.switch(
            n,
            (None, Leave::Blocked),
            (Some(&task), &bounds),
            || false,
            now,
        );
        now += 10 * u64::from(n + 1);
        if n < 4 {
            cpu.begin_switch();
            cpu.switch(
                n,
                (Some(&task), Leave::Expired),
                (None, &bounds),
                || true,
                now,
            );
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

/// Switches the task in (`comes`) or out on CPU 0, at the time `now`.
fn turn(cpu: &Cpu, task: &Task<Vec<Word>>, comes: bool, leave: Leave, now: u64) {
    let bounds = Bounds::new(100);
    let one = Some(task);
    let (before, after) = if comes { (None, one) } else { (one, None) };
    cpu.begin_switch();
    if comes {
        task.comes();
    }
    cpu.switch(0, (before, leave), (after, &bounds), || !comes, now);
}

#[test]
fn r4_4_a_wait_begins_when_the_task_was_woken_last() {
    let (cpu, task) = (Cpu::default(), task());
    let latency = |now| {
        let read = task.read(|| now, |_| Some(&cpu));
        read.expect("nobody changes it").values[value::LATENCY]
    };
    cpu.begin(true, 1000);
    turn(&cpu, &task, true, Leave::Blocked, 1000);
    // Woken twice while it runs: long before it leaves the CPU, and shortly before.
    task.wake(1100);
    task.wake(9000);
    turn(&cpu, &task, false, Leave::Blocked, 9010);
    assert_eq!(latency(9100), 0, "it may sleep");
    turn(&cpu, &task, true, Leave::Blocked, 9200);
    assert_eq!(latency(9300), 200);
    // Woken while it runs, and again while it sleeps.
    task.wake(9400);
    turn(&cpu, &task, false, Leave::Blocked, 9500);
    task.wake(20_000);
    assert_eq!(latency(20_050), 250);
    turn(&cpu, &task, true, Leave::Blocked, 20_100);
    assert_eq!(latency(30_000), 300);
    // Preempted: it has not slept, so its wakeup does not begin a latency.
    turn(&cpu, &task, false, Leave::Preempted, 30_000);
    task.wake(30_100);
    turn(&cpu, &task, true, Leave::Blocked, 30_500);
    let read = task
        .read(|| 30_600, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!((read.runq, read.values[value::LATENCY]), (500, 300));
}

#[test]
fn r4_2_time_of_a_suspend_is_not_counted() {
    let (cpu, task) = (Cpu::default(), task());
    let own = |now| {
        let read = task.read(|| now, |_| Some(&cpu));
        read.expect("it is not being changed").values[value::SCHED]
    };
    cpu.begin(true, 1000);
    turn(&cpu, &task, true, Leave::Blocked, 1000);
    cpu.suspend(1300);
    cpu.resume(50_000);
    assert_eq!(own(50_020), 320);
    // The clock begins again at 0, and the time of the run before the suspend is lost.
    cpu.suspend(50_100);
    cpu.resume(10);
    assert_eq!(own(30), 29);
    // Accounting that has not begun does not begin by a resume.
    let cpu = Cpu::default();
    cpu.suspend(1000);
    cpu.resume(2000);
    assert!(!cpu.has_begun());
}

#[test]
fn r4_9_a_wait_that_was_told_does_not_fall() {
    let cpus = [Cpu::default(), Cpu::default()];
    let words = (0..2 * NR_VALUES).map(|_| Word::new(0)).collect();
    let task: Task<Vec<Word>> = Task::new(words, 1);
    let bounds = Bounds::new(100);
    let latencies = |now| {
        let mut groups = [[0; NR_VALUES]; 2];
        let find = |n| cpus.get(n as usize);
        task.read_groups(|| now, find, &mut groups)?;
        Some(groups.map(|values| values[value::LATENCY]))
    };
    cpus[1].begin(true, 1000);
    task.wake(1000);
    assert_eq!(latencies(1400), Some([400, 0]));
    // The clock of a switch is read after comes(). From there to the end of the switch no value is
    // returned.
    cpus[1].begin_switch();
    task.comes();
    assert_eq!(latencies(1500), None);
    let after = (Some(&task), &bounds);
    cpus[1].switch(1, (None, Leave::Blocked), after, || false, 1600);
    assert_eq!(latencies(1700), Some([600, 0]));
}
