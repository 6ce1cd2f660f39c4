// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * PERFTRACE_OPEN without CAP_PERFMON creates a kernel thread that exists during the call. The
 * number of concurrent calls of one user is limited. If a call fails because another thread has
 * opened a trace through the same file, the call does not change the trace.
 */
#include "trace.h"
#include "capabilities.h"
#include <pthread.h>

#define OPENERS	32
#define MAX_CALLS	8
#define ROUNDS	100

static struct {
	volatile int ready, stop;
	unsigned long opened, busy, other;
} *shared;

static void set_user(void)
{
	switch_user(1001, -1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static int try_open(void)
{
	struct perftrace_create create = { .size = sizeof(create), .name = "asked" };

	return try_trace(PERFTRACE_OPEN, &create);
}

static void open_until_stopped(void)
{
	set_user();
	while (!shared->stop) {
		int rc = try_open();

		__atomic_fetch_add(!rc ? &shared->opened : rc == -EBUSY ? &shared->busy :
				   &shared->other, 1, __ATOMIC_RELAXED);
	}
	_exit(0);
}

static int nr_owner_threads(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int nr = 0;

	while (dir && (entry = readdir(dir))) {
		char comm[32] = "";

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		read_file(format_text("/proc/%s/comm", entry->d_name), comm, sizeof(comm));
		nr += !strncmp(comm, "perftrace_owner", 15);
	}
	if (dir)
		closedir(dir);
	return nr;
}

static pthread_barrier_t barrier;
static int common_fd, nr_opened;

/*
 * Opens a trace through the file common_fd, once in each round. The name of the trace is "asked".
 * Two threads run open_common(), so that in each round both call PERFTRACE_OPEN with one file at
 * the same time.
 */
static void *open_common(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct perftrace_create create = { .size = sizeof(create), .name = "asked" };

		pthread_barrier_wait(&barrier);
		if (!ioctl(common_fd, PERFTRACE_OPEN, &create))
			__atomic_fetch_add(&nr_opened, 1, __ATOMIC_RELAXED);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* Two threads open with one file. Returns the number of opened traces. */
static int open_twice(void)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 2; i++)
		bail_if(pthread_create(&thread, NULL, open_common, NULL), "pthread_create");
	for (int i = 0; i < ROUNDS; i++) {
		common_fd = open_trace_device();
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		close(common_fd);
	}
	return nr_opened;
}

int main(void)
{
	int max = 0, without_others;
	pid_t maker;

	plan(6);
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	maker = fork_child({
		int slot;

		set_user();
		trace_create("asked", "none:*", 0, 4096, &slot);
		shared->ready = 1;
		pause_forever();
	});
	wait_until(shared->ready);
	for (int i = 0; i < OPENERS; i++)
		if (!fork())
			open_until_stopped();
	for (int i = 0; i < 20; i++) {
		int nr = nr_owner_threads();

		max = nr > max ? nr : max;
		usleep(20000);
	}
	shared->stop = 1;
	for (int i = 0; i < OPENERS; i++)
		wait(NULL);
	note("%lu opened, %lu refused; %d threads at most", shared->opened, shared->busy, max);
	ok(shared->opened, "9.3 open: a user can open a trace of the same user");
	ok(shared->busy, "9.4 open: EBUSY beyond %d calls of one user at a time", MAX_CALLS);
	ok(max <= MAX_CALLS, "9.4 open: at most as many kernel threads as calls (%d)", max);
	is(shared->other, 0, "9.4 open: no error but EBUSY");
	without_others = in_child({
		set_user();
		_exit(-try_open());
	});
	is(without_others, 0, "9.4 open: succeeds when the other calls are done");
	without_others = in_child({
		set_user();
		_exit(open_twice() != ROUNDS);
	});
	is(without_others, 0,
	   "9.4 open: two threads with one file, 100 times: one of them succeeds each time");
	kill_child(maker);
	return finish();
}
