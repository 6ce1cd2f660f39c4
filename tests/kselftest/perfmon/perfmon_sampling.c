// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-k8 pmu-amd2
 * timeout: 200
 *
 * Samples by instructions on each model of the emulated PMU: each period gives exactly one sample,
 * whose address is in the sampled loop. Tests the default format, messages, restarts, resets,
 * recorded PMDs (data registers), and two sampling counters at once.
 */
#include "sampling.h"

#define SIZE	(1 << 20)

static const struct pmu_model *model;

/* First address of the loop of spin_here(), and the first address after the loop. */
extern char loop_begin[], loop_end[];

static __attribute__((noinline)) void spin_here(__u64 rounds)
{
	asm volatile(".globl loop_begin, loop_end\n"
		     "loop_begin: dec %0\n jnz loop_begin\n"
		     "loop_end:" : "+r"(rounds) : : "cc", "memory");
}

static struct pfm_dfl_smpl_entry *entry_at(struct pfm_dfl_smpl_hdr *hdr, unsigned int n, int values)
{
	return (void *)hdr + sizeof(*hdr) + n * (sizeof(struct pfm_dfl_smpl_entry) + 8 * values);
}

/* Samples the caller: the number of samples must be exactly the number of periods. */
static void test_exact(void)
{
	static const __u64 periods[] = { 1000, 4096, 99991, 1000000 };
	struct pfm_dfl_smpl_hdr *hdr;
	struct pfm_dfl_smpl_entry *e;
	unsigned int i, n, wrong;
	int fd = pfm_create_default(0, SIZE);
	__u64 count;

	if (!ok(fd >= 0, "1.9 create format: a context with the default format")) {
		errno = -fd;
		bail("create");
	}
	hdr = pfm_map_default(fd, SIZE);
	bail_if(!ok(hdr, "1.9 default format: the buffer is mapped"), "mmap");
	is(hdr->hdr_version, PFM_DFL_SMPL_VERSION,
	   "1.9 default format: the header has version 1.0");
	is(hdr->hdr_buf_size, SIZE, "1.9 default format: the header has the requested size");
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	is(pfm_load(fd, this_thread()), 0, "1.7 exact: load succeeds");
	for (i = 0; i < 4; i++) {
		is(pfm_period(fd, 0, periods[i], 0), 0,
		   "1.7 period %llu: PMD 0 is written", periods[i]);
		n = hdr->hdr_count;
		pfm_start(fd);
		spin_here(2000000);
		pfm_stop(fd);
		/*
		 * PMD 0 plus one period is the number of events since the last sample. The total
		 * number of events is the number of samples times the period, plus the events since
		 * the last sample.
		 */
		count = pfm_read_pmd(fd, 0) + periods[i];
		n = hdr->hdr_count - n;
		ok(count < periods[i], "1.7 exact: PMD 0 is within one period of its overflow");
		count += n * periods[i];
		if (!ok(count >= 4000000 && count < 4000300 && n == count / periods[i],
			"1.7 exact: one sample for each period"))
			note("%u samples of %llu, %llu", n, periods[i], count);
	}
	for (i = wrong = 0; i < hdr->hdr_count; i++) {
		e = entry_at(hdr, i, 0);
		if (e->pid != this_thread() || e->tgid != (__u32)getpid() || e->ovfl_pmd ||
		    e->set || (i && e->tstamp < entry_at(hdr, i - 1, 0)->tstamp))
			wrong++;
	}
	is(wrong, 0, "1.9 default format: entries have IDs, PMD and set, in the order of time");
	for (i = wrong = 0; i < 4000; i++) {
		e = entry_at(hdr, i, 0);
		wrong += e->ip < (__u64)loop_begin || e->ip > (__u64)loop_end;
	}
	/* One of about ten instructions outside the loop may be sampled. */
	if (!ok(wrong <= 1, "1.7 exact: sample addresses are in the loop"))
		note("%u of 4000", wrong);
	/* A mapping of the buffer would keep the context alive. */
	munmap(hdr, SIZE);
	close(fd);
}

