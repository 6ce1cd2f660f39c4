// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 900
 * guest: probes
 * worlds: stock
 *
 * Fails each allocation and registration of the modules. The test attempts each operation many
 * times. The first attempt fails the operation's first call of a function that can fail, the second
 * attempt fails the second call, and so on. In each attempt the operation must return -ENOMEM and
 * leave no partial state, and must work when it is tried again.
 *
 * faults.ko (tests/modules) fails calls that the modules make, in any task. fail_nth.c fails
 * allocations that the kernel makes on behalf of the modules, on kernels with fault injection.
 */
#include "faults.h"
#include "faults_trace.h"
#include <limits.h>

static unsigned long total_failed;

/* True if the last attempt of an operation, which succeeds, is not undone. */
static bool keep_last;

/* faults.ko fails only calls of the project's modules, so nothing needs to be disarmed. */
static void disarm_failure(void)
{
}

#define PARAMETERS	"/sys/module/faults/parameters/"

static void arm_failure(int n)
{
	write_file(PARAMETERS "nth", format_text("%d", n));
}

/*
 * Makes one attempt in which call @n fails (0: none). Returns true if call @n was made and failed.
 */
static bool attempt_with_failure(const struct operation *op, int n, int *ret, int *calls)
{
	bool hit;

	op->prepare();
	arm_failure(n ? n : INT_MAX);
	*ret = op->attempt();
	/*
	 * A worker of a module may still be making calls, so the test reads the parameter `calls`
	 * before the parameter `nth`. In the other order, the worker could make call n between the
	 * two reads. The test would then find that `calls` includes call n and that `nth` is not 0,
	 * and would wrongly report that call n did not fail.
	 */
	*calls = read_number(PARAMETERS "calls");
	hit = read_number(PARAMETERS "nth") == 0;
	arm_failure(0);
	return hit;
}

/* Checks that an attempt has succeeded and that its result works. */
static bool check_works(const struct operation *op, const char *driver_name, int n, int ret)
{
	bool works = ret >= 0 && op->works();

	if (!works)
		note("%s%s: after call %d failed, it does not work: %d", op->what, driver_name, n,
		     ret);
	return works;
}

/* Checks an attempt by check_works(), and undoes the attempt if it has succeeded. */
static bool check_attempt(const struct operation *op, const char *driver_name, int n, int ret)
{
	bool works = check_works(op, driver_name, n, ret);

	if (ret >= 0)
		op->undo();
	return works;
}

/* Set if each attempt takes long: a long run then selects as few calls as make test. */
static bool select_few;

/* Returns @all in a long run that does not select few calls, and @few in any other run. */
static long few_or_all(long few, long all)
{
	return select_few ? few : gate_or_long(few, all);
}

/*
 * The operation makes @calls calls that can fail. In each attempt the test selects one of them and
 * makes it fail. Returns the number of the call that is selected after call @n.
 *
 * In a long run, unless select_few is true, the test selects
 *  - all calls, if the operation makes at most 100 calls;
 *  - the first 20, the last 11 and every 31st call between them, if the operation makes more than
 *    100 calls (a driver may add 400 instances in a loop).
 * In make test, or if select_few is true, the test selects
 *  - all calls, if the operation makes at most 5 calls;
 *  - the first, the last 2 and up to 2 calls between them, if the operation makes more than 5
 *    calls.
 */
static int next_call(int n, int calls)
{
	int first = few_or_all(1, 20), last = few_or_all(1, 10);
	int stride = few_or_all(calls / 3, 31);

	if (calls <= few_or_all(5, 100) || n < first || n >= calls - last)
		return n + 1;
	return n + stride < calls - last ? n + stride : calls - last;
}

