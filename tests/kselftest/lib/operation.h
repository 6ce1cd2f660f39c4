/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Describes an operation for tests in which requests for memory fail. The structure has functions
 * that prepare and attempt the operation, and functions that check the result after a failure and
 * after a success.
 */
#ifndef OPERATION_H
#define OPERATION_H

#include "kselftest_pc.h"

struct operation {
	const char *what;
	void (*prepare)(void);
	int (*attempt)(void);	/* returns 0 or more, or a negative errno */
	bool (*is_clean)(void);	/* true if a failed attempt has left nothing behind */
	bool (*works)(void);	/* true if the result of a successful attempt works */
	void (*undo)(void);	/* undoes a successful attempt */
	int min_failures;	/* minimum number of requests that can fail; 0: none can fail */
	bool may_succeed;	/* the attempt may succeed although a request failed */
	/*
	 * Used by fail_nth.h, which makes the requests of an operation fail one after the other. If
	 * `stride` is not 0, fail_nth.h skips some of the requests above request 20: the request to
	 * fail after request n is request n + n / `stride`.
	 */
	int stride;
};

/* Ends fault injection, so that later allocations and copies do not fail. */
static void disarm_failure(void);

static void do_nothing(void)
{
}

static bool return_true(void)
{
	return true;
}

static bool note_unless(bool condition, const char *what)
{
	if (!condition)
		note("%s", what);
	return condition;
}

#endif
