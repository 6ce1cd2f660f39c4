// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * Memory of sampling buffers and self pages. It is charged to the control group and to the user who
 * created the context, and to the owner of a user namespace for all users in it. At a limit the
 * call fails. Pages that a process drops with MADV_DONTNEED come back with the same contents.
 */
#include "capabilities.h"
#include "memory.h"
#include "sampling.h"
#include "ring.h"
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define CGROUPS	"/tmp/cgroups"
#define OURS	CGROUPS "/buffers"
#define USER	1000
#define SUB	100000
#define SIZE	(1 << 20)
#define NR	8

struct told {
	int contexts, error;
	long long bytes;
	volatile int go;
};

static struct told *told;

/* Returns the number that follows @word in a file of the control group. */
static long long of_group(const char *file, const char *word)
{
	char path[80], line[100];
	long long value = -1;
	size_t length = strlen(word);
	FILE *f;

	snprintf(path, sizeof(path), OURS "/%s", file);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, word, length) && line[length] == ' ')
			value = atoll(line + length);
	if (!f || fclose(f) || value < 0)
		bail(path);
	return value;
}

/*
 * Creates buffers of @size bytes until one is refused or there are @most. Sets `go` to 1 and keeps
 * the buffers until the parent changes it.
 */
static void hoard(struct told *told, int most, int size)
{
	int rc = 0;

	told->contexts = 0;
	for (int i = 0; i < most && rc >= 0; i++) {
		rc = pfm_create_default(0, size);
		told->contexts += rc >= 0;
	}
	told->error = rc < 0 ? rc : 0;
	told->go = 1;
	while (told->go == 1)
		usleep(1000);
	_exit(0);
}

static void group(void)
{
	pid_t child;

	told->go = 0;
	child = fork();
	if (!child) {
		long long before;

		write_file(OURS "/cgroup.procs", "0");
		before = of_group("memory.stat", "kernel");
		for (int i = 0; i < NR; i++)
			if (pfm_create_ring(0, "ring", SIZE, 0) < 0)
				_exit(1);
		told->bytes = of_group("memory.stat", "kernel") - before;
		_exit(0);
	}
	waitpid(child, NULL, 0);
	note("%d rings of 1 MiB: %lld kB of kernel memory charged to the control group",
	     NR, told->bytes / 1024);
	ok(told->bytes >= (long long)NR * SIZE && told->bytes < (long long)NR * SIZE * 3 / 2,
	   "9.1 rings are charged to the control group: their size, plus less than half of it");
	write_file(OURS "/memory.max", "16777216");
	child = fork();
	if (!child) {
		write_file(OURS "/cgroup.procs", "0");
		hoard(told, 3, 10 * SIZE);
	}
	wait_until(told->go == 1);
	is(told->contexts, 1, "9.1 memory.max 16 MiB: the first buffer of 10 MiB is created");
	is(told->error, -ENOMEM, "9.1 memory.max 16 MiB: the second buffer of 10 MiB is ENOMEM");
	is(of_group("memory.events", "oom_kill"), 0,
	   "9.1 memory.max 16 MiB: a refused buffer causes no OOM kill");
	told->go = 2;
	waitpid(child, NULL, 0);
	write_file(OURS "/memory.max", "max");
}

/*
 * Buffers and self pages are charged to their user. A user can have as much as user_kb allows, and
 * root can have more.
 */
static void limit(void)
{
	__u64 one, page;
	pid_t child;
	void *self;
	int fd;

	/* Memory of the processes in group() may still be charged. */
	wait_until(nothing_charged());
	fd = pfm_create_default(0, SIZE / 16);
	one = charged_bytes(0);
	ok(one >= SIZE / 16 && one < SIZE / 8, "9.1 a sampling buffer is charged to its user");
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
	set_user_kb(one * 9 / 2 / 1024);
	told->go = 0;
	child = fork();
	if (!child) {
		switch_user(USER, -1);
		hoard(told, 10, SIZE / 16);
	}
	wait_until(told->go == 1);
	is(told->contexts, 4, "9.4 user_kb for 4.5 buffers: a user creates four");
	is(told->error, -EDQUOT, "9.4 user_kb for 4.5 buffers: the fifth buffer is EDQUOT");
	is(charged_bytes(USER), 4 * one,
	   "9.1 debugfs users: four buffers are charged with four times the size of one");
	fd = pfm_create_default(0, SIZE / 16);
	ok(fd >= 0, "9.1 user_kb does not limit root's buffers");
	close(fd);
	told->go = 2;
	waitpid(child, NULL, 0);
	wait_until(nothing_charged());
	ok(nothing_charged(), "9.1 buffers closed: no user has memory charged");
}

/*
 * RLIMIT_MEMLOCK is per user of a namespace. user_kb is a limit for all of them together, because
 * their memory is charged to the owner of the namespace as well.
 */
static void subordinate(void)
{
	const struct rlimit lock = { SIZE, SIZE };
	pid_t maker, child[4];
	int contexts = 0, full = 0;
	char path[40];

	set_user_kb(2 * SIZE / 1024);
	maker = create_user_namespace(USER, "0 100000 4", path, sizeof(path));
	for (int i = 0; i < 4; i++) {
		told[i].go = 0;
		child[i] = fork();
		if (!child[i]) {
			setrlimit(RLIMIT_MEMLOCK, &lock);
			enter_user_namespace(path, i);
			hoard(&told[i], 8, SIZE / 4);
		}
		wait_until(told[i].go == 1);
		contexts += told[i].contexts;
		full += told[i].error == -EDQUOT;
	}
	note("%d buffers of 256 kB", contexts);
	ok(contexts && contexts < 8,
	   "9.1 four users of a user namespace have fewer than 8 buffers together, user_kb is 2 MiB");
	ok(full >= 2, "9.1 user namespace: at least two of its four users get EDQUOT");
	kill(maker, SIGKILL);
	waitpid(maker, NULL, 0);
	for (int i = 0; i < 4; i++) {
		told[i].go = 2;
		waitpid(child[i], NULL, 0);
	}
	wait_until(nothing_charged());
	set_user_kb(0);
}

/*
 * A child of fork() does not inherit the mappings, so the pages are read in a child of vfork(),
 * which shares the address space. If a page is missing, the signal kills only that child. Its exit
 * status says whether the pages have the same contents as before.
 */
static void given_back(void)
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

static void unmount(void)
{
	rmdir(OURS);
	umount2(CGROUPS, MNT_DETACH);
}

int main(void)
{
	struct rlimit files = { 8192, 8192 };

	plan(4 + 7 + 2 + 3);
	setrlimit(RLIMIT_NOFILE, &files);
	mkdir(CGROUPS, 0755);
	if (mount("cgroups", CGROUPS, "cgroup2", 0, NULL))
		bail("mount of cgroup2");
	atexit(unmount);
	write_file(CGROUPS "/cgroup.subtree_control", "+memory");
	mkdir(OURS, 0755);
	insmod("perfcounters", "");
	insmod("pfm_soft", "");
	insmod("pfm_default", "");
	insmod("pfm_ring", "");
	if (chmod("/dev/perfmon", 0666))
		bail("chmod");
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	group();
	limit();
	subordinate();
	given_back();
	chmod("/dev/perfmon", 0600);
	return finish();
}
