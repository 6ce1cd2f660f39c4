// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests PERFTRACE_RELEASE while another thread of the traced process moves mappings in a loop. The
 * thread moves the control pages away, moves private memory to the address of the control pages,
 * and moves both mappings back. PERFTRACE_RELEASE must not change the private memory, and must
 * release the device once the thread has stopped. Also tests PERFTRACE_RELEASE in a process with
 * locked memory, and in a child of fork() that does not access its mappings. After `pfc trace
 * release` has failed, the wake file must announce the device again.
 */
#include "trace.h"
#include <pthread.h>
#include <sys/prctl.h>

#define ROUNDS	gate_or_long(20, 100)
#define MAGIC	0x6d696e65
#define BYTES	PERFTRACE_READ_BYTES

#define WAKE_FILE	"/run/perftrace/wake"

static struct {
	volatile int ready, stop;
	volatile pid_t child;
	volatile unsigned long moves, failed, lost;
} *shared;

static struct traced_process self;

static char *map_pages(int prot)
{
	char *p = mmap(NULL, BYTES, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	exit_if(p == MAP_FAILED, 96);
	return p;
}

static void move_pages(char *from, char *to)
{
	if (mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		shared->failed++;
}

static void *move_pages_away_and_back(void *unused)
{
	char *first_piece = (char *)self.control, *own_pages = map_pages(PROT_READ | PROT_WRITE);
	char *other = map_pages(PROT_NONE);

	pin_to_cpu(1);
	*(volatile __u32 *)own_pages = MAGIC;
	shared->ready = 1;
	while (!shared->stop) {
		move_pages(first_piece, other);
		move_pages(own_pages, first_piece);
		shared->lost += *(volatile __u32 *)first_piece != MAGIC;
		move_pages(first_piece, own_pages);
		shared->lost += *(volatile __u32 *)own_pages != MAGIC;
		*(volatile __u32 *)own_pages = MAGIC;
		move_pages(other, first_piece);
		shared->moves++;
	}
	return NULL;
}

static void traced_child(void)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(0);
	traced_open(&self, 0);
	exit_if(pthread_create(&thread, NULL, move_pages_away_and_back, NULL), 95);
	pause_forever();
}

/* Returns the number of processes that still use the device, or a negative errno. */
static int count_attached(int fd)
{
	struct perftrace_release release = { sizeof(release), 0, -1, 0 };
	int rc = trace_ioctl(fd, PERFTRACE_RELEASE, &release);

	return rc ? rc : (int)release.left;
}

/*
 * A process that has locked its memory is not released until it has unlocked the memory. The
 * process itself calls PERFTRACE_RELEASE, so that its task work has run when the call returns.
 */
static void test_locked_memory(void)
{
	struct perftrace_release resume = { sizeof(resume), PERFTRACE_RESUME, -1, 0 };
	int fd = open_trace_device();
	struct traced_process t;

	traced_open(&t, 0);
	bail_if(mlockall(MCL_FUTURE), "mlockall");
	count_attached(fd);
	is(count_attached(fd), 1, "3.8 release: a process with mlockall() keeps the device");
	munlockall();
	count_attached(fd);
	is(count_attached(fd), 0, "3.8 release: a process lets go after munlockall()");
	bail_if(trace_ioctl(fd, PERFTRACE_RELEASE, &resume), "PERFTRACE_RESUME");
	traced_close(&t);
	close(fd);
}

/* Returns the pid that PERFTRACE_PROCESS reports for the process with the first listed marker. */
static pid_t pid_of_first_marker(int fd)
{
	struct perftrace_describe first = { 0 };
	struct perftrace_process process = { 0 };

	if (trace_ioctl(fd, PERFTRACE_NEXT_MARKER, &first))
		return -1;
	process.key = first.key;
	return trace_ioctl(fd, PERFTRACE_PROCESS, &process) ? -1 : (pid_t)process.pid;
}

/* The state of a traced process after it has forked a child. */
enum parent_state { PARENT_RUNS, PARENT_EXITED, PARENT_EXECED };

static void run_parent(enum parent_state state)
{
	pid_t child;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	traced_open(&self, 0);
	marker_register(&self, "release:x", "");
	child = fork_child(pause_forever());
	shared->child = child;
	exit_if(state == PARENT_EXITED, 0);
	if (state == PARENT_EXECED)
		execl("/proc/self/exe", "trace_release", "pauses", NULL);
	pause_forever();
}

static bool executes_pauses(pid_t pid)
{
	char text[100] = "";

	read_file(format_text("/proc/%d/cmdline", pid), text, sizeof(text));
	return !strcmp(text, "trace_release") && !strcmp(text + sizeof("trace_release"), "pauses");
}

/* The child was recorded with the identity of its parent. */
static void test_idle_child(enum parent_state state, const char *name)
{
	struct perftrace_release resume = { sizeof(resume), PERFTRACE_RESUME, -1, 0 };
	pid_t parent;
	int fd, left = -1;

	shared->child = 0;
	parent = fork_child(run_parent(state));
	wait_until(shared->child);
	fd = open_trace_device();
	if (state == PARENT_EXITED)
		waitpid(parent, NULL, 0);
	if (state == PARENT_EXECED)
		wait_until(executes_pauses(parent));
	/* After its exit or exec, the parent has no marker. */
	if (state != PARENT_RUNS)
		is(pid_of_first_marker(fd), shared->child,
		   "3.8 child that is idle after fork(), %s: PERFTRACE_PROCESS has its pid", name);
	wait_until((left = count_attached(fd)) == 0);
	is(left, 0, "3.8 release: child that is idle after fork(), %s: releases the device", name);
	bail_if(trace_ioctl(fd, PERFTRACE_RELEASE, &resume), "PERFTRACE_RESUME");
	close(fd);
	if (state != PARENT_EXITED)
		kill_child(parent);
	/* The child is a child of this process now: see PR_SET_CHILD_SUBREAPER. */
	kill_child(shared->child);
}

/* Returns the word of the first marker in the wake file. */
static __u32 wake_word(void)
{
	int fd = open(WAKE_FILE, O_RDONLY | O_CLOEXEC);
	__u32 word = 0;

	if (fd < 0 || pread(fd, &word, sizeof(word), PERFTRACE_WORDS) != sizeof(word))
		bail(WAKE_FILE);
	close(fd);
	return word;
}

static pid_t start_pfc_release(void)
{
	return fork_child({
		execlp("pfc", "pfc", "trace", "release", "--timeout", "60", NULL);
		_exit(127);
	});
}

static void test_refused_pfc_release(void)
{
	int slot, fd = trace_create("active", "none:*", 0, 0, &slot);

	is(wait_child(start_pfc_release()), 2,
	   "3.8 pfc trace release: status 2 while there is a trace");
	is(wake_word() & PERFTRACE_WAKE, PERFTRACE_WAKE,
	   "3.8 pfc trace release: the wake file announces the device after the refusal");
	close(fd);
}

/* Tests a signal to `pfc trace release` while a stopped process does not release the device. */
static void test_interrupted_pfc_release(int signal)
{
	pid_t stopped, pfc;

	shared->ready = 0;
	stopped = fork_child({
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		traced_open(&self, 0);
		shared->ready = 1;
		pause_forever();
	});
	wait_until(shared->ready);
	kill(stopped, SIGSTOP);
	wait_until(task_state(stopped) == 'T');
	pfc = start_pfc_release();
	wait_until(!wake_word());
	kill(pfc, signal);
	is(wait_child(pfc), 2, "3.8 pfc trace release: status 2 after signal %d", signal);
	is(wake_word() & PERFTRACE_WAKE, PERFTRACE_WAKE,
	   "3.8 pfc trace release: the wake file announces the device after signal %d", signal);
	kill_child(stopped);
}

int main(int argc, char **unused)
{
	struct perftrace_release resume = { sizeof(resume), PERFTRACE_RESUME, -1, 0 };
	int left = 0;

	/* If this program has an argument, it was executed by run_parent(). */
	while (argc > 1)
		pause();
	plan(12 + 3 + 2);
	bail_if(prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER");
	shared = map_memory(4096, MAP_SHARED);
	trace_load();
	test_locked_memory();
	test_idle_child(PARENT_RUNS, "parent alive");
	test_idle_child(PARENT_EXITED, "parent exited");
	test_idle_child(PARENT_EXECED, "parent in another program");
	test_refused_pfc_release();
	test_interrupted_pfc_release(SIGINT);
	test_interrupted_pfc_release(SIGTERM);
	unlink(WAKE_FILE);
	for (int i = 0; i < ROUNDS && !left; i++) {
		pid_t pid;
		int fd;

		shared->ready = 0;
		shared->stop = 0;
		pid = fork_child(traced_child());
		wait_until(shared->ready);
		fd = open_trace_device();
		for (int ms = 0; ms < 10 && count_attached(fd); ms++)
			usleep(1000);
		shared->stop = 1;
		wait_until((left = count_attached(fd)) == 0);
		bail_if(trace_ioctl(fd, PERFTRACE_RELEASE, &resume), "PERFTRACE_RESUME");
		close(fd);
		kill_child(pid);
	}
	ok(shared->moves,
	   "3.8 release: a thread moves the mapping meanwhile (%lu times)", shared->moves);
	is(shared->failed, 0, "3.8 release: no move of a mapping fails");
	is(shared->lost, 0,
	   "3.8 release: other memory at the address of the mapping does not change");
	is(left, 0, "3.8 release: the process lets go when the thread has stopped");
	return finish();
}
