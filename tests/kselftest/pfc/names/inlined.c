// SPDX-License-Identifier: GPL-2.0
/*
 * symbols: debug
 *
 * A program whose hot code is in a function that is inlined in another inlined function. The tests
 * pfc_names.sh and pfc_names_perf.sh sample this program. Usage: inlined MILLISECONDS
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

static volatile unsigned long work_done;

static inline __attribute__((always_inline)) void inner_inlined(unsigned long rounds)
{
	while (rounds--)
		work_done++;
}

static inline __attribute__((always_inline)) void middle_inlined(unsigned long rounds)
{
	inner_inlined(rounds);
	inner_inlined(rounds / 100);
}

__attribute__((noinline)) void outer_hot(unsigned long rounds)
{
	middle_inlined(rounds);
}

static long thread_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	long end = thread_ms() + (argc > 1 ? atol(argv[1]) : 0);

	while (thread_ms() < end)
		outer_hot(20000);
	return 0;
}
