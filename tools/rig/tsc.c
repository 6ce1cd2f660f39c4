// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the frequency of this machine's time stamp counter, in kHz, which is also that of
 * QEMU's processors. A guest would find it by timers of QEMU's, and on a busy host it finds a
 * tenth of it: its clock is then ten times as fast as real time.
 */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	double ns;
	unsigned long long tsc;
};

/* Both clocks at once: the try that took the least time was interrupted by nothing. */
static struct moment look(void)
{
	unsigned long long least = -1ULL, before, after;
	struct moment best = { 0, 0 };
	struct timespec t;

	for (int i = 0; i < 2000; i++) {
		before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		after = __rdtsc();
		if (after - before < least) {
			least = after - before;
			best.tsc = before + least / 2;
			best.ns = t.tv_sec * 1e9 + t.tv_nsec;
		}
	}
	return best;
}

int main(void)
{
	struct moment begin = look(), end;

	nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
	end = look();
	printf("%.0f\n", (end.tsc - begin.tsc) * 1e6 / (end.ns - begin.ns));
	return 0;
}
