/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions of the counter pages that Rust code calls. bindgen (src/Kbuild.bindgen) makes
 * declarations for Rust from this file.
 */
#ifndef _PERFCOUNTERS_COUNTERS_HELPERS_H
#define _PERFCOUNTERS_COUNTERS_HELPERS_H

#include <linux/perfcounters.h>
#include <linux/types.h>

unsigned long pfc_percpu_pfn(void __percpu *p, unsigned int cpu);
/* Number of kinds of log lines; LogKind in src/counters/log.rs lists them. */
#define PFC_LOG_KINDS	4
bool pfc_may_log(unsigned int kind);
int pfc_module_notifier_register(void);
void pfc_module_notifier_unregister(void);
/* Function that export.rs defines in Rust. */
void pfc_delete_instances_of_module(const void *module, const char *name);

void perf_counter_begin_slow(void);
void perf_counter_end_slow(void);

#endif
