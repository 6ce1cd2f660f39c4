// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a reference to a network interface until this module is unloaded. If the interface is
 * removed, the kernel waits until the reference is released, and meanwhile repeats the notification
 * NETDEV_UNREGISTER each second. The parameter "repeated" is the number of repeated notifications.
 */
#include <linux/limits.h>
#include <linux/module.h>
#include <linux/netdevice.h>

static char *interface;
module_param(interface, charp, 0444);
MODULE_PARM_DESC(interface, "The name of the interface");

static int repeated;
module_param(repeated, int, 0444);
MODULE_PARM_DESC(repeated, "Number of repeated notifications of the removal");

static struct net_device *held;

static int count_repeated(struct notifier_block *block, unsigned long event, void *info)
{
	struct net_device *dev = netdev_notifier_info_to_dev(info);

	if (event == NETDEV_UNREGISTER && dev == held && dev->reg_state == NETREG_UNREGISTERED)
		WRITE_ONCE(repeated, repeated + 1);
	return NOTIFY_DONE;
}

/* The lowest priority: other modules get each notification before it is counted here. */
static struct notifier_block notifier = { .notifier_call = count_repeated, .priority = INT_MIN };

static int __init hold_interface_init(void)
{
	int error;

	held = interface ? dev_get_by_name(&init_net, interface) : NULL;
	if (!held)
		return -ENODEV;
	error = register_netdevice_notifier(&notifier);
	if (error)
		dev_put(held);
	return error;
}

static void __exit hold_interface_exit(void)
{
	unregister_netdevice_notifier(&notifier);
	dev_put(held);
}

module_init(hold_interface_init);
module_exit(hold_interface_exit);
MODULE_DESCRIPTION("Holds a reference to a network interface");
MODULE_LICENSE("GPL");
