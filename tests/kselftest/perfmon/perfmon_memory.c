// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Tests the kernel memory of contexts. The memory of a context is allocated when it is needed, and
 * charged to the user who created the context. Memory of a user in a user namespace is also charged
 * to the owner of the namespace. A call that would exceed the limit of a user (module parameter
 * user_kb) fails with EDQUOT. close() frees all memory of a context.
 */
#include "capabilities.h"
#include "memory.h"
#include "sampling.h"
#include "sets.h"
#include <sys/resource.h>
#include <sys/stat.h>

#define SETS	1024
#define FDS	100
#define USER	1000
#define FIRST_SUB_UID	100000
#define MAX_CONTEXTS	16384	/* number of contexts that a user can have */

/* Creates event sets 1 to 1,023 of a context. Event set 0 exists already. */
static int create_all_sets(int fd)
{
	static struct pfarg_setdesc sets[SETS];
	struct perfmon_vector v = { .size = sizeof(*sets) };
	int rc = 0;

	for (int i = 1; i < SETS && !rc; i += v.nr) {
		v.nr = PERFMON_VECTOR_MAX / sizeof(*sets);
		if (v.nr > (__u32)(SETS - i))
			v.nr = SETS - i;
		for (__u32 n = 0; n < v.nr; n++)
			sets[n] = (struct pfarg_setdesc){ .set_id = i + n };
		v.items = (__u64)sets;
		rc = pfm_call(fd, PERFMON_CREATE_EVTSETS, &v);
	}
	return rc;
}

struct child_report {
	int contexts, error;
	volatile int go;
};

static struct child_report *report;

/*
 * Creates @max contexts, or fewer if the kernel refuses one. When all contexts are created, or one
 * is refused, the function sets report->go to 1, for which the parent process waits. The function
 * keeps its contexts open until the parent process sets report->go to 2.
 */
static void create_until_refused(struct child_report *report, int max, bool sets)
{
	int rc = 0;

	report->contexts = 0;
	for (int i = 0; i < max && !rc; i++) {
		struct pfarg_ctx ctx = { 0 };
		int fd = open("/dev/perfmon", O_RDWR);

		rc = fd < 0 || ioctl(fd, PERFMON_CREATE, &ctx) ? -errno : 0;
		if (!rc && sets)
			rc = create_all_sets(fd);
		report->contexts += !rc;
	}
	report->error = rc;
	report->go = 1;
	while (report->go == 1)
		usleep(1000);
	_exit(0);
}

static pid_t start_child(int user, int max, bool sets)
{
	pid_t child;

	report->go = 0;
	child = fork_child({
		switch_user(user, -1);
		create_until_refused(report, max, sets);
	});
	wait_until(report->go == 1);
	return child;
}

static void stop_child(pid_t child)
{
	report->go = 2;
	waitpid(child, NULL, 0);
}

static void test_all_sets(void)
{
	pid_t child;
	__u64 charged;

	child = start_child(USER, FDS, true);
	charged = charged_bytes(USER);
	note("%d contexts with %d sets each, then %s: %llu kB", report->contexts, SETS,
	     strerror(-report->error), charged / 1024);
	is(report->error, -EDQUOT, "9.1 contexts with 1,024 sets each: a user gets EDQUOT");
	ok(report->contexts > 8,
	   "9.1 contexts with 1,024 sets each: a user creates more than eight");
	ok(charged <= 32 * 1024 * 1024,
	   "9.1 contexts with 1,024 sets each: at most 32 MiB are charged to the user");
	stop_child(child);
	ok(wait_until(nothing_charged()),
	   "9.1 contexts with 1,024 sets each: no memory is charged after close");
}

