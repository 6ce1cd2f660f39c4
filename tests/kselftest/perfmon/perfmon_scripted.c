// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Tests PMU descriptions, which modules register with perfmon.ko:
 *  - which descriptions are refused, and what the log says;
 *  - how contexts count with counters that wrap, jump, go backwards or return random values;
 *  - how long a description stays registered.
 *
 * The module tests/modules/scripted_pmu.c registers the PMU description that is tested. The
 * parameters of the module select the behaviour of the description.
 */
#include "scripted_counters.h"
#define main ticks
#include "../pfc/readme/ticks.c"
#undef main

static const struct mistake {
	const char *edit, *why;
} mistakes[] = {
	{ "null", "has an unexpected struct size" },
	{ "pmu size 80", "has an unexpected struct size" },
	{ "pmu name", "\"\": its name is empty" },
	{ "pmu name ", "\"\": its name is empty" },
	{ "pmu name a/b", "\"a/b\": its name may have only letters" },
	{ "pmu name a b", "\"a b\": its name may have only letters" },
	{ "pmu reserved 1", "\"scripted\": reserved must be zero" },
	{ "pmu pmcs", "\"scripted\": pmcs or pmds is NULL, but" },
	{ "pmu pmds", "\"scripted\": pmcs or pmds is NULL, but" },
	{ "pmu first 1", "first must be 0, or 256 or more" },
	{ "pmu first 255", "first must be 0, or 256 or more" },
	{ "pmu first 320", "more rows than register numbers" },
	{ "pmu first 307", "more rows than register numbers" },
	{ "pmu nr_pmcs 37", "more rows than register numbers" },
	{ "pmu nr_pmds 37", "more rows than register numbers" },
	{ "pmu first 0;pmu nr_pmcs 65", "more rows than register numbers" },
	{ "pmu first 0;pmu nr_pmcs 33;pmc * type 1", "more than 32 counters or control registers" },
	{ "pmu first 0;pmu nr_pmds 33;pmd * type 2", "more than 32 counters or control registers" },
	{ "pmu first 0", "PMD0 \"WIDE\": a virtual register needs a number of 256 or more" },
	{ "pmd 2 type 2", "PMD286 \"TWELVE\": registers from 256 on must be virtual" },
	{ "pmc 0 name", "PMC284 \"\": name must be one word" },
	{ "pmd 1 name ", "PMD285 \"\": name must be one word" },
	{ "pmd 1 name BY TE", "PMD285 \"BY TE\": name must be one word" },
	{ "pmc 0 type 3", "PMC284 \"SCALE\": invalid type of a PMC" },
	{ "pmc 0 type 9", "PMC284 \"SCALE\": invalid type of a PMC" },
	{ "pmc 1 type 0x101", "PMC285 \"SYSTEMS\": invalid type of a PMC" },
	{ "pmc 1 type 0x10", "PMC285 \"SYSTEMS\": a PMC needs PERFMON_REG_CONTROL" },
	{ "pmc 2 type 0x31", "PMC286 \"THREADS\": PERFMON_REG_SYSTEM and PERFMON_REG_THREAD" },
	{ "pmc 0 reserved 0x10000", "PMC284 \"SCALE\": reserved overlaps enable or kernel" },
	{ "pmc 0 reserved 0x40000", "PMC284 \"SCALE\": reserved overlaps enable or kernel" },
	{ "pmc 0 reset 0x10000", "PMC284 \"SCALE\": reset has bits of enable" },
	{ "pmd 1 type 0x0b", "PMD285 \"BYTE\": invalid type of a PMD" },
	{ "pmd 1 type 0x20a", "PMD285 \"BYTE\": invalid type of a PMD" },
	{ "pmu first 0;pmd 0 type 4", "PMD0 \"WIDE\": a PMD needs PERFMON_REG_COUNTER or" },
	{ "pmd 11 type 8", "PMD295 \"WHOSE\": a virtual register without PERFMON_REG_COUNTER" },
	{ "pmd 11 type 0x10c", "PMD295 \"WHOSE\": PERFMON_REG_CLOCK needs PERFMON_REG_VIRTUAL" },
	{ "pmu first 0;pmd 0 type 0x82",
	  "PMD0 \"WIDE\": PERFMON_REG_TASK needs PERFMON_REG_VIRTUAL" },
	{ "pmd 1 type 0x3a", "PMD285 \"BYTE\": PERFMON_REG_SYSTEM and PERFMON_REG_THREAD" },
	{ "pmd 1 width 0", "PMD285 \"BYTE\": width of a counter must be 1 to 64 bits" },
	{ "pmd 1 width 65", "PMD285 \"BYTE\": width of a counter must be 1 to 64 bits" },
	{ "pmd 13 pmcs 8", "PMD297 \"OF_THREADS_NOW\": pmcs has bits beyond the last PMC" },
};

