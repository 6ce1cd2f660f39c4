// SPDX-License-Identifier: GPL-2.0
/*
 * Commits one fault on command (fault=NAME), so that a test of the rig can check that the debug
 * kernels report each kind of fault. No other test loads this module.
 */
#include <linux/delay.h>
#include <linux/kfence.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/timer.h>

static char *fault;
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "the name of the fault to commit");

static int sleep_in_atomic(void)
{
	void *p;

	preempt_disable();
	p = kmalloc(16, GFP_KERNEL);
	preempt_enable();
	kfree(p);
	return 0;
}

static int schedule_in_atomic(void)
{
	preempt_disable();
	schedule();
	/* schedule() reports the fault and corrects the preemption count. */
	return 0;
}

static int cpu_in_preemptible(void)
{
	pr_info("faulty on CPU %d\n", smp_processor_id());
	return 0;
}

static int rcu_unlocked(void)
{
	static int __rcu *pointer;

	return !!rcu_dereference(pointer);
}

static int lock_inversion(void)
{
	static DEFINE_MUTEX(a);
	static DEFINE_MUTEX(b);

	mutex_lock(&a);
	mutex_lock(&b);
	mutex_unlock(&b);
	mutex_unlock(&a);
	mutex_lock(&b);
	mutex_lock(&a);
	mutex_unlock(&a);
	mutex_unlock(&b);
	return 0;
}

static int list_twice(void)
{
	static LIST_HEAD(head);
	static LIST_HEAD(entry);

	list_add(&entry, &head);
	list_del(&entry);
	list_del(&entry);
	return 0;
}

static void tick(struct timer_list *timer)
{
}

static int free_active_timer(void)
{
	struct timer_list *timer = kmalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return -ENOMEM;
	timer_setup(timer, tick, 0);
	mod_timer(timer, jiffies + 1000 * HZ);
	kfree(timer);
	return 0;
}

static int index_out_of_bounds(void)
{
	static int values[4];
	int index = 4;

	OPTIMIZER_HIDE_VAR(index);
	return values[index] != 0;
}

static int kfence_out_of_bounds(void)
{
	int tries;

	/* KFENCE guards only one of many allocations, so try until it guards one. */
	for (tries = 0; tries < 1000; tries++) {
		char *p = kmalloc(64, GFP_KERNEL);

		if (p && is_kfence_address(p)) {
			READ_ONCE(*((char *)PAGE_ALIGN_DOWN((unsigned long)p) - 1));
			kfree(p);
			return 0;
		}
		kfree(p);
		msleep(20);
	}
	return -EAGAIN;
}

/*
 * Allocates memory that KASAN guards. KFENCE guards one of many allocations instead, and does not
 * report a read behind the memory if the memory does not end at the end of a page.
 */
static char *kmalloc_outside_kfence(void)
{
	char *p = kmalloc(24, GFP_KERNEL);

	while (is_kfence_address(p)) {
		kfree(p);
		p = kmalloc(24, GFP_KERNEL);
	}
	return p;
}

static int heap_out_of_bounds(void)
{
	char *p = kmalloc_outside_kfence();

	if (!p)
		return -ENOMEM;
	OPTIMIZER_HIDE_VAR(p);
	READ_ONCE(p[24]);
	kfree(p);
	return 0;
}

static int use_after_free(void)
{
	char *p = kmalloc_outside_kfence();

	if (!p)
		return -ENOMEM;
	kfree(p);
	OPTIMIZER_HIDE_VAR(p);
	READ_ONCE(p[8]);
	return 0;
}

/*
 * Leaks 100 objects. kmemleak does not report an object whose address it still finds in memory,
 * such as in a cache of the allocator, so a single object might not be reported.
 */
static int leak(void)
{
	int i;

	for (i = 0; i < 100; i++) {
		void *p = kmalloc(1000, GFP_KERNEL);

		/* Keeps the compiler from removing the allocation, whose result is not used. */
		OPTIMIZER_HIDE_VAR(p);
		if (!p)
			return -ENOMEM;
	}
	return 0;
}

static int shared;

static int racer(void *end)
{
	while (time_before(jiffies, *(unsigned long *)end)) {
		shared++;
		cond_resched();
	}
	while (!kthread_should_stop())
		msleep(20);
	return 0;
}

static int race(void)
{
	static unsigned long end;
	struct task_struct *other, *one;

	end = jiffies + 10 * HZ;
	one = kthread_run(racer, &end, "faulty/one");
	other = kthread_run(racer, &end, "faulty/other");
	msleep(11000);
	if (!IS_ERR(one))
		kthread_stop(one);
	if (!IS_ERR(other))
		kthread_stop(other);
	return PTR_ERR_OR_ZERO(one) ?: PTR_ERR_OR_ZERO(other);
}

#define FAULT(name) { #name, name }
static const struct {
	const char *name;
	int (*commit)(void);
} faults[] = {
	FAULT(sleep_in_atomic), FAULT(schedule_in_atomic), FAULT(cpu_in_preemptible),
	FAULT(rcu_unlocked), FAULT(lock_inversion), FAULT(list_twice), FAULT(free_active_timer),
	FAULT(index_out_of_bounds), FAULT(kfence_out_of_bounds), FAULT(heap_out_of_bounds),
	FAULT(use_after_free), FAULT(leak), FAULT(race),
};

static int __init faulty_init(void)
{
	size_t i;

	for (i = 0; fault && i < ARRAY_SIZE(faults); i++)
		if (!strcmp(faults[i].name, fault))
			return faults[i].commit();
	return -EINVAL;
}

static void __exit faulty_exit(void)
{
}

module_init(faulty_init);
module_exit(faulty_exit);
MODULE_DESCRIPTION("One fault of each kind, for the rig's own test");
MODULE_LICENSE("GPL");
