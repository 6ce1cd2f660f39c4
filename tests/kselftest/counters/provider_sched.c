// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_sched: context switches, preemptions, wakeups, migrations, forks, exits.
 */
#include "provider.h"
#include <sys/resource.h>

static int64_t proc_ctxt(const void *arg)
{
	return proc_field("/proc/stat", "ctxt", 0);
}

static int64_t proc_processes(const void *arg)
{
	return proc_field("/proc/stat", "processes", 0);
}

/* On one CPU, runs two tasks that wake each other in turn. */
static void ping_pong(void)
{
	int to_child[2], from_child[2];
	char byte = 0;

	pin_to_cpu(0);

	bail_if(pipe(to_child) || pipe(from_child), "pipe");
	fork_child({
		while (read(to_child[0], &byte, 1) == 1 && byte != 'q')
			write(from_child[1], &byte, 1);
	});
	for (int i = 0; i < 300; i++) {
		write(to_child[1], &byte, 1);
		read(from_child[0], &byte, 1);
	}
	byte = 'q';
	write(to_child[1], &byte, 1);
	wait(NULL);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(from_child[i]);
	}
}

static void fork_50(void)
{
	for (int i = 0; i < 50; i++)
		in_child((void)0);
}

static void exec_5(void)
{
	for (int i = 0; i < 5; i++)
		in_child(execl("/bin/busybox", "true", NULL));
}

/* Runs two spinning tasks on one CPU, which are switched only by preemption. */
static void compete_for_cpu(void)
{
	pid_t other = fork();

	pin_to_cpu(0);
	if (!other)
		for (;;)
			;
	for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;)
		;
	kill_child(other);
}

static int64_t increase_by(const char *name, void (*work)(void))
{
	int64_t before = total_by_name(name);

	work();
	return total_by_name(name) - before;
}

static void change_cpus(void)
{
	for (int i = 0; i < 100; i++)
		pin_to_cpu(i & 1);
}

#define SLEEPS	300

/* Makes a CPU that is otherwise idle switch from its idle task SLEEPS times. */
static void sleep_often(void)
{
	pin_to_cpu(1);
	for (int i = 0; i < SLEEPS; i++)
		usleep(1000);
	pin_to_cpu(0);
}

int main(void)
{
	struct rusage before, after;
	int64_t forced, woken;

	plan(9 + NR_RELOAD_TESTS);
	load_provider("pfc_sched");
	test_matches_proc("0.15 sched: context switches are ctxt of /proc/stat", instance_total,
			  "sched/context_switches", proc_ctxt, NULL, ping_pong, 300,
			  SLACK_IN_FLIGHT);
	test_matches_proc("0.15 sched: forks are processes of /proc/stat", instance_total,
			  "sched/forks", proc_processes, NULL, fork_50, 50, SLACK_IN_FLIGHT);
	getrusage(RUSAGE_SELF, &before);
	woken = increase_by("sched/wakeups", ping_pong);
	getrusage(RUSAGE_SELF, &after);
	note("wakeups %lld, voluntary switches of this task %ld", (long long)woken,
	     after.ru_nvcsw - before.ru_nvcsw);
	ok(after.ru_nvcsw - before.ru_nvcsw >= 50 && woken >= after.ru_nvcsw - before.ru_nvcsw,
	   "0.15 sched: at least as many wakeups as voluntary switches of one task");
	ok(increase_by("sched/exits", fork_50) >= 50, "0.15 sched: every exit counts");
	ok(increase_by("sched/execs", exec_5) >= 5, "0.15 sched: every exec counts");
	ok(increase_by("sched/migrations", change_cpus) >= 99,
	   "0.15 sched: every migration by sched_setaffinity() counts");
	getrusage(RUSAGE_SELF, &before);
	forced = increase_by("sched/preemptions", compete_for_cpu);
	getrusage(RUSAGE_SELF, &after);
	note("preemptions %lld, of this task %ld", (long long)forced,
	     after.ru_nivcsw - before.ru_nivcsw);
	ok(after.ru_nivcsw > before.ru_nivcsw && forced >= after.ru_nivcsw - before.ru_nivcsw,
	   "0.15 sched: preemptions include those that getrusage() reports");
	forced = increase_by("sched/preemptions", sleep_often);
	note("preemptions %lld during %d sleeps", (long long)forced, SLEEPS);
	ok(forced < SLEEPS * 2 / 3, "0.15 sched: switches from the idle task are not preemptions");
	ok(total_by_name("sched/preemptions") <= total_by_name("sched/context_switches"),
	   "0.15 sched: at most as many preemptions as context switches");
	test_unload_and_reload("pfc_sched", "sched/forks", fork_50);
	return finish();
}