#define NR_MISTAKES	((int)(sizeof(mistakes) / sizeof(*mistakes)))

static void test_refused(const struct mistake *m)
{
	const char *const why[] = { m->why, NULL };
	int log = klog_open(), ret = insmod_scripted(m->edit);
	bool logged = klog_has(log, why);

	if (!ok(ret == -EINVAL && logged,
		"1.14 register: EINVAL, with the reason in the log, for the edit: %s", m->edit))
		note("got %d; the log does%s say: %s", ret, logged ? "" : " not", m->why);
}

/* EEXIST: another description has the register numbers or the name. */
static void test_eexist(const char *edit, const char *what)
{
	static const char *const eexist[] = { "registration: -17", NULL };
	int log = klog_open(), ret = insmod_scripted(edit);

	/*
	 * If the init function of a module returns EEXIST, the module loader returns EBUSY to user
	 * space. Because insmod may return EBUSY, the test looks for the error EEXIST (-17) in the
	 * kernel log.
	 */
	if (!ok(klog_has(log, eexist) && (ret == -EBUSY || ret == -EEXIST), "1.14 %s", what))
		note("%d", ret);
}

static void test_registration(void)
{
	char before[32768];

	strcpy(before, pmu_listing());
	for (int i = 0; i < NR_MISTAKES; i++)
		test_refused(&mistakes[i]);
	is(insmod_scripted("pmu first 0;pmu nr_pmcs 1;pmu nr_pmds 1;pmc 0 address 0x186;pmd 0 type 2;"
			   "pmd 0 address 0xc1"),
	   -ENODEV, "1.14 register: ENODEV for a valid description whose registers do not exist");
	is(insmod("scripted_pmu", "absent=-95"), -EOPNOTSUPP,
	   "1.14 register: insmod returns the errno of probe()");
	ok(!strcmp(before, pmu_listing()),
	   "1.1 refused descriptions: nothing is shown in /proc/perfmon_map and debugfs");

	is(insmod("tutorial_pmu", ""), 0,
	   "1.1 register: the tutorial's description, PMCs from 304 on");
	strcpy(before, pmu_listing());
	test_eexist("pmu first 304", "register: EEXIST for numbers of another description");
	test_eexist("pmu first 291", "register: EEXIST if only the last number is taken");
	test_eexist("pmu first 307;pmu nr_pmds 2",
		    "register: EEXIST if only the first number of another description overlaps");
	test_eexist("pmu name tutorial", "register: EEXIST for a name of another description");
	ok(!strcmp(before, pmu_listing()),
	   "1.1 EEXIST: /proc/perfmon_map and debugfs are unchanged");
	is(insmod_scripted("pmu first 290"), 0,
	   "1.1 register: numbers just below those of another description");
	is(rmmod("scripted_pmu"), 0, "1.1 rmmod of the description below the tutorial's succeeds");
	is(insmod_scripted("pmu first 308;pmu nr_pmds 12"), 0,
	   "1.1 register: numbers just above those of another description, to 319");
	ok(strstr(pmu_listing(), "# tutorial\nPMC304 ") &&
	   strstr(pmu_listing(), "# scripted\nPMC308 ") &&
	   strstr(pmu_listing(), "/perfmon/scripted/pmd319/name"),
	   "1.1 /proc/perfmon_map and debugfs show two descriptions");
	rmmod("scripted_pmu");
	ok(!strcmp(before, pmu_listing()),
	   "1.1 rmmod: nothing of the removed description is shown");
	rmmod("tutorial_pmu");
}

