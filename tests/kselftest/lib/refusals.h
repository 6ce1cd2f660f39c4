/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tables of calls that must be refused, each with an exact errno. If a call succeeds or fails with
 * another errno, the diagnostics name the call, its arguments, the required errno, and the returned
 * value.
 *
 * The calls of one table may be made in any order, so no call may depend on another one.
 */
#ifndef REFUSALS_H
#define REFUSALS_H

#include "kselftest_pc.h"

struct refusal {
	const char *call, *error;
	int got, want;
};

/* A call that returns a negative errno if it is refused. */
#define REFUSAL(error, call)		{ #call, #error, (call), -(error) }

/* For calls that a test makes with several arguments, which @text describes. */
#define REFUSAL_OF(error, text, call)	{ text, #error, call, -(error) }

/*
 * Returns true if each call of a table is refused with the errno in its REFUSAL() or REFUSAL_OF().
 * Prints each call that succeeds or is refused with another errno.
 */
#define refused(...)							\
	check_refusals((struct refusal[]){ __VA_ARGS__ },		\
		       sizeof((struct refusal[]){ __VA_ARGS__ }) / sizeof(struct refusal))

static bool check_refusals(const struct refusal *calls, size_t nr)
{
	bool good = true;

	for (; nr--; calls++) {
		if (calls->got == calls->want)
			continue;
		good = false;
		if (calls->got < 0)
			note("%s: got %s, want %s", calls->call,
			     strerrorname_np(-calls->got) ?: "an unknown errno", calls->error);
		else
			note("%s: got %d, want %s", calls->call, calls->got, calls->error);
	}
	return good;
}

#endif
