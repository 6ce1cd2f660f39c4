// SPDX-License-Identifier: GPL-2.0
/*
 * bench: measures the cost of the calls of the driver interface, in instructions.
 *
 * The module adds 1,000 counters for readers to read, from bench/c00000 on. Reading /proc/bench
 * runs every operation and prints a line for each operation:
 *
 *	OPERATION FEW MANY TICKS_FEW TICKS_MANY AGREE_FEW AGREE_MANY
 *
 * FEW and MANY are the numbers of copies of the operation in a row, without a loop around them. A
 * window is the time between two RDTSC instructions, one before and one after the copies of the
 * operation, with interrupts off. TICKS is the length of the shortest of 41 windows. AGREE is the
 * number of windows that have exactly the shortest length. If a tick is an instruction (QEMU's
 * icount), (TICKS_MANY - TICKS_FEW) / (MANY - FEW) is the exact cost of the operation.
 *
 * Reading /proc/bench_add prints the cost of single calls of perf_add(), in two series of equal
 * length: from the 10th instance on, and from the 60,000th on. Each line holds the number of the
 * first instance and then the ticks of each call.
 *
 * Reading /proc/bench_nmi prints the cost of the NMIs since the last read: the time in handlers
 * that claimed the NMI, without the entry and exit of the NMI. The line holds the shortest time and
 * the number of NMIs that took exactly this time.
 *
 * Reading /proc/bench_interrupt prints the cost of an interrupt that the reading CPU sends to
 * itself. The cost includes the sending, the handler and the return from the interrupt. The line
 * has the format of /proc/bench. The interrupt has the vector X86_PLATFORM_IPI_VECTOR, which is
 * otherwise unused.
 *
 * Reading /proc/bench_timers prints the cost of the callbacks of high-resolution timers on CPU 0
 * since the last read. The file /proc/bench_timers must be read on CPU 0. The output has one line
 * for each callback function:
 *
 *	TICKS AGREE CALLS FUNCTION [MODULE]
 *
 * CALLS is the number of measured calls of the callback function. TICKS is the time of the shortest
 * call, without the entry and exit of the timer interrupt. AGREE is the number of calls that took
 * exactly TICKS.
 *
 * The parameter "probes" attaches empty probes, so that the kernel's cost of calling a probe can be
 * subtracted from the cost of the modules' probes. The value of the parameter is a mask of
 * tracepoints: 1 is sched_switch, 2 sched_waking, 4 sched_exit_tp, 8 sys_enter, 16 sys_exit, 32 the
 * exit of the platform interrupt, and 64 its entry.
 *
 * tests/bench/run boots a guest that loads this module.
 */
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/percpu_counter.h>
#include <linux/perfcounters.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/tracepoint.h>
#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/msr.h>
#include "../../include/uapi/linux/perfmon_ring.h"
#include "bench.h"

#define WARM_UPS	5
#define WINDOWS		41
#define COUNTERS	1000
#define EARLY		10
#define LATE		60000
#define TIMED		41
#define MAX_ADDED	(LATE + TIMED)

#define FEW		16
#define MANY		64
#define REPEAT_4(...)	do { __VA_ARGS__; __VA_ARGS__; __VA_ARGS__; __VA_ARGS__; } while (0)
#define REPEAT_FEW(...)	REPEAT_4(REPEAT_4(__VA_ARGS__))
#define REPEAT_MANY(...) REPEAT_4(REPEAT_4(REPEAT_4(__VA_ARGS__)))

static int instance;
static s64 one = 1;
static perf_counter_t handle[8];
static struct percpu_counter percpu_ctr;
static atomic64_t atomic_ctr;
/*
 * Memory of a ring: 32 words for the structure that the writer updates, 32 words for the reader's
 * tail, and 1024 words of data.
 */
static u64 ring[64 + 1024];

/* Functions of bench_rust.rs. */
void bench_rust_add_few(perf_counter_t a, s64 delta);
void bench_rust_add_many(perf_counter_t a, s64 delta);
void bench_rust_group_2_few(perf_counter_t a, perf_counter_t b, s64 delta);
void bench_rust_group_2_many(perf_counter_t a, perf_counter_t b, s64 delta);
void bench_rust_ring_few(u64 *memory, u32 flags);
void bench_rust_ring_many(u64 *memory, u32 flags);