static void test_listing(void)
{
	char text[80];
	const char *map, *cpus;

	is(insmod_scripted(""), 0, "1.1 register: a valid description");
	is(atoi(get_param("probes")), 1, "1.1 register: probe() was called once");
	cpus = get_param("cpus");
	ok(strstr(cpus, "+0 ") && strstr(cpus, "+1 ") && !strchr(cpus, '!'),
	   "1.1 register: cpu() was called for each CPU, on that CPU: %s", cpus);
	map = pmu_listing();
	ok(strstr(map, "\nPMC284 SCALE address=0 reset=0xa5 reserved=0x200f0\n") ||
	   strstr(map, "\nPMC284 SCALE address=0x0 reset=0xa5 reserved=0x200f0\n"),
	   "1.14 /proc/perfmon_map: default and reserved bits of a PMC");
	ok(strstr(map, "\nPMC285 SYSTEMS ") && strstr(map, " system-wide\n"),
	   "1.14 /proc/perfmon_map: a PMC for CPUs' contexts only");
	ok(strstr(map, "\nPMD285 BYTE virtual counter width=8 pmcs=0x1\n"),
	   "1.14 /proc/perfmon_map: width and PMCs of a PMD");
	ok(strstr(map, "\nPMD289 OF_THREADS virtual counter width=12 pmcs=0x1 thread\n"),
	   "1.14 /proc/perfmon_map: a PMD for threads' contexts only");
	ok(!strstr(map, "PMD293"), "1.14 /proc/perfmon_map: an empty row is not shown");
	read_file("/sys/kernel/debug/perfmon/scripted/pmc284/dfl_val", text, sizeof(text));
	is(strtoull(text, NULL, 16), 0xa5, "1.1 debugfs: the default value of a PMC");
}

static void test_numbers(void)
{
	static struct pfarg_pmd many[24] = { { .reg_num = WIDE }, { .reg_num = BYTE } };
	struct pfarg_pmc two[2] = { { .reg_num = SCALE, .reg_value = 5 }, { .reg_num = 283 } };
	int fd = pfm_create(0), system = pfm_create(PFM_FL_SYSTEM_WIDE);

	for (int i = 2; i < 24; i++)
		many[i].reg_num = WIDE;
	is(pfm_vector(fd, PERFMON_READ_PMDS, many, 23, sizeof(*many)), 0,
	   "1.14 read PMDs: 23 elements succeed");
	is(pfm_vector(fd, PERFMON_READ_PMDS, many, 24, sizeof(*many)), -E2BIG,
	   "1.14 read PMDs: 24 elements, over a page, is E2BIG");
	is(pfm_vector(fd, PERFMON_READ_PMDS, many, 1, sizeof(*many) - 8), -EINVAL,
	   "1.14 read PMDs: another element size is EINVAL");
	is(pfm_write_pmd(fd, 283, 0), -EINVAL,
	   "1.14 write PMDs: the number before the first is EINVAL");
	is(pfm_write_pmd(fd, HOLE, 0), -EINVAL,
	   "1.14 write PMDs: the number of an empty row is EINVAL");
	is(pfm_write_pmd(fd, BEYOND, 0), -EINVAL,
	   "1.14 write PMDs: the number after the last is EINVAL");
	is(pfm_write_pmc(fd, FIRST_REG + 3, 0), -EINVAL,
	   "1.14 write PMCs: the number after the last is EINVAL");
	is(pfm_write_pmc(fd, SYSTEMS, 0), -EINVAL,
	   "1.14 write PMCs: a PMC for CPUs in a thread's context is EINVAL");
	is(pfm_write_pmd(fd, OF_SYSTEMS, 0), -EINVAL,
	   "1.14 write PMDs: a PMD for CPUs in a thread's context is EINVAL");
	is(pfm_write_pmc(fd, THREADS, 0), 0,
	   "1.14 write PMCs: a PMC for threads in a thread's context succeeds");
	is(pfm_write_pmd(fd, OF_THREADS, 0), 0,
	   "1.14 write PMDs: a PMD for threads in a thread's context succeeds");
	is(pfm_write_pmc(system, THREADS, 0), -EINVAL,
	   "1.14 write PMCs: a PMC for threads in a CPU's context is EINVAL");
	is(pfm_write_pmd(system, OF_THREADS, 0), -EINVAL,
	   "1.14 write PMDs: a PMD for threads in a CPU's context is EINVAL");
	is(pfm_write_pmc(system, SYSTEMS, 0), 0,
	   "1.14 write PMCs: a PMC for CPUs in a CPU's context succeeds");
	is(pfm_write_pmd(system, OF_SYSTEMS, 0), 0,
	   "1.14 write PMDs: a PMD for CPUs in a CPU's context succeeds");
	is(pfm_vector(fd, PERFMON_WRITE_PMCS, two, 2, sizeof(*two)), -EINVAL,
	   "1.14 write PMCs: one invalid number of two is EINVAL");
	is(pfm_read_pmd(fd, CONTROL), 0xa5,
	   "1.14 write PMCs: with one invalid number of two, the other PMC keeps its default");
	close(system);
	close(fd);
}

