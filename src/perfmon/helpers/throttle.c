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
#include "helpers.h"

static uint max_sample_rate = 100000;
module_param(max_sample_rate, uint, 0644);
MODULE_PARM_DESC(max_sample_rate, "Samples of a CPU in a second, at most; 0: any number");

static uint max_sample_percent = 25;
module_param(max_sample_percent, uint, 0644);
MODULE_PARM_DESC(max_sample_percent, "Of a CPU's time for samples, at most; 0: any");

/*
 * Length of a window in milliseconds. The rate and the total time of a CPU's samples are limited in
 * each window of this length.
 */
#define SAMPLE_WINDOW_MS	10

/*
 * The time of only some samples is measured; these are the "timed samples". The interval from one
 * timed sample to the next is 9 to 24 samples: MIN_TIMED_SAMPLE_INTERVAL plus a random number of
 * RANDOM_INTERVAL_BITS bits.
 */
#define MIN_TIMED_SAMPLE_INTERVAL	9
#define RANDOM_INTERVAL_BITS	4

/*
 * Every sample is timed while samples are more than RARE_SAMPLE_GAP_MS apart on average, because a
 * few expensive NMIs can take all of a CPU's time. If only every 16th expensive NMI were timed, it
 * could take seconds to collect MIN_STARVED_SAMPLES timed samples.
 */
#define RARE_SAMPLE_GAP_MS	1

/*
 * A CPU is considered starved if a task or an interrupt was waiting for it at MIN_STARVED_SAMPLES
 * or more successive timed samples. However, up to one in SAMPLES_PER_STARVED_MISS of these samples
 * may have found nothing waiting. The samples must span at least MIN_STARVED_SPAN_MS. Samples that
 * span more than MAX_STARVED_SPAN_MS are too rare to starve the CPU. If a CPU is starved, sampling
 * pauses for three times the duration of the starvation. The pause is 4 * SAMPLE_WINDOW_MS to
 * MAX_STARVED_PAUSE_MS long.
 *
 * With a lower MIN_STARVED_SAMPLES, starvation is detected earlier, but more CPUs are considered
 * starved by mistake. If a CPU spends 60 % of its time in softirqs or interrupts, it is considered
 * starved by mistake in 2 % of the decisions that are made from 16 timed samples. With 8 timed
 * samples, the decision is wrong in 11 % of cases. If each NMI takes 3 ms, 16 timed samples detect
 * starvation after 48 ms.
 */
#define MIN_STARVED_SAMPLES		16
#define SAMPLES_PER_STARVED_MISS	8
#define MIN_STARVED_SPAN_MS		5
#define MAX_STARVED_SPAN_MS		10000
#define MAX_STARVED_PAUSE_MS	400

