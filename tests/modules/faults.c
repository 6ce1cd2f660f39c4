// SPDX-License-Identifier: GPL-2.0
/*
 * faults: causes one allocation or registration to fail, the nth that is made on behalf of the
 * project's modules. Works on any kernel with kprobes.
 * Parameters:
 *
 *	echo N >/sys/module/faults/parameters/nth	arm: the Nth call from now on fails
 *	cat /sys/module/faults/parameters/nth		0: the Nth call has failed
 *	echo 0 >/sys/module/faults/parameters/nth	disarm
 *	cat /sys/module/faults/parameters/calls		calls since armed, up to the failed one
 *	cat /sys/module/faults/parameters/last		the function that failed last
 *	echo PID >/sys/module/faults/parameters/slow	charged allocations of this process take
 *							slow_ms longer, as in a control group that
 *							is full; 0: of no process
 *	cat /sys/module/faults/parameters/nr_slowed	number of allocations that took longer
 *
 * A call is counted if a function of perfcounters.ko, perfmon.ko, perftrace.ko, ppa.ko, a provider,
 * a PMU description, a sampling format or a sample driver is on the stack. The call may be in any
 * task, including kworkers and hotplug threads. A call fails by returning at the first instruction
 * of the function, with the value that the function returns on failure.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/objtool.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/stacktrace.h>
#include <linux/string.h>

struct point {
	struct kprobe kp;
	long result;
	/*
	 * Set if the second argument of the function is a size. A call with size 0 frees memory and
	 * is not counted.
	 */
	bool sized;
};

/*
 * A function that only returns. faults_return() is in assembly, so that no instruction changes the
 * register of the result.
 */
void faults_return(void);
asm(".pushsection .text\n"
	".type faults_return, @function\n"
	ASM_FUNC_ALIGN
	"faults_return:\n"
	ANNOTATE_NOENDBR "\n"
	ASM_RET
	".size faults_return, .-faults_return\n"
	".popsection\n");

static atomic_t nth = ATOMIC_INIT(0);
static atomic_t calls = ATOMIC_INIT(0);
static const char *last_failed = "";

static int slow;
module_param(slow, int, 0600);
static unsigned int slow_ms;
module_param(slow_ms, uint, 0600);
static unsigned int nr_slowed;
module_param(nr_slowed, uint, 0400);

static bool is_project_module(const char *symbol)
{
	const char *module = strrchr(symbol, '[');

	return module && (!strncmp(module, "[perf", 5) || !strncmp(module, "[ppa", 4) ||
			  !strncmp(module, "[pfc_", 5) || !strncmp(module, "[pfm_", 5) ||
			  !strncmp(module, "[sample_", 8));
}

static bool called_by_project(void)
{
	unsigned long entries[48];
	char symbol[KSYM_SYMBOL_LEN];
	unsigned int i, nr = stack_trace_save(entries, ARRAY_SIZE(entries), 0);

	for (i = 0; i < nr; i++) {
		if (entries[i] < MODULES_VADDR)
			continue;
		sprint_symbol(symbol, entries[i]);
		if (is_project_module(symbol))
			return true;
	}
	return false;
}

/*
 * The allocator that slow_alloc() calls; NULL while slow_alloc() does not run. Only the process
 * "slow", which has one thread, uses this variable.
 */
static void *(*delayed)(const void *old, size_t size, unsigned long align, gfp_t flags, int node);

/*
 * Runs in place of a probed allocator: sleeps, as if the control group of the caller were full, and
 * then calls the allocator. A kprobe's handler itself must not sleep, and a busy loop in the
 * handler would keep interrupts off.
 */
static noinline __nocfi void *slow_alloc(const void *old, size_t size, unsigned long align,
					 gfp_t flags, int node)
{
	void *new;

	msleep(READ_ONCE(slow_ms));
	WRITE_ONCE(nr_slowed, nr_slowed + 1);
	new = delayed(old, size, align, flags, node);
	delayed = NULL;
	return new;
}

