// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 300
 *
 * Tests limits of contexts (/dev/perfmon) and of accounting (/proc/ppa). For each limit in the
 * table `limits`, the module must accept a value at the limit and refuse the next value beyond it.
 * Other tests check the limits of sets (perfmon_sets), of PMCs (control registers) in a call
 * (perfmon_calls), of memory (perfmon_memory, perfmon_buffers), of names and texts of counters
 * (bad_input) and of the number of counters (table_full). Two limits are checked by tests that run
 * on the host: the number of messages in a queue (tools/perfmon-rules) and the number of counters
 * on the self page (tools/protocols).
 */
#include "capabilities.h"
#include "sampling.h"
#include "../ppa/ppa.h"
#include "sets.h"
#include <pthread.h>

#define PPACTL		"/proc/ppa/ppactl"
#define TASKS		4096
#define STACK		(16 * 1024)

static int close_result(int fd)
{
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : fd;
}

static int write_pmds(int nr)
{
	static struct pfarg_pmd pmds[64];
	int fd = pfm_create(0), rc;

	for (int i = 0; i < nr; i++)
		pmds[i] = (struct pfarg_pmd){ .reg_num = PERFMON_TID };
	rc = pfm_vector(fd, PERFMON_READ_PMDS, pmds, nr, sizeof(*pmds));
	close(fd);
	return rc;
}

static int create_ring(int bytes)
{
	return close_result(pfm_create_ring(0, "ring", bytes, 0));
}

static int create_nway_buffers(int nr)
{
	struct perfmon_nway_arg arg = { .size = 4096, .nr = nr };

	return close_result(pfm_create_format(0, "n-way", &arg, sizeof(arg)));
}

static int create_nway_size(int bytes)
{
	struct perfmon_nway_arg arg = { .size = bytes, .nr = 2 };

	return close_result(pfm_create_format(0, "n-way", &arg, sizeof(arg)));
}

static int create_histogram_buckets(int nr)
{
	struct perfmon_histogram_arg arg = { .nr = nr };

	return close_result(pfm_create_format(0, "histogram", &arg, sizeof(arg)));
}

static int create_histogram_shift(int shift)
{
	struct perfmon_histogram_arg arg = { .nr = 10, .shift = shift };

	return close_result(pfm_create_format(0, "histogram", &arg, sizeof(arg)));
}

/*
 * The guest lacks memory for a buffer of 1 GiB, which perfmon_max_buffer creates in a larger guest.
 * This test creates the buffer without capabilities. The module compares the size with the limit,
 * and then refuses the buffer because it exceeds RLIMIT_MEMLOCK, before it allocates memory. The
 * errno of this refusal, ENOMEM, therefore shows that the module accepts the size.
 */
static int create_default_pages(int pages)
{
	return -in_child({
		struct pfm_dfl_smpl_arg arg = { .buf_size = pages * 4096ULL };
		int rc;

		drop_capabilities_except(-1);
		rc = close_result(pfm_create_format(0, "default", &arg, sizeof(arg)));
		_exit(rc == -ENOMEM ? 0 : -rc);
	});
}

static int insmod_format(const char *what, int nr)
{
	int rc;

	rc = insmod("scripted_format", format_text("%s=%d", what, nr));
	rmmod("scripted_format");
	return rc;
}

static int insmod_queue_depth(int nr)
{
	return insmod_format("depth", nr);
}

static int insmod_arg_size(int bytes)
{
	return insmod_format("arg", bytes);
}

static int insmod_state_size(int bytes)
{
	return insmod_format("state", bytes);
}

static int insmod_name_length(int letters)
{
	char params[64] = "name=";
	int rc;

	memset(params + 5, 'x', letters);
	params[5 + letters] = 0;
	rc = insmod("scripted_format", params);
	rmmod("scripted_format");
	return rc;
}

/* ENOENT shows that the length was accepted: no format has a name of "y" only. */
static int create_name_length(int letters)
{
	char text[64] = "";
	int rc;

	memset(text, 'y', letters);
	rc = close_result(pfm_create_format(0, text, NULL, 0));
	return rc == -ENOENT ? 0 : rc;
}

/* The format "n-way" expects an argument that is @beyond bytes shorter. */
static int create_arg_size(int beyond)
{
	struct perfmon_nway_arg arg[2] = { { .size = 4096, .nr = 2 } };

	return close_result(pfm_create_format(0, "n-way", arg, sizeof(*arg) + beyond));
}

