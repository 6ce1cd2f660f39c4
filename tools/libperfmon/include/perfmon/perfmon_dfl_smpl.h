/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * libperfmon: the default sampling format, with the type names that programs for perfmon2
 * use.
 */
#ifndef _PERFMON_PERFMON_DFL_SMPL_H
#define _PERFMON_PERFMON_DFL_SMPL_H

#include <perfmon/perfmon.h>
#define __u64 uint64_t
#include <linux/perfmon_dfl_smpl.h>
#undef __u64

#define PFM_DFL_SMPL_NAME	"default"

typedef struct pfm_dfl_smpl_arg pfm_dfl_smpl_arg_t;
typedef struct pfm_dfl_smpl_hdr pfm_dfl_smpl_hdr_t;
typedef struct pfm_dfl_smpl_entry pfm_dfl_smpl_entry_t;

#endif /* _PERFMON_PERFMON_DFL_SMPL_H */
