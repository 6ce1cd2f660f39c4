// SPDX-License-Identifier: GPL-2.0
/* Process accounting: per-CPU state, and the lock of the index of task records. */
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include "helpers.h"

/* C functions of src/base/helpers, which perfcounters.ko exports. */
MODULE_IMPORT_NS("PERFCOUNTERS");

/*
 * Address of each CPU's accounting state (PerCpu in per_cpu.rs) while accounting is on, otherwise
 * 0.
 */
DEFINE_PER_CPU(unsigned long, ppa_percpu);

void ppa_set_percpu(unsigned int cpu, void *percpu)
{
	WRITE_ONCE(per_cpu(ppa_percpu, cpu), (unsigned long)percpu);
}

unsigned long ppa_percpu_of(unsigned int cpu)
{
	return READ_ONCE(per_cpu(ppa_percpu, cpu));
}

/* Protects changes of the index of task records (task_record.rs). Readers of the index use RCU. */
static DEFINE_RAW_SPINLOCK(index_lock);

unsigned long ppa_index_lock(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&index_lock, flags);
	return flags;
}

void ppa_index_unlock(unsigned long flags)
{
	raw_spin_unlock_irqrestore(&index_lock, flags);
}
