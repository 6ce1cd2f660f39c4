// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-skylake
 * timeout: 200
 *
 * Tests libperfmon: the return value and errno of each call, and example programs in the style of
 * perfmon2 (tools/libperfmon/examples), whose counts must be exact.
 */
#include "libperfmon_examples.h"
#include <linux/seccomp.h>
#include <perfmon/perfmon.h>
#include <pthread.h>
#include <sys/prctl.h>

static const struct pmu_model *model;
static const char *description;

/*
 * Evaluates to 0 if @call succeeds, and to -errno if @call returns -1. If @call returns a negative
 * number other than -1, which a libperfmon call must not do, err_of() evaluates to -9999.
 */
#define err_of(call) ({							\
	errno = 0;							\
	int got_ = (call);						\
									\
	got_ == -1 ? -errno : got_ < 0 ? -9999 : 0;			\
})

static __u64 instructions(void)
{
	return 0xc0 | 1 << 16 | 1 << 22;
}

static int create_context(void)
{
	pfarg_ctx_t ctx = { 0 };
	int fd = pfm_create_context(&ctx, NULL, NULL, 0);

	bail_if(fd < 0, "pfm_create_context");
	return fd;
}

/*
 * Creates and starts a context that counts the caller's instructions with PMD 0 (data register 0).
 */
static int start_counting(void)
{
	pfarg_pmc_t pmc = { .reg_value = instructions() };
	pfarg_load_t load = { .load_pid = syscall(SYS_gettid) };
	int fd = create_context();

	if (pfm_write_pmcs(fd, &pmc, 1) || pfm_load_context(fd, &load) || pfm_start(fd, NULL))
		bail("a context that counts");
	return fd;
}

static void test_no_device(void)
{
	pfarg_ctx_t ctx = { 0 };

	is(err_of(pfm_create_context(&ctx, NULL, NULL, 0)), -ENOSYS,
	   "1.3 pfm_create_context: without perfmon.ko it is ENOSYS");
	/* Samples take most of the CPU time in an emulator, so remove the limits. */
	insmod("perfcounters", "");
	bail_on_error(insmod("perfmon", "max_sample_rate=0 max_sample_percent=0"), "perfmon.ko");
	is(err_of(pfm_create_context(&ctx, NULL, NULL, 0)), -EBUSY,
	   "1.3 pfm_create_context: without a PMU description it is EBUSY");
	load_module(description);
}

static void test_create(void)
{
	pfarg_ctx_t ctx = { .ctx_flags = 0x10 };
	char format[] = "no-such-format";
	int fd, next;

	is(err_of(pfm_create_context(&ctx, NULL, NULL, 0)), -EINVAL,
	   "1.3 pfm_create_context: unknown flag is EINVAL");
	is(err_of(pfm_create_context(NULL, NULL, NULL, 0)), -EFAULT,
	   "1.3 pfm_create_context: no argument is EFAULT");
	ctx.ctx_flags = 0;
	is(err_of(pfm_create_context(&ctx, format, NULL, 0)), -ENOENT,
	   "1.9 pfm_create_context: no such sampling format is ENOENT");
	fd = pfm_create_context(&ctx, NULL, &ctx, sizeof(ctx));
	ok(fd > 2,
	   "1.3 pfm_create_context: returns a descriptor, and ignores the argument of a format");
	is(fcntl(fd, F_GETFD), 0,
	   "1.3 pfm_create_context: the descriptor is not close-on-exec, as in perfmon2");
	next = dup(0);
	is(next, fd + 1, "1.3 pfm_create_context: failed calls leave no descriptor open");
	close(next);
	close(fd);
	is(in_child({
		exit_if(setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534), 1);
		_exit(err_of(pfm_create_context(&ctx, NULL, NULL, 0)) == -EPERM ? 42 : 1);
	}), 42, "1.3 pfm_create_context: an unprivileged user gets EPERM");
}

