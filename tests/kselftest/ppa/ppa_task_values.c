// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Tests values of a task that earlier versions counted wrongly:
 *  - the reasons why the task left its CPU, for tasks of different nice levels;
 *  - the time that the task waits to run, as counted by the CPU that wakes the task and by a busy
 *    CPU;
 *  - the number of interrupts on a line that several handlers share.
 */
#include "ppa.h"
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define CPU		1
#define WAKES		50
#define INTERRUPTS	2000

/*
 * Starts a child that computes on CPU 1 for @milliseconds, at nice level @nice and, if @real_time
 * is set, with a real-time priority.
 */
static pid_t start_hog(int nice, bool real_time, int milliseconds)
{
	struct sched_param param = { .sched_priority = 50 };
	pid_t pid = fork();

	if (pid)
		return pid;
	pin_to_cpu(CPU);
	exit_if(setpriority(PRIO_PROCESS, 0, nice) ||
		(real_time && sched_setscheduler(0, SCHED_FIFO, &param)), 1);
	for (__u64 end = now_ns() + milliseconds * 1000000ULL; now_ns() < end;)
		;
	/* The child exists until its values have been read. */
	pause();
	_exit(0);
}

static void kill_and_wait(pid_t pid)
{
	kill_child(pid);
}

/* Tasks of any nice levels are switched as tasks of equal priority. */
static void test_nice_levels(void)
{
	pid_t first = start_hog(0, false, 1500), second = start_hog(-1, false, 1500);
	const pid_t both[] = { first, second };

	sleep_ms(1200);
	for (int i = 0; i < 2; i++) {
		struct ppa_task task = ppa_task(dev, both[i]);
		__u64 turns = task.values[PPA_PRMPTCTXTCNT], urgent = task.values[PPA_PRMPTPRICNT];

		ok(turns > 4 && urgent * 2 < turns,
		   "4.4 nice level %d: turns are over twice the preemptions (%llu, %llu)", -i,
		   turns, urgent);
	}
	kill_and_wait(first);
	kill_and_wait(second);
}

/*
 * Tests a task that is woken and has to wait for a task of higher priority. The latency of the
 * waiting task grows while it waits.
 */
static void test_current_wait(void)
{
	int to;
	pid_t pid = start_sleeper(CPU, &to), urgent;
	struct ppa_task before, task;

	urgent = start_hog(0, true, 700);
	wait_until(sched_getscheduler(urgent) == SCHED_FIFO);
	before = ppa_task(dev, pid);
	wake_sleeper(to);
	sleep_ms(200);
	task = ppa_task(dev, pid);
	kill_and_wait(urgent);
	ok(ticks_to_ms(task.values[PPA_SCHLATACCUM] - before.values[PPA_SCHLATACCUM], &info) >= 150,
	   "4.4 waiting task: its latency includes the wait so far (%.1f ms)",
	   ticks_to_ms(task.values[PPA_SCHLATACCUM] - before.values[PPA_SCHLATACCUM], &info));
	is(sum_latencies(&task), sum_latencies(&before),
	   "4.4 waiting task: the histogram does not count the wait yet");
	wait_until(sum_latencies(&task) != sum_latencies(&before) || ppa_get_task(dev, pid, &task));
	is(sum_latencies(&task) - sum_latencies(&before), 1,
	   "4.4 waiting task: the histogram counts the wait once it runs");
	close(to);
	kill_and_wait(pid);
}

/* Helpers that use the kernel's trace events to measure how long a task waits after its wakeups */
#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/ppa_task_values"

static void trace_start(pid_t pid)
{
	char filter[40];

	mount("tracefs", TRACING, "tracefs", 0, NULL);
	bail_if(mkdir(INSTANCE, 0700), INSTANCE);
	write_file(INSTANCE "/trace_clock", "global");
	snprintf(filter, sizeof(filter), "pid == %d", pid);
	write_file(INSTANCE "/events/sched/sched_waking/filter", filter);
	snprintf(filter, sizeof(filter), "next_pid == %d", pid);
	write_file(INSTANCE "/events/sched/sched_switch/filter", filter);
	write_file(INSTANCE "/events/sched/sched_waking/enable", "1");
	write_file(INSTANCE "/events/sched/sched_switch/enable", "1");
}

