// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 200
 * worlds: debug
 * guest: pmu-skylake
 *
 * The kernel's fault injection (fail_nth.h) in each call of /dev/perfmon that allocates memory or
 * copies from user space: open, create, write, read, load, mmap, unload, close. After a failure
 * nothing is half done, and perf can use the PMU unless the context was loaded before. The call
 * works when it is tried again.
 */
#include "sampling.h"
#include "fail_nth.h"

#define REGISTERS	4	/* PMCs, and PMDs, of one vector */

static int context = -1;
static struct perfmon_self *self;

static void leave_it(void)
{
	if (self)
		munmap(self, getpagesize());
	if (context >= 0)
		close(context);
	self = NULL;
	context = -1;
}

static bool perf_has_it(void)
{
	int event = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	close(event);
	return note_unless(event >= 0, "perf cannot open an event");
}

/* Returns true if this thread has no context and perf can use the PMU. */
static bool is_free(void)
{
	int other = pfm_create(0), ret = pfm_load(other, this_thread());

	close(other);
	return note_unless(!ret, "the thread still has a context") & perf_has_it();
}

/* Calls with a vector of REGISTERS registers. */

static int write_pmcs(void)
{
	struct pfarg_pmc pmc[REGISTERS] = { 0 };
	struct perfmon_vector v = { (__u64)pmc, REGISTERS, sizeof(*pmc) };

	for (int i = 0; i < REGISTERS; i++) {
		pmc[i].reg_num = i;
		pmc[i].reg_value = pfm_instructions(SKYLAKE);
	}
	return pfm_call(context, PERFMON_WRITE_PMCS, &v);
}

static struct pfarg_pmd pmd[REGISTERS];

static int write_pmds(void)
{
	struct perfmon_vector v = { (__u64)pmd, REGISTERS, sizeof(*pmd) };

	memset(pmd, 0, sizeof(pmd));
	for (int i = 0; i < REGISTERS; i++) {
		pmd[i].reg_num = i;
		pmd[i].reg_value = 1000 + i;
	}
	return pfm_call(context, PERFMON_WRITE_PMDS, &v);
}

static int read_pmds(void)
{
	struct perfmon_vector v = { (__u64)pmd, REGISTERS, sizeof(*pmd) };

	memset(pmd, 0, sizeof(pmd));
	for (int i = 0; i < REGISTERS; i++)
		pmd[i].reg_num = i;
	return pfm_call(context, PERFMON_READ_PMDS, &v);
}

static bool all_are(__u64 first, __u64 step)
{
	bool good = !read_pmds();

	for (int i = 0; i < REGISTERS; i++)
		good &= pmd[i].reg_value == first + i * step;
	return note_unless(good, "PMDs have wrong values");
}

static bool are_written(void)
{
	return all_are(1000, 1);
}

static bool are_zero(void)
{
	return all_are(0, 0);
}

static bool were_read(void)
{
	bool good = true;

	for (int i = 0; i < REGISTERS; i++)
		good &= pmd[i].reg_value == 1000ULL + i;
	return note_unless(good, "PERFMON_READ_PMDS returned wrong values");
}

/* Contexts */

static int open_and_create(void)
{
	struct pfarg_ctx ctx = { 0 };
	int ret;

	context = open("/dev/perfmon", O_RDWR | O_CLOEXEC);
	if (context < 0)
		return -errno;
	ret = pfm_call(context, PERFMON_CREATE, &ctx);
	if (ret)
		leave_it();
	return ret;
}

/* The header page of the context's ring, if it is mapped. */
static void *ring_page;

static void leave_ring(void)
{
	if (ring_page)
		munmap(ring_page, 4096);
	ring_page = NULL;
	leave_it();
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
		leave_it();
	return ret;
}

static bool samples(void)
{
	struct perfmon_ring_page *page = ring_page;

	return note_unless(!write_pmcs() && !pfm_period(context, 0, 1000, 0) &&
			   !pfm_load(context, this_thread()), "the context cannot be loaded") &&
	       note_unless(pfm_spin(context, 0, 10000) && page->head, "the ring has no sample");
}

/* Creates event sets 3 and 9. */
static int create_sets(void)
{
	struct pfarg_setdesc sets[2] = { { .set_id = 3 }, { .set_id = 9 } };
	struct perfmon_vector v = { (__u64)sets, 2, sizeof(sets[0]) };

	return pfm_call(context, PERFMON_CREATE_EVTSETS, &v);
}

