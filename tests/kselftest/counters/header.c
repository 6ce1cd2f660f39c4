// SPDX-License-Identifier: GPL-2.0
/*
 * Checks each field of the header page, and the offsets that are computed from these fields.
 */
#include "kselftest_pc.h"

/* Parses a CPU list of sysfs, such as "0-3,5", into a bitmap of the first 64 CPUs. */
static __u64 cpu_list(const char *path)
{
	char buf[256], *p = read_file(path, buf, sizeof(buf));
	__u64 set = 0;

	while (*p >= '0' && *p <= '9') {
		long from = strtol(p, &p, 10), to = from;

		if (*p == '-')
			to = strtol(p + 1, &p, 10);
		for (; from <= to && from < 64; from++)
			set |= 1ULL << from;
		p += *p == ',';
	}
	return set;
}

static __u64 word(const struct pc *pc, __u32 offset)
{
	return *(const volatile __u64 *)(pc->base + offset);
}

int main(void)
{
	const struct perfcounters_header *h;
	__u64 possible = cpu_list("/sys/devices/system/cpu/possible");
	__u64 online = cpu_list("/sys/devices/system/cpu/online");
	struct perfcounters_header first;
	__u64 slots, before_ns = clock_ns(CLOCK_REALTIME), after_ns, stray = 0;

	plan(22);
	load_and_map("");
	h = &pc.geometry;
	is(h->version, PERFCOUNTERS_VERSION, "0.3 header: version is PERFCOUNTERS_VERSION");
	ok(h->min_size <= h->size && h->size <= h->page_size,
	   "0.3 header: min_size <= size <= page_size");
	ok(h->min_size >= sizeof(*h), "0.3 header: min_size covers every field of this version");
	is(h->nr_cpus, 64 - __builtin_clzll(possible),
	   "0.3 header: nr_cpus is the number of possible CPUs");
	is(h->gen1, h->gen2, "0.3 header: gen1 equals gen2 while nothing changes");
	is(h->page_size, getpagesize(), "0.3 header: page_size is the machine's");
	is(h->pages_per_chunk, 1, "0.3 header: pages_per_chunk is 1 by default");
	is(h->max_instances, PERFCOUNTERS_MAX_INSTANCES,
	   "0.3 header: max_instances is PERFCOUNTERS_MAX_INSTANCES");
	ok(h->flags & PERFCOUNTERS_F_ATOMIC64, "0.3 header: PERFCOUNTERS_F_ATOMIC64 is set");
	is(h->counters_offset, h->page_size, "0.4 header: counters_offset is page_size");
	is(h->desc_size, sizeof(struct perfcounters_desc),
	   "0.3 header: desc_size is the size of a descriptor");
	slots = (__u64)h->pages_per_chunk * h->page_size / 8;
	ok(h->desc_offset % h->page_size == 0 &&
	   h->desc_offset >= perfcounters_offset(h, 0,
						 (h->max_instances + slots - 1) / slots * slots),
	   "0.3 header: the descriptors are after all chunks that can exist");
	ok(h->possible_offset >= h->size && h->possible_offset % 8 == 0 &&
	   h->possible_offset + h->nr_cpus / 8 < h->page_size,
	   "0.3 header: the bitmap of possible CPUs is inside the page");
	is(word(&pc, h->possible_offset), possible,
	   "0.3 header: the bitmap of possible CPUs is that of sysfs");
	is(word(&pc, h->online_offset), online,
	   "0.14 header: the bitmap of online CPUs is that of sysfs");
	for (__u32 at = 0; at < h->page_size; at += 8)
		if (at >= h->size && at != h->possible_offset && at != h->online_offset)
			stray |= word(&pc, at);
	is(stray, 0, "0.3 header: the rest of the page is 0");

	after_ns = clock_ns(CLOCK_REALTIME);
	/* loaded_ns may be read from a clock that only advances with each tick. */
	ok(h->loaded_ns <= after_ns && h->loaded_ns + 1000000000ULL > before_ns,
	   "0.3 header: loaded_ns is the time of loading");
	ok(h->tsc_khz == 0 || (h->tsc_khz > 100000 && h->tsc_khz < 20000000),
	   "0.3 header: tsc_khz is 0 or plausible");
	is(h->nr_slots, 1 + PC_BUILTIN,
	   "0.3 header: without drivers nr_slots counts the seqflag and own instances");
	is(h->nr_chunks, 1, "0.4 header: without drivers nr_chunks is 1");

	/* A reload of the module changes boot_id and loaded_ns. */
	first = *h;
	pc_close(&pc);
	load_and_map("");
	ok(memcmp(first.boot_id, pc.geometry.boot_id, 16) &&
	   memcmp(pc.geometry.boot_id, "\0\0\0\0\0\0\0\0", 8),
	   "0.10 perfcounters.ko reloaded: boot_id is another one and not 0");
	ok(pc.geometry.loaded_ns > first.loaded_ns,
	   "0.10 perfcounters.ko reloaded: loaded_ns is later");
	pc_close(&pc);
	return finish();
}
