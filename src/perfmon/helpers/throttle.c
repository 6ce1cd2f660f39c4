// SPDX-License-Identifier: GPL-2.0
/*
 * Limits the rate of samples on a CPU and the time that they take. Also detects when samples leave
 * the CPU no time for other code. Documentation/sampling.md describes both mechanisms.
 */
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/ptrace.h>
#include <asm/tsc.h>
#include "sampling.h"

static uint max_sample_rate = 100000;
module_param(max_sample_rate, uint, 0644);
MODULE_PARM_DESC(max_sample_rate, "Samples of a CPU in a second, at most; 0: any number");

static uint max_sample_percent = 25;
module_param(max_sample_percent, uint, 0644);
MODULE_PARM_DESC(max_sample_percent, "Of a CPU's time for samples, at most; 0: any");

/*
 * Length in milliseconds of a window, in which the number of a CPU's samples and their total time
 * are limited.
 */
#define WINDOW_MS	10

/*
 * The time of every 9th to 24th sample is measured ("timed sample"). The interval between timed
 * samples is MIN_TIMED_INTERVAL plus a random number of TIMED_INTERVAL_BITS bits.
 */
#define MIN_TIMED_INTERVAL	9
#define TIMED_INTERVAL_BITS	4

/*
 * Every sample is timed while samples are more than RARE_MS apart on average, because a few
 * expensive NMIs can take all of a CPU's time. If only every 16th expensive NMI were timed, it
 * could take seconds to collect STARVED_TIMED timed samples.
 */
#define RARE_MS	1

/*
 * A CPU is taken for starved if, at STARVED_TIMED or more successive timed samples, a task or an
 * interrupt was waiting for the CPU. Up to one in STARVED_MISSES timed samples may find nothing
 * waiting for the CPU. The samples must span at least STARVED_MS. Samples that span more than
 * MAX_STARVED_MS are too rare to starve the CPU. If a CPU is starved, sampling pauses for three
 * times as long as the CPU has starved, but for at least four windows and at most STARVED_PAUSE_MS.
 *
 * STARVED_TIMED is a compromise between mistakes and delay. A CPU that spends 60 % of its time in
 * softirqs or interrupts is not starved, but is taken for starved by mistake: in 2 % of cases if
 * STARVED_TIMED is 16, and in 11 % if STARVED_TIMED is 8. If each NMI takes 3 ms, 16 timed samples
 * detect starvation after 48 ms.
 */
#define STARVED_TIMED		16
#define STARVED_MISSES		8
#define STARVED_MS		5
#define MAX_STARVED_MS		10000
#define STARVED_PAUSE_MS	400

struct sample_window {
	/*
	 * The current window: its start (TSC), the total time of its samples in TSC ticks, and the
	 * number of its samples.
	 */
	u64 began;
	u64 sample_ticks;
	u32 samples;
	/* The next timed sample counts as this many samples: itself and untimed ones before it. */
	u32 timed_interval;
	/* Time stamp counter at the last timed sample. */
	u64 last;
	/* Evidence of starvation: time stamp of the first timed sample that is considered. */
	u64 timed_since;
	/* Number of timed samples from @timed_since on. */
	u32 timed;
	/* Number of timed samples from @timed_since on that found something waiting for the CPU. */
	u32 starved;
	/*
	 * The registers of the code that the last timed NMI interrupted while interrupts were off.
	 */
	struct pt_regs regs;
};

static DEFINE_PER_CPU(struct sample_window, sample_windows) = { .timed_interval = 1 };
/*
 * Number of samples until the next timed sample. When a timed sample is due, the number is 0 or
 * negative until pfm_throttle_time() sets a new number at its end.
 */
DEFINE_PER_CPU(u32, pfm_timed_sample_in) = 1;

/*
 * Returns true if a system interrupt (timer, reschedule, function call) is pending in the local
 * APIC.
 *
 * If an NMI is pending when the handler of the previous NMI returns, the CPU delivers it before the
 * next instruction and before any interrupt. If every NMI causes the next NMI, only the APIC shows
 * that something waits for the CPU: the interrupted code makes no progress, and no tick sets
 * need_resched(). A pending irq_work interrupt is not considered, because samples raise it.
 */
static bool interrupt_waits(void)
{
	return boot_cpu_has(X86_FEATURE_APIC) &&
	       apic->read(APIC_IRR + LOCAL_TIMER_VECTOR / 32 * 0x10) & ~BIT(IRQ_WORK_VECTOR % 32);
}

/*
 * Returns true if the NMI interrupted the same instruction as the last timed NMI, with the same
 * registers and with interrupts off.
 *
 * If every NMI causes the next NMI, the interrupted instruction can be in the entry of the timer's
 * interrupt, before irq_enter(), or at the end of this interrupt, after irq_exit(), where the
 * kernel programs the timer. In the entry and at the end of the timer's interrupt, only the
 * unchanged registers of the interrupted code show that the CPU makes no progress: no interrupt is
 * pending in the APIC, becomes pending, or is counted in hardirq_count(). NMIs in a guest of KVM
 * are ignored, because the guest makes progress while the registers of its host stay the same.
 */