static void check_register_calls(int fd, pfarg_pmc_t *pmcs, pfarg_pmd_t *pmds, int nr, int error,
				 const char *what)
{
	is(err_of(pfm_write_pmcs(fd, pmcs, nr)), error, "1.3 pfm_write_pmcs: %s", what);
	is(err_of(pfm_write_pmds(fd, pmds, nr)), error, "1.3 pfm_write_pmds: %s", what);
	is(err_of(pfm_read_pmds(fd, pmds, nr)), error, "1.3 pfm_read_pmds: %s", what);
}

static void check_create_fails(int fd, int error, const char *what)
{
	pfarg_pmc_t pmc = { 0 };
	pfarg_pmd_t pmd = { 0 };
	pfarg_load_t load = { 0 };
	pfarg_start_t start = { 0 };

	check_register_calls(fd, &pmc, &pmd, 1, error, what);
	is(err_of(pfm_load_context(fd, &load)), error, "1.3 pfm_load_context: %s", what);
	is(err_of(pfm_start(fd, &start)), error, "1.3 pfm_start: %s", what);
	is(err_of(pfm_stop(fd)), error, "1.3 pfm_stop: %s", what);
	is(err_of(pfm_restart(fd)), error, "1.3 pfm_restart: %s", what);
	is(err_of(pfm_unload_context(fd)), error, "1.3 pfm_unload_context: %s", what);
}

static void test_registers(void)
{
	static pfarg_pmc_t pmcs[86];
	static pfarg_pmd_t pmds[24];
	int fd = create_context(), i;

	check_register_calls(fd, pmcs, pmds, -1, -EINVAL, "a count of -1 is EINVAL");
	is(err_of(pfm_write_pmcs(fd, pmcs, 0x7fffffff)), -EINVAL,
	   "1.3 pfm_write_pmcs: a count of INT_MAX is EINVAL");
	check_register_calls(fd, pmcs, pmds, 0, 0, "a count of 0 succeeds");
	check_register_calls(fd, (void *)8, (void *)8, 1, -EFAULT, "bad address is EFAULT");
	is(err_of(pfm_write_pmcs(fd, pmcs, 85)), 0,
	   "1.4 pfm_write_pmcs: a list of one page succeeds");
	is(err_of(pfm_write_pmcs(fd, pmcs, 86)), -E2BIG,
	   "1.4 pfm_write_pmcs: a list of more than a page is E2BIG");
	is(err_of(pfm_write_pmds(fd, pmds, 24)), -E2BIG,
	   "1.4 pfm_write_pmds: a list of more than a page is E2BIG");
	is(err_of(pfm_read_pmds(fd, pmds, 24)), -E2BIG,
	   "1.4 pfm_read_pmds: a list of more than a page is E2BIG");
	pmcs[1].reg_num = 15;
	pmds[1].reg_num = 15;
	check_register_calls(fd, pmcs, pmds, 2, -EINVAL, "no such register is EINVAL");
	for (i = 0; i < 4; i++) {
		pmds[i].reg_num = i;
		pmds[i].reg_value = 1000 + i;
	}
	is(err_of(pfm_write_pmds(fd, pmds, 4)), 0, "1.3 pfm_write_pmds: four registers succeed");
	for (i = 0; i < 4; i++)
		pmds[i].reg_value = 0;
	is(err_of(pfm_read_pmds(fd, pmds, 4)), 0, "1.3 pfm_read_pmds: four registers succeed");
	for (i = 0; i < 4 && pmds[i].reg_value == 1000U + i; i++)
		;
	is(i, 4, "1.3 pfm_read_pmds: returns the values that pfm_write_pmds wrote");
	close(fd);
}

