// SPDX-License-Identifier: GPL-2.0

//! Tests the system time of a task on two CPUs: seccomp, system calls, task work and page faults.

use core::cell::Cell;

use ppa_rules::{value, Cpu, LatencyBounds, SwitchReason, Task};
use protocols::sync::Word;

fn new_task() -> Task<Vec<Word>> {
    Task::new(Vec::new(), 2)
}

#[test]
fn r4_2_system_time_lasts_from_seccomp_to_user_mode() {
    let (cpus, task) = ([Cpu::new(0), Cpu::new(1)], new_task());
    let bounds = LatencyBounds::new(100);
    let switch = |n: usize, switch_in: bool, now| {
        cpus[n].begin_switch();
        let (prev, next) = match switch_in {
            true => (None, Some(&task)),
            false => (Some(&task), None),
        };
        if switch_in {
            task.begin_switch_in();
        }
        let prev = (prev, SwitchReason::Blocked);
        cpus[n].switch(prev, (next, &bounds), || !switch_in, now)
    };
    let system = |n: usize, now| {
        let read = task.read(|| now, |_| cpus.get(n));
        read.expect("nobody changes it").values[value::SYSTEM]
    };
    for cpu in &cpus {
        cpu.begin(true, 1000);
    }
    assert!(!switch(0, true, 1000));
    // Seccomp checks a system call at tick 1100. The system call begins at tick 1120 and takes 10
    // ticks.
    cpus[0].syscall_seccomp_check(|| 1100);
    assert_eq!(system(0, 1110), 10);
    cpus[0].syscall_enter(|| Some(&task), || 1120);
    cpus[0].syscall_exit(|| Some(&task), || 1130);
    assert_eq!(system(0, 1200), 30);
    // Seccomp denies a system call: only the exit of the call is reported.
    cpus[0].syscall_seccomp_check(|| 1200);
    cpus[0].syscall_exit(|| Some(&task), || 1205);
    assert_eq!(system(0, 1300), 35);
    // After a system call on CPU 0, task work runs and blocks. The task work continues on CPU 1
    // until CPU 1 enters user mode.
    cpus[0].syscall_enter(|| Some(&task), || 1300);
    cpus[0].enter_kernel(|| 1310);
    assert_eq!(system(0, 1315), 50);
    switch(0, false, 1320);
    assert!(switch(1, true, 1400), "the return to user mode is needed");
    cpus[1].syscall_exit(|| Some(&task), || 1430);
    assert_eq!(system(1, 1500), 85);
    // A page fault on CPU 1 lasts until CPU 1 enters user mode. Before the page fault on CPU 1, CPU
    // 0 enters user mode, running a task that is not accounted.
    cpus[0].syscall_exit(|| None::<&Task<Vec<Word>>>, || 1450);
    cpus[1].enter_kernel(|| 1500);
    cpus[1].syscall_exit(|| Some(&task), || 1540);
    assert_eq!(system(1, 1600), 125);
    assert!(cpus[1].is_user_time() && !cpus[0].is_user_time());
    let all = cpus.each_ref().map(|cpu| cpu.values(true, || 1600));
    assert_eq!(all.map(|v| v.expect("nobody changes it")[1]), [55, 70]);
}

#[test]
fn r4_2_system_call_looks_up_its_task_during_the_update() {
    let (cpu, before, after) = (Cpu::new(0), new_task(), new_task());
    cpu.begin(false, 1000);
    cpu.attach_running(&before, 1000);
    let running = Cell::new(&before);
    // An interrupt replaces the running task just before the lookup. In the module, the interrupt
    // waits while an update is in progress.
    let look_up = || {
        if !cpu.is_updating_mode() {
            cpu.begin_switch();
            cpu.replace_task(Some(&before), Some(&after), 1050);
            running.set(&after);
        }
        Some(running.get())
    };
    cpu.syscall_enter(look_up, || 1100);
    cpu.syscall_exit(look_up, || 1130);
    assert!(
        core::ptr::eq(running.get(), &before),
        "it was replaced during the update"
    );
    let read = before
        .read(|| 1200, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!(
        (read.values[value::CALLS], read.values[value::SYSTEM]),
        (1, 30)
    );
    // Between two updates, the task can be replaced.
    look_up();
    cpu.syscall_enter(look_up, || 1300);
    let read = after
        .read(|| 1300, |_| Some(&cpu))
        .expect("nobody changes it");
    assert_eq!(read.values[value::CALLS], 1);
}
