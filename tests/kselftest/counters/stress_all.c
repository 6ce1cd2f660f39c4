// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 600
 * guest: probes
 *
 * Tests everything at once: CPUs are taken offline and online, chunks are appended, and drivers and
 * providers load and unload. Children that inherit mappings of the counter pages run and are
 * killed. Instances are added, deleted and updated from every context. Readers, pfc and hostile
 * mapping calls run at the same time. Each activity is a role: a process that stores its results in
 * shared memory. At the end every count is exact.
 *
 * stress_all.h lists the events, the minimum number of times that each event must happen, and the
 * errors that must not happen.
 */
#include "stress_all.h"
#include "stress_all_readers.h"
#include "stress_all_writers.h"
#include <sys/resource.h>

static void worker0(void) { worker(0); }
static void worker1(void) { worker(1); }
static void worker2(void) { worker(2); }
static void adder0(void) { adder(0); }
static void adder1(void) { adder(1); }

static const struct {
	const char *name;
	void (*run)(void);
} roles[] = {
	{ "fixed_reader", fixed_reader }, { "renewing_reader", renewing_reader },
	{ "old_reader", old_reader }, { "forker", forker }, { "names_reader", names_reader },
	{ "pfc_runner", pfc_runner }, { "worker0", worker0 }, { "worker1", worker1 },
	{ "worker2", worker2 }, { "adder0", adder0 }, { "adder1", adder1 }, { "grower", grower },
	{ "cpu0_counter", cpu0_counter }, { "hotplugger", cpu1_hotplugger },
	{ "sample_loader", sample_loader }, { "provider_loader", provider_loader },
	{ "unloader", unloader }, { "mmap_caller", mmap_caller },
};

#define NR_ROLES ((int)(sizeof(roles) / sizeof(*roles)))

static __u64 role_failed, wrong_pairs, updates;
static bool cpu0_is_exact = true, cpu1_is_exact = true, all_is_exact = true;
static bool dormant_unchanged = true, is_settled = true;

/* On a slow kernel the test may be too short for a reader to see an inconsistent copy. */
static bool is_slow(void)
{
	return scale_down(1000) != 1000;
}

static __u64 min_count(int event)
{
	__u64 min = scale_min(events[event].min);

	if (event == REJECTED_WRONG && is_slow())
		return 0;
	return is_long_run() ? min : (min + 2) / 3;
}

static bool has_enough_events(void)
{
	for (int e = 0; e < NR_EVENTS; e++)
		if (shared->count[e] < min_count(e))
			return false;
	return true;
}

static void start_roles(pid_t pid[NR_ROLES], __u32 base)
{
	for (int i = 0; i < NR_ROLES; i++) {
		pid[i] = fork();
		bail_if(pid[i] < 0, "fork");
		if (pid[i])
			continue;
		seed = base + 7919 * (i + 1);
		seed |= !seed;
		/* Readers never sleep, and pfc has much to do. */
		setpriority(PRIO_PROCESS, 0, i < 3 ? 10 : roles[i].run == pfc_runner ? -10 : 0);
		roles[i].run();
		_exit(0);
	}
}

/* Stops all roles. Each role must exit within a minute. */
static void stop_roles(pid_t pid[NR_ROLES])
{
	shared->stop = 1;
	for (int i = 0; i < NR_ROLES; i++) {
		pid_t ended = 0;
		int status = 0;

		for (int ms = 0; ms < 60000; ms += 20) {
			ended = waitpid(pid[i], &status, WNOHANG);
			if (ended)
				break;
			sleep_ms(20);
		}
		if (ended == pid[i] && !status)
			continue;
		note("role %s: %s %#x", roles[i].name, ended ? "ended with" : "hangs", status);
		kill_child(pid[i]);
		role_failed++;
	}
}

