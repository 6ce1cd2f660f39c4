// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * timeout: 120
 *
 * Kernel memory of contexts. It is allocated when it is needed, charged to the user who created the
 * context, and to the owner of a user namespace for all users in it. A call that would exceed
 * user_kb fails with EDQUOT. All memory is given back on close.
 */
#include "capabilities.h"
#include "memory.h"
#include "sets.h"
#include <sys/resource.h>
#include <sys/stat.h>

#define SETS	1024
#define FDS	100
#define USER	1000
#define MOST	16384	/* contexts of a user */
#define SUB	100000

/* Creates event sets 1 to 1,023 of a context. Set 0 exists already. */
static int fill(int fd)
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

struct told {
	int contexts, error;
	volatile int go;
};

static struct told *told;

/*
 * Creates contexts until one is refused or there are @most. Sets `go` to 1 and keeps the contexts
 * until the parent changes it.
 */
static void hoard(struct told *told, int most, bool sets)
{
	int rc = 0;

	told->contexts = 0;
	for (int i = 0; i < most && !rc; i++) {
		struct pfarg_ctx ctx = { 0 };
		int fd = open("/dev/perfmon", O_RDWR);

		rc = fd < 0 || ioctl(fd, PERFMON_CREATE, &ctx) ? -errno : 0;
		if (!rc && sets)
			rc = fill(fd);
		told->contexts += !rc;
	}
	told->error = rc;
	told->go = 1;
	while (told->go == 1)
		usleep(1000);
	_exit(0);
}

static pid_t begin(int user, int most, bool sets)
{
	pid_t child;

	told->go = 0;
	child = fork();
	if (!child) {
		become_user(user, -1);
		hoard(told, most, sets);
	}
	wait_until(told->go == 1);
	return child;
}

static void end(pid_t child)
{
	told->go = 2;
	waitpid(child, NULL, 0);
}

/* A user creates contexts with all 1,024 event sets each, until one is refused. */
static void attack(void)
{
	pid_t child;
	__u64 has;

	child = begin(USER, FDS, true);
	has = bytes_of(USER);
	note("%d contexts with %d sets each, then %s: %llu kB", told->contexts, SETS,
	     strerror(-told->error), has / 1024);
	is(told->error, -EDQUOT, "9.1 contexts with 1,024 sets each: a user gets EDQUOT");
	ok(told->contexts > 8, "9.1 contexts with 1,024 sets each: a user creates more than eight");
	ok(has <= 32 * 1024 * 1024,
	   "9.1 contexts with 1,024 sets each: at most 32 MiB are charged to the user");
	end(child);
	wait_until(nobody_has_any());
	ok(nobody_has_any(), "9.1 contexts with 1,024 sets each: no memory is charged after close");
}

/*
 * A context and a set without registers are small. The first write of a register allocates memory,
 * later ones do not.
 */
static void needs(void)
{
	int fd = pfm_create(0), rc;
	__u64 first = bytes_of(0), last;

	ok(first && first < 8192, "9.1 a new context is charged less than 8 KiB");
	rc = fill(fd);
	last = bytes_of(0);
	note("a context: %llu bytes, a set: %llu", first, (last - first) / (SETS - 1));
	is(rc, 0, "9.4 a context can have 1,024 sets");
	ok(last - first < SETS * 1024, "9.1 a set without registers is charged less than 1 KiB");
	rc = 0;
	for (int i = 0; i < 100; i++)
		rc |= set_pmd(fd, i, 256, 0, 0);
	ok(!rc && bytes_of(0) > last, "9.1 the first write of a PMD charges memory");
	first = bytes_of(0);
	for (int i = 0; i < 100; i++)
		rc |= set_pmd(fd, i, 256, i, 0);
	ok(!rc && bytes_of(0) == first, "9.1 a second write of the same PMD charges no memory");
	close(fd);
	wait_until(nobody_has_any());
}

/* A user can have as many contexts as user_kb allows. Root and other users are not affected. */
static void limit(void)
{
	int fd = pfm_create(0);
	__u64 one = bytes_of(0);
	pid_t child;

	close(fd);
	wait_until(nobody_has_any());
	/* user_kb is in whole kilobytes: enough for four contexts, not for five. */
	set_user_kb(one * 9 / 2 / 1024);
	child = begin(USER, 10, false);
	is(told->contexts, 4, "9.4 user_kb for 4.5 contexts: a user creates four");
	is(told->error, -EDQUOT, "9.4 user_kb for 4.5 contexts: the fifth context is EDQUOT");
	is(bytes_of(USER), 4 * one,
	   "9.1 debugfs users: four contexts are charged with four times the size of one");
	fd = pfm_create(0);
	ok(fd >= 0, "9.1 user_kb does not limit root's contexts");
	close(fd);
	end(child);
	child = begin(USER + 1, 10, false);
	is(told->contexts, 4, "9.1 user_kb for 4.5 contexts: another user creates four as well");
	end(child);
	wait_until(nobody_has_any());
}

