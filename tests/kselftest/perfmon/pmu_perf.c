// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu pmu1-skylake pmu4-skylake
 * gate: pmu-skylake pmu-amd2
 * timeout: 200
 *
 * Tests the emulated PMU with the kernel's perf: the kernel finds each model, counts exactly the
 * executed instructions, and samples exactly the expected instructions.
 */
#include "pmu.h"
#include <pthread.h>
#include <ucontext.h>
#include <linux/hw_breakpoint.h>

static const __u64 rounds[] = { 10, 11, 100, 1000, 10000, 1000000, 100000000 };

static void test_counts(void)
{
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	__u64 overhead = perf_spin(fd, 1) - 2, got;
	bool exact = true;

	for (unsigned int i = 0; i < sizeof(rounds) / sizeof(*rounds); i++) {
		got = perf_spin(fd, rounds[i]);
		if (got != 2 * rounds[i] + overhead) {
			note("%llu rounds: %llu instructions", rounds[i], got);
			exact = false;
		}
	}
	note("%llu instructions around the loop", overhead);
	ok(exact && overhead < 100, "pmu perf: exact counts of 20 to 200000000 instructions");
	close(fd);
}

/*
 * Destination of a repeated string instruction. The buffer is so large that the emulator needs
 * several steps to execute one string instruction on the whole buffer.
 */
static char page[4096 * 40];

static __attribute__((noinline)) __u64 count_rep(int fd, __u64 bytes)
{
	char *to = page;

	perf_start(fd);
	asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0) : "memory");
	perf_stop(fd);
	return perf_read(fd);
}

static void test_rep(void)
{
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	__u64 one = count_rep(fd, 1);

	bail_if(one < 1, "nothing is counted");
	/* The first call also has page faults: the pages are not mapped yet. */
	is(count_rep(fd, sizeof(page)), one,
	   "pmu perf: a repeated string instruction with page faults counts as one");
	is(count_rep(fd, sizeof(page)), one,
	   "pmu perf: a repeated string instruction without page faults counts as one");
	close(fd);
}

/* Handles a signal by continuing behind the faulting instruction, at the address in RBX. */
static void skip_instruction(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

	r[REG_RIP] = r[REG_RBX];
}

/*
 * Defines a function that returns the number of instructions counted in 500 rounds. Each round has
 * an instruction that faults.
 */
#define FAULTING(name, insn)							\
static __attribute__((noinline)) __u64 name##_rounds(int fd, __u64 rounds)	\
{										\
	perf_start(fd);								\
	asm volatile("1: lea 2f(%%rip), %%rbx\n " insn "\n"			\
		     "2: dec %0\n jnz 1b" : "+r"(rounds) : : "rbx", "cc");	\
	perf_stop(fd);								\
	return perf_read(fd);							\
}										\
										\
static __u64 name(int fd)							\
{										\
	return name##_rounds(fd, 501) - name##_rounds(fd, 1);			\
}

/*
 * The emulator detects the fault of ud2 when it translates the instruction. The instruction "incl
 * 0" faults when it is executed.
 */
FAULTING(fault_at_translation, "ud2")
FAULTING(fault_at_run_time, "incl 0")
FAULTING(fault_after_nop, "nop\n incl 0")