/* Runs in a child process without capabilities, which exits with 2 on a mismatch. */
static void child_write_kernel_bit(int fd)
{
	exit_if(setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534), 1);
	exit_if(pfm_write_pmc(fd, SCALE, 1 << 18) != -EPERM || pfm_write_pmc(fd, SCALE, 1) ||
		pfm_read_pmd(fd, CONTROL) != 0xa1, 2);
}

static void child_check_sets_kernel_bit(int fd)
{
	exit_if(setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534), 1);
	exit_if(pfm_write_pmc(fd, SCALE, 7) != -EPERM || pfm_read_pmd(fd, CONTROL) != 0xa1, 2);
}

static void test_control_words(void)
{
	static const int errnos[] = { -EINVAL, -ENOENT, -EBUSY, -EOPNOTSUPP };
	int fd = pfm_create(0), wrong = 0;

	is(pfm_write_pmc(fd, SCALE, ~0ULL), 0, "1.14 write PMCs: a value of all ones is accepted");
	is(pfm_read_pmd(fd, CONTROL), ~0x20050ULL,
	   "1.14 write PMCs: reserved and interrupt bits keep their value on all ones");
	pfm_write_pmc(fd, SCALE, 0);
	is(pfm_read_pmd(fd, CONTROL), 0xa0, "1.14 write PMCs: reserved bits keep their value on 0");
	set_param("set_bits", 0x20053);
	pfm_write_pmc(fd, SCALE, 0x200);
	is(pfm_read_pmd(fd, CONTROL), 0x2a3, "1.14 check() can set bits, but no reserved ones");
	set_param("set_bits", 0);
	set_param("clear_bits", 0xff);
	pfm_write_pmc(fd, SCALE, 0x303);
	is(pfm_read_pmd(fd, CONTROL), 0x3a0, "1.14 check() can clear bits, but no reserved ones");
	set_param("clear_bits", 0);
	for (int i = 0; i < 4; i++) {
		set_param("refuse", errnos[i]);
		wrong += pfm_write_pmc(fd, SCALE, 1) != errnos[i] ||
			 pfm_read_pmd(fd, CONTROL) != 0x3a0;
	}
	set_param("refuse", 0);
	is(wrong, 0, "1.14 check() refuses a value with its errno, and nothing is written");
	is(in_child(child_write_kernel_bit(fd)), 0,
	   "1.14 unprivileged: the kernel-mode bit of a PMC is EPERM");
	set_param("set_bits", 1 << 18);
	is(in_child(child_check_sets_kernel_bit(fd)), 0,
	   "1.14 unprivileged: the kernel-mode bit set by check() is EPERM");
	set_param("set_bits", 0);
	close(fd);
}

static void test_control_changes(void)
{
	int fd = pfm_create(0);

	pfm_write_pmd(fd, SCALED, 0);
	is(pfm_write_pmd(fd, FIXED, 99), 0,
	   "1.13 write PMDs: a write of a read-only counter succeeds");
	is(pfm_read_pmd(fd, FIXED), 0, "1.13 write PMDs: a read-only counter keeps its value");
	pfm_load(fd, this_thread());
	set_counter(1000);
	pfm_start(fd);
	set_counter(1007);
	is(pfm_read_pmd(fd, SCALED), 7 * 0xa5,
	   "1.13 read() gets the default of a PMC that was not written");
	is(pfm_read_pmd(fd, FIXED), 7, "1.13 a read-only counter counts");
	pfm_write_pmc(fd, SCALE, 2);
	is(pfm_read_pmd(fd, SCALED), 7 * 0xa5,
	   "1.13 write PMCs: a new value alone does not change the count");
	set_counter(1010);
	is(pfm_read_pmd(fd, SCALED), 7 * 0xa5 + 3 * 0xa2,
	   "1.13 read() gets the written value of the PMC");
	close(fd);
}