/* Tests PFM_REGFL_OVFL_NOTIFY: the message, the masked context, and the restart. */
static void test_notify(void)
{
	int fd = pfm_create_instructions(0, model), n;
	struct pfarg_ovfl_msg msg;
	char small[8];
	__u64 before;

	is(pfm_restart(fd), -EBUSY, "1.8 restart: a context that is not loaded is EBUSY");
	is(pfm_period(fd, 0, 100000, PFM_REGFL_OVFL_NOTIFY), 0,
	   "1.7 write PMDs: PFM_REGFL_OVFL_NOTIFY is accepted");
	is(pfm_load(fd, this_thread()), 0, "1.7 notify: load succeeds");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	is(read(fd, &msg, sizeof(msg)) < 0 ? errno : 0, EAGAIN,
	   "1.15 read: EAGAIN without a message");
	is(read(fd, small, sizeof(small)) < 0 ? errno : 0, EINVAL,
	   "1.15 read: a buffer smaller than a message is EINVAL");
	pfm_start(fd);
	spin_here(500000);
	is(read(fd, (void *)8, sizeof(msg)) < 0 ? errno : 0, EFAULT,
	   "1.15 read: a bad address is EFAULT");
	ok(pfm_read_message(fd, &msg, 1000),
	   "1.7 notify: the message is still queued after a read with EFAULT");
	is(msg.msg_type, PFM_MSG_OVFL, "1.7 notify: the message is PFM_MSG_OVFL");
	ok(msg.msg_ovfl_pmds[0] == 1 && msg.msg_ovfl_tid == this_thread() &&
	   msg.msg_ovfl_pid == (__u32)getpid(),
	   "1.7 notify: the message has the PMD, process and thread");
	ok(msg.msg_ovfl_ip >= (__u64)loop_begin && msg.msg_ovfl_ip <= (__u64)loop_end,
	   "1.7 notify: the message has an address in the loop");
	before = pfm_read_pmd(fd, 0);
	spin_here(500000);
	is(pfm_read_pmd(fd, 0), before, "1.8 notify: nothing is counted until the restart");
	ok(!pfm_read_message(fd, &msg, 0), "1.15 notify: one message only");
	for (n = 0; n < 20; n++) {
		if (pfm_restart(fd))
			break;
		spin_here(60000);
		if (!pfm_read_message(fd, &msg, 1000))
			break;
	}
	is(n, 20, "1.8 notify: after each of 20 restarts there is another message");
	pfm_stop(fd);
	close(fd);
}

/* Samples of both counters record PMD 2, and those of PMD 0 reset PMD 2. */
static void test_two_counters(void)
{
	int fd = pfm_create_default(0, SIZE), i, zero = 0, one = 0, wrong = 0, n;
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, SIZE);
	struct pfarg_pmd pmd = {
		.reg_num = 0, .reg_value = -20000, .reg_long_reset = -20000,
		.reg_short_reset = -20000, .reg_smpl_pmds = { 1 << 2 },
		.reg_reset_pmds = { 1 << 2 }, .reg_smpl_eventid = 7,
	};
	__u64 value;

	for (i = 0; i < 3; i++)
		pfm_write_pmc(fd, i, pfm_instructions(model));
	is(pfm_write_smpl(fd, &pmd), 0, "1.11 write PMDs: PMD 0 that records and resets PMD 2");
	pmd.reg_num = 1;
	pmd.reg_short_reset = -50000;
	pmd.reg_long_reset = -50000;
	pmd.reg_value = -50000;
	memset(pmd.reg_reset_pmds, 0, sizeof(pmd.reg_reset_pmds));
	is(pfm_write_smpl(fd, &pmd), 0, "1.7 write PMDs: PMD 1 with another period");
	is(pfm_load(fd, this_thread()), 0, "1.7 two counters: load succeeds");
	pfm_start(fd);
	spin_here(1000000);
	pfm_stop(fd);
	n = hdr->hdr_count;
	for (i = 0; i < n; i++) {
		struct pfm_dfl_smpl_entry *e = entry_at(hdr, i, 1);

		value = *(__u64 *)(e + 1);
		zero += e->ovfl_pmd == 0;
		one += e->ovfl_pmd == 1;
		/*
		 * PMD 2 is reset at each sample of PMD 0, so its value is the count of one period.
		 */
		if (e->ovfl_pmd == 0 && (value < 19990 || value > 20020))
			wrong++;
	}
	is(zero, 100, "1.7 two counters: 100 samples of PMD 0");
	is(one, 40, "1.7 two counters: 40 samples of PMD 1");
	is(wrong, 0,
	   "1.11 two counters: PMD 2 has counted one period of PMD 0 in each of its samples");
	pmd.reg_smpl_pmds[4] = 1ULL << 63;
	is(pfm_write_smpl(fd, &pmd), -EINVAL,
	   "1.11 write PMDs: reg_smpl_pmds with PMD 319, which does not exist, is EINVAL");
	/* A mapping of the buffer would keep the context alive. */
	munmap(hdr, SIZE);
	close(fd);
}

/*
 * After the buffer is full, the context takes no samples until a restart. A full buffer queues one
 * message if the sampling PMD has the flag PFM_REGFL_OVFL_NOTIFY, and none if it lacks this flag.
 */