static void test_faulting(void)
{
	struct sigaction act = { .sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO };
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);

	sigaction(SIGILL, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
	is(fault_at_translation(fd), fault_at_run_time(fd),
	   "pmu perf: an instruction that faults does not count, at translation or at run time");
	is(fault_after_nop(fd) - fault_at_run_time(fd), 500,
	   "pmu perf: an instruction before a fault counts");
	signal(SIGILL, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	close(fd);
}

/* Events per instruction, as in the table of Documentation/emulated-pmu.md. */
static const struct ratio {
	const char *name;
	__u64 event;
	__u64 events, insns;
} ratios[] = {
	{ "cycles", PERF_COUNT_HW_CPU_CYCLES, 5, 4 },
	{ "reference cycles", PERF_COUNT_HW_REF_CPU_CYCLES, 1, 1 },
	{ "branches", PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1, 8 },
	{ "branch misses", PERF_COUNT_HW_BRANCH_MISSES, 1, 128 },
	{ "cache references", PERF_COUNT_HW_CACHE_REFERENCES, 1, 64 },
	{ "cache misses", PERF_COUNT_HW_CACHE_MISSES, 1, 1024 },
};

static void test_ratio(const struct ratio *r, const struct pmu_model *m)
{
	int leader = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	int fd = perf_user(r->event, leader);
	__u64 insns, got;

	/* perf's driver for Intel can count reference cycles only with a fixed counter for them. */
	if (fd < 0 || (r->event == PERF_COUNT_HW_REF_CPU_CYCLES && !m->amd && m->fixed < 3)) {
		char name[80];

		snprintf(name, sizeof(name),
			 "pmu perf: %s are the expected share of instructions", r->name);
		skip(name, "the kernel has no such event on this model");
		close(fd);
		close(leader);
		return;
	}
	insns = perf_spin(leader, 5000000);
	got = perf_read(fd);
	/* A counter may keep a fraction of an event from an earlier use. */
	if (!ok(insns >= 10000000 && got >= insns * r->events / r->insns &&
		got <= insns * r->events / r->insns + 1,
		"pmu perf: %s are the expected share of instructions", r->name))
		note("%llu in %llu instructions", got, insns);
	close(fd);
	close(leader);
}

static void test_modes(const struct pmu_model *m)
{
	struct perf_event_attr both = { .config = PERF_COUNT_HW_INSTRUCTIONS };
	struct perf_event_attr kernel = both;
	int fd[3], i;
	__u64 n[3];
	long long off;

	kernel.exclude_user = 1;
	fd[0] = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	fd[1] = perf_open(&kernel, fd[0]);
	fd[2] = perf_open(&both, fd[0]);
	perf_start(fd[0]);
	for (i = 0; i < 1000; i++)
		getppid();
	perf_stop(fd[0]);
	for (i = 0; i < 3; i++) {
		n[i] = perf_read(fd[i]);
		close(fd[i]);
	}
	off = n[2] - n[1] - n[0];
	note("user %llu, kernel %llu, both %llu", n[0], n[1], n[2]);
	/* Without a global control register, counters start and stop one after the other. */
	ok(n[0] && n[1] > n[0] && llabs(off) <= (m->version >= 2 ? 0 : 1000),
	   "pmu perf: user and kernel mode add up to the count of both");
}

/*
 * Number of instructions in the sampled loop. body_index() computes the position of an instruction
 * in the loop from its address: each of the first 64 instructions has one byte.
 */
#define BODY_INSNS	66
static const char *body;

static __attribute__((noinline)) void walk_body(__u64 turns)
{
	asm volatile("lea 1f(%%rip), %1\n"
		     "1: .rept 64\n nop\n .endr\n"
		     "dec %0\n jnz 1b" : "+r"(turns), "=&r"(body) : : "cc");
}

static int body_index(__u64 ip)
{
	__u64 offset = ip - (__u64)body;

	return offset <= 64 ? (int)offset : offset == 67 ? 65 : -1;
}

static void test_samples(__u64 period)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_kernel = 1,
		.sample_period = period,
		.sample_type = PERF_SAMPLE_IP,
	};
	const __u64 rounds = 20000000 / BODY_INSNS;
	struct perf_event_mmap_page *page;
	int fd = perf_open(&attr, -1), last = -1, index;
	__u64 from, n = 0, outside = 0, total;
	struct {
		struct perf_event_header header;
		__u64 ip;
	} *s;

	page = mmap(NULL, 65 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bail_if(page == MAP_FAILED, "mmap of samples");
	perf_start(fd);
	walk_body(rounds);
	perf_stop(fd);
	total = perf_read(fd);
	for (from = 0; from < page->data_head; from += s->header.size) {
		s = (void *)((char *)page + 4096 + from);
		if (s->header.type != PERF_RECORD_SAMPLE) {
			outside++;
			continue;
		}
		index = body_index(s->ip);
		n++;
		/* The first and the last sample may be outside of the loop. */
		if (index >= 0 && last >= 0 && (last + period) % BODY_INSNS != (__u64)index)
			outside++;
		if (index < 0 && last >= 0 && n != total / period)
			outside++;
		last = index;
	}
	munmap(page, 65 * 4096);
	close(fd);
	if (total < rounds * BODY_INSNS)
		note("only %llu instructions", total);
	is(n, total < rounds * BODY_INSNS ? -1LL : (long long)(total / period),
	   "pmu perf: one sample for each %llu instructions", period);
	is(outside, 0, "pmu perf: each sample is at the expected instruction, period %llu", period);
}

/*
 * The first instruction of the loop in run_breakpoint_loop(), which has ten instructions a round.
 */
extern const char breakpoint_label[];

static __attribute__((noinline, noclone)) void run_breakpoint_loop(__u64 turns)
{
	asm volatile("breakpoint_label: .rept 8\n nop\n .endr\n"
		     "dec %0\n jnz breakpoint_label" : "+r"(turns) : : "cc");
}