static bool makes_no_progress(struct sample_window *window, const struct pt_regs *regs)
{
	bool same;

	if (!regs || regs->flags & X86_EFLAGS_IF || current->flags & PF_VCPU)
		return false;
	same = !memcmp(&window->regs, regs, sizeof(*regs));
	window->regs = *regs;
	return same;
}

/*
 * Records whether, at this timed sample, something waits for the CPU. Returns how long the CPU has
 * starved, in TSC ticks. Returns 0 if the CPU makes progress, or if too few samples were timed to
 * decide.
 *
 * The time of a sample includes neither the delivery of the NMI nor other NMI handlers. Under a
 * hypervisor or on a busy host, the delivery and other handlers may take longer than the handler of
 * this module. With slow NMIs, a CPU may have time for samples and ticks only, or a thread may
 * execute too few instructions between samples to finish a system call while other threads wait.
 */
static __no_kcsan u64 starved_for(struct sample_window *window, u64 now, const struct pt_regs *regs)
{
	u64 gone;
	bool starved;

	if (now - window->timed_since > (u64)tsc_khz * MAX_STARVED_MS) {
		window->timed = 0;
		window->starved = 0;
	}
	if (!window->timed++)
		window->timed_since = now;
	/*
	 * hardirq_count() includes the NMI or interrupt of the sample itself once. A softirq in a
	 * user thread, not in ksoftirqd, may run at the end of a tick. If the next tick follows
	 * each tick immediately, the CPU executes only ticks and their softirqs.
	 */
	if (hardirq_count() >= 2 * HARDIRQ_OFFSET || need_resched() ||
	    (in_serving_softirq() && !(current->flags & PF_KTHREAD)) || interrupt_waits() ||
	    makes_no_progress(window, regs))
		window->starved++;
	gone = now - window->timed_since;
	if (window->timed < STARVED_TIMED || gone < (u64)tsc_khz * STARVED_MS)
		return 0;
	starved = window->starved >= window->timed - window->timed / STARVED_MISSES;
	window->timed = 0;
	window->starved = 0;
	return starved ? gone : 0;
}

/*
 * Accounts a timed sample that began at @began (TSC), together with the samples since the previous
 * timed sample. If an NMI took the sample, @regs are the registers of the interrupted code; if an
 * interrupt took it, @regs is NULL. Returns the time in nanoseconds for which the contexts that
 * sample must pause, or 0.
 *
 * Unless samples are rare, the interval to the next timed sample is random. With a fixed interval,
 * NMIs in step with the interrupted code could make all timed samples alike, for example all short,
 * all of only one of two contexts, or all outside interrupt handlers.
 *
 * Context: preemption off. While pfm_throttle_time() runs in an interrupt, an NMI may call it as
 * well, at any point. The NMI must not wait for the interrupted pfm_throttle_time(), which never
 * continues if every NMI causes the next NMI. Because the NMI does not wait, the interrupted
 * pfm_throttle_time() may lose samples or count them twice. Because time differences are unsigned,
 * the interrupted pfm_throttle_time() may take a time stamp later than its @now for a very old one.
 * A wrong number of samples can end a window early or cause one pause of at most STARVED_PAUSE_MS,
 * but has no effect on the next window, which begins at zero. pfm_throttle_time() has __no_kcsan
 * because KCSAN would report the races between an interrupt and an NMI that run this function.
 */
__no_kcsan u64 pfm_throttle_time(u64 began, const struct pt_regs *regs)
{
	struct sample_window *window = this_cpu_ptr(&sample_windows);
	u64 now = rdtsc(), length = (u64)tsc_khz * WINDOW_MS, gone = now - window->began;
	u32 timed_interval = this_cpu_xchg(sample_windows.timed_interval, 1);
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);
	u64 least = 0, pause = 0, starved = rate || percent ? starved_for(window, now, regs) : 0;
	bool rare;

	/*
	 * Compute in @least the shortest time, in TSC ticks, in which the samples of this window
	 * exceed neither max_sample_rate nor max_sample_percent.
	 */
	window->samples += timed_interval;
	window->sample_ticks += (now - began) * timed_interval;
	if (rate)
		least = (u64)window->samples * tsc_khz * MSEC_PER_SEC / rate;
	if (percent)
		least = max(least, window->sample_ticks * 100 / percent);
	/*
	 * The pause is limited, because the measured time of a sample may include time in which a
	 * hypervisor did not run this CPU.
	 */
	if (least > gone)
		pause = min(least - gone, 4 * length);
	if (starved)
		pause = clamp(3 * starved, 4 * length, (u64)tsc_khz * STARVED_PAUSE_MS);
	if (gone >= length || least > length || starved) {
		window->began = now;
		window->sample_ticks = 0;
		window->samples = 0;
	} else {
		pause = 0;
	}
	rare = now - window->last > (u64)tsc_khz * RARE_MS * timed_interval;
	window->last = now;
	timed_interval = rare ? 1 : MIN_TIMED_INTERVAL + hash_64(now, TIMED_INTERVAL_BITS);
	window->timed_interval = timed_interval;
	/*
	 * Pairs with throttle_time() in an NMI on this CPU, which counts pfm_timed_sample_in down
	 * to 0 before pfm_throttle_time() reads @timed_interval.
	 */
	barrier();
	this_cpu_write(pfm_timed_sample_in, timed_interval);
	return tsc_khz ? pause * NSEC_PER_MSEC / tsc_khz : 0;
}
