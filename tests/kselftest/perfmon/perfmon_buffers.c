// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * Tests the memory charges for sampling buffers and for self pages (from which a thread reads its
 * own counters). The memory of sampling buffers and self pages is charged to the control group and
 * to the user who created the context. Memory of a user in a user namespace is also charged to the
 * owner of the namespace. A call fails if its memory would exceed the limit of the control group or
 * of a user. Pages that a process drops with MADV_DONTNEED are mapped again with the same contents.
 */
#include "capabilities.h"
#include "memory.h"
#include "sampling.h"
#include "ring.h"
#include <sys/resource.h>
#include <sys/stat.h>

#define USER	1000
#define SIZE	(1 << 20)
#define NR_CONTEXTS	8

struct child_report {
	int contexts, error;
	long long bytes;
	volatile int go;
};

static struct child_report *report;

static long long cgroup_value(const char *file, const char *word)
{
	char line[100];
	long long value = -1;
	size_t length = strlen(word);
	FILE *f;
	const char *path = format_text(CGROUP "/%s", file);

	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, word, length) && line[length] == ' ')
			value = atoll(line + length);
	bail_if(!f || fclose(f) || value < 0, path);
	return value;
}

/*
 * Creates @max sampling buffers of @size bytes, or fewer if the kernel refuses one. After the last
 * buffer, the function sets report->go to 1, and keeps the buffers until the parent process changes
 * report->go.
 */
static void create_until_refused(struct child_report *report, int max, int size)
{
	int rc = 0;

	report->contexts = 0;
	for (int i = 0; i < max && rc >= 0; i++) {
		rc = pfm_create_default(0, size);
		report->contexts += rc >= 0;
	}
	report->error = rc < 0 ? rc : 0;
	report->go = 1;
	while (report->go == 1)
		usleep(1000);
	_exit(0);
}

static void test_cgroup(void)
{
	pid_t child;

	report->go = 0;
	in_child({
		long long before;

		write_file(CGROUP "/cgroup.procs", "0");
		before = cgroup_value("memory.stat", "kernel");
		for (int i = 0; i < NR_CONTEXTS; i++)
			exit_if(pfm_create_ring(0, "ring", SIZE, 0) < 0, 1);
		report->bytes = cgroup_value("memory.stat", "kernel") - before;
	});
	note("%d rings of 1 MiB: %lld kB of kernel memory charged to the control group",
	     NR_CONTEXTS, report->bytes / 1024);
	ok(report->bytes >= (long long)NR_CONTEXTS * SIZE &&
	   report->bytes < (long long)NR_CONTEXTS * SIZE * 3 / 2,
	   "9.1 rings are charged to the control group: their size, plus less than half of it");
	write_file(CGROUP "/memory.max", "16777216");
	child = fork_child({
		write_file(CGROUP "/cgroup.procs", "0");
		create_until_refused(report, 3, 10 * SIZE);
	});
	wait_until(report->go == 1);
	is(report->contexts, 1, "9.1 memory.max 16 MiB: the first buffer of 10 MiB is created");
	is(report->error, -ENOMEM, "9.1 memory.max 16 MiB: the second buffer of 10 MiB is ENOMEM");
	is(cgroup_value("memory.events", "oom_kill"), 0,
	   "9.1 memory.max 16 MiB: a refused buffer causes no OOM kill");
	report->go = 2;
	waitpid(child, NULL, 0);
	write_file(CGROUP "/memory.max", "max");
}

/*
 * Buffers and self pages are charged to the user who created the context. A user can have as much
 * memory as the module parameter user_kb allows, and root can have more.
 */