struct sample_window {
	/*
	 * The current window: its start (TSC), the total time of its samples in TSC ticks, and the
	 * number of its samples.
	 */
	u64 began;
	u64 sample_ticks;
	u32 samples;
	/*
	 * Number of samples that the next timed sample stands for: itself and the untimed samples
	 * before it.
	 */
	u32 timed_interval;
	/* Time stamp counter at the last timed sample. */
	u64 last;
	/* TSC at the first of the timed samples that decide whether the CPU is starved. */
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
 * Number of samples until the next timed sample. The number is 0 or negative while
 * pfm_throttle_time() accounts a timed sample. Just before pfm_throttle_time() returns, it stores a
 * new number.
 */
DEFINE_PER_CPU(u32, pfm_timed_sample_in) = 1;

/*
 * Returns true if a system interrupt (timer, reschedule, function call) is pending in the local
 * APIC.
 *
 * If an NMI is pending when the handler of the previous NMI returns, the CPU delivers it before the
 * next instruction and before any interrupt. If every NMI causes the next NMI, only the APIC shows
 * that something waits for the CPU: the interrupted code makes no progress, and no tick sets
 * need_resched(). A pending interrupt of irq_work does not count, because samples queue irq_work.
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
 * If every NMI causes the next NMI, the CPU can be stuck in the timer interrupt before irq_enter(),
 * or after irq_exit(), where the kernel programs the timer. Before irq_enter() and after
 * irq_exit(), no interrupt becomes pending in the APIC, and hardirq_count() does not count the
 * timer interrupt. Only unchanged registers show that a CPU is stuck there. If a guest of KVM was
 * interrupted, the result is false: @regs are the registers of the host, which stay the same while
 * the guest makes progress.
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
 * The measured time of a sample does not include the delivery of the NMI and other NMI handlers.
 * Under a hypervisor or on a busy host, the delivery of the NMI and other NMI handlers may take
 * longer than the NMI handler of this module. A CPU with slow NMIs can be busy with nothing but
 * samples and ticks. Slow NMIs can also keep a thread from finishing a system call while other
 * threads wait for the CPU.
 */
static __no_kcsan u64 update_starved_ticks(struct sample_window *window, u64 now,
					   const struct pt_regs *regs)
{
	u64 gone;
	bool starved;

	if (now - window->timed_since > (u64)tsc_khz * MAX_STARVED_SPAN_MS) {
		window->timed = 0;
		window->starved = 0;
	}
	if (!window->timed++)
		window->timed_since = now;
	/*
	 * hardirq_count() includes the NMI or interrupt of the sample itself once. A softirq that
	 * has interrupted a user thread may be running at the end of a tick. A softirq in a kernel
	 * thread, such as ksoftirqd, does not count as starvation. If ticks follow each other
	 * without a gap, the CPU executes only ticks and their softirqs.
	 */
	if (hardirq_count() >= 2 * HARDIRQ_OFFSET || need_resched() ||
	    (in_serving_softirq() && !(current->flags & PF_KTHREAD)) || interrupt_waits() ||
	    makes_no_progress(window, regs))
		window->starved++;
	gone = now - window->timed_since;
	if (window->timed < MIN_STARVED_SAMPLES || gone < (u64)tsc_khz * MIN_STARVED_SPAN_MS)
		return 0;
	starved = window->starved >= window->timed - window->timed / SAMPLES_PER_STARVED_MISS;
	window->timed = 0;
	window->starved = 0;
	return starved ? gone : 0;
}

/*
 * Accounts a timed sample that began at @began (TSC), together with the samples since the previous
 * timed sample. If an NMI took the sample, @regs are the registers of the interrupted code; if an
 * interrupt took it, @regs is NULL. Returns for how many nanoseconds sampling must pause, or 0.
 *
 * Unless samples are rare, the interval to the next timed sample is random. With a fixed interval,
 * NMIs could be in step with the interrupted code. All timed samples could then be alike, for
 * example all short, or all outside interrupt handlers.
 *
 * Context: preemption off. While pfm_throttle_time() runs in an interrupt, an NMI may call it as
 * well, at any point. The NMI must not wait for the interrupted pfm_throttle_time(), which never
 * continues if every NMI causes the next NMI. An interrupted pfm_throttle_time() may lose samples
 * or count them twice. If the NMI stores a time stamp later than @now of the interrupted
 * pfm_throttle_time(), the unsigned time difference becomes very large. A wrong number of samples
 * can end a window early or cause one pause of at most MAX_STARVED_PAUSE_MS. A wrong number does
 * not affect the next window, which begins with 0 samples. KCSAN would report the races between an
 * interrupt and an NMI that both run pfm_throttle_time(), so the function has __no_kcsan.
 */
__no_kcsan u64 pfm_throttle_time(u64 began, const struct pt_regs *regs)
{
	struct sample_window *window = this_cpu_ptr(&sample_windows);
	u64 now = rdtsc(), length = (u64)tsc_khz * SAMPLE_WINDOW_MS, gone = now - window->began;
	u32 timed_interval = this_cpu_xchg(sample_windows.timed_interval, 1);
	u32 rate = READ_ONCE(max_sample_rate), percent = READ_ONCE(max_sample_percent);
	u64 starved = rate || percent ? update_starved_ticks(window, now, regs) : 0;
	u64 least = 0, pause = 0;
	bool rare;

	/*
	 * Compute in @least, in TSC ticks, the shortest window in which these samples would stay
	 * within both limits, max_sample_rate and max_sample_percent.
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
		pause = clamp(3 * starved, 4 * length, (u64)tsc_khz * MAX_STARVED_PAUSE_MS);
	if (gone >= length || least > length || starved) {
		window->began = now;
		window->sample_ticks = 0;
		window->samples = 0;
	} else {
		pause = 0;
	}
	rare = now - window->last > (u64)tsc_khz * RARE_SAMPLE_GAP_MS * timed_interval;
	window->last = now;
	timed_interval = rare ? 1 : MIN_TIMED_SAMPLE_INTERVAL + hash_64(now, RANDOM_INTERVAL_BITS);
	window->timed_interval = timed_interval;
	/*
	 * Pairs with account_sampling_time() in an NMI on this CPU: account_sampling_time()
	 * decrements pfm_timed_sample_in, then pfm_throttle_time() reads @timed_interval.
	 */
	barrier();
	this_cpu_write(pfm_timed_sample_in, timed_interval);
	return tsc_khz ? pause * NSEC_PER_MSEC / tsc_khz : 0;
}
