/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests of libperfmon with example programs in the style of perfmon2: their counts must be exact.
 */
#ifndef LIBPERFMON_EXAMPLES_H
#define LIBPERFMON_EXAMPLES_H

#include "pmu.h"
#include <sys/personality.h>

#define EXAMPLES	"/tests/examples/"
/* Maximum number of instructions that an example executes around its loop. */
#define MAX_OVERHEAD	120

static char output[4096];

static int run_example(const char *command)
{
	FILE *f;
	size_t len;
	int status;

	f = popen(command, "r");
	bail_if(!f, command);
	len = fread(output, 1, sizeof(output) - 1, f);
	output[len] = '\0';
	status = pclose(f);
	note("%s:", command);
	for (char *line = strtok(strdupa(output), "\n"); line; line = strtok(NULL, "\n"))
		note("%s", line);
	return status;
}

/* Finds a number before @event in a line that begins with @begin. Returns -1 if there is none. */
static long long event_count(const char *begin, const char *event)
{
	char *copy = strdupa(output), *line;

	for (line = strtok(copy, "\n"); line; line = strtok(NULL, "\n")) {
		char name[40];
		long long n;

		if (!strncmp(line, begin, strlen(begin)) &&
		    sscanf(line + strlen(begin), "%lld %39s", &n, name) == 2 &&
		    !strcmp(name, event))
			return n;
	}
	return -1;
}

static void test_self(void)
{
	long long few, many, cycles;

	is(run_example(EXAMPLES "self 1000000"), 0, "1.3 example self: exits with status 0");
	few = event_count("", "instructions");
	cycles = event_count("", "cycles");
	run_example(EXAMPLES "self 6000000");
	many = event_count("", "instructions");
	is(many - few, 10000000,
	   "1.3 example self: 5 million rounds more are 10 million instructions more");
	if (!ok(few >= 2000000 && few <= 2000000 + MAX_OVERHEAD,
		"1.3 example self: at most %d instructions around its loop", MAX_OVERHEAD))
		note("%lld", few);
	/* The emulated PMU counts five cycles for four instructions. */
	cycles = event_count("", "cycles") - cycles;
	if (!ok(cycles >= 12500000 - 2 && cycles <= 12500000 + 2,
		"1.3 example self: 5 cycles for 4 instructions"))
		note("%lld", cycles);
}

static void test_task(void)
{
	long long few, many;

	/*
	 * Without address space randomization, each run executes the same number of instructions
	 * outside of the loop.
	 */
	personality(ADDR_NO_RANDOMIZE);
	is(run_example(EXAMPLES "task /tests/pmu_perf spin 1000000"), 0,
	   "1.3 example task: exits with status 0");
	few = event_count("", "instructions");
	is(run_example(EXAMPLES "task /tests/pmu_perf spin 6000000"), 0,
	   "1.3 example task: exits with status 0 after 6 million rounds");
	many = event_count("", "instructions");
	is(many - few, 10000000,
	   "1.3 example task: 5 million rounds more are 10 million instructions more");
	ok(few > 2000000 && few < 3000000,
	   "1.3 example task: less than 1 million instructions around the command's loop");
	is(run_example(EXAMPLES "task false"), 1 << 8,
	   "1.3 example task: exits with the status of its command");
	is(run_example(EXAMPLES "task /nowhere 2>&1"), 127 << 8,
	   "1.3 example task: exits with status 127 if the command does not exist");
}

static void test_syst(void)
{
	const long long work = 2 * 20000000LL;
	long long cpu0, cpu1;

	is(run_example(EXAMPLES "syst taskset 2 /tests/pmu_perf spin 20000000"), 0,
	   "1.3 example syst: exits with status 0");
	cpu0 = event_count("CPU0", "instructions");
	cpu1 = event_count("CPU1", "instructions");
	/* The kernel also executes instructions for the command, many in a debug kernel. */
	ok(cpu1 >= work && cpu1 < 4 * work,
	   "1.3 example syst: counts a command on CPU 1, where it runs");
	ok(cpu0 >= 0 && cpu0 < (scale_down(2) == 2 ? work / 2 : work),
	   "1.3 example syst: does not count the command on CPU 0");
	is(run_example(EXAMPLES "syst"), 0,
	   "1.3 example syst: without a command it exits with status 0");
	ok(event_count("CPU1", "cycles") > 0,
	   "1.3 example syst: without a command it counts cycles on CPU 1");
}

/* The default format has a header of 128 bytes and entries of 48 bytes. */
static void test_task_smpl(void)
{
	long long few, many, full;

	load_module("pfm_default");
	is(run_example(EXAMPLES "task_smpl 10000 1000000 /tests/pmu_perf spin 1000000"), 0,
	   "1.9 example task_smpl: exits with status 0");
	few = event_count("", "entries");
	is(event_count("", "full"), 0, "1.9 example task_smpl: a large buffer is never full");
	is(event_count("", "others"), 0, "1.9 example task_smpl: all samples are of the command");
	is(run_example(EXAMPLES "task_smpl 10000 1000000 /tests/pmu_perf spin 6000000"), 0,
	   "1.9 example task_smpl: exits with status 0 after 6 million rounds");
	many = event_count("", "entries");
	if (!ok(many - few >= 999 && many - few <= 1001,
		"1.7 example task_smpl: one sample for each period of 10,000 instructions"))
		note("%lld", many - few);
	/* The emulated PMU counts five cycles for four instructions. */
	few = event_count("", "cycles") - many * 12500;
	if (!ok(few >= -many && few <= many,
		"1.11 example task_smpl: 12,500 cycles in each sample"))
		note("%lld", few);
	is(run_example(EXAMPLES "task_smpl 1000 4000 /tests/pmu_perf spin 6000000"), 0,
	   "1.9 example task_smpl: exits with status 0 with a small buffer");
	many = event_count("", "entries");
	full = event_count("", "full");
	ok(full > 1 && full == event_count("", "overflows"),
	   "1.9 example task_smpl: one overflow message for each time the buffer is full");
	if (!ok(many > full * 60 && many <= (full + 1) * 81,
		"1.9 example task_smpl: a full buffer has more than 60 and up to 81 samples"))
		note("%lld in %lld buffers", many, full);
	is(event_count("", "others"), 0,
	   "1.9 example task_smpl: all samples in the small buffer are of the command");
	is(run_example(EXAMPLES "task_smpl 1000 4000 false"), 1 << 8,
	   "1.9 example task_smpl: exits with the status of its command");
	is(rmmod("pfm_default"), 0, "1.9 pfm_default: unloads after the examples");
}

#endif
