// SPDX-License-Identifier: GPL-2.0
/*
 * Storms: a CPU samples at most so often, and for at most so long.
 */
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/tsc.h>
#include "sampling.h"

static uint max_sample_rate = 100000;
module_param(max_sample_rate, uint, 0644);
MODULE_PARM_DESC(max_sample_rate, "Samples of a CPU in a second, at most; 0: any number");

static uint max_sample_percent = 25;
module_param(max_sample_percent, uint, 0644);
MODULE_PARM_DESC(max_sample_percent, "Of a CPU's time for samples, at most; 0: any");

#define STORM_MS	10

/* From one sample that is timed to the next: 9 to 24, 16.5 on the average. */
#define STORM_LEAST	9
#define STORM_BITS	4

/*
 * Samples further apart than that, on the average, are timed each: where NMIs are so dear that few
 * of them are all that a CPU does, that is found after a few.
 */
#define STORM_RARE_MS	1

/*
 * So many samples are timed at least, and for so long, before a CPU is found to starve; of those
 * that come so rarely that it takes longer than that it does not. The pause is three times that
 * time, but no longer than the last one: what the samples of STARVED_TIMED that are not rare take
 * at most, on the average, three times.
 */
#define STARVED_TIMED		8
#define STARVED_MS		5
#define STARVED_MOST_MS		10000
#define STARVED_PAUSE_MS	400

struct storm {
	/* This window: when it began, what its samples took, and how many there are. */
	u64 began;
	u64 spent;
	u32 samples;
	/* Of how many the next one that is timed is the last. */
	u32 drawn;
	/* When the last one was timed. */
	u64 last;
	/* How many were timed since that time; in how many of them something waited for the CPU. */
	u64 timed_since;
	u32 timed;
	u32 starved;
};

static DEFINE_PER_CPU(struct storm, storms) = { .drawn = 1 };
/* Samples until the next one that is timed; below 0 for NMIs that come before it is set anew. */
DEFINE_PER_CPU(u32, pfm_storm_left) = 1;

/*
 * An interrupt of the system waits: a tick, or another CPU's call. An NMI that is due when the one
 * before it ends comes before both the next instruction and all interrupts. So where each NMI has
 * the next one, nothing but this says that the CPU gets nothing done: no tick finds that its thread
 * is to be switched out. Our own irq_work says nothing: samples ask for that.
 */
static bool interrupt_waits(void)
{
	return boot_cpu_has(X86_FEATURE_APIC) &&
	       apic->read(APIC_IRR + LOCAL_TIMER_VECTOR / 32 * 0x10) & ~BIT(IRQ_WORK_VECTOR % 32);
}

/*
 * For how long did the CPU get nothing done? 0: it does. What a sample takes besides our handler,
 * the NMI itself and others' handlers, is not in its time: where that is dear, under a hypervisor
 * or on a busy host, samples may leave a CPU nothing but its own ticks, or a thread so few
 * instructions between two of them that it is not through with a system call, and who waits for
 * the CPU waits on.
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
	 * An NMI, or the interrupt that samples, is one itself. Softirqs of kernel threads are what
	 * those do; others are an interrupt's end, which ticks may follow one another by.
	 */
	if (hardirq_count() >= 2 * HARDIRQ_OFFSET || need_resched() ||
	    (in_serving_softirq() && !(current->flags & PF_KTHREAD)) || interrupt_waits())
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
 * After a sample that began at @began, which is timed, for all since the last one that was:
 * nanoseconds for which there must not be more; 0: none.
 *
 * Which one is timed is drawn, one in sixteen on the average, unless they are rare. Were it each
 * sixteenth, a storm whose NMIs come in step with what they interrupt would have the same of its
 * samples timed for ever: the short ones, those of one context of two, or those that find no
 * interrupt.
 *
 * An NMI may come at any time here, with a pfm_storm() of its own: if it did not, and each NMI has
 * the next one, a tick that is interrupted here would never end. Then times may be later than @now,
 * and counts those of both, or of one: that ends a window, or makes a pause of the usual length.
 */
u64 pfm_storm(u64 began)
{
	struct storm *storm = this_cpu_ptr(&storms);
	u64 now = rdtsc(), window = (u64)tsc_khz * STORM_MS, gone = now - storm->began;
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);
	u64 least = 0, pause = 0, starved = rate || percent ? starved_for(storm, now) : 0;
	bool rare;

	/* The time in which there may be as many, that take as long. */
	storm->samples += storm->drawn;
	storm->spent += (now - began) * storm->drawn;
	if (rate)
		least = (u64)storm->samples * tsc_khz * MSEC_PER_SEC / rate;
	if (percent)
		least = max(least, storm->spent * 100 / percent);
	/* One that took long may have been interrupted itself, by a hypervisor. */
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
	rare = now - storm->last > (u64)tsc_khz * STORM_RARE_MS * storm->drawn;
	storm->last = now;
	storm->drawn = rare ? 1 : STORM_LEAST + hash_64(now, STORM_BITS);
	/* Pairs with an NMI's own pfm_storm(), which goes by what it finds: drawn is set before. */
	barrier();
	this_cpu_write(pfm_storm_left, storm->drawn);
	return tsc_khz ? pause * NSEC_PER_MSEC / tsc_khz : 0;
}
