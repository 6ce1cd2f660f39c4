/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fuzzer's processes, its results, and the main function of its programs.
 *
 * Calls are made in rounds. A round is a process with limits of memory and of descriptors. Every
 * third round runs as a user without capabilities. The process has children that make calls with
 * its open files, and others that only run, as targets for monitoring. If a round hangs or dies,
 * the last call of each process is shown.
 *
 * Environment: SEED (the first round's), CALLS (their number, in all), ROUND (only that one).
 */
#ifndef IOCTL_FUZZ_RUN_H
#define IOCTL_FUZZ_RUN_H

#include "ioctl_fuzz_calls.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

#define A_ROUND		2000
#define USER		1000
#define VICTIMS		3

static bool plain_user, is_kid;

/* Processes that are monitored, killed and replaced */

static pid_t victims[VICTIMS], kids[KIDS];

static void victim(int kind)
{
	volatile char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGIO, SIG_IGN);
	close_range(3, ~0U, 0);
	for (int n = 0; kind < 2 || n < 20; n++) {
		for (int i = 0; i < 20 && kind != 1; i++) {
			p[0]++;
			syscall(SYS_getppid);
		}
		madvise((void *)p, 4096, MADV_DONTNEED);
		/* Sleeps most of the time, so that the callers get the CPUs. */
		sleep_ms(5);
	}
	_exit(0);
}

/* Fills the pool of task IDs. This process is the first in it; its parent is not in it. */
static void pids_anew(void)
{
	pools[K_PID].nr = 0;
	pool_add(K_PID, syscall(SYS_gettid));
	for (int i = 0; i < VICTIMS; i++)
		if (victims[i])
			pool_add(K_PID, victims[i]);
	for (int i = 0; i < KIDS && !is_kid; i++)
		if (kids[i])
			pool_add(K_PID, kids[i]);
}

static void victim_anew(int n)
{
	fflush(stdout);
	victims[n] = fork();
	if (!victims[n])
		victim(n);
	if (victims[n] < 0)
		victims[n] = 0;
	pids_anew();
}

static void do_kill(void)
{
	static const int signals[] = { SIGKILL, SIGSTOP, SIGCONT, SIGUSR1 };
	int n = below(VICTIMS), status;

	if (is_kid || !victims[n])
		return;
	kill(victims[n], signals[below(4)]);
	if (waitpid(victims[n], &status, WNOHANG) == victims[n] || below(4))
		return;
	/* The process may be stopped, or a context may block it. */
	kill(victims[n], SIGKILL);
	for (int i = 0; i < 100 && waitpid(victims[n], &status, WNOHANG) != victims[n]; i++)
		sleep_ms(1);
	victim_anew(n);
}

static void steps(int nr);

static void begin_process(void)
{
	struct itimerval every = { { 0, 10000 }, { 0, 10000 } };

	pids_anew();
	/* A signal every 10 ms interrupts calls that block. */
	setitimer(ITIMER_REAL, &every, NULL);
	if (program->begin)
		program->begin();
}

/* Forks a child that makes calls for a while with all that its parent has open. */
static void do_fork(void)
{
	int n = below(KIDS), status;

	if (is_kid)
		return;
	for (int i = 0; i < KIDS; i++)
		if (kids[i] && waitpid(kids[i], &status, WNOHANG) == kids[i]) {
			sane(WIFSIGNALED(status) || !WEXITSTATUS(status),
			     "a child died: status %#x; its last call was %s", status,
			     shared->last[1 + i].name);
			kids[i] = 0;
		}
	if (kids[n])
		return;
	fflush(stdout);
	kids[n] = fork();
	if (kids[n] < 0)
		kids[n] = 0;
	if (kids[n]) {
		pids_anew();
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	is_kid = true;
	has_racer = false;
	last = &shared->last[1 + n];
	*last = (struct last) { .pid = getpid() };
	seed ^= 0x9e3779b97f4a7c15ULL * getpid();
	seed |= !seed;
	maps_anew();
	areas_anew();
	begin_process();
	steps(20 + below(80));
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
	do_open, do_dup, do_close, do_close, do_map, do_map, do_touch, do_arena, do_read,
	do_descriptor, do_move, do_fork, do_kill, do_extra, do_extra, do_extra,
};

static void steps(int nr)
{
	/* Devices with few calls get more of the other operations. */
	int calls = program->nr_calls < 8 ? 4 : 8;

	for (steps_done = 0; steps_done < nr;) {
		step();
		if (below(calls))
			do_call();
		else
			operations[below(sizeof(operations) / sizeof(*operations))]();
	}
}

/* Rounds */

static void drop_rights(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { 0 };

	if (setgroups(0, NULL) || setresgid(USER, USER, USER) || setresuid(USER, USER, USER) ||
	    syscall(SYS_capset, &header, none))
		_exit(97);
	/* Dumpable, as a program is that a user has started. */
	prctl(PR_SET_DUMPABLE, 1);
}

static void limit(int what, rlim_t most)
{
	struct rlimit both = { most, most };

	setrlimit(what, &both);
}

static void round_body(int nr)
{
	struct sigaction fault = { .sa_handler = on_fault }, alarm = { .sa_handler = on_alarm };
	pthread_t thread;

	setpgid(0, 0);
	limit(RLIMIT_NOFILE, 256);
	/* Enough for all mappings of the largest size, and some more. */
	limit(RLIMIT_AS, 8UL << 30);
	limit(RLIMIT_CORE, 0);
	if (plain_user)
		drop_rights();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGBUS, &fault, NULL);
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGALRM, &alarm, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	last = &shared->last[0];
	last->pid = getpid();
	areas_map();
	device_memory = memory_of_device;
	for (int i = 0; i < VICTIMS; i++)
		victim_anew(i);
	has_racer = !pthread_create(&thread, NULL, racer, NULL);
	begin_process();
	steps(nr);
	shared->done = true;
	_exit(0);
}

