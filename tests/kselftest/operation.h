/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation that is done while memory runs out: how to get ready for it, what
 * must be so when it failed, and what when it did not.
 */
#ifndef OPERATION_H
#define OPERATION_H

#include "kselftest_pc.h"

struct operation {
	const char *what;
	void (*prepare)(void);
	int (*attempt)(void);	/* a number from 0, or a negative errno */
	bool (*clean)(void);	/* it failed: nothing is half made */
	bool (*works)(void);	/* it did not: it does what it should */
	void (*undo)(void);	/* what it did */
	int least;		/* calls that can fail, 0 for exactly none */
	bool does_without;	/* what fails (late) is left out, and the rest works */
	int stride;		/* fail_nth.c: of many, one in so many */
};

/* The attempt is over: what follows does not fail. */
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