/* Creates a set with a timeout of 2^62 - 1 + @beyond nanoseconds. */
static int create_timeout(int beyond)
{
	int fd = pfm_create(0), rc;

	rc = set_create_timed(fd, 1, (~0ULL >> 2) + beyond);
	close(fd);
	return rc;
}

static const struct limit {
	const char *what;
	int (*call)(int nr);
	int at_limit, past, error;
} limits[] = {
	{ "PMDs of a call", write_pmds, PERFMON_VECTOR_MAX / sizeof(struct pfarg_pmd),
	  PERFMON_VECTOR_MAX / sizeof(struct pfarg_pmd) + 1, -E2BIG },
	{ "bytes of a ring, at least", create_ring, 4096, 2048, -EINVAL },
	{ "buffers of n-way, at most", create_nway_buffers, 16, 17, -EINVAL },
	{ "buffers of n-way, at least", create_nway_buffers, 2, 1, -EINVAL },
	{ "bytes of a buffer of n-way, at least", create_nway_size, 552, 544, -EINVAL },
	{ "buckets of a histogram, at most", create_histogram_buckets, 1 << 14, (1 << 14) + 1,
	  -EINVAL },
	{ "buckets of a histogram, at least", create_histogram_buckets, 1, 0, -EINVAL },
	{ "shift of a histogram's bucket", create_histogram_shift, 63, 64, -EINVAL },
	{ "pages of a buffer", create_default_pages, 1 << 18, (1 << 18) + 1, -EINVAL },
	{ "messages of a format, at most", insmod_queue_depth, 30, 31, -EINVAL },
	{ "messages of a format, at least", insmod_queue_depth, 1, 0, -EINVAL },
	{ "bytes of a format's argument", insmod_arg_size, 4096, 4097, -EINVAL },
	{ "bytes of a format's state", insmod_state_size, 4096, 4097, -EINVAL },
	{ "letters of a format's name", insmod_name_length, PERFMON_FORMAT_NAME - 1,
	  PERFMON_FORMAT_NAME, -EINVAL },
	{ "letters of a format's name in create", create_name_length, PERFMON_FORMAT_NAME - 1,
	  PERFMON_FORMAT_NAME, -EINVAL },
	{ "bytes beyond a format's argument", create_arg_size, 0, 1, -EINVAL },
	{ "nanoseconds of a set's timeout, beyond 2^62 - 1", create_timeout, 0, 1, -EINVAL },
};

#define NR_LIMITS	(sizeof(limits) / sizeof(*limits))

static volatile int stop;
static volatile pid_t tids[TASKS + 1];
static int nr_started;

static void *sleep_thread(void *number)
{
	tids[(long)number] = this_thread();
	__atomic_add_fetch(&nr_started, 1, __ATOMIC_RELEASE);
	while (!stop)
		syscall(SYS_futex, &stop, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
	return NULL;
}

static int write_entry(int nr)
{
	return ppa_write(PPACTL, format_text("%d 1 0 0 1000", tids[nr]));
}

static void test_entries(void)
{
	static pthread_t threads[TASKS + 1];
	pthread_attr_t attr;
	int rc = 0, i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (i = 0; i <= TASKS; i++)
		if (pthread_create(&threads[i], &attr, sleep_thread, (void *)(long)i))
			bail("pthread_create");
	wait_until(__atomic_load_n(&nr_started, __ATOMIC_ACQUIRE) == TASKS + 1);
	for (i = 0; i < TASKS && !rc; i++)
		rc = write_entry(i);
	is(rc, 0, "9.4 individually accounted tasks: %d are accepted", TASKS);
	is(write_entry(TASKS), -ENOSPC, "9.4 individually accounted tasks: one more is ENOSPC");
	stop = 1;
	syscall(SYS_futex, &stop, 1 /* FUTEX_WAKE */, TASKS + 1, NULL, NULL, 0);
	for (i = 0; i <= TASKS; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	plan(2 * NR_LIMITS + 2);
	insmod("perfcounters", "");
	insmod("perfmon", "");
	insmod("ppa", "");
	insmod("pfm_soft", "");
	insmod("pfm_default", "");
	insmod("pfm_ring", "");
	insmod("pfm_nway", "");
	insmod("pfm_histogram", "");
	for (unsigned int i = 0; i < NR_LIMITS; i++) {
		const struct limit *l = &limits[i];

		is(l->call(l->at_limit), 0, "9.4 %s: %d is accepted", l->what, l->at_limit);
		is(l->call(l->past), l->error, "9.4 %s: %d is refused", l->what, l->past);
	}
	test_entries();
	return finish();
}