/* Reads registers of a thread's context while the thread is on a CPU and while it is not. */
static void test_threads(void)
{
	int fd = pfm_create(0), start[2], status;
	__u64 wide, carried;
	pid_t child;
	char byte;

	pin_to_cpu(0);
	is(pfm_read_pmd(fd, WHOSE), 0, "1.13 detached context: read() gets no task");
	is(pfm_write_pmd(fd, WHOSE, 5), 0,
	   "1.13 write PMDs: a write of a read-only value succeeds");
	set_counter(5);
	pfm_write_pmd(fd, WIDE, 0);
	pfm_write_pmd(fd, CARRIED, 0);
	pfm_load(fd, this_thread());
	is(pfm_read_pmd(fd, WHOSE), this_thread(), "1.13 thread's context: read() gets its task");
	is(pfm_read_pmd(fd, HERE), 0, "1.13 thread's context: read() runs on the caller's CPU");
	is(pfm_read_pmd(fd, OF_THREADS_NOW), 5,
	   "1.13 thread's context: a value register is read before the start");
	pfm_start(fd);
	/* The child runs on CPU 0 only while the monitored thread does not. */
	is(in_child(set_counter(counter_now + 100)), 0,
	   "1.13 a child moves the counters while the thread is not on a CPU");
	counter_now += 100;
	wide = pfm_read_pmd(fd, WIDE);
	carried = pfm_read_pmd(fd, CARRIED);
	is(wide, 0, "1.13 increments while the thread is not on a CPU do not count");
	is(carried, 100, "1.13 a REG_TASK counter counts while the thread is not on a CPU");
	set_counter(counter_now + 20);
	is(pfm_read_pmd(fd, WIDE), 20, "1.13 increments while the thread is on a CPU count");
	is(pfm_read_pmd(fd, CARRIED), 120,
	   "1.13 a REG_TASK counter counts while the thread is on a CPU");
	pfm_stop(fd);
	close(fd);

	bail_if(pipe(start), "pipe");
	child = fork_child(_exit(read(start[0], &byte, 1) != 1));
	fd = pfm_create(0);
	pfm_write_pmd(fd, CARRIED, 0);
	is(pfm_load(fd, child), 0, "1.13 another process: load succeeds");
	pfm_start(fd);
	set_counter(counter_now + 30);
	is(pfm_read_pmd(fd, WHOSE), child, "1.13 another process: read() gets its task");
	is(pfm_read_pmd(fd, CARRIED), 30,
	   "1.13 another process: a REG_TASK counter counts while it sleeps");
	bail_if(write(start[1], "x", 1) != 1, "write");
	waitpid(child, &status, 0);
	set_counter(counter_now + 30);
	is(pfm_read_pmd(fd, CARRIED), 30,
	   "1.13 another process: a REG_TASK counter stops when it has exited");
	close(fd);
	close(start[0]);
	close(start[1]);
}

static void test_cpu_context(void)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	size_t len = strlen(get_param("cpus"));

	pfm_write_pmd(fd, OF_SYSTEMS, 0);
	pfm_write_pmd(fd, CARRIED, 0);
	pin_to_cpu(1);
	pfm_load(fd, 1);
	pfm_start(fd);
	is(pfm_read_pmd(fd, WHOSE), 0, "1.13 CPU's context: read() gets no task");
	is(pfm_read_pmd(fd, HERE), 1, "1.13 CPU's context: read() runs on its CPU");
	in_child(pin_to_cpu(0); set_counter(counter_now + 40));
	counter_now += 40;
	is(pfm_read_pmd(fd, OF_SYSTEMS), 40,
	   "1.13 CPU's context: increments count, whichever CPU causes them");
	is(pfm_read_pmd(fd, CARRIED), 40, "1.13 CPU's context: a REG_TASK counter counts as well");
	set_counter(counter_now + 2);
	pin_to_cpu(0);
	ok(set_cpu_online(1, false), "1.13 hotplug: CPU 1 goes offline");
	set_counter(counter_now + 9);
	is(pfm_read_pmd(fd, OF_SYSTEMS), 42,
	   "1.13 hotplug: the count up to offline stays readable");
	is(pfm_start(fd), -ESRCH, "1.13 hotplug: start is ESRCH after offline");
	ok(set_cpu_online(1, true), "1.13 hotplug: CPU 1 goes online");
	ok(!strcmp(get_param("cpus") + len, "-1 +1 "),
	   "1.1 hotplug: cpu() was called for offline and online, on CPU 1: %s",
	   get_param("cpus") + len);
	pfm_unload(fd);
	pin_to_cpu(1);
	is(pfm_load(fd, 1), 0, "1.13 hotplug: the same context loads on CPU 1 again");
	pfm_start(fd);
	set_counter(counter_now + 5);
	is(pfm_read_pmd(fd, OF_SYSTEMS), 47,
	   "1.13 hotplug: the reloaded context adds to its old count");
	close(fd);
	pin_to_cpu(0);
}

