/* SPDX-License-Identifier: GPL-2.0 */
/* Memory and object limits per user. src/base/helpers.rs declares the same functions for Rust. */
#ifndef _PERFCOUNTERS_ACCOUNT_H
#define _PERFCOUNTERS_ACCOUNT_H

#include <linux/types.h>

struct cred;

/*
 * Resources that are counted for each user. Resource in src/base/helpers.rs has the values of this
 * enumeration.
 */
enum pfm_resource {
	PFM_BYTES,
	/* Processes that are traced, or that have ended and are still in a trace. */
	PFM_PROCESSES,
	/*
	 * PFM_TRACES counts the traces that have not ended. PFM_HELD_TRACES counts all traces, also
	 * those that have ended and are not freed yet.
	 */
	PFM_TRACES,
	PFM_HELD_TRACES,
	PFM_CONTEXTS,
	/* Concurrent calls of PERFTRACE_OPEN. This count is not shown in debugfs. */
	PFM_PERMISSION_CHECKS,
	PFM_NR_RESOURCES,
};

struct pfm_amount {
	enum pfm_resource resource;
	u64 nr;
};

bool pfm_account_is_unlimited(void);
bool pfm_account_cred_is_unlimited(const struct cred *cred);
u64 pfm_account_bytes(void);
int pfm_account_add(const struct cred *cred, struct pfm_amount more, u64 most);
void pfm_account_sub(const struct cred *cred, struct pfm_amount less);
void pfm_account_file_create(void);
void pfm_account_file_remove(void);

#endif