static void test_user_kb(void)
{
	__u64 one_buffer, page;
	pid_t child;
	void *self;
	int fd;

	/* The memory of the processes in test_cgroup() may still be charged. */
	wait_until(nothing_charged());
	fd = pfm_create_default(0, SIZE / 16);
	one_buffer = charged_bytes(0);
	ok(one_buffer >= SIZE / 16 && one_buffer < SIZE / 8,
	   "9.1 a sampling buffer is charged to its user");
	close(fd);
	wait_until(nothing_charged());
	fd = pfm_create(0);
	page = charged_bytes(0);
	self = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, PERFMON_SELF_OFFSET);
	is(charged_bytes(0) - page, 4096,
	   "9.1 mapping the self page charges 4,096 bytes to its user");
	munmap(self, 4096);
	close(fd);
	wait_until(nothing_charged());
	set_user_kb(one_buffer * 9 / 2 / 1024);
	report->go = 0;
	child = fork_child({
		switch_user(USER, -1);
		create_until_refused(report, 10, SIZE / 16);
	});
	wait_until(report->go == 1);
	is(report->contexts, 4, "9.4 user_kb for 4.5 buffers: a user creates four");
	is(report->error, -EDQUOT, "9.4 user_kb for 4.5 buffers: the fifth buffer is EDQUOT");
	is(charged_bytes(USER), 4 * one_buffer,
	   "9.1 debugfs users: four buffers are charged with four times the size of one");
	fd = pfm_create_default(0, SIZE / 16);
	ok(fd >= 0, "9.1 user_kb does not limit root's buffers");
	close(fd);
	report->go = 2;
	waitpid(child, NULL, 0);
	ok(wait_until(nothing_charged()), "9.1 buffers closed: no user has memory charged");
}

/*
 * RLIMIT_MEMLOCK limits each user of a user namespace separately. user_kb limits all users of a
 * namespace together, because their memory is charged to the owner of the namespace as well.
 */
static void test_sub_uids(void)
{
	const struct rlimit lock = { SIZE, SIZE };
	pid_t owner, child[4];
	int contexts = 0, full = 0;
	char path[40];

	set_user_kb(2 * SIZE / 1024);
	owner = create_user_namespace(USER, "0 100000 4", path, sizeof(path));
	for (int i = 0; i < 4; i++) {
		report[i].go = 0;
		child[i] = fork_child({
			setrlimit(RLIMIT_MEMLOCK, &lock);
			enter_user_namespace(path, i);
			create_until_refused(&report[i], 8, SIZE / 4);
		});
		wait_until(report[i].go == 1);
		contexts += report[i].contexts;
		full += report[i].error == -EDQUOT;
	}
	note("%d buffers of 256 kB", contexts);
	ok(contexts && contexts < 8,
	   "9.1 four users of a user namespace have fewer than 8 buffers together, user_kb is 2 MiB");
	ok(full >= 2, "9.1 user namespace: at least two of its four users get EDQUOT");
	kill_child(owner);
	for (int i = 0; i < 4; i++) {
		report[i].go = 2;
		waitpid(child[i], NULL, 0);
	}
	wait_until(nothing_charged());
	set_user_kb(0);
}

/*
 * Reads the pages of a ring in a child process, because an access to a missing page would kill the
 * test. The child is created by vfork(), which shares the address space: a child of fork() does not
 * inherit mappings of a ring. The child's exit status is 1 if the contents of the pages are
 * unchanged.
 */
static void test_dontneed(void)
{
	struct ring r = ring_map(pfm_create_ring(0, "ring", SIZE, 0), SIZE);
	__u64 size = r.page->data_size;
	int status;
	pid_t child;
	bool same;

	r.tail->tail = 8;
	is(madvise((void *)r.page, 4096 + SIZE, MADV_DONTNEED) |
	   madvise(r.tail, 4096, MADV_DONTNEED), 0,
	   "1.2 madvise(MADV_DONTNEED) on a mapped ring succeeds");
	child = vfork();
	if (!child)
		_exit(r.page->data_size == size && r.tail->tail == 8 && !r.data[SIZE / 8 - 1]);
	waitpid(child, &status, 0);
	same = WIFEXITED(status) && WEXITSTATUS(status);
	ok(same, "1.2 pages of a ring have the same contents after MADV_DONTNEED");
	if (same)
		r.tail->tail = 16;
	ok(same && r.tail->tail == 16, "1.2 the tail page is writable after MADV_DONTNEED");
	ring_close(&r);
}

int main(void)
{
	struct rlimit files = { 8192, 8192 };

	plan(4 + 7 + 2 + 3);
	setrlimit(RLIMIT_NOFILE, &files);
	create_cgroup();
	insmod_each("perfcounters perfmon pfm_soft pfm_default pfm_ring");
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	report = map_memory(4096, MAP_SHARED);
	test_cgroup();
	test_user_kb();
	test_sub_uids();
	test_dontneed();
	chmod("/dev/perfmon", 0600);
	return finish();
}
