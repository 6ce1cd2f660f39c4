// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 200
 *
 * Tests which processes a user can trace. A trace must apply the kernel's check for reading
 * /proc/PID/maps, both when a trace attaches to a process and after the process has changed.
 */
#include "capabilities.h"
#include "trace.h"

static void set_ids(int user, int saved, int capability)
{
	prctl(PR_SET_KEEPCAPS, 1);
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, saved))
		_exit(97);
	drop_capabilities_except(capability);
	/* After a change of the user, as after a set-uid program, it is not dumpable. */
	prctl(PR_SET_DUMPABLE, 1);
}

enum credentials { USER, OTHER, CAPABLE, SAVED_ROOT, UNDUMPABLE, IN_USER_NAMESPACE, IN_LANDLOCK,
ROOT, BARE_ROOT, NAMESPACE_ROOT, NR_CREDENTIALS };

static const char * const names[NR_CREDENTIALS] = {
	"a user", "another user", "one with a capability", "one whose saved user is root",
	"one that is not dumpable", "one in a user name space", "one in a Landlock domain",
	"root", "root without capabilities", "root of other name spaces without capabilities",
};

static void set_credentials(enum credentials cred)
{
	switch (cred) {
	case USER:
		set_ids(1000, 1000, -1);
		break;
	case OTHER:
		set_ids(1001, 1001, -1);
		break;
	case CAPABLE:
		set_ids(1000, 1000, CAP_NET_RAW);
		break;
	case SAVED_ROOT:
		set_ids(1000, 0, -1);
		break;
	case UNDUMPABLE:
		set_ids(1000, 1000, -1);
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case IN_USER_NAMESPACE:
		set_ids(1000, 1000, -1);
		exit_if(unshare(CLONE_NEWUSER), 96);
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case IN_LANDLOCK:
		set_ids(1000, 1000, -1);
		enter_landlock_domain();
		break;
	case BARE_ROOT:
		drop_capabilities_except(-1);
		break;
	case NAMESPACE_ROOT:
		exit_if(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC), 94);
		drop_capabilities_except(-1);
		break;
	default:
		break;
	}
}

/* State of a target: requests to the process, and their results. */
static struct target {
	volatile __u64 key;
	volatile int ready, write, written, hide, join_again;
	volatile int slot, result;
} *targets;

/*
 * Runs a target process, which waits for requests in @self. If @self->hide is set, the target
 * becomes undumpable. If @self->join_again is set, the target becomes dumpable and attaches once
 * more, as a second copy of libperftrace does. The target then tries to join all traces again. If
 * @self->write has a new value, the target writes this value as an event.
 */
static void run_target(struct target *self, enum credentials cred)
{
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(0);
	set_credentials(cred);
	marker = traced_open_marker(&t, 0, "rights:x");
	self->key = t.attach.key;
	self->ready = 1;
	for (;;) {
		if (self->hide) {
			prctl(PR_SET_DUMPABLE, 0);
			self->hide = 0;
		}
		if (self->join_again) {
			struct perftrace_attach second;

			prctl(PR_SET_DUMPABLE, 1);
			exit_if(try_attach(open_trace_device(), PERFTRACE_SHARED, &second), 1);
			self->join_again = 0;
		}
		if (self->write != self->written) {
			for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
				if (is_wanted(&t, marker, slot))
					write_number(&t, slot, 0, marker, self->write);
			self->written = self->write;
		}
		usleep(1000);
	}
}

static pid_t start_target(struct target *target, enum credentials cred)
{
	pid_t pid;

	memset(target, 0, sizeof(*target));
	pid = fork_child(run_target(target, cred));
	wait_until(target->ready || waitpid(pid, NULL, WNOHANG) == pid);
	bail_if(!target->ready, "a target ended");
	return pid;
}

static void request_write(struct target *target)
{
	target->write = target->written + 1;
	wait_until(target->written == target->write);
}

/* Returns true if PERFTRACE_NEXT_MARKER lists a marker of process @key. */
static bool is_listed(int fd, __u64 key)
{
	struct perftrace_describe next = { .key = key };

	return !trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &next) && next.key == key;
}

#define MAPS_READABLE	1
#define EVENTS		2
#define MARKERS		4

/* Stores a byte of results for each target. */
static void try_targets(enum credentials cred, const pid_t *pids, unsigned char *answers)
{
	int slot, fd, device;

	set_credentials(cred);
	device = open_trace_device();
	fd = trace_create(format_text("rights%d", cred), "rights:*", 0, 1 << 14, &slot);
	for (int i = 0; i < NR_CREDENTIALS; i++) {
		struct event_stats stats = { 0 };
		int file;

		file = open(format_text("/proc/%d/maps", pids[i]), O_RDONLY);
		answers[i] = file >= 0 ? MAPS_READABLE : 0;
		close(file);
		request_write(&targets[i]);
		trace_drain(fd, targets[i].key, &stats);
		answers[i] |= stats.events == 1 ? EVENTS : 0;
		answers[i] |= is_listed(device, targets[i].key) ? MARKERS : 0;
	}
	_exit(0);
}

