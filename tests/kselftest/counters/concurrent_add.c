// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 200
 *
 * One thread adds and deletes one instance of a driver all the time. The main thread has deleted
 * other instances and adds them again. It must not wait for a separate grace period for each of
 * them. While instances are deleted, each read of /dev/perfcounters_names must return a consistent
 * list.
 */
#include "kselftest_pc.h"
#include <pthread.h>

#define NR_OTHERS	1000
/*
 * A pair consists of one of the first NR_PAIRS names in /dev/perfcounters_names and one of the last
 * NR_PAIRS names, so the second name of a pair is in a later part of the file.
 */
#define NR_PAIRS	500
#define NR_NAMES	4000
#define SECOND_OF_PAIR	(NR_NAMES - NR_PAIRS)
#define NR_ROUNDS	gate_or_long(2, 5)

static int numbers[NR_NAMES];
static volatile bool adding = true, deleting;
static volatile __u32 nr_cycles;

/* Each addition of the deleted instance waits for an RCU grace period. */
static void *add_and_delete_forever(void *unused)
{
	int *failed = calloc(1, sizeof(*failed));

	pin_to_cpu(1);
	while (adding) {
		int n = driver_cmd("add neighbours/flaps");

		*failed += n <= 0;
		driver_cmd("del %d", n);
		nr_cycles++;
	}
	driver_close();
	return failed;
}

/* Deletes both instances of each pair, the first instance before the second. */
static void *delete_pairs(void *unused)
{
	pin_to_cpu(1);
	for (int i = 0; i < NR_PAIRS; i++) {
		driver_cmd("del %d", numbers[i]);
		driver_cmd("del %d", numbers[SECOND_OF_PAIR + i]);
	}
	driver_close();
	deleting = false;
	return NULL;
}

/*
 * Returns true if each line of the names file is complete and no line is missing. The first
 * instance of a pair is deleted first, so no pair may have a dormant (deleted) second name and a
 * live first name.
 */
static bool names_are_consistent(void)
{
	FILE *names = fopen("/dev/perfcounters_names", "re");
	static bool live[NR_NAMES];
	unsigned int number, last = 0, index;
	char line[200], state[10];
	int nr = 0, good;

	good = names && fgets(line, sizeof(line), names) &&
	       !strncmp(line, "# perfcounters generation", 25);
	while (good && fgets(line, sizeof(line), names)) {
		good = sscanf(line, "%u\t%9s", &number, state) == 2 && number > last &&
		       line[strlen(line) - 1] == '\n';
		last = number;
		if (sscanf(line, "%*u\t%*s\tneighbours/other %u", &index) != 1 || index >= NR_NAMES)
			continue;
		live[index] = !strcmp(state, "live");
		nr++;
	}
	if (names)
		fclose(names);
	for (int i = 0; i < NR_PAIRS; i++)
		good = good && !(live[i] && !live[SECOND_OF_PAIR + i]);
	return good && nr == NR_NAMES;
}

/*
 * Adds instances. Returns how many of them had no number before or got their previous number again.
 */
static int add_instances(int from, int to)
{
	int nr_same = 0;

	for (int i = from; i < to; i++) {
		int n = driver_cmd("add neighbours/other %d", i);

		nr_same += !numbers[i] || n == numbers[i];
		numbers[i] = n;
	}
	return nr_same;
}

static void test_names(void)
{
	int reads = 0, bad = 0;

	add_instances(NR_OTHERS, NR_NAMES);
	for (int round = 0; round < NR_ROUNDS; round++) {
		pthread_t thread;

		deleting = true;
		pthread_create(&thread, NULL, delete_pairs, NULL);
		do {
			bad += !names_are_consistent();
			reads++;
		} while (deleting);
		pthread_join(thread, NULL);
		add_instances(0, NR_PAIRS);
		add_instances(SECOND_OF_PAIR, NR_NAMES);
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
	load_and_map("");
	pin_to_cpu(0);
	add_instances(0, NR_OTHERS);
	for (int i = 0; i < NR_OTHERS; i++)
		driver_cmd("del %d", numbers[i]);
	pthread_create(&thread, NULL, add_and_delete_forever, NULL);
	ok(wait_until(nr_cycles > 10), "0.11 one instance is added and deleted more than 10 times");
	before = nr_cycles;
	is(add_instances(0, NR_OTHERS), NR_OTHERS,
	   "0.10 perf_add of %d names beside one that is added and deleted: old numbers",
	   NR_OTHERS);
	before = nr_cycles - before;
	ok(before < NR_OTHERS / 4,
	   "0.10 perf_add beside a name that is added and deleted: no grace period each (%u)",
	   before);
	adding = false;
	pthread_join(thread, (void **)&failed);
	is(*failed, 0,
	   "0.10 a name that is added and deleted all the time: each perf_add succeeds");
	test_names();
	return finish();
}
