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
	bool (*clean)(void);	/* after a failure: nothing was left behind */
	bool (*works)(void);	/* after success: the result works */
	void (*undo)(void);	/* undoes a successful attempt */
	int least;		/* minimum number of calls that can fail; 0: none may */
	bool does_without;	/* may succeed although a request failed */
	int stride;		/* fail_nth.c: above 20, advance by 1/stride of the count */
};

/* Ends fault injection: requests after it do not fail. */
static void disarm(void);

static void nothing(void)
{
}

static bool always(void)
{
	return true;
}

static bool says(bool so, const char *what)
{
	if (!so)
		note("%s", what);
	return so;
}

#endif
