// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Processes that change while they are traced, and readers meanwhile: events that a process writes
 * after it has become undumpable are never read, and a reader never waits for a change to end.
 */
#include "capabilities.h"
#include "trace.h"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define FIELDS	"number:u64"
#define USER	1000
#define OTHER	2000
#define PAGE	4096

/* Number of events that no reader may see. */
#define SECRET	(1ULL << 32)

enum kind { PLAIN, RESTLESS, MOVER, LEADERLESS, WAITER };
enum step { NOTHING, WRITE, HIDE, FILL, MOVE, EXECUTE };

/* The next step of a target, which sets NOTHING when it is done. */
static struct target {
	volatile __u64 key, number;
	volatile int ready, step, nr, result, ended;
	volatile int slot;
} *one;

static void put_all(const struct traced_process *t, int marker, __u64 number)
{
	for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
		if (is_wanted(t, marker, slot))
			write_number(t, slot, 0, marker, number);
}

static void step(const struct traced_process *t, int marker)
{
	switch (one->step) {
	case WRITE:
		for (int i = 0; i < one->nr; i++)
			put_all(t, marker, one->number);
		break;
	case HIDE:
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case MOVE:
		/* Changes credentials, and is as dumpable afterwards as before. */
		if (setresgid(OTHER, OTHER, OTHER))
			_exit(93);
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case EXECUTE:
		one->step = NOTHING;
		execl("/proc/self/exe", "trace_credentials", "pauses", NULL);
		_exit(92);
	default:
		return;
	}
	one->step = NOTHING;
}

/* Waits for room until the call returns that there will be none. */
static void *wait_for_room(void *arg)
{
	struct traced_process *t = arg;
	struct perftrace_room room = { .cpu = 0 };

	while (one->step != FILL)
		usleep(1000);
	room.slot = one->slot;
	room.tail = get_buffer(t, one->slot, 0)->tail;
	one->step = NOTHING;
	one->result = trace_ioctl(t->fd, PERFTRACE_WAIT_ROOM, &room);
	one->ended = 1;
	return NULL;
}

static void *works(void *arg)
{
	enum kind kind = (long)arg;
	pthread_t thread;
	struct traced_process t;
	int marker;

	pin_to_cpu(0);
	if (kind == LEADERLESS)
		wait_until(task_state(getpid()) == 'Z');
	traced_open(&t, 0);
	marker = marker_register(&t, "changes:x", FIELDS);
	if (kind == WAITER)
		pthread_create(&thread, NULL, wait_for_room, &t);
	one->key = t.attach.key;
	one->ready = 1;
	for (int n = 0;; n++) {
		step(&t, marker);
		if (kind != RESTLESS) {
			usleep(1000);
			continue;
		}
		syscall(SYS_setuid, USER);
		if (n % 1000 == 0)
			put_all(&t, marker, 1);
	}
	return NULL;
}

static pid_t begin(enum kind kind)
{
	pthread_t thread;
	pid_t pid;

	memset(one, 0, sizeof(*one));
	one->nr = 1;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		switch_user(USER, kind == MOVER ? CAP_SETGID : -1);
		if (kind != LEADERLESS)
			works((void *)(long)kind);
		pthread_create(&thread, NULL, works, (void *)(long)kind);
		syscall(SYS_exit, 0);
	}
	wait_until(one->ready);
	if (!one->ready)
		bail("a target");
	return pid;
}

static void tell(enum step step)
{
	one->step = step;
	wait_until(one->step == NOTHING);
}

static time_t seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Returns the status of a child that ends within @seconds, or else -1. */
static int status_of(pid_t pid, long seconds)
{
	time_t end = seconds_now() + seconds;
	int status;

	do {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		sleep_ms(1);
	} while (seconds_now() <= end);
	return -1;
}

#define reader(...) reader_with(-1, __VA_ARGS__)

#define reader_with(capability, ...) ({					\
	pid_t pid_;							\
									\
	fflush(stdout);							\
	pid_ = fork();							\
	if (!pid_) {							\
		switch_user(USER, capability);				\
		__VA_ARGS__;						\
		_exit(0);						\
	}								\
	pid_;								\
})

