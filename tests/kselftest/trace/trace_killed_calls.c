// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 200
 *
 * Tests processes that are killed while they create or resume a trace. After the death of such a
 * process, the trace records either all running processes or none of them.
 */
#include "trace.h"
#include <sys/prctl.h>

#define NR_OTHERS	8
#define MARKERS		4000
#define PER_CALL	500
#define WANTED_KILLS	3
#define MAX_TRIES	30

/*
 * The calls visit the processes in the order in which they have attached: first this process, and
 * then the other processes, whose markers keep the call busy.
 */
static struct traced_process first;
static int marker, trace_fd;

static struct {
	volatile int started, ready, returned, answered;
	/* The answer of the last process: the word of its first marker. */
	volatile __u32 last_word;
} *shared;

static void register_many(struct traced_process *t)
{
	static struct perftrace_marker markers[PER_CALL];

	for (int i = 0; i < MARKERS; i += PER_CALL) {
		for (int k = 0; k < PER_CALL; k++)
			markers[k] = make_marker(format_text("killed:of_many_%040d", i + k), "");
		bail_on_error(ioctl_markers(t->fd, PERFTRACE_REGISTER, markers, PER_CALL, NULL),
			      "PERFTRACE_REGISTER");
	}
}

static void run_other(int nr)
{
	struct traced_process t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wait_until(shared->started > nr);
	traced_open(&t, 0);
	register_many(&t);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	for (;; usleep(1000))
		if (nr == NR_OTHERS - 1 && !shared->answered) {
			shared->last_word = t.words[0];
			shared->answered = 1;
		}
}

static bool is_last_recorded(int slot)
{
	shared->answered = 0;
	bail_if(!wait_until(shared->answered), "the last process");
	return shared->last_word >> slot & 1;
}

/* Attaches this process and then the other processes, one after the other. */
static void attach_all(pid_t *pids)
{
	for (int i = 0; i < NR_OTHERS; i++)
		pids[i] = fork_child(run_other(i));
	marker = traced_open_marker(&first, 0, "killed:first");
	bail_on_error(marker, "a marker");
	for (int i = 0; i < NR_OTHERS; i++) {
		shared->started = i + 1;
		bail_if(!wait_until(shared->ready == i + 1), "a traced process");
	}
}

/*
 * Runs @call in a child process, and kills the child as soon as the trace records the first
 * process. Returns true if the child was killed before the call returned.
 */
static bool kill_in_call(void (*call)(void))
{
	__u64 end = now_ns() + scale_timeout(30) * 1000000000ULL;
	pid_t pid;

	shared->returned = 0;
	pid = fork_child({
		pin_to_cpu(1);
		call();
		shared->returned = 1;
		pause_forever();
	});
	while (!first.words[marker] && now_ns() < end)
		;
	kill_child(pid);
	return !shared->returned;
}

static void create(void)
{
	int slot;

	trace_create("killed", "killed:*", PERFTRACE_KEEP, 4096, &slot);
}

static void test_killed_creator(void)
{
	int kills = 0, half = 0, left = 0, device = open_trace_device();

	for (int i = 0; i < MAX_TRIES && kills < WANTED_KILLS; i++) {
		struct perftrace_create named = make_trace("killed", "", 0, 0);
		struct perftrace_info info = { .size = sizeof(info) };

		kills += kill_in_call(create);
		if (trace_ioctl(device, PERFTRACE_NEXT_TRACE, &info)) {
			left += first.words[marker] != 0;
			continue;
		}
		half += !is_last_recorded(info.slot);
		trace_end(try_open_trace(PERFTRACE_OPEN, &named));
	}
	ok(kills, "3.11 killed creator: it is killed in PERFTRACE_CREATE (%d times)", kills);
	is(half, 0, "3.11 killed creator: a trace that remains records all processes");
	is(left, 0, "3.11 killed creator: without the trace, no process writes events");
	close(device);
}

static void resume(void)
{
	int off = 0;

	trace_ioctl(trace_fd, PERFTRACE_PAUSE, &off);
}

static void test_killed_resume(void)
{
	int slot, on = 1, kills = 0, half = 0, left = 0;

	trace_fd = trace_create("resumed", "killed:*", PERFTRACE_PAUSED, 4096, &slot);
	for (int i = 0; i < MAX_TRIES && kills < WANTED_KILLS; i++) {
		kills += kill_in_call(resume);
		if (trace_info(trace_fd).flags & PERFTRACE_PAUSED) {
			left += is_wanted(&first, marker, slot);
			continue;
		}
		half += !is_last_recorded(slot);
		bail_on_error(trace_ioctl(trace_fd, PERFTRACE_PAUSE, &on), "PERFTRACE_PAUSE");
	}
	ok(kills, "3.11 killed resume: its caller is killed in PERFTRACE_PAUSE (%d times)", kills);
	is(half, 0, "3.11 killed resume: a trace that is not paused records all processes");
	is(left, 0, "3.11 killed resume: a trace that is paused records no process");
	trace_end(trace_fd);
}

int main(void)
{
	pid_t pids[NR_OTHERS];

	plan(3 + 3);
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	pin_to_cpu(0);
	attach_all(pids);
	test_killed_creator();
	test_killed_resume();
	for (int i = 0; i < NR_OTHERS; i++)
		kill_child(pids[i]);
	traced_close(&first);
	return finish();
}
