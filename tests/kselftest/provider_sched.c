// SPDX-License-Identifier: GPL-2.0
/*
 * pfc_sched: context switches, preemptions, wakeups, migrations, forks, exits.
 */
#include "provider.h"
#include <sys/resource.h>

static int64_t ctxt(const void *arg)
{
	return proc_field("/proc/stat", "ctxt", 0);
}

static int64_t processes(const void *arg)
{
	return proc_field("/proc/stat", "processes", 0);
}

/* Two tasks on one CPU that wait for each other in turns. */
static void ping_pong(void)
{
	int there[2], back[2];
	char byte = 0;

	pin_to_cpu(0);

	if (pipe(there) || pipe(back))
		bail("pipe");
	if (!fork()) {
		while (read(there[0], &byte, 1) == 1 && byte != 'q')
			write(back[1], &byte, 1);
		_exit(0);
	}
	for (int i = 0; i < 300; i++) {
		write(there[1], &byte, 1);
		read(back[0], &byte, 1);
	}
	byte = 'q';
	write(there[1], &byte, 1);
	wait(NULL);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
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

/* Two spinning tasks on one CPU: they are only switched by preemption. */
static void fight(void)
{
	pid_t other = fork();

	pin_to_cpu(0);
	if (!other)
		for (;;)
			;
	for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;)
		;
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}

static int64_t gain(const char *name, void (*work)(void))
{
	int64_t before = total_by_name(name);

	work();
	return total_by_name(name) - before;
}

static void wander(void)
{
	for (int i = 0; i < 100; i++)
		pin_to_cpu(i & 1);
}

int main(void)
{
	struct rusage before, after;
	int64_t forced, woken;

	plan(8 + NR_RELOAD_TESTS);
	load_provider("pfc_sched");
	test_matches_proc("0.15 sched: context switches are ctxt of /proc/stat", instance_total,
			  "sched/context_switches", ctxt, NULL, ping_pong, 300, SLACK_IN_FLIGHT);
	test_matches_proc("0.15 sched: forks are processes of /proc/stat", instance_total,
			  "sched/forks", processes, NULL, fork_50, 50, SLACK_IN_FLIGHT);
	getrusage(RUSAGE_SELF, &before);
	woken = gain("sched/wakeups", ping_pong);
	getrusage(RUSAGE_SELF, &after);
	note("wakeups %lld, voluntary switches of this task %ld", (long long)woken,
	     after.ru_nvcsw - before.ru_nvcsw);
	ok(after.ru_nvcsw - before.ru_nvcsw >= 50 && woken >= after.ru_nvcsw - before.ru_nvcsw,
	   "0.15 sched: at least as many wakeups as voluntary switches of one task");
	ok(gain("sched/exits", fork_50) >= 50, "0.15 sched: every exit counts");
	ok(gain("sched/execs", exec_5) >= 5, "0.15 sched: every exec counts");
	ok(gain("sched/migrations", wander) >= 99,
	   "0.15 sched: every migration by sched_setaffinity() counts");
	getrusage(RUSAGE_SELF, &before);
	forced = gain("sched/preemptions", fight);
	getrusage(RUSAGE_SELF, &after);
	note("preemptions %lld, of this task %ld", (long long)forced,
	     after.ru_nivcsw - before.ru_nivcsw);
	ok(after.ru_nivcsw > before.ru_nivcsw && forced >= after.ru_nivcsw - before.ru_nivcsw,
	   "0.15 sched: preemptions include those that getrusage() reports");
	ok(total_by_name("sched/preemptions") <= total_by_name("sched/context_switches"),
	   "0.15 sched: at most as many preemptions as context switches");
	test_unload_and_reload("pfc_sched", "sched/forks", fork_50);
	return finish();
}
