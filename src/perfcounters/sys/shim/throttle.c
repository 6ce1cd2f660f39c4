// SPDX-License-Identifier: GPL-2.0
/*
 * Limits the rate and the time of a CPU's samples, and detects samples that leave the CPU no time
 * for other code. Documentation/sampling.md describes both mechanisms.
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
 * Length in milliseconds of the windows in which the number and the time of samples are limited.
 */
#define WINDOW_MS	10

/*
 * One in 9 to 24 samples is timed. The interval is MIN_TIMED_INTERVAL plus a random number of
 * TIMED_INTERVAL_BITS bits.
 */
#define MIN_TIMED_INTERVAL	9
#define TIMED_INTERVAL_BITS	4

/*
 * Every sample is timed while samples are more than RARE_MS apart on average. A few expensive NMIs
 * can take all of a CPU's time. If only every 16th expensive NMI were timed, STARVED_TIMED timed
 * samples would take seconds.
 */
#define RARE_MS	1

/*
 * A CPU counts as starved if STARVED_TIMED or more successive timed samples, over at least
 * STARVED_MS, found something waiting for the CPU. One in STARVED_MISSES of the timed samples may
 * have found nothing. If STARVED_TIMED timed samples take more than MAX_STARVED_MS, samples are too
 * rare to starve the CPU. If a CPU is starved, sampling pauses for three times as long as the CPU
 * has starved, but for at least four windows and at most STARVED_PAUSE_MS.
 *
 * STARVED_TIMED is a compromise. A CPU that spends 60 % of its time in softirqs or interrupts is
 * taken for a starved CPU in 2 % of the cases with 16 samples, and in 11 % with 8 samples. With 16
 * samples, a CPU that NMIs of 3 ms starve is detected after 48 ms.
 */
#define STARVED_TIMED		16
#define STARVED_MISSES		8
#define STARVED_MS		5
#define MAX_STARVED_MS		10000
#define STARVED_PAUSE_MS	400

struct sample_window {
	/*
	 * The current window: its start (TSC), the time of its samples in ticks, and the number of
	 * its samples.
	 */
	u64 began;
	u64 sample_ticks;
	u32 samples;
	/* Number of samples that the next timed sample represents, itself included. */
	u32 timed_interval;
	/* Time stamp counter when the last sample was timed. */
	u64 last;
	/*
	 * Evidence of starvation: the time at which the first of these samples was timed, the
	 * number of samples timed since then, and how many of them found something waiting for the
	 * CPU.
	 */
	u64 timed_since;
	u32 timed;
	u32 starved;
	/*
	 * The registers of the code that the last timed NMI interrupted while interrupts were off.
	 */
	struct pt_regs regs;
};

static DEFINE_PER_CPU(struct sample_window, sample_windows) = { .timed_interval = 1 };
/*
 * Number of samples until the next timed sample; 0 or negative while a call of pfm_throttle_time()
 * in progress has not written the variable yet.
 */
DEFINE_PER_CPU(u32, pfm_timed_sample_in) = 1;

/*
 * Returns true if a system interrupt (timer, reschedule, function call) is pending in the local
 * APIC.
 *
 * An NMI that is due when the previous handler returns is delivered before the next instruction and
 * before any interrupt. If every NMI causes the next NMI, the interrupted code makes no progress,
 * and no tick sets need_resched(). In this state only the APIC shows that something waits for the
 * CPU. The irq_work interrupt is ignored, because samples raise that interrupt.
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
 * interrupt, before irq_enter(). The interrupted instruction can also be at the end of the timer's
 * interrupt, after irq_exit(), where the kernel programs the timer. At these places no interrupt is
 * pending or counted, and no interrupt becomes pending. NMIs in a guest of KVM are ignored, because
 * the guest makes progress while the registers of its host stay the same.
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
 * Records whether something waits for the CPU at this timed sample. Returns how long the CPU has
 * starved, in cycles of the TSC; 0 if the CPU makes progress, or if too few samples were timed to
 * decide.
 *
 * The time of a sample includes neither the delivery of the NMI nor other NMI handlers. The
 * delivery and other handlers may take longer than the handler of this module, under a hypervisor
 * or on a busy host. Samples may then leave a CPU time for its ticks only, or leave a thread so few
 * instructions between two samples that it does not finish a system call while other threads wait.
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
	 * The NMI or interrupt of the sample counts once in hardirq_count(). A softirq in a thread
	 * other than ksoftirqd may be the end of an interrupt: if the next tick follows each tick
	 * at once, the CPU executes only softirqs and ticks.
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
 * Accounts a timed sample that began at @began, and the samples before it that were not timed.
 * @regs are the registers of the code that an NMI interrupted; NULL for samples that an interrupt
 * takes. Returns for how many nanoseconds the contexts that sample must pause, or 0.
 *
 * Unless samples are rare, the next timed sample is drawn at random. If the distance were fixed,
 * NMIs in step with the interrupted code would always time the same kind of sample: only short
 * samples, only samples of one of two contexts, or only samples that hit no interrupt.
 *
 * Context: preemption off. An NMI may call this function while a call from an interrupt is at any
 * point. The NMI must not wait for that call: if every NMI causes the next NMI, the interrupted
 * call never continues. The interrupted call may therefore find time stamps later than @now, which
 * the call takes for very old time stamps, and may lose or repeat counts. A wrong count can end a
 * window early or cause one pause of at most STARVED_PAUSE_MS. A wrong count ends with the window,
 * because each window begins at zero. pfm_throttle_time() has __no_kcsan because KCSAN would report
 * the races of the two calls.
 */
__no_kcsan u64 pfm_throttle_time(u64 began, const struct pt_regs *regs)
{
	struct sample_window *window = this_cpu_ptr(&sample_windows);
	u64 now = rdtsc(), length = (u64)tsc_khz * WINDOW_MS, gone = now - window->began;
	u32 timed_interval = this_cpu_xchg(sample_windows.timed_interval, 1);
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);
	u64 least = 0, pause = 0, starved = rate || percent ? starved_for(window, now, regs) : 0;
	bool rare;

	/* The least time in which the limits allow the samples of this window. */
	window->samples += timed_interval;
	window->sample_ticks += (now - began) * timed_interval;
	if (rate)
		least = (u64)window->samples * tsc_khz * MSEC_PER_SEC / rate;
	if (percent)
		least = max(least, window->sample_ticks * 100 / percent);
	/* The time of a sample may include time that a hypervisor took. */
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
	 * Pairs with an NMI that counts pfm_timed_sample_in down to 0, and then reads
	 * window->timed_interval.
	 */
	barrier();
	this_cpu_write(pfm_timed_sample_in, timed_interval);
	return tsc_khz ? pause * NSEC_PER_MSEC / tsc_khz : 0;
}
