// SPDX-License-Identifier: GPL-2.0
/*
 * scripted_pmu: a PMU description that misbehaves on command, for tests.
 *
 * The parameter "edit" is read when the module is loaded: it changes the valid description below
 * before init registers the description. insmod returns the result of perfmon_pmu_register().
 * Edits are separated by semicolons:
 *
 *	pmu FIELD VALUE		pmc ROW FIELD VALUE	pmd ROW FIELD VALUE
 *	null			registers NULL
 *
 * The parameters other than "edit" control the callbacks, and can be written at any time.
 */
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/perfmon.h>
#include <linux/sched.h>
#include <linux/string.h>

static char *edit;
module_param(edit, charp, 0400);

/*
 * Parameters of the callback read(). "now" is the value of the counter, and "step" the amount that
 * each read adds to the value. If "junk" is set, read() returns invalid values. A read takes
 * "slow_us" microseconds.
 */
static unsigned long long now;
module_param(now, ullong, 0600);
static unsigned long long step;
module_param(step, ullong, 0600);
static bool junk;
module_param(junk, bool, 0600);
static unsigned int slow_us;
module_param(slow_us, uint, 0600);

/*
 * Parameters of the callback check(): "refuse" is the errno that check() returns. check() sets the
 * bits "set_bits" in a value, and clears the bits "clear_bits".
 */
static int refuse;
module_param(refuse, int, 0600);
static unsigned long long set_bits;
module_param(set_bits, ullong, 0600);
static unsigned long long clear_bits;
module_param(clear_bits, ullong, 0600);

/* While "hold" is set, init waits after the registration, so that the module is not yet live. */
static bool hold;
module_param(hold, bool, 0600);

/* The value that the callback probe() returns. */
static int absent;
module_param(absent, int, 0400);

/*
 * The number of calls of read() for a counter, the number of those in preemptible context (which
 * are not allowed), the number of calls of read() for a current value with preemption off, and the
 * number of calls of probe().
 */
static atomic_t nr_reads, nr_preemptible_reads, nr_unpreemptible_values, nr_probes;

static int get_atomic(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", atomic_read(kp->arg));
}

static const struct kernel_param_ops atomic_ops = { .get = get_atomic };

module_param_cb(reads, &atomic_ops, &nr_reads, 0400);
module_param_cb(unsound, &atomic_ops, &nr_preemptible_reads, 0400);
module_param_cb(unpreemptible, &atomic_ops, &nr_unpreemptible_values, 0400);
module_param_cb(probes, &atomic_ops, &nr_probes, 0400);

/*
 * The calls of the callback cpu(), one word for each call. The word "+1" means that CPU 1 came
 * online. The word "!+1" means that CPU 1 came online, but that cpu() was called on another CPU.
 */
static char cpu_calls[200];
module_param_string(cpus, cpu_calls, sizeof(cpu_calls), 0400);
static DEFINE_RAW_SPINLOCK(cpu_lock);

/* Values of the field @address of a register, which the callback read() gets as an argument. */
enum { COUNTER_NOW, COUNTER_SCALED, VALUE_CONTROL, VALUE_PID, VALUE_CPU, VALUE_NOW };

#define COUNTER(title, what, bits, kinds) {				\
	.name = title, .address = what, .width = bits, .pmcs = 1 << 0,	\
	.type = PERFMON_REG_VIRTUAL | PERFMON_REG_COUNTER | (kinds) }
#define VALUE(title, what, kinds) {					\
	.name = title, .address = what, .pmcs = 1 << 0,			\
	.type = PERFMON_REG_VIRTUAL | PERFMON_REG_READ_ONLY | (kinds) }

static struct perfmon_register pmcs[66] = {
	{ .name = "SCALE", .type = PERFMON_REG_CONTROL, .reset = 0xa5, .reserved = 0xf0,
	  .enable = 1 << 16, .interrupt = 1 << 17, .kernel = 1 << 18 },
	{ .name = "SYSTEMS", .type = PERFMON_REG_CONTROL | PERFMON_REG_SYSTEM },
	{ .name = "THREADS", .type = PERFMON_REG_CONTROL | PERFMON_REG_THREAD },
};

