/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * libperfmon: the calls of perfmon2 2.8 on /dev/perfmon, as functions, with the
 * names of types and flags that programs of its time use.
 *
 * Each call returns -1 and sets errno, as its system call did: ENOSYS where there is
 * no /dev/perfmon.
 *
 * Link with -lperfmon. See libperfmon(3).
 */
#ifndef _PERFMON_PERFMON_H
#define _PERFMON_PERFMON_H

#include <stddef.h>
#include <stdint.h>
#include <linux/ioctl.h>
#include <linux/types.h>
/* Programs of that time point at 64-bit fields with uint64_t and print PRIu64. */
#define __u64 uint64_t
#include <linux/perfmon.h>
#include <linux/perfmon_ring.h>
#undef __u64

#ifdef __cplusplus
extern "C" {
#endif

#define PFM_VERSION_MAJ		2U
#define PFM_VERSION_MIN		8U
#define PFM_VERSION		((PFM_VERSION_MAJ << 16) | PFM_VERSION_MIN)
#define PFM_VERSION_MAJOR(x)	(((x) >> 16) & 0xffff)
#define PFM_VERSION_MINOR(x)	((x) & 0xffff)

typedef struct pfarg_ctx pfarg_ctx_t;
typedef struct pfarg_pmc pfarg_pmc_t;
typedef struct pfarg_pmd pfarg_pmd_t;
typedef struct pfarg_start pfarg_start_t;
typedef struct pfarg_load pfarg_load_t;

typedef struct pfarg_setdesc pfarg_setdesc_t;
typedef struct pfarg_setinfo pfarg_setinfo_t;

/* Messages, to be read from a context: those of <linux/perfmon.h>. */
typedef struct pfarg_ovfl_msg pfarg_ovfl_msg_t;
typedef union pfarg_msg pfarg_msg_t;

/*
 * A new context: its file descriptor. smpl_name is NULL, or a sampling format that
 * smpl_arg is for; its buffer is mapped at 0 of the descriptor.
 */
int pfm_create_context(pfarg_ctx_t *ctx, char *smpl_name, void *smpl_arg,
		       size_t smpl_size);
int pfm_write_pmcs(int fd, pfarg_pmc_t *pmcs, int n);
int pfm_write_pmds(int fd, pfarg_pmd_t *pmds, int n);
int pfm_read_pmds(int fd, pfarg_pmd_t *pmds, int n);
int pfm_load_context(int fd, pfarg_load_t *load);
int pfm_start(int fd, pfarg_start_t *start);
int pfm_stop(int fd);
int pfm_restart(int fd);
int pfm_create_evtsets(int fd, pfarg_setdesc_t *sets, int n);
int pfm_delete_evtsets(int fd, pfarg_setdesc_t *sets, int n);
int pfm_getinfo_evtsets(int fd, pfarg_setinfo_t *sets, int n);
int pfm_unload_context(int fd);

/* Not perfmon2's: how the turns of event sets differed. */
int pfm_read_runs(int fd, struct perfmon_runs *runs, int n);

/*
 * Nor this: the state of a context since it was attached, from any CPU. With
 * PERFMON_STATUS_ENDED a message, to be read from it, says why: PFM_MSG_END,
 * PFM_MSG_FAULT or PFM_MSG_EVICTED. perfmon_status.elsewhere is time of its thread that
 * was not counted, on CPUs that lack some of its registers.
 */
int pfm_get_status(int fd, struct perfmon_status *status);

/*
 * Nor these: the counters of the calling thread, without a system call.
 * pfm_self_read() reads one of the context that is loaded on the calling thread;
 * what the page cannot say, it asks the kernel for: without a page (NULL) that is
 * everything, and what another thread's context counts.
 */
int pfm_self_map(int fd, const struct perfmon_self **page);
int pfm_self_unmap(const struct perfmon_self *page);
int pfm_self_read(int fd, const struct perfmon_self *page, unsigned int pmd,
		  uint64_t *value);

/*
 * Nor these: the ring of a context whose format has one, and its one reader.
 * pfm_ring_read() gives 1 and a copy of a record, which stays until the next call, or
 * 0 when there is none. Forward it is the oldest that was not read yet; backward the
 * newest of pfm_ring_snapshot(), then the one before it. See pfm_ring_read(3).
 */
struct pfm_ring;

int pfm_ring_open(int fd, struct pfm_ring **ring);
int pfm_ring_close(struct pfm_ring *ring);
int pfm_ring_snapshot(struct pfm_ring *ring);
int pfm_ring_read(struct pfm_ring *ring, const struct perfmon_record **record);
int pfm_ring_lost(const struct pfm_ring *ring, uint64_t *lost);
/* No records are written, or they are again; those that are not count as lost. */
int pfm_pause(int fd, int paused);

#ifdef __cplusplus
}
#endif

#endif /* _PERFMON_PERFMON_H */