/*
 * The PMU interrupts every 101 instructions, and a round has ten instructions. Each interrupt is
 * one instruction later in its round than the previous interrupt, so every tenth interrupt is just
 * before the breakpoint. The RF flag that the interrupt pushes must not suppress the breakpoint.
 */
static void test_breakpoints(void)
{
	struct perf_event_attr breakpoint = {
		.type = PERF_TYPE_BREAKPOINT,
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = (__u64)breakpoint_label,
		.bp_len = sizeof(long),
		.exclude_kernel = 1,
	};
	struct perf_event_attr interrupts = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_kernel = 1,
		.sample_period = 101,
	};
	int fd = perf_open(&breakpoint, -1), other = perf_open(&interrupts, -1);

	bail_if(fd < 0 || other < 0, "a breakpoint");
	perf_start(fd);
	perf_start(other);
	run_breakpoint_loop(4000);
	perf_stop(other);
	perf_stop(fd);
	is(perf_read(fd), 4000,
	   "pmu perf: a hardware breakpoint hits each time beside PMU interrupts");
	close(other);
	close(fd);
}

static void test_rdpmc(void)
{
	int fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1), i;
	struct perf_event_mmap_page *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	__u64 before, after, first = 0;
	unsigned int two;
	bool same = true;

	perf_start(fd);
	if (page == MAP_FAILED || !page->cap_user_rdpmc || !page->index) {
		ok(false, "pmu perf: RDPMC in user mode is exact");
		close(fd);
		return;
	}
	for (i = 0; i < 10; i++) {
		__u32 seq;

		/* The protocol of perf's mapped page: read again if page->lock changed. */
		do {
			seq = *(volatile __u32 *)&page->lock;
			before = rdpmc(page->index - 1);
			spin(1000);
			after = rdpmc(page->index - 1);
			asm volatile("rdpmc\n mov %%eax, %0\n rdpmc\n sub %%eax, %0"
				     : "=&r"(two) : "c"(page->index - 1) : "eax", "edx", "cc");
		} while (seq != *(volatile __u32 *)&page->lock || (seq & 1));
		if (!first)
			first = after - before;
		same &= after - before == first && two == -2U;
	}
	if (!ok(same && first >= 2000 && first < 2020, "pmu perf: RDPMC in user mode is exact"))
		note("%llu between two RDPMCs with 2000 instructions, %u with 1", first, -two);
	munmap(page, 4096);
	close(fd);
}

struct counter_thread {
	pthread_t id;
	__u64 got, overhead;
	int cpu;
};

static void *count_thread(void *arg)
{
	struct counter_thread *t = arg;
	int fd;

	pin_to_cpu(t->cpu);
	fd = perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1);
	t->overhead = perf_spin(fd, 1) - 2;
	t->got = perf_spin(fd, 20000000);
	close(fd);
	return NULL;
}

static void test_threads(int nr)
{
	struct counter_thread t[32] = {};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int i, wrong = 0;

	for (i = 0; i < nr; i++) {
		t[i].cpu = i % cpus;
		bail_if(pthread_create(&t[i].id, NULL, count_thread, &t[i]), "pthread_create");
	}
	for (i = 0; i < nr; i++) {
		pthread_join(t[i].id, NULL);
		if (t[i].got != 40000000 + t[i].overhead) {
			note("thread %d: %llu, %llu around", i, t[i].got, t[i].overhead);
			wrong++;
		}
	}
	is(wrong, 0, "pmu perf: %d threads on %ld processors are each counted exactly", nr, cpus);
}

/* "pmu_perf spin ROUNDS" is the program that pmu_clients.sh measures with perf. */
int main(int argc, char **argv)
{
	const struct pmu_model *m;
	char line[200];

	if (argc == 3 && !strcmp(argv[1], "spin")) {
		spin(strtoull(argv[2], NULL, 0));
		return 0;
	}
	m = guest_model();
	plan(6 + sizeof(ratios) / sizeof(*ratios) + 1 + 6 + 1 + 3);
	snprintf(line, sizeof(line), "Performance Events: %s", m->driver);
	ok(klog_contains(line), "pmu the kernel selects the driver of %s", m->name);
	pin_to_cpu(0);
	test_counts();
	test_rep();
	test_faulting();
	for (unsigned int i = 0; i < sizeof(ratios) / sizeof(*ratios); i++)
		test_ratio(&ratios[i], m);
	test_modes(m);
	disable_perf_throttling();
	test_samples(100000);
	test_samples(100002);
	test_samples(1000000);
	test_breakpoints();
	test_rdpmc();
	test_threads(sysconf(_SC_NPROCESSORS_ONLN));
	test_threads(16);
	return finish();
}
