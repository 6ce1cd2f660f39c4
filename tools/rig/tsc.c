// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the frequency of this machine's time stamp counter (TSC) in kHz, which is also the
 * frequency of the TSC that QEMU emulates. The script vm.sh passes the frequency to guests. A guest
 * that does not get the frequency measures it with timers that QEMU emulates. On a busy host, a
 * guest has measured a tenth of the real frequency, so that the guest's clock ran ten times too
 * fast.
 */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct clock_readings {
	double ns;
	unsigned long long tsc;
};

/*
 * Reads both clocks, CLOCK_MONOTONIC_RAW and the TSC, at the same time. Returns the result of the
 * shortest of many attempts, because an attempt that was interrupted takes longer.
 */
static struct clock_readings read_both_clocks(void)
{
	unsigned long long least = -1ULL, before, after;
	struct clock_readings best = { 0, 0 };
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
	struct clock_readings begin = read_both_clocks(), end;

	nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
	end = read_both_clocks();
	printf("%.0f\n", (end.tsc - begin.tsc) * 1e6 / (end.ns - begin.ns));
	return 0;
}