static struct perfmon_register pmds[66] = {
	COUNTER("WIDE", COUNTER_NOW, 64, 0),
	COUNTER("BYTE", COUNTER_NOW, 8, 0),
	COUNTER("TWELVE", COUNTER_NOW, 12, 0),
	COUNTER("NARROW", COUNTER_NOW, 12, PERFMON_REG_NO_64),
	COUNTER("CARRIED", COUNTER_NOW, 12, PERFMON_REG_TASK),
	COUNTER("OF_THREADS", COUNTER_NOW, 12, PERFMON_REG_THREAD),
	COUNTER("OF_SYSTEMS", COUNTER_NOW, 12, PERFMON_REG_SYSTEM),
	COUNTER("SCALED", COUNTER_SCALED, 64, 0),
	COUNTER("FIXED", COUNTER_NOW, 64, PERFMON_REG_READ_ONLY),
	{ },
	VALUE("CONTROL", VALUE_CONTROL, 0),
	VALUE("WHOSE", VALUE_PID, 0),
	VALUE("HERE", VALUE_CPU, 0),
	VALUE("OF_THREADS_NOW", VALUE_NOW, PERFMON_REG_THREAD),
};

static int scripted_probe(void)
{
	atomic_inc(&nr_probes);
	return absent;
}

static int scripted_check(unsigned int pmc, u64 *value)
{
	*value = (*value | set_bits) & ~clear_bits;
	return pmc ? 0 : refuse;
}

static u64 next_value(void)
{
	u64 value = READ_ONCE(now);

	if (junk)
		return hash_64(atomic_read(&nr_reads), 64);
	WRITE_ONCE(now, value + step);
	return value;
}

static u64 scripted_read(u64 address, u64 control, struct task_struct *task,
			 struct pid_namespace *ns)
{
	bool counter = address == COUNTER_NOW || address == COUNTER_SCALED;

	if (counter)
		atomic_inc(&nr_reads);
	if (counter && preemptible())
		atomic_inc(&nr_preemptible_reads);
	if (!counter && !preemptible())
		atomic_inc(&nr_unpreemptible_values);
	udelay(slow_us);
	switch (address) {
	case COUNTER_NOW:
	case VALUE_NOW:
		return next_value();
	case COUNTER_SCALED:
		return next_value() * control;
	case VALUE_CONTROL:
		return control;
	case VALUE_PID:
		return task ? task->pid : 0;
	default:
		return raw_smp_processor_id();
	}
}

static void scripted_cpu(unsigned int cpu, bool online)
{
	unsigned long flags;
	size_t used;

	raw_spin_lock_irqsave(&cpu_lock, flags);
	used = strlen(cpu_calls);
	snprintf(cpu_calls + used, sizeof(cpu_calls) - used, "%s%c%u ",
		 cpu == raw_smp_processor_id() ? "" : "!", online ? '+' : '-', cpu);
	raw_spin_unlock_irqrestore(&cpu_lock, flags);
}

static struct perfmon_pmu scripted = {
	.size = sizeof(scripted),
	.nr_pmcs = 3,
	.nr_pmds = 14,
	.first = 284,
	.owner = THIS_MODULE,
	.name = "scripted",
	.pmcs = pmcs,
	.pmds = pmds,
	.probe = scripted_probe,
	.check = scripted_check,
	.read = scripted_read,
	.cpu = scripted_cpu,
};

