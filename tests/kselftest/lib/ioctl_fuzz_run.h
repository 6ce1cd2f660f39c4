/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes of the fuzzer, its results, and the main function of its programs.
 *
 * Calls are made in rounds. A round is a process with limits on its memory and on its descriptors.
 * Every third round runs as a user without capabilities. The process has children that make calls
 * with its open files, and other children that are only targets for monitoring. If a round hangs or
 * dies, the last call of each of its processes is shown.
 *
 * Environment variables: SEED is the seed of the first round, CALLS is the number of calls in all
 * rounds, ROUND_CALLS is the number of calls in a round, and ROUND selects the only round to run.
 */
#ifndef IOCTL_FUZZ_RUN_H
#define IOCTL_FUZZ_RUN_H

#include "ioctl_fuzz_operations.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

#define CALLS_PER_ROUND	gate_or_long(1000, 2000)
#define USER		1000
#define NR_VICTIMS	3

static bool plain_user, is_child;

/* Processes that are monitored, killed and replaced */

static pid_t victims[NR_VICTIMS], children[NR_CHILDREN];

static void run_victim(int kind)
{
	volatile char *p = map_memory(4096, MAP_PRIVATE);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGIO, SIG_IGN);
	close_range(3, ~0U, 0);
	for (int n = 0; kind < 2 || n < 4; n++) {
		for (int i = 0; i < 5 && kind != 1; i++) {
			p[0]++;
			syscall(SYS_getppid);
		}
		madvise((void *)p, 4096, MADV_DONTNEED);
		/* Most CPU time is left to the processes that make calls. */
		sleep_ms(100);
	}
	_exit(0);
}

/* The pool of task IDs has this process first, and does not have its parent. */
static void refill_pids(void)
{
	pools[K_PID].nr = 0;
	pool_add(K_PID, syscall(SYS_gettid));
	for (int i = 0; i < NR_VICTIMS; i++)
		if (victims[i])
			pool_add(K_PID, victims[i]);
	for (int i = 0; i < NR_CHILDREN && !is_child; i++)
		if (children[i])
			pool_add(K_PID, children[i]);
}

static void start_victim(int n)
{
	fflush(stdout);
	victims[n] = fork_child(run_victim(n));
	if (victims[n] < 0)
		victims[n] = 0;
	refill_pids();
}

static void do_kill(void)
{
	static const int signals[] = { SIGKILL, SIGSTOP, SIGCONT, SIGUSR1 };
	int n = random_below(NR_VICTIMS), status;

	if (is_child || !victims[n])
		return;
	kill(victims[n], signals[random_below(4)]);
	if (waitpid(victims[n], &status, WNOHANG) == victims[n] || random_below(4))
		return;
	/* Kills the target, which may be stopped or blocked by a context. */
	kill(victims[n], SIGKILL);
	for (int i = 0; i < 100 && waitpid(victims[n], &status, WNOHANG) != victims[n]; i++)
		sleep_ms(1);
	start_victim(n);
}

static void run_steps(int nr);

static void begin_process(void)
{
	struct itimerval interval = { { 0, 10000 }, { 0, 10000 } };

	refill_pids();
	/* A signal every 10 ms interrupts calls that block. */
	setitimer(ITIMER_REAL, &interval, NULL);
	if (program->init_process)
		program->init_process();
}

