// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: probes
 * timeout: 200
 *
 * Tests the memory of user tracing. The memory that a trace keeps for ended processes is limited,
 * and PERFTRACE_INFO shows the amount. The memory that user tracing uses for a user is limited, and
 * is charged to this user.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"

#define MARKERS		4000
#define PER_CALL	500
#define MIB		(1 << 20)

static struct {
	volatile int go, registered, error;
} *shared;

/*
 * Markers with names of 50 letters and fields of about 210 bytes, in memory that the processes of
 * this test share.
 */
static struct perftrace_marker *markers;

static void make_markers(void)
{
	char fields[220];

	markers = map_memory(2 * MARKERS * sizeof(*markers), MAP_SHARED);
	for (int i = 0; i < 10; i++)
		snprintf(fields + 21 * i, 22, "field_number_%03d:u64%s", i, i < 9 ? " " : "");
	for (int i = 0; i < 2 * MARKERS; i++)
		markers[i] = make_marker(format_text("memory:event_%037d", i), fields);
}

/* Stores the errno of the first marker that is not accepted. */
static void register_many(struct traced_process *t, int from)
{
	for (int i = from; i < from + MARKERS; i += PER_CALL) {
		for (int k = i; k < i + PER_CALL; k++)
			markers[k].error = 0;
		ioctl_markers(t->fd, PERFTRACE_REGISTER, markers + i, PER_CALL, NULL);
		for (int k = i; k < i + PER_CALL; k++) {
			if (markers[k].error) {
				shared->error = markers[k].error;
				return;
			}
			shared->registered++;
		}
	}
}

/* A flight recorder with PERFTRACE_KEEP traces one process after the other. */
static void test_dead_processes(void)
{
	const int flags = PERFTRACE_KEEP | PERFTRACE_FLIGHT;
	int slot, fd = trace_create("dead", "memory:*", flags, 4096, &slot);
	int nr = 60, bad = 0;
	struct perftrace_info info;
	long long before, used;

	before = settled_meminfo_kb().free;
	for (int i = 0; i < nr; i++) {
		bad += !!in_child({
			struct traced_process t;
			struct perftrace_marker marker = make_marker("memory:x", "number:u64");

			pin_to_cpu(0);
			traced_open(&t, 0);
			ioctl_markers(t.fd, PERFTRACE_REGISTER, &marker, 1, NULL);
			register_many(&t, 0);
			exit_if(!wait_wanted(&t, marker.number, slot, true), 1);
			write_number(&t, slot, 0, marker.number, i);
		});
	}
	is(bad, 0, "9.1 ended processes: %d ran with %d markers each", nr, MARKERS);
	used = (before - settled_meminfo_kb().free) * 1024LL;
	info = trace_info(fd);
	note("%lld kB used, %llu kB shown, %llu processes kept, %llu dropped", used / 1024,
	     info.memory / 1024, info.nr_processes, info.dropped);
	ok(used < 96LL * MIB, "9.1 ended processes: less than 96 MiB are used for them");
	ok(info.memory <= 66ULL * MIB, "9.1 ended processes: info shows 66 MiB or less");
	ok(used < 4 * MIB || (used > (long long)info.memory * 3 / 4 - 4 * MIB &&
			      used < (long long)info.memory * 5 / 4 + 4 * MIB),
	   "9.1 ended processes: info shows what is used, within a quarter");
	is(info.nr_processes + info.dropped, nr,
	   "9.6 ended processes: those that are not kept are counted as dropped");
	is(trace_ioctl(fd, PERFTRACE_END, NULL), 0, "9.1 ended processes: the trace ends");
	close(fd);
	ok(wait_until(nothing_charged()), "9.1 ended processes: no charge is left after the trace");
}

/* Starts a process of @user that registers markers until one is refused, and then pauses. */
static pid_t register_until_refused(int user, int from)
{
	pid_t child;

	shared->go = 0;
	shared->registered = 0;
	shared->error = 0;
	child = fork_child({
		struct traced_process t;

		switch_user(user, -1);
		t.fd = open_trace_device();
		shared->error = -try_attach(t.fd, 0, &t.attach);
		if (!shared->error) {
			traced_map(&t, NULL);
			register_many(&t, from);
		}
		shared->go = 1;
		pause_forever();
	});
	wait_until(shared->go);
	return child;
}

static void test_user_kb(void)
{
	pid_t first, second, other;
	__u64 charged;
	int nr;

	set_user_kb(512);
	first = register_until_refused(1001, 0);
	nr = shared->registered;
	charged = charged_bytes(1001);
	note("%d markers, %llu bytes", nr, charged);
	is(shared->error, EDQUOT, "9.4 user_kb: a marker beyond the limit is EDQUOT");
	ok(nr > 500 && nr < 3000, "9.1 user_kb: more than 500 markers fit into 512 kB");
	ok(charged <= 512 << 10 && charged > (512 << 10) - 1024,
	   "9.4 user_kb: the limit is used up to the last kB, and not exceeded");
	second = register_until_refused(1001, nr);
	is(shared->error, EDQUOT, "9.1 user_kb: a second process of the user is EDQUOT");
	kill_child(second);
	other = register_until_refused(1002, 0);
	is(shared->registered, nr, "9.1 user_kb: another user can register as many markers");
	kill_child(other);
	kill_child(first);
	wait_until(!charged_bytes(1001));
	is(charged_bytes(1001), 0,
	   "9.1 user_kb: the charge is given back when the process has ended");
	set_user_kb(0);
}

int main(void)
{
	plan(7 + 6);
	shared = map_memory(4096, MAP_SHARED);
	make_markers();
	trace_load();
	test_dead_processes();
	test_user_kb();
	return finish();
}