/* read() adds to the counter, returns random values, or is slow. */
static void test_misbehaving_read(void)
{
	int fd = pfm_create(0), backwards = 0;
	__u64 last = 0, got, begin;
	long long reads;

	pfm_write_pmd(fd, BYTE, 0);
	pfm_load(fd, this_thread());
	set_param("step", 3);
	pfm_start(fd);
	for (int i = 0; i < 100; i++) {
		got = pfm_read_pmd(fd, BYTE);
		backwards += got < last + 3;
		last = got;
	}
	is(backwards, 0, "1.5 a read() that adds 3 each time: the 64-bit value never goes back");
	set_param("step", 0);
	last = pfm_read_pmd(fd, BYTE);
	reads = atoll(get_param("reads"));
	set_param("junk", 1);
	for (int i = 0; i < 200; i++)
		pfm_read_pmd(fd, BYTE);
	got = pfm_read_pmd(fd, BYTE) - last;
	reads = atoll(get_param("reads")) - reads;
	ok(got > 1000 && got <= 255ULL * reads,
	   "1.5 a read() of random 64-bit values: at most 255 are counted per read");
	note("%llu in %lld reads", got, reads);
	set_param("junk", 0);
	pfm_read_pmd(fd, BYTE);
	set_param("slow_us", 3000);
	begin = now_ns();
	pfm_read_pmd(fd, BYTE);
	ok(now_ns() - begin > 3000000, "1.5 a read() of 3 ms: PERFMON_READ_PMDS waits for it");
	sched_yield();
	set_param("slow_us", 0);
	last = pfm_read_pmd(fd, BYTE);
	set_counter(strtoull(get_param("now"), NULL, 10) + 11);
	is(pfm_read_pmd(fd, BYTE), last + 11,
	   "1.5 counts are exact again after random and slow read()s");
	close(fd);
}

/* A context uses the descriptions that existed when the context was created. */
static void test_lifetime(void)
{
	int fd = pfm_create(0), later;

	is(rmmod("scripted_pmu"), -EWOULDBLOCK,
	   "1.1 rmmod of a description that a context uses is EWOULDBLOCK");
	is(insmod("tutorial_pmu", ""), 0,
	   "1.1 insmod of a second description while a context exists");
	is(pfm_write_pmd(fd, 304, 0), -EINVAL,
	   "1.1 an older context does not have registers of the second description");
	later = pfm_create(0);
	is(pfm_write_pmd(later, 304, 0), 0,
	   "1.1 a newer context has registers of the second description");
	is(pfm_write_pmd(later, WIDE, 0), 0,
	   "1.1 a newer context has registers of the first description");
	close(later);
	is(rmmod("tutorial_pmu"), 0,
	   "1.1 rmmod of the second description after the newer context is closed");
	is(rmmod("scripted_pmu"), -EWOULDBLOCK,
	   "1.1 rmmod of the first description is EWOULDBLOCK while the older context exists");
	close(fd);
}

/* If init fails after the registration, the module is freed: no context may use it before. */
static void test_init(void)
{
	pid_t child;
	int fd;

	insmod("tutorial_pmu", "");
	child = fork_child(_exit(insmod("scripted_pmu", "hold=1") != 0));
	wait_until(strstr(pmu_listing(), "# scripted\n"));
	fd = pfm_create(0);
	is(pfm_write_pmd(fd, WIDE, 0), -EINVAL,
	   "1.1 a context that is created before a description's init returns: EINVAL for its PMDs");
	close(fd);
	set_param("hold", 0);
	waitpid(child, NULL, 0);
	fd = pfm_create(0);
	is(pfm_write_pmd(fd, WIDE, 0), 0,
	   "1.1 a context that is created after a description's init has returned has its PMDs");
	close(fd);
	rmmod("scripted_pmu");
	rmmod("tutorial_pmu");
}