static void test_load_states(void)
{
	pfarg_load_t load = { .load_pid = syscall(SYS_gettid) };
	pfarg_load_t no_thread = { .load_pid = 0x7fffffff };
	pfarg_load_t *bad_load = (void *)8;
	pfarg_start_t start = { 0 }, *bad_start = (void *)8;
	int fd = create_context(), other = create_context();

	is(err_of(pfm_start(fd, NULL)), -EINVAL,
	   "1.3 pfm_start: a context that is not loaded is EINVAL");
	is(err_of(pfm_stop(fd)), -EINVAL, "1.3 pfm_stop: a context that is not loaded is EINVAL");
	is(err_of(pfm_load_context(fd, bad_load)), -EFAULT,
	   "1.3 pfm_load_context: bad address is EFAULT");
	is(err_of(pfm_load_context(fd, NULL)), -EFAULT,
	   "1.3 pfm_load_context: no argument is EFAULT");
	is(err_of(pfm_load_context(fd, &no_thread)), -ESRCH,
	   "1.3 pfm_load_context: no such thread is ESRCH");
	is(err_of(pfm_load_context(fd, &load)), 0,
	   "1.3 pfm_load_context: succeeds on the calling thread");
	is(err_of(pfm_load_context(fd, &load)), -EBUSY,
	   "1.3 pfm_load_context: a loaded context is EBUSY");
	is(err_of(pfm_load_context(other, &load)), -EEXIST,
	   "1.3 pfm_load_context: a thread that has a context is EEXIST");
	is(err_of(pfm_start(fd, bad_start)), -EFAULT, "1.3 pfm_start: bad address is EFAULT");
	start.start_set = 1;
	is(err_of(pfm_start(fd, &start)), -EINVAL, "1.3 pfm_start: no such set is EINVAL");
	start.start_set = 0;
	is(err_of(pfm_start(fd, &start)), 0, "1.3 pfm_start: succeeds on a loaded context");
	is(err_of(pfm_start(fd, NULL)), 0,
	   "1.3 pfm_start: succeeds on a started context, with a NULL argument");
	is(err_of(pfm_stop(fd)), 0, "1.3 pfm_stop: succeeds on a started context");
	is(err_of(pfm_unload_context(fd)), 0,
	   "1.3 pfm_unload_context: succeeds on a loaded context");
	is(err_of(pfm_load_context(other, &load)), 0,
	   "1.3 pfm_load_context: succeeds once the thread's other context is unloaded");
	close(other);
	close(fd);
}

static void check_set_calls(int fd, pfarg_setdesc_t *desc, pfarg_setinfo_t *info, int nr, int error,
			    const char *what)
{
	is(err_of(pfm_create_evtsets(fd, desc, nr)), error, "1.3 pfm_create_evtsets: %s", what);
	is(err_of(pfm_delete_evtsets(fd, desc, nr)), error, "1.3 pfm_delete_evtsets: %s", what);
	is(err_of(pfm_getinfo_evtsets(fd, info, nr)), error, "1.3 pfm_getinfo_evtsets: %s", what);
}

static void test_sets(void)
{
	pfarg_setdesc_t desc = { .set_id = 7, .set_flags = PFM_SETFL_TIME_SWITCH,
				 .set_timeout = 1000000 };
	pfarg_setinfo_t info = { .set_id = 7 };
	int fd = create_context();

	is(err_of(pfm_create_evtsets(fd, &desc, 1)), 0,
	   "1.12 pfm_create_evtsets: succeeds with set 7");
	is(err_of(pfm_getinfo_evtsets(fd, &info, 1)), 0,
	   "1.12 pfm_getinfo_evtsets: succeeds with set 7");
	ok(info.set_flags == PFM_SETFL_TIME_SWITCH && !info.set_runs && info.set_avail_pmds[0],
	   "1.12 pfm_getinfo_evtsets: a new set has its flags, 0 runs and available PMDs");
	is(err_of(pfm_delete_evtsets(fd, &desc, 1)), 0,
	   "1.12 pfm_delete_evtsets: succeeds with set 7");
	is(err_of(pfm_delete_evtsets(fd, &desc, 1)), -EINVAL,
	   "1.12 pfm_delete_evtsets: no such set is EINVAL");
	is(err_of(pfm_getinfo_evtsets(fd, &info, 1)), -EINVAL,
	   "1.12 pfm_getinfo_evtsets: no such set is EINVAL");
	check_set_calls(fd, &desc, &info, -1, -EINVAL, "a count of -1 is EINVAL");
	check_set_calls(fd, (void *)8, (void *)8, 1, -EFAULT, "bad address is EFAULT");
	close(fd);
}