static int expected_euid(enum credentials cred)
{
	return cred == OTHER ? 1001 : cred < ROOT ? 1000 : 0;
}

static void test_matrix(unsigned char (*answers)[NR_CREDENTIALS])
{
	static const enum credentials tracers[] = {
		USER, OTHER, IN_USER_NAMESPACE, IN_LANDLOCK, ROOT, BARE_ROOT, NAMESPACE_ROOT,
	};
	pid_t pids[NR_CREDENTIALS];

	for (int i = 0; i < NR_CREDENTIALS; i++)
		pids[i] = start_target(&targets[i], i);
	for (unsigned int t = 0; t < sizeof(tracers) / sizeof(*tracers); t++) {
		enum credentials who = tracers[t];
		int wrong = 0, events = 0, status;

		status = in_child(try_targets(who, pids, answers[who]));
		for (int i = 0; i < NR_CREDENTIALS; i++) {
			unsigned char a = answers[who][i];
			/* Processes of other users can only be traced with PERFTRACE_ALL_USERS. */
			bool may = a & MAPS_READABLE && expected_euid(i) == expected_euid(who);

			events += !!(a & EVENTS);
			if (!!(a & EVENTS) != may || !!(a & MARKERS) != !!(a & MAPS_READABLE)) {
				note("%s, %s: the kernel says %d; events %d, markers %d",
				     names[who], names[i], a & MAPS_READABLE, !!(a & EVENTS),
				     !!(a & MARKERS));
				wrong++;
			}
		}
		ok(!status && !wrong,
		   "9.3 %s: traces the processes that the kernel lets it read, and no others",
		   names[who]);
		note("that are %d", events);
	}
	for (int i = 0; i < NR_CREDENTIALS; i++)
		kill_child(pids[i]);
}

static void request_undumpable(struct target *target)
{
	target->hide = 1;
	wait_until(!target->hide);
}

static void request_join_again(struct target *target)
{
	target->join_again = 1;
	wait_until(!target->join_again);
}

/* Tests a target that becomes undumpable while it is traced. */
static void test_target_undumpable(__u32 flags)
{
	const char *kind = flags & PERFTRACE_FLIGHT ? "a flight recorder" : "a trace";
	struct target *target = &targets[0];
	struct event_stats stats = { 0 }, rest = { 0 };
	int status;
	pid_t pid;

	pid = start_target(target, USER);
	status = wait_results(fork_child({
		int slot, fd, good = 0;

		set_credentials(USER);
		fd = trace_create("changes", "rights:*", flags, 1 << 14, &slot);
		request_write(target);
		good |= trace_drain(fd, target->key, &stats) == 1 && stats.events == 1;
		request_undumpable(target);
		request_write(target);
		memset(&stats, 0, sizeof(stats));
		good |= (trace_drain(fd, target->key, &stats) <= 0 && !stats.events) << 1;
		good |= (trace_info(fd).denied == 1) << 2;
		request_write(target);
		good |= (trace_drain(fd, target->key, &stats) <= 0) << 3;
		request_join_again(target);
		request_write(target);
		memset(&stats, 0, sizeof(stats));
		trace_drain(fd, target->key, &stats);
		request_undumpable(target);
		trace_drain(fd, target->key, &rest);
		good |= (stats.events == 1 && trace_info(fd).denied == 1) << 4;
		_exit(good);
	}));
	ok(status & 1, "9.3 %s: has the process at first", kind);
	ok(status & 2, "9.3 %s: does not have the events of an undumpable process", kind);
	ok(status & 4, "9.6 %s: counts an undumpable process as denied", kind);
	ok(status & 8, "9.3 %s: an undumpable process is removed", kind);
	ok(status & 16, "9.6 %s: counts a process that is denied twice as one process", kind);
	kill_child(pid);
}

/* Tests a target that becomes undumpable and exits before its events are read. */
static void test_undumpable_and_ended(void)
{
	struct target *target = &targets[0];
	int status;
	pid_t pid, reader;

	pid = start_target(target, USER);
	reader = fork_child({
		struct event_stats stats = { 0 };
		int slot, fd, good = 0;

		set_credentials(USER);
		fd = trace_create("ends", "rights:*", 0, 1 << 14, &slot);
		request_write(target);
		request_undumpable(target);
		request_write(target);
		/* Ask the parent to kill the target. */
		target->ready = 2;
		wait_until(target->ready == 3);
		good |= trace_drain(fd, target->key, &stats) <= 0 && !stats.events;
		good |= (trace_info(fd).denied == 1) << 1;
		_exit(good);
	});
	wait_until(target->ready == 2);
	kill_child(pid);
	target->ready = 3;
	status = wait_results(reader);
	ok(status & 1, "9.3 undumpable process that has ended: its events are not read");
	ok(status & 2, "9.6 undumpable process that has ended: it is counted as denied");
}