/*
 * Returns the sum of the waits of the task, in microseconds. A wait lasts from a wakeup of the task
 * to the next switch to it. Stores the number of waits in @nr.
 */
static double sum_trace_waits(int *nr)
{
	FILE *trace = fopen(INSTANCE "/trace", "re");
	double woken = 0, sum = 0, time;
	char line[512], *rest;

	*nr = 0;
	while (trace && fgets(line, sizeof(line), trace)) {
		rest = strstr(line, ": sched_");
		if (!rest || line[0] == '#')
			continue;
		*rest = '\0';
		time = atof(strrchr(line, ' ') ?: "0") * 1e6;
		if (!strncmp(rest + 2, "sched_waking", 12)) {
			woken = time;
		} else if (woken) {
			sum += time - woken;
			woken = 0;
			++*nr;
		}
	}
	if (trace)
		fclose(trace);
	return sum;
}

static void trace_stop(void)
{
	write_file(INSTANCE "/events/sched/enable", "0");
	rmdir(INSTANCE);
}

/* Tests that the time that an idle CPU takes to wake up counts as waiting time of the task. */
static void test_wait_since_wakeup(void)
{
	struct ppa_task before, after;
	double accounted = 0, waited = 0;
	bool good = false;
	int to, nr = 0;
	pid_t pid = start_sleeper(CPU, &to);

	/* A busy host may stop the guest between the reads of the two clocks. */
	for (int i = 0; i < 10 && !good; i++) {
		trace_start(pid);
		before = ppa_task(dev, pid);
		for (int n = 0; n < WAKES; n++) {
			wake_sleeper(to);
			sleep_ms(5);
		}
		after = ppa_task(dev, pid);
		waited = sum_trace_waits(&nr);
		trace_stop();
		accounted = 1000 * ticks_to_ms(after.values[PPA_SCHLATACCUM] -
					       before.values[PPA_SCHLATACCUM], &info);
		good = nr >= WAKES * 9 / 10 && accounted > waited * 0.8 && accounted < waited * 1.5;
		note("%d wakeups: %.1f us each, by the kernel's trace events %.1f us", nr,
		     accounted / WAKES, waited / WAKES);
	}
	ok(good, "4.4 wakeup latency: begins at the wakeup, also if the CPU is idle");
	close(to);
	kill_and_wait(pid);
}

/* Tests that an interrupt counts once, however many handlers its line has. */
static void test_shared_line(void)
{
	struct ppa_task before, after;
	__u64 more;

	bail_on_error(insmod("irq_lines", "handlers=4"), "insmod lines");
	before = ppa_task(dev, getpid());
	write_file("/sys/module/irq_lines/parameters/fire", format_text("%d", INTERRUPTS));
	after = ppa_task(dev, getpid());
	more = after.values[PPA_INTCNT] - before.values[PPA_INTCNT];
	ok(more >= INTERRUPTS && more < 2 * INTERRUPTS,
	   "4.4 shared line: %d interrupts with four handlers count once each (%llu)",
	   INTERRUPTS, more);
	rmmod("irq_lines");
}

int main(void)
{
	plan(7);
	pin_to_cpu(0);
	load_modules("");
	load_module("ppa");
	bail_if(ppa_write(LEVELS, "7") || ppa_write(SETTINGS, "1 1 0 1"), "accounting");
	dev = ppa_open();
	info = ppa_info(dev);
	test_nice_levels();
	test_current_wait();
	test_wait_since_wakeup();
	test_shared_line();
	close(dev);
	ppa_write(SETTINGS, "0 0 0 1");
	return finish();
}
