/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Roles of stress_all.c that write: they update counters, and change instances, drivers and CPUs.
 */
#ifndef STRESS_ALL_WRITERS_H
#define STRESS_ALL_WRITERS_H

#include "stress_all.h"

/* In "nested", a hard interrupt interrupts a group of updates. */
static const char *const contexts[] = {
	"task", "lock", "irqoff", "softirq", "hardirq", "nested", "nmi",
};

static const char *random_context(void)
{
	return contexts[random_below(sizeof(contexts) / sizeof(*contexts))];
}

/* Both instances of a random pair are updated in one group, from a random context. */
static void worker(int id)
{
	while (!shared->stop) {
		__u32 i = random_below(read_nr_pairs()), rounds = 1 + random_below(50);
		int delta = (int)random_below(2001) - 1000;

		/* If the NMI is not delivered in time, no counter is updated. */
		if (!driver_cmd("@%s group %u %u 1 %u", random_context(), shared->pair[i],
				shared->pair[i] + 1, rounds))
			shared->pair_count[id][i] += rounds;
		/* Readers then copy a pair of which only one counter is updated. */
		if (!random_below(16) &&
		    !driver_cmd("hold %u %u 1 1", shared->pair[i], shared->pair[i] + 1))
			shared->pair_count[id][i]++;
		if (!driver_cmd("@%s adjust %u %d", random_context(), shared->by_all, delta))
			shared->sum_of_all[id] += delta;
		driver_cmd("@%s adjust %u 1", random_context(), shared->dormant);
		count_event(STALE_UPDATES);
		count_event(UPDATES);
	}
}

/* The two adders use the same names. An adder owns a name from its add to its delete. */
static void adder(int id)
{
	while (!shared->stop) {
		__u32 k = random_below(NR_POOL_NAMES), rounds = random_below(20);
		long long n = driver_cmd(k % 3 ? "add torture/pool/%u" :
					 "desc 32 4 1 0 16 0 -1 torture/pool/%u", k), delta;
		__s64 want = 0;

		if (n == -EEXIST) {
			count_event(REFUSED);
			continue;
		}
		expect(n > 0 && (!shared->number[k] || shared->number[k] == n), WRONG_NUMBER,
		       "name %u: %lld, was %u", k, n, shared->number[k]);
		if (n <= 0)
			continue;
		shared->number[k] = n;
		count_event(ADDS);
		expect(pc_total(&pc, n) == 0 && pc.desc[n].state == PERFCOUNTERS_LIVE,
		       WRONG_FIRST_VALUE,
		       "instance %lld begins with %lld", n, (long long)pc_total(&pc, n));
		while (rounds--) {
			delta = 1 + random_below(100);
			if (!driver_cmd("@%s adjust %lld %lld", random_context(), n, delta))
				want += delta;
			if (!driver_cmd("@%s adjust %u 3", random_context(), shared->by_all))
				shared->sum_of_all[NR_WORKERS + id] += 3;
		}
		expect(pc_total(&pc, n) == want, WRONG_OWNER, "instance %lld: %lld, not %lld", n,
		       (long long)pc_total(&pc, n), (long long)want);
		driver_cmd("del %lld", n);
		count_event(DELS);
	}
}

/* Adds instances until a chunk is appended, and then adds a pair in this chunk. */
static void add_chunk_and_pair(void)
{
	__u32 chunks = pc.h->nr_chunks, per_chunk = pc.geometry.pages_per_chunk * 512, a, b;
	static __u32 filled;

	while (pc.h->nr_chunks == chunks) {
		__u32 room = per_chunk - pc.h->nr_slots % per_chunk;

		if (room >= 64)
			driver_cmd("desc 32 4 1 0 64 0 -1 torture/fill/%u", filled++);
		else
			driver_cmd("add torture/fill/%u", filled++);
	}
	/*
	 * The instance numbers of a pair must be consecutive. If another process of the test adds
	 * an instance after the instance `a` and before the instance `b`, the loop adds a new pair
	 * of instances.
	 */
	do {
		a = driver_cmd("add torture/pair/%u/a", filled);
		b = driver_cmd("add torture/pair/%u/b", filled++);
	} while (b != a + 1);
	shared->pair[shared->nr_pairs] = a;
	__atomic_store_n(&shared->nr_pairs, shared->nr_pairs + 1, __ATOMIC_RELEASE);
}

static __u32 max_chunks(void)
{
	return scale_down(gate_or_long(10, MAX_CHUNKS));
}

static void grower(void)
{
	while (!shared->stop) {
		if (pc.h->nr_chunks < max_chunks()) {
			add_chunk_and_pair();
			count_event(CHUNKS);
		}
		sleep_ms(shared->is_slow ? 10 : 500);
	}
}

/* CPU 0 is always online. No other process updates `on_cpu0`. */
static void cpu0_counter(void)
{
	pin_to_cpu(0);
	while (!shared->stop) {
		driver_cmd("loop %u 1 17 1", shared->on_cpu0);
		shared->sum_cpu0 += 17;
		sleep_ms(5);
	}
}

static bool set_cpu1_online(bool on)
{
	bool done = set_cpu_online(1, on);
	const volatile __u64 *bitmap = (const void *)(pc.base + pc.geometry.online_offset);

	return done && !!(*bitmap & 2) == on;
}