/*
 * OPERATION() defines two functions that execute the operation FEW and MANY times in a row. The
 * code of an operation can use r, a local variable of both functions. The members of r are copies
 * of the handles and of the operands, which the compiler keeps in registers, as in the hot path of
 * a driver.
 */
struct registers {
	perf_counter_t a, b, c, d, e, f, g, h;
	s64 delta;
	int number;
};

static __always_inline struct registers registers(void)
{
	return (struct registers){
		handle[0], handle[1], handle[2], handle[3],
		handle[4], handle[5], handle[6], handle[7], one, instance,
	};
}

#define OPERATION(_name, ...)						\
	static noinline void _name##_few(void)				\
	{								\
		struct registers r = registers();			\
									\
		(void)r;						\
		REPEAT_FEW(__VA_ARGS__);				\
	}								\
	static noinline void _name##_many(void)				\
	{								\
		struct registers r = registers();			\
									\
		(void)r;						\
		REPEAT_MANY(__VA_ARGS__);				\
	}

#define ADD(_counter)	perf_counter_add(r._counter, r.delta)
#define GROUP(...)	do { perf_counter_begin(); __VA_ARGS__; perf_counter_end(); } while (0)

/*
 * An operation of 1,000 nops, which checks that a tick is an instruction. The results of all other
 * operations are correct only if a tick is an instruction.
 */
OPERATION(self_check, asm volatile(".rept 1000\n\tnop\n\t.endr"))
OPERATION(inline_add, ADD(a))
OPERATION(perf_adjust, perf_adjust(r.number, r.delta))
OPERATION(perf_counter_handle, perf_counter_handle(r.number))
OPERATION(group_1, GROUP(ADD(a)))
OPERATION(group_2, GROUP(ADD(a); ADD(b)))
OPERATION(group_4, GROUP(ADD(a); ADD(b); ADD(c); ADD(d)))
OPERATION(group_8, GROUP(ADD(a); ADD(b); ADD(c); ADD(d); ADD(e); ADD(f); ADD(g); ADD(h)))
/* Updates of the kernel's percpu_counter and atomic64_t, which user space cannot read. */
OPERATION(percpu_counter_add, percpu_counter_add(&percpu_ctr, r.delta))
OPERATION(atomic64_add, atomic64_add(r.delta, &atomic_ctr))

/* Defines the two functions of an operation that calls functions of bench_rust.rs. */
#define RUST_OPERATION(_name, _rust, ...)				\
	static void _name##_few(void)					\
	{								\
		_rust##_few(__VA_ARGS__);				\
	}								\
	static void _name##_many(void)					\
	{								\
		_rust##_many(__VA_ARGS__);				\
	}

RUST_OPERATION(rust_add, bench_rust_add, handle[0], one)
RUST_OPERATION(rust_group_2, bench_rust_group_2, handle[0], handle[1], one)
RUST_OPERATION(ring_forward, bench_rust_ring, ring, PERFMON_RING_OVERWRITE)
RUST_OPERATION(ring_backward, bench_rust_ring, ring,
	       PERFMON_RING_OVERWRITE | PERFMON_RING_BACKWARD)

static const struct {
	const char *name;
	void (*few)(void);
	void (*many)(void);
} operations[] = {
#define ENTRY(_name)	{ #_name, _name##_few, _name##_many }
	ENTRY(self_check),
	ENTRY(inline_add),
	ENTRY(rust_add),
	ENTRY(perf_adjust),
	ENTRY(perf_counter_handle),
	ENTRY(group_1),
	ENTRY(group_2),
	ENTRY(group_4),
	ENTRY(group_8),
	ENTRY(rust_group_2),
	ENTRY(ring_forward),
	ENTRY(ring_backward),
	ENTRY(percpu_counter_add),
	ENTRY(atomic64_add),
};

static struct min_ticks measure(void (*run)(void))
{
	struct min_ticks shortest = {};
	unsigned long flags;
	u64 start, end;

	for (int i = 0; i < WARM_UPS + WINDOWS; i++) {
		local_irq_save(flags);
		start = rdtsc();
		run();
		end = rdtsc();
		local_irq_restore(flags);
		if (i >= WARM_UPS)
			update_min(&shortest, end - start);
	}
	return shortest;
}