static int fail_call(struct kprobe *kp, struct pt_regs *regs)
{
	struct point *point = container_of(kp, struct point, kp);

	/* In each allocator that has a size as an argument, the fourth argument holds the flags. */
	if (current->tgid == READ_ONCE(slow) && point->sized && regs->si && !delayed &&
	    (regs->cx & (__GFP_ACCOUNT | __GFP_DIRECT_RECLAIM)) ==
	    (__GFP_ACCOUNT | __GFP_DIRECT_RECLAIM)) {
		delayed = (void *)kp->addr;
		regs->ip = (unsigned long)slow_alloc;
		return 1;
	}
	if (!atomic_read(&nth) || (point->sized && !regs->si) || !called_by_project())
		return 0;
	atomic_inc(&calls);
	if (atomic_dec_if_positive(&nth) != 0)
		return 0;
	last_failed = kp->symbol_name;
	/*
	 * When this handler returns, the CPU continues in faults_return(), which returns to the
	 * caller.
	 */
	regs->ax = point->result;
	regs->ip = (unsigned long)faults_return;
	return 1;
}

/*
 * A kprobe with a post-handler is not optimized into a jump, so its pre-handler may change the
 * instruction pointer.
 */
static void no_optimization(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}

#define POINT(name, fails_with, has_size) {				\
	.kp = { .symbol_name = name, .pre_handler = fail_call, .post_handler = no_optimization }, \
	.result = fails_with, .sized = has_size,			\
}

/*
 * Functions that the project's modules call and that can run out of memory.
 * tests/host/allocations.sh checks that the table is complete.
 */
static struct point points[] = {
	POINT("rust_helper_krealloc_node_align", 0, true),
	POINT("rust_helper_vrealloc_node_align", 0, true),
	POINT("rust_helper_kvrealloc_node_align", 0, true),
	POINT("get_free_pages_noprof", 0, false),
	POINT("pcpu_alloc_noprof", 0, false),
	POINT("misc_register", -ENOMEM, false),
	POINT("proc_create_single_data", 0, false),
	POINT("proc_create", 0, false),
	POINT("proc_create_data", 0, false),
	POINT("proc_mkdir", 0, false),
	POINT("register_sysctl_sz", 0, false),
	POINT("__cpuhp_setup_state", -ENOMEM, false),
	POINT("tracepoint_probe_register", -ENOMEM, false),
	POINT("register_netdevice_notifier", -ENOMEM, false),
	POINT("__rhashtable_init_noprof", -ENOMEM, false),
	POINT("alloc_workqueue_noprof", 0, false),
	POINT("kthread_create_on_node", -ENOMEM, false),
	POINT("shmem_kernel_file_setup", -ENOMEM, false),
};

static int set_nth(const char *text, const struct kernel_param *kp)
{
	int n, err = kstrtoint(text, 0, &n);

	if (err)
		return err;
	atomic_set(&nth, 0);
	atomic_set(&calls, 0);
	atomic_set(&nth, n);
	return 0;
}

static int get_nth(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", atomic_read(&nth));
}

static int get_calls(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", atomic_read(&calls));
}

static int get_last(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%s\n", last_failed);
}

static const struct kernel_param_ops nth_ops = { .set = set_nth, .get = get_nth };
static const struct kernel_param_ops calls_ops = { .get = get_calls };
static const struct kernel_param_ops last_ops = { .get = get_last };

module_param_cb(nth, &nth_ops, NULL, 0600);
module_param_cb(calls, &calls_ops, NULL, 0400);
module_param_cb(last, &last_ops, NULL, 0400);

static void unregister_points(int nr)
{
	while (nr--)
		if (points[nr].kp.addr)
			unregister_kprobe(&points[nr].kp);
}

static int __init faults_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		err = register_kprobe(&points[i].kp);
		if (err) {
			pr_err("no kprobe on %s: %d\n", points[i].kp.symbol_name, err);
			unregister_points(i);
			return err;
		}
	}
	return 0;
}

static void __exit faults_exit(void)
{
	unregister_points(ARRAY_SIZE(points));
}

module_init(faults_init);
module_exit(faults_exit);
MODULE_DESCRIPTION("perfcounters: allocations that fail, for tests");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