static bool has_sets(bool there)
{
	struct pfarg_setinfo infos[2] = { { .set_id = 3 }, { .set_id = 9 } };
	struct perfmon_vector first = { (__u64)&infos[0], 1, sizeof(infos[0]) };
	struct perfmon_vector second = { (__u64)&infos[1], 1, sizeof(infos[0]) };

	return note_unless(!pfm_call(context, PERFMON_GETINFO_EVTSETS, &first) == there &&
			   !pfm_call(context, PERFMON_GETINFO_EVTSETS, &second) == there,
			   there ? "an event set is missing" : "an event set exists");
}

static bool no_sets(void)
{
	return has_sets(false);
}

static bool two_sets(void)
{
	return has_sets(true);
}

static void created(void)
{
	leave_it();
	context = pfm_create(0);
}

static void created_for_cpu(void)
{
	leave_it();
	context = pfm_create(PFM_FL_SYSTEM_WIDE);
	if (write_pmcs())
		bail("write of PMCs");
}

static void written(void)
{
	created();
	if (write_pmcs() || write_pmds())
		bail("write of registers");
}

/* Creates and attaches a context that uses no hardware register yet. */
static void attached(void)
{
	created();
	if (pfm_load(context, this_thread()))
		bail("load");
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
	/* pfm_spin() starts it. The context may have been started before. */
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

static void loaded(void)
{
	written();
	if (load_self())
		bail("load");
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

static bool has_gone(void)
{
	leave_it();
	return is_free();
}

/* The self page */

static int map_self(void)
{
	self = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, context, PERFMON_SELF_OFFSET);
	if (self == MAP_FAILED) {
		self = NULL;
		return -errno;
	}
	/* The page is mapped by the fault of this access. */
	return *(volatile __u32 *)&self->version == PERFMON_SELF_VERSION ? 0 : -EIO;
}

static bool is_mapped(void)
{
	return note_unless(self->size == sizeof(*self) && self->nr >= REGISTERS,
			   "the self page has the wrong size or too few counters") & counts_self();
}

static const struct operation calls[] = {
	{ "open and create", leave_it, open_and_create, is_free, counts_once_loaded, leave_it, 1,
	  false, 0 },
	{ "create with a ring and map it", leave_ring, create_ring, is_free, samples,
	  leave_ring, 1, false, 8 },
	{ "create event sets", created, create_sets, no_sets, two_sets, leave_it, 1, false, 0 },
	{ "write PMCs", created, write_pmcs, return_true, counts_once_loaded, leave_it, 1, false,
	  0 },
	{ "write PMDs", created, write_pmds, are_zero, are_written, leave_it, 1, false, 0 },
	{ "read PMDs", written, read_pmds, are_written, were_read, leave_it, 1, false, 0 },
	{ "load on a thread", written, load_self, is_free, counts_self, leave_it, 1, false, 0 },
	{ "load on a CPU", created_for_cpu, load_cpu, is_free, counts_cpu, leave_it, 1, false, 0 },
	{ "write PMCs of an attached context", attached, write_pmcs, perf_has_it, counts_self,
	  leave_it, 1, false, 0 },
	{ "map the self page", loaded, map_self, counts_self, is_mapped, leave_it, 1, false, 0 },
	{ "unload", loaded, unload_context, return_true, has_gone, leave_it, 0, true, 0 },
	{ "close", loaded, close_context, return_true, has_gone, leave_it, 0, true, 0 },
};

#define CALLS	((int)(sizeof(calls) / sizeof(*calls)))

int main(void)
{
	plan(CALLS + 3);
	unload_modules();
	pin_to_cpu(0);
	pfm_load_modules(SKYLAKE);
	insmod("pfm_ring", "");
	/* The first context allocates memory that later ones share. That is not under test here. */
	close(pfm_create(0));
	set_up();
	for (int i = 0; i < CALLS; i++)
		inject("1.4", &calls[i], "");
	note("%lu requests failed, one at a time", all_failed);
	ok(perf_has_it(), "1.4 fail-nth: perf opens an event after all injected failures");
	close(nth_fd);
	rmmod("pfm_ring");
	is(rmmod("pfm_intel"), 0,
	   "1.4 fail-nth: rmmod of the PMU description succeeds after all injected failures");
	unload_modules();
	ok(!is_loaded("perfcounters"),
	   "1.4 fail-nth: perfcounters.ko unloads after all injected failures");
	return finish();
}
