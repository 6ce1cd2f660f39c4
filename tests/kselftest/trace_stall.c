// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: poke
 * timeout: 200
 *
 * What a user chooses takes his own time, and not that of others: many markers with long names,
 * traces whose globs take long to compare with them, and buffers that have to be freed.
 */
#include "trace.h"
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define OTHERS		8
#define MARKERS		4000
#define AT_ONCE		500
#define ROUNDS		gate_or_long(8, 20)
#define MOST_MS		1000

static struct {
	volatile int go, ready, created;
	volatile bool stop;
} *shared;

static void become(int user)
{
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
		_exit(97);
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A process with as many markers as there may be, nearly. */
static void with_many(void)
{
	static struct perftrace_marker markers[AT_ONCE];
	struct traced t;

	become(1001);
	traced_open(&t, 0);
	for (int i = 0; i < MARKERS; i += AT_ONCE) {
		for (int k = 0; k < AT_ONCE; k++) {
			char name[64];

			snprintf(name, sizeof(name), "stall:%.50s%06d",
				 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i + k);
			markers[k] = a_marker(name, "");
		}
		markers_call(t.fd, PERFTRACE_REGISTER, markers, AT_ONCE, NULL);
	}
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

/* Traces that want none of them, after a long look; with buffers as large as may be. */
static void with_globs(void)
{
	char globs[PERFTRACE_FIELDS_MAX] = "";
	int slot, fd;

	become(1001);
	for (int i = 0; i < 4; i++)
		snprintf(globs + strlen(globs), sizeof(globs) - strlen(globs), "%s%s", i ? " " : "",
			 "stall:*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b");
	while (!shared->stop) {
		fd = trace_create("stall", globs, 0, PERFTRACE_BYTES_MAX, &slot);
		shared->created++;
		close(fd);
	}
	_exit(0);
}

/* The longest time of a process that begins, has a marker, is traced, and ends. */
static __u64 longest(void)
{
	__u64 most = 0;

	for (int i = 0; i < ROUNDS; i++) {
		__u64 began = now_ns() / 1000000, took;
		int slot, fd = trace_create("mine", "mine:*", 0, 4096, &slot);
		int status = in_child({
			struct traced t;
			int marker;

			traced_open(&t, 0);
			marker = marker_register(&t, "mine:one", "number:u64");
			_exit(marker < 0 || !becomes_wanted(&t, marker, slot, true));
		});

		if (status)
			bail("a child");
		close(fd);
		took = now_ns() / 1000000 - began;
		most = took > most ? took : most;
	}
	return most;
}

int main(void)
{
	pid_t others[OTHERS + 1];
	__u64 alone, beside;
	int status, before;

	plan(4);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_load();
	alone = longest();
	for (int i = 0; i < OTHERS; i++) {
		others[i] = fork();
		if (!others[i])
			with_many();
	}
	wait_until(shared->ready == OTHERS);
	is(shared->ready, OTHERS, "9.2 processes of a user have %d markers each", MARKERS);
	others[OTHERS] = fork();
	if (!others[OTHERS])
		with_globs();
	wait_until(shared->created);
	before = shared->created;
	beside = longest();
	note("%llu ms alone; %llu ms beside %d traces", alone, beside, shared->created - before);
	wait_until(shared->created > before);
	ok(shared->created > before, "9.2 whose traces begin and end all the time");
	ok(beside < (__u64)patience(MOST_MS), "9.2 others' processes begin all the same (%llu ms)",
	   beside);
	shared->stop = true;
	waitpid(others[OTHERS], &status, 0);
	for (int i = 0; i < OTHERS; i++) {
		kill(others[i], SIGKILL);
		waitpid(others[i], NULL, 0);
	}
	ok(WIFEXITED(status) && !WEXITSTATUS(status), "9.2 and he has not been refused any");
	return finish();
}