static const struct field {
	const char *name;
	size_t offset, size;
} pmu_fields[] = {
	{ "size", offsetof(struct perfmon_pmu, size), sizeof(u32) },
	{ "nr_pmcs", offsetof(struct perfmon_pmu, nr_pmcs), sizeof(u16) },
	{ "nr_pmds", offsetof(struct perfmon_pmu, nr_pmds), sizeof(u16) },
	{ "first", offsetof(struct perfmon_pmu, first), sizeof(u16) },
	{ "reserved", offsetof(struct perfmon_pmu, reserved), sizeof(u16) },
	{ "name", offsetof(struct perfmon_pmu, name), sizeof(void *) },
	{ "pmcs", offsetof(struct perfmon_pmu, pmcs), sizeof(void *) },
	{ "pmds", offsetof(struct perfmon_pmu, pmds), sizeof(void *) },
	{ }
}, row_fields[] = {
	{ "name", offsetof(struct perfmon_register, name), sizeof(void *) },
	{ "address", offsetof(struct perfmon_register, address), sizeof(u64) },
	{ "reset", offsetof(struct perfmon_register, reset), sizeof(u64) },
	{ "reserved", offsetof(struct perfmon_register, reserved), sizeof(u64) },
	{ "enable", offsetof(struct perfmon_register, enable), sizeof(u64) },
	{ "interrupt", offsetof(struct perfmon_register, interrupt), sizeof(u64) },
	{ "kernel", offsetof(struct perfmon_register, kernel), sizeof(u64) },
	{ "pmcs", offsetof(struct perfmon_register, pmcs), sizeof(u64) },
	{ "type", offsetof(struct perfmon_register, type), sizeof(u16) },
	{ "width", offsetof(struct perfmon_register, width), sizeof(u16) },
	{ }
};

/*
 * Sets the field @name of the structure @dst to the number @value. x86 is little-endian, so
 * memcpy() copies the low bytes of the number.
 */
static int set_field(void *dst, const struct field *field, char *name, char *value)
{
	u64 number = 0;

	while (field->name && strcmp(field->name, name))
		field++;
	if (!field->name)
		return -ENOENT;
	if (!value || !strcmp(name, "name"))
		number = (unsigned long)value;
	else if (kstrtou64(value, 0, &number))
		return -ENOENT;
	memcpy(dst + field->offset, &number, field->size);
	return 0;
}

/* Applies one edit. Returns -ENOENT if the edit is not valid. */
static int apply_edit(char *text, const struct perfmon_pmu **pmu)
{
	char *table = strsep(&text, " "), *row, *name;
	unsigned int n, first, end;
	struct perfmon_register *rows = strcmp(table, "pmc") ? pmds : pmcs;
	int err = 0;

	if (!strcmp(table, "null")) {
		*pmu = NULL;
		return 0;
	}
	if (!strcmp(table, "pmu")) {
		name = strsep(&text, " ");
		return name ? set_field(&scripted, pmu_fields, name, text) : -ENOENT;
	}
	row = strsep(&text, " ");
	name = strsep(&text, " ");
	if (!name)
		return -ENOENT;
	if (!strcmp(row, "*")) {
		first = 0;
		end = ARRAY_SIZE(pmcs);
	} else if (!kstrtouint(row, 0, &first) && first < ARRAY_SIZE(pmcs)) {
		end = first + 1;
	} else {
		return -ENOENT;
	}
	for (n = first; n < end && !err; n++)
		err = set_field(&rows[n], row_fields, name, text);
	return err;
}

static int __init scripted_init(void)
{
	const struct perfmon_pmu *pmu = &scripted;
	char *rest = edit, *text;
	int err;

	while ((text = strsep(&rest, ";"))) {
		err = apply_edit(text, &pmu);
		if (err)
			return err;
	}
	err = perfmon_pmu_register(pmu);
	/*
	 * The errno is logged, because the kernel returns EBUSY to insmod if init returns EEXIST.
	 */
	pr_info("registration: %d\n", err);
	while (READ_ONCE(hold))
		fsleep(1000);
	return err;
}

static void __exit scripted_exit(void)
{
	perfmon_pmu_unregister(&scripted);
}

module_init(scripted_init);
module_exit(scripted_exit);
MODULE_DESCRIPTION("perfmon: a PMU description that tests control");
MODULE_AUTHOR("The perfcounters developers");
MODULE_LICENSE("GPL");
