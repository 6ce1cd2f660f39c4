/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Uses the kernel's fault injection, /proc/thread-self/fail-nth, on an operation. Fault injection
 * can fail three kinds of requests: slab allocations, page allocations, and copies from or to user
 * space. The first attempt fails the first request of the operation, the second attempt fails only
 * the second request, and so on, until an attempt ends before it makes the request that is to fail.
 *
 * Each attempt must succeed, or must fail with ENOMEM or EFAULT and leave no object behind. After
 * some of the failures the operation is repeated without injection and must work. An allocation
 * failure may have no visible effect if the kernel can do without the memory.
 *
 * Fault injection fails only requests of the calling thread.
 */
#ifndef FAIL_NTH_H
#define FAIL_NTH_H

#include "operation.h"

static const char *const attributes[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
static int nth_fd;
static unsigned int armed, left;
static unsigned long total_failed;

static bool set_attribute(const char *attribute, const char *what, const char *value)
{
	char path[80];
	int file, ret;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", attribute, what);
	file = open(path, O_WRONLY | O_CLOEXEC);
	ret = write(file, value, strlen(value));
	close(file);
	return ret > 0;
}

/*
 * Makes the injection also fail sleeping allocations, highmem allocations and single pages. The
 * kernel logs each injected failure before the failure's stack trace, so that tools/rig/guest.sh
 * can ignore that stack trace.
 */
static void setup_injection(void)
{
	bool good = set_attribute("failslab", "ignore-gfp-wait", "0") &
		    set_attribute("fail_page_alloc", "ignore-gfp-wait", "0") &
		    set_attribute("fail_page_alloc", "ignore-gfp-highmem", "0") &
		    set_attribute("fail_page_alloc", "min-order", "0");

	for (int i = 0; i < 3; i++)
		good &= set_attribute(attributes[i], "verbose", "1");
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (!good || nth_fd < 0)
		bail("fault injection");
}

static void arm_failure(unsigned int n)
{
	char text[12];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth_fd, text, len, 0) != len)
		bail("fail-nth");
	armed = n;
	left = 0;
}

/*
 * Disarms the injection. Sets `left` to 0 if a request has failed. If no request has failed, the
 * nth further request would have failed, and `left` is set to n. Until the injection is disarmed,
 * it may also fail the pread() and pwrite() of disarm_failure().
 */
static void disarm_failure(void)
{
	char text[12] = "";

	if (!armed)
		return;
	armed = 0;
	left = pread(nth_fd, text, sizeof(text) - 1, 0) < 0 ? 1 : strtoul(text, NULL, 10);
	while (pwrite(nth_fd, "0", 1, 0) != 1)
		;
}

/*
 * Checks the result of an attempt that has succeeded, or that should have succeeded. If the attempt
 * succeeded, undoes the effect of the operation.
 */
static bool check_attempt(const struct operation *op, const char *suffix, unsigned int n, int ret)
{
	bool works = ret >= 0 && op->works();

	if (!works)
		note("%s%s: point %u: it does not work: %d", op->what, suffix, n, ret);
	if (ret >= 0)
		op->undo();
	return works;
}

/*
 * Returns the point to test after point @n. A point is the number of the request that fails in an
 * attempt. If op->stride is not 0, the operation makes many similar requests, so the test skips
 * some of the points above 20: the higher the point, the more points the test skips after it.
 */
static unsigned int next_point(const struct operation *op, unsigned int n)
{
	return op->stride && n > 20 ? n + n / op->stride : n + 1;
}

static void test_failures(const char *row, const struct operation *op, const char *suffix)
{
	unsigned int points = 0, failed = 0, refused = 0, wrong = 0;
	bool works = true;

	for (unsigned int n = 1;; n = next_point(op, n)) {
		int ret;

		op->prepare();
		arm_failure(n);
		ret = op->attempt();
		disarm_failure();
		if (left) {
			points = n - left;
			works = check_attempt(op, suffix, n, ret) && works;
			break;
		}
		failed++;
		if (ret < 0) {
			refused++;
			if ((ret != -ENOMEM && ret != -EFAULT) || !op->is_clean()) {
				note("%s%s: point %u: %d, or not clean", op->what, suffix, n, ret);
				wrong++;
			}
			/*
			 * Repeats every fourth refused attempt without injection. After the other
			 * refused attempts, the next attempt fails at a later request, and shows
			 * whether the refused attempt has left something behind.
			 */
			if (refused % 4 != 1)
				continue;
			ret = op->attempt();
		}
		works = check_attempt(op, suffix, n, ret) && works;
	}
	note("%s%s: %u points, %u of them failed, %u errors", op->what, suffix, points, failed,
	     refused);
	total_failed += failed;
	ok(!wrong && works && (op->may_succeed || (failed && refused)),
	   "%s fail-nth: %s%s: failure leaves nothing behind, retry works", row, op->what, suffix);
}

#endif
