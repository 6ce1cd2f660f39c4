// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 *
 * Tests the instances of the counter pages that have the values of process accounting for each CPU.
 * The values in the counter pages are those of /proc/rawsysppa at an earlier moment, and they
 * remain when accounting is turned off.
 */
#include "ppa.h"

static const char *const names[PPA_NR_CPU_VALUES] = {
	"ppa/user_time", "ppa/system_time", "ppa/interrupt_time", "ppa/idle_time",
	"ppa/syscalls", "ppa/interrupts", "ppa/softirq_time", "ppa/softirqs",
	"ppa/softirq/hi_time", "ppa/softirq/hi", "ppa/softirq/tasklet_time",
	"ppa/softirq/tasklet", "ppa/softirq/timer_time", "ppa/softirq/timer",
	"ppa/softirq/net_tx_time", "ppa/softirq/net_tx", "ppa/softirq/net_rx_time",
	"ppa/softirq/net_rx",
};

static __u32 slots[PPA_NR_CPU_VALUES];
static __u64 raw[3][MAX_CPUS][PPA_NR_CPU_VALUES], page[3][MAX_CPUS][PPA_NR_CPU_VALUES];

static bool is_time(int value)
{
	return value < 4 || (value >= 6 && value % 2 == 0);
}

static void read_page(int reading, int nr)
{
	int cpu, n;

	for (cpu = 0; cpu < nr; cpu++)
		for (n = 0; n < PPA_NR_CPU_VALUES; n++)
			page[reading][cpu][n] = pc_value(&pc, cpu, slots[n]);
}

static void read_raw(int reading, int nr, const struct ppa_info *info)
{
	int cpu, n;

	ppa_cpus(raw[reading]);
	for (cpu = 0; cpu < nr; cpu++)
		for (n = 0; n < PPA_NR_CPU_VALUES; n++)
			if (is_time(n))
				raw[reading][cpu][n] = raw[reading][cpu][n] * 1e6 / info->khz;
}

static void work(void)
{
	for (int i = 0; i < 300; i++) {
		syscall(SYS_getppid);
		usleep(1000);
	}
}

/*
 * Reads the counter pages into page[@reading]. Returns true if any of these values is more than
 * 1,000 below the same value in raw[@before], which was read from /proc/rawsysppa earlier.
 */
static bool page_is_older(int nr, int before, int reading)
{
	int cpu, n;

	read_page(reading, nr);
	for (cpu = 0; cpu < nr; cpu++)
		for (n = 0; n < PPA_NR_CPU_VALUES; n++)
			if (page[reading][cpu][n] + 1000 < raw[before][cpu][n])
				return true;
	return false;
}

/* Counts the values outside of the readings @before and @after of /proc/rawsysppa. */
static int count_outside(int nr, int before, int reading, int after)
{
	int cpu, n, wrong = 0;

	for (cpu = 0; cpu < nr; cpu++)
		for (n = 0; n < PPA_NR_CPU_VALUES; n++) {
			__u64 value = page[reading][cpu][n];

			/* Allows a difference of a microsecond for rounding. */
			if (value + 1000 >= raw[before][cpu][n] &&
			    value <= raw[after][cpu][n] + 1000)
				continue;
			note("CPU %d, %s: %llu is not from %llu to %llu", cpu, names[n], value,
			     raw[before][cpu][n], raw[after][cpu][n]);
			wrong++;
		}
	return wrong;
}

int main(void)
{
	int n, nr, cpu, decreased = 0;
	__u64 sum, began, total, min;

	plan(10);
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	ppa_load();
	pc_open(&pc);
	is(pc_find(&pc, names[0]), 0,
	   "4.9 counter pages: no instances before accounting is turned on");
	pc_close(&pc);
	began = ppa_info(dev).now;
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "4.9 settings: accounting is turned on");
	info = ppa_info(dev);
	nr = info.nr_cpus;
	pc_open(&pc);
	for (n = 0; n < PPA_NR_CPU_VALUES; n++)
		slots[n] = pc_find(&pc, names[n]);
	for (n = 0; n < PPA_NR_CPU_VALUES && slots[n]; n++)
		;
	is(n, PPA_NR_CPU_VALUES, "4.9 counter pages: each value of a CPU is an instance");
	work();
	/* Lower bound of the accounted time: the time since all probes were attached. */
	min = (ppa_info(dev).now - info.now) * 1e6 / info.khz;
	read_raw(0, nr, &info);
	/* A worker updates the pages periodically. */
	wait_until(!page_is_older(nr, 0, 0));
	read_raw(1, nr, &info);
	is(count_outside(nr, 0, 0, 1), 0,
	   "4.9 counter pages: the values are those of /proc/rawsysppa, a moment ago");
	total = (ppa_info(dev).now - began) * 1e6 / info.khz;
	for (cpu = 0; cpu < nr; cpu++) {
		for (sum = n = 0; n < 4; n++)
			sum += page[0][cpu][n];
		note("CPU %d: %.1f ms of %.1f to %.1f", cpu, sum / 1e6, min / 1e6, total / 1e6);
		if (sum > total || sum < min - min / 10)
			decreased++;
	}
	is(decreased, 0,
	   "4.9 counter pages: user, system, interrupt and idle time add up to all time");
	ok(page[0][0][PPA_CPU_SYSCALLS] + page[0][1][PPA_CPU_SYSCALLS] >= 600,
	   "4.9 counter pages: 600 or more system calls are counted");
	/* Turn accounting off: no value must change. Then turn accounting on again. */
	is(ppa_write(SETTINGS, "0 0 0 1"), 0, "4.9 settings: accounting is turned off");
	read_page(1, nr);
	work();
	read_page(2, nr);
	ok(!memcmp(page[1], page[2], sizeof(page[1])), "4.9 accounting off: no value changes");
	ppa_write(SETTINGS, "1 0 0 1");
	work();
	/*
	 * The values of accounting restart at 0 when accounting is turned on. The values in the
	 * counter pages are sums that continue when accounting restarts, and must not decrease.
	 */
	wait_until((read_page(2, nr), page[2][0][PPA_CPU_IDLE] > page[1][0][PPA_CPU_IDLE]));
	for (decreased = cpu = 0; cpu < nr; cpu++)
		for (n = 0; n < PPA_NR_CPU_VALUES; n++)
			decreased += page[2][cpu][n] < page[1][cpu][n];
	ok(!decreased && page[2][0][PPA_CPU_IDLE] > page[1][0][PPA_CPU_IDLE],
	   "4.9 accounting on again: values go on from where they were");
	ppa_write(SETTINGS, "0 0 0 1");
	close(dev);
	pc_close(&pc);
	is(rmmod("ppa"), 0, "4.9 rmmod: ppa.ko unloads after accounting");
	unload_modules();
	return finish();
}
