// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-echo pmu-echo1
 * gate: pmu-echo
 * timeout: 120
 *
 * Tests late NMIs, as AMD PMUs raise them. The emulated PMU delivers every third interrupt (an NMI)
 * a second time, during or after the handler. When the kernel handles the second NMI of an
 * overflow, it has already processed the overflow and cleared the overflow's status bit. The second
 * NMI of an overflow must not be reported as unknown and must not produce a second sample. The
 * handler must not claim NMIs of other sources.
 */
#include "sampling.h"

#define SIZE	(1 << 20)
#define PERIOD	100000
#define SAMPLES	1000
#define DIR	"/sys/module/nmi_unknown/parameters/"

static long nr_unknown_nmis(void)
{
	char text[32] = "";
	int fd = open(DIR "nr", O_RDONLY | O_CLOEXEC);

	bail_if(fd < 0 || read(fd, text, sizeof(text) - 1) <= 0, DIR "nr");
	close(fd);
	return atol(text);
}

static void test_samples(const struct pmu_model *model)
{
	int fd = pfm_create_default(0, SIZE);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, SIZE);
	long before = nr_unknown_nmis(), total;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_load(fd, this_thread());
	pfm_period(fd, 0, PERIOD, 0);
	total = nr_interrupts("NMI:");
	pfm_start(fd);
	spin(PERIOD / 2 * SAMPLES);
	pfm_stop(fd);
	total = nr_interrupts("NMI:") - total;
	note("%ld NMIs for %d samples", total, SAMPLES);
	ok(total > SAMPLES * 5 / 4,
	   "1.7 late NMIs: the emulated PMU sends over a quarter more NMIs than samples");
	is(hdr->hdr_count, SAMPLES, "1.7 late NMIs: exactly one sample for each period");
	is(nr_unknown_nmis() - before, 0, "1.7 late NMIs: no unknown NMI while sampling");
	munmap(hdr, SIZE);
	close(fd);
}

/*
 * The emulated PMU raises the NMIs of some overflows twice. The second NMI of a context's last
 * overflow may arrive after the context has been closed and the PMU has been released. A second NMI
 * that arrives after the close of the context must not be reported as unknown.
 */
static void test_close(const struct pmu_model *model)
{
	long before = nr_unknown_nmis();

	for (int i = 0; i < 60; i++) {
		int fd = pfm_create_default(0, 1 << 16);

		pfm_write_pmc(fd, 0, pfm_instructions(model));
		pfm_load(fd, this_thread());
		pfm_period(fd, 0, 5000, 0);
		pfm_start(fd);
		spin(2500 + 5);
		close(fd);
		spin(20000);
	}
	is(nr_unknown_nmis() - before, 0,
	   "1.7 late NMIs: no unknown NMI after a context with an overflow was closed");
}

static void test_foreign_nmis(void)
{
	long before;

	usleep(200000);
	before = nr_unknown_nmis();
	for (int i = 0; i < 3; i++)
		write_file(DIR "send", "1");
	is(nr_unknown_nmis() - before, 3,
	   "1.7 late NMIs: three NMIs of another source are not claimed");
}

/*
 * Raises NMIs of another source while a context samples. For each handled overflow, the handler may
 * claim at most one later NMI.
 */
static void test_foreign_nmis_while_sampling(const struct pmu_model *model)
{
	int fd = pfm_create_default(0, SIZE);
	long before;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_load(fd, this_thread());
	pfm_period(fd, 0, 10000000, 0);
	pfm_start(fd);
	spin(10000000);
	before = nr_unknown_nmis();
	for (int i = 0; i < 10; i++)
		write_file(DIR "send", "1");
	ok(nr_unknown_nmis() - before >= 8,
	   "1.7 late NMIs: eight of ten NMIs of another source are not claimed while sampling");
	note("%ld of 10 NMIs are unknown", nr_unknown_nmis() - before);
	pfm_stop(fd);
	close(fd);
}

int main(void)
{
	struct pmu_model model = pmu_models[6];

	if (!strcmp(getenv("PMU") ?: "", "echo1"))
		model = pmu_models[5];
	plan(6);
	pin_to_cpu(0);
	insmod("nmi_unknown", "");
	load_sampling_modules(&model);
	pfm_set_limits("0", "0");
	test_samples(&model);
	test_close(&model);
	test_foreign_nmis();
	test_foreign_nmis_while_sampling(&model);
	return finish();
}
