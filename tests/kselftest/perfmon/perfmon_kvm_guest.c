// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * timeout: 60
 *
 * Samples of a thread that runs a KVM guest have PERFMON_IN_GUEST instead of an address, because
 * the registers at the interrupt only show where the host entered the guest. The tests run without
 * KVM: a command of the test driver sets the thread's flag PF_VCPU, as KVM does.
 *
 * While the counters belong to a guest, KVM's mediated PMU sets a delivery mode other than NMI in
 * the local APIC's entry for performance counters (LVTPC). As long as the LVTPC entry has such a
 * mode, the NMI handler must not change the entry. The test sets the LVTPC entry itself.
 */
#include "sampling.h"
#include "ring.h"

#define SIZE	(1 << 20)
#define PERIOD	100000
#define VCPU_ROUNDS	"6000000"
/*
 * Minimum number of samples. Without throttling, the period gives about 200 samples. On a busy
 * host, throttling skips most of them.
 */
#define MIN_SAMPLES	10
/* Values of the LVTPC entry: delivery mode NMI, and a masked interrupt with a vector. */
#define LVTPC_NMI	0x400
#define LVTPC_GUEST	0x100ee

struct sample_counts {
	int samples, marked, frames;
};

static struct sample_counts count_samples(int fd)
{
	struct ring r = ring_map(fd, SIZE);
	struct sample_counts t = { 0 };
	union record record;
	int bytes;

	for (__u64 at = 0; (bytes = ring_copy_record(&r, ring_head(&r), at,
						     &record)) > 0; at += bytes) {
		if (record.header.type != PERFMON_RECORD_SAMPLE)
			continue;
		t.samples++;
		if (record.sample.ip != PERFMON_IN_GUEST)
			continue;
		t.marked++;
		t.frames += record.sample.nr_frames;
	}
	ring_close(&r);
	return t;
}

static int create_sampling(__u64 modes)
{
	struct perfmon_ring_arg arg = {
		.size = SIZE, .fields = PERFMON_FIELD_KERNEL_STACK | PERFMON_FIELD_USER_STACK,
	};
	int fd = pfm_create_format(0, "ring", &arg, sizeof(arg));

	pfm_write_pmc(fd, 0, pfm_instructions(guest_model()) | modes);
	pfm_period(fd, 0, PERIOD, 0);
	is(pfm_load(fd, this_thread()), 0, "1.4 load: a context that samples %s",
	   modes ? "user and kernel mode" : "user mode only");
	pfm_start(fd);
	return fd;
}

/* The LVTPC entry has the value that KVM sets for a guest. A context has reserved the PMU. */
static void test_mediated_pmu(void)
{
	int fd = create_sampling(0);

	msr_raw_load();
	insmod("nmi_unknown", "");
	msr_raw("nmis; lvtpc %#x", LVTPC_GUEST);
	write_file("/sys/module/nmi_unknown/parameters/send", "1");
	wait_until(msr_raw("nmis"));
	is(msr_raw("read_lvtpc"), LVTPC_GUEST,
	   "1.4 NMI while KVM uses the PMU: the handler leaves the LVTPC entry unchanged");
	msr_raw("lvtpc %#x", LVTPC_NMI);
	rmmod("nmi_unknown");
	pfm_stop(fd);
	close(fd);
}

int main(void)
{
	struct sample_counts t;
	int fd;

	load_modules("");
	load_module("perfmon");
	load_sampling_modules(guest_model());
	plan(10);
	test_mediated_pmu();
	fd = create_sampling(PFM_KERNEL);
	driver_cmd("vcpu " VCPU_ROUNDS);
	pfm_stop(fd);
	t = count_samples(fd);
	note("%d samples, %d marked", t.samples, t.marked);
	ok(t.marked >= MIN_SAMPLES,
	   "1.4 PF_VCPU set: 10 or more samples have PERFMON_IN_GUEST (%d of %d)", t.marked,
	   t.samples);
	is(t.frames, 0, "1.4 PF_VCPU set: samples in the guest have no stack frames");
	fd = create_sampling(PFM_KERNEL);
	driver_cmd("timer_stop");
	spin(20000000);
	pfm_stop(fd);
	t = count_samples(fd);
	ok(t.samples >= MIN_SAMPLES, "1.4 PF_VCPU clear: 10 or more samples (%d)", t.samples);
	is(t.marked, 0, "1.4 PF_VCPU clear: no sample has PERFMON_IN_GUEST");
	fd = create_sampling(0);
	spin(20000000);
	pfm_stop(fd);
	t = count_samples(fd);
	ok(t.samples >= MIN_SAMPLES && !t.marked,
	   "1.4 user mode only: 10 or more samples, none with PERFMON_IN_GUEST (%d of %d)",
	   t.marked, t.samples);
	return finish();
}
