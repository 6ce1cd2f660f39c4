// SPDX-License-Identifier: GPL-2.0
/*
 * Exports of symbols that Rust code defines, and wrappers of macros and inline functions that Rust
 * code cannot call.
 */
#include <linux/bug.h>
#include <linux/compat.h>
#include <linux/export.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/personality.h>
#include <linux/perfcounters.h>
#include <linux/preempt.h>
#include <linux/ratelimit.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <asm/cpufeature.h>
#include <asm/tsc.h>
#include <net/net_namespace.h>
#include "shim.h"

/* The structures in src/counters/rules/abi.rs have the layout of the C structures. */
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

/* Exports of functions that sys/export.rs and sys/adjust.rs define in Rust. */
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

/* Returns the page frame number of a CPU's part of a page-aligned per-CPU allocation. */
unsigned long pfc_percpu_pfn(void __percpu *p, unsigned int cpu)
{
	void *addr = per_cpu_ptr(p, cpu);

	/* The first per-CPU chunk lies in the direct map; later chunks are in vmalloc memory. */
	return is_vmalloc_addr(addr) ? vmalloc_to_pfn(addr) : pfc_virt_pfn(addr);
}

unsigned long pfc_virt_pfn(const void *p)
{
	return PHYS_PFN(virt_to_phys((void *)p));
}

/*
 * Returns false if the caller certainly may not sleep. might_sleep() is not used, because the
 * caller returns an errno and logs a line.
 */
bool pfc_may_sleep(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_COUNT))
		return !in_interrupt() && !irqs_disabled();
	return preemptible();
}

u32 pfc_tsc_khz(void)
{
	if (!boot_cpu_has(X86_FEATURE_CONSTANT_TSC) || !boot_cpu_has(X86_FEATURE_NONSTOP_TSC))
		return 0;
	return tsc_khz;
}

/*
 * Rate limit of log lines that any user can cause: ten lines of each kind in five seconds.
 */
#define LIMIT(what)	RATELIMIT_STATE_INIT(what, DEFAULT_RATELIMIT_INTERVAL, \
					     DEFAULT_RATELIMIT_BURST)

bool pfc_may_log(unsigned int kind)
{
	static struct ratelimit_state limits[PFC_LOG_KINDS] = {
		LIMIT(add), LIMIT(del), LIMIT(atomic), LIMIT(reader),
	};

	return __ratelimit(&limits[kind]);
}

/*
 * Returns true in a system call of the ABI i386. Such calls come from 32-bit programs, for which
 * compilers do not emit loads of 64 bits, and from "int 0x80" in 64-bit programs.
 */
bool pfc_is_32bit(void)
{
	return in_ia32_syscall();
}
EXPORT_SYMBOL_GPL(pfc_is_32bit);

/*
 * Makes a mapping permanently non-executable. Returns -EACCES if the caller requested an executable
 * mapping. With the personality READ_IMPLIES_EXEC each readable mapping is requested as executable;
 * in this case VM_EXEC is cleared without an error.
 */
int pfc_vma_noexec(struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_EXEC && !(current->personality & READ_IMPLIES_EXEC))
		return -EACCES;
	vm_flags_clear(vma, VM_EXEC | VM_MAYEXEC);
	/*
	 * vm_page_prot was computed from the old flags. Pages that are inserted later use the new
	 * value.
	 */
	vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	return 0;
}

/*
 * Makes a mapping permanently read-only. With VM_PFNMAP and VM_IO get_user_pages() fails, because
 * the per-CPU allocator's pages must not be pinned.
 */
