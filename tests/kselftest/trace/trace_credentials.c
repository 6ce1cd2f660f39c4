// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Tests processes that change their credentials while they are traced and their events are read.
 * Events that a process writes after it has become undumpable are never read, and a reader never
 * waits for a change of credentials to end.
 */
#include "capabilities.h"
#include "trace.h"
#include <linux/userfaultfd.h>
#include <pthread.h>

#define USER	1000
#define OTHER_USER	2000
#define PAGE	4096

/* Value of the field `number` in events that no reader may see. */
#define SECRET	(1ULL << 32)

enum kind { PLAIN, ALWAYS_CHANGING, HAS_SETGID, NO_LEADER, WAITING };
enum step { STEP_DONE, STEP_WRITE, STEP_UNDUMPABLE, STEP_FILL, STEP_CHANGE_GID, STEP_EXEC };

/*
 * A traced process, with the next step that the process has to do. The process sets STEP_DONE when
 * it has done the step.
 */
static struct target {
	volatile __u64 key, number;
	volatile int ready, step, nr, result, ended;
	volatile int slot;
} *target;

static void write_to_all(const struct traced_process *t, int marker, __u64 number)
{
	for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
		if (is_wanted(t, marker, slot))
			write_number(t, slot, 0, marker, number);
}

static void do_step(const struct traced_process *t, int marker)
{
	switch (target->step) {
	case STEP_WRITE:
		for (int i = 0; i < target->nr; i++)
			write_to_all(t, marker, target->number);
		break;
	case STEP_UNDUMPABLE:
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case STEP_CHANGE_GID:
		/* setresgid() clears the dumpable attribute, and prctl() sets it again. */
		exit_if(setresgid(OTHER_USER, OTHER_USER, OTHER_USER), 93);
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case STEP_EXEC:
		target->step = STEP_DONE;
		execl("/proc/self/exe", "trace_credentials", "pauses", NULL);
		_exit(92);
	default:
		return;
	}
	target->step = STEP_DONE;
}

/* Stores the result in target->result. */
static void *wait_for_room(void *arg)
{
	struct traced_process *t = arg;
	struct perftrace_room room = { .cpu = 0 };

	while (target->step != STEP_FILL)
		usleep(1000);
	room.slot = target->slot;
	room.tail = get_buffer(t, target->slot, 0)->tail;
	target->step = STEP_DONE;
	target->result = trace_ioctl(t->fd, PERFTRACE_WAIT_ROOM, &room);
	target->ended = 1;
	return NULL;
}

static void *run_target(void *arg)
{
	enum kind kind = (long)arg;
	pthread_t thread;
	struct traced_process t;
	int marker;

	pin_to_cpu(0);
	if (kind == NO_LEADER)
		wait_until(task_state(getpid()) == 'Z');
	marker = traced_open_marker(&t, 0, "changes:x");
	if (kind == WAITING)
		pthread_create(&thread, NULL, wait_for_room, &t);
	target->key = t.attach.key;
	target->ready = 1;
	for (int n = 0;; n++) {
		do_step(&t, marker);
		if (kind != ALWAYS_CHANGING) {
			usleep(1000);
			continue;
		}
		syscall(SYS_setuid, USER);
		if (n % 1000 == 0)
			write_to_all(&t, marker, 1);
	}
	return NULL;
}

static pid_t start_target(enum kind kind)
{
	pthread_t thread;
	pid_t pid;

	memset(target, 0, sizeof(*target));
	target->nr = 1;
	pid = fork_child({
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		switch_user(USER, kind == HAS_SETGID ? CAP_SETGID : -1);
		if (kind != NO_LEADER)
			run_target((void *)(long)kind);
		pthread_create(&thread, NULL, run_target, (void *)(long)kind);
		syscall(SYS_exit, 0);
	});
	bail_if(!wait_until(target->ready), "a target");
	return pid;
}

static void run_step(enum step step)
{
	target->step = step;
	wait_until(target->step == STEP_DONE);
}

/* Returns the wait status of a child that exits within @seconds, or -1. */
static int wait_status(pid_t pid, long seconds)
{
	__u64 end = now_ns() + seconds * 1000000000ULL;
	int status;

	do {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		sleep_ms(1);
	} while (now_ns() <= end);
	return -1;
}

#define fork_reader(...) fork_reader_with(-1, __VA_ARGS__)

