// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 240
 *
 * Several readers of /dev/ppa. After its first read, each open file gets the record of every task
 * that ends, whatever other readers do. With LONG=1, the test also has a reader that does not read
 * for a while. In this time, more tasks end than the number of records that the kernel keeps.
 */
#include "memory.h"
#include "ppa.h"
#include <linux/keyctl.h>
#include <pthread.h>

#define NR_CHILDREN	20
#define MAX_TASKS	20000
/* MAX_ENDED_RECORDS_PER_LIST in src/ppa/state.rs. */
#define MAX_ENDED	16384

static struct ppa_task *tasks;
static pid_t children[NR_CHILDREN];

static void end_children(void)
{
	for (int i = 0; i < NR_CHILDREN; i++) {
		children[i] = fork_child(_exit(0));
		waitpid(children[i], NULL, 0);
	}
}

static bool is_child(const struct ppa_task *t)
{
	for (int i = 0; i < NR_CHILDREN; i++)
		if (t->pid == (__u32)children[i] && t->flags & PPA_TASK_ENDED)
			return true;
	return false;
}

/*
 * Reads /dev/ppa up to ten times, until the records of all children were returned. If a child has
 * been reaped before its last context switch, reads of /dev/ppa return the child as an ended task
 * only after this context switch. Returns the number of records of ended children that were read.
 */
static int read_children(int fd)
{
	int found = 0;

	for (int pass = 0; pass < 10 && found < NR_CHILDREN; pass++) {
		int nr = ppa_tasks(fd, tasks, MAX_TASKS);

		for (int n = 0; n < nr; n++)
			found += is_child(&tasks[n]);
		if (found < NR_CHILDREN)
			sleep_ms(20);
	}
	return found;
}

static int read_once(int fd)
{
	int nr = ppa_tasks(fd, tasks, MAX_TASKS), found = 0;

	for (int n = 0; n < nr; n++)
		found += is_child(&tasks[n]);
	return found;
}

static int read_threads(int fd)
{
	int nr = ppa_tasks(fd, tasks, MAX_TASKS), found = 0;

	for (int n = 0; n < nr; n++)
		found += tasks[n].flags & PPA_TASK_ENDED && tasks[n].tgid == (__u32)getpid();
	return found;
}

static void *end_at_once(void *unused)
{
	return unused;
}

static void end_threads(int nr)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	for (int i = 0; i < nr; i++) {
		pthread_t thread;

		bail_if(pthread_create(&thread, &attr, end_at_once, NULL), "pthread_create");
		pthread_join(thread, NULL);
	}
}

static void test_two_readers(void)
{
	int first = ppa_open(), second = ppa_open(), third;

	ppa_tasks(first, tasks, MAX_TASKS);
	ppa_tasks(second, tasks, MAX_TASKS);
	end_children();
	is(read_children(first), NR_CHILDREN, "4.4 two readers: the first one gets all ended tasks");
	is(read_children(second), NR_CHILDREN,
	   "4.4 two readers: the second one gets all ended tasks, too");
	is(read_once(first), 0, "4.4 two readers: the first one gets no ended task twice");
	is(read_once(second), 0, "4.4 two readers: the second one gets no ended task twice");
	end_children();
	is(read_children(second), NR_CHILDREN, "4.4 two readers: the second one may read first");
	third = ppa_open();
	is(read_once(third), 0, "4.4 a new reader: gets no ended task that was read before");
	ok(ppa_info(third).nr_ended < NR_CHILDREN,
	   "4.4 a new reader: its file does not count ended tasks that were read before as unread");
	ok(ppa_info(first).nr_ended >= NR_CHILDREN,
	   "4.4 a reader that has not read yet: its file counts the ended tasks as unread");
	is(read_children(first), NR_CHILDREN,
	   "4.4 two readers: the first one gets what the others have got before");
	close(third);
	close(second);
	close(first);
}

/* A record is kept until each reader has got it or has closed its file. */
static void test_closed_reader(void)
{
	int first = ppa_open(), second = ppa_open();

	ppa_tasks(first, tasks, MAX_TASKS);
	ppa_tasks(second, tasks, MAX_TASKS);
	in_child({
		exit_if(setresuid(1000, 1000, 1000), 1);
		in_child(_exit(0));
	});
	sleep_ms(50);
	ppa_tasks(first, tasks, MAX_TASKS);
	ok(charged_bytes_in(RECORDS, 1000) > 0,
	   "9.1 record of an ended task: is kept while a reader has not got it");
	close(second);
	is(charged_bytes_in(RECORDS, 1000), 0,
	   "9.1 record of an ended task: is freed when the only reader without it closes its file");
	close(first);
}

