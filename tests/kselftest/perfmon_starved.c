// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * timeout: 120
 * target: test-all
 *
 * Overflows while a context is looked after, of a counter that counts the looking, too: each NMI
 * finds the context's lock held, and the next look has the next one. That is a storm, and has an
 * end, also where NMIs are dear, and where the CPU has a context as well, which does not sample:
 * the thread goes on.
 */
#include "sampling.h"

#define NR_LOADS	6

/* NMIs may come in step with what they interrupt; where they find the CPU depends on both. */
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

/* The CPU's, which counts. */
static int start_cpu_context(const struct pmu_model *m)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);

	pin_to_cpu(0);
	pfm_write_pmc(fd, 1, pfm_instructions(m));
	pfm_write_pmd(fd, 1, 0);
	if (pfm_load(fd, 0) || pfm_start(fd))
		bail("a context of the CPU");
	return fd;
}

static void sample_self_forever(const struct pmu_model *m, unsigned int period)
{
	int fd = pfm_create(0);
	struct perfmon_status status;

	pin_to_cpu(0);
	pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL);
	pfm_period(fd, 0, period, 0);
	if (pfm_load(fd, this_thread()))
		_exit(1);
	pfm_start(fd);
	for (;;) {
		ioctl(fd, PERFMON_STATUS, &status);
		++*rounds;
	}
}

static void set_nmi_us(unsigned int us)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", us);
	write_file("/sys/module/test_driver/parameters/nmi_us", text);
}

static void test_progress(const struct pmu_model *m, const struct nmi_load *load, const char *when)
{
	__u64 before, progress;
	pid_t child;

	pin_to_cpu(1);
	*rounds = 0;
	fflush(stdout);
	child = fork();
	if (!child)
		sample_self_forever(m, load->period);
	wait_until(*rounds);
	ok(*rounds, "9.2 %s: a thread samples each %u instructions, of the kernel, too",
	   when, load->period);
	set_nmi_us(load->nmi_us);
	/* Long enough to starve: sampling pauses for 400 ms at most. */
	sleep_ms(500);
	before = *rounds;
	for (long left = scale_timeout(1500); left > 0 && *rounds - before <= 10; left -= 10)
		sleep_ms(10);
	progress = *rounds - before;
	set_nmi_us(0);
	ok(progress > 10, "9.2 %s: where each NMI takes %u us more it goes on (%llu)", when,
	   load->nmi_us, progress);
	kill_child(child);
}

int main(void)
{
	const struct pmu_model *m = guest_model();
	int fd;
	unsigned int i;

	plan(2 * 2 * NR_LOADS);
	rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	load_sampling_modules(m);
	errno = -insmod("test_driver", "");
	if (errno)
		bail("insmod test_driver");
	for (i = 0; i < NR_LOADS; i++)
		test_progress(m, &loads[i], "alone");
	fd = start_cpu_context(m);
	for (i = 0; i < NR_LOADS; i++)
		test_progress(m, &loads[i], "beside the CPU's context");
	close(fd);
	unload_modules();
	return finish();
}