static int bench_show(struct seq_file *m, void *unused)
{
	for (int i = 0; i < ARRAY_SIZE(operations); i++) {
		struct min_ticks few = measure(operations[i].few);
		struct min_ticks many = measure(operations[i].many);

		seq_printf(m, "%s %d %d %llu %llu %u %u\n", operations[i].name, FEW, MANY,
			   few.ticks, many.ticks, few.agree, many.agree);
	}
	return 0;
}

static struct min_ticks nmi_handlers;
static struct tracepoint *nmi_handler;

static void on_nmi(void *data, void *handler, s64 nanoseconds, int handled)
{
	if (handled)
		update_min(&nmi_handlers, nanoseconds);
}

static int bench_nmi_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "%llu %u\n", nmi_handlers.ticks, nmi_handlers.agree);
	nmi_handlers = (struct min_ticks){};
	return 0;
}

/*
 * Makes this CPU send one interrupt to itself and take the interrupt, whose vector is otherwise
 * unused. Interrupts are off before and after this function.
 */
static __always_inline void interrupt(void)
{
	apic->send_IPI_self(X86_PLATFORM_IPI_VECTOR);
	local_irq_enable();
	/*
	 * After STI, the CPU executes one more instruction, the nop, before it takes an interrupt.
	 */
	asm volatile("nop");
	local_irq_disable();
}

OPERATION(interrupt, interrupt())

static void empty_switch(void *data, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
}

static void empty_task(void *data, struct task_struct *task)
{
}

static void empty_exit(void *data, bool is_switch)
{
}

static void empty_call(void *data, struct pt_regs *regs, long number)
{
}

static void empty_vector(void *data, int vector)
{
}

static void count_vector(void *data, int vector)
{
	++*(unsigned int *)data;
}

/* The tracepoints and their empty probes. Bit i of the parameter "probes" attaches probe i. */
static struct {
	const char *name;
	void *probe;
	struct tracepoint *point;
} empty_probes[] = {
	{ "sched_switch", empty_switch },
	{ "sched_waking", empty_task },
	{ "sched_exit_tp", empty_exit },
	{ "sys_enter", empty_call },
	{ "sys_exit", empty_call },
	{ "x86_platform_ipi_exit", empty_vector },
#define VECTOR_PROBE	6
	{ "x86_platform_ipi_entry", empty_vector },
};

/* Bit mask of the empty probes that are attached. */
static unsigned int probes;

static void find_tracepoint(struct tracepoint *point, void *data)
{
	if (!strcmp(point->name, "nmi_handler"))
		nmi_handler = point;
	for (int i = 0; i < ARRAY_SIZE(empty_probes); i++)
		if (!strcmp(point->name, empty_probes[i].name))
			empty_probes[i].point = point;
}

static int attach_probes(unsigned int wanted)
{
	int err = 0;

	for (int i = 0; i < ARRAY_SIZE(empty_probes); i++) {
		struct tracepoint *point = empty_probes[i].point;
		unsigned int bit = BIT(i);

		if (!((wanted ^ probes) & bit))
			continue;
		if (!point)
			err = -ENOENT;
		else if (wanted & bit)
			err = tracepoint_probe_register(point, empty_probes[i].probe, NULL) ?: err;
		else
			tracepoint_probe_unregister(point, empty_probes[i].probe, NULL);
	}
	probes = wanted;
	tracepoint_synchronize_unregister();
	return err;
}

static int set_probes(const char *value, const struct kernel_param *param)
{
	unsigned int wanted;
	int err = kstrtouint(value, 0, &wanted);

	return err ?: attach_probes(wanted);
}

/* Checks that each interrupt that interrupt() sends is taken. */
static int check_interrupts(void)
{
	struct tracepoint *point = empty_probes[VECTOR_PROBE].point;
	unsigned int nr_taken = 0;
	int err = point ? tracepoint_probe_register(point, count_vector, &nr_taken) : -ENOENT;

	if (err)
		return err;
	preempt_disable();
	local_irq_disable();
	interrupt_few();
	local_irq_enable();
	preempt_enable();
	tracepoint_probe_unregister(point, count_vector, &nr_taken);
	tracepoint_synchronize_unregister();
	return nr_taken == FEW ? 0 : -EIO;
}

