/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Code that the examples share: counts two events, instructions and cycles, on counters 0 and 1.
 * The kernel interface has registers but no event names; the event codes are from the manuals of
 * the processors.
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <perfmon/perfmon.h>

#define EVENTS	2

/* Bits of a PMC (control register), which are the same on Intel and AMD processors. */
#define COUNT_USER	(1 << 16)
#define COUNT_KERNEL	(1 << 17)
#define COUNTER_ENABLE	(1 << 22)

static const char *const event_names[EVENTS] = { "instructions", "cycles" };

static int is_amd(void)
{
	FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
	char line[200];
	int amd = 0;

	if (!cpuinfo)
		err(1, "/proc/cpuinfo");
	while (fgets(line, sizeof(line), cpuinfo))
		if (!strncmp(line, "vendor_id", 9))
			amd = strstr(line, "AMD") || strstr(line, "Hygon");
	fclose(cpuinfo);
	return amd;
}

/*
 * Creates a context that counts the two events at the privilege levels whose bits are set in
 * `level`: COUNT_USER, COUNT_KERNEL, or both.
 */
static int new_counting_context(uint32_t flags, uint64_t level)
{
	pfarg_ctx_t ctx = { .ctx_flags = flags };
	pfarg_pmc_t pmcs[EVENTS];
	pfarg_pmd_t pmds[EVENTS];
	int fd;

	fd = pfm_create_context(&ctx, NULL, NULL, 0);
	if (fd < 0)
		err(1, "pfm_create_context");
	memset(pmcs, 0, sizeof(pmcs));
	memset(pmds, 0, sizeof(pmds));
	pmcs[0].reg_num = 0;
	pmcs[0].reg_value = 0xc0 | level | COUNTER_ENABLE;
	pmcs[1].reg_num = 1;
	pmcs[1].reg_value = (is_amd() ? 0x76 : 0x3c) | level | COUNTER_ENABLE;
	if (pfm_write_pmcs(fd, pmcs, EVENTS))
		err(1, "pfm_write_pmcs");
	pmds[0].reg_num = 0;
	pmds[1].reg_num = 1;
	if (pfm_write_pmds(fd, pmds, EVENTS))
		err(1, "pfm_write_pmds");
	return fd;
}

static void attach(int fd, uint32_t pid_or_cpu)
{
	pfarg_load_t load;

	memset(&load, 0, sizeof(load));
	load.load_pid = pid_or_cpu;
	if (pfm_load_context(fd, &load))
		err(1, "pfm_load_context");
}

static void print_counts(int fd, const char *label)
{
	pfarg_pmd_t pmds[EVENTS];
	int i;

	memset(pmds, 0, sizeof(pmds));
	for (i = 0; i < EVENTS; i++)
		pmds[i].reg_num = i;
	if (pfm_read_pmds(fd, pmds, EVENTS))
		err(1, "pfm_read_pmds");
	for (i = 0; i < EVENTS; i++)
		printf("%s%20llu %s\n", label, (unsigned long long)pmds[i].reg_value,
		       event_names[i]);
}

#endif