int pfc_vma_readonly(struct vm_area_struct *vma, const struct vm_operations_struct *ops)
{
	if (vma->vm_flags & VM_WRITE || pfc_vma_noexec(vma))
		return -EACCES;
	vm_flags_mod(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	vma->vm_ops = ops;
	return 0;
}

/*
 * Handles the unload of a module. Called after the module's exit function, or after its init
 * function failed, when none of the module's code can run any more.
 */
static int module_event(struct notifier_block *block, unsigned long event, void *info)
{
	const struct module *module = info;

	if (event == MODULE_STATE_GOING)
		pfc_module_gone(module, module->name);
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

struct pfc_find {
	const char *name;
	struct tracepoint *found;
};

static void pfc_find_one(struct tracepoint *tp, void *arg)
{
	struct pfc_find *find = arg;

	if (!strcmp(tp->name, find->name))
		find->found = tp;
}

/*
 * Finds a tracepoint of vmlinux by name, because most tracepoints are not exported. Returns NULL if
 * vmlinux has no such tracepoint.
 */
struct tracepoint *pfc_tracepoint_find(const char *name)
{
	struct pfc_find find = { .name = name };

	for_each_kernel_tracepoint(pfc_find_one, &find);
	return find.found;
}
EXPORT_SYMBOL_GPL(pfc_tracepoint_find);

void pfc_tracepoint_sync(void)
{
	tracepoint_synchronize_unregister();
}
EXPORT_SYMBOL_GPL(pfc_tracepoint_sync);

/*
 * Returns true if @action is the first handler of the interrupt line @irq, or if the line is
 * unknown.
 */
bool pfc_irq_is_first(unsigned int irq, const struct irqaction *action)
{
	struct irq_data *data = irq_get_irq_data(irq);

	return !data || READ_ONCE(irq_data_to_desc(data)->action) == action;
}
EXPORT_SYMBOL_GPL(pfc_irq_is_first);

void pfc_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}
EXPORT_SYMBOL_GPL(pfc_work_init);

void pfc_work_queue(struct work_struct *work)
{
	/*
	 * The workqueue is unbound, because a SCHED_FIFO thread can keep the workers of its CPU
	 * from running.
	 */
	queue_work(system_dfl_wq, work);
}
EXPORT_SYMBOL_GPL(pfc_work_queue);

/* Takes the RTNL lock, under which notifications about network interfaces are sent. May sleep. */
void pfc_rtnl_lock(void)
{
	rtnl_lock();
}
EXPORT_SYMBOL_GPL(pfc_rtnl_lock);

void pfc_rtnl_unlock(void)
{
	rtnl_unlock();
}
EXPORT_SYMBOL_GPL(pfc_rtnl_unlock);

/*
 * Returns the index of an interface of the initial network namespace, or 0 for an interface of
 * another namespace.
 */
unsigned int pfc_netdev_index(const struct net_device *dev)
{
	return net_eq(dev_net(dev), &init_net) ? dev->ifindex : 0;
}
EXPORT_SYMBOL_GPL(pfc_netdev_index);

unsigned int pfc_netdev_name(const struct net_device *dev, char *name)
{
	strscpy(name, dev->name, IFNAMSIZ);
	return pfc_netdev_index(dev);
}
EXPORT_SYMBOL_GPL(pfc_netdev_name);

unsigned int pfc_netdev_change(unsigned long event)
{
	switch (event) {
	case NETDEV_REGISTER:
		return PFC_NETDEV_ADDED;
	case NETDEV_UNREGISTER:
		return PFC_NETDEV_REMOVED;
	case NETDEV_CHANGENAME:
		return PFC_NETDEV_REMOVED | PFC_NETDEV_ADDED;
	default:
		return 0;
	}
}
EXPORT_SYMBOL_GPL(pfc_netdev_change);

struct net_device *pfc_notifier_dev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}
EXPORT_SYMBOL_GPL(pfc_notifier_dev);

struct net_device *pfc_skb_dev(const struct sk_buff *skb)
{
	return skb->dev;
}
EXPORT_SYMBOL_GPL(pfc_skb_dev);

/*
 * Returns the length of a packet with the link header, which the receive path has already removed.
 */
u32 pfc_skb_wire_len(const struct sk_buff *skb)
{
	u32 len = skb->len;

	if (skb_mac_header_was_set(skb) && skb_mac_offset(skb) < 0)
		len -= skb_mac_offset(skb);
	return len;
}
EXPORT_SYMBOL_GPL(pfc_skb_wire_len);
