// SPDX-License-Identifier: GPL-2.0
/*
 * symbols: kept
 *
 * A C++ program whose hot function has constraints, which are part of its mangled name. The test
 * pfc_names_perf.sh samples it. Usage: constrained MILLISECONDS
 */
#include <stdlib.h>
#include <time.h>

template <typename T> concept integer = requires(T value) { value % 2; };

static volatile unsigned long work_done;

template <integer T>
	requires(sizeof(T) > 1)
[[gnu::noinline]] void constrained_hot(T rounds)
{
	while (rounds--)
		work_done = work_done + 1;
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
		constrained_hot(20000UL);
	return 0;
}
