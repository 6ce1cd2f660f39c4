// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock
 * timeout: 300
 *
 * Tests that memory of user tracing is charged, limited and given back. Processes and markers that
 * are refused are counted. If a process reports more lost events than the process can have written,
 * the module does not count these events as lost.
 */
#include "capabilities.h"
#include "memory.h"
#include "trace.h"
#include <linux/userfaultfd.h>
#include <pthread.h>

#define USER	1001
#define PAGE	4096
#define FILE_MAX "/proc/sys/fs/file-max"

/* Maximum number of files by which one process can be attached. */
#define DESCRIPTORS	256

static struct {
	volatile int ready, go, result, nr;
} *shared;

static pid_t start_child(void (*body)(void))
{
	pid_t pid;

	shared->ready = 0;
	shared->go = 0;
	pid = fork_child({
		switch_user(USER, -1);
		body();
		shared->ready = 1;
		pause_forever();
	});
	wait_until(shared->ready || task_state(pid) == 'Z');
	return pid;
}

static void attach_often(void)
{
	struct perftrace_attach attach;
	struct traced_process t;

	traced_open(&t, 0);
	for (shared->nr = 1; shared->nr < 2 * DESCRIPTORS; shared->nr++) {
		shared->result = try_attach(open_trace_device(), 0, &attach);
		if (shared->result)
			return;
	}
}

/*
 * Attaches this process 100 times, each time with a new file of the device. In each cycle, the
 * process keeps the file open and removes its mappings of the device. When the mappings are
 * removed, the module ends the tracing of the process.
 */
static void attach_and_end_often(void)
{
	for (shared->nr = 0; shared->nr < 100; shared->nr++) {
		struct traced_process t;

		traced_open(&t, 0);
		munmap((void *)t.control, PERFTRACE_READ_BYTES);
		munmap(t.buffers, t.attach.bytes);
	}
}

static void test_descriptors(void)
{
	pid_t pid = start_child(attach_often);
	__u64 bytes;

	is(shared->nr, DESCRIPTORS, "9.4 descriptors: %d attach one process", DESCRIPTORS);
	is(shared->result, -ENOSPC, "9.4 descriptors: one more is ENOSPC");
	bytes = charged_bytes(USER);
	ok(bytes && bytes < 16 * PAGE,
	   "9.1 descriptors: those of one process are charged less than 16 pages (%llu bytes)",
	   bytes);
	kill_child(pid);
	pid = start_child(attach_and_end_often);
	bytes = charged_bytes(USER);
	ok(shared->nr == 100 && bytes >= 100 * PAGE && bytes < 200 * PAGE,
	   "9.1 descriptors without mappings: each is charged one page or more (%llu bytes)",
	   bytes);
	kill_child(pid);
	wait_until(!charged_bytes(USER));
	is(charged_bytes(USER), 0,
	   "9.1 descriptors without mappings: the charge is given back with them");
}

/* All task_struct objects of the slab cache, those of dead tasks included. */
static long nr_tasks(void)
{
	char line[300];
	long nr = -1;
	FILE *f = fopen("/proc/slabinfo", "re");

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "task_struct %ld", &nr);
	if (f)
		fclose(f);
	return nr;
}

static int write_and_end(int slot)
{
	return in_child({
		struct traced_process t;
		int marker;

		pin_to_cpu(0);
		marker = traced_open_marker(&t, 0, "charges:x");
		write_number(&t, slot, 0, marker, 1);
		_exit(marker < 0);
	});
}

/* Tests that the module keeps the events and markers of an ended process, but not its task. */
static void test_dead_processes(void)
{
	const int flags = PERFTRACE_KEEP | PERFTRACE_FLIGHT;
	const long nr = gate_or_long(100, 400);
	int slot, fd = trace_create("dead", "charges:*", flags, 4096, &slot), bad = 0;
	long before = nr_tasks(), after;
	struct perftrace_info info;

	for (int i = 0; i < nr; i++)
		bad += write_and_end(slot) != 0;
	wait_until((after = nr_tasks()) < before + nr / 2);
	info = trace_info(fd);
	ok(!bad && info.nr_processes == (__u64)nr && !info.dropped,
	   "9.1 ended processes: all are kept in the trace (%llu)", info.nr_processes);
	ok(before > 0 && after < before + nr / 2,
	   "9.1 ended processes: their tasks are freed (%ld, %ld)", before,
	   after);
	is(trace_ioctl(fd, PERFTRACE_END, NULL), 0, "9.1 ended processes: the trace ends");
	close(fd);
	ok(wait_until(nothing_charged()), "9.1 ended processes: no charge is left after the trace");
}