/* Forks a child that makes calls for a while with all descriptors and mappings of its parent. */
static void do_fork(void)
{
	int n = random_below(NR_CHILDREN), status;

	if (is_child)
		return;
	for (int i = 0; i < NR_CHILDREN; i++)
		if (children[i] && waitpid(children[i], &status, WNOHANG) == children[i]) {
			expect_sane(WIFSIGNALED(status) || !WEXITSTATUS(status),
				    "a child died: status %#x; its last call was %s", status,
				    shared->last_calls[1 + i].name);
			children[i] = 0;
		}
	if (children[n])
		return;
	fflush(stdout);
	children[n] = fork();
	if (children[n] < 0)
		children[n] = 0;
	if (children[n]) {
		refill_pids();
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	is_child = true;
	has_race_thread = false;
	last_call = &shared->last_calls[1 + n];
	*last_call = (struct last_call) { .pid = getpid() };
	seed ^= 0x9e3779b97f4a7c15ULL * getpid();
	seed |= !seed;
	drop_uncopied_maps();
	remap_areas();
	begin_process();
	run_steps(20 + random_below(80));
	_exit(0);
}

static void do_extra(void)
{
	gen.nr = 0;
	if (program->extra)
		program->extra();
	else
		do_call();
}

static void (*const operations[])(void) = {
	do_open, do_dup, do_close, do_close, do_map, do_map, do_touch, do_map_calls, do_read,
	do_fd_calls, do_setaffinity, do_fork, do_kill, do_extra, do_extra, do_extra,
};

static void run_steps(int nr)
{
	/*
	 * For devices with few ioctls, a larger part of the steps are operations other than ioctls.
	 */
	int calls = program->nr_calls < 8 ? 4 : 8;

	for (steps_done = 0; steps_done < nr;) {
		step();
		if (random_below(calls))
			do_call();
		else
			operations[random_below(sizeof(operations) / sizeof(*operations))]();
	}
}

static void drop_privileges(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct no_caps[2] = { 0 };

	exit_if(setgroups(0, NULL) || setresgid(USER, USER, USER) || setresuid(USER, USER, USER) ||
		syscall(SYS_capset, &header, no_caps), 97);
	/* Makes the process dumpable, like a program that a user has started. */
	prctl(PR_SET_DUMPABLE, 1);
}

static void set_limit(int what, rlim_t max)
{
	struct rlimit rlimit = { max, max };

	setrlimit(what, &rlimit);
}

static void run_round_process(int nr)
{
	struct sigaction fault = { .sa_handler = on_fault }, alarm = { .sa_handler = on_alarm };
	pthread_t thread;

	setpgid(0, 0);
	set_limit(RLIMIT_NOFILE, 256);
	/* The limit of 8 GiB is more than all mappings need when each has the maximum size. */
	set_limit(RLIMIT_AS, 8UL << 30);
	set_limit(RLIMIT_CORE, 0);
	if (plain_user)
		drop_privileges();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGBUS, &fault, NULL);
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGALRM, &alarm, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	last_call = &shared->last_calls[0];
	last_call->pid = getpid();
	areas_map();
	device_memory = get_device_memory;
	for (int i = 0; i < NR_VICTIMS; i++)
		start_victim(i);
	/* With one CPU, the second thread would only delay the calls. */
	has_race_thread = sysconf(_SC_NPROCESSORS_ONLN) > 1 &&
		!pthread_create(&thread, NULL, race_thread, NULL);
	begin_process();
	run_steps(nr);
	shared->done = true;
	_exit(0);
}

static void show_file(pid_t pid, const char *what)
{
	char text[2000], *line, *rest = text;

	read_file(format_text("/proc/%d/%s", pid, what), text, sizeof(text));
	while ((line = strsep(&rest, "\n")))
		if (*line)
			note("  %s: %.120s", what, line);
}

/* Shows, for each process, also the kernel function in which it waits. */
static void show_last_calls(void)
{
	for (int i = 0; i <= NR_CHILDREN; i++) {
		const struct last_call *l = &shared->last_calls[i];
		char hex[3 * 64 + 1] = "";

		if (!l->pid)
			continue;
		for (__u32 n = 0; n < l->bytes && n < 64; n++)
			sprintf(hex + 3 * n, "%02x ", l->first_bytes[n]);
		note("pid %d, call %llu: %s(fd %d, %#llx) %s of %u bytes: %s", l->pid, l->number,
		     l->name ?: "none", l->fd, l->arg, l->shape ?: "", l->bytes, hex);
		show_file(l->pid, "wchan");
		show_file(l->pid, "stack");
	}
}

