// SPDX-License-Identifier: GPL-2.0
/*
 * The position of slots, for every pages_per_chunk: perfcounters_offset() against the values that
 * are read there, alignment, growth by appending chunks, and the slots of histograms.
 */
#include "kselftest_pc.h"

#define INSTANCES	300
#define RUN		64

static struct pc pc;
static __u32 number[INSTANCES];

/* Computes the offset of a slot independently of perfcounters_offset() in the header file. */
static __u64 by_hand(const struct perfcounters_header *h, __u32 cpu, __u32 slot)
{
	__u64 p = h->pages_per_chunk, page = h->page_size / 8;
	__u64 chunk = slot / (p * page), rest = slot % (p * page);

	return h->page_size * (1 + chunk * h->nr_cpus * p + cpu * p + rest / page) +
	       rest % page * 8;
}

/* Reads a word through a new mapping of its page. */
static __s64 peek(__u64 offset)
{
	__s64 *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pc.fd, offset & ~4095ULL);
	__s64 value = p == MAP_FAILED ? -1 : p[offset % 4096 / 8];

	munmap(p, 4096);
	return value;
}

static __s64 mark(__u32 cpu, __u32 slot)
{
	return cpu * 1000000LL + slot;
}

static void geometry(unsigned int pages)
{
	const struct perfcounters_header *h = &pc.geometry;
	bool aligned = true, formula = true, right = true, whole = true, still;
	__u32 last, slots = pages * 512, early;
	char params[40];

	snprintf(params, sizeof(params), "pages_per_chunk=%u", pages);
	load_modules(params);
	pc_open(&pc);
	is(h->pages_per_chunk, pages, "0.3 pages_per_chunk=%u: the header has the value", pages);
	early = driver_cmd("add layout/early");
	pin_to_cpu(1);
	driver_cmd("adjust %u %lld", early, (long long)mark(1, early));

	for (int i = 0; i < INSTANCES; i++) {
		if (i % 3)
			number[i] = driver_cmd("add layout/%d", i);
		else
			number[i] = driver_cmd("desc 32 4 1 0 %d 0 -1 layout/%d", RUN, i);
		whole = whole && (i % 3 || number[i] / slots == (number[i] + RUN - 1) / slots);
	}
	/* Updates each instance on each CPU, then reads where the value should be. */
	for (__u32 cpu = 0; cpu < h->nr_cpus; cpu++) {
		pin_to_cpu(cpu);
		for (int i = 0; i < INSTANCES; i++) {
			if (i % 3)
				driver_cmd("adjust %u %lld", number[i],
					   (long long)mark(cpu, number[i]));
			else	/* its last bucket */
				driver_cmd("hist %u %d 0x7fffffffffffffff", number[i], RUN);
		}
	}
	for (__u32 cpu = 0; cpu < h->nr_cpus; cpu++) {
		for (int i = 0; i < INSTANCES; i++) {
			__u32 slot = number[i] + (i % 3 ? 0 : RUN - 1);
			__s64 want = i % 3 ? mark(cpu, slot) : 1;

			right = right && pc_value(&pc, cpu, slot) == want;
			if (i < 20)
				right = right && peek(by_hand(h, cpu, slot)) == want;
		}
		for (__u32 slot = 0; slot < h->max_instances; slot += 97)
			formula = formula &&
				  perfcounters_offset(h, cpu, slot) == by_hand(h, cpu, slot);
		aligned = aligned && perfcounters_offset(h, cpu, 0) % h->page_size == 0;
	}
	ok(aligned, "0.4 pages_per_chunk=%u: each CPU's slots begin at a page boundary", pages);
	ok(formula, "0.3 pages_per_chunk=%u: perfcounters_offset() is right for every CPU", pages);
	ok(right,
	   "0.5 pages_per_chunk=%u: each value of each instance is read at its offset",
	   pages);
	ok(whole, "0.4 pages_per_chunk=%u: no histogram crosses a chunk", pages);
	last = pc.h->nr_slots;
	is(pc.h->nr_chunks, (last + slots - 1) / slots,
	   "0.4 pages_per_chunk=%u: the number of chunks is the least that holds all slots", pages);
	still = pc_value(&pc, 1, early) == mark(1, early) && !pc_value(&pc, 0, early);
	ok(still, "0.4 pages_per_chunk=%u: growth does not change an earlier value", pages);
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
		geometry(pages);
	for (int i = 0; i < 4; i++) {
		char params[40];
		int log = klog_open();

		unload_modules();
		snprintf(params, sizeof(params), "pages_per_chunk=%s", bad[i]);
		is(insmod("perfcounters", params), -EINVAL,
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
	ok(cpu0 / 4096 != cpu1 / 4096,
	   "0.15 slots of different CPUs are in different pages");
	pc_close(&one);
	return finish();
}
