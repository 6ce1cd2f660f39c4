// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-skylake
 * timeout: 120
 *
 * Tests storms of overflow NMIs that leave a CPU no time for anything but NMIs and ticks (row 9.2
 * of Documentation/rows.md). A thread samples its own system calls, including the kernel's handling
 * of the overflows. Because the handling of an overflow is sampled as well, an NMI may find the
 * lock of the context held, or the next overflow may occur before the NMI handler returns. The
 * module test_driver makes each NMI longer, as a hypervisor or other handlers would. During a storm
 * of NMIs, the kernel must pause the sampling, so that the thread makes progress. The test checks
 * the progress of a thread on a CPU without other contexts, and of a thread on a CPU that also has
 * a counting context.
 */
#include "sampling.h"

#define NR_LOADS	6
/* Number of NMIs during which the thread must make progress. */
#define NR_NMIS		1000

/*
 * The period and the length of NMIs determine which code the NMIs hit: entry code, ticks, softirqs.
 */
static const struct nmi_load {
	unsigned int period;
	unsigned int nmi_us;
} loads[NR_LOADS] = {
	{ 200, 300 },
	{ 20, 0 },
	{ 135, 1000 },
	{ 177, 1000 },
	{ 210, 1000 },
	{ 400, 3000 },
};

static volatile __u64 *rounds;

static int start_cpu_context(const struct pmu_model *m)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);

	pin_to_cpu(0);
	pfm_write_pmc(fd, 1, pfm_instructions(m));
	pfm_write_pmd(fd, 1, 0);
	bail_if(pfm_load(fd, 0) || pfm_start(fd), "a context of the CPU");
	return fd;
}

/* Calls PERFMON_STATUS in an endless loop, and samples this thread during the calls. */
static void sample_self_forever(const struct pmu_model *m, unsigned int period)
{
	int fd = pfm_create(0);
	struct perfmon_status status;

	pin_to_cpu(0);
	pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL);
	pfm_period(fd, 0, period, 0);
	exit_if(pfm_load(fd, this_thread()), 1);
	pfm_start(fd);
	for (;;) {
		ioctl(fd, PERFMON_STATUS, &status);
		++*rounds;
	}
}

static void set_nmi_us(unsigned int us)
{
	write_file("/sys/module/test_driver/parameters/nmi_us", format_text("%u", us));
}

static unsigned long read_nmis(void)
{
	FILE *file = fopen("/proc/interrupts", "r");
	unsigned long nr = 0;
	char line[1024];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, " NMI: %lu", &nr) == 1)
			break;
	if (file)
		fclose(file);
	return nr;
}

static void test_progress(const struct pmu_model *m, const struct nmi_load *load, const char *when)
{
	unsigned long first;
	__u64 before, progress, begin;
	pid_t child;

	pin_to_cpu(1);
	*rounds = 0;
	child = fork_child(sample_self_forever(m, load->period));
	wait_until(*rounds);
	ok(*rounds, "9.2 %s: a thread samples every %u instructions, the kernel included",
	   when, load->period);
	set_nmi_us(load->nmi_us);
	/*
	 * Sampling may have been paused already when set_nmi_us() made the NMIs longer. Waits for
	 * 500 ms, after which the earlier pause of sampling is over: sampling pauses for at most
	 * 400 ms at a time.
	 */
	sleep_ms(500);
	before = *rounds;
	first = read_nmis();
	begin = now_ns();
	/*
	 * On a busy host both the NMIs and the thread are slow. If the thread has made no progress
	 * for a long time, the host may be busy, so the loop also waits for a minimum number of
	 * NMIs.
	 */
	for (long left = scale_timeout(1500); *rounds - before <= 10; left -= 10) {
		if (left <= 0 && (read_nmis() - first >= NR_NMIS || left < -scale_timeout(30000)))
			break;
		sleep_ms(10);
	}
	progress = *rounds - before;
	set_nmi_us(0);
	note("%llu calls and %lu NMIs in %llu ms", progress, read_nmis() - first,
	     (now_ns() - begin) / 1000000);
	ok(progress > 10, "9.2 %s, period %u, NMIs %u us longer: the thread makes progress", when,
	   load->period, load->nmi_us);
	kill_child(child);
}

int main(void)
{
	const struct pmu_model *m = guest_model();
	int fd;

	plan(2 * 2 * NR_LOADS);
	rounds = map_memory(4096, MAP_SHARED);
	load_sampling_modules(m);
	load_module("test_driver");
	for (unsigned int i = 0; i < NR_LOADS; i++)
		test_progress(m, &loads[i], "alone");
	fd = start_cpu_context(m);
	for (unsigned int i = 0; i < NR_LOADS; i++)
		test_progress(m, &loads[i], "beside the CPU's context");
	close(fd);
	unload_modules();
	return finish();
}
