// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake
 * timeout: 600
 *
 * Compares two methods to measure a task's share of system time, and the cost of a system call with
 * each method. With one method, the PMU counts user and kernel cycles, which are saved at context
 * switches. With the other method, probes of process accounting read the clock at the entry and
 * exit of each system call. With arguments, the program executes the work that the test measures.
 */
#include "ppa.h"

#define COUNTS	"/tmp/ppa_pmu.counts"
#define TIMES	"/tmp/ppa_pmu.times"
#define PAGES	256

static void do_work(const char *what, long rounds)
{
	static volatile __u64 sink;
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char *pages = map_memory(PAGES * 4096, MAP_PRIVATE), byte;

	for (; rounds > 0; rounds--) {
		switch (*what) {
		case 'c':
			for (int i = 0; i < 1000; i++)
				sink += i;
			break;
		case 'g':
			syscall(SYS_getppid);
			break;
		case 'r':
			exit_if(read(zero, &byte, 1) != 1, 1);
			break;
		case 'f':
			exit_if(madvise(pages, PAGES * 4096, MADV_DONTNEED), 1);
			for (int i = 0; i < PAGES; i++)
				pages[i * 4096] = 1;
			break;
		}
	}
}

/* Results of one execution of the work, by the PMU and by accounting. */
struct run {
	unsigned long long user_cycles, kernel_cycles, kernel_instructions;
	double by_pmu, by_ppa, sched, interrupts, estimate;
};

static unsigned long long event_value(const char *text, const char *event)
{
	const char *pos;

	pos = strstr(text, format_text(",,%s,", event));
	while (pos && pos > text && pos[-1] != '\n')
		pos--;
	return pos ? strtoull(pos, NULL, 10) : 0;
}

/* The levels at which accounting is on; NULL while accounting is off. */
static const char *current_levels;

static bool is_current(const char *levels)
{
	return levels && current_levels ? !strcmp(levels, current_levels) :
	       levels == current_levels;
}

/*
 * Turns accounting on at the given levels, or off if @levels is NULL. Each change attaches or
 * detaches all probes, so accounting stays as it is if the levels are the current ones.
 */
static void set_levels(const char *levels)
{
	if (is_current(levels))
		return;
	ppa_write(SETTINGS, "0 0 0 1");
	if (levels && (ppa_write(LEVELS, levels) || ppa_write(SETTINGS, "1 0 0 1")))
		bail("/proc/sys/kernel/ppa");
	current_levels = levels;
}

static struct run run_once(const char *what, long rounds, const char *levels)
{
	unsigned long long sched = 0, system_time = 0, interrupts = 0, khz = 1;
	struct run r = { 0 };
	char line[300], text[4096];

	set_levels(levels);
	snprintf(line, sizeof(line),
		 "pfc stat -x, -o " COUNTS " -e cycles:u,cycles:k,instructions:k /tests/ppa_pmu %s %ld",
		 what, rounds);
	unlink(TIMES);
	bail_if(system(line), line);
	read_file(COUNTS, text, sizeof(text));
	r.user_cycles = event_value(text, "cycles:u");
	r.kernel_cycles = event_value(text, "cycles:k");
	r.kernel_instructions = event_value(text, "instructions:k");
	read_file(TIMES, text, sizeof(text));
	bail_if(levels && sscanf(text, "%llu %llu %llu %llu", &sched, &system_time, &interrupts,
				 &khz) != 4, TIMES);
	r.sched = (double)sched / khz;
	r.interrupts = (double)interrupts / khz;
	r.by_ppa = sched ? (double)system_time / sched : 0;
	r.by_pmu = (double)r.kernel_cycles / (r.user_cycles + r.kernel_cycles);
	r.estimate = r.by_pmu * r.sched;
	return r;
}

/*
 * Executes the work at two levels of accounting. At level 1 (only the probes of the scheduler), the
 * PMU measures the share of system time. At level 7 (also the probes of interrupts and system
 * calls), accounting measures the share of system time. If a busy host stops the guest, accounting
 * counts the time of the stop as system time or as user time, depending on the moment of the stop.
 * The measurement at level 7 is therefore repeated, up to ten times, until the share of system time
 * by accounting is from @min to @max. The function begins with the current level.
 */
static void run_with_pmu_and_ppa(const char *what, long rounds, struct run *pmu, struct run *ppa,
				 double min, double max)
{
	bool pmu_last = is_current("7");

	if (!pmu_last)
		*pmu = run_once(what, rounds, "1");
	for (int i = 0; i < 10; i++) {
		*ppa = run_once(what, rounds, "7");
		if (ppa->by_ppa >= min && ppa->by_ppa <= max)
			break;
	}
	if (pmu_last)
		*pmu = run_once(what, rounds, "1");
	note("%-9s %7.1f ms: %7.1f system (%5.1f %%) |%7.1f ms: %7.1f system (%5.1f %%), %5.1f interrupts; by the PMU %5.1f %%",
	     what, pmu->sched, pmu->estimate, pmu->by_pmu * 100, ppa->sched,
	     ppa->sched * ppa->by_ppa, ppa->by_ppa * 100, ppa->interrupts, ppa->by_pmu * 100);
}