static void restless(void)
{
	pid_t pid = begin(RESTLESS), other;
	int status;

	other = reader({
		struct event_stats tally = { 0 };
		int slot, fd;

		pin_to_cpu(1);
		fd = trace_create("restless", "changes:*", 0, 1 << 14, &slot);
		for (int i = 0; i < 1000 && tally.events < 10; i++)
			if (trace_drain(fd, 0, &tally) < 0)
				_exit(2);
			else
				sleep_ms(1);
		_exit(tally.events < 10);
	});
	status = status_of(other, scale_timeout(30));
	ok(status != -1,
	   "9.2 process that always changes its credentials: its reader does not wait");
	ok(!status,
	   "9.3 process that always changes its credentials: its events are read (%x)", status);
	if (status == -1) {
		kill(other, SIGKILL);
		status = status_of(other, scale_timeout(10));
		note("killed, it has%s ended", status == -1 ? " not" : "");
	}
	kill_child(pid);
	if (status == -1)
		waitpid(other, &status, 0);
}

/* The target changes its credentials, and is as dumpable afterwards as before. */
static void moved(void)
{
	pid_t pid = begin(MOVER);
	int status;

	status = status_of(reader_with(CAP_SETGID, {
		struct event_stats tally = { 0 };
		int slot, fd = trace_create("moved", "changes:*", 0, 1 << 14, &slot), good = 0;

		one->number = 1;
		tell(WRITE);
		good |= trace_drain(fd, one->key, &tally) == 1 && tally.events == 1;
		tell(MOVE);
		tell(WRITE);
		memset(&tally, 0, sizeof(tally));
		good |= (trace_drain(fd, one->key, &tally) <= 0 && !tally.events) << 1;
		good |= (trace_info(fd).denied == 1) << 2;
		_exit(good);
	}), scale_timeout(30));
	is(WEXITSTATUS(status), 7,
	   "9.3 process with new credentials: only its events before the change are read");
	kill_child(pid);
}

/*
 * The target executes another program, and becomes undumpable before if @hides. Returns bit 0 if an
 * event of the first program is read, bit 1 if the process is denied to the reader.
 */
static int before_exec(bool hides)
{
	pid_t pid = begin(PLAIN);
	int status;

	status = status_of(reader({
		struct event_stats tally = { 0 };
		char path[40], text[100];
		int slot, fd = trace_create("executes", "changes:*", 0, 1 << 14, &slot);

		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		if (hides)
			tell(HIDE);
		one->number = 1;
		tell(WRITE);
		tell(EXECUTE);
		wait_until(!strcmp(read_file(path, text, sizeof(text)) + strlen(text) + 1,
				   "pauses"));
		/* The memory of the first program is freed. */
		wait_until(trace_drain(fd, one->key, &tally) < 0 || tally.events ||
			   trace_info(fd).denied);
		_exit(tally.events | trace_info(fd).denied << 1);
	}), scale_timeout(30));
	kill_child(pid);
	return WEXITSTATUS(status);
}

static void executes(void)
{
	is(before_exec(false), 1, "9.3 exec: events of the first program are read");
	is(before_exec(true), 2,
	   "9.3 exec: events of a first program that was not dumpable are not read");
}