static void compare_totals(void)
{
	__s64 total = 0;

	for (__u32 i = 0; i < shared->nr_pairs; i++) {
		__u64 want = 0, a = pc_total(&pc, shared->pair[i]);
		__u64 b = pc_total(&pc, shared->pair[i] + 1);

		for (int w = 0; w < NR_WORKERS; w++)
			want += shared->pair_count[w][i];
		updates += want;
		if (a != want || b != want) {
			note("pair %u: %llu and %llu, not %llu", i, (unsigned long long)a,
			     (unsigned long long)b, (unsigned long long)want);
			wrong_pairs++;
		}
	}
	for (int w = 0; w < NR_WORKERS + NR_ADDERS; w++)
		total += shared->sum_of_all[w];
	all_is_exact = all_is_exact && pc_total(&pc, shared->by_all) == total;
	cpu0_is_exact = cpu0_is_exact && pc_value(&pc, 0, shared->on_cpu0) == shared->sum_cpu0 &&
			pc_total(&pc, shared->on_cpu0) == shared->sum_cpu0;
	cpu1_is_exact = cpu1_is_exact && pc_value(&pc, 1, shared->on_cpu1) == shared->sum_cpu1 &&
			pc_total(&pc, shared->on_cpu1) == shared->sum_cpu1;
	dormant_unchanged = dormant_unchanged && pc_total(&pc, shared->dormant) == 7 &&
			    pc.desc[shared->dormant].state == PERFCOUNTERS_DORMANT;
	is_settled = is_settled && pc.h->gen1 == pc.h->gen2;
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
		is_settled = is_settled && !(pc_seq(&pc, cpu) & PERFCOUNTERS_SEQ_BUSY);
}

/*
 * Tests that a mapping of the parent or of a child keeps the module loaded, even if no driver is
 * loaded. The child keeps the inherited mapping until the parent closes the pipe, after the parent
 * has tried to unload the module.
 */
static void test_mapping_holds_module(void)
{
	int pipe_fds[2], err;
	char byte;
	pid_t pid;

	driver_close();
	err = rmmod("test_driver");
	expect(!err, WRONG_RMMOD, "rmmod test_driver: %d", err);
	for (int i = 0; i < 20; i++) {
		err = rmmod("perfcounters");
		expect(err == -EWOULDBLOCK, WRONG_RMMOD, "rmmod perfcounters while mapped: %d",
		       err);
		bail_if(pipe(pipe_fds), "pipe");
		pid = fork_child({
			close(pipe_fds[1]);
			_exit(read(pipe_fds[0], &byte, 1) != 0);
		});
		close(pipe_fds[0]);
		if (i == 19)
			pc_close(&pc);
		err = rmmod("perfcounters");
		expect(err == -EWOULDBLOCK, WRONG_RMMOD, "rmmod perfcounters, mapped by %s: %d",
		       i < 19 ? "two" : "a child", err);
		close(pipe_fds[1]);
		waitpid(pid, NULL, 0);
	}
	err = rmmod("perfcounters");
	expect(!err && access("/dev/perfcounters", F_OK) &&
	       access("/dev/perfcounters_names", F_OK) && !is_loaded("perfcounters"), WRONG_RMMOD,
	       "rmmod perfcounters, not in use: %d", err);
}

/* Continues until each event has happened often enough, or a time limit is reached. */
static void run_session(int seconds, bool whole, __u32 base)
{
	time_t start_time = time(NULL);
	pid_t pid[NR_ROLES];

	load_and_map("");
	memset(shared->pair_count, 0, sizeof(shared->pair_count));
	memset(shared->sum_of_all, 0, sizeof(shared->sum_of_all));
	memset(shared->number, 0, sizeof(shared->number));
	shared->is_slow = !whole;
	shared->sum_cpu0 = 0;
	shared->sum_cpu1 = 0;
	shared->nr_pairs = 0;
	shared->stop = 0;
	shared->pair[0] = driver_cmd("add torture/pair/first/a");
	driver_cmd("add torture/pair/first/b");
	shared->nr_pairs = 1;
	shared->on_cpu0 = driver_cmd("add torture/cpu0");
	shared->on_cpu1 = driver_cmd("add torture/cpu1");
	shared->by_all = driver_cmd("add torture/all");
	shared->dormant = driver_cmd("add torture/dead");
	driver_cmd("adjust %u 7", shared->dormant);
	driver_cmd("del %u", shared->dormant);
	driver_close();
	start_roles(pid, base);
	while (time(NULL) < start_time + seconds ||
	       (time(NULL) < start_time + gate_or_long(80, 27) * seconds &&
		(pc.h->nr_chunks < max_chunks() || (whole && !has_enough_events()))))
		sleep_ms(100);
	stop_roles(pid);
	compare_totals();
	test_mapping_holds_module();
}

static bool no_errors(enum wrong from, enum wrong to)
{
	for (enum wrong w = from; w <= to; w++)
		if (shared->wrong[w])
			return false;
	return true;
}

