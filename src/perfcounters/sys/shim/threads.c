// SPDX-License-Identifier: GPL-2.0
/* Contexts by the thread they are for: looked up at each switch to a thread. sys/threads.rs. */
#include <linux/hash.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include "pmu.h"

struct pfm_place {
	struct rhash_head node;
	unsigned long task;
	const void *context;
	struct rcu_head rcu;
};

static u32 hash_of(const void *task, u32 length, u32 seed)
{
	/* Structures lie at least 64 bytes apart. */
	return ((*(const unsigned long *)task >> 6) ^ seed) * GOLDEN_RATIO_64 >> 32;
}

static const struct rhashtable_params params = {
	.key_len = sizeof(unsigned long),
	.key_offset = offsetof(struct pfm_place, task),
	.head_offset = offsetof(struct pfm_place, node),
	.hashfn = hash_of,
	.automatic_shrinking = true,
	/* Nobody chooses where the kernel has its threads. */
	.insecure_elasticity = true,
};

static struct rhashtable threads;

int pfm_threads_begin(void)
{
	return rhashtable_init(&threads, &params);
}

/* Nothing is in it any more. May sleep. */
void pfm_threads_end(void)
{
	rhashtable_destroy(&threads);
}

/* A new place, not in the table yet; memory of the caller's control group. May sleep. */
struct pfm_place *pfm_place_new(void)
{
	return kzalloc(sizeof(struct pfm_place), GFP_KERNEL_ACCOUNT);
}

/* One that is not in the table. */
void pfm_place_free(struct pfm_place *place)
{
	kfree(place);
}

/*
 * Puts one in the table: 0, or EEXIST if the task has one. The task and the context are only
 * numbers here.
 */
int pfm_thread_add(struct pfm_place *place, unsigned long task, const void *context)
{
	place->task = task;
	place->context = context;
	return rhashtable_lookup_insert_fast(&threads, &place->node, params);
}

/* Takes it out, and frees it when nobody looks at it any more. No lock of ours is held. */
void pfm_thread_remove(struct pfm_place *place)
{
	rhashtable_remove_fast(&threads, &place->node, params);
	kfree_rcu(place, rcu);
}

/* The context of a task, or null. Preemption is off while it is used. */
const void *pfm_thread_find(unsigned long task)
{
	const struct pfm_place *place;

	rcu_read_lock();
	place = rhashtable_lookup(&threads, &task, params);
	rcu_read_unlock();
	return place ? place->context : NULL;
}