static void test_get_status(void)
{
	struct perfmon_status s = { 0 }, *bad = (void *)8;
	pfarg_load_t load = { 0 };
	pfarg_msg_t msg = { 0 };
	int fd = start_counting();
	pid_t child;

	is(err_of(pfm_get_status(-1, &s)), -EBADF, "9.6 pfm_get_status: descriptor -1 is EBADF");
	is(err_of(pfm_get_status(fd, bad)), -EFAULT, "9.6 pfm_get_status: bad address is EFAULT");
	is(err_of(pfm_get_status(fd, &s)), 0, "9.6 pfm_get_status: succeeds on a started context");
	is(s.flags, PERFMON_STATUS_STARTED,
	   "9.6 pfm_get_status: flags are STARTED while it counts");
	pfm_stop(fd);
	pfm_get_status(fd, &s);
	is(s.flags, 0, "9.6 pfm_get_status: flags are 0 after pfm_stop");
	close(fd);
	child = fork_sleeper();
	load.load_pid = child;
	fd = create_context();
	bail_if(pfm_load_context(fd, &load), "a context of a child");
	kill_child(child);
	pfm_get_status(fd, &s);
	is(s.flags, PERFMON_STATUS_ENDED,
	   "9.6 pfm_get_status: flags are ENDED after the thread was killed");
	ok(read(fd, &msg, sizeof(msg)) == sizeof(msg) && msg.type == PFM_MSG_END,
	   "9.6 context of a killed thread: PFM_MSG_END can be read");
	close(fd);
	is(in_child({
		pfarg_ctx_t ctx = { .ctx_flags = PFM_FL_SYSTEM_WIDE };
		int cpu0 = pfm_create_context(&ctx, NULL, NULL, 0);

		pin_to_cpu(0);
		load.load_pid = 0;
		exit_if(pfm_load_context(cpu0, &load), 1);
		pin_to_cpu(1);
		if (err_of(pfm_get_status(cpu0, &s)) || err_of(pfm_start(cpu0, NULL)) != -EBUSY)
			_exit(2);
		_exit(42);
	}), 42,
	   "9.6 pfm_get_status: succeeds for a CPU's context from another CPU, unlike pfm_start");
}

/*
 * Reads a counter, calls spin(@rounds), and reads the counter again. Returns the difference of the
 * two values read from the counter: two instructions for each round, plus a constant overhead.
 * Returns -1 if a read of the counter fails.
 */
static __attribute__((noinline)) __u64 insns_between_reads(int fd, const struct perfmon_self *page,
							   __u64 rounds)
{
	__u64 before = 0, after = 0;

	if (pfm_self_read(fd, page, 0, (uint64_t *)&before))
		return -1;
	spin(rounds);
	if (pfm_self_read(fd, page, 0, (uint64_t *)&after))
		return -1;
	return after - before;
}

static bool reads_are_exact(int fd, const struct perfmon_self *page)
{
	__u64 overhead = insns_between_reads(fd, page, 100) - 200;
	bool exact = overhead <= MAX_OVERHEAD;

	for (__u64 rounds = 1000; exact && rounds <= 10000000; rounds *= 10)
		exact = insns_between_reads(fd, page, rounds) - 2 * rounds == overhead;
	return exact;
}

