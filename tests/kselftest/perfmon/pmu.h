/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the tests of the emulated PMU: models, perf events, and code of known length. The
 * environment variable PMU names the model of this guest (see tests/vm/guests).
 * Documentation/emulated-pmu.md lists which counter counts which events.
 */
#ifndef PMU_H
#define PMU_H

#include "kselftest_pc.h"
#include <sys/ioctl.h>
#include <linux/perf_event.h>

struct pmu_model {
	const char *name;
	bool amd;
	int version, counters, fixed;
	bool full_width;
	const char *driver;	/* name as printed in the kernel log */
};

static const struct pmu_model pmu_models[] = {
	{ "arch1", false, 1, 4, 0, false,
	  "generic architected perfmon v1, core PMU driver." },
	{ "arch", false, 2, 4, 3, false,
	  "generic architected perfmon, Intel PMU driver." },
	{ "skylake", false, 4, 4, 3, true,
	  "Skylake events, full-width counters, Intel PMU driver." },
	{ "arch5", false, 5, 8, 4, true,
	  "generic architected perfmon, AnyThread deprecated, full-width counters, Intel PMU driver."
	},
	{ "k8", true, 0, 4, 0, false, "AMD PMU driver." },
	{ "amd", true, 1, 6, 0, false, "Fam17h+ core perfctr, AMD PMU driver." },
	{ "amd2", true, 2, 6, 0, false, "Fam17h+ core perfctr, AMD PMU driver." },
};

#define SKYLAKE	(&pmu_models[2])	/* the model in which faults are tested */

static const struct pmu_model *guest_model(void)
{
	const char *name = getenv("PMU");

	for (unsigned int i = 0; name && i < sizeof(pmu_models) / sizeof(*pmu_models); i++)
		if (!strcmp(pmu_models[i].name, name))
			return &pmu_models[i];
	errno = ENOENT;
	bail("PMU names no model");
}

/*
 * Returns true if the kernel log contains the text @what. The texts of all records are joined
 * first, because a line that is printed in parts may be in several records.
 */
static bool klog_contains(const char *what)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	static char log[1 << 20];
	char record[8192], *text;
	size_t used = 0, size;
	ssize_t len;

	while ((len = read(fd, record, sizeof(record) - 1)) > 0 || (len < 0 && errno == EPIPE)) {
		if (len < 0)
			continue;
		record[len] = '\0';
		text = strchr(record, ';');
		/*
		 * The text of the message is the first line of a record of /dev/kmsg. The other
		 * lines are properties of the device that the message is about.
		 */
		size = text ? strcspn(++text, "\n") : 0;
		if (used + size >= sizeof(log))
			break;
		memcpy(log + used, text, size);
		used += size;
	}
	log[used] = '\0';
	close(fd);
	return strstr(log, what);
}

/*
 * Keeps perf from lowering its maximum sample rate when sampling takes long.
 * perf_event_max_sample_rate cannot be set while perf_cpu_time_max_percent is 0.
 */
