// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the sums of the instances named on the command line. The values are consistent on each
 * CPU, and the set of instances did not change while they were read. Documentation/counter-pages.md
 * quotes the main parts of this program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <linux/perfcounters.h>

#define MAX_NAMES 16
#define MAP(len, at) mmap(NULL, len, PROT_READ, MAP_SHARED, fd, at)

static const struct perfcounters_header *h;
static const struct perfcounters_desc *desc;
static const char *counters;

/* Makes a consistent copy of slots of a CPU: each update is seen as a whole or not at all. */
static void copy_slots(__u32 cpu, const __u32 *slots, int n, __s64 *to)
{
	const __u64 *flag = (const __u64 *)(counters + perfcounters_offset(h, cpu, 0));
	__u64 seq;

	do {
		while ((seq = __atomic_load_n(flag, __ATOMIC_ACQUIRE)) & PERFCOUNTERS_SEQ_BUSY)
			;
		for (int i = 0; i < n; i++)
			to[i] = *(const volatile __s64 *)(counters +
							  perfcounters_offset(h, cpu, slots[i]));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (__atomic_load_n(flag, __ATOMIC_RELAXED) != seq);
}

/* Returns the number of the live instance of that name, or 0 if no instance has it. */
static __u32 find_instance(const char *name)
{
	for (__u32 n = 1; n < h->nr_slots; n++)
		if (desc[n].state == PERFCOUNTERS_LIVE && !strcmp(desc[n].name, name))
			return n;
	return 0;
}

int main(int argc, char **argv)
{
	int fd = open("/dev/perfcounters", O_RDONLY), n = argc - 1;
	__s64 values[MAX_NAMES], sums[MAX_NAMES];
	__u32 slots[MAX_NAMES];
	__u64 generation;

	h = MAP(4096, 0);
	if (n > MAX_NAMES || h == MAP_FAILED || h->version != PERFCOUNTERS_VERSION)
		return perror("/dev/perfcounters"), 1;
	counters = MAP(perfcounters_offset(h, h->nr_cpus, h->max_instances), 0);
	desc = MAP(h->max_instances * h->desc_size, h->desc_offset);
	do {
		generation = __atomic_load_n(&h->gen2, __ATOMIC_ACQUIRE);
		memset(sums, 0, sizeof(sums));
		for (int i = 0; i < n; i++)
			slots[i] = find_instance(argv[i + 1]);
		for (__u32 cpu = 0; cpu < h->nr_cpus; cpu++) {
			copy_slots(cpu, slots, n, values);
			for (int i = 0; i < n; i++)
				sums[i] += values[i];
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (__atomic_load_n(&h->gen1, __ATOMIC_RELAXED) != generation);
	for (int i = 0; i < n; i++)
		if (slots[i])
			printf("%s %lld\n", argv[i + 1], sums[i]);
	return 0;
}