/* Returns the sum of the resident kB of a process's mappings of the device. */
static long resident(pid_t pid)
{
	char line[512], path[40];
	unsigned long from, to;
	long sum = 0, kb;
	bool ours = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "re");
	if (!f)
		bail(path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2)
			ours = strstr(line, DEVICE);
		else if (ours && sscanf(line, "Rss: %ld", &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

/* The pages of a filled buffer are freed when its process becomes undumpable. */
static void pages_go(void)
{
	pid_t pid = begin(PLAIN), other;
	volatile int *at = &one->ended;
	long before, after;

	other = reader({
		struct event_stats tally = { 0 };
		int slot, fd = trace_create("pages", "changes:*", 0, 1 << 20, &slot);

		one->number = 1;
		one->nr = 20000;
		tell(WRITE);
		*at = 1;
		wait_until(*at == 2);
		tell(HIDE);
		trace_drain(fd, one->key, &tally);
		*at = 3;
		wait_until(*at == 4);
		_exit(trace_info(fd).denied != 1);
	});
	wait_until(*at == 1);
	before = resident(pid);
	*at = 2;
	wait_until(*at == 3);
	after = resident(pid);
	*at = 4;
	is(status_of(other, scale_timeout(30)), 0,
	   "9.3 undumpable process: it is denied after it has filled a buffer");
	ok(before > 400 && after < 100,
	   "9.1 undumpable process: the pages of its buffer are freed (%ld, %ld kB)",
	   before, after);
	kill_child(pid);
}

/* Maps memory whose pages are missing until another thread provides them. */
static char *a_stall(int uffd, size_t bytes)
{
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	area.range.start = (unsigned long)to;
	area.range.len = bytes;
	if (to == MAP_FAILED || ioctl(uffd, UFFDIO_REGISTER, &area))
		_exit(92);
	return to;
}

static struct stalled {
	int uffd, fd;
	char *to;
	struct perftrace_read read;
	int rc;
} stalled;

/*
 * Provides missing pages: the first one after the target has written secret events, the others at
 * once.
 */
static void *gives_pages(void *unused)
{
	bool first = true;
	struct uffd_msg message;

	while (read(stalled.uffd, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage page = {
			.range = { message.arg.pagefault.address & -(__u64)PAGE, PAGE },
		};

		if (first) {
			tell(HIDE);
			one->number = SECRET;
			one->nr = 4000;
			tell(WRITE);
			first = false;
		}
		ioctl(stalled.uffd, UFFDIO_ZEROPAGE, &page);
	}
	return unused;
}

/* Returns the number of secret events in the bytes that were read. */
static int secrets(const char *from, size_t bytes)
{
	int nr = 0;

	for (size_t at = 0; at + 8 <= bytes; at += 8)
		nr += *(const __u64 *)(from + at) == SECRET;
	return nr;
}

/*
 * Reads a flight recorder into memory whose first page is missing until the target has written
 * secret events.
 */
static void reads_slowly(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	const __u32 bytes = 1 << 16;
	pid_t pid = begin(PLAIN);
	int status;

	status = status_of(reader({
		pthread_t thread;
		int slot;

		stalled.uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
		if (stalled.uffd < 0 || ioctl(stalled.uffd, UFFDIO_API, &api))
			_exit(91);
		stalled.to = a_stall(stalled.uffd, bytes);
		stalled.fd = trace_create("slowly", "changes:*", PERFTRACE_FLIGHT, bytes, &slot);
		one->number = 1;
		one->nr = 4000;
		tell(WRITE);
		pthread_create(&thread, NULL, gives_pages, NULL);
		stalled.read = first_buffer;
		stalled.read.to = (unsigned long)stalled.to;
		stalled.read.bytes = bytes;
		stalled.rc = trace_ioctl(stalled.fd, PERFTRACE_READ, &stalled.read);
		note("%d, %u bytes", stalled.rc, stalled.read.bytes);
		_exit(secrets(stalled.to, bytes) != 0);
	}), scale_timeout(60));
	is(WEXITSTATUS(status), 0,
	   "9.3 undumpable process: events that it writes during a slow read are not read");
	kill_child(pid);
}

/*
 * Returns the number of events that a reader gets from the target; with @fenced, a reader in a
 * Landlock domain.
 */
static int events_for(bool fenced)
{
	struct event_stats tally = { 0 };
	int slot, fd;

	if (fenced)
		enter_landlock_domain();
	fd = trace_create(fenced ? "fenced" : "free", "changes:*", 0, 1 << 14, &slot);
	one->number = 1;
	tell(WRITE);
	trace_drain(fd, one->key, &tally);
	return tally.events;
}

static void leaderless(void)
{
	pid_t pid = begin(LEADERLESS);
	int status;

	status = status_of(reader(_exit(events_for(false))), scale_timeout(30));
	is(WEXITSTATUS(status), 1, "9.3 process without its first thread: its events are read");
	status = status_of(reader(_exit(events_for(true))), scale_timeout(30));
	is(WEXITSTATUS(status), 0,
	   "9.3 process without its first thread: a reader in a Landlock domain reads none");
	kill_child(pid);
}

static int opens(bool fenced)
{
	struct perftrace_create open = make_trace("opened", "", 0, 0);
	int fd;

	if (fenced)
		enter_landlock_domain();
	fd = try_open_trace(PERFTRACE_OPEN, &open);
	return fd < 0 ? -fd : 0;
}

static void opened(void)
{
	const int flags = PERFTRACE_FLIGHT | PERFTRACE_KEEP;
	int status;

	status = status_of(reader({
		int slot, fd = trace_create("opened", "none:*", flags, 0, &slot);

		_exit(fd < 0);
	}), scale_timeout(30));
	is(status, 0, "9.3 open: a user creates a trace with PERFTRACE_KEEP");
	status = status_of(reader(_exit(opens(false))), scale_timeout(30));
	is(WEXITSTATUS(status), 0, "9.3 open: the user can open the kept trace");
	status = status_of(reader(_exit(opens(true))), scale_timeout(30));
	is(WEXITSTATUS(status), EPERM, "9.3 open: EPERM from within a Landlock domain");
	status = status_of(reader({
		struct perftrace_create open = make_trace("opened", "", 0, 0);
		int fd = try_open_trace(PERFTRACE_OPEN, &open);

		_exit(trace_ioctl(fd, PERFTRACE_END, NULL) != 0);
	}), scale_timeout(30));
	is(status, 0, "9.3 open: the user can end the kept trace");
}

static int waiting_trace(__u32 flags)
{
	struct perftrace_create create = make_trace("waits", "changes:*", flags, 4096);
	int fd;

	create.wait_ms = flags & PERFTRACE_WAIT ? ~0U : 0;
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	one->slot = create.slot;
	return fd;
}

/* A trace cannot make a process wait that its maker may only look at (Yama), and not attach to. */
static void attaches(void)
{
	static const char yama[] = "/proc/sys/kernel/yama/ptrace_scope";
	pid_t pid = begin(PLAIN);
	int events[2];
	char before[8];

	read_file(yama, before, sizeof(before));
	write_file(yama, "1");
	for (int wait = 0; wait < 2; wait++)
		events[wait] = WEXITSTATUS(status_of(reader({
			struct event_stats tally = { 0 };
			int fd = waiting_trace(wait ? PERFTRACE_WAIT : 0);

			one->number = 1;
			tell(WRITE);
			trace_drain(fd, one->key, &tally);
			_exit(tally.events);
		}), scale_timeout(30)));
	write_file(yama, before);
	is(events[0], 1, "9.3 Yama scope 1: events of a process without an attach right are read");
	is(events[1], 0, "9.3 Yama scope 1: PERFTRACE_WAIT gets no events of such a process");
	kill_child(pid);
}

/* The target becomes undumpable while one of its threads waits for room, and nothing is read. */
static void waits(void)
{
	pid_t pid = begin(WAITER), other;
	time_t last;

	other = reader({
		int fd = waiting_trace(PERFTRACE_WAIT);

		one->number = 1;
		tell(WRITE);
		tell(FILL);
		sleep_ms(300);
		one->nr = one->ended;
		tell(HIDE);
		pause();
		_exit(fd);
	});
	last = seconds_now() + scale_timeout(20);
	while (seconds_now() <= last && !one->ended)
		sleep_ms(1);
	ok(one->ended && !one->nr,
	   "9.3 undumpable process: its thread does not wait for room any longer");
	is(one->result, -ENOENT, "9.3 undumpable process: the wait for room is ENOENT");
	kill_child(other);
	kill_child(pid);
}

int main(int argc, char **unused)
{
	/* The program that a target executes. */
	while (argc > 1)
		pause();
	plan(2 + 1 + 2 + 2 + 1 + 2 + 4 + 2 + 2);
	one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_load();
	write_file("/proc/sys/vm/unprivileged_userfaultfd", "1");
	restless();
	moved();
	executes();
	pages_go();
	reads_slowly();
	leaderless();
	opened();
	attaches();
	waits();
	return finish();
}
