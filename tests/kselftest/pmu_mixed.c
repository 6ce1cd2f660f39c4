// SPDX-License-Identifier: GPL-2.0
/*
 * guest: pmu-unequal pmu-hybrid
 * gate: pmu-unequal
 * worlds: stock debug
 *
 * Processors of one machine that differ: CPU 1 has counters 0 to 3, CPU 0 has 8; or
 * CPUID says that there are two kinds. Nothing is counted wrong in silence, no register
 * that is not there is the end of anything.
 */
#include "sampling.h"

#define LAST	7	/* a counter that CPU 1 has not */

/* A thread that spins, and says how far it is. */
static struct {
	volatile __u64 rounds;
	volatile __u32 tid;
	volatile int end;
} *shared;

static pid_t spinner(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	on_cpu(0);
	shared->tid = this_thread();
	while (!shared->end) {
		spin(1000);
		shared->rounds++;
	}
	_exit(0);
}

static void move(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(pid, sizeof(set), &set))
		bail("sched_setaffinity");
}

static bool goes_on(void)
{
	__u64 rounds = shared->rounds;

	wait_until(shared->rounds > rounds + 100);
	return shared->rounds > rounds + 100;
}

static int flags_of(int fd, __u16 number, __u64 *value)
{
	struct pfarg_pmd pmd = { .reg_num = number };
	struct perfmon_vector v = { (__u64)&pmd, 1, sizeof(pmd) };

	if (ioctl(fd, PERFMON_READ_PMDS, &v))
		return -errno;
	*value = pmd.reg_value;
	return pmd.reg_flags;
}

/* A context on a thread, with that counter, counting. */
static int counting(__u16 number, __u32 tid)
{
	int fd = pfm_create(0);

	pfm_write_pmc(fd, number, pfm_instructions(SKYLAKE));
	pfm_write_pmd(fd, number, 0);
	if (pfm_load(fd, tid) || pfm_start(fd))
		bail("a context that counts");
	return fd;
}

static bool is_told(int fd, __u32 what)
{
	struct pfarg_ovfl_msg msg;

	return pfm_message(fd, &msg, 10000) && msg.msg_type == what;
}

#define TRACING	"/sys/kernel/tracing/"
#define CONSOLE	TRACING "events/printk/console/"
#define WORK	TRACING "events/irq_vectors/irq_work_entry/"

/* Traces the kernel's log lines about missing registers, and the interrupts that they are from. */
static void trace_log(void)
{
	write_file(CONSOLE "filter", "msg ~ \"*has not all of its registers*\"");
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
	write_file(WORK "enable", "1");
	write_file(CONSOLE "enable", "1");
}

/*
 * Returns how much deeper preemption was disabled where the line was logged than where the interrupt
 * began, or -1 if that is not known. Each spinlock that is held counts. A line of the trace is
 * "TASK-PID [CPU] FLAGS TIME: EVENT: ...", and the fourth flag is the depth, or '.' for 0.
 */
static int depth_of_log(void)
{
	char line[400], flags[16];
	int began = -1, depth = -1;
	FILE *f = fopen(TRACING "trace", "re");

	write_file(CONSOLE "enable", "0");
	write_file(WORK "enable", "0");
	while (f && fgets(line, sizeof(line), f)) {
		char *at = strstr(line, "[001]");
		int here;

		if (!at || sscanf(at + 5, "%15s", flags) != 1 || strlen(flags) < 4)
			continue;
		here = flags[3] == '.' ? 0 : flags[3] - '0';
		if (strstr(line, "irq_work_entry"))
			began = here;
		else if (strstr(line, "has not all of its registers") && began >= 0)
			depth = here - began;
	}
	if (f)
		fclose(f);
	return depth;
}

