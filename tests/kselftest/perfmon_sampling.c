// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu
 * gate: pmu-skylake pmu-k8 pmu-amd2
 * timeout: 200
 *
 * Sampling by instructions on each model of the emulated PMU: there is exactly one sample for each
 * period, with an address in the loop. Tests the default format, messages, restarts, resets,
 * recorded PMDs, and two sampling counters at once.
 */
#include "sampling.h"

#define SIZE	(1 << 20)

static const struct pmu_model *m;

/* First address of the loop of spin_here(), and the first address after it. */
extern char spin_begin[], spin_end[];

static __attribute__((noinline)) void spin_here(__u64 rounds)
{
	asm volatile(".globl spin_begin, spin_end\n"
		     "spin_begin: dec %0\n jnz spin_begin\n"
		     "spin_end:" : "+r"(rounds) : : "cc", "memory");
}

static struct pfm_dfl_smpl_entry *entry(struct pfm_dfl_smpl_hdr *hdr, unsigned int n, int values)
{
	return (void *)hdr + sizeof(*hdr) + n * (sizeof(struct pfm_dfl_smpl_entry) + 8 * values);
}

/* Samples the caller: one sample for each period, and not one more or less. */
static void exact(void)
{
	static const __u64 periods[] = { 1000, 4096, 99991, 1000000 };
	struct pfm_dfl_smpl_hdr *hdr;
	struct pfm_dfl_smpl_entry *e;
	unsigned int i, n, wrong;
	int fd = pfm_create_default(0, SIZE);
	__u64 count;

	if (!ok(fd >= 0, "1.9 a context that samples in the default format")) {
		errno = -fd;
		bail("create");
	}
	hdr = pfm_map_default(fd, SIZE);
	if (!ok(hdr, "1.9 its buffer is mapped"))
		bail("mmap");
	is(hdr->hdr_version, PFM_DFL_SMPL_VERSION, "1.9 with the header of version 1.0");
	is(hdr->hdr_buf_size, SIZE, "1.9 of the size that was asked for");
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	is(pfm_load(fd, this_thread()), 0, "1.7 it is loaded");
	for (i = 0; i < 4; i++) {
		is(pfm_period(fd, 0, periods[i], 0), 0, "1.7 a period of %llu", periods[i]);
		n = hdr->hdr_count;
		pfm_start(fd);
		spin_here(2000000);
		pfm_stop(fd);
		/* The count is the periods that ended, plus the events since the last sample. */
		count = pfm_read_pmd(fd, 0) + periods[i];
		n = hdr->hdr_count - n;
		ok(count < periods[i], "1.7 it holds less than a period since the last sample");
		count += n * periods[i];
		if (!ok(count >= 4000000 && count < 4000300 && n == count / periods[i],
			"1.7 as many samples as periods"))
			note("%u samples of %llu, %llu", n, periods[i], count);
	}
	for (i = wrong = 0; i < hdr->hdr_count; i++) {
		e = entry(hdr, i, 0);
		if (e->pid != this_thread() || e->tgid != (__u32)getpid() || e->ovfl_pmd ||
		    e->set || (i && e->tstamp < entry(hdr, i - 1, 0)->tstamp))
			wrong++;
	}
	is(wrong, 0, "1.9 entries say who, which, in the order of time");
	for (i = wrong = 0; i < 4000; i++) {
		e = entry(hdr, i, 0);
		wrong += e->ip < (__u64)spin_begin || e->ip > (__u64)spin_end;
	}
	/* About ten instructions around the loop are counted and may be sampled. */
	if (!ok(wrong <= 1, "1.7 and where: in the loop"))
		note("%u of 4000", wrong);
	/* A mapping would keep the context. */
	munmap(hdr, SIZE);
	close(fd);
}

/* PFM_REGFL_OVFL_NOTIFY: the message, the masked context, and the restart. */
static void notified(void)
{
	int fd = pfm_create(0), n;
	struct pfarg_ovfl_msg msg;
	char small[8];
	__u64 before;

	pfm_write_pmc(fd, 0, pfm_instructions(m));
	is(pfm_restart(fd), -EBUSY, "1.8 nothing is there to restart");
	is(pfm_period(fd, 0, 100000, PFM_REGFL_OVFL_NOTIFY), 0, "1.7 a counter that notifies");
	is(pfm_load(fd, this_thread()), 0, "1.7 it is loaded");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	is(read(fd, &msg, sizeof(msg)) < 0 ? errno : 0, EAGAIN, "1.15 no message");
	is(read(fd, small, sizeof(small)) < 0 ? errno : 0, EINVAL, "1.15 no half of one");
	pfm_start(fd);
	spin_here(500000);
	is(read(fd, (void *)8, sizeof(msg)) < 0 ? errno : 0, EFAULT, "1.15 none to nowhere");
	ok(pfm_message(fd, &msg, 1000), "1.7 a message, which that has not lost");
	is(msg.msg_type, PFM_MSG_OVFL, "1.7 of an overflow");
	ok(msg.msg_ovfl_pmds[0] == 1 && msg.msg_ovfl_tid == this_thread() &&
	   msg.msg_ovfl_pid == (__u32)getpid(), "1.7 of which PMD, of whom");
	ok(msg.msg_ovfl_ip >= (__u64)spin_begin && msg.msg_ovfl_ip <= (__u64)spin_end,
	   "1.7 and where");
	before = pfm_read_pmd(fd, 0);
	spin_here(500000);
	is(pfm_read_pmd(fd, 0), before, "1.8 meanwhile nothing counts");
	ok(!pfm_message(fd, &msg, 0), "1.15 and there is one message only");
	for (n = 0; n < 20; n++) {
		if (pfm_restart(fd))
			break;
		spin_here(60000);
		if (!pfm_message(fd, &msg, 1000))
			break;
	}
	is(n, 20, "1.8 a restart goes on until the next");
	pfm_stop(fd);
	close(fd);
}

