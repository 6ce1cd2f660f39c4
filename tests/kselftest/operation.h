/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation whose requests for memory are made to fail: how to prepare it, and the checks after
 * a failure and after success.
 */
#ifndef OPERATION_H
#define OPERATION_H

#include "kselftest_pc.h"

struct operation {
	const char *what;
	void (*prepare)(void);
	int (*attempt)(void);	/* returns 0 or more, or a negative errno */
	bool (*is_clean)(void);	/* after a failure: nothing was left behind */
	bool (*works)(void);	/* after success: the result works */
	void (*undo)(void);	/* undoes a successful attempt */
	int min_failures;	/* minimum number of calls that can fail; 0: none may */
	bool may_succeed;	/* may succeed although a request failed */
	int stride;		/* fail_nth.c: above 20, advance by 1/stride of the count */
};

/* Ends fault injection: requests after it do not fail. */
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