static void test_self_page(int fd, const struct perfmon_self *page)
{
	pfarg_pmd_t pmd = { 0 };
	uint64_t value, second;

	is(page->version, PERFMON_SELF_VERSION, "1.18 self page: mapped, with the current version");
	is(page->flags & (PERFMON_SELF_COUNTING | PERFMON_SELF_RDPMC),
	   PERFMON_SELF_COUNTING | PERFMON_SELF_RDPMC,
	   "1.18 self page: COUNTING and RDPMC are set");
	ok(reads_are_exact(fd, page), "1.18 pfm_self_read: counts loops exactly");
	/* Any system call but read, write and exit now kills the process. */
	is(in_child({
		int mine = start_counting();
		const struct perfmon_self *own;

		exit_if(pfm_self_map(mine, &own), 1);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
		syscall(SYS_exit, reads_are_exact(mine, own) ? 42 : 2);
	}), 42, "1.18 pfm_self_read: counts loops exactly without a system call");
	is(err_of(pfm_self_read(fd, page, 65536, &value)), -EINVAL,
	   "1.18 pfm_self_read: register 65536 is EINVAL");
	is(err_of(pfm_self_read(fd, page, 15, &value)), -EINVAL,
	   "1.18 pfm_self_read: register 15, which the kernel refuses, is EINVAL");
	pfm_stop(fd);
	pfm_read_pmds(fd, &pmd, 1);
	is(err_of(pfm_self_read(fd, page, 0, &value)), 0,
	   "1.18 pfm_self_read: succeeds on a stopped context");
	is(value, pmd.reg_value,
	   "1.18 pfm_self_read: on a stopped context it returns what pfm_read_pmds does");
	spin(1000);
	pfm_self_read(fd, page, 0, &second);
	is(second, value, "1.18 pfm_self_read: the value of a stopped context does not change");
}

struct foreign_read {
	const struct perfmon_self *page;
	uint64_t value;
	int fd, rc;
};

static void *read_foreign(void *arg)
{
	struct foreign_read *f = arg;

	f->rc = err_of(pfm_self_read(f->fd, f->page, 0, &f->value));
	return NULL;
}

/* The result must be the count of the monitored thread, not of the reader. */
static void test_foreign_read(int fd, const struct perfmon_self *page)
{
	struct foreign_read f = { .fd = fd, .page = page };
	uint64_t before, after;
	pthread_t thread;

	pfm_self_read(fd, page, 0, &before);
	pthread_create(&thread, NULL, read_foreign, &f);
	while (pthread_tryjoin_np(thread, NULL))
		spin(1000);
	pfm_self_read(fd, page, 0, &after);
	is(f.rc, 0, "1.18 pfm_self_read: succeeds on another thread's context");
	ok(f.value > before && f.value < after,
	   "1.18 pfm_self_read: another thread reads a count between two own reads");
}

static void test_selfpage(void)
{
	const struct perfmon_self *self_page;
	pfarg_ctx_t ctx = { .ctx_flags = PFM_FL_SYSTEM_WIDE };
	int fd = start_counting(), cpu = pfm_create_context(&ctx, NULL, NULL, 0), map_rc;
	uint64_t value;

	is(err_of(pfm_self_read(fd, NULL, 0, &value)), 0,
	   "1.18 pfm_self_read: succeeds without a page");
	ok(reads_are_exact(fd, NULL), "1.18 pfm_self_read: counts loops exactly without a page");
	is(err_of(pfm_self_read(-1, NULL, 0, &value)), -EBADF,
	   "1.18 pfm_self_read: no descriptor is EBADF");
	is(err_of(pfm_self_map(-1, &self_page)), -EBADF,
	   "1.18 pfm_self_map: no descriptor is EBADF");
	is(err_of(pfm_self_unmap(NULL)), -EINVAL, "1.18 pfm_self_unmap: no page is EINVAL");
	is(err_of(pfm_self_map(0, &self_page)), -EBADF,
	   "1.18 pfm_self_map: a descriptor of another file is EBADF");
	is(err_of(pfm_self_map(cpu, &self_page)), -EINVAL,
	   "1.18 pfm_self_map: a CPU's context is EINVAL");
	map_rc = err_of(pfm_self_map(fd, &self_page));
	is(map_rc, 0, "1.18 pfm_self_map: succeeds on a thread's context");
	if (!map_rc) {
		test_foreign_read(fd, self_page);
		test_self_page(fd, self_page);
		is(err_of(pfm_self_unmap(self_page)), 0,
		   "1.18 pfm_self_unmap: succeeds on a mapped page");
	}
	close(cpu);
	close(fd);
	is(run_example(EXAMPLES "selfpage 3 1000000 2>&1"), 0,
	   "1.18 example selfpage: exits with status 0");
	value = event_count("lap 3", "instructions");
	ok(value >= 2000000 && value <= 2000000 + MAX_OVERHEAD &&
	   value == (uint64_t)event_count("lap 2", "instructions"),
	   "1.18 example selfpage: laps 2 and 3 have equal counts");
}