static void test_full_buffer(void)
{
	int fd = pfm_create_default(0, 4096);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, 4096);
	struct pfarg_ovfl_msg msg;
	__u64 count;
	int i;

	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_period(fd, 0, 10000, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, this_thread()), 0, "1.7 full buffer with notification: load succeeds");
	pfm_start(fd);
	spin_here(3000000);
	count = hdr->hdr_count;
	ok(count > 50 && hdr->hdr_overflows == 1 &&
	   hdr->hdr_cur_offs + hdr->hdr_min_buf_space > 4096,
	   "1.15 full buffer: the header has one overflow, and no room for an entry");
	ok(pfm_read_message(fd, &msg, 1000), "1.15 full buffer: a message is queued");
	ok(!pfm_read_message(fd, &msg, 100), "1.15 full buffer: one message only");
	is(hdr->hdr_count, count, "1.15 full buffer: nothing more is sampled");
	for (i = 0; i < 5; i++) {
		pfm_restart(fd);
		if (hdr->hdr_count > 1)
			break;
		spin_here(3000000);
		if (hdr->hdr_count != count || !pfm_read_message(fd, &msg, 1000)) {
			note("%llu of %llu, %llu times full", hdr->hdr_count, count,
			     hdr->hdr_overflows);
			break;
		}
	}
	is(i, 5, "1.15 full buffer: a restart empties it and it fills again, five times");
	munmap(hdr, 4096);
	close(fd);
	fd = pfm_create_default(0, 4096);
	hdr = pfm_map_default(fd, 4096);
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	pfm_period(fd, 0, 10000, 0);
	is(pfm_load(fd, this_thread()), 0, "1.7 full buffer without notification: load succeeds");
	pfm_start(fd);
	spin_here(3000000);
	ok(hdr->hdr_overflows == 1 && hdr->hdr_count == count && !pfm_read_message(fd, &msg, 100),
	   "1.15 full buffer without notification: it stays full, with no message");
	munmap(hdr, 4096);
	close(fd);
}

/*
 * Three PMDs count the same event with the same period, so they overflow in the same interrupt. A
 * sample has the values of four hardware PMDs and of all 16 soft PMDs. Returns the number of
 * overflows of the three PMDs, computed from the count of a fourth PMD.
 */
static __u64 overflow_together(int fd)
{
	struct pfarg_pmd pmd = {
		.reg_value = -10000ULL, .reg_long_reset = -10000ULL, .reg_short_reset = -10000ULL,
		.reg_smpl_pmds = { 0xf, 0, 0, 0, 0xf03f3f },
	};

	for (pmd.reg_num = 0; pmd.reg_num < 3; pmd.reg_num++) {
		pfm_write_pmc(fd, pmd.reg_num, pfm_instructions(model));
		pfm_write_smpl(fd, &pmd);
	}
	pfm_write_pmc(fd, 3, pfm_instructions(model));
	pfm_write_pmd(fd, 3, 0);
	bail_if(pfm_load(fd, this_thread()) || pfm_start(fd), "three sampling PMDs");
	spin_here(100000);
	pfm_stop(fd);
	return pfm_read_pmd(fd, 3) / 10000 * 3;
}

/* The smallest buffers have room for one or two of the three samples. */
static void test_full_together(void)
{
	struct perfmon_nway_arg arg = { .size = 552, .nr = 2 };
	int fd = pfm_create_default(0, 680);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, 4096);
	struct perfmon_nway_hdr *nway;
	__u64 overflows = overflow_together(fd);

	note("%llu overflows, %llu lost", overflows, hdr->hdr_lost);
	is(hdr->hdr_count + hdr->hdr_lost, overflows,
	   "1.7 default, three PMDs overflow together: each period is an entry or lost");
	munmap(hdr, 4096);
	close(fd);
	fd = pfm_create_format(0, "n-way", &arg, sizeof(arg));
	nway = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	overflows = overflow_together(fd);
	note("%llu overflows, %llu lost", overflows, nway->lost);
	is((nway->used[0] + nway->used[1]) / (sizeof(struct pfm_dfl_smpl_entry) + 8 * 20) +
	   nway->lost, overflows,
	   "1.7 n-way, three PMDs overflow together: each period is an entry or lost");
	munmap(nway, 4096);
	close(fd);
}

int main(void)
{
	model = guest_model();
	plan(49);
	write_file("/proc/sys/kernel/nmi_watchdog", "0");
	load_sampling_modules(model);
	pfm_set_limits("0", "0");
	test_exact();
	test_notify();
	test_two_counters();
	test_full_buffer();
	test_full_together();
	return finish();
}
