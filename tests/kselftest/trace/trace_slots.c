// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests sixteen traces at once, the maximum number, each with a different slot, size and mode. Also
 * tests trace slots that are used again and again while processes write.
 */
#include "trace.h"
#include <sys/prctl.h>

#define SLOT_FIELDS	"number:u64 slot:u32"
#define WRITERS	3

struct fields {
	__u64 number;
	__u32 slot;
} __attribute__((packed));

static struct {
	volatile int ready;
	volatile __u64 written[WRITERS];
} *shared;

/*
 * Writes an event after the same checks as libperftrace: the generation of the slot, the word of
 * the marker, and the generation again in the control page of the slot. The event holds the slot
 * and the generation for which it was written.
 */
static void write_once(const struct traced_process *t, int marker, int slot, int cpu,
		       __u64 *written)
{
	const volatile struct perftrace_slot *s = &t->control->slots[slot];
	struct fields fields = { .slot = slot };
	__u32 generation = s->generation;

	if (!(generation & 1) || !is_wanted(t, marker, slot))
		return;
	fields.number = generation;
	if (s->generation == generation &&
	    write_event(t, slot, cpu, marker, &fields, sizeof(fields)))
		++*written;
}

static void write_forever(int writer)
{
	struct traced_process t;
	__u64 written = 0;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(writer % 2);
	traced_open(&t, 0);
	marker = marker_register(&t, format_text("many:w%d", writer), SLOT_FIELDS);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
			write_once(&t, marker, slot, writer % 2, &written);
		shared->written[writer] = written;
	}
}

/*
 * Reads all events of a trace. Increases @keys by the number of processes whose events were read,
 * and @events by the number of events. Returns true if all events are of slot @slot and of the same
 * generation.
 */
static bool events_match(int fd, int slot, __u64 *generation, __u64 *keys, __u64 *events)
{
	struct perftrace_read r = first_buffer;
	__u64 before = 0;
	bool good = true;

	while (!trace_read_next(fd, &r)) {
		*keys += r.key != before;
		before = r.key;
		for (__u32 offset = 0; offset < r.bytes;) {
			struct perftrace_record *record = (void *)(read_buffer + offset);
			struct fields *fields = (void *)(record + 1);

			if (!record->words)
				return false;
			offset += record->words * 8;
			if (record->marker >= PERFTRACE_LOST)
				continue;
			++*events;
			good &= (int)fields->slot == slot;
			if (!*generation)
				*generation = fields->number;
			good &= fields->number == *generation;
		}
	}
	return good;
}

static void test_max_traces(void)
{
	int fds[PERFTRACE_NR_TRACES], slots[PERFTRACE_NR_TRACES], modes = 0;
	__u32 seen = 0;
	struct perftrace_create create = make_trace("17", "", 0, 0);
	char name[12], globs[32];

	for (int i = 0; i < PERFTRACE_NR_TRACES; i++) {
		snprintf(name, sizeof(name), "%d", i);
		snprintf(globs, sizeof(globs), "many:w%d no:thing%d", i % WRITERS, i);
		fds[i] = trace_create(name, globs, i % 4 == 3 ? PERFTRACE_FLIGHT : 0, 4096 << i % 3,
				      &slots[i]);
		seen |= 1u << slots[i];
	}
	is(seen, 0xffff, "3.11 sixteen traces: each has a slot of its own");
	is(try_open_trace(PERFTRACE_CREATE, &create), -EBUSY,
	   "3.11 sixteen traces: one more is EBUSY");
	for (int i = 0; i < PERFTRACE_NR_TRACES; i++) {
		struct perftrace_info info = trace_info(fds[i]);

		modes += !!(info.flags & PERFTRACE_FLIGHT) == (i % 4 == 3) &&
			 info.bytes == 4096u << i % 3;
	}
	is(modes, PERFTRACE_NR_TRACES, "3.11 sixteen traces: each has its size and mode");
	for (int i = 0; i < PERFTRACE_NR_TRACES; i++)
		close(fds[i]);
}

static void test_slot_reuse(void)
{
	int rounds = scale_down(gate_or_long(80, 240)), good = 0, empty = 0, slots = 0;
	__u64 events = 0, begin = shared->written[0], last;

	for (int i = 0; i < rounds; i++) {
		__u64 keys = 0, before = events, generation = 0;
		int slot, fd;

		/*
		 * Read the writer's number of written events before the trace is created. After the
		 * creation, the writer may already have filled its buffer, and the number of
		 * written events would not increase any more.
		 */
		last = shared->written[i % WRITERS];
		fd = trace_create("again", "many:*", i % 3 ? 0 : PERFTRACE_FLIGHT, 4096, &slot);
		slots |= 1 << slot;
		/*
		 * In round i, wait until one writer has written i % 8 events. If i is a multiple of
		 * 8, do not wait for an event, so that the trace ends at once.
		 */
		for (int n = 0; n < 200000 && shared->written[i % WRITERS] < last + i % 8; n++)
			usleep(100);
		trace_ioctl(fd, PERFTRACE_END, NULL);
		if (events_match(fd, slot, &generation, &keys, &events))
			good++;
		else
			note("round %d, slot %d", i, slot);
		empty += events == before;
		close(fd);
	}
	/*
	 * Writers of this test use no restartable sequence. A writer that is preempted between its
	 * check of the slot and the store of the event may write the event into a later trace.
	 * Because of preempted writers, the test tolerates a few rounds in which a trace has an
	 * event of an earlier trace.
	 */
	ok(good >= rounds - gate_or_long(1, rounds / 100),
	   "3.5 slots in turn: no trace has an event of an earlier trace (%d of %d)", good, rounds);
	ok(empty < rounds / 2 && events > (__u64)rounds,
	   "3.11 slots in turn: the writers are reached (%llu events, %d traces without)",
	   events, empty);
	is(slots, 0xffff, "3.11 slots in turn: all 16 are used");
	ok(shared->written[0] > begin, "3.7 slots in turn: the first writer keeps writing");
}

static void test_reach(void)
{
	int slot, fd = trace_create("reached", "many:*", 0, 65536, &slot), ms;
	__u64 keys = 0, events = 0, generation = 0;

	for (ms = 0; ms < 60000 && keys < WRITERS; ms++) {
		sleep_ms(1);
		keys = 0;
		events_match(fd, slot, &generation, &keys, &events);
	}
	is(keys, WRITERS,
	   "3.11 new trace: reaches all running processes, which make no call for it");
	note("within %d ms", ms);
	is(trace_info(fd).nr_processes, WRITERS, "3.11 new trace: info counts all processes");
	close(fd);
}

int main(void)
{
	pid_t pids[WRITERS];
	int alive = 0;

	trace_load();
	shared = map_memory(4096, MAP_SHARED);
	plan(10);
	for (int i = 0; i < WRITERS; i++)
		pids[i] = fork_child(write_forever(i));
	while (shared->ready < WRITERS)
		sleep_ms(1);
	test_max_traces();
	test_slot_reuse();
	test_reach();
	for (int i = 0; i < WRITERS; i++) {
		alive += !kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	is(alive, WRITERS, "3.7 writers: all run to the end");
	return finish();
}
