/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * libperfmon: the system calls of perfmon2 2.8 as functions that use /dev/perfmon. Types
 * and flags have the names that programs for perfmon2 use.
 *
 * On failure a function returns -1 and sets errno, like the system call of perfmon2. If there is no
 * /dev/perfmon, errno is ENOSYS.
 *
 * Link with -lperfmon. See libperfmon(3).
 */
#ifndef _PERFMON_PERFMON_H
#define _PERFMON_PERFMON_H

#include <stddef.h>
#include <stdint.h>
#include <linux/ioctl.h>
#include <linux/types.h>
/* Programs for perfmon2 access 64-bit fields as uint64_t and print them with PRIu64. */
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

/* Messages that read() of a context returns, described in <linux/perfmon.h>. */
typedef struct pfarg_ovfl_msg pfarg_ovfl_msg_t;
typedef union pfarg_msg pfarg_msg_t;

/*
 * Creates a context and returns its file descriptor. smpl_name is NULL or the name of a sampling
 * format, and smpl_arg is the argument of the format. Programs map the sampling buffer at offset 0
 * of the file descriptor.
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

/*
 * Reads sums over all runs of an event set, for example the sums of the times and of the counts;
 * struct perfmon_runs describes the sums. A run of an event set lasts from the switch to the event
 * set until the switch to another event set or until PERFMON_UNLOAD. perfmon2 does not have
 * pfm_read_runs().
 */
int pfm_read_runs(int fd, struct perfmon_runs *runs, int n);

/*
 * Returns the state of a context and its statistics since it was attached. perfmon2 does not have
 * pfm_get_status(). The caller may run on any CPU. If PERFMON_STATUS_ENDED is set, read() returns a
 * message whose type is the reason (PFM_MSG_END, PFM_MSG_FAULT or PFM_MSG_EVICTED). A thread that
 * attached the context to itself gets no PFM_MSG_END. The field
 * perfmon_status.elsewhere is the time for which the thread ran without being counted, on CPUs that
 * lack a register of the context or are of another core type.
 */
int pfm_get_status(int fd, struct perfmon_status *status);

/*
 * Read the counters of the calling thread without a system call. perfmon2 does not have these
 * functions. pfm_self_read() reads a PMD of the context that is attached to the calling thread. If
 * the value cannot be computed from the self page `page`, pfm_self_read() makes a system call. The
 * value cannot be computed from the self page if `page` is NULL, or while the context is attached
 * to another thread and is counting. A child that fork() makes has no mapping of the self page, and
 * passes NULL as `page`.
 */
int pfm_self_map(int fd, const struct perfmon_self **page);
int pfm_self_unmap(const struct perfmon_self *page);
int pfm_self_read(int fd, const struct perfmon_self *page, unsigned int pmd,
		  uint64_t *value);

/*
 * Read the ring of a context whose sampling format records into a ring. perfmon2 does not have
 * these functions. A ring has one reader at a time. pfm_ring_read() returns 1 and a copy of a
 * record, or 0 if no record is left. The copy of a record is valid until the next call with the
 * same ring. In a forward ring pfm_ring_read() returns the oldest record that was not read yet; in
 * a backward ring it returns the newest record of the snapshot first, and then older records. A
 * child that fork() makes has no mapping of the ring: it can only close the ring. See
 * pfm_ring_read(3).
 */
struct pfm_ring;

int pfm_ring_open(int fd, struct pfm_ring **ring);
int pfm_ring_close(struct pfm_ring *ring);
int pfm_ring_snapshot(struct pfm_ring *ring);
int pfm_ring_read(struct pfm_ring *ring, const struct perfmon_record **record);
int pfm_ring_lost(const struct pfm_ring *ring, uint64_t *lost);
/*
 * Pauses (paused != 0) or resumes a ring. While the ring is paused, new records are dropped and
 * counted as lost.
 */
int pfm_pause(int fd, int paused);

#ifdef __cplusplus
}
#endif

#endif /* _PERFMON_PERFMON_H */