/* Returns false if a process does not end within @ms milliseconds. */
static bool end_round(pid_t pid, int ms)
{
	while (ms-- > 0) {
		kill(-pid, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return true;
		sleep_ms(1);
	}
	return false;
}

/* A round counts as hung if it makes no operation for HANG_MS milliseconds. */
#define HANG_MS	100000L

static void run_round(int n, int nr, __u64 first_seed)
{
	long idle_ms = 0, hang_ms = HANG_MS * 1000 / scale_down(1000);
	int status = 0;
	__u64 last_steps = 0;
	pid_t pid;

	memset(shared->last_calls, 0, sizeof(shared->last_calls));
	shared->done = false;
	round_number = n;
	plain_user = n % 3 == 2;
	seed = first_seed + n * 0x9e3779b97f4a7c15ULL;
	seed |= !seed;
	for (int i = 0; i < 4; i++)
		random_u64();
	fflush(stdout);
	pid = fork_child(run_round_process(nr));
	setpgid(pid, pid);
	while (pid > 0 && waitpid(pid, &status, WNOHANG) != pid && idle_ms < hang_ms) {
		idle_ms = shared->steps == last_steps ? idle_ms + 5 : 0;
		last_steps = shared->steps;
		sleep_ms(5);
	}
	if (idle_ms >= hang_ms) {
		note("round %d hangs", n);
		shared->nr_hung++;
		show_last_calls();
	} else if (pid < 0 || status || !shared->done) {
		note("round %d died: status %#x", n, status);
		shared->nr_died++;
		show_last_calls();
	}
	if (!end_round(pid, hang_ms)) {
		note("round %d: one of its processes does not end", n);
		shared->nr_hung++;
		show_last_calls();
	}
	if (program->after_round)
		program->after_round();
}

/* Returns false if a call succeeded, or failed, fewer than @min times. */
static bool show_rows(unsigned long min)
{
	bool good = true;

	for (int row = 0; row < program->nr_calls + program->nr_extras; row++) {
		const struct call *call = row < program->nr_calls ? &program->calls[row] : NULL;
		bool untested = shared->nr_good[row] < min || shared->nr_refused[row] < min;
		char errnos[800] = "";
		int len = 0;

		for (int e = 1; e < MAX_ERRNO && len < 760; e++)
			if (shared->errnos[row][e])
				len += sprintf(errnos + len, " %s %u", strerrorname_np(e) ?: "?",
					       shared->errnos[row][e]);
		note("%s%s %s: %lu succeeded, %lu failed, %.3f s:%s", untested ? "BLIND " : "",
		     call ? call->name : program->extras[row - program->nr_calls],
		     call && call->arg ? call->arg->name : "", shared->nr_good[row],
		     shared->nr_refused[row], shared->ns[row] / 1e9, errnos);
		good &= !untested;
	}
	return good;
}

/* Returns the percentage of calls that succeeded, over all kinds of calls. */
static unsigned long percent_succeeded(void)
{
	unsigned long good = 0, total = 0;

	for (int row = 0; row < program->nr_calls + program->nr_extras; row++) {
		good += shared->nr_good[row];
		total += shared->nr_good[row] + shared->nr_refused[row];
	}
	note("%lu of %lu calls succeeded", good, total);
	return total ? good * 100 / total : 0;
}

/* Prints the request numbers of the calls, for tests/host/fuzz_tables.sh. */
static int show_tables(void)
{
	for (int i = 0; i < program->nr_calls; i++)
		printf("%s %u\n", program->calls[i].name, (__u32)program->calls[i].request);
	return 0;
}

static bool are_tables_complete(void)
{
	bool complete = true;

	for (int i = 0; i < program->nr_calls; i++)
		if (program->calls[i].arg)
			complete &= is_shape_complete(program->calls[i].arg);
	return complete;
}

static __u64 env_number(const char *name, __u64 fallback)
{
	return getenv(name) ? strtoull(getenv(name), NULL, 0) : fallback;
}

/* Seconds after which no new round begins, unless CALLS or ROUND is set. */
#define BUDGET		gate_or_long(4, 25)

/* Percent of the calls. With fewer, the fuzzer tests little more than the checks of arguments. */
#define MIN_SUCCEEDED	30

/* Main function of a fuzzer. @prepare loads the modules; fuzz_main() removes them. */
static int fuzz_main(const struct program *p, int argc, char **argv, void (*prepare)(void))
{
	long default_calls = gate_or_long(8000, 40000 + 1000 * p->nr_calls);
	__u64 calls = env_number("CALLS", scale_down(default_calls)), first_seed;
	int only_round = env_number("ROUND", -1), rounds;
	__u64 end = getenv("CALLS") || only_round >= 0 ? ~0ULL : now_ns() / 1000000000 + BUDGET;
	unsigned long min, succeeded, per_round;

	program = p;
	if (argc > 1 && !strcmp(argv[1], "tables"))
		return show_tables() || !are_tables_complete();
	plan(6);
	shared = map_memory(sizeof(*shared), MAP_SHARED);
	bail_if(p->nr_calls + p->nr_extras > MAX_ROWS, "memory");
	/* In make test the calls are the same each time, so no run fails by chance. */
	first_seed = is_long_run() ? (__u64)time(NULL) * 65537 + getpid() : 0x5eed;
	first_seed = env_number("SEED", first_seed);
	note("SEED=%llu CALLS=%llu", first_seed, calls);
	prepare();
	/* Processes that a round leaves behind become children of this process. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	per_round = env_number("ROUND_CALLS", CALLS_PER_ROUND);
	rounds = (calls + per_round - 1) / per_round;
	for (int n = 0; n < rounds && !shared->nr_hung && now_ns() / 1000000000 < end; n++)
		if (only_round < 0 || n == only_round)
			run_round(n, per_round, first_seed);
	min = only_round < 0 && shared->steps >= 25000;
	note("%llu steps of %llu", shared->steps, calls);
	ok(are_tables_complete(), "9.5 %s: every byte of each structure is described", p->device);
	ok(!shared->nr_hung && !shared->nr_died,
	   "9.5 %s: no call hangs or kills its process (%u, %u)",
	   p->device, shared->nr_hung, shared->nr_died);
	is(shared->nr_wrong, 0,
	   "9.5 %s: errnos are those of user space, nothing beside structures is written",
	   p->device);
	ok(show_rows(min), "9.5 %s: each call succeeded and failed some times", p->device);
	succeeded = percent_succeeded();
	ok(only_round >= 0 || succeeded >= MIN_SUCCEEDED,
	   "9.5 %s: at least %d %% of the calls succeed (%lu %%)",
	   p->device, MIN_SUCCEEDED, succeeded);
	wait_until((unload_modules(), !is_loaded("perfcounters")));
	ok(!is_loaded("perfcounters"), "9.5 %s: perfcounters.ko unloads at the end", p->device);
	return finish();
}

#endif
