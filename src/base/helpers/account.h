/* SPDX-License-Identifier: GPL-2.0 */
/* Memory and object limits per user. */
#ifndef _PERFCOUNTERS_ACCOUNT_H
#define _PERFCOUNTERS_ACCOUNT_H

#include <linux/types.h>

struct cred;

/* Resources that are counted and limited for each user. */
enum pfc_resource {
	PFC_BYTES,
	/* Processes that are traced, or that have ended and are still in a trace. */
	PFC_PROCESSES,
	/*
	 * PFC_TRACES counts the traces that have not ended. PFC_HELD_TRACES counts all traces, also
	 * those that have ended and are not freed yet.
	 */
	PFC_TRACES,
	PFC_HELD_TRACES,
	/* Contexts that exist. */
	PFC_CONTEXTS,
	/*
	 * Concurrent calls of PERFTRACE_OPEN for which the security modules check permission; each
	 * call creates a kernel thread. debugfs does not show PFC_PERMISSION_CHECKS.
	 */
	PFC_PERMISSION_CHECKS,
	PFC_NR_RESOURCES,
};

struct pfc_amount {
	enum pfc_resource resource;
	u64 nr;
};

bool pfc_is_caller_unlimited(void);
bool pfc_is_cred_unlimited(const struct cred *cred);
u64 pfc_user_memory_limit_bytes(void);
int pfc_charge_user_accounts(const struct cred *cred, struct pfc_amount more, u64 most);
void pfc_uncharge_user_accounts(const struct cred *cred, struct pfc_amount less);
void pfc_account_file_create(void);
void pfc_account_file_remove(void);

#endif
