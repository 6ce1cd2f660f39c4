/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The second thread of the fuzzer, which switches words of a structure between two valid or invalid
 * values.
 */
#ifndef IOCTL_FUZZ_RACE_H
#define IOCTL_FUZZ_RACE_H

#include "ioctl_fuzz.h"
#include <linux/futex.h>
#include <pthread.h>

static struct {
	/*
	 * Two futexes. The caller sets `wanted` to 1 to start the second thread, and to 0 to stop
	 * it. Then the caller waits until the second thread has set `on` to the same value.
	 */
	int wanted, on;
	char *at;
	__u32 words;
	__u64 a[64], b[64];
} race;

static void race_set(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void race_wait(int *word, int value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void *race_thread(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (;;) {
		race_wait(&race.wanted, 0);
		race_set(&race.on, 1);
		/* The structure holds each of its two values for half of the time. */
		for (const __u64 *from = race.b; __atomic_load_n(&race.wanted, __ATOMIC_RELAXED);
		     from = from == race.b ? race.a : race.b)
			for (__u32 i = 0; i < race.words; i++)
				if (race.a[i] != race.b[i])
					((volatile __u64 *)race.at)[i] = from[i];
		race_set(&race.on, 0);
	}
	return unused;
}

/* Returns false if the chosen structure cannot be changed. */
static bool race_start(void)
{
	const struct object *o = &gen.objects[random_below(gen.nr)];
	const struct field *f;

	if (!o->shape || !o->nr || !o->guarded || o->bytes > sizeof(race.a) ||
	    (unsigned long)o->at % 8)
		return false;
	race.at = o->at;
	race.words = o->bytes / 8;
	memcpy(race.a, o->at, race.words * 8);
	memcpy(race.b, o->at, race.words * 8);
	for (__u64 n = 1 + random_below(3); n; n--) {
		f = &o->shape->fields[random_below(o->shape->nr)];
		if (is_number(f) && f->at + f->bytes <= race.words * 8U)
			store_number((char *)race.b + f->at, f->bytes,
				     random_below(2) ? valid_number(f) : invalid_number(f, 0));
	}
	gen.size_is_wrong = true;
	race_set(&race.wanted, 1);
	race_wait(&race.on, 0);
	return true;
}

static void race_stop(void)
{
	race_set(&race.wanted, 0);
	race_wait(&race.on, 1);
}

#endif
