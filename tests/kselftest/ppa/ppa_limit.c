// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 240
 *
 * The memory limit of a user (module parameter user_kb) includes the accounting records of the
 * user's tasks. A task whose record would exceed the limit runs without a record, and is counted as
 * refused. When the limit is reached, accounting of the tasks that have records continues.
 */
#include "capabilities.h"
#include "memory.h"
#include "ppa_files.h"
#include <pthread.h>

#define NAMES	"/dev/perfcounters_names"
#define USER	1000
#define THREADS	64

static struct shared {
	volatile int nr_wanted, nr_started, nr_ended;
	volatile pid_t tids[THREADS];
} *shared;

static void *sleep_thread(void *number)
{
	shared->tids[(long)number] = gettid();
	__atomic_add_fetch(&shared->nr_started, 1, __ATOMIC_RELEASE);
	while ((long)number >= shared->nr_ended)
		sleep_ms(5);
	return NULL;
}

/*
 * Runs in the main thread of the child: starts threads until there are shared->nr_wanted of them.
 */
static void run_threads(int user)
{
	if (user)
		switch_user(user, -1);
	for (long n = 0;; sleep_ms(5))
		for (; n < shared->nr_wanted; n++) {
			pthread_attr_t attr;
			pthread_t thread;

			pthread_attr_init(&attr);
			pthread_attr_setstacksize(&attr, 16384);
			pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
			exit_if(pthread_create(&thread, &attr, sleep_thread, (void *)n), 1);
		}
}

static pid_t start_process(int user)
{
	pid_t child;

	memset(shared, 0, sizeof(*shared));
	child = fork_child(run_threads(user));
	return child;
}

static pid_t start_threads(int nr)
{
	shared->nr_wanted = nr;
	wait_until(__atomic_load_n(&shared->nr_started, __ATOMIC_ACQUIRE) == nr);
	return shared->tids[nr - 1];
}

static int get_task(pid_t tid)
{
	struct ppa_task task;

	return ppa_get_task(dev, tid, &task);
}

/* Returns true if a task is accounted and its values continue the values in @before. */
static bool is_continued(pid_t tid, const struct ppa_task *before)
{
	struct ppa_task now;

	return !ppa_get_task(dev, tid, &now) && now.counted >= before->counted &&
	       now.values[PPA_SCHEDOUTCNT] >= before->values[PPA_SCHEDOUTCNT];
}

/* Cancels the selection when the user is at the limit. */
static void test_cancelled_at_limit(pid_t tid)
{
	struct ppa_task before;

	is(write_entry(tid, "1 0 0 1"), 0, "9.4 user_kb: a task is selected below the limit");
	before = ppa_task(dev, tid);
	set_user_kb(1);
	is(write_entry(tid, "0 0 0 1"), 0, "9.4 user_kb: a selection is cancelled at the limit");
	ok(is_continued(tid, &before),
	   "9.4 user_kb: a task whose selection is cancelled at the limit keeps its values");
}

/*
 * Starts a process of USER, which reads the list of counter names. The memory of the list is
 * charged to the user, so that no record fits into a limit of 1 kB.
 */
static pid_t start_names_reader(void)
{
	int names = open(NAMES, O_RDONLY | O_CLOEXEC);
	pid_t child = fork_child({
		char byte;

		switch_user(USER, -1);
		exit_if(read(names, &byte, 1) != 1, 1);
		pause_forever();
	});

	close(names);
	wait_until(charged_bytes(USER));
	return child;
}

/*
 * Tests the selection of a task for individual accounting when accounting has to be started for it.
 * If the user is at the limit, the task is not selected, and accounting stops again.
 */
static void test_start_at_limit(void)
{
	pid_t names_reader = start_names_reader(), user = start_process(USER);
	pid_t tid = start_threads(1);

	set_user_kb(1);
	is(write_entry(tid, "1 0 0 1"), -EDQUOT,
	   "9.4 user_kb, accounting off: selecting a task at the limit is EDQUOT");
	ok(has_stopped() && files_are_gone(tid),
	   "9.4 user_kb, accounting off: stays off after EDQUOT");
	set_user_kb(0);
	is(write_entry(tid, "1 0 0 1"), 0,
	   "9.4 user_kb, accounting off: the task can be selected below the limit");
	set_user_kb(1);
	is(ppa_write(LEVELS, "15"), 0,
	   "9.4 user_kb: accounting starts again with a selected task at the limit");
	ok(has_stopped() && files_are_gone(tid),
	   "9.4 user_kb: the selection of a task ends if a restart refuses its record");
	kill_child(user);
	kill_child(names_reader);
	set_user_kb(0);
}

