/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own fault injection: of all slab objects, pages and copies from
 * and to user space that an operation asks for, the first fails, then the
 * second, until it goes through with none left to fail. Each time: an error or
 * success, nothing half made, and it works when tried again. What the kernel
 * itself can do without may fail unseen.
 *
 * It fails what this task asks for.
 */
#ifndef NTH_H
#define NTH_H

#include "operation.h"

static const char *const attributes[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
static int nth_fd;
static unsigned int armed, left;
static unsigned long all_failed;

static bool set(const char *attribute, const char *what, const char *value)
{
	char path[80];
	int file, ret;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", attribute, what);
	file = open(path, O_WRONLY | O_CLOEXEC);
	ret = write(file, value, strlen(value));
	close(file);
	return ret > 0;
}

/* Sleeping allocations and single pages too. A report of each lets the rig tell its trace. */
static void set_up(void)
{
	bool good = set("failslab", "ignore-gfp-wait", "0") &
		    set("fail_page_alloc", "ignore-gfp-wait", "0") &
		    set("fail_page_alloc", "ignore-gfp-highmem", "0") &
		    set("fail_page_alloc", "min-order", "0");

	for (int i = 0; i < 3; i++)
		good &= set(attributes[i], "verbose", "1");
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (!good || nth_fd < 0)
		bail("fault injection");
}

static void arm(unsigned int n)
{
	char text[12];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth_fd, text, len, 0) != len)
		bail("fail-nth");
	armed = n;
	left = 0;
}

/* What is left of the count; reading and writing it may be what it fails. */
static void disarm(void)
{
	char text[12] = "";

	if (!armed)
		return;
	armed = 0;
	left = pread(nth_fd, text, sizeof(text) - 1, 0) < 0 ? 1 : strtoul(text, NULL, 10);
	while (pwrite(nth_fd, "0", 1, 0) != 1)
		;
}

/* It went through, or should have: does it do what it should? It is taken back. */
static bool good(const struct operation *op, const char *of, unsigned int n, int ret)
{
	bool works = ret >= 0 && op->works();

	if (!works)
		note("%s%s: point %u: it does not work: %d", op->what, of, n, ret);
	if (ret >= 0)
		op->undo();
	return works;
}

/* All of the first, and fewer and fewer of very many, which come from loops. */
static unsigned int next(const struct operation *op, unsigned int n)
{
	return op->stride && n > 20 ? n + n / op->stride : n + 1;
}

static void inject(const char *row, const struct operation *op, const char *of)
{
	unsigned int points = 0, failed = 0, refused = 0, odd = 0;
	bool worked = true;

	for (unsigned int n = 1;; n = next(op, n)) {
		int ret;

		op->prepare();
		arm(n);
		ret = op->attempt();
		disarm();
		if (left) {
			points = n - left;
			worked = good(op, of, n, ret) && worked;
			break;
		}
		failed++;
		if (ret < 0) {
			refused++;
			if ((ret != -ENOMEM && ret != -EFAULT) || !op->clean()) {
				note("%s%s: point %u: %d, or not clean", op->what, of, n, ret);
				odd++;
			}
			/* Again, with nothing in its way; what one leaves, the next have, too. */
			if (refused % 4 != 1)
				continue;
			ret = op->attempt();
		}
		worked = good(op, of, n, ret) && worked;
	}
	note("%s%s: %u points, %u of them failed, %u errors", op->what, of, points, failed,
	     refused);
	all_failed += failed;
	ok(!odd && worked && (op->does_without || (failed && refused)),
	   "%s fail-nth: %s%s: nothing half made, and it works afterwards", row, op->what, of);
}

#endif
