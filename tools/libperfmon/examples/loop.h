/* SPDX-License-Identifier: GPL-2.0 */
/* A loop to be counted: it executes two instructions per round. */
#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>

static inline void loop(uint64_t rounds)
{
	__asm__ volatile("1: dec %0\n jnz 1b" : "+r"(rounds) : : "cc");
}

#endif
