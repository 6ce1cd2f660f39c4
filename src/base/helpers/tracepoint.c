// SPDX-License-Identifier: GPL-2.0
/* Tracepoints. */
#include <linux/export.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include "helpers.h"

struct tracepoint_search {
	const char *name;
	struct tracepoint *found;
};

static void match_tracepoint_name(struct tracepoint *tp, void *arg)
{
	struct tracepoint_search *find = arg;

	if (!strcmp(tp->name, find->name))
		find->found = tp;
}

/*
 * Finds a tracepoint of vmlinux by name, because most tracepoints are not exported. Returns NULL if
 * vmlinux has no such tracepoint.
 */
struct tracepoint *pfc_tracepoint_find(const char *name)
{
	struct tracepoint_search find = { .name = name };

	for_each_kernel_tracepoint(match_tracepoint_name, &find);
	return find.found;
}
EXPORT_SYMBOL_GPL(pfc_tracepoint_find);

void pfc_tracepoint_sync(void)
{
	tracepoint_synchronize_unregister();
}
EXPORT_SYMBOL_GPL(pfc_tracepoint_sync);
