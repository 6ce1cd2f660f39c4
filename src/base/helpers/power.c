// SPDX-License-Identifier: GPL-2.0
/*
 * Callbacks of suspend and resume.
 */
#include <linux/export.h>
#include <linux/slab.h>
#include <linux/syscore_ops.h>
#include "helpers.h"

struct pfc_power_registration {
	struct syscore syscore;
	void (*callback)(bool suspend);
};

static int power_suspend(void *data)
{
	struct pfc_power_registration *power = data;

	power->callback(true);
	return 0;
}

static void power_resume(void *data)
{
	struct pfc_power_registration *power = data;

	power->callback(false);
}

static const struct syscore_ops power_ops = {
	.suspend = power_suspend,
	.resume = power_resume,
};

/*
 * Registers @callback, which is called before suspend with true and at resume with false. @callback
 * runs on the only CPU that is online, with interrupts off. Returns NULL if memory is short.
 */
struct pfc_power_registration *pfc_power_register(void (*callback)(bool suspend))
{
	struct pfc_power_registration *power = kzalloc(sizeof(*power), GFP_KERNEL);

	if (!power)
		return NULL;
	power->callback = callback;
	power->syscore.ops = &power_ops;
	power->syscore.data = power;
	register_syscore(&power->syscore);
	return power;
}
EXPORT_SYMBOL_NS_GPL(pfc_power_register, "PERFCOUNTERS");

void pfc_power_unregister(struct pfc_power_registration *power)
{
	unregister_syscore(&power->syscore);
	kfree(power);
}
EXPORT_SYMBOL_NS_GPL(pfc_power_unregister, "PERFCOUNTERS");
