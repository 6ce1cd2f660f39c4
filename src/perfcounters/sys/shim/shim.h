/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that Rust code calls: wrappers of macros, of inline functions and of symbols that
 * Rust code cannot use. sys/shim.rs declares the same functions.
 */
#ifndef _PERFCOUNTERS_SHIM_H
#define _PERFCOUNTERS_SHIM_H

#include <linux/types.h>
#include <linux/workqueue.h>

struct vm_area_struct;
struct vm_operations_struct;
struct tracepoint;
struct irqaction;
struct net_device;
struct sk_buff;

unsigned long pfc_percpu_pfn(void __percpu *p, unsigned int cpu);
unsigned long pfc_virt_pfn(const void *p);
bool pfc_may_sleep(void);
u32 pfc_tsc_khz(void);
/* Number of kinds of log lines, which LogKind in src/perfcounters/sys/misc.rs lists. */
#define PFC_LOG_KINDS	4
bool pfc_may_log(unsigned int kind);
bool pfc_is_32bit(void);
int pfc_vma_noexec(struct vm_area_struct *vma);
int pfc_vma_readonly(struct vm_area_struct *vma,
		     const struct vm_operations_struct *ops);
int pfc_module_notifier_register(void);
void pfc_module_notifier_unregister(void);
/* Function that sys/modules.rs defines in Rust. */
void pfc_module_gone(const void *module, const char *name);
struct tracepoint *pfc_tracepoint_find(const char *name);
void pfc_tracepoint_sync(void);
bool pfc_irq_is_first(unsigned int irq, const struct irqaction *action);
void pfc_work_init(struct work_struct *work, work_func_t func);
void pfc_work_queue(struct work_struct *work);
void pfc_rtnl_lock(void);
void pfc_rtnl_unlock(void);
#define PFC_NETDEV_REMOVED		1
#define PFC_NETDEV_ADDED	2
unsigned int pfc_netdev_index(const struct net_device *dev);
unsigned int pfc_netdev_name(const struct net_device *dev, char *name);
unsigned int pfc_netdev_change(unsigned long event);
struct net_device *pfc_notifier_dev(void *info);
struct net_device *pfc_skb_dev(const struct sk_buff *skb);
u32 pfc_skb_wire_len(const struct sk_buff *skb);

void perf_counter_begin_slow(void);
void perf_counter_end_slow(void);

#endif