/* Fills the process's buffer in the trace in @slot: all of its pages are allocated. */
static int fill_and_end(int slot)
{
	return in_child({
		const volatile char *records;
		struct traced_process t;
		int marker;

		pin_to_cpu(0);
		marker = traced_open_marker(&t, 0, "charges:x");
		write_number(&t, slot, 0, marker, 1);
		records = (char *)get_buffer(&t, slot, 0) + PERFTRACE_RECORDS;
		for (size_t at = 0; at < PERFTRACE_BYTES_MAX; at += PAGE)
			(void)records[at];
		_exit(marker < 0);
	});
}

/* A call of PERFTRACE_READ into a page that is missing until end_blocked_read() provides it. */
static struct {
	int uffd, fd, rc;
	pthread_t thread;
	struct perftrace_read read;
} blocked;

static void *read_into_missing_page(void *unused)
{
	blocked.rc = trace_ioctl(blocked.fd, PERFTRACE_READ, &blocked.read);
	return unused;
}

/* Starts a read of the first buffer of a trace. Returns true when the read has blocked. */
static bool start_blocked_read(int fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg message;

	blocked.fd = fd;
	blocked.read = first_buffer;
	blocked.read.to = (unsigned long)map_memory(PAGE, MAP_PRIVATE);
	blocked.read.bytes = PAGE;
	area.range.start = blocked.read.to;
	area.range.len = PAGE;
	blocked.uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	bail_if(blocked.uffd < 0 || ioctl(blocked.uffd, UFFDIO_API, &api) ||
		ioctl(blocked.uffd, UFFDIO_REGISTER, &area), "userfaultfd");
	pthread_create(&blocked.thread, NULL, read_into_missing_page, NULL);
	return wait_until(read(blocked.uffd, &message, sizeof(message)) == sizeof(message));
}

/* Returns the result of the read. */
static int end_blocked_read(void)
{
	struct uffdio_zeropage page = { .range = { blocked.read.to, PAGE } };

	ioctl(blocked.uffd, UFFDIO_ZEROPAGE, &page);
	pthread_join(blocked.thread, NULL);
	close(blocked.uffd);
	munmap((void *)(unsigned long)blocked.read.to, PAGE);
	return blocked.rc;
}

/*
 * Tests the charge for a buffer that a trace drops during a read of the buffer. The trace keeps at
 * most 64 MiB of ended processes, and the buffer of each process has 4 MiB. The trace therefore
 * drops the first process when the last process ends.
 */
static void test_dropped_while_read(void)
{
	const int flags = PERFTRACE_KEEP | PERFTRACE_FLIGHT, nr = 64 / 4;
	int slot, fd = trace_create("dropped", "charges:*", flags, PERFTRACE_BYTES_MAX, &slot);
	struct perftrace_info info;
	int bad = fill_and_end(slot);
	__u64 charged;

	ok(start_blocked_read(fd), "9.1 dropped process: a reader blocks in a read of its buffer");
	for (int i = 1; i < nr; i++)
		bad += fill_and_end(slot);
	info = trace_info(fd);
	charged = charged_bytes(0);
	ok(!bad && info.dropped == 1 && info.nr_processes == (__u64)nr - 1,
	   "9.1 dropped process: it is dropped before the read ends (%llu processes kept)",
	   info.nr_processes);
	ok(charged >= info.memory + PERFTRACE_BYTES_MAX,
	   "9.1 dropped process: its buffer stays charged until the read ends (%llu, %llu bytes)",
	   charged, info.memory);
	is(end_blocked_read(), 0, "9.1 dropped process: the read of its buffer succeeds");
	ok(wait_until(charged_bytes(0) < info.memory + PERFTRACE_BYTES_MAX),
	   "9.1 dropped process: the charge for its buffer ends after the read");
	trace_end(fd);
	ok(wait_until(nothing_charged()), "9.1 dropped process: no charge is left after the trace");
}

static void child_attach(void)
{
	struct perftrace_attach attach;

	shared->result = try_attach(open_trace_device(), 0, &attach);
}

static void register_until_refused(void)
{
	struct traced_process t;
	int rc;

	traced_open(&t, 0);
	for (shared->nr = 0; shared->nr < 4096; shared->nr++) {
		rc = marker_register(&t, format_text("charges:of_%d", shared->nr), FIELDS);
		if (rc < 0) {
			shared->result = rc;
			return;
		}
	}
}