/*
 * Two sampling counters with a period each. The samples of both record PMD 2, and those of PMD 0
 * reset it.
 */
static void several(void)
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
		pfm_write_pmc(fd, i, pfm_instructions(m));
	is(pfm_write_smpl(fd, &pmd), 0, "1.11 a PMD that records and resets another");
	pmd.reg_num = 1;
	pmd.reg_short_reset = -50000;
	pmd.reg_long_reset = -50000;
	pmd.reg_value = -50000;
	memset(pmd.reg_reset_pmds, 0, sizeof(pmd.reg_reset_pmds));
	is(pfm_write_smpl(fd, &pmd), 0, "1.7 and another period");
	is(pfm_load(fd, this_thread()), 0, "1.7 it is loaded");
	pfm_start(fd);
	spin_here(1000000);
	pfm_stop(fd);
	n = hdr->hdr_count;
	for (i = 0; i < n; i++) {
		struct pfm_dfl_smpl_entry *e = entry(hdr, i, 1);

		value = *(__u64 *)(e + 1);
		zero += e->ovfl_pmd == 0;
		one += e->ovfl_pmd == 1;
		/* PMD 2 is reset at each sample of PMD 0, so it has counted one period. */
		if (e->ovfl_pmd == 0 && (value < 19990 || value > 20020))
			wrong++;
	}
	is(zero, 100, "1.7 as many samples of the one");
	is(one, 40, "1.7 and of the other");
	is(wrong, 0, "1.11 the PMD that is recorded was reset with the sample before");
	pmd.reg_smpl_pmds[4] = 1ULL << 63;
	is(pfm_write_smpl(fd, &pmd), -EINVAL, "1.11 no PMDs that there are not");
	/* A mapping would keep the context. */
	munmap(hdr, SIZE);
	close(fd);
}

/*
 * A full buffer: nothing more is sampled until a restart. There is one message, or none without
 * PFM_REGFL_OVFL_NOTIFY.
 */
static void full(void)
{
	int fd = pfm_create_default(0, 4096);
	struct pfm_dfl_smpl_hdr *hdr = pfm_map_default(fd, 4096);
	struct pfarg_ovfl_msg msg;
	__u64 count;
	int i;

	pfm_write_pmc(fd, 0, pfm_instructions(m));
	pfm_period(fd, 0, 10000, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, this_thread()), 0, "1.7 it is loaded");
	pfm_start(fd);
	spin_here(3000000);
	count = hdr->hdr_count;
	ok(count > 50 && hdr->hdr_overflows == 1 &&
	   hdr->hdr_cur_offs + hdr->hdr_min_buf_space > 4096,
	   "1.15 the buffer is full");
	ok(pfm_message(fd, &msg, 1000), "1.15 which is a message");
	ok(!pfm_message(fd, &msg, 100), "1.15 and not another one");
	is(hdr->hdr_count, count, "1.15 nothing more is sampled");
	for (i = 0; i < 5; i++) {
		pfm_restart(fd);
		if (hdr->hdr_count > 1)
			break;
		spin_here(3000000);
		if (hdr->hdr_count != count || !pfm_message(fd, &msg, 1000)) {
			note("%llu of %llu, %llu times full", hdr->hdr_count, count,
			     hdr->hdr_overflows);
			break;
		}
	}
	is(i, 5, "1.15 a restart empties it, and it fills again");
	munmap(hdr, 4096);
	close(fd);
	fd = pfm_create_default(0, 4096);
	hdr = pfm_map_default(fd, 4096);
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	pfm_period(fd, 0, 10000, 0);
	is(pfm_load(fd, this_thread()), 0, "1.7 it is loaded");
	pfm_start(fd);
	spin_here(3000000);
	ok(hdr->hdr_overflows == 1 && hdr->hdr_count == count && !pfm_message(fd, &msg, 100),
	   "1.15 without notification it is saturated, and nobody is told");
	munmap(hdr, 4096);
	close(fd);
}

int main(void)
{
	m = this_model();
	plan(47);
	write_file("/proc/sys/kernel/nmi_watchdog", "0");
	sampling_modules(m);
	pfm_limits("0", "0");
	exact();
	notified();
	several();
	full();
	return finish();
}