/* Only the first write of a register allocates memory for the registers. */
static void test_first_write(void)
{
	int fd = pfm_create(0), rc;
	__u64 first = charged_bytes(0), last;

	ok(first && first < 8192, "9.1 a new context is charged less than 8 KiB");
	rc = create_all_sets(fd);
	last = charged_bytes(0);
	note("a context: %llu bytes, a set: %llu", first, (last - first) / (SETS - 1));
	is(rc, 0, "9.4 a context can have 1,024 sets");
	ok(last - first < SETS * 1024, "9.1 a set without registers is charged less than 1 KiB");
	rc = 0;
	for (int i = 0; i < 100; i++)
		rc |= set_pmd(fd, i, 256, 0, 0);
	ok(!rc && charged_bytes(0) > last, "9.1 the first write of a PMD charges memory");
	first = charged_bytes(0);
	for (int i = 0; i < 100; i++)
		rc |= set_pmd(fd, i, 256, i, 0);
	ok(!rc && charged_bytes(0) == first,
	   "9.1 a second write of the same PMD charges no memory");
	close(fd);
	wait_until(nothing_charged());
}

/* Returns the charge of a context with a format whose message queue has a depth of @depth. */
static __u64 charge_with_queue(int depth)
{
	__u64 bytes = 0;
	int fd;

	bail_if(insmod("scripted_format", format_text("depth=%d", depth)), "insmod");
	fd = pfm_create_format(0, "scripted", NULL, 0);
	if (fd >= 0) {
		bytes = charged_bytes(0);
		close(fd);
	}
	wait_until(nothing_charged());
	wait_until(!rmmod("scripted_format"));
	return bytes;
}

static void test_message_queue(void)
{
	__u64 shortest = charge_with_queue(1), longest = charge_with_queue(30);

	ok(shortest, "9.1 a context with a message queue of one message is charged");
	is(longest - shortest, 29 * sizeof(union pfarg_msg),
	   "9.1 29 more messages in the queue are charged with their size");
}

/* The limit of one user does not affect root and other users. */
static void test_user_kb(void)
{
	int fd = pfm_create(0);
	__u64 one_context = charged_bytes(0);
	pid_t child;

	close(fd);
	wait_until(nothing_charged());
	/* The limit is enough for four contexts, but not for five. */
	set_user_kb(one_context * 9 / 2 / 1024);
	child = start_child(USER, 10, false);
	is(report->contexts, 4, "9.4 user_kb for 4.5 contexts: a user creates four");
	is(report->error, -EDQUOT, "9.4 user_kb for 4.5 contexts: the fifth context is EDQUOT");
	is(charged_bytes(USER), 4 * one_context,
	   "9.1 debugfs users: four contexts are charged with four times the size of one");
	fd = pfm_create(0);
	ok(fd >= 0, "9.1 user_kb does not limit root's contexts");
	close(fd);
	stop_child(child);
	child = start_child(USER + 1, 10, false);
	is(report->contexts, 4, "9.1 user_kb for 4.5 contexts: another user creates four as well");
	stop_child(child);
	wait_until(nothing_charged());
}

/* Contexts of all users in a user namespace are charged to the owner of the namespace as well. */
static void test_user_namespace(void)
{
	pid_t owner, first, second;
	char path[40];

	owner = create_user_namespace(USER, "0 100000 2", path, sizeof(path));
	report->go = 0;
	first = fork_child({
		enter_user_namespace(path, 0);
		create_until_refused(&report[0], 3, false);
	});
	wait_until(report[0].go == 1);
	is(report[0].contexts, 3, "9.1 user namespace: its first user creates three contexts");
	is(charged_bytes(USER), charged_bytes(FIRST_SUB_UID),
	   "9.1 user namespace: contexts of its user are charged to the owner as well");
	second = fork_child({
		enter_user_namespace(path, 1);
		create_until_refused(&report[1], 3, false);
	});
	wait_until(report[1].go == 1);
	is(report[1].contexts, 1, "9.1 user namespace: its second user creates one context");
	is(report[1].error, -EDQUOT,
	   "9.1 user namespace: the second user's second context is EDQUOT");
	kill(owner, SIGKILL);
	report[0].go = 2;
	report[1].go = 2;
	waitpid(owner, NULL, 0);
	waitpid(first, NULL, 0);
	waitpid(second, NULL, 0);
	ok(wait_until(nothing_charged()), "9.1 user namespace: no memory is charged at the end");
	set_user_kb(0);
}

