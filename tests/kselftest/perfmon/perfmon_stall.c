// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * If the control group of a thread has reached its memory limit, allocations take long in the
 * thread's calls of /dev/perfmon. Calls of other threads must not wait for the slow thread. The
 * test uses tests/modules/faults.c to delay the allocations of one thread.
 */
#include "sampling.h"
#include "sets.h"

#define TRIES	5
#define SETS	64
#define SLOW	"/sys/module/faults/parameters/slow"
#define SLOW_MS	"/sys/module/faults/parameters/slow_ms"
#define NR_SLOWED	"/sys/module/faults/parameters/nr_slowed"

static struct {
	volatile int ready, go, in_call;
} *caller;

/* Creates many event sets with one call, which allocates memory for each set. */
static int make_sets(int fd)
{
	static struct pfarg_setdesc sets[SETS - 1];
	const __u32 nr = gate_or_long(SETS / 2, SETS) - 1;

	for (__u32 i = 0; i < nr; i++)
		sets[i].set_id = i + 1;
	return pfm_vector(fd, PERFMON_CREATE_EVTSETS, sets, nr, sizeof(*sets));
}

/* Writes one PMD (data register) in each of many sets: as many sets as one call can address. */
static int write_pmds(int fd)
{
	static struct pfarg_pmd pmds[PERFMON_VECTOR_MAX / sizeof(struct pfarg_pmd)];
	const __u32 nr = sizeof(pmds) / sizeof(*pmds);

	for (__u32 i = 0; i < nr; i++)
		pmds[i] = (struct pfarg_pmd){ .reg_num = PERFMON_TASK_CLOCK, .reg_set = i };
	return pfm_vector(fd, PERFMON_WRITE_PMDS, pmds, nr, sizeof(*pmds));
}

static bool try_attach(void)
{
	int fd = pfm_create(0);
	bool good = !pfm_load(fd, this_thread()) && !pfm_start(fd) && !pfm_unload(fd);

	close(fd);
	return good;
}

/*
 * A child calls @before, and then calls @call on CPU 1. During @call, each allocation of the child
 * takes 100 ms. During @call of the child, the calling thread loads, starts and unloads a context
 * of its own. Returns true if the child makes two more slow allocations in @call after the calling
 * thread has unloaded its context. If the function returns true, the calling thread has not waited
 * for the end of @call. Stores the wait status of the child in @status.
 */
static bool attach_beside(int (*before)(int fd), int (*call)(int fd), int *status)
{
	bool good, progresses;
	int nr;
	pid_t pid;

	/*
	 * Attaches the probes of context switches before the test begins. To attach probes, the
	 * kernel interrupts other CPUs, and the test must not measure the time that this takes. The
	 * probes stay attached for some seconds, so the calls below do not have to attach the
	 * probes.
	 */
	bail_if(!try_attach(), "a context of oneself");
	memset((void *)caller, 0, sizeof(*caller));
	pid = fork_child({
		int fd = pfm_create(0), rc;

		exit_if(before && before(fd), 99);
		pin_to_cpu(1);
		caller->ready = 1;
		wait_until(caller->go);
		caller->in_call = 1;
		rc = call(fd);
		caller->in_call = 0;
		_exit(-rc);
	});
	wait_until(caller->ready);
	write_file(SLOW_MS, "100");
	write_file(SLOW, format_text("%d", pid));
	caller->go = 1;
	wait_until(caller->in_call);
	sleep_ms(500);
	good = try_attach();
	nr = read_number(NR_SLOWED);
	wait_until(!caller->in_call || read_number(NR_SLOWED) >= nr + 2);
	progresses = read_number(NR_SLOWED) >= nr + 2;
	write_file(SLOW, "0");
	waitpid(pid, status, 0);
	bail_if(!good, "a context of oneself, beside the call");
	return progresses;
}

/* On a busy host this thread may not run before the child's call has ended. */
static void test_beside(int (*before)(int fd), int (*call)(int fd), const char *what)
{
	bool beside = false;
	int status = 0;

	for (int try = 0; try < TRIES && !beside && !status; try++)
		beside = attach_beside(before, call, &status);
	is(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0,
	   "9.2 a call that %s with slow allocations succeeds", what);
	ok(beside, "9.2 beside a call that %s: another thread loads, starts and unloads a context",
	   what);
}

int main(void)
{
	plan(4);
	pin_to_cpu(0);
	insmod_each("perfcounters perfmon pfm_soft");
	load_module("faults");
	caller = map_memory(4096, MAP_SHARED);
	test_beside(NULL, make_sets, "creates sets");
	test_beside(make_sets, write_pmds, "writes registers");
	rmmod("faults");
	return finish();
}
