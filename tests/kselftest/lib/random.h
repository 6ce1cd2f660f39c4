/* SPDX-License-Identifier: GPL-2.0 */
/* Random numbers by xorshift. A program may set the seed to any number but 0. */
#ifndef KSELFTEST_RANDOM_H
#define KSELFTEST_RANDOM_H

#include <linux/types.h>

static __u64 seed = 88172645463325252ULL;

static __u64 random_u64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static inline __u64 random_below(__u64 n)
{
	return n ? random_u64() % n : 0;
}

#endif