struct address_range {
	unsigned long start, end;
};

/* Stores the mappings of /dev/perfmon in the calling process, and returns their number. */
static int find_mappings(struct address_range *ranges, int max)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int nr = 0;

	while (maps && nr < max && fgets(line, sizeof(line), maps))
		if (strstr(line, "/dev/perfmon") &&
		    sscanf(line, "%lx-%lx", &ranges[nr].start, &ranges[nr].end) == 2)
			nr++;
	if (maps)
		fclose(maps);
	return nr;
}

/*
 * fork() does not copy the mappings of a ring. A child that maps memory at the addresses of the
 * ring must keep this memory when it closes the ring.
 */
static void test_ring_after_fork(void)
{
	struct perfmon_ring_arg arg = { .size = 4096 };
	const struct perfmon_record *record;
	struct address_range ranges[4];
	pfarg_ctx_t ctx = { 0 };
	char format[] = "ring";
	struct pfm_ring *ring;
	uint64_t lost;
	int fd, nr;

	load_module("pfm_ring");
	fd = pfm_create_context(&ctx, format, &arg, sizeof(arg));
	bail_if(fd < 0 || pfm_ring_open(fd, &ring), "a context with a ring");
	nr = find_mappings(ranges, 4);
	is(nr, 2, "1.9 pfm_ring_open: maps the ring and its tail");
	is(in_child({
		for (int i = 0; i < nr; i++) {
			unsigned long bytes = ranges[i].end - ranges[i].start;
			void *at = mmap((void *)ranges[i].start, bytes, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

			exit_if(at != (void *)ranges[i].start, 1);
			memset(at, 42, bytes);
		}
		exit_if(err_of(pfm_ring_read(ring, &record)) != -EPERM ||
			err_of(pfm_ring_snapshot(ring)) != -EPERM ||
			err_of(pfm_ring_lost(ring, &lost)) != -EPERM, 2);
		exit_if(err_of(pfm_ring_close(ring)), 3);
		for (int i = 0; i < nr; i++)
			exit_if(*(volatile char *)ranges[i].start != 42 ||
				*(volatile char *)(ranges[i].end - 1) != 42, 4);
		_exit(42);
	}), 42, "1.9 pfm_ring_close in a child: keeps memory at the addresses of the ring");
	is(err_of(pfm_ring_read(ring, &record)), 0,
	   "1.9 pfm_ring_read: succeeds after a child has closed the ring");
	pfm_ring_close(ring);
	close(fd);
	rmmod("pfm_ring");
}

int main(void)
{
	model = guest_model();
	unload_modules();
	description = model->amd ? "pfm_amd" : "pfm_intel";
	plan(2 + 7 + 16 + 20 + 15 + 8 + 12 + 4 + 6 + 5 + 12 + 22 + 3 + 2);
	test_no_device();
	test_create();
	check_create_fails(-1, -EBADF, "descriptor -1 is EBADF");
	check_create_fails(0, -EBADF, "a descriptor of another file is EBADF");
	test_registers();
	test_load_states();
	test_get_status();
	test_sets();
	test_self();
	test_task();
	test_syst();
	test_task_smpl();
	test_selfpage();
	test_ring_after_fork();
	is(rmmod(description), 0, "1.2 PMU description: unloads after all contexts are closed");
	is(rmmod("perfmon"), 0, "1.2 perfmon.ko: unloads after its devices are closed");
	unload_modules();
	return finish();
}
