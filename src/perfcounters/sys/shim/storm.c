// SPDX-License-Identifier: GPL-2.0
/*
 * Throttling of sampling: limits the number of samples that a CPU takes in a second, and the part
 * of its time that they take.
 */
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <asm/tsc.h>
#include "sampling.h"

static uint max_sample_rate = 100000;
module_param(max_sample_rate, uint, 0644);
MODULE_PARM_DESC(max_sample_rate, "Samples of a CPU in a second, at most; 0: any number");

static uint max_sample_percent = 25;
module_param(max_sample_percent, uint, 0644);
MODULE_PARM_DESC(max_sample_percent, "Of a CPU's time for samples, at most; 0: any");

#define STORM_MS	10

/* Samples from one timed sample to the next: 9 to 24, 16.5 on average. */
#define STORM_LEAST	9
#define STORM_BITS	4

/*
 * A CPU is found to starve after at least STARVED_TIMED timed samples and STARVED_MS milliseconds.
 * If the timed samples take longer than STARVED_MOST_MS, they are too rare to starve a CPU, and
 * counting starts over. The pause is three times the time that the CPU starved, but at least four
 * windows and at most STARVED_PAUSE_MS.
 */
#define STARVED_TIMED		8
#define STARVED_MS		5
#define STARVED_MOST_MS		10000
#define STARVED_PAUSE_MS	400

struct storm {
	/* The current window: its start, the time of its samples, and their number. */
	u64 began;
	u64 spent;
	u32 samples;
	/* Number of samples up to the next timed one, for all of which that one stands. */
	u32 drawn;
	/*
	 * Timed samples since timed_since, and those of them that found work waiting for the CPU.
	 */
	u64 timed_since;
	u32 timed;
	u32 starved;
};

static DEFINE_PER_CPU(struct storm, storms) = { .drawn = 1 };
/* Samples until the next timed one, decremented at each sample. */
DEFINE_PER_CPU(u32, pfm_storm_left) = 1;

/*
 * Returns for how many ticks the CPU has got nothing done, or 0 if it makes progress.
 *
 * The measured time of a sample covers our handler, but neither the NMI itself nor the handlers of
 * others. Where these are expensive, under a hypervisor or on a busy host, samples may leave a CPU
 * no time but for its own timer ticks. Or they leave a thread so few instructions between two
 * samples that it cannot finish a system call, while another task waits for the CPU.
 */
static u64 starved_for(struct storm *storm, u64 now)
{
	u64 gone;
	bool starved;

	if (now - storm->timed_since > (u64)tsc_khz * STARVED_MOST_MS) {
		storm->timed = 0;
		storm->starved = 0;
	}
	if (!storm->timed++)
		storm->timed_since = now;
	/*
	 * The NMI, or the interrupt that samples, is a hard interrupt itself; a second one is what
	 * it interrupted. Softirqs of a kernel thread are the work of that thread. Other softirqs
	 * run at the end of an interrupt, which ticks may repeat without end.
	 */
	if (hardirq_count() >= 2 * HARDIRQ_OFFSET || need_resched() ||
	    (in_serving_softirq() && !(current->flags & PF_KTHREAD)))
		storm->starved++;
	gone = now - storm->timed_since;
	if (storm->timed < STARVED_TIMED || gone < (u64)tsc_khz * STARVED_MS)
		return 0;
	starved = storm->starved >= storm->timed - storm->timed / STARVED_TIMED;
	storm->timed = 0;
	storm->starved = 0;
	return starved ? gone : 0;
}

/*
 * Accounts all samples since the last timed one, after a timed sample that began at @began. Returns
 * the time in nanoseconds for which sampling must pause, or 0.
 *
 * The timed samples are chosen at random, one in 16.5 on average. If every sixteenth one was timed,
 * a storm whose NMIs are in step with what they interrupt could have the same samples timed each
 * time: the short ones, those of one context of two, or those that interrupt no interrupt.
 */
u64 pfm_storm(u64 began)
{
	struct storm *storm = this_cpu_ptr(&storms);
	u64 now = rdtsc(), window = (u64)tsc_khz * STORM_MS, gone = now - storm->began;
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);
	u64 least = 0, pause = 0, starved = rate || percent ? starved_for(storm, now) : 0;

	/* The least time that the limits allow for this number of samples of this length. */
	storm->samples += storm->drawn;
	storm->spent += (now - began) * storm->drawn;
	if (rate)
		least = (u64)storm->samples * tsc_khz * MSEC_PER_SEC / rate;
	if (percent)
		least = max(least, storm->spent * 100 / percent);
	/*
	 * Limited to four windows: a sample that took long may have been interrupted by a
	 * hypervisor.
	 */
	if (least > gone)
		pause = min(least - gone, 4 * window);
	if (starved)
		pause = clamp(3 * starved, 4 * window, (u64)tsc_khz * STARVED_PAUSE_MS);
	if (gone >= window || least > window || starved) {
		storm->began = now;
		storm->spent = 0;
		storm->samples = 0;
	} else {
		pause = 0;
	}
	storm->drawn = STORM_LEAST + hash_64(now, STORM_BITS);
	/* Pairs with the pfm_storm() of an NMI, which runs only after pfm_storm_left is set. */
	barrier();
	this_cpu_write(pfm_storm_left, storm->drawn);
	return tsc_khz ? pause * NSEC_PER_MSEC / tsc_khz : 0;
}