static void cpu1_hotplugger(void)
{
	while (!shared->stop) {
		pin_to_cpu(1);
		driver_cmd("loop %u 1 11 1", shared->on_cpu1);
		shared->sum_cpu1 += 11;
		pin_to_cpu(0);
		expect(set_cpu1_online(false), WRONG_HOTPLUG, "CPU 1 offline: errno %d", errno);
		expect(pc_value(&pc, 1, shared->on_cpu1) == shared->sum_cpu1, WRONG_HOTPLUG,
		       "CPU 1 offline: its value is not what was counted");
		expect(!(pc_seq(&pc, 1) & PERFCOUNTERS_SEQ_BUSY), WRONG_HOTPLUG,
		       "CPU 1 offline: an update in flight");
		sleep_ms(random_below(50));
		expect(set_cpu1_online(true), WRONG_HOTPLUG, "CPU 1 online: errno %d", errno);
		count_event(CPU_CYCLES);
		sleep_ms(random_below(150));
	}
}

/* Checks what a sample driver counted since it was loaded: all four counters must agree. */
static void check_sample(const char *driver)
{
	static const char *const words[] = { "ticks", "requests", "bytes", "latency" };
	__s64 value[4] = { 0 };

	for (int i = 0; i < 4; i++)
		for (__u32 n = 1; n < pc.h->nr_slots; n++) {
			if (!pc_name_is(&pc, n, format_text("%s/%s", driver, words[i])))
				continue;
			for (int k = 0; k < pc.desc[n].nr_slots; k++)
				value[i] += pc_total(&pc, n + k);
			break;
		}
	expect(value[0] == value[1] && value[2] == 4096 * value[0] && value[3] == value[0],
	       WRONG_DRIVER, "%s: %lld ticks, %lld requests, %lld bytes, %lld in the histogram",
	       driver, (long long)value[0], (long long)value[1], (long long)value[2],
	       (long long)value[3]);
}

static void load_drivers(const char *const drivers[], int nr)
{
	while (!shared->stop) {
		int index = random_below(nr), err;
		const char *driver = drivers[index];
		int fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC);

		err = insmod(driver, "");
		expect(!err, WRONG_DRIVER, "insmod %s: %d", driver, err);
		sleep_ms(random_below(200));
		err = err ? err : rmmod(driver);
		expect(!err, WRONG_DRIVER, "rmmod %s: %d", driver, err);
		if (!strncmp(driver, "sample", 6))
			check_sample(driver);
		close(fd);
		count_event(LOADS);
	}
}

static void sample_loader(void)
{
	static const char *const samples[] = { "sample_c", "sample_rust" };

	load_drivers(samples, 2);
}

static void provider_loader(void)
{
	static const char *const providers[] = {
		"pfc_sched", "pfc_syscalls", "pfc_irq", "pfc_block", "pfc_net", "pfc_mm",
	};

	load_drivers(providers, 6);
}

static void unloader(void)
{
	while (!shared->stop) {
		int err = rmmod("perfcounters");

		expect(err == -EWOULDBLOCK, WRONG_RMMOD, "rmmod perfcounters in use: %d", err);
		count_event(RMMODS);
		sleep_ms(20);
	}
}

/* Dangerous mapping calls must be refused; the others must be harmless. */
static void mmap_caller(void)
{
	static const int advices[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED,
		MADV_FREE, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, MADV_MERGEABLE, MADV_HUGEPAGE,
		MADV_DODUMP, MADV_WIPEONFORK, MADV_COLD, MADV_PAGEOUT, 22, 23, 24, 25,
	};
	const size_t page = 4096;

	while (!shared->stop) {
		size_t len = (1 + random_below(64)) * page, offset = random_below(200) * page;
		char *p = mmap(NULL, len, PROT_READ, random_below(2) ? MAP_SHARED : MAP_PRIVATE,
			       pc.fd, offset), *q;
		int err = 0;

		expect(p != MAP_FAILED, WRONG_MMAP, "mmap: errno %d", errno);
		if (p == MAP_FAILED)
			continue;
		switch (random_below(8)) {
		case 0:
			err = mprotect(p, len, PROT_READ | PROT_WRITE) ? errno : 0;
			expect(err == EACCES, WRONG_MMAP, "mprotect(WRITE): %d", err);
			break;
		case 1:
			err = mprotect(p, len, PROT_READ | PROT_EXEC) ? errno : 0;
			expect(err == EACCES, WRONG_MMAP, "mprotect(EXEC): %d", err);
			break;
		case 2:
			q = mremap(p, len, len + page, MREMAP_MAYMOVE);
			err = q == MAP_FAILED ? errno : 0;
			expect(err == EFAULT, WRONG_MMAP, "mremap to more: %d", err);
			break;
		case 3:
			q = mremap(p, len, len - page ? len - page : len, MREMAP_MAYMOVE);
			expect(q != MAP_FAILED, WRONG_MMAP, "mremap to less: %d", errno);
			p = q == MAP_FAILED ? p : q;
			break;
		case 4:
			/* A madvise() that succeeds must have no effect. */
			err = madvise(p, len, advices[random_below(sizeof(advices) / 4)]) ?
			      errno : 0;
			break;
		case 5:
			munmap(p + random_below(len / page) * page, page);
			break;
		case 6:
			err = mlock(p, len) ? errno : 0;
			munlock(p, len);
			break;
		case 7:
			mprotect(p, page, PROT_NONE);
			err = mprotect(p, page, PROT_READ) ? errno : 0;
			expect(!err, WRONG_MMAP, "mprotect(READ): %d", err);
			break;
		}
		count_event(err ? MMAP_CALLS_REFUSED : MMAP_CALLS);
		munmap(p, len);
	}
}

#endif
