/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For perfmon_ring.c: contexts that sample into a ring (a ring buffer), and a reader of the ring's
 * records.
 */
#ifndef PERFMON_RING_H
#define PERFMON_RING_H

#include "sampling.h"
#include "ring.h"
#include <pthread.h>

#define SIZE	RING_MAX_RECORD
#define CLOCK_PERIOD	100000	/* sampling period of the clock, in nanoseconds */
#define EVENTID	0x1234567890abcdefULL

static const struct pmu_model *model;
static __u32 nr_cpus;

/* Time limit, in nanoseconds, for events that a busy host may delay. */
#define EVENT_TIMEOUT	100000000000ULL

/* The monitored thread spins while may_spin is set, and exits when may_end is set. */
static volatile int may_spin, may_end;
static volatile __u32 worker_tid;
static pthread_t worker;

static void *worker_thread(void *arg)
{
	worker_tid = this_thread();
	while (!may_end) {
		if (may_spin)
			spin(10000);
		else
			usleep(1000);
	}
	return NULL;
}

static void start_worker(void)
{
	may_end = 0;
	may_spin = 0;
	worker_tid = 0;
	bail_if(pthread_create(&worker, NULL, worker_thread, NULL), "pthread_create");
	while (!worker_tid)
		usleep(1000);
}

static void stop_worker(void)
{
	may_end = 1;
	pthread_join(worker, NULL);
}

/* An event by which the monitored thread is sampled: its CPU clock or its instructions. */
struct source {
	const char *name;
	__u16 pmd;
	__u64 period;
};

static const struct source clocks = { "clock", PERFMON_TASK_CLOCK, CLOCK_PERIOD };
static const struct source instructions = { "instructions", 0, 20011 };
static const struct source *source;

/*
 * Creates a context that samples, and loads it on thread @tid if @tid is not 0. Each sample also
 * records the values of two PMDs (data registers) other than the sampling PMD: PERFMON_TID, the
 * thread ID, and a counting PMD. The counting PMD is PERFMON_CPU_CLOCK if the context samples by a
 * clock, and PMD 1 if the context samples by instructions.
 */
static int create_sampling(const char *format, struct perfmon_ring_arg *arg, __u32 tid)
{
	int fd = pfm_create_format(0, format, arg, sizeof(*arg));
	int other = source->pmd ? PERFMON_CPU_CLOCK : 1;
	struct pfarg_pmd pmd = {
		.reg_num = source->pmd, .reg_value = -source->period,
		.reg_long_reset = -source->period, .reg_short_reset = -source->period,
		.reg_smpl_eventid = EVENTID,
	};

	if (fd < 0)
		return fd;
	pmd.reg_smpl_pmds[other / 64] |= 1ULL << other % 64;
	pmd.reg_smpl_pmds[PERFMON_TID / 64] |= 1ULL << PERFMON_TID % 64;
	bail_if(!source->pmd && (pfm_write_pmc(fd, 0, pfm_instructions(model)) ||
				 pfm_write_pmc(fd, 1, pfm_instructions(model))), "write of a PMC");
	bail_if(pfm_write_smpl(fd, &pmd) || pfm_write_pmd(fd, other, 0), "write of a PMD");
	bail_if(tid && pfm_load(fd, tid), "load");
	return fd;
}

static struct ring create_ring(const char *format, __u32 flags, __u64 size, __u32 tid)
{
	struct perfmon_ring_arg arg = { .size = size, .flags = flags };

	return ring_map(create_sampling(format, &arg, tid), size);
}

/* The events that the counting PMD has counted, divided by the period. */
static __u64 count_overflows(int fd)
{
	int other = source->pmd ? PERFMON_CPU_CLOCK : 1;
	__u64 total = pfm_read_pmd(fd, other);
	__u64 since = pfm_read_pmd(fd, source->pmd) + source->period;

	/*
	 * The sampling PMD and the counting PMD do not start and stop at the same instruction, so
	 * the number of events is not always a multiple of the period. The quotient of the number
	 * of events and the period is rounded to the nearest integer.
	 */
	return (total - since + source->period / 2) / source->period;
}

#define SAMPLE_BYTES (sizeof(struct perfmon_sample) + 2 * 8)

/* The record must describe what worker_thread() has done since @since. */
static bool is_complete(const union record *r, int bytes, __u64 since)
{
	const struct perfmon_sample *s = &r->sample;
	bool user = s->ip && s->ip < 0x7ffffffff000, kernel = s->ip >= 0xffff800000000000;

	if (r->header.flags || bytes != (int)r->header.size)
		return false;
	switch (r->header.type) {
	case PERFMON_RECORD_SAMPLE:
		break;
	case PERFMON_RECORD_LOST:
		return bytes == 16 && r->words[1];
	case PERFMON_RECORD_THROTTLE:
	case PERFMON_RECORD_UNTHROTTLE:
		return bytes == 16 && r->words[1] >= since && r->words[1] <= now_ns();
	default:
		return false;
	}
	if (bytes == (int)SAMPLE_BYTES && (user || kernel) && s->pid == (__u32)getpid() &&
	    s->tid == worker_tid && s->time >= since && s->time <= now_ns() &&
	    s->pmd == source->pmd && !s->set && s->cpu < nr_cpus &&
	    s->last_reset == -source->period && s->eventid == EVENTID && s->nr_values == 2 &&
	    !s->nr_frames && s->more[1] == worker_tid)
		return true;
	note("%d bytes, ip %llx, %u/%u, time %llu after %llu, pmd %u, cpu %u, reset %lld", bytes,
	     s->ip, s->pid, s->tid, s->time, since, s->pmd, s->cpu, s->last_reset);
	return false;
}

/* Position of a reader of a forward ring, and the records that it has found so far. */
struct reader_state {
	__u64 pos, since, time, samples, reported_lost, overwritten, others;
	int wrong;
};

/* If @release is set, the tail advances, which frees the space of the records. */
static void drain(const struct ring *r, struct reader_state *f, bool release)
{
	static __thread union record record;
	__u64 head = ring_head(r);
	int bytes;

	while ((bytes = ring_copy_record(r, head, f->pos, &record)) != 0) {
		if (bytes == RECORD_OVERWRITTEN) {
			f->overwritten++;
			f->pos = head;
			break;
		}
		if (bytes == RECORD_CORRUPT || !is_complete(&record, bytes, f->since)) {
			f->wrong++;
			f->pos = head;
			break;
		}
		if (record.header.type == PERFMON_RECORD_SAMPLE) {
			f->samples++;
			f->wrong += record.sample.time < f->time;
			f->time = record.sample.time;
		} else if (record.header.type == PERFMON_RECORD_LOST) {
			f->reported_lost += record.words[1];
		} else {
			f->others++;
		}
		f->pos += bytes;
		if (release)
			__atomic_store_n(&r->tail->tail, f->pos, __ATOMIC_RELEASE);
	}
	if (release)
		__atomic_store_n(&r->tail->tail, f->pos, __ATOMIC_RELEASE);
}

#endif
