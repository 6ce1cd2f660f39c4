// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 200
 *
 * Which processes a user can trace. The kernel's answer for /proc/PID/maps must be the trace's
 * answer, when a trace reaches a process, and after the process has changed.
 */
#include "capabilities.h"
#include "trace.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define FIELDS	"number:u64"

static void become(int user, int saved, int capability)
{
	prctl(PR_SET_KEEPCAPS, 1);
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, saved))
		_exit(97);
	drop_capabilities_except(capability);
	/* A change of user makes a process undumpable, like a set-uid program. */
	prctl(PR_SET_DUMPABLE, 1);
}

enum who { USER, OTHER, CAPABLE, SAVED, HIDDEN, INSIDE, FENCED, ROOT, BARE_ROOT, FAR_ROOT, NR_WHO };

static const char * const names[NR_WHO] = {
	"a user", "another user", "one with a capability", "one whose saved user is root",
	"one that is not dumpable", "one in a user name space", "one in a Landlock domain",
	"root", "root without capabilities", "root of other name spaces without capabilities",
};

static void part(enum who who)
{
	switch (who) {
	case USER:
		become(1000, 1000, -1);
		break;
	case OTHER:
		become(1001, 1001, -1);
		break;
	case CAPABLE:
		become(1000, 1000, CAP_NET_RAW);
		break;
	case SAVED:
		become(1000, 0, -1);
		break;
	case HIDDEN:
		become(1000, 1000, -1);
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case INSIDE:
		become(1000, 1000, -1);
		if (unshare(CLONE_NEWUSER))
			_exit(96);
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case FENCED:
		become(1000, 1000, -1);
		enter_landlock_domain();
		break;
	case BARE_ROOT:
		drop_capabilities_except(-1);
		break;
	case FAR_ROOT:
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC))
			_exit(94);
		drop_capabilities_except(-1);
		break;
	default:
		break;
	}
}

/* State of a target: requests to it, and their results. */
static struct target {
	volatile __u64 key;
	volatile int ready, write, written, hide;
} *targets;

/* A target: writes the number of a request as an event, or becomes undumpable, on request. */
static void target(struct target *me, enum who who)
{
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(0);
	part(who);
	traced_open(&t, 0);
	marker = marker_register(&t, "rights:x", FIELDS);
	me->key = t.attach.key;
	me->ready = 1;
	for (;;) {
		if (me->hide) {
			prctl(PR_SET_DUMPABLE, 0);
			me->hide = 0;
		}
		if (me->write != me->written) {
			for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
				if (is_wanted(&t, marker, slot))
					write_number(&t, slot, 0, marker, me->write);
			me->written = me->write;
		}
		usleep(1000);
	}
}

static pid_t begin(struct target *one, enum who who)
{
	int status = 0;
	pid_t pid;

	memset(one, 0, sizeof(*one));
	fflush(stdout);
	pid = fork();
	if (!pid)
		target(one, who);
	wait_until(one->ready || waitpid(pid, &status, WNOHANG) == pid);
	if (!one->ready)
		bail("a target ended");
	return pid;
}

static void ask_to_write(struct target *one)
{
	one->write = one->written + 1;
	wait_until(one->written == one->write);
}

/* Returns true if a marker of the process is listed. */
static bool listed(int fd, __u64 key)
{
	struct perftrace_describe next = { .key = key };

	return !trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &next) && next.key == key;
}

#define KERNEL_SAYS	1
#define EVENTS		2
#define MARKERS		4

/* Tries all targets as one kind of tracer, and stores one byte of answers for each. */
static void tracer(enum who who, const pid_t *pids, unsigned char *answers)
{
	int slot, fd, device;
	char name[16];

	part(who);
	snprintf(name, sizeof(name), "rights%d", who);
	device = open_trace_device();
	fd = trace_create(name, "rights:*", 0, 1 << 14, &slot);
	for (int i = 0; i < NR_WHO; i++) {
		struct event_stats tally = { 0 };
		char maps[40];
		int file;

		snprintf(maps, sizeof(maps), "/proc/%d/maps", pids[i]);
		file = open(maps, O_RDONLY);
		answers[i] = file >= 0 ? KERNEL_SAYS : 0;
		close(file);
		ask_to_write(&targets[i]);
		trace_drain(fd, targets[i].key, &tally);
		answers[i] |= tally.events == 1 ? EVENTS : 0;
		answers[i] |= listed(device, targets[i].key) ? MARKERS : 0;
	}
	_exit(0);
}

