// SPDX-License-Identifier: GPL-2.0
/*
 * Checks the position of slots for every value of pages_per_chunk: perfcounters_offset() must
 * return the offsets at which values are read. Also checks the alignment of the slots, growth by
 * appended chunks, and the slots of histograms.
 */
#include "kselftest_pc.h"

#define INSTANCES	300
#define RUN		64

static __u32 numbers[INSTANCES];

/* Computes the offset of a slot independently of perfcounters_offset() in the header file. */
static __u64 expected_offset(const struct perfcounters_header *h, __u32 cpu, __u32 slot)
{
	__u64 p = h->pages_per_chunk, page = h->page_size / 8;
	__u64 chunk = slot / (p * page), rest = slot % (p * page);

	return h->page_size * (1 + chunk * h->nr_cpus * p + cpu * p + rest / page) +
	       rest % page * 8;
}

static __s64 read_word(__u64 offset)
{
	__s64 *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pc.fd, offset & ~4095ULL);
	__s64 value = p == MAP_FAILED ? -1 : p[offset % 4096 / 8];

	munmap(p, 4096);
	return value;
}

static __s64 expected_value(__u32 cpu, __u32 slot)
{
	return cpu * 1000000LL + slot;
}

static void test_geometry(unsigned int pages)
{
	const struct perfcounters_header *h = &pc.geometry;
	bool aligned = true, offsets_match = true, values_match = true, whole = true;
	bool first_unchanged;
	__u32 last, slots = pages * 512, first;

	load_and_map(format_text("pages_per_chunk=%u", pages));
	is(h->pages_per_chunk, pages, "0.3 pages_per_chunk=%u: the header has the value", pages);
	first = driver_cmd("add layout/early");
	pin_to_cpu(1);
	driver_cmd("adjust %u %lld", first, (long long)expected_value(1, first));

	for (int i = 0; i < INSTANCES; i++) {
		if (i % 3)
			numbers[i] = driver_cmd("add layout/%d", i);
		else
			numbers[i] = driver_cmd("desc 32 4 1 0 %d 0 -1 layout/%d", RUN, i);
		whole = whole && (i % 3 || numbers[i] / slots == (numbers[i] + RUN - 1) / slots);
	}
	for (__u32 cpu = 0; cpu < h->nr_cpus; cpu++) {
		pin_to_cpu(cpu);
		for (int i = 0; i < INSTANCES; i++) {
			if (i % 3)
				driver_cmd("adjust %u %lld", numbers[i],
					   (long long)expected_value(cpu, numbers[i]));
			else	/* updates the last bucket of the histogram */
				driver_cmd("hist %u %d 0x7fffffffffffffff", numbers[i], RUN);
		}
	}
	for (__u32 cpu = 0; cpu < h->nr_cpus; cpu++) {
		for (int i = 0; i < INSTANCES; i++) {
			__u32 slot = numbers[i] + (i % 3 ? 0 : RUN - 1);
			__s64 want = i % 3 ? expected_value(cpu, slot) : 1;

			values_match = values_match && pc_value(&pc, cpu, slot) == want;
			if (i < 20)
				values_match = values_match &&
					read_word(expected_offset(h, cpu, slot)) == want;
		}
		for (__u32 slot = 0; slot < h->max_instances; slot += 97)
			offsets_match = offsets_match &&
					perfcounters_offset(h, cpu, slot) == expected_offset(h, cpu,
											     slot);
		aligned = aligned && perfcounters_offset(h, cpu, 0) % h->page_size == 0;
	}
	ok(aligned, "0.4 pages_per_chunk=%u: each CPU's slots begin at a page boundary", pages);
	ok(offsets_match, "0.3 pages_per_chunk=%u: perfcounters_offset() is right for every CPU",
	   pages);
	ok(values_match,
	   "0.5 pages_per_chunk=%u: each value of each instance is read at its offset",
	   pages);
	ok(whole, "0.4 pages_per_chunk=%u: no histogram crosses a chunk", pages);
	last = pc.h->nr_slots;
	is(pc.h->nr_chunks, (last + slots - 1) / slots,
	   "0.4 pages_per_chunk=%u: the number of chunks is the least that holds all slots", pages);
	first_unchanged = pc_value(&pc, 1, first) == expected_value(1, first) &&
		!pc_value(&pc, 0, first);
	ok(first_unchanged, "0.4 pages_per_chunk=%u: growth does not change an earlier value",
	   pages);
	pc_close(&pc);
}

int main(void)
{
	static const char *const advice[] = { "pages_per_chunk", NULL };
	static const char *const bad[] = { "0", "9", "4096", "4294967295" };
	__u64 cpu0, cpu1;
	struct pc one;

	plan(8 * 7 + 8 + 1);
	for (unsigned int pages = 1; pages <= 8; pages++)
		test_geometry(pages);
	for (int i = 0; i < 4; i++) {
		int log = klog_open();

		unload_modules();
		is(insmod("perfcounters", format_text("pages_per_chunk=%s", bad[i])), -EINVAL,
		   "0.3 pages_per_chunk=%s: insmod is EINVAL",
		   bad[i]);
		ok(klog_has(log, advice),
		   "0.3 pages_per_chunk=%s: the kernel log names the parameter",
		   bad[i]);
	}
	load_modules("");
	pc_open(&one);
	cpu0 = perfcounters_offset(&one.geometry, 0, 0);
	cpu1 = perfcounters_offset(&one.geometry, 1, 0);
	ok(cpu0 / 4096 != cpu1 / 4096, "0.15 slots of different CPUs are in different pages");
	pc_close(&one);
	return finish();
}
