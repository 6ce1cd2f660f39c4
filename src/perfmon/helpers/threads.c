// SPDX-License-Identifier: GPL-2.0
/*
 * Hash table that maps monitored threads to their contexts, and is searched at each switch to a
 * thread. contexts/thread_table.rs contains the Rust wrappers of the functions in this file.
 */
#include <linux/hash.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include "helpers.h"

struct pfm_thread_entry {
	struct rhash_head node;
	unsigned long task;
	const void *context;
	struct rcu_head rcu;
};

static u32 hash_task_address(const void *task, u32 length, u32 seed)
{
	/*
	 * The low 6 bits of a task's address are dropped, because task_struct objects lie at least
	 * 64 bytes apart.
	 */
	return ((*(const unsigned long *)task >> 6) ^ seed) * GOLDEN_RATIO_64 >> 32;
}

static const struct rhashtable_params params = {
	.key_len = sizeof(unsigned long),
	.key_offset = offsetof(struct pfm_thread_entry, task),
	.head_offset = offsetof(struct pfm_thread_entry, node),
	.hashfn = hash_task_address,
	.automatic_shrinking = true,
	/*
	 * User space cannot choose the addresses of tasks, and so cannot make their hashes collide.
	 */
	.insecure_elasticity = true,
};

static struct rhashtable threads;

int pfm_threads_init(void)
{
	return rhashtable_init(&threads, &params);
}

/* Frees the table of monitored threads. The table must be empty. May sleep. */
void pfm_threads_destroy(void)
{
	rhashtable_destroy(&threads);
}

/*
 * Allocates an entry, charged to the caller's memory cgroup, but does not insert the entry into the
 * table. Returns NULL if out of memory. May sleep.
 */
struct pfm_thread_entry *pfm_thread_entry_new(void)
{
	return kzalloc(sizeof(struct pfm_thread_entry), GFP_KERNEL_ACCOUNT);
}

/* Frees an entry that is not in the table. */
void pfm_thread_entry_free(struct pfm_thread_entry *entry)
{
	kfree(entry);
}

/*
 * Inserts an entry. Returns -EEXIST if the task has a context already, or another error of
 * rhashtable_lookup_insert_fast(). This function stores @task and @context, and compares @task with
 * other keys. It does not dereference the two addresses.
 */
int pfm_thread_add(struct pfm_thread_entry *entry, unsigned long task, const void *context)
{
	entry->task = task;
	entry->context = context;
	return rhashtable_lookup_insert_fast(&threads, &entry->node, params);
}

/*
 * Removes an entry from the table, and frees it after an RCU grace period. Not called in an NMI.
 * Caller holds no raw spinlock, because the removal may queue a work that shrinks the table.
 */
void pfm_thread_remove(struct pfm_thread_entry *entry)
{
	rhashtable_remove_fast(&threads, &entry->node, params);
	kfree_rcu(entry, rcu);
}

/*
 * Returns the context of a task, or NULL if the task has none. The caller keeps preemption off
 * while it uses the context.
 */
const void *pfm_thread_find(unsigned long task)
{
	const struct pfm_thread_entry *entry;

	rcu_read_lock();
	entry = rhashtable_lookup(&threads, &task, params);
	rcu_read_unlock();
	return entry ? entry->context : NULL;
}