/*
 * Runs a process that attaches, writes an event into the trace in targets[0].slot, and waits for
 * room in its buffer. When the trace has been created, the process attaches once more, as a second
 * copy of libperftrace does, and can then join shared traces too.
 */
static void wait_in_trace(void)
{
	struct target *target = &targets[0];
	struct perftrace_room room = { 0 };
	struct perftrace_attach second;
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	marker = traced_open_marker(&t, 0, "rights:x");
	target->ready = 1;
	wait_until(target->ready == 2);
	exit_if(try_attach(open_trace_device(), PERFTRACE_SHARED, &second), 1);
	room.slot = target->slot;
	exit_if(!wait_wanted(&t, marker, target->slot, true) ||
		!write_number(&t, target->slot, 0, marker, 1), 1);
	target->result = trace_ioctl(t.fd, PERFTRACE_WAIT_ROOM, &room);
	_exit(0);
}

/*
 * Tests a user's trace with PERFTRACE_WAIT, and a child of the trace's creator, while Yama lets
 * only ancestors stop a process. The kernel checks the permission of the trace's creator at
 * intervals. A thread of the child waits for room for longer than such an interval.
 */
static void test_wait_under_yama(void)
{
	static const char yama[] = "/proc/sys/kernel/yama/ptrace_scope";
	struct target *target = &targets[0];
	char before[8];
	int denied;

	read_file(yama, before, sizeof(before));
	write_file(yama, "1");
	memset(target, 0, sizeof(*target));
	denied = in_child({
		struct perftrace_create create = make_trace("waits", "rights:*", PERFTRACE_WAIT,
							    4096);
		pid_t pid;
		int fd;

		set_credentials(USER);
		pid = fork_child(wait_in_trace());
		wait_until(target->ready);
		create.wait_ms = 2500;
		fd = try_open_trace(PERFTRACE_CREATE, &create);
		target->slot = create.slot;
		target->ready = 2;
		waitpid(pid, NULL, 0);
		_exit(fd < 0 ? 99 : trace_info(fd).denied);
	});
	write_file(yama, before);
	is(target->result, -ETIMEDOUT,
	   "9.3 Yama scope 1: thread of a child of the trace's creator: waits until its timeout");
	is(denied, 0,
	   "9.3 Yama scope 1: child of the trace's creator that attaches twice: is not denied");
}

/* Tests a user's trace with PERFTRACE_WAIT, and a process that Yama does not let the user stop. */
static void test_denied_once(void)
{
	static const char yama[] = "/proc/sys/kernel/yama/ptrace_scope";
	struct target *target = &targets[0];
	char before[8];
	int denied;
	pid_t pid;

	read_file(yama, before, sizeof(before));
	write_file(yama, "1");
	pid = start_target(target, USER);
	denied = in_child({
		struct perftrace_create create = make_trace("waits", "rights:*", PERFTRACE_WAIT,
							    4096);
		int fd;

		set_credentials(USER);
		fd = try_open_trace(PERFTRACE_CREATE, &create);
		exit_if(fd < 0, 99);
		target->result = trace_info(fd).denied;
		request_join_again(target);
		_exit(trace_info(fd).denied);
	});
	write_file(yama, before);
	kill_child(pid);
	is(target->result, 1,
	   "9.6 Yama scope 1: process that the trace's creator may not stop: is denied");
	is(denied, 1, "9.6 Yama scope 1: denied process that attaches again: is counted once");
}

/*
 * Tests traces of all users by a user with CAP_PERFMON, which does not include the right to stop
 * processes of other users.
 */
static void test_wait_of_all_users(void)
{
	struct target *target = &targets[0];
	pid_t pid = start_target(target, USER);

	for (int wait = 0; wait < 2; wait++) {
		int status = in_child({
			struct perftrace_create create =
				make_trace("all", "rights:*", PERFTRACE_ALL_USERS |
					   (wait ? PERFTRACE_WAIT : 0), 1 << 14);
			struct event_stats stats = { 0 };
			int fd;

			set_ids(1001, 1001, CAP_PERFMON);
			fd = try_open_trace(PERFTRACE_CREATE, &create);
			exit_if(fd < 0, 99);
			request_write(target);
			trace_drain(fd, target->key, &stats);
			_exit(stats.events << 1 | trace_info(fd).denied);
		});

		if (wait)
			is(status, 1,
			   "9.3 CAP_PERFMON, all users, PERFTRACE_WAIT: another user's process is denied");
		else
			is(status, 2,
			   "9.3 CAP_PERFMON, all users: another user's process is traced");
	}
	kill_child(pid);
}

int main(void)
{
	unsigned char (*answers)[NR_CREDENTIALS];

	plan(7 + 2 * 5 + 2 + 2 + 2 + 2);
	answers = map_memory(4096, MAP_SHARED);
	targets = map_memory(4096, MAP_SHARED);
	trace_load();
	test_matrix(answers);
	test_target_undumpable(0);
	test_target_undumpable(PERFTRACE_FLIGHT);
	test_undumpable_and_ended();
	test_wait_under_yama();
	test_denied_once();
	test_wait_of_all_users();
	return finish();
}
