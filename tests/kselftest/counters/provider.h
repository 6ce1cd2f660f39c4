/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for the provider tests, which compare the values of a provider with those of /proc. */
#ifndef PROVIDER_H
#define PROVIDER_H

#include "kselftest_pc.h"

static void shell(const char *command)
{
	bail_if(system(command), command);
}

/* Loads perfcounters.ko and one provider, and no other module of the project. */
static void load_provider(const char *module)
{
	unload_modules();
	load_module("perfcounters");
	load_module(module);
	pc_open(&pc);
	atexit(exit_cleanup);
}

static int64_t total_by_name(const char *name)
{
	uint32_t n = pc_find(&pc, name);

	return n ? pc_total(&pc, n) : -1;
}

/* Columns are counted from 0. Returns -1 if no line begins with @first. */
static int64_t proc_field(const char *path, const char *first, int column)
{
	static char buf[1 << 18];
	size_t len = strlen(first);
	char *line, *end;

	read_file(path, buf, sizeof(buf));
	for (line = buf; line && *line; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		while (*line == ' ')
			line++;
		if (strncmp(line, first, len))
			continue;
		for (line += len; column >= 0; column--) {
			while (*line == ' ' || *line == ':')
				line++;
			if (!column)
				return strtoll(line, NULL, 10);
			while (*line && *line != ' ' && *line != '\n')
				line++;
		}
	}
	return -1;
}

/* Sums the columns, one for each online CPU, of the line that begins with @first. */
static int64_t proc_row_sum(const char *path, const char *first)
{
	int64_t sum = 0;

	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		sum += proc_field(path, first, cpu);
	return sum;
}

typedef int64_t (*read_fn)(const void *arg);

static int64_t instance_total(const void *name)
{
	return total_by_name(name);
}

/*
 * Checks that a provider counts what /proc counts. The value of /proc (`theirs`) is read before and
 * after the work. The value of the provider (`ours`) is read immediately before and immediately
 * after each read of `theirs`. The four reads of `ours` give two increases: the inner increase,
 * from the second to the third read, and the outer increase, from the first to the fourth read. If
 * the provider counts correctly, the increase of `theirs` lies between the inner and the outer
 * increase of `ours`, even if other processes cause events during the test:
 *
 *	inner increase of `ours` <= increase of `theirs` <= outer increase of `ours`
 *
 * @slack is the tolerance for events that are in progress at a read: the kernel may have counted
 * such an event while the probe has not, or the reverse. @slack is normally one event for each CPU
 * at the begin and at the end of the measurement. If a caller passes a @slack larger than
 * SLACK_IN_FLIGHT, a comment at the call says why. The value of /proc must have grown by at least
 * @min, so that the test does not pass without any events.
 *
 * Sets @overcounted if the provider counted more than /proc, which may be due to another process.
 * Returns true if the values of the provider and of /proc exist, the value of /proc has grown by at
 * least @min, and the provider has not counted less than /proc.
 */
static bool compare_proc(const char *test, read_fn ours, const void *our_arg, read_fn theirs,
			 const void *their_arg, void (*work)(void), int64_t min, int64_t slack,
			 bool *overcounted)
{
	int64_t outer1 = ours(our_arg), proc1 = theirs(their_arg), inner1 = ours(our_arg);
	int64_t outer2, proc2, inner2, proc, inner, outer;

	/* On a busy host the first round of the work may cause few events. */
	for (int i = 0; i < 20 && (!i || theirs(their_arg) - proc1 < min); i++)
		work();
	inner2 = ours(our_arg);
	proc2 = theirs(their_arg);
	outer2 = ours(our_arg);
	proc = proc2 - proc1;
	inner = inner2 - inner1;
	outer = outer2 - outer1;
	note("%s: ours %lld..%lld, /proc %lld", test, (long long)inner, (long long)outer,
	     (long long)proc);
	*overcounted = inner > proc + slack;
	return outer1 >= 0 && proc1 >= 0 && proc >= min && outer >= proc - slack;
}

static bool test_matches_proc(const char *test, read_fn ours, const void *our_arg, read_fn theirs,
			      const void *their_arg, void (*work)(void), int64_t min, int64_t slack)
{
	bool overcounted, good = compare_proc(test, ours, our_arg, theirs, their_arg, work, min,
					      slack, &overcounted);

	return ok(good && !overcounted, "%s", test);
}

/* Slack for one event in progress on each of 2 CPUs, at begin and end of the measurement. */
#define SLACK_IN_FLIGHT 4

/*
 * Unloads a provider and loads it again. After the unload, the instances of the provider are
 * dormant and keep their values, and no probe is left. After the provider is loaded again, its
 * instances have the same numbers as before and the next incarnation.
 */
static void test_unload_and_reload(const char *module, const char *name, void (*work)(void))
{
	uint32_t n = pc_find(&pc, name), incarnation;
	int64_t value;

	work();
	incarnation = pc.desc[n].incarnation;
	is(rmmod(module), 0, "0.14 %s unloads", module);
	value = pc_total(&pc, n);
	ok(n && pc.desc[n].state == PERFCOUNTERS_DORMANT && pc_name_is(&pc, n, name) && value > 0,
	   "0.11 %s unloaded: %s is dormant and keeps its value", module, name);
	work();
	ok(pc_total(&pc, n) == value,
	   "0.14 %s unloaded: its dormant instance does not count", module);
	is(insmod(module, ""), 0, "0.14 %s loads again", module);
	ok(pc_find(&pc, name) == n && pc.desc[n].incarnation == incarnation + 1,
	   "0.11 %s loaded again: %s has its old number, and the next incarnation", module, name);
}

#define NR_RELOAD_TESTS 5

#endif