#define fork_reader_with(capability, ...)				\
	fork_child(switch_user(USER, capability); __VA_ARGS__)

static void test_always_changing(void)
{
	pid_t pid = start_target(ALWAYS_CHANGING), other;
	int status;

	other = fork_reader({
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
	status = wait_status(other, scale_timeout(30));
	ok(status != -1,
	   "9.2 process that always changes its credentials: its reader does not wait");
	ok(!status,
	   "9.3 process that always changes its credentials: its events are read (%x)", status);
	if (status == -1) {
		kill(other, SIGKILL);
		status = wait_status(other, scale_timeout(10));
		note("killed, it has%s ended", status == -1 ? " not" : "");
	}
	kill_child(pid);
	if (status == -1)
		waitpid(other, &status, 0);
}

/* Tests a traced process that changes its group ID and then makes itself dumpable again. */
static void test_new_credentials(void)
{
	pid_t pid = start_target(HAS_SETGID);
	int status;

	status = wait_status(fork_reader_with(CAP_SETGID, {
		struct event_stats tally = { 0 };
		int slot, fd = trace_create("moved", "changes:*", 0, 1 << 14, &slot), good = 0;

		target->number = 1;
		run_step(STEP_WRITE);
		good |= trace_drain(fd, target->key, &tally) == 1 && tally.events == 1;
		run_step(STEP_CHANGE_GID);
		run_step(STEP_WRITE);
		memset(&tally, 0, sizeof(tally));
		good |= (trace_drain(fd, target->key, &tally) <= 0 && !tally.events) << 1;
		good |= (trace_info(fd).denied == 1) << 2;
		_exit(good);
	}), scale_timeout(30));
	is(WEXITSTATUS(status), 7,
	   "9.3 process with new credentials: only its events before the change are read");
	kill_child(pid);
}

/*
 * Makes the target execute another program. If @undumpable is set, the target becomes undumpable
 * before the exec. Returns bit 0 if an event of the first program is read. Returns bit 1 if the
 * member `denied` of struct perftrace_info is 1: the creator of the trace may no longer trace the
 * target.
 */
static int exec_in_trace(bool undumpable)
{
	pid_t pid = start_target(PLAIN);
	int status;

	status = wait_status(fork_reader({
		struct event_stats tally = { 0 };
		char path[40], text[100];
		int slot, fd = trace_create("executes", "changes:*", 0, 1 << 14, &slot);

		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		if (undumpable)
			run_step(STEP_UNDUMPABLE);
		target->number = 1;
		run_step(STEP_WRITE);
		run_step(STEP_EXEC);
		wait_until(!strcmp(read_file(path, text, sizeof(text)) + strlen(text) + 1,
				   "pauses"));
		/* The kernel frees the memory of the first program after the exec. */
		wait_until(trace_drain(fd, target->key, &tally) < 0 || tally.events ||
			   trace_info(fd).denied);
		_exit(tally.events | trace_info(fd).denied << 1);
	}), scale_timeout(30));
	kill_child(pid);
	return WEXITSTATUS(status);
}

static void test_exec(void)
{
	is(exec_in_trace(false), 1, "9.3 exec: events of the first program are read");
	is(exec_in_trace(true), 2,
	   "9.3 exec: events of a first program that was not dumpable are not read");
}

static long resident_kb(pid_t pid)
{
	char line[512];
	unsigned long from, to;
	long sum = 0, kb;
	bool ours = false;
	FILE *f;
	const char *path = format_text("/proc/%d/smaps", pid);

	f = fopen(path, "re");
	bail_if(!f, path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2)
			ours = strstr(line, DEVICE);
		else if (ours && sscanf(line, "Rss: %ld", &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

/* Tests that the pages of a filled buffer are freed when its process becomes undumpable. */
static void test_pages_freed(void)
{
	pid_t pid = start_target(PLAIN), other;
	volatile int *at = &target->ended;
	long before, after;

	other = fork_reader({
		struct event_stats tally = { 0 };
		int slot, fd = trace_create("pages", "changes:*", 0, 1 << 20, &slot);

		target->number = 1;
		target->nr = 20000;
		run_step(STEP_WRITE);
		*at = 1;
		wait_until(*at == 2);
		run_step(STEP_UNDUMPABLE);
		trace_drain(fd, target->key, &tally);
		*at = 3;
		wait_until(*at == 4);
		_exit(trace_info(fd).denied != 1);
	});
	wait_until(*at == 1);
	before = resident_kb(pid);
	*at = 2;
	wait_until(*at == 3);
	after = resident_kb(pid);
	*at = 4;
	is(wait_status(other, scale_timeout(30)), 0,
	   "9.3 undumpable process: it is denied after it has filled a buffer");
	ok(before > 400 && after < 100,
	   "9.1 undumpable process: the pages of its buffer are freed (%ld, %ld kB)",
	   before, after);
	kill_child(pid);
}

/* Maps memory whose pages are missing until provide_pages() provides them. */
static char *map_missing_pages(int uffd, size_t bytes)
{
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *to = map_memory(bytes, MAP_PRIVATE);

	area.range.start = (unsigned long)to;
	area.range.len = bytes;
	exit_if(ioctl(uffd, UFFDIO_REGISTER, &area), 92);
	return to;
}

static struct slow_read {
	int uffd, fd;
	char *to;
	struct perftrace_read read;
	int rc;
} slow_read;

/* The first page waits until the target has written secret events. */
static void *provide_pages(void *unused)
{
	bool first = true;
	struct uffd_msg message;

	while (read(slow_read.uffd, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage page = {
			.range = { message.arg.pagefault.address & -(__u64)PAGE, PAGE },
		};

		if (first) {
			run_step(STEP_UNDUMPABLE);
			target->number = SECRET;
			target->nr = 4000;
			run_step(STEP_WRITE);
			first = false;
		}
		ioctl(slow_read.uffd, UFFDIO_ZEROPAGE, &page);
	}
	return unused;
}

static int count_secrets(const char *from, size_t bytes)
{
	int nr = 0;

	for (size_t offset = 0; offset + 8 <= bytes; offset += 8)
		nr += *(const __u64 *)(from + offset) == SECRET;
	return nr;
}

/*
 * Tests a slow read of a flight recorder. PERFTRACE_READ blocks in a page fault on the first page
 * of the reader's memory. During the page fault, the target becomes undumpable and writes secret
 * events, which PERFTRACE_READ must not return.
 */
static void test_slow_reader(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	const __u32 bytes = 1 << 16;
	pid_t pid = start_target(PLAIN);
	int status;

	status = wait_status(fork_reader({
		pthread_t thread;
		int slot;

		slow_read.uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
		exit_if(slow_read.uffd < 0 || ioctl(slow_read.uffd, UFFDIO_API, &api), 91);
		slow_read.to = map_missing_pages(slow_read.uffd, bytes);
		slow_read.fd = trace_create("slowly", "changes:*", PERFTRACE_FLIGHT, bytes, &slot);
		target->number = 1;
		target->nr = 4000;
		run_step(STEP_WRITE);
		pthread_create(&thread, NULL, provide_pages, NULL);
		slow_read.read = first_buffer;
		slow_read.read.to = (unsigned long)slow_read.to;
		slow_read.read.bytes = bytes;
		slow_read.rc = trace_ioctl(slow_read.fd, PERFTRACE_READ, &slow_read.read);
		note("%d, %u bytes", slow_read.rc, slow_read.read.bytes);
		_exit(count_secrets(slow_read.to, bytes) != 0);
	}), scale_timeout(60));
	is(WEXITSTATUS(status), 0,
	   "9.3 undumpable process: events that it writes during a slow read are not read");
	kill_child(pid);
}

/* Counts what a reader gets, in a Landlock domain if @in_landlock is set. */
static int count_events(bool in_landlock)
{
	struct event_stats stats = { 0 };
	int slot, fd;

	if (in_landlock)
		enter_landlock_domain();
	fd = trace_create(in_landlock ? "fenced" : "free", "changes:*", 0, 1 << 14, &slot);
	target->number = 1;
	run_step(STEP_WRITE);
	trace_drain(fd, target->key, &stats);
	return stats.events;
}

static void test_dead_leader(void)
{
	pid_t pid = start_target(NO_LEADER);
	int status;

	status = wait_status(fork_reader(_exit(count_events(false))), scale_timeout(30));
	is(WEXITSTATUS(status), 1, "9.3 process without its first thread: its events are read");
	status = wait_status(fork_reader(_exit(count_events(true))), scale_timeout(30));
	is(WEXITSTATUS(status), 0,
	   "9.3 process without its first thread: a reader in a Landlock domain reads none");
	kill_child(pid);
}

static int try_open(bool in_landlock)
{
	struct perftrace_create open = make_trace("opened", "", 0, 0);

	if (in_landlock)
		enter_landlock_domain();
	return -try_trace(PERFTRACE_OPEN, &open);
}

static void test_open(void)
{
	const int flags = PERFTRACE_FLIGHT | PERFTRACE_KEEP;
	int status;

	status = wait_status(fork_reader({
		int slot, fd = trace_create("opened", "none:*", flags, 0, &slot);

		_exit(fd < 0);
	}), scale_timeout(30));
	is(status, 0, "9.3 open: a user creates a trace with PERFTRACE_KEEP");
	status = wait_status(fork_reader(_exit(try_open(false))), scale_timeout(30));
	is(WEXITSTATUS(status), 0, "9.3 open: the user can open the kept trace");
	status = wait_status(fork_reader(_exit(try_open(true))), scale_timeout(30));
	is(WEXITSTATUS(status), EPERM, "9.3 open: EPERM from within a Landlock domain");
	status = wait_status(fork_reader({
		struct perftrace_create open = make_trace("opened", "", 0, 0);
		int fd = try_open_trace(PERFTRACE_OPEN, &open);

		_exit(trace_ioctl(fd, PERFTRACE_END, NULL) != 0);
	}), scale_timeout(30));
	is(status, 0, "9.3 open: the user can end the kept trace");
}

static int create_waiting_trace(__u32 flags)
{
	struct perftrace_create create = make_trace("waits", "changes:*", flags, 4096);
	int fd;

	create.wait_ms = flags & PERFTRACE_WAIT ? ~0U : 0;
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	target->slot = create.slot;
	return fd;
}

/*
 * Tests a user who may read a process, but who may not attach to the process because of Yama. If
 * the creator of a trace with PERFTRACE_WAIT may not attach to a process, the trace cannot make the
 * process wait.
 */
static void test_attach_right(void)
{
	static const char yama[] = "/proc/sys/kernel/yama/ptrace_scope";
	pid_t pid = start_target(PLAIN);
	int events[2];
	char before[8];

	read_file(yama, before, sizeof(before));
	write_file(yama, "1");
	for (int wait = 0; wait < 2; wait++)
		events[wait] = WEXITSTATUS(wait_status(fork_reader({
			struct event_stats tally = { 0 };
			int fd = create_waiting_trace(wait ? PERFTRACE_WAIT : 0);

			target->number = 1;
			run_step(STEP_WRITE);
			trace_drain(fd, target->key, &tally);
			_exit(tally.events | trace_info(fd).denied << 1);
		}), scale_timeout(30)));
	write_file(yama, before);
	is(events[0], 1, "9.3 Yama scope 1: events of a process without an attach right are read");
	is(events[1], 2, "9.3 Yama scope 1: PERFTRACE_WAIT counts such a process as denied");
	kill_child(pid);
}

/* One of its threads waits for room in a buffer that is not read. */
static void test_waiting_thread(void)
{
	pid_t pid = start_target(WAITING), other;
	__u64 last;

	other = fork_reader({
		int fd = create_waiting_trace(PERFTRACE_WAIT);

		target->number = 1;
		run_step(STEP_WRITE);
		run_step(STEP_FILL);
		sleep_ms(300);
		target->nr = target->ended;
		run_step(STEP_UNDUMPABLE);
		pause();
		_exit(fd);
	});
	last = now_ns() + scale_timeout(20) * 1000000000ULL;
	while (now_ns() <= last && !target->ended)
		sleep_ms(1);
	ok(target->ended && !target->nr,
	   "9.3 undumpable process: its thread does not wait for room any longer");
	is(target->result, -ENOENT, "9.3 undumpable process: the wait for room is ENOENT");
	kill_child(other);
	kill_child(pid);
}

int main(int argc, char **unused)
{
	/* If this program has an argument, it was executed by a target. */
	while (argc > 1)
		pause();
	plan(2 + 1 + 2 + 2 + 1 + 2 + 4 + 2 + 2);
	target = map_memory(PAGE, MAP_SHARED);
	trace_load();
	write_file("/proc/sys/vm/unprivileged_userfaultfd", "1");
	test_always_changing();
	test_new_credentials();
	test_exec();
	test_pages_freed();
	test_slow_reader();
	test_dead_leader();
	test_open();
	test_attach_right();
	test_waiting_thread();
	return finish();
}
