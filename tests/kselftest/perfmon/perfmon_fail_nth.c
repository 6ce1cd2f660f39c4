// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 200
 * worlds: debug
 * guest: pmu-skylake
 *
 * Uses the kernel's fault injection (fail_nth.h) on each call of /dev/perfmon that allocates memory
 * or copies from user space: open, create, write, read, load, mmap, unload, close. A failed call
 * leaves no partial state behind. If a call fails and no context was loaded before the call, perf
 * can use the PMU after the call. The failed call works when it is repeated.
 */
#include "sampling.h"
#include "fail_nth.h"

#define REGISTERS	4	/* number of PMCs, and of PMDs, in one vector */

static int context = -1;
static struct perfmon_self *self;

static void close_all(void)
{
	if (self)
		munmap(self, getpagesize());
	if (context >= 0)
		close(context);
	self = NULL;
	context = -1;
}

static bool perf_can_count(void)
{
	int event = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	close(event);
	return note_unless(event >= 0, "perf cannot open an event");
}

static bool pmu_is_free(void)
{
	int other = pfm_create(0), ret = pfm_load(other, this_thread());

	close(other);
	return note_unless(!ret, "the thread still has a context") & perf_can_count();
}

static int write_pmcs(void)
{
	struct pfarg_pmc pmc[REGISTERS] = { 0 };

	for (int i = 0; i < REGISTERS; i++) {
		pmc[i].reg_num = i;
		pmc[i].reg_value = pfm_instructions(SKYLAKE);
	}
	return pfm_vector(context, PERFMON_WRITE_PMCS, pmc, REGISTERS, sizeof(*pmc));
}

static struct pfarg_pmd pmd[REGISTERS];

static int write_pmds(void)
{
	memset(pmd, 0, sizeof(pmd));
	for (int i = 0; i < REGISTERS; i++) {
		pmd[i].reg_num = i;
		pmd[i].reg_value = 1000 + i;
	}
	return pfm_vector(context, PERFMON_WRITE_PMDS, pmd, REGISTERS, sizeof(*pmd));
}

static int read_pmds(void)
{
	memset(pmd, 0, sizeof(pmd));
	for (int i = 0; i < REGISTERS; i++)
		pmd[i].reg_num = i;
	return pfm_vector(context, PERFMON_READ_PMDS, pmd, REGISTERS, sizeof(*pmd));
}

static bool pmds_are(__u64 first, __u64 step)
{
	bool good = !read_pmds();

	for (int i = 0; i < REGISTERS; i++)
		good &= pmd[i].reg_value == first + i * step;
	return note_unless(good, "PMDs have wrong values");
}

static bool pmds_are_written(void)
{
	return pmds_are(1000, 1);
}

static bool pmds_are_zero(void)
{
	return pmds_are(0, 0);
}

static bool pmds_were_read(void)
{
	bool good = true;

	for (int i = 0; i < REGISTERS; i++)
		good &= pmd[i].reg_value == 1000ULL + i;
	return note_unless(good, "PERFMON_READ_PMDS returned wrong values");
}

static int open_and_create(void)
{
	struct pfarg_ctx ctx = { 0 };
	int ret;

	context = open("/dev/perfmon", O_RDWR | O_CLOEXEC);
	if (context < 0)
		return -errno;
	ret = pfm_call(context, PERFMON_CREATE, &ctx);
	if (ret)
		close_all();
	return ret;
}

/* The header page of the context's ring, or NULL if the ring is not mapped. */
static void *ring_page;

static void unmap_ring(void)
{
	if (ring_page)
		munmap(ring_page, 4096);
	ring_page = NULL;
	close_all();
}

static int create_ring(void)
{
	struct perfmon_ring_arg arg = { .size = 4096 };
	struct perfmon_create create = {
		.name = (__u64)"ring", .arg = (__u64)&arg, .arg_size = sizeof(arg),
	};
	int ret = 0;

	context = open("/dev/perfmon", O_RDWR | O_CLOEXEC);
	if (context < 0)
		return -errno;
	if (ioctl(context, PERFMON_CREATE_FORMAT, &create))
		ret = -errno;
	if (!ret) {
		ring_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, context, 0);
		if (ring_page == MAP_FAILED) {
			ring_page = NULL;
			ret = -errno;
		}
	}
	if (ret)
		close_all();
	return ret;
}

static bool ring_gets_samples(void)
{
	struct perfmon_ring_page *page = ring_page;

	return note_unless(!write_pmcs() && !pfm_period(context, 0, 1000, 0) &&
			   !pfm_load(context, this_thread()), "the context cannot be loaded") &&
	       note_unless(pfm_spin(context, 0, 10000) && page->head, "the ring has no sample");
}

static int create_sets(void)
{
	struct pfarg_setdesc sets[2] = { { .set_id = 3 }, { .set_id = 9 } };

	return pfm_vector(context, PERFMON_CREATE_EVTSETS, sets, 2, sizeof(sets[0]));
}

static bool sets_exist(bool expected)
{
	struct pfarg_setinfo infos[2] = { { .set_id = 3 }, { .set_id = 9 } };
	struct perfmon_vector first = { (__u64)&infos[0], 1, sizeof(infos[0]) };
	struct perfmon_vector second = { (__u64)&infos[1], 1, sizeof(infos[0]) };

	return note_unless(!pfm_call(context, PERFMON_GETINFO_EVTSETS, &first) == expected &&
			   !pfm_call(context, PERFMON_GETINFO_EVTSETS, &second) == expected,
			   expected ? "an event set is missing" : "an event set exists");
}

