// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 240
 *
 * The limit of a user (user_kb) counts the records of the user's tasks. A task beyond the limit
 * runs without being accounted, and is counted as refused; accounting of others goes on.
 */
#include "capabilities.h"
#include "memory.h"
#include "ppa.h"
#include <pthread.h>

#define USER	1000
#define THREADS	64

static struct shared {
	volatile int wanted, made, ends;
	volatile pid_t tids[THREADS];
} *shared;

static int dev;

static void *sleeper(void *number)
{
	shared->tids[(long)number] = gettid();
	__atomic_add_fetch(&shared->made, 1, __ATOMIC_RELEASE);
	while ((long)number >= shared->ends)
		sleep_ms(5);
	return NULL;
}

/* Has as many threads as the test wants, besides its first one. */
static void as_user(int user)
{
	if (user)
		become_user(user, -1);
	for (long n = 0;; sleep_ms(5))
		for (; n < shared->wanted; n++) {
			pthread_attr_t attr;
			pthread_t thread;

			pthread_attr_init(&attr);
			pthread_attr_setstacksize(&attr, 16384);
			pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
			if (pthread_create(&thread, &attr, sleeper, (void *)n))
				_exit(1);
		}
}

static pid_t spawn(int user)
{
	pid_t child;

	fflush(stdout);
	memset(shared, 0, sizeof(*shared));
	child = fork();
	if (!child)
		as_user(user);
	return child;
}

/* Has the user make further threads. Returns the id of the last one. */
static pid_t with_threads(int nr)
{
	shared->wanted = nr;
	wait_until(__atomic_load_n(&shared->made, __ATOMIC_ACQUIRE) == nr);
	return shared->tids[nr - 1];
}

static int is_accounted(pid_t tid)
{
	struct ppa_task task;

	return ppa_try(dev, tid, &task);
}

static void end_all(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Chooses a limit in whole kilobytes that is enough for @nr records, and not for one more. */
static __u64 limit_for(int *nr, __u64 bytes)
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
	static struct ppa_task tasks[4096];
	__u64 one, kb, refused;
	pid_t user, stranger, last;
	char text[32];
	int nr;

	plan(18);
	unload();
	insmod("perfcounters", "");
	dev = ppa_open();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "9.1 settings: accounting of all tasks is turned on");
	is(bytes_of(USER), 0, "9.1 records of a user: nothing is charged without tasks");
	user = spawn(USER);
	with_threads(1);
	one = bytes_of(USER);
	note("a record is %llu bytes", one);
	ok(one >= 512 && one < 4096, "9.1 record of a thread: its user is charged 512 to 4,095 bytes");
	if (!one)
		one = 1000;
	kb = limit_for(&nr, one);
	note("user_kb %llu is enough for %d records", kb, nr);
	set_user_kb(kb);
	refused = ppa_info(dev).refused;
	is(is_accounted(with_threads(nr)), 0, "9.4 user_kb: the last record within the limit is made");
	is(bytes_of(USER), nr * one, "9.1 user_kb: each of these records is charged");
	is(ppa_info(dev).refused, refused, "9.4 user_kb: no task is refused at the limit");
	last = with_threads(nr + 1);
	is(is_accounted(last), -ENODATA, "9.4 user_kb: the first task beyond the limit is ENODATA");
	is(bytes_of(USER), nr * one, "9.4 user_kb: no more is charged beyond the limit");
	is(ppa_info(dev).refused, refused + 1, "9.6 user_kb: the task beyond the limit is counted");
	snprintf(text, sizeof(text), "%d 1 0 0 1", last);
	is(ppa_write("/proc/ppa/ppactl", text), -EDQUOT,
	   "9.4 user_kb: accounting this task individually is EDQUOT");

	/* A thread ends, and its record is read. */
	shared->ends = 1;
	wait_until((ppa_tasks(dev, tasks, 4096), bytes_of(USER)) == (nr - 1) * one);
	is(bytes_of(USER), (nr - 1) * one,
	   "9.1 ended thread: its record is not charged after it was read");
	is(is_accounted(with_threads(nr + 2)), 0,
	   "9.4 user_kb: a task is accounted again after another one has ended");

	/* At the start, the first thread of the process is also a task of the user. */
	is(ppa_write(LEVELS, "7"), 0, "9.4 user_kb: accounting starts again with a user at the limit");
	is(bytes_of(USER), nr * one, "9.4 user_kb: the limit holds for tasks that exist at the start");
	is(ppa_info(dev).refused, 2, "9.6 user_kb: tasks beyond the limit at the start are counted");
	end_all(user);
	stranger = spawn(USER + 1);
	is(is_accounted(with_threads(1)), 0, "9.1 user_kb: a task of another user is accounted");
	end_all(stranger);
	set_user_kb(1);
	stranger = spawn(0);
	is(is_accounted(with_threads(nr)), 0, "9.1 user_kb: does not limit a user with CAP_SYS_RESOURCE");
	end_all(stranger);
	ppa_write(SETTINGS, "0 0 0 1");
	is(bytes_of(USER), 0, "9.1 records of a user: nothing is charged when accounting is off");
	set_user_kb(0);
	ppa_write(LEVELS, "15");
	close(dev);
	rmmod("perfcounters");
	return finish();
}
