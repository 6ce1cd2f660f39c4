// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake pmu-amd2 pmu-k8 pmu-spurious
 * gate: pmu-skylake pmu-amd2 pmu-spurious
 * timeout: 120
 *
 * Checks the instances that count PMU interrupts, which are part of the modules' own costs. The
 * module must count one PMU interrupt for each overflow, and must count spurious NMIs separately.
 * The test compares the counts of PMU interrupts and of spurious NMIs with /proc/interrupts and
 * with the debugfs files.
 */
#include "costs.h"

#define SIZE	(1 << 20)

static struct pmu_model model;

/* Samples every @period instructions of this thread, and compares samples, interrupts and NMIs. */
static void test_overflows(__u64 period, __u64 rounds)
{
	__s64 regular = cost_total("interrupts/regular");
	__s64 spurious = cost_total("interrupts/spurious");
	__s64 time = cost_total("interrupts/time"), format = cost_total("samples/time");
	__s64 taken = cost_total("samples/taken"), deferred = cost_total("interrupts/again"), total;
	int fd = pfm_create_default(0, SIZE);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, SIZE);
	__u64 wall = now_ns();

	pfm_write_pmc(fd, 0, pfm_instructions(&model));
	pfm_load(fd, this_thread());
	pfm_period(fd, 0, period, 0);
	total = nr_interrupts("NMI:");
	pfm_start(fd);
	spin(rounds);
	pfm_stop(fd);
	total = nr_interrupts("NMI:") - total;
	wall = now_ns() - wall;
	regular = cost_total("interrupts/regular") - regular;
	spurious = cost_total("interrupts/spurious") - spurious;
	note("%u samples, %lld NMIs: %lld regular, %lld spurious, %lld deferred",
	     (__u32)hdr->hdr_count, total, regular, spurious,
	     cost_total("interrupts/again") - deferred);
	is(hdr->hdr_count, 2 * rounds / period, "cost samples: as many as periods");
	is(cost_total("samples/taken") - taken, hdr->hdr_count,
	   "cost samples/taken: as many as samples in the buffer");
	/* An overflow that a context switch has processed makes its NMI spurious. */
	ok(regular + spurious >= (__s64)hdr->hdr_count - 5 &&
	   regular + spurious <= (__s64)hdr->hdr_count + 5 && spurious <= 5 + regular / 3,
	   "cost interrupts: as many as overflows, within 5, most of them regular");
	is(regular + spurious, total,
	   "cost interrupts: regular and spurious ones are the NMIs in /proc/interrupts");
	ok(time_added("interrupts/time", time, wall),
	   "cost interrupts/time: above 0 and below the elapsed time");
	ok(time_added("samples/time", format, cost_total("interrupts/time") - time),
	   "cost samples/time: above 0 and below interrupts/time");
	munmap(hdr, SIZE);
	close(fd);
}

/*
 * Returns the number of NMIs in /proc/interrupts, and stores in @spurious the number of spurious
 * NMIs at the same moment.
 */
static __s64 nmis_and_spurious(__s64 *spurious)
{
	__s64 total;

	do {
		total = nr_interrupts("NMI:");
		*spurious = cost_total("interrupts/spurious");
	} while (nr_interrupts("NMI:") != total);
	return total;
}

/* The emulated PMU raises an NMI without an overflow about every 100 million instructions. */
static void test_spurious(void)
{
	__s64 regular = cost_total("interrupts/regular"), nr, before;
	int fd = pfm_create(0), i;
	__s64 total;

	pfm_write_pmc(fd, 0, pfm_instructions(&model));
	pfm_load(fd, this_thread());
	total = nmis_and_spurious(&before);
	pfm_start(fd);
	for (i = 0; i < 20 && nr_interrupts("NMI:") - total < 3; i++)
		spin(50000000);
	pfm_stop(fd);
	total = nmis_and_spurious(&nr) - total;
	nr -= before;
	note("%lld NMIs", total);
	ok(total >= 3, "cost spurious PMU: at least 3 NMIs");
	is(nr, total, "cost interrupts/spurious: all NMIs of a spurious PMU");
	is(cost_total("interrupts/regular") - regular, 0,
	   "cost interrupts/regular: none on a spurious PMU");
	close(fd);
}

int main(void)
{
	bool nowhere = !strcmp(getenv("PMU") ?: "", "spurious");

	/* PMU=spurious is the Skylake model with one fault: it raises NMIs without an overflow. */
	model = nowhere ? *SKYLAKE : *guest_model();
	plan(nowhere ? 4 : 13);
	load_sampling_modules(&model);
	pfm_set_limits("0", "0");
	pc_open(&costs_pc);
	atexit(exit_cleanup);
	if (nowhere) {
		test_spurious();
	} else {
		test_overflows(100000, 5000000);
		test_overflows(5000, 5000000);
	}
	ok(debugfs_matches_pages(), "cost debugfs: matches the counter pages");
	return finish();
}