static void test_tutorial(void)
{
	char text[200] = "";
	unsigned long long tens = 0, cpus = 0;
	int fd, out, runs, failed = 0;
	__u64 reads;

	is(insmod("tutorial_pmu", ""), 0, "1.1 tutorial: its module loads");
	ok(strstr(pmu_listing(), "# tutorial\nPMC304 DIVIDER "),
	   "1.1 tutorial: /proc/perfmon_map shows its registers");
	read_file("/sys/kernel/debug/perfmon/tutorial/pmd304/name", text, sizeof(text));
	ok(!strcmp(text, "TICKS\n"), "1.1 tutorial: debugfs shows its registers");
	out = open("/tmp/ticks", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	/*
	 * The program counts ticks during half a second of its CPU time. In a guest with little CPU
	 * time the program may count fewer than ten ticks, so the test runs the program up to 60
	 * times, until it has counted ten ticks.
	 */
	for (runs = 0; !tens && runs < 60; runs++) {
		bail_if(ftruncate(out, 0) || lseek(out, 0, SEEK_SET), "/tmp/ticks");
		failed |= in_child(dup2(out, 1); _exit(ticks() || fflush(stdout)));
		read_file("/tmp/ticks", text, sizeof(text));
		if (sscanf(text, "%llu times ten ticks, %llu CPUs", &tens, &cpus) != 2)
			break;
	}
	close(out);
	is(failed, 0, "1.13 tutorial: its program runs");
	if (!ok(tens >= 1 && tens < 100 && cpus == 2,
		"1.13 tutorial: its program counts ticks and two CPUs"))
		note("%s", text);
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 304, 0), -EINVAL,
	   "1.14 tutorial: check() refuses a divider of 0 with EINVAL");
	is(pfm_write_pmc(fd, 304, 0x10000), -EINVAL,
	   "1.14 tutorial: check() refuses a divider of reserved bits only with EINVAL");
	pfm_write_pmd(fd, 305, 0);
	pfm_start_self(fd);
	reads = pfm_read_pmd(fd, 306);
	is(pfm_read_pmd(fd, 306), reads + 1, "1.13 tutorial: READS grows by 1 with each read");
	ok(pfm_read_pmd(fd, 305) > 0, "1.13 tutorial: CYCLES counts");
	set_cpu_online(1, false);
	is(pfm_read_pmd(fd, 307), 1, "1.1 tutorial: CPUS is 1 after CPU 1 goes offline");
	set_cpu_online(1, true);
	is(pfm_read_pmd(fd, 307), 2, "1.1 tutorial: CPUS is 2 after the CPU is online again");
	close(fd);
	is(rmmod("tutorial_pmu"), 0, "1.1 tutorial: rmmod succeeds");
}

int main(void)
{
	char before[32768];

	plan(NR_MISTAKES + 13 + 9 + 17 + 8 + 16 + 2 * 6 + 6 + 14 + 11 + 4 + 7 + 3 + 12 + 4);
	srandom(1);
	unload_modules();
	insmod("perfcounters", "");
	load_module("perfmon");
	strcpy(before, pmu_listing());
	test_registration();
	test_listing();
	test_numbers();
	test_control_words();
	test_emulation();
	test_narrow_period(BYTE, 8, PFM_REGFL_NO_EMUL64, "NO_EMUL64");
	test_narrow_period(NARROW, 12, 0, "PERFMON_REG_NO_64");
	test_control_changes();
	test_threads();
	test_cpu_context();
	test_misbehaving_read();
	test_lifetime();
	is(atoi(get_param("unsound")), 0,
	   "1.13 read() of a counter was always called with preemption off");
	is(atoi(get_param("unpreemptible")), 0,
	   "1.13 read() of a current value was always called with preemption on");
	is(rmmod("scripted_pmu"), 0, "1.1 rmmod of the unused description succeeds");
	test_init();
	test_tutorial();
	ok(!strcmp(before, pmu_listing()),
	   "1.1 /proc/perfmon_map and debugfs are as at the beginning");
	is(rmmod("perfmon"), 0, "1.1 rmmod of perfmon.ko succeeds");
	unload_modules();
	return finish();
}
