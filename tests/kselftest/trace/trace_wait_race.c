// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 240
 *
 * Tests PERFTRACE_WAIT_ROOM with a reader that reads the full buffer at the moment at which the
 * wait times out. The buffer then gets full again. The next wait must last as long as the trace
 * allows, whether the reader was early or late.
 */
#include "trace.h"
#include <pthread.h>

#define RING		4096
#define WAIT_MS		1
#define ROUNDS		gate_or_long(2000, 10000)
/* The reader changes the time of its reads by this number of nanoseconds. */
#define STEP_NS		2000

static struct traced_process self;
static int slot, trace_fd;

/* The main thread stores a new value in round, and the reader stores the same value in done. */
static long wanted_round, done_round;
static __u64 read_at;

static void read_trace(void)
{
	struct perftrace_read r = first_buffer;

	bail_if(trace_read_next(trace_fd, &r), "PERFTRACE_READ");
}

static void *run_reader(void *unused)
{
	pin_to_cpu(1);
	for (long round = 1; round <= ROUNDS; round++) {
		while (__atomic_load_n(&wanted_round, __ATOMIC_ACQUIRE) < round)
			sched_yield();
		while (now_ns() < read_at)
			;
		read_trace();
		__atomic_store_n(&done_round, round, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Fills the buffer. The reader does not check records, so the buffer needs none. */
static void fill_buffer(void)
{
	struct perftrace_buffer *b = get_buffer(&self, slot, 0);

	store_head(b, b->tail + RING);
}

static int wait_for_room(void)
{
	struct perftrace_room room = {
		.slot = slot, .cpu = 0, .tail = get_buffer(&self, slot, 0)->tail,
	};

	return trace_ioctl(self.fd, PERFTRACE_WAIT_ROOM, &room);
}

static void create_trace(void)
{
	struct perftrace_create create = make_trace("race", "race:*", PERFTRACE_WAIT, RING);

	create.wait_ms = WAIT_MS;
	trace_fd = try_open_trace(PERFTRACE_CREATE, &create);
	bail_on_error(trace_fd, "PERFTRACE_CREATE");
	slot = create.slot;
}

int main(void)
{
	long long after_ns = WAIT_MS * 1000000;
	int early = 0, late = 0, other = 0, too_short = 0;
	pthread_t reader;

	plan(3);
	trace_load();
	pin_to_cpu(0);
	create_trace();
	bail_if(traced_open_marker(&self, 0, "race:event") < 0, "a marker");
	bail_if(pthread_create(&reader, NULL, run_reader, NULL), "pthread_create");
	for (long round = 1; round <= ROUNDS; round++) {
		__u64 start;
		int rc;

		fill_buffer();
		read_at = now_ns() + after_ns;
		__atomic_store_n(&wanted_round, round, __ATOMIC_RELEASE);
		rc = wait_for_room();
		while (__atomic_load_n(&done_round, __ATOMIC_ACQUIRE) < round)
			sched_yield();
		early += !rc;
		late += rc == -ETIMEDOUT;
		other += rc && rc != -ETIMEDOUT;
		/* The next read is later or earlier, so it stays close to the end of the wait. */
		after_ns += rc ? -STEP_NS : STEP_NS;
		fill_buffer();
		start = now_ns();
		other += wait_for_room() != -ETIMEDOUT;
		too_short += now_ns() - start < WAIT_MS * 1000000;
		read_trace();
	}
	pthread_join(reader, NULL);
	note("the reader made room %d times, and was late %d times", early, late);
	ok(early > 0 && late > 0,
	   "3.3 reader at the end of a wait: sometimes early, and sometimes late");
	is(other, 0, "3.3 reader at the end of a wait: no wait fails with another error");
	is(too_short, 0,
	   "3.3 reader at the end of a wait: the next wait lasts as long as the trace allows");
	traced_close(&self);
	trace_end(trace_fd);
	return finish();
}
