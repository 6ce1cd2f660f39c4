// SPDX-License-Identifier: GPL-2.0
/*
 * Counter pages: the symbols that drivers use, log lines, and the notifier of module unload.
 */
#include <linux/bug.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perfcounters.h>
#include <linux/ratelimit.h>
#include <linux/vmalloc.h>
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/* The sizes and offsets that src/counters/rules/abi.rs asserts for the Rust structures. */
static_assert(sizeof(struct perfcounters_header) == 112);
static_assert(offsetof(struct perfcounters_header, gen1) == 16);
static_assert(offsetof(struct perfcounters_header, counters_offset) == 56);
static_assert(offsetof(struct perfcounters_header, boot_id) == 88);
static_assert(sizeof(struct perfcounters_desc) == 256);
static_assert(offsetof(struct perfcounters_desc, name) == 48);
static_assert(offsetof(struct perfcounters_desc, help) == 176);
static_assert(sizeof(struct perf_counter_spec) == 32);

u64 __percpu *perf_counter_seqflag;
EXPORT_SYMBOL_GPL(perf_counter_seqflag);

static DEFINE_PER_CPU(s64 [64], nowhere);
perf_counter_t perf_counter_nowhere = nowhere;
EXPORT_SYMBOL_GPL(perf_counter_nowhere);

/* Exports of functions that export.rs defines in Rust. */
EXPORT_SYMBOL_GPL(__perf_add);
EXPORT_SYMBOL_GPL(__perf_add_desc);
EXPORT_SYMBOL_GPL(perf_del);
EXPORT_SYMBOL_GPL(perf_adjust);
EXPORT_SYMBOL_GPL(perf_counter_handle);

/*
 * Out-of-line versions of perf_counter_begin() and perf_counter_end(), for Rust drivers on kernels
 * whose preempt_disable() is a function.
 */
void perf_counter_begin_slow(void)
{
	perf_counter_begin();
}
EXPORT_SYMBOL_GPL(perf_counter_begin_slow);

void perf_counter_end_slow(void)
{
	perf_counter_end();
}
EXPORT_SYMBOL_GPL(perf_counter_end_slow);

/* Returns the page frame number of @cpu's copy of the page at the per-CPU address @p. */
unsigned long pfc_percpu_pfn(void __percpu *p, unsigned int cpu)
{
	void *addr = per_cpu_ptr(p, cpu);

	/* The first per-CPU chunk lies in the direct map; later chunks are in vmalloc memory. */
	return is_vmalloc_addr(addr) ? vmalloc_to_pfn(addr) : pfc_virt_pfn(addr);
}

/*
 * Rate limit of log lines that any user can cause: ten lines of each kind in five seconds.
 */
#define LOG_RATE_LIMIT(what)	RATELIMIT_STATE_INIT(what, DEFAULT_RATELIMIT_INTERVAL, \
						     DEFAULT_RATELIMIT_BURST)

bool pfc_may_log(unsigned int kind)
{
	static struct ratelimit_state limits[PFC_LOG_KINDS] = {
		LOG_RATE_LIMIT(add), LOG_RATE_LIMIT(del),
		LOG_RATE_LIMIT(atomic), LOG_RATE_LIMIT(reader),
	};

	return __ratelimit(&limits[kind]);
}

/*
 * Makes the instances of a module dormant when the module is unloaded. Called after the module's
 * exit function, or after its init function failed. No code of the unloaded module can run.
 */
static int module_event(struct notifier_block *block, unsigned long event, void *info)
{
	const struct module *module = info;

	if (event == MODULE_STATE_GOING)
		pfc_delete_instances_of_module(module, module->name);
	return NOTIFY_DONE;
}

static struct notifier_block modules = { .notifier_call = module_event };

int pfc_module_notifier_register(void)
{
	return register_module_notifier(&modules);
}

void pfc_module_notifier_unregister(void)
{
	unregister_module_notifier(&modules);
}