/*
 * Containers are user namespaces that root has created. All users in one container together can
 * have as much memory as one user outside, and nothing is charged to root.
 */
static void test_root_namespaces(void)
{
	static const int owner_of[] = { 0, 1, 0 };
	pid_t owners[2], child[3];
	char path[2][40];

	owners[0] = create_user_namespace(0, "0 100000 2", path[0], sizeof(path[0]));
	owners[1] = create_user_namespace(0, "0 200000 2", path[1], sizeof(path[1]));
	for (int i = 0; i < 3; i++) {
		report[i].go = 0;
		child[i] = fork_child({
			enter_user_namespace(path[i / 2], owner_of[i]);
			create_until_refused(&report[i], 10, false);
		});
		wait_until(report[i].go == 1);
	}
	is(report[0].contexts, 4,
	   "9.1 container created by root: its first user creates four contexts");
	is(report[1].contexts, 0, "9.1 container created by root: its second user creates none");
	is(report[2].contexts, 4,
	   "9.1 another container created by root: its user creates four contexts");
	is(charged_bytes(0), 0, "9.1 containers created by root: nothing is charged to root");
	for (int i = 0; i < 3; i++) {
		report[i].go = 2;
		waitpid(child[i], NULL, 0);
	}
	for (int i = 0; i < 2; i++)
		kill_child(owners[i]);
	ok(wait_until(nothing_charged()), "9.1 containers: no memory is charged at the end");
}

/* A user who has entered a new user namespace can have as many contexts as outside of it. */
static void test_own_namespace(void)
{
	pid_t child;

	report->go = 0;
	child = fork_child({
		switch_user(USER, -1);
		exit_if(unshare(CLONE_NEWUSER), 96);
		create_until_refused(report, 10, false);
	});
	wait_until(report->go == 1);
	is(report->contexts, 4,
	   "9.1 a user in a new user namespace of its own creates four contexts");
	report->go = 2;
	waitpid(child, NULL, 0);
	wait_until(nothing_charged());
}

/* A user can have at most MAX_CONTEXTS contexts, however high the user's memory limit is. */
static void test_max_contexts(void)
{
	pid_t child;
	int fd;

	set_user_kb(1024 * 1024);
	child = start_child(USER, MAX_CONTEXTS + 1, false);
	is(report->contexts, MAX_CONTEXTS, "9.4 contexts of a user: there can be %d", MAX_CONTEXTS);
	is(report->error, -EDQUOT, "9.4 contexts of a user: one more than %d is EDQUOT",
	   MAX_CONTEXTS);
	fd = pfm_create(0);
	ok(fd >= 0, "9.4 contexts of a user: root can create a context beside them");
	close(fd);
	stop_child(child);
	wait_until(nothing_charged());
	ok(nothing_charged(), "9.4 contexts of a user: no memory is charged after close");
	set_user_kb(0);
}

int main(void)
{
	struct rlimit files = { MAX_CONTEXTS + 100, MAX_CONTEXTS + 100 };
	/* Creating MAX_CONTEXTS contexts takes too long on a debug kernel. */
	bool create_many = scale_down(1000) == 1000;

	plan(4 + 5 + 2 + 5 + 5 + 1 + 5 + (create_many ? 4 : 0));
	setrlimit(RLIMIT_NOFILE, &files);
	load_modules("");
	load_module("perfmon");
	errno = -insmod("pfm_soft", "");
	bail_if(errno && errno != EEXIST, "insmod pfm_soft");
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	report = map_memory(4096, MAP_SHARED);
	test_all_sets();
	test_first_write();
	test_message_queue();
	test_user_kb();
	test_root_namespaces();
	test_own_namespace();
	test_user_namespace();
	if (create_many)
		test_max_contexts();
	chmod("/dev/perfmon", 0600);
	return finish();
}
