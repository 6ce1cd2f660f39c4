// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 200
 *
 * The instance of one driver is added and deleted all the time. Other instances are added again
 * without waiting for its grace periods, and the names can be read.
 */
#include "kselftest_pc.h"
#include <pthread.h>

#define OTHERS	1000
/* The second name of a pair is BEHIND names after the first, in a later part of the text. */
#define PAIRS	500
#define NAMES	4000
#define BEHIND	(NAMES - PAIRS)
#define ROUNDS	gate_or_long(2, 5)

static struct pc pc;
static int number[NAMES];
static volatile bool flaps = true, deletes;
static volatile __u32 lives;

/*
 * Adds and deletes an instance. Each addition waits for an RCU grace period, until updates of the
 * previous incarnation have ended.
 */
static void *flap(void *unused)
{
	int *failed = calloc(1, sizeof(*failed));

	pin_to_cpu(1);
	while (flaps) {
		int n = driver_cmd("add neighbours/flaps");

		*failed += n <= 0;
		driver_cmd("del %d", n);
		lives++;
	}
	driver_close();
	return failed;
}

/* Deletes the first and then the second instance of each pair. */
static void *delete_pairs(void *unused)
{
	pin_to_cpu(1);
	for (int i = 0; i < PAIRS; i++) {
		driver_cmd("del %d", number[i]);
		driver_cmd("del %d", number[BEHIND + i]);
	}
	driver_close();
	deletes = false;
	return NULL;
}

/*
 * Returns true if each line is complete, no line is missing, and in no pair the second name is
 * dormant while the first is live.
 */
static bool read_names(void)
{
	FILE *names = fopen("/dev/perfcounters_names", "re");
	static bool live[NAMES];
	unsigned int at, last = 0, index;
	char line[200], state[10];
	int nr = 0, good;

	good = names && fgets(line, sizeof(line), names) &&
	       !strncmp(line, "# perfcounters generation", 25);
	while (good && fgets(line, sizeof(line), names)) {
		good = sscanf(line, "%u\t%9s", &at, state) == 2 && at > last &&
		       line[strlen(line) - 1] == '\n';
		last = at;
		if (sscanf(line, "%*u\t%*s\tneighbours/other %u", &index) != 1 || index >= NAMES)
			continue;
		live[index] = !strcmp(state, "live");
		nr++;
	}
	if (names)
		fclose(names);
	for (int i = 0; i < PAIRS; i++)
		good = good && !(live[i] && !live[BEHIND + i]);
	return good && nr == NAMES;
}

/* Adds instances. Returns how many have got their previous number, or had none. */
static int add(int from, int to)
{
	int same = 0;

	for (int i = from; i < to; i++) {
		int n = driver_cmd("add neighbours/other %d", i);

		same += !number[i] || n == number[i];
		number[i] = n;
	}
	return same;
}

static void names(void)
{
	int reads = 0, bad = 0;

	add(OTHERS, NAMES);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;

		deletes = true;
		pthread_create(&thread, NULL, delete_pairs, NULL);
		do {
			bad += !read_names();
			reads++;
		} while (deletes);
		pthread_join(thread, NULL);
		add(0, PAIRS);
		add(BEHIND, NAMES);
	}
	note("read %d times", reads);
	is(bad, 0, "0.2 names read while instances are deleted: each text is of one generation");
}

int main(void)
{
	pthread_t thread;
	__u32 before;
	int *failed;

	plan(5);
	load_modules("");
	pc_open(&pc);
	pin_to_cpu(0);
	add(0, OTHERS);
	for (int i = 0; i < OTHERS; i++)
		driver_cmd("del %d", number[i]);
	pthread_create(&thread, NULL, flap, NULL);
	wait_until(lives > 10);
	ok(lives > 10, "0.11 one instance is added and deleted more than 10 times");
	before = lives;
	is(add(0, OTHERS), OTHERS,
	   "0.10 perf_add of %d names beside one that is added and deleted: old numbers", OTHERS);
	before = lives - before;
	ok(before < OTHERS / 4,
	   "0.10 perf_add beside a name that is added and deleted: no grace period each (%u)",
	   before);
	flaps = false;
	pthread_join(thread, (void **)&failed);
	is(*failed, 0,
	   "0.10 a name that is added and deleted all the time: each perf_add succeeds");
	names();
	return finish();
}