int main(void)
{
	bool debug = !access("/sys/kernel/debug/kmemleak", F_OK);
	__u32 base = time(NULL) ^ getpid() << 16;
	struct meminfo_kb before, after;

	plan(21);
	shared = map_memory(sizeof(*shared), MAP_SHARED);
	note("seed %u", base);
	unload_modules();

	/*
	 * The first session is a warm-up, with as many chunks as the second session. After the
	 * first session, the kernel's allocators keep some of the freed memory for later requests.
	 * After the second session, the kernel's allocators must not keep more memory than after
	 * the first session.
	 */
	run_session(gate_or_long(1, 2), false, base);
	before = settled_meminfo_kb();
	memset(shared->count, 0, sizeof(shared->count));
	run_session(gate_or_long(3, 9), true, base + 1);
	after = settled_meminfo_kb();

	for (int e = 0; e < NR_EVENTS; e++)
		note("%10llu %s", (unsigned long long)shared->count[e], events[e].what);
	note("%10llu updates of pairs", (unsigned long long)updates);

	for (int e = 0; e < NR_EVENTS; e++)
		if (shared->count[e] < min_count(e))
			note("only %llu %s, wanted %llu", (unsigned long long)shared->count[e],
			     events[e].what, (unsigned long long)min_count(e));
	ok(has_enough_events(), "0.14 torture: each event happens often enough");
	is(role_failed, 0, "0.14 torture: all %d roles exit with status 0", NR_ROLES);
	is(shared->wrong[WRONG_SNAPSHOT], 0, "0.9 torture: no snapshot is inconsistent");
	if (is_slow())
		skip("0.9 torture: inconsistent copies are met and rejected",
		     "too seldom on a debug kernel");
	else
		ok(shared->count[REJECTED_WRONG] >= min_count(REJECTED_WRONG),
		   "0.9 torture: inconsistent copies are met and rejected");
	is(shared->wrong[WRONG_BACKWARDS], 0, "0.9 torture: no counter or seqflag decreases");
	is(wrong_pairs, 0, "0.12 torture: every pair in every chunk is exact");
	ok(all_is_exact, "0.12 torture: the counter that all roles use from all contexts is exact");
	ok(cpu0_is_exact, "0.5 torture: the counter of CPU 0 is exact, and 0 on CPU 1");
	ok(cpu1_is_exact, "0.14 torture: the counter of CPU 1 is exact, and 0 on CPU 0");
	is(shared->wrong[WRONG_HOTPLUG], 0,
	   "0.14 torture: CPU 1 goes offline and online each time and keeps its values");
	ok(dormant_unchanged, "0.11 torture: a dormant instance does not count");
	ok(is_settled, "0.8 torture: in the end no update is in flight and gen1 is gen2");
	ok(no_errors(WRONG_FIRST_VALUE, WRONG_NUMBER),
	   "0.10 torture: an instance that is added begins at zero, with the name's old number");
	is(shared->wrong[WRONG_OWNER], 0,
	   "0.10 torture: each owner of a name reads what it has counted");
	ok(no_errors(WRONG_DRIVER, WRONG_DRIVER) && no_errors(WRONG_DESC, WRONG_DESC),
	   "0.14 torture: drivers load and unload, and their counters add up");
	is(shared->wrong[WRONG_CHILD], 0,
	   "0.1 torture: children read the mappings that they inherit");
	is(shared->wrong[WRONG_NAMES], 0,
	   "0.2 torture: names files are complete, also when read in pieces");
	is(shared->wrong[WRONG_MMAP], 0, "0.1 torture: mapping calls are refused or harmless");
	is(shared->wrong[WRONG_PFC], 0, "0.7 torture: each run of pfc succeeds");
	is(shared->wrong[WRONG_RMMOD], 0,
	   "0.1 torture: perfcounters.ko unloads only when it is not in use");
	note("free %ld then %ld kB, Percpu %ld then %ld kB", before.free, after.free,
	     before.percpu, after.percpu);
	/*
	 * In a long run, the limit for free memory is low enough to find a leak of the instance
	 * descriptors alone. The free memory of a debug kernel is not checked, because such a
	 * kernel keeps freed memory.
	 */
	ok(after.percpu <= before.percpu + 256 && (debug || before.free - after.free < 3000),
	   "0.10 torture: the memory is freed at the end");
	return finish();
}
