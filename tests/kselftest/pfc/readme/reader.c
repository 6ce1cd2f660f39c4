// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the names and sums of all live instances, read with plain loads from the counter pages.
 * Documentation/counter-pages.md quotes this program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <linux/perfcounters.h>
#define MAP(len, at) mmap(NULL, len, PROT_READ, MAP_SHARED, fd, at)

int main(void)
{
	int fd = open("/dev/perfcounters", O_RDONLY);
	const struct perfcounters_header *h = MAP(4096, 0);

	if (h == MAP_FAILED || h->version != PERFCOUNTERS_VERSION)
		return perror("/dev/perfcounters"), 1;
	const char *base = MAP(perfcounters_offset(h, h->nr_cpus, h->max_instances), 0);
	const struct perfcounters_desc *desc = MAP(h->max_instances * h->desc_size, h->desc_offset);

	for (unsigned int n = 1; n < h->nr_slots; n++) {
		long long sum = 0;

		for (unsigned int cpu = 0; cpu < h->nr_cpus; cpu++)
			sum += *(const volatile __s64 *)(base + perfcounters_offset(h, cpu, n));
		if (desc[n].state == PERFCOUNTERS_LIVE)
			printf("%s %lld\n", desc[n].name, sum);
	}
}
