// SPDX-License-Identifier: GPL-2.0
/*
 * Tests a mapping that is larger than the file /dev/perfcounters. If a chunk is appended to the
 * file, it becomes readable in the mapping. An access beyond the last chunk raises SIGBUS. When the
 * file grows, existing values keep their position and do not change.
 */
#include "kselftest_pc.h"

static int touch(const volatile void *p)
{
	return in_child((void)*(const volatile char *)p);
}

int main(void)
{
	const struct perfcounters_header *h = &pc.geometry;
	__u32 first, last = 0, chunks, slots;
	const volatile __s64 *old_slot;
	bool new_chunks_readable = true, zero = true;
	const char *map;
	__u64 end;
	struct pc small;

	plan(15);
	load_and_map("");
	slots = h->pages_per_chunk * h->page_size / 8;
	first = driver_cmd("add growth/first");
	pin_to_cpu(1);
	driver_cmd("adjust %u 42", first);

	/* Maps chunk 0 only, like a reader that mapped the file before the file grew. */
	small = pc;
	small.base = mmap(NULL, h->page_size * (1 + h->nr_cpus), PROT_READ, MAP_SHARED, pc.fd, 0);
	old_slot = pc_slot(&small, 1, first);

	end = perfcounters_offset(h, 0, slots);
	is(touch(pc.base + end - 8), 0, "0.4 the last page of the last chunk is readable");
	is(touch(pc.base + end), -SIGBUS, "0.4 the page after the last chunk raises SIGBUS");
	is(touch(pc_slot(&pc, h->nr_cpus - 1, h->max_instances - 1)), -SIGBUS,
	   "0.4 no growth yet: an access to the last possible slot raises SIGBUS");
	is(touch(&pc.desc[0]), 0, "0.2 the first page of descriptors is readable");
	is(touch(&pc.desc[h->max_instances - 1]), -SIGBUS,
	   "0.2 a descriptor that does not exist yet raises SIGBUS");
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pc.fd, h->desc_offset / 2);
	is(touch(map), -SIGBUS,
	   "0.4 an access to the gap between the chunks and the descriptors raises SIGBUS");
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pc.fd,
		   h->desc_offset + (__u64)h->max_instances * h->desc_size);
	is(touch(map), -SIGBUS, "0.2 an access after the last descriptor raises SIGBUS");

	chunks = pc.h->nr_chunks;
	for (int i = 0; pc.h->nr_chunks < chunks + 3; i++) {
		last = driver_cmd("add growth/%d", i);
		if (last % 100 == 0)
			driver_cmd("adjust %u %u", last, last);
	}
	is(pc.h->nr_slots, last + 1, "0.4 nr_slots is the number of the last instance plus 1");
	is(touch(pc.base + end), 0,
	   "0.14 after growth: a page that raised SIGBUS before is readable in the old mapping");
	for (__u32 n = 100; n < last; n += 100)
		new_chunks_readable = new_chunks_readable && pc_value(&pc, 1, n) == n &&
			pc_value(&pc, 0, n) == 0;
	ok(new_chunks_readable,
	   "0.14 after growth: a mapping larger than the old file shows the values of new chunks");
	for (__u32 n = PC_BUILTIN + 1; n < last; n++)
		zero = zero && (n % 100 == 0 || n == first || pc_total(&pc, n) == 0);
	ok(zero, "0.10 after growth: new instances are 0 on each CPU");
	is(*old_slot, 42, "0.4 after growth: a mapping of chunk 0 still shows its value");
	driver_cmd("adjust %u 1", first);
	is(*old_slot, 43, "0.4 after growth: a mapping of chunk 0 shows an update");
	is(touch(pc.base + perfcounters_offset(h, 0, pc.h->nr_chunks * slots)), -SIGBUS,
	   "0.4 after growth: the page after the new last chunk raises SIGBUS");
	ok(pc.desc[last].instance == last && pc.desc[last].state == PERFCOUNTERS_LIVE,
	   "0.2 after growth: new descriptors are readable in the old mapping");
	return finish();
}