static void test_failures(const struct operation *op, const char *driver_name)
{
	int failed = 0, calls, this_time, wrong = 0, ret;
	/*
	 * Minimum number of calls that must fail if few calls are selected. If 7 or more calls can
	 * fail, next_call() selects 5 of them. The last of the 5 selected calls may not be made,
	 * because an attempt may make one call fewer than the attempt that counted the calls. `min`
	 * is therefore at most 4.
	 */
	int min = op->min_failures < 5 ? op->min_failures : 4;
	bool works;

	/*
	 * Make two attempts in which all calls succeed, and count the calls of the second attempt:
	 * the first attempt may allocate memory that later attempts reuse. In make test the second
	 * attempt is left out if the first attempt makes no call that can fail.
	 */
	attempt_with_failure(op, 0, &ret, &calls);
	works = check_attempt(op, driver_name, 0, ret);
	if (calls || is_long_run()) {
		attempt_with_failure(op, 0, &ret, &calls);
		works = check_attempt(op, driver_name, 0, ret) && works;
	}
	for (int n = 1; n <= calls; n = next_call(n, calls)) {
		char last[80];

		if (!attempt_with_failure(op, n, &ret, &this_time)) {
			/* In fragmented memory, a large allocation takes more calls. */
			note("%s%s: %d calls this time, not %d", op->what, driver_name, this_time,
			     calls);
			wrong += this_time >= n;
			works = check_attempt(op, driver_name, n, ret) && works;
			continue;
		}
		failed++;
		read_file("/sys/module/faults/parameters/last", last, sizeof(last));
		last[strcspn(last, "\n")] = '\0';
		if (ret >= 0 && op->may_succeed) {
			works = check_attempt(op, driver_name, n, ret) && works;
			continue;
		}
		if (ret != -ENOMEM || !op->is_clean()) {
			note("%s%s: call %d failed, %s: %d", op->what, driver_name, n, last, ret);
			wrong++;
		}
		if (ret >= 0)
			op->undo();
		/*
		 * Try the operation again, and let all its calls succeed. If an operation makes
		 * many calls, the test tries it again after some of the failed attempts only,
		 * because leftovers of a failed attempt also show in later attempts. If few calls
		 * are selected, an operation with more than 5 calls that can fail is tried again
		 * only once, after the last failed attempt.
		 */
		if (calls <= few_or_all(5, 10) || (few_or_all(false, true) && failed % 4 == 1))
			works = check_attempt(op, driver_name, n, op->attempt()) && works;
	}
	if (failed) {
		op->prepare();
		ret = op->attempt();
		works = (keep_last ? check_works : check_attempt)(op, driver_name, calls, ret) &&
			works;
	}
	note("%s%s: %d calls, %d of them failed, one at a time", op->what, driver_name, calls,
	     failed);
	total_failed += failed;
	if (op->min_failures)
		ok(!wrong && works && calls >= op->min_failures &&
		   failed >= few_or_all(min, op->min_failures),
		   "0.10 faults: %s%s: each failed call leaves nothing behind, a retry works",
		   op->what, driver_name);
	else
		ok(works && !calls,
		   "0.10 faults: %s%s: makes no call that can fail", op->what, driver_name);
}

/*
 * A worker adds the instances of a disk after the disk's first request. If the worker runs out of
 * memory, a later request to the disk starts the worker again. Because only requests start the
 * worker, an attempt reads from the disk until all instances of the disk exist.
 */
static void prepare_block(void)
{
	driver = "pfc_block";
	if (is_loaded(driver))
		unload_driver();
	record_live();
	bail_if(load_driver(), "insmod pfc_block");
}

static int read_disk_until_instances(void)
{
	static char block[4096] __attribute__((aligned(4096)));

	for (int i = 0; i < 1000; i++) {
		int disk = open("/dev/nullb0", O_RDONLY | O_DIRECT | O_CLOEXEC);
		bool done = disk >= 0 && read(disk, block, sizeof(block)) == sizeof(block);

		close(disk);
		if (!done)
			return -EIO;
		sleep_ms(5);
		/*
		 * The worker adds the disk's instance flush_time last. If flush_time exists but the
		 * instance `reads` does not, the instances of the disk are just being removed.
		 */
		if (!pc_find(&pc, "block/nullb0/flush_time"))
			continue;
		number = pc_find(&pc, "block/nullb0/reads");
		if (!number)
			continue;
		return 0;
	}
	return -ETIMEDOUT;
}

static bool disk_counts(void)
{
	__u32 last_number = number;
	__s64 before = pc_total(&pc, last_number);

	for (int i = 0; i < 1000; i++) {
		if (read_disk_until_instances())
			break;
		if (number == last_number && pc_total(&pc, last_number) > before)
			return true;
		/* The instances of the disk were removed and added again, with other numbers. */
		if (number != last_number) {
			last_number = number;
			before = pc_total(&pc, last_number);
		}
	}
	return note_unless(false, "its reads do not count");
}

static const struct operation disk_operation = {
	"pfc_block adds the instances of a disk",
	prepare_block, read_disk_until_instances, driver_is_unloaded, disk_counts,
	unload_driver, 2, true, 0
};

/*
 * Turns on individual accounting of this task. Accounting runs as long as individual accounting is
 * on for at least one task.
 */
static int account_self(void)
{
	char text[32];
	int ppactl = open("/proc/ppa/ppactl", O_WRONLY | O_CLOEXEC);
	int len = snprintf(text, sizeof(text), "%d 1 1 0 1", getpid()), ret = 0;

	if (ppactl < 0 || write(ppactl, text, len) != len)
		ret = -errno;
	close(ppactl);
	return ret;
}

static const char *accounted_text(void)
{
	static char text[400];

	return read_file(format_text("/proc/ppa/%d/ppa", getpid()), text, sizeof(text));
}