static void show_file(pid_t pid, const char *what)
{
	char path[60], text[2000], *line, *rest = text;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	read_file(path, text, sizeof(text));
	while ((line = strsep(&rest, "\n")))
		if (*line)
			note("  %s: %.120s", what, line);
}

/* Shows the last call of each process of the round, and where in the kernel it is. */
static void show_last(void)
{
	for (int i = 0; i <= KIDS; i++) {
		const struct last *l = &shared->last[i];
		char hex[3 * 64 + 1] = "";

		if (!l->pid)
			continue;
		for (__u32 n = 0; n < l->bytes && n < 64; n++)
			sprintf(hex + 3 * n, "%02x ", l->first[n]);
		note("pid %d, call %llu: %s(fd %d, %#llx) %s of %u bytes: %s", l->pid, l->number,
		     l->name ?: "none", l->fd, l->arg, l->shape ?: "", l->bytes, hex);
		show_file(l->pid, "wchan");
		show_file(l->pid, "stack");
	}
}

/* Kills everything that the round has started. Returns false if something does not end in time. */
static bool round_ends(pid_t pid, int ms)
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

/* A round without a step for this long counts as hung. */
#define HANG_MS	100000L

static void round_make(int n, int nr, __u64 first_seed)
{
	long still = 0, patience = HANG_MS * 1000 / scale_down(1000);
	int status = 0;
	__u64 steps_seen = 0;
	pid_t pid;

	memset(shared->last, 0, sizeof(shared->last));
	shared->done = false;
	round_number = n;
	plain_user = n % 3 == 2;
	seed = first_seed + n * 0x9e3779b97f4a7c15ULL;
	seed |= !seed;
	for (int i = 0; i < 4; i++)
		rnd();
	fflush(stdout);
	pid = fork();
	if (!pid)
		round_body(nr);
	setpgid(pid, pid);
	while (pid > 0 && waitpid(pid, &status, WNOHANG) != pid && still < patience) {
		still = shared->steps == steps_seen ? still + 5 : 0;
		steps_seen = shared->steps;
		sleep_ms(5);
	}
	if (still >= patience) {
		note("round %d hangs", n);
		shared->hung++;
		show_last();
	} else if (pid < 0 || status || !shared->done) {
		note("round %d died: status %#x", n, status);
		shared->died++;
		show_last();
	}
	if (!round_ends(pid, patience)) {
		note("round %d: one of its processes does not end", n);
		shared->hung++;
		show_last();
	}
	if (program->after)
		program->after();
}

/*
 * Shows how often each call succeeded and failed, with the errnos. Returns false if a call did one
 * of them fewer than @need times.
 */