static int euid_of(enum who who)
{
	return who == OTHER ? 1001 : who < ROOT ? 1000 : 0;
}

static void matrix(unsigned char (*answers)[NR_WHO])
{
	static const enum who tracers[] = {
		USER, OTHER, INSIDE, FENCED, ROOT, BARE_ROOT, FAR_ROOT,
	};
	pid_t pids[NR_WHO];

	for (int i = 0; i < NR_WHO; i++)
		pids[i] = begin(&targets[i], i);
	for (unsigned int t = 0; t < sizeof(tracers) / sizeof(*tracers); t++) {
		enum who who = tracers[t];
		int wrong = 0, events = 0, status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid)
			tracer(who, pids, answers[who]);
		waitpid(pid, &status, 0);
		for (int i = 0; i < NR_WHO; i++) {
			unsigned char a = answers[who][i];
			/* Processes of other users would need PERFTRACE_ALL_USERS. */
			bool may = a & KERNEL_SAYS && euid_of(i) == euid_of(who);

			events += !!(a & EVENTS);
			if (!!(a & EVENTS) != may || !!(a & MARKERS) != !!(a & KERNEL_SAYS)) {
				note("%s, %s: the kernel says %d; events %d, markers %d",
				     names[who], names[i], a & KERNEL_SAYS, !!(a & EVENTS),
				     !!(a & MARKERS));
				wrong++;
			}
		}
		ok(!status && !wrong,
		   "9.3 %s: traces the processes that the kernel lets it read, and no others",
		   names[who]);
		note("that are %d", events);
	}
	for (int i = 0; i < NR_WHO; i++)
		kill_child(pids[i]);
}

/* The target becomes undumpable while it is traced. */
static void changes(__u32 flags)
{
	const char *kind = flags & PERFTRACE_FLIGHT ? "a flight recorder" : "a trace";
	struct target *one = &targets[0];
	struct event_stats tally = { 0 };
	int status;
	pid_t pid, reader;

	pid = begin(one, USER);
	fflush(stdout);
	reader = fork();
	if (!reader) {
		int slot, fd, good = 0;

		part(USER);
		fd = trace_create("changes", "rights:*", flags, 1 << 14, &slot);
		ask_to_write(one);
		good |= trace_drain(fd, one->key, &tally) == 1 && tally.events == 1;
		one->hide = 1;
		wait_until(!one->hide);
		ask_to_write(one);
		memset(&tally, 0, sizeof(tally));
		good |= (trace_drain(fd, one->key, &tally) <= 0 && !tally.events) << 1;
		good |= (trace_info(fd).denied == 1) << 2;
		ask_to_write(one);
		good |= (trace_drain(fd, one->key, &tally) <= 0) << 3;
		_exit(good);
	}
	waitpid(reader, &status, 0);
	status = WEXITSTATUS(status);
	ok(status & 1, "9.3 %s: has the process at first", kind);
	ok(status & 2, "9.3 %s: does not have the events of an undumpable process", kind);
	ok(status & 4, "9.6 %s: counts an undumpable process as denied", kind);
	ok(status & 8, "9.3 %s: an undumpable process is removed", kind);
	kill_child(pid);
}

/* The target becomes undumpable, and ends before it is read. */
static void changes_and_ends(void)
{
	struct target *one = &targets[0];
	int status;
	pid_t pid, reader;

	pid = begin(one, USER);
	fflush(stdout);
	reader = fork();
	if (!reader) {
		struct event_stats tally = { 0 };
		int slot, fd, good = 0;

		part(USER);
		fd = trace_create("ends", "rights:*", 0, 1 << 14, &slot);
		ask_to_write(one);
		one->hide = 1;
		wait_until(!one->hide);
		ask_to_write(one);
		/* Have the parent kill the target. */
		one->ready = 2;
		wait_until(one->ready == 3);
		good |= trace_drain(fd, one->key, &tally) <= 0 && !tally.events;
		good |= (trace_info(fd).denied == 1) << 1;
		_exit(good);
	}
	wait_until(one->ready == 2);
	kill_child(pid);
	one->ready = 3;
	waitpid(reader, &status, 0);
	status = WEXITSTATUS(status);
	ok(status & 1, "9.3 undumpable process that has ended: its events are not read");
	ok(status & 2, "9.6 undumpable process that has ended: it is counted as denied");
}

int main(void)
{
	unsigned char (*answers)[NR_WHO] = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	plan(7 + 2 * 4 + 2);
	targets = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_load();
	matrix(answers);
	changes(0);
	changes(PERFTRACE_FLIGHT);
	changes_and_ends();
	return finish();
}