static bool is_accounted(void)
{
	return note_unless(strstr(accounted_text(), "All results"), "it is not accounted");
}

static bool is_not_accounted(void)
{
	char text[80];

	return note_unless(!*read_file("/proc/ppa/ppactl", text, sizeof(text)),
			   "it is half accounted") &
	       note_unless(!*accounted_text(), "it has files in /proc/ppa");
}

static const char *own_ppactl(void)
{
	static char path[40];

	snprintf(path, sizeof(path), "/proc/ppa/%d/ppactl", getpid());
	return path;
}

static bool write_own_ppactl(const char *values)
{
	int ppactl = open(own_ppactl(), O_WRONLY | O_CLOEXEC), len = strlen(values);
	bool written = write(ppactl, values, len) == len;

	close(ppactl);
	return written;
}

static void stop_accounting(void)
{
	if (!note_unless(write_own_ppactl("0 0 0 1"), "accounting of the task does not end"))
		exit(1);
	for (int i = 0; i < 5000 && !access(own_ppactl(), F_OK); i++)
		sleep_ms(1);
}

static const struct operation accounting_operation = {
	"account one task", do_nothing, account_self, is_not_accounted, is_accounted,
	stop_accounting, 15, false, 0
};

static void start_accounting(void)
{
	bail_if(access(own_ppactl(), F_OK) && account_self(), "accounting of the task");
}

static int restart_accounting(void)
{
	static int other = 7;
	int levels = open("/proc/sys/kernel/ppa_levels", O_WRONLY | O_CLOEXEC);
	char text[4];
	int len = snprintf(text, sizeof(text), "%d", other), ret = 0;

	if (write(levels, text, len) != len)
		ret = -errno;
	close(levels);
	other = 15 + 7 - other;
	return ret;
}

/* The files of the task still exist after a failed restart. */
static bool can_be_started_again(void)
{
	return note_unless(!strstr(accounted_text(), "All results"), "it is still accounted") &
	       note_unless(write_own_ppactl("1 1 0 1"), "its ppactl starts no accounting") &
	       is_accounted();
}

static const struct operation restart_operation = {
	"restart accounting of one task", start_accounting, restart_accounting,
	can_be_started_again, is_accounted, stop_accounting, 15, false, 0
};

/*
 * Loads the driver before an attempt, unless the test of insmod has left the driver loaded. The
 * attempt unloads the driver. Unloading must succeed even if allocations fail.
 */
static void prepare_loaded(void)
{
	if (is_loaded(driver))
		return;
	record_live();
	bail_if(load_driver(), driver);
}

static int try_unload(void)
{
	return rmmod(driver);
}

static const struct operation unload_operation = {
	"rmmod", prepare_loaded, try_unload, return_true, driver_is_unloaded, do_nothing,
	0, false, 0
};

static void test_driver(const char *module, const struct operation *load)
{
	char suffix[40];

	driver = module;
	snprintf(suffix, sizeof(suffix), " %s", module);
	keep_last = true;
	test_failures(load, suffix);
	keep_last = false;
	test_failures(&unload_operation, suffix);
}

static void test_all(void)
{
	test_failures(&loading_operation, "");
	reload_and_map();
	for (int i = 0; i < 2000; i++)
		driver_cmd("add faults/first/%u", serial++);
	for (int i = 0; i < NR_OPERATIONS; i++)
		test_failures(&operations[i], "");
	close_fd();
	for (int i = 0; i < NR_DRIVERS; i++)
		test_driver(drivers[i], !strcmp(drivers[i], "pfc_net") ? &net_operation :
			    !strcmp(drivers[i], "sample_rust") ? &sample_operation :
			    &driver_operation);
	test_driver("perftrace", &device_module_operation);
	test_driver("ppa", &device_module_operation);
	test_driver("perfmon", &device_module_operation);
	bail_if(system("modprobe null_blk"), "modprobe null_blk");
	test_failures(&disk_operation, "");
	load_module("ppa");
	test_failures(&accounting_operation, "");
	/*
	 * A restart starts accounting by the same calls as accounting_operation, which has failed
	 * each of them. Each attempt to restart accounting attaches and detaches all probes.
	 */
	select_few = true;
	test_failures(&restart_operation, "");
	select_few = false;
	test_failures(&tracing_operation, "");
	test_failures(&touching_operation, "");
}

int main(void)
{
	plan(1 + NR_OPERATIONS + 2 * NR_DRIVERS + 6 + 1 + 2 + 2 + 1);
	unload_modules();
	load_module("faults");
	test_all();
	pc_close(&pc);
	unload_modules();
	note("%lu calls failed, one at a time", total_failed);
	ok(!is_loaded("perfcounters") && !rmmod("faults"),
	   "0.10 faults: perfcounters.ko and faults.ko unload at the end");
	return finish();
}
