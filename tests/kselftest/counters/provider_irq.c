// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_irq: hard interrupts by line and by vector, and softirqs.
 */
#include "provider.h"
#include <pthread.h>
#include <linux/membarrier.h>
#include <termios.h>

static volatile bool stop, is_spinning;
static volatile sig_atomic_t nr_signals;

static void count_signal(int signal)
{
	nr_signals++;
}

static void *spin_until_stopped(void *arg)
{
	pin_to_cpu(1);
	is_spinning = true;
	while (!stop)
		;
	return NULL;
}

/*
 * Causes IPIs by membarrier() and by signals to a thread that spins on another CPU, timer
 * interrupts by sleeps, and interrupts of the serial line by output.
 */
static void cause_interrupts(void)
{
	pthread_t thread;

	stop = false;
	is_spinning = false;
	nr_signals = 0;
	signal(SIGUSR1, count_signal);
	pthread_create(&thread, NULL, spin_until_stopped, NULL);
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	pin_to_cpu(0);
	wait_until(is_spinning);
	for (int i = 0; i < 40; i++) {
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
		pthread_kill(thread, SIGUSR1);
		sleep_ms(5);
		/* A signal that is sent while another one is pending causes no interrupt. */
		wait_until(nr_signals > i);
		printf("# output, for the interrupts of the serial line\n");
		tcdrain(1);
	}
	stop = true;
	pthread_join(thread, NULL);
}

static int64_t proc_interrupts(const void *row)
{
	return proc_row_sum("/proc/interrupts", row);
}

static int64_t proc_softirqs(const void *row)
{
	return proc_row_sum("/proc/softirqs", row);
}

static int64_t call_function_total(const void *arg)
{
	return total_by_name("irq/vector/call_function") +
		total_by_name("irq/vector/call_function_single");
}

/* The line with the most interrupts, of those with an instance, and its row's first column. */
static char line_name[PERFCOUNTERS_NAME_MAX], line_row[16];

static bool find_busiest_line(void)
{
	int64_t max = 0;

	for (uint32_t n = 1; n < pc.h->nr_slots; n++) {
		const char *name = (const char *)pc.desc[n].name;
		int irq;

		if (sscanf(name, "irq/%d/", &irq) != 1 || pc_total(&pc, n) <= max)
			continue;
		max = pc_total(&pc, n);
		strcpy(line_name, name);
		snprintf(line_row, sizeof(line_row), "%d:", irq);
	}
	return max > 0;
}

int main(void)
{
	static const char *const soft[][2] = {
		{ "softirq/timer", "TIMER:" }, { "softirq/sched", "SCHED:" },
		{ "softirq/rcu", "RCU:" }, { "softirq/tasklet", "TASKLET:" },
		{ "softirq/net_rx", "NET_RX:" }, { "softirq/hrtimer", "HRTIMER:" },
	};
	char name[100];

	plan(5 + 6 + 2 + NR_RELOAD_TESTS);
	load_provider("pfc_irq");
	test_matches_proc("0.15 irq: local timer is LOC of /proc/interrupts", instance_total,
			  "irq/vector/local_timer", proc_interrupts, "LOC:", cause_interrupts, 20,
			  SLACK_IN_FLIGHT);
	test_matches_proc("0.15 irq: reschedule is RES of /proc/interrupts", instance_total,
			  "irq/vector/reschedule", proc_interrupts, "RES:", cause_interrupts, 20,
			  SLACK_IN_FLIGHT);
	test_matches_proc("0.15 irq: function calls are CAL of /proc/interrupts",
			  call_function_total, NULL, proc_interrupts,
			  "CAL:", cause_interrupts, 20, SLACK_IN_FLIGHT);
	test_matches_proc("0.15 irq: irq_work is IWI of /proc/interrupts", instance_total,
			  "irq/vector/irq_work", proc_interrupts, "IWI:", cause_interrupts, 0,
			  SLACK_IN_FLIGHT);
	test_matches_proc("0.15 irq: thermal interrupts are TRM of /proc/interrupts",
			  instance_total,
			  "irq/vector/thermal_apic", proc_interrupts, "TRM:", cause_interrupts, 0,
			  SLACK_IN_FLIGHT);
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "0.15 irq: %s is %s of /proc/softirqs", soft[i][0],
			 soft[i][1]);
		test_matches_proc(name, instance_total, soft[i][0], proc_softirqs, soft[i][1],
				  cause_interrupts, i < 3 ? 5 : 0, SLACK_IN_FLIGHT);
	}
	if (ok(find_busiest_line(),
	       "0.14 irq: a line has an instance after its first interrupts")) {
		snprintf(name, sizeof(name), "0.15 irq: %s is %s of /proc/interrupts", line_name,
			 line_row);
		test_matches_proc(name, instance_total, line_name, proc_interrupts, line_row,
				  cause_interrupts, 10, SLACK_IN_FLIGHT);
	} else {
		ok(false, "0.15 irq: a line's interrupts are those of /proc/interrupts");
	}
	test_unload_and_reload("pfc_irq", "irq/vector/local_timer", cause_interrupts);
	return finish();
}