static bool has_no_sets(void)
{
	return sets_exist(false);
}

static bool has_two_sets(void)
{
	return sets_exist(true);
}

static void prepare_created(void)
{
	close_all();
	context = pfm_create(0);
}

static void prepare_created_for_cpu(void)
{
	close_all();
	context = pfm_create(PFM_FL_SYSTEM_WIDE);
	bail_if(write_pmcs(), "write of PMCs");
}

static void prepare_written(void)
{
	prepare_created();
	bail_if(write_pmcs() || write_pmds(), "write of registers");
}

static void prepare_attached(void)
{
	prepare_created();
	bail_if(pfm_load(context, this_thread()), "load");
}

static int load_self(void)
{
	return pfm_load(context, this_thread());
}

static int load_cpu(void)
{
	return pfm_load(context, 0);
}

/* Returns true if the attached context counts exactly and perf cannot open an event. */
static bool counts_self(void)
{
	__u64 more, less;
	int event = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	close(event);
	/*
	 * pfm_spin() starts the context itself, so a context that has been started is stopped
	 * first.
	 */
	pfm_stop(context);
	more = pfm_spin(context, 0, 2000);
	less = pfm_spin(context, 0, 1000);
	return note_unless(more - less == 2000, "the thread is not counted exactly") &
	       note_unless(event < 0, "perf opens an event while the context uses the PMU");
}

static bool counts_cpu(void)
{
	return note_unless(pfm_spin(context, 0, 2000) >= 4000, "the CPU is not counted");
}

static bool counts_once_loaded(void)
{
	return !write_pmcs() && !load_self() && counts_self();
}

static void prepare_loaded(void)
{
	prepare_written();
	bail_if(load_self(), "load");
	pfm_start(context);
}

static int close_context(void)
{
	int fd = context;

	context = -1;
	return close(fd) ? -errno : 0;
}

static int unload_context(void)
{
	return pfm_unload(context);
}

static bool context_is_gone(void)
{
	close_all();
	return pmu_is_free();
}

static int map_self(void)
{
	self = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, context, PERFMON_SELF_OFFSET);
	if (self == MAP_FAILED) {
		self = NULL;
		return -errno;
	}
	/* The access to `version` raises a page fault, which maps the self page. */
	return *(volatile __u32 *)&self->version == PERFMON_SELF_VERSION ? 0 : -EIO;
}

static bool is_mapped(void)
{
	return note_unless(self->size == sizeof(*self) && self->nr >= REGISTERS,
			   "the self page has the wrong size or too few counters") & counts_self();
}

static const struct operation calls[] = {
	{ "open and create", close_all, open_and_create, pmu_is_free, counts_once_loaded, close_all,
	  1, false, 0 },
	{ "create with a ring and map it", unmap_ring, create_ring, pmu_is_free, ring_gets_samples,
	  unmap_ring, 1, false, 8 },
	{ "create event sets", prepare_created, create_sets, has_no_sets, has_two_sets, close_all,
	  1, false, 0 },
	{ "write PMCs", prepare_created, write_pmcs, return_true, counts_once_loaded, close_all, 1,
	  false, 0 },
	{ "write PMDs", prepare_created, write_pmds, pmds_are_zero, pmds_are_written, close_all, 1,
	  false, 0 },
	{ "read PMDs", prepare_written, read_pmds, pmds_are_written, pmds_were_read, close_all, 1,
	  false, 0 },
	{ "load on a thread", prepare_written, load_self, pmu_is_free, counts_self, close_all, 1,
	  false, 0 },
	{ "load on a CPU", prepare_created_for_cpu, load_cpu, pmu_is_free, counts_cpu, close_all, 1,
	  false, 0 },
	{ "write PMCs of an attached context", prepare_attached, write_pmcs, perf_can_count,
	  counts_self, close_all, 1, false, 0 },
	{ "map the self page", prepare_loaded, map_self, counts_self, is_mapped, close_all, 1,
	  false, 0 },
	{ "unload", prepare_loaded, unload_context, return_true, context_is_gone, close_all, 0,
	  true, 0 },
	{ "close", prepare_loaded, close_context, return_true, context_is_gone, close_all, 0, true,
	  0 },
};

#define CALLS	((int)(sizeof(calls) / sizeof(*calls)))

int main(void)
{
	plan(CALLS + 3);
	unload_modules();
	pin_to_cpu(0);
	pfm_load_modules(SKYLAKE);
	insmod("pfm_ring", "");
	/*
	 * The first context allocates memory that later contexts share. The test creates one
	 * context before the injection of failures, because the allocation of memory that contexts
	 * share is not under test.
	 */
	close(pfm_create(0));
	setup_injection();
	for (int i = 0; i < CALLS; i++)
		test_failures("1.4", &calls[i], "");
	note("%lu requests failed, one at a time", total_failed);
	ok(perf_can_count(), "1.4 fail-nth: perf opens an event after all injected failures");
	close(nth_fd);
	rmmod("pfm_ring");
	is(rmmod("pfm_intel"), 0,
	   "1.4 fail-nth: rmmod of the PMU description succeeds after all injected failures");
	unload_modules();
	ok(!is_loaded("perfmon") && !is_loaded("perfcounters"),
	   "1.4 fail-nth: perfmon.ko and perfcounters.ko unload after all injected failures");
	return finish();
}