/* Contexts of all users in a user namespace are charged to its owner as well. */
static void inside(void)
{
	pid_t maker, first, second;
	char path[40];

	maker = user_space_of(USER, "0 100000 2", path, sizeof(path));
	told->go = 0;
	first = fork();
	if (!first) {
		enter_user_space(path, 0);
		hoard(&told[0], 3, false);
	}
	wait_until(told[0].go == 1);
	is(told[0].contexts, 3, "9.1 user namespace: its first user creates three contexts");
	is(bytes_of(USER), bytes_of(SUB),
	   "9.1 user namespace: contexts of its user are charged to the owner as well");
	second = fork();
	if (!second) {
		enter_user_space(path, 1);
		hoard(&told[1], 3, false);
	}
	wait_until(told[1].go == 1);
	is(told[1].contexts, 1, "9.1 user namespace: its second user creates one context");
	is(told[1].error, -EDQUOT,
	   "9.1 user namespace: the second user's second context is EDQUOT");
	kill(maker, SIGKILL);
	told[0].go = 2;
	told[1].go = 2;
	waitpid(maker, NULL, 0);
	waitpid(first, NULL, 0);
	waitpid(second, NULL, 0);
	wait_until(nobody_has_any());
	ok(nobody_has_any(), "9.1 user namespace: no memory is charged at the end");
	set_user_kb(0);
}

/*
 * Containers, as user namespaces that root has created: all users in one of them can have as much
 * as one user outside, and nothing is charged to root.
 */
static void containers(void)
{
	static const int who[] = { 0, 1, 0 };
	pid_t maker[2], child[3];
	char path[2][40];

	maker[0] = user_space_of(0, "0 100000 2", path[0], sizeof(path[0]));
	maker[1] = user_space_of(0, "0 200000 2", path[1], sizeof(path[1]));
	for (int i = 0; i < 3; i++) {
		told[i].go = 0;
		child[i] = fork();
		if (!child[i]) {
			enter_user_space(path[i / 2], who[i]);
			hoard(&told[i], 10, false);
		}
		wait_until(told[i].go == 1);
	}
	is(told[0].contexts, 4,
	   "9.1 container created by root: its first user creates four contexts");
	is(told[1].contexts, 0, "9.1 container created by root: its second user creates none");
	is(told[2].contexts, 4,
	   "9.1 another container created by root: its user creates four contexts");
	is(bytes_of(0), 0, "9.1 containers created by root: nothing is charged to root");
	for (int i = 0; i < 3; i++) {
		told[i].go = 2;
		waitpid(child[i], NULL, 0);
	}
	for (int i = 0; i < 2; i++) {
		kill(maker[i], SIGKILL);
		waitpid(maker[i], NULL, 0);
	}
	wait_until(nobody_has_any());
	ok(nobody_has_any(), "9.1 containers: no memory is charged at the end");
}

/* A user who has entered a new user namespace can have as many contexts as outside. */
static void at_home(void)
{
	pid_t child;

	told->go = 0;
	child = fork();
	if (!child) {
		become_user(USER, -1);
		if (unshare(CLONE_NEWUSER))
			_exit(96);
		hoard(told, 10, false);
	}
	wait_until(told->go == 1);
	is(told->contexts, 4,
	   "9.1 a user in a new user namespace of its own creates four contexts");
	told->go = 2;
	waitpid(child, NULL, 0);
	wait_until(nobody_has_any());
}

/* A user can have MOST contexts, however much memory the user may have. */
static void most(void)
{
	pid_t child;
	int fd;

	set_user_kb(1024 * 1024);
	child = begin(USER, MOST + 1, false);
	is(told->contexts, MOST, "9.4 contexts of a user: there can be %d", MOST);
	is(told->error, -EDQUOT, "9.4 contexts of a user: one more than %d is EDQUOT", MOST);
	fd = pfm_create(0);
	ok(fd >= 0, "9.4 contexts of a user: root can create one beside them");
	close(fd);
	end(child);
	wait_until(nobody_has_any());
	ok(nobody_has_any(), "9.4 contexts of a user: no memory is charged after close");
	set_user_kb(0);
}

int main(void)
{
	struct rlimit files = { MOST + 100, MOST + 100 };
	/* Creating MOST contexts takes too long on a debug kernel. */
	bool many = bounded(1000) == 1000;

	plan(4 + 5 + 5 + 5 + 1 + 5 + (many ? 4 : 0));
	setrlimit(RLIMIT_NOFILE, &files);
	load("");
	errno = -insmod("pfm_soft", "");
	if (errno && errno != EEXIST)
		bail("insmod pfm_soft");
	if (chmod("/dev/perfmon", 0666))
		bail("chmod");
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	attack();
	needs();
	limit();
	containers();
	at_home();
	inside();
	if (many)
		most();
	chmod("/dev/perfmon", 0600);
	return finish();
}