/* Tests that refused processes and refused markers are counted in the traces that select them. */
static void test_refused_counts(void)
{
	static const char * const log_words[] = { "perftrace: ", NULL };
	struct perftrace_info info;
	int slot, fd, log = klog_open();
	pid_t pid;

	set_user_kb(64);
	fd = trace_create("refused", "charges:*", PERFTRACE_ALL_USERS, 4096, &slot);
	pid = start_child(register_until_refused);
	info = trace_info(fd);
	ok(shared->result == -EDQUOT && shared->nr,
	   "9.1 limit of memory: register is EDQUOT (%d)", shared->nr);
	ok(info.no_memory, "9.6 limit of memory: a refused marker is counted in no_memory");
	ok(klog_has(log, log_words), "9.6 limit of memory: a refused marker is logged");
	kill_child(pid);
	set_user_kb(8);
	info = trace_info(fd);
	pid = start_child(child_attach);
	is(shared->result, -EDQUOT, "9.1 limit of memory: attach is EDQUOT");
	ok(trace_info(fd).no_memory == info.no_memory + 1,
	   "9.6 limit of memory: a refused process is counted in no_memory");
	kill_child(pid);
	set_user_kb(0);
	close(fd);
}

static void attach_and_map(void)
{
	struct traced_process t;

	traced_open(&t, 0);
}

/*
 * Tests a trace that is created while the system has too many open files. The permission to trace a
 * process is then not checked, because the check opens a file in procfs.
 */
static void test_unchecked_process(void)
{
	static const char * const log_words[] = { "could not be checked", NULL };
	struct perftrace_create create = make_trace("unchecked", "charges:*", 0, 4096);
	int fd = open_trace_device(), log = klog_open(), rc;
	pid_t pid = start_child(attach_and_map);
	char max[24];

	read_file(FILE_MAX, max, sizeof(max));
	write_file(FILE_MAX, "0");
	rc = in_child({
		switch_user(USER, -1);
		_exit(-trace_ioctl(fd, PERFTRACE_CREATE, &create));
	});
	write_file(FILE_MAX, max);
	is(rc, 0, "9.6 too many open files: a trace can be created");
	is(trace_info(fd).no_memory, 1,
	   "9.6 too many open files: the process that cannot be checked is counted in no_memory");
	ok(klog_has(log, log_words), "9.6 too many open files: the process is logged");
	kill_child(pid);
	close(log);
	close(fd);
}

/*
 * Runs in a child of the traced process @parent. The child cannot be traced because of user_kb, and
 * then attaches through another open file of the device. Returns true if a write to the inherited
 * mapping creates no buffer in the trace in @slot.
 */
static bool forgets_inherited_mapping(const struct traced_process *parent, int slot)
{
	struct traced_process own;

	if (seteuid(USER) || parent->control->key || seteuid(0))
		return false;
	traced_open(&own, 0);
	/* Splits the inherited mapping: the kernel makes a new mapping of all but the last page. */
	if (own.attach.key == parent->attach.key || notify(&own, slot, 0) != -ENOENT ||
	    mprotect(parent->buffers + parent->attach.bytes - PAGE, PAGE, PROT_READ))
		return false;
	get_buffer(parent, slot, 0)->head = 24;
	return notify(&own, slot, 0) == -ENOENT;
}

static void test_inherited_mapping(void)
{
	int slot, fd = trace_create("inherited", "charges:*", 0, 4096, &slot);
	struct traced_process parent;

	traced_open(&parent, 0);
	set_user_kb(1);
	is(in_child(_exit(forgets_inherited_mapping(&parent, slot))), true,
	   "9.1 child of fork: a mapping from before its attach reaches no buffer of a trace");
	set_user_kb(0);
	traced_close(&parent);
	close(fd);
}

/*
 * Runs in a child of the traced process @parent. The child is traced from its first access on. It
 * maps the device a second time, through another open file of the device. Returns true if the trace
 * in @slot, which the child ends, has left no page in the new mapping.
 */
static bool unmaps_second_mapping(const struct traced_process *parent, int fd, int slot)
{
	struct perftrace_buffer *b;
	struct traced_process own;

	if (parent->control->key == parent->attach.key)
		return false;
	traced_open(&own, 0);
	b = get_buffer(&own, slot, 0);
	b->head = 24;
	if (own.attach.key != parent->control->key || notify(&own, slot, 0) ||
	    trace_ioctl(fd, PERFTRACE_END, NULL))
		return false;
	return b->head != 24;
}

