// SPDX-License-Identifier: GPL-2.0
/*
 * nmi_unknown: counts NMIs that no other handler has claimed, and sends such an NMI on request.
 *
 * The kernel calls the handlers of NMI_UNKNOWN before it reports "NMI received for unknown
 * reason". The handler of nmi_unknown counts the NMIs that reach it, and claims them. In
 * /sys/module/nmi_unknown/parameters, "nr" is the number of NMIs that no other handler claimed. A
 * write to "send" sends an NMI, which no other handler claims, to the CPU that executes the write.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/nmi.h>

static atomic_t nr_unknown = ATOMIC_INIT(0);

static int count_nmi(unsigned int command, struct pt_regs *regs)
{
	atomic_inc(&nr_unknown);
	return NMI_HANDLED;
}

static int get_nr(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", atomic_read(&nr_unknown));
}

static const struct kernel_param_ops nr_ops = { .get = get_nr };
module_param_cb(nr, &nr_ops, NULL, 0444);
MODULE_PARM_DESC(nr, "NMIs that no handler claimed");

static int send_nmi(const char *text, const struct kernel_param *kp)
{
	int cpu = get_cpu();

	apic->send_IPI(cpu, NMI_VECTOR);
	put_cpu();
	usleep_range(100, 200);
	return 0;
}

static const struct kernel_param_ops send_ops = { .set = send_nmi };
module_param_cb(send, &send_ops, NULL, 0200);
MODULE_PARM_DESC(send, "Anything: one NMI for the CPU that writes");

static int __init nmi_unknown_init(void)
{
	return register_nmi_handler(NMI_UNKNOWN, count_nmi, 0, "nmi_unknown");
}
module_init(nmi_unknown_init);

static void __exit nmi_unknown_exit(void)
{
	unregister_nmi_handler(NMI_UNKNOWN, "nmi_unknown");
}
module_exit(nmi_unknown_exit);

MODULE_DESCRIPTION("NMIs that no handler claimed");
MODULE_LICENSE("GPL");