/* The limit, in whole kB, is enough for @nr records of @bytes bytes, and not for one more. */
static __u64 choose_limit(int *nr, __u64 bytes)
{
	for (*nr = 8; *nr < THREADS / 2; ++*nr) {
		__u64 kb = ((*nr + 1) * bytes - 1) / 1024;

		if (kb * 1024 >= *nr * bytes)
			return kb;
	}
	bail("no limit in kilobytes");
}

int main(void)
{
	__u64 one, kb, refused;
	pid_t user, stranger, last;
	struct ppa_task before;
	int nr;

	plan(28);
	ppa_load();
	shared = map_memory(sizeof(*shared), MAP_SHARED);
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "9.1 settings: accounting of all tasks is turned on");
	is(charged_bytes(USER), 0, "9.1 records of a user: nothing is charged without tasks");
	user = start_process(USER);
	start_threads(1);
	one = charged_bytes(USER);
	note("a record is %llu bytes", one);
	ok(one >= 512 && one < 4096,
	   "9.1 record of a thread: its user is charged 512 to 4,095 bytes");
	if (!one)
		one = 1000;
	kb = choose_limit(&nr, one);
	note("user_kb %llu is enough for %d records", kb, nr);
	set_user_kb(kb);
	refused = ppa_info(dev).refused;
	is(get_task(start_threads(nr)), 0, "9.4 user_kb: the last record within the limit is made");
	is(charged_bytes(USER), nr * one, "9.1 user_kb: each record within the limit is charged");
	is(ppa_info(dev).refused, refused, "9.4 user_kb: no task is refused at the limit");
	last = start_threads(nr + 1);
	is(get_task(last), -ENODATA, "9.4 user_kb: the first task beyond the limit is ENODATA");
	is(charged_bytes(USER), nr * one, "9.4 user_kb: no more is charged beyond the limit");
	is(ppa_info(dev).refused, refused + 1, "9.6 user_kb: the task beyond the limit is counted");
	is(write_entry(last, "1 0 0 1"), -EDQUOT,
	   "9.4 user_kb: accounting the refused task individually is EDQUOT");
	before = ppa_task(dev, shared->tids[1]);
	is(write_entry(shared->tids[1], "1 0 0 1"), -EDQUOT,
	   "9.4 user_kb: accounting an accounted task individually is EDQUOT");
	ok(is_continued(shared->tids[1], &before),
	   "9.4 user_kb: an accounted task keeps its values after EDQUOT");

	/* Ends a thread; from then on its record is not charged, although no program reads it. */
	shared->nr_ended = 1;
	wait_until(charged_bytes(USER) == (nr - 1) * one);
	is(charged_bytes(USER), (nr - 1) * one,
	   "9.1 ended thread: its unread record is not charged");
	is(get_task(start_threads(nr + 2)), 0,
	   "9.4 user_kb: a task is accounted again after another one has ended");

	/* Accounting adds a record for the first thread of the process as well. */
	is(ppa_write(LEVELS, "7"), 0,
	   "9.4 user_kb: accounting starts again with a user at the limit");
	is(charged_bytes(USER), nr * one,
	   "9.4 user_kb: the limit holds for tasks that exist at the start");
	is(ppa_info(dev).refused, 2,
	   "9.6 user_kb: tasks beyond the limit at the start are counted");
	set_user_kb(0);
	test_cancelled_at_limit(start_threads(nr + 3));
	set_user_kb(kb);
	kill_child(user);
	stranger = start_process(USER + 1);
	is(get_task(start_threads(1)), 0, "9.1 user_kb: a task of another user is accounted");
	kill_child(stranger);
	set_user_kb(1);
	stranger = start_process(0);
	is(get_task(start_threads(nr)), 0,
	   "9.1 user_kb: does not limit a user with CAP_SYS_RESOURCE");
	kill_child(stranger);
	ppa_write(SETTINGS, "0 0 0 1");
	is(charged_bytes(USER), 0,
	   "9.1 records of a user: nothing is charged when accounting is off");
	set_user_kb(0);
	test_start_at_limit();
	close(dev);
	unload_modules();
	return finish();
}
