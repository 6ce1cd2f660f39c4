/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations that the files of the module bench share: the minimum of several measurements. */
#ifndef BENCH_H
#define BENCH_H

#include <linux/types.h>

struct seq_file;

/* The smallest number of ticks that was measured, and how often this number was measured. */
struct min_ticks {
	u64 ticks;
	unsigned int agree;
};

static inline void update_min(struct min_ticks *shortest, u64 ticks)
{
	if (!shortest->agree || ticks < shortest->ticks)
		*shortest = (struct min_ticks){ .ticks = ticks, .agree = 1 };
	else if (ticks == shortest->ticks)
		shortest->agree++;
}

/* Functions of bench_timers.c. */
void bench_timers_attach(void);
void bench_timers_detach(void);
int bench_timers_show(struct seq_file *m, void *unused);

#endif