static void test_second_mapping(void)
{
	int slot, fd = trace_create("second", "charges:*", 0, 4096, &slot);
	struct traced_process parent;

	traced_open(&parent, 0);
	is(in_child(_exit(unmaps_second_mapping(&parent, fd, slot))), true,
	   "9.1 child of fork: the end of a trace unmaps pages of each mapping of the child");
	traced_close(&parent);
	close(fd);
}

/* Counts how often the word of the marker is 0: no trace selects it. */
static void *watch_marker_word(void *arg)
{
	struct traced_process *t = arg;

	while (!shared->go)
		if (t->words[0] == 0)
			shared->nr++;
	return NULL;
}

static void test_resume(void)
{
	int slot, fd = trace_create("pause", "charges:*", 0, 4096, &slot), off = 0, bad = 0;
	pthread_t thread;
	struct traced_process t;
	int marker;

	marker = traced_open_marker(&t, 0, "charges:x");
	bail_if(marker || !wait_wanted(&t, marker, slot, true), "a marker");
	shared->nr = 0;
	shared->go = 0;
	pthread_create(&thread, NULL, watch_marker_word, &t);
	for (int i = 0; i < 3000; i++)
		bad += trace_ioctl(fd, PERFTRACE_PAUSE, &off) != 0;
	shared->go = 1;
	pthread_join(thread, NULL);
	is(bad, 0, "9.6 resume: succeeds for a trace that is not paused");
	is(shared->nr, 0, "9.6 resume: a trace that is not paused wants its markers all the time");
	traced_close(&t);
	close(fd);
}

/*
 * Writes one event, writes nothing while the trace is read ten times (50 times in a long run), and
 * then raises the buffer's count of lost events. The new count is half of what the process can have
 * lost since its event, but more than it can have lost since the last read. Returns false if a busy
 * host has stopped the process for so long that the new count is possible.
 */
static bool claim_losses(struct perftrace_info *info)
{
	int slot, fd = trace_create("idle", "charges:*", 0, 4096, &slot), marker;
	struct traced_process t;
	__u64 start, last_read = 0;

	pin_to_cpu(0);
	marker = traced_open_marker(&t, 0, "charges:x");
	write_number(&t, slot, 0, marker, 1);
	start = ticks_now();
	for (int i = 0; i < gate_or_long(10, 50); i++) {
		sleep_ms(100);
		last_read = ticks_now();
		trace_info(fd);
	}
	/* To lose an event, a process needs at least four ticks of the time stamp counter. */
	get_buffer(&t, slot, 0)->lost = (last_read - start) / 4 / 2;
	*info = trace_info(fd);
	traced_close(&t);
	close(fd);
	return ticks_now() - last_read < (last_read - start) / 4;
}

/* The count may rise only by what a process can write since the last read. */
static void test_impossible_losses(void)
{
	struct perftrace_info info;

	for (int i = 0; i < 10 && !claim_losses(&info); i++)
		;
	is(info.lost, 0, "9.6 impossible losses: not counted as lost");
	ok(info.cut, "9.6 impossible losses: the same call counts them in cut");
}

/* When the caller of PERFTRACE_RELEASE has exited, processes can attach again. */
static void test_release(void)
{
	struct perftrace_release release = { .size = sizeof(release), .wake = -1 };
	struct perftrace_attach attach;
	struct traced_process t;
	int rc, fd;

	traced_open(&t, 0);
	rc = in_child({
		fd = open_trace_device();
		rc = trace_ioctl(fd, PERFTRACE_RELEASE, &release);
		_exit(rc || !release.left);
	});
	is(rc, 0, "9.2 release: processes are asked to let go");
	rc = in_child(_exit(-try_attach(open_trace_device(), 0, &attach)));
	is(rc, 0, "9.2 release: when its caller has ended, processes can attach again");
	release.flags = PERFTRACE_RESUME;
	fd = open_trace_device();
	trace_ioctl(fd, PERFTRACE_RELEASE, &release);
	close(fd);
	traced_close(&t);
}

int main(void)
{
	plan(5 + 4 + 6 + 5 + 3 + 2 + 2 + 2 + 2);
	shared = map_memory(PAGE, MAP_SHARED);
	trace_load();
	test_descriptors();
	test_dead_processes();
	test_dropped_while_read();
	test_refused_counts();
	test_unchecked_process();
	test_inherited_mapping();
	test_second_mapping();
	test_resume();
	test_impossible_losses();
	test_release();
	return finish();
}