static double instructions_per_call(const char *levels)
{
	struct run few = run_once("getppid", 10000, levels);
	struct run many = run_once("getppid", 60000, levels);

	return (double)((long long)many.kernel_instructions -
			(long long)few.kernel_instructions) / 50000;
}

static void test_between(double value, double min, double max, const char *name)
{
	if (!ok(value >= min && value <= max, "%s", name))
		note("%.3f is not in %.3f to %.3f", value, min, max);
}

static void test_measures(void)
{
	struct run pmu, ppa;
	double off, level1, level7;

	note("%-9s %38s |%s", "", "probes of level 7", "all probes");
	run_with_pmu_and_ppa("computes", 40000, &pmu, &ppa, 0, 0.06);
	test_between(pmu.by_pmu, 0, 0.06, "4.2 computing: at most 6 % system time by the PMU");
	test_between(ppa.by_ppa, 0, 0.06, "4.2 computing: at most 6 % system time by the probes");
	run_with_pmu_and_ppa("getppid", 30000, &pmu, &ppa, 0.2, 1);
	test_between(pmu.by_pmu, 0.75, 1, "4.2 getppid(): at least 75 % system time by the PMU");
	test_between(ppa.by_ppa, 0.2, pmu.by_pmu,
		     "4.2 getppid(): 20 % system time or more by the probes, not above the PMU");
	run_with_pmu_and_ppa("reads", 15000, &pmu, &ppa, 0.3, 1);
	test_between(pmu.by_pmu, 0.75, 1,
		     "4.2 reads of a byte: at least 75 % system time by the PMU");
	test_between(ppa.by_ppa, 0.3, pmu.by_pmu,
		     "4.2 reads of a byte: 30 % system time or more by the probes, not above the PMU");
	run_with_pmu_and_ppa("faults", 10, &pmu, &ppa, 0.5, 1);
	test_between(pmu.by_pmu, 0.5, 1, "4.2 page faults: at least 50 % system time by the PMU");
	test_between(ppa.by_ppa, 0.5, 1,
		     "4.2 page faults: at least 50 % system time by the probes");
	/*
	 * If the host stops the CPU, more timer ticks interrupt the measured system calls and add
	 * instructions to their count, so the measurement is repeated.
	 */
	for (int i = 0; i < 10; i++) {
		off = instructions_per_call(NULL);
		level1 = instructions_per_call("1");
		if (level1 - off > -8 && level1 - off < 8)
			break;
	}
	level7 = instructions_per_call("7");
	note("getppid(): %.1f instructions in the kernel, %.1f with the scheduler's probes, %.1f with level 7",
	     off, level1, level7);
	test_between(level1 - off, -8, 8,
		     "4.2 getppid(): at most 8 instructions more with the scheduler's probes");
	test_between(level7 - off, 100, 500,
		     "4.2 getppid(): 100 to 500 instructions more with the system-call probes");
	test_between(level1 / off, 0, 1.07,
		     "4.10 getppid(): at most 7 % more instructions by scheduler probes");
	/*
	 * This work only computes, as the programs of SPECrate do. If the cycles of two executions
	 * differ by more than 1 %, the work is measured again.
	 */
	for (int i = 0; i < 10; i++) {
		ppa = run_once("computes", 30000, "7");
		pmu = run_once("computes", 30000, NULL);
		off = pmu.user_cycles + pmu.kernel_cycles;
		level7 = ppa.user_cycles + ppa.kernel_cycles;
		if (level7 / off >= 0.99 && level7 / off <= 1.01)
			break;
	}
	note("computes: %.0f cycles, %.0f with the probes of level 7: %+.3f %%", off, level7,
	     (level7 / off - 1) * 100);
	test_between(level7 / off, 0.99, 1.01,
		     "4.10 computing: at most 1 % more cycles with the probes of level 7");
}

static int run_work_if_asked(int argc, char **argv)
{
	struct ppa_task t;
	FILE *to;
	int fd;

	do_work(argv[1], argc > 2 ? atol(argv[2]) : 1);
	fd = ppa_open();
	if (ppa_get_task(fd, getpid(), &t))
		return 0;
	to = fopen(TIMES, "w");
	if (!to)
		return 1;
	fprintf(to, "%llu %llu %llu %u\n", t.values[PPA_SCHEDACCUM], t.values[PPA_SCACCUM],
		t.values[PPA_INTACCUM], ppa_info(fd).khz);
	return fclose(to) != 0;
}

int main(int argc, char **argv)
{
	const char *pmu = getenv("PMU");

	if (argc > 1)
		return run_work_if_asked(argc, argv);
	plan(12);
	unload_modules();
	ppa_write("/proc/sys/kernel/modprobe", "\n");
	insmod_each("perfcounters perfmon ppa");
	errno = -insmod(pmu && !strncmp(pmu, "amd", 3) ? "pfm_amd" : "pfm_intel", "");
	bail_if(errno, "a PMU's description");
	test_measures();
	set_levels(NULL);
	ppa_write(LEVELS, "7");
	unlink(COUNTS);
	unlink(TIMES);
	unload_modules();
	return finish();
}