static bool rows_shown(unsigned long need)
{
	bool good = true;

	for (int row = 0; row < program->nr_calls + program->nr_extras; row++) {
		const struct call *call = row < program->nr_calls ? &program->calls[row] : NULL;
		bool blind = shared->good[row] < need || shared->refused[row] < need;
		char errnos[800] = "";
		int at = 0;

		for (int e = 1; e < MAX_ERRNO && at < 760; e++)
			if (shared->errnos[row][e])
				at += sprintf(errnos + at, " %s %u", strerrorname_np(e) ?: "?",
					      shared->errnos[row][e]);
		note("%s%s %s: %lu succeeded, %lu failed, %.3f s:%s", blind ? "BLIND " : "",
		     call ? call->name : program->extras[row - program->nr_calls],
		     call && call->arg ? call->arg->name : "", shared->good[row],
		     shared->refused[row], shared->ns[row] / 1e9, errnos);
		good &= !blind;
	}
	return good;
}

/* Returns the percentage of calls that succeeded, over all rows. */
static unsigned long percent_done(void)
{
	unsigned long good = 0, all = 0;

	for (int row = 0; row < program->nr_calls + program->nr_extras; row++) {
		good += shared->good[row];
		all += shared->good[row] + shared->refused[row];
	}
	note("%lu of %lu calls succeeded", good, all);
	return all ? good * 100 / all : 0;
}

/* Prints the numbers of the calls, for tests/host/fuzz_tables.sh. */
static int tables_shown(void)
{
	for (int i = 0; i < program->nr_calls; i++)
		printf("%s %u\n", program->calls[i].name, (__u32)program->calls[i].request);
	return 0;
}

static bool tables_whole(void)
{
	bool whole = true;

	for (int i = 0; i < program->nr_calls; i++)
		if (program->calls[i].arg)
			whole &= shape_whole(program->calls[i].arg);
	return whole;
}

static __u64 from_environment(const char *name, __u64 otherwise)
{
	return getenv(name) ? strtoull(getenv(name), NULL, 0) : otherwise;
}

/*
 * Seconds after which no round begins, unless CALLS or ROUND is set. A busy machine makes fewer
 * calls.
 */
#define BUDGET		gate_or_long(10, 150)

/* Percentage of calls that must succeed. Below it, little but checks of arguments is tested. */
#define LEAST_DONE	30

/*
 * Main function of a program of the fuzzer. @prepare loads the modules. All modules that use
 * perfcounters.ko are removed at the end.
 */
static int fuzz_main(const struct program *p, int argc, char **argv, void (*prepare)(void))
{
	long usual = gate_or_long(6 * A_ROUND, 40000 + 3000 * p->nr_calls);
	__u64 calls = from_environment("CALLS", scale_down(usual)), first_seed;
	int only = from_environment("ROUND", -1), rounds;
	__u64 end = getenv("CALLS") || only >= 0 ? ~0ULL : now_ns() / 1000000000 + BUDGET;
	unsigned long need, done;

	program = p;
	if (argc > 1 && !strcmp(argv[1], "tables"))
		return tables_shown() || !tables_whole();
	plan(6);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED || p->nr_calls + p->nr_extras > MAX_ROWS)
		bail("memory");
	/* make test makes the same calls each time, so that it does not fail by chance. */
	first_seed = is_long_run() ? (__u64)time(NULL) * 65537 + getpid() : 0x5eed;
	first_seed = from_environment("SEED", first_seed);
	note("SEED=%llu CALLS=%llu", first_seed, calls);
	prepare();
	/* Processes that a round leaves behind become children of this process. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rounds = (calls + A_ROUND - 1) / A_ROUND;
	for (int n = 0; n < rounds && !shared->hung && now_ns() / 1000000000 < end; n++)
		if (only < 0 || n == only)
			round_make(n, A_ROUND, first_seed);
	need = only >= 0 || shared->steps < 25000 ? 0 : shared->steps < 50000 ? 1 : 3;
	note("%llu steps of %llu", shared->steps, calls);
	ok(tables_whole(), "9.5 %s: every byte of each structure is described", p->device);
	ok(!shared->hung && !shared->died, "9.5 %s: no call hangs or kills its process (%u, %u)",
	   p->device, shared->hung, shared->died);
	is(shared->wrong, 0,
	   "9.5 %s: errnos are those of user space, nothing beside structures is written",
	   p->device);
	ok(rows_shown(need), "9.5 %s: each call succeeded and failed some times", p->device);
	done = percent_done();
	ok(only >= 0 || done >= LEAST_DONE, "9.5 %s: at least %d %% of the calls succeed (%lu %%)",
	   p->device, LEAST_DONE, done);
	wait_until((unload_modules(), !is_loaded("perfcounters")));
	ok(!is_loaded("perfcounters"), "9.5 %s: perfcounters.ko unloads at the end", p->device);
	return finish();
}

#endif