static void disable_perf_throttling(void)
{
	write_file("/proc/sys/kernel/perf_cpu_time_max_percent", "25");
	write_file("/proc/sys/kernel/perf_event_max_sample_rate", "10000000");
	write_file("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
}

static inline __u64 rdpmc(__u32 counter)
{
	__u32 low, high;

	asm volatile("rdpmc" : "=a" (low), "=d" (high) : "c" (counter));
	return low | (__u64)high << 32;
}

/* Returns the number of interrupts of a row of /proc/interrupts, such as "NMI:", on all CPUs. */
static inline __u64 nr_interrupts(const char *row)
{
	static char text[1 << 16];
	char *at = strstr(read_file("/proc/interrupts", text, sizeof(text)), row), *end;
	__u64 sum = 0, nr;

	bail_if(!at, row);
	for (at += strlen(row); nr = strtoull(at, &end, 10), end != at; at = end)
		sum += nr;
	return sum;
}

/* The event starts disabled, unless it is a member of a leader's group. */
static int perf_open(struct perf_event_attr *attr, int leader)
{
	attr->size = sizeof(*attr);
	attr->disabled = leader < 0;
	return syscall(SYS_perf_event_open, attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static int perf_user(__u64 hardware_event, int leader)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = hardware_event,
		.exclude_kernel = 1,
	};

	return perf_open(&attr, leader);
}

static __u64 perf_read(int fd)
{
	__u64 value;

	bail_if(read(fd, &value, sizeof(value)) != sizeof(value), "read of an event");
	return value;
}

static void perf_start(int fd)
{
	ioctl(fd, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
	ioctl(fd, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
}

static void perf_stop(int fd)
{
	ioctl(fd, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
}

/* Executes two instructions per round. */
static inline void spin(__u64 rounds)
{
	asm volatile("1: dec %0\n jnz 1b" : "+r"(rounds) : : "cc");
}

/* For instructions the result is 2 * @rounds, plus a constant overhead. */
static __attribute__((noinline)) __u64 perf_spin(int fd, __u64 rounds)
{
	perf_start(fd);
	spin(rounds);
	perf_stop(fd);
	return perf_read(fd);
}

/* Results of the steps that tests/modules/msr_raw.c executes in the kernel, one for each step. */

#define GP	(-5)

static struct msr_raw_result {
	long long err;
	__u64 value;
} msr_raw_results[40];

static int msr_raw_fd = -1;

__attribute__((format(printf, 1, 2)))
static __u64 msr_raw(const char *fmt, ...);

/*
 * Registers that the kernel's PMU driver does not write each time it starts counting. When a test
 * exits, msr_raw_restore() restores the registers in saved_msrs. Reads and writes of a register
 * that the model lacks fail without effect.
 */
static const __u32 saved_msrs[] = {
	0x1d9,		/* IA32_DEBUGCTL */
	0x38d,		/* IA32_FIXED_CTR_CTRL */
	0x38f,		/* IA32_PERF_GLOBAL_CTRL */
	0xc0000301,	/* PerfCntrGlobalCtl */
};

#define NR_SAVED_MSRS	(sizeof(saved_msrs) / sizeof(*saved_msrs))

static __u64 saved_msr_values[NR_SAVED_MSRS], saved_lvtpc;

static void msr_raw_restore(void)
{
	/* Clears the overflow bits and CTR_Frz first: CTR_Frz stops all counters. */
	msr_raw("wr 0x390 %#llx", msr_raw("rd 0x38e"));
	msr_raw("wr 0xc0000302 %#llx", msr_raw("rd 0xc0000300"));
	msr_raw("on_nmi");
	for (unsigned int i = 0; i < NR_SAVED_MSRS; i++)
		msr_raw("wr %#x %#llx", saved_msrs[i], saved_msr_values[i]);
	msr_raw("lvtpc %#llx", saved_lvtpc);
	close(msr_raw_fd);
	rmmod("msr_raw");
}

static void msr_raw_load(void)
{
	load_module("msr_raw");
	msr_raw_fd = open("/proc/msr_raw", O_RDWR | O_CLOEXEC);
	bail_if(msr_raw_fd < 0, "open /proc/msr_raw");
	/* The steps of msr_raw() run on CPU 0, so the registers are those of CPU 0. */
	pin_to_cpu(0);
	for (unsigned int i = 0; i < NR_SAVED_MSRS; i++)
		saved_msr_values[i] = msr_raw("rd %#x", saved_msrs[i]);
	saved_lvtpc = msr_raw("read_lvtpc");
	atexit(msr_raw_restore);
}

/*
 * Passes a text with steps, built from @fmt, to tests/modules/msr_raw.c, which executes the steps.
 * Returns the value of the last step, or -1 if the last step failed.
 */
__attribute__((format(printf, 1, 2)))
static __u64 msr_raw(const char *fmt, ...)
{
	char text[4096], *pos = text;
	struct msr_raw_result *s = msr_raw_results;
	ssize_t len;
	va_list ap;
	int n = 0;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	bail_if(pwrite(msr_raw_fd, text, len, 0) != len, text);
	len = pread(msr_raw_fd, text, sizeof(text) - 1, 0);
	bail_if(len < 0, "read of /proc/msr_raw");
	text[len] = '\0';
	while (n < 40 && sscanf(pos, "%lld %llu", &s[n].err, &s[n].value) == 2) {
		pos = strchr(pos, '\n') + 1;
		n++;
	}
	return n && !s[n - 1].err ? s[n - 1].value : -1ULL;
}

#endif