static int bench_interrupt_show(struct seq_file *m, void *unused)
{
	struct min_ticks few, many;
	int err = check_interrupts();

	if (err)
		return err;
	preempt_disable();
	few = measure(interrupt_few);
	many = measure(interrupt_many);
	preempt_enable();
	seq_printf(m, "interrupt %d %d %llu %llu %u %u\n", FEW, MANY, few.ticks, many.ticks,
		   few.agree, many.agree);
	return 0;
}

static const struct kernel_param_ops probes_ops = {
	.set = set_probes,
	.get = param_get_uint,
};
module_param_cb(probes, &probes_ops, &probes, 0600);
MODULE_PARM_DESC(probes, "attach probes that do nothing: 7 scheduler, 24 system calls, 96 interrupt");

/*
 * Protects @added and the arrays @numbers, @early and @late. The instances bench/c00000 to
 * bench/c(added - 1) exist.
 */
static DEFINE_MUTEX(add_lock);
static int added;
static int numbers[MAX_ADDED];
static u64 early[TIMED], late[TIMED];

static int add_up_to(int count)
{
	char name[sizeof("bench/c00000")];
	u64 start, end;

	for (; added < count; added++) {
		int nr = added + 1;

		snprintf(name, sizeof(name), "bench/c%05d", added);
		start = rdtsc();
		numbers[added] = perf_add(name);
		end = rdtsc();
		if (numbers[added] < 0)
			return numbers[added];
		if (nr >= EARLY && nr < EARLY + TIMED)
			early[nr - EARLY] = end - start;
		if (nr >= LATE && nr < LATE + TIMED)
			late[nr - LATE] = end - start;
		cond_resched();
	}
	return 0;
}

static int bench_add_show(struct seq_file *m, void *unused)
{
	int err;

	guard(mutex)(&add_lock);
	err = add_up_to(MAX_ADDED);
	if (err)
		return err;
	seq_printf(m, "%d", EARLY);
	for (int i = 0; i < TIMED; i++)
		seq_printf(m, " %llu", early[i]);
	seq_printf(m, "\n%d", LATE);
	for (int i = 0; i < TIMED; i++)
		seq_printf(m, " %llu", late[i]);
	seq_putc(m, '\n');
	return 0;
}

static const struct {
	const char *name;
	int (*show)(struct seq_file *m, void *unused);
} files[] = {
	{ "bench", bench_show },
	{ "bench_add", bench_add_show },
	{ "bench_nmi", bench_nmi_show },
	{ "bench_interrupt", bench_interrupt_show },
	{ "bench_timers", bench_timers_show },
};

/* Number of files in /proc that exist. */
static int nr_files;

static void remove_files_and_counters(void)
{
	while (nr_files)
		remove_proc_entry(files[--nr_files].name, NULL);
	while (added)
		perf_del(numbers[--added]);
	percpu_counter_destroy(&percpu_ctr);
}

static int __init bench_init(void)
{
	int err = percpu_counter_init(&percpu_ctr, 0, GFP_KERNEL);

	if (err)
		return err;
	err = add_up_to(COUNTERS);
	if (err)
		goto undo;
	instance = numbers[0];
	for (int i = 0; i < ARRAY_SIZE(handle); i++)
		handle[i] = perf_counter_handle(numbers[i]);
	err = -ENOMEM;
	for (; nr_files < ARRAY_SIZE(files); nr_files++)
		if (!proc_create_single(files[nr_files].name, 0400, NULL, files[nr_files].show))
			goto undo;
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	if (nmi_handler && tracepoint_probe_register(nmi_handler, on_nmi, NULL))
		nmi_handler = NULL;
	bench_timers_attach();
	return 0;
undo:
	remove_files_and_counters();
	return err;
}

static void __exit bench_exit(void)
{
	if (nmi_handler) {
		tracepoint_probe_unregister(nmi_handler, on_nmi, NULL);
		tracepoint_synchronize_unregister();
	}
	bench_timers_detach();
	/*
	 * Detaches the empty probes and clears their pointers to tracepoints, so that a later write
	 * to the parameter "probes" attaches no probe.
	 */
	kernel_param_lock(THIS_MODULE);
	attach_probes(0);
	for (int i = 0; i < ARRAY_SIZE(empty_probes); i++)
		empty_probes[i].point = NULL;
	kernel_param_unlock(THIS_MODULE);
	remove_files_and_counters();
}

module_init(bench_init);
module_exit(bench_exit);
MODULE_DESCRIPTION("perfcounters: cost of the driver interface in instructions");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