static void threads(void)
{
	pid_t pid = spinner();
	__u64 before = 0, value = 0;
	int all, fd;

	wait_until(shared->tid);
	all = counting(0, shared->tid);
	ok(goes_on() && pfm_read_pmd(all, 0), "1.4 a thread is counted where all counters are");
	move(pid, 1);
	ok(goes_on(), "1.4 it goes on where some are not");
	before = pfm_read_pmd(all, 0);
	ok(goes_on() && pfm_read_pmd(all, 0) > before,
	   "1.4 and is counted there, by a counter that is there");
	is(flags_of(all, 0, &value), 0, "1.4 of which nothing is missing");
	close(all);
	move(pid, 0);
	goes_on();
	fd = counting(LAST, shared->tid);
	ok(goes_on() && pfm_read_pmd(fd, LAST), "1.4 a counter that CPU 1 has not, on CPU 0");
	is(flags_of(fd, LAST, &before), 0, "1.4 of which nothing is missing");
	trace_log();
	move(pid, 1);
	ok(is_told(fd, PFM_MSG_FAULT), "1.4 its thread goes to CPU 1: a message says so");
	ok(kernel_said("CPU 1 has not all of its registers"), "1.4 and the log");
	is(depth_of_log(), 0, "1.4 the log line is printed without a spinlock");
	ok(goes_on(), "1.4 the thread goes on");
	is(flags_of(fd, LAST, &value), PERFMON_REGFL_SHORT, "1.4 its value says that it is short");
	ok(value >= before, "1.4 and has what was counted before");
	is(pfm_start(fd), -ESRCH, "1.4 the context has ended");
	is(pfm_unload(fd), 0, "1.4 it is unloaded");
	move(pid, 0);
	goes_on();
	is(pfm_load(fd, shared->tid), 0, "1.4 loaded again, where the counter is");
	is(pfm_write_pmd(fd, LAST, 0), 0, "1.4 begun anew");
	is(pfm_start(fd), 0, "1.4 and started");
	goes_on();
	is(flags_of(fd, LAST, &value), 0, "1.4 nothing is missing any more");
	ok(value > 0, "1.4 and it counts");
	close(fd);
	shared->end = 1;
	waitpid(pid, NULL, 0);
}

static void cpus(void)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);

	on_cpu(1);
	pfm_write_pmc(fd, LAST, pfm_instructions(SKYLAKE));
	is(pfm_load(fd, 1), 0, "1.4 a CPU's context with a counter that it has not");
	pfm_start(fd);
	ok(is_told(fd, PFM_MSG_FAULT), "1.4 is told so");
	is(pfm_start(fd), -ESRCH, "1.4 and has ended");
	close(fd);
	fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	is(pfm_load(fd, 1), 0, "1.4 one with a counter that it has");
	is(pfm_start(fd), 0, "1.4 is started");
	spin(100000);
	ok(pfm_read_pmd(fd, 0) >= 200000, "1.4 and counts");
	close(fd);
	on_cpu(0);
}

int main(void)
{
	const char *model = getenv("PMU");

	plan(model && !strcmp(model, "hybrid") ? 2 : 31);
	write_file("/proc/sys/kernel/modprobe", "\n");
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	on_cpu(0);
	unload();
	insmod("perfcounters", "");
	is(insmod("pfm_intel", ""), -ENODEV, "1.4 processors that differ are refused");
	if (model && !strcmp(model, "hybrid")) {
		ok(kernel_said("processors of two kinds"), "1.4 in words");
		return finish();
	}
	ok(kernel_said("CPU 1 has not all of these registers"), "1.4 in words");
	if (!cpu_online(1, false))
		bail("CPU 1 offline");
	is(insmod("pfm_intel", ""), 0, "1.4 with those alone that are alike they are not");
	if (!cpu_online(1, true))
		bail("CPU 1 online");
	ok(kernel_said("CPU 1 comes, and has other counters"), "1.4 one that comes and differs is told of");
	threads();
	cpus();
	is(rmmod("pfm_intel"), 0, "1.4 the description goes");
	ok(!kernel_said("unchecked MSR access error"), "1.4 no register was used that is not there");
	return finish();
}
