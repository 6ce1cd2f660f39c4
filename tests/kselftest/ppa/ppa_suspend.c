// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 240
 *
 * Accounting does not count the time in which the machine is suspended. With pm_test "core" the
 * kernel does all but the last step of a suspend, and then waits for some seconds with interrupts
 * off. The test compares accounting with CLOCK_MONOTONIC, which does not count the time of the
 * suspend either.
 */
#include "ppa.h"

#define PM_TEST	"/sys/power/pm_test"
/*
 * Seconds of the suspend. The delay must exceed TOLERANCE_MS by more than a second, because the
 * kernel may measure the suspend by the real-time clock, in whole seconds.
 */
#define DELAY	gate_or_long(3, 5)
#define TOLERANCE_MS	1000

int main(void)
{
	struct ppa_task before, after;
	static __u64 cpus[2][MAX_CPUS][PPA_NR_CPU_VALUES];
	double own, all = 0, elapsed;
	__u64 begin;

	plan(3);
	ppa_load();
	pin_to_cpu(0);
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "4.2 suspend: accounting is turned on");
	info = ppa_info(dev);
	write_file(PM_TEST, "core");
	write_file("/sys/module/suspend/parameters/pm_test_delay", format_text("%ld", DELAY));
	ppa_cpus(cpus[0]);
	before = ppa_task(dev, getpid());
	begin = clock_ns(CLOCK_MONOTONIC);
	write_file("/sys/power/state", "mem");
	elapsed = (clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
	after = ppa_task(dev, getpid());
	ppa_cpus(cpus[1]);
	write_file(PM_TEST, "none");
	own = ticks_to_ms(after.values[PPA_SCHEDACCUM] - before.values[PPA_SCHEDACCUM], &info);
	for (int i = PPA_CPU_USER; i <= PPA_CPU_IDLE; i++)
		all += ticks_to_ms(cpus[1][0][i] - cpus[0][0][i], &info);
	note("%.0f ms of CLOCK_MONOTONIC, own time %.0f, all times of the CPU %.0f", elapsed, own,
	     all);
	ok(own < elapsed + TOLERANCE_MS,
	   "4.2 suspend: the suspended time is not counted for the task");
	ok(all < elapsed + TOLERANCE_MS,
	   "4.2 suspend: the suspended time is not counted for the CPU");
	ppa_write(SETTINGS, "0 0 0 1");
	close(dev);
	unload_modules();
	return finish();
}