/* Returns the number of keys of a user, including keyrings. */
static int nr_keys(int user)
{
	FILE *f = fopen("/proc/key-users", "r");
	int uid, nr, found = 0;
	char line[100];

	bail_if(!f, "/proc/key-users");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%d: %*d %d/", &uid, &nr) == 2 && uid == user)
			found = nr;
	fclose(f);
	return found;
}

/* Creates a session keyring and a child. The child has the same keyring, and ends at once. */
static int end_child_with_keyring(void)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		return 1;
	return in_child(_exit(0));
}

/*
 * Tests that unread records of ended tasks keep no credentials: the keyrings and the user namespace
 * that belong to credentials count towards limits of the user. The debug kernels have no keyrings.
 */
static void test_keyrings(void)
{
	static const char *const names[] = {
		"9.1 ended tasks: each had a session keyring of its own",
		"9.1 ended tasks: their records are kept for a reader",
		"9.1 ended tasks: unread records keep no keyrings",
	};
	__u64 nr_ended;
	int fd;

	if (access("/proc/key-users", F_OK)) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			skip(names[i], "this kernel has no keyrings");
		return;
	}
	fd = ppa_open();
	nr_ended = ppa_info(fd).nr_ended + NR_CHILDREN;
	is(in_child({
		exit_if(setresuid(1000, 1000, 1000), 1);
		for (int i = 0; i < NR_CHILDREN; i++)
			exit_if(in_child(_exit(end_child_with_keyring())), 2);
	}), 0, "%s", names[0]);
	wait_until(nr_keys(1000) < NR_CHILDREN / 2);
	ok(ppa_info(fd).nr_ended >= nr_ended, "%s", names[1]);
	ok(nr_keys(1000) < NR_CHILDREN / 2, "%s", names[2]);
	close(fd);
}

/* While no reader has /dev/ppa open, the records of ended tasks are kept for the next reader. */
static void test_no_reader(void)
{
	int fd;

	end_children();
	fd = ppa_open();
	is(read_children(fd), NR_CHILDREN, "4.4 no reader: ended tasks are kept for the next one");
	close(fd);
}

/*
 * Tests the position of an open file. The position must be a number of bytes: it is in
 * /proc/PID/fdinfo, and must not contain the address of a structure of the kernel.
 */
static void test_position(void)
{
	int fd = ppa_open();
	off_t size = sizeof(*tasks);

	is(read(fd, tasks, 2 * size - 1), size, "4.4 /dev/ppa: a read of less than two records gets one");
	is(lseek(fd, 0, SEEK_CUR), size, "9.3 /dev/ppa: the position is the number of bytes read");
	lseek(fd, size + 1, SEEK_SET);
	ok(read(fd, tasks, size) < 0 && errno == EINVAL,
	   "9.3 /dev/ppa: a read at a position that no read has reached is EINVAL");
	lseek(fd, size, SEEK_SET);
	is(read(fd, tasks + 1, size), size, "4.4 /dev/ppa: a read at the last position goes on");
	ok(tasks[1].pid != tasks[0].pid, "4.4 /dev/ppa: the next record is of another task");
	close(fd);
}

/* Only the reader that does not read must lose records. */
static void test_slow_reader(void)
{
	int fast, slow, got = 0, step = 512, nr = MAX_ENDED + step;

	fast = ppa_open();
	slow = ppa_open();
	ppa_tasks(fast, tasks, MAX_TASKS);
	ppa_tasks(slow, tasks, MAX_TASKS);
	for (int done = 0; done < nr; done += step) {
		end_threads(step);
		got += read_threads(fast);
	}
	sleep_ms(100);
	got += read_threads(fast);
	is(got, nr, "9.4 slow reader: the other reader gets each ended task");
	is(ppa_info(fast).lost, 0, "9.4 slow reader: the other reader has lost nothing");
	ok(ppa_info(slow).lost >= (__u64)(nr - MAX_ENDED),
	   "9.4 slow reader: its file counts the tasks beyond the limit as lost");
	got = read_threads(slow);
	ok(got > MAX_ENDED * 9 / 10 && got <= MAX_ENDED,
	   "9.4 slow reader: gets as many ended tasks as the kernel keeps");
	note("the slow reader got %d of %d and lost %llu", got, nr, ppa_info(slow).lost);
	close(slow);
	close(fast);
}

int main(void)
{
	plan(gate_or_long(20, 24));
	unload_modules();
	insmod_each("perfcounters ppa");
	tasks = map_memory(MAX_TASKS * sizeof(*tasks), MAP_PRIVATE);
	bail_if(ppa_write(SETTINGS, "1 0 0 1"), SETTINGS);
	test_no_reader();
	test_two_readers();
	test_closed_reader();
	test_keyrings();
	test_position();
	if (is_long_run())
		test_slow_reader();
	ppa_write(SETTINGS, "0 0 0 1");
	unload_modules();
	return finish();
}
