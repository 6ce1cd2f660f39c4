// SPDX-License-Identifier: GPL-2.0
/*
 * guest: plain pmu-skylake
 * gate: pmu-skylake
 * worlds: stock debug
 * timeout: 600
 * long: stock
 *
 * Makes random calls of /dev/perfmon. The calls use contexts of threads and CPUs, event sets, each
 * sampling format, the self page and rings. Most structures that are passed to a call are valid, so
 * that the call gets past the kernel's checks of its arguments. Each kind of call must succeed some
 * times and fail some times. To repeat a run, set SEED, CALLS and ROUND in the environment (see
 * ioctl_fuzz_run.h).
 */
#include "ioctl_fuzz_run.h"
#include "sampling.h"
#include <sys/stat.h>

#define R_THREAD	0x0002
#define R_CPU		0x0004
#define R_SAMPLING	0x0008	/* a thread's context with a sampling format */
#define R_CONTEXT	(R_THREAD | R_CPU | R_SAMPLING)
#define R_OF_THREAD	(R_THREAD | R_SAMPLING)

#define CTX(type, bits, zero, zeroes, may, always)				\
	NUMBERS(type, bits, K_FLAGS, may, always),				\
	FIELD(type, zero, K_RESERVED),						\
	FIELD(type, zeroes, K_RESERVED)

static const struct field ctx_thread[] = {
	CTX(struct pfarg_ctx, ctx_flags, ctx_core, ctx_reserved2,
	    PFM_FL_OVFL_NO_MSG | PFM_FL_NOTIFY_BLOCK, 0),
};

static const struct field ctx_cpu[] = {
	CTX(struct pfarg_ctx, ctx_flags, ctx_core, ctx_reserved2, PFM_FL_OVFL_NO_MSG,
	    PFM_FL_SYSTEM_WIDE),
};

static const struct shape thread_shape = SHAPE(struct pfarg_ctx, ctx_thread);
static const struct shape cpu_shape = SHAPE(struct pfarg_ctx, ctx_cpu);

/*
 * For each sampling format: the shapes (descriptions of structures) of the format's argument and of
 * the argument of PERFMON_CREATE_FORMAT.
 */

static const struct field dfl_arg[] = {
	NUMBERS(struct pfm_dfl_smpl_arg, buf_size, K_BYTES, 4096, 65536),
	FIELD(struct pfm_dfl_smpl_arg, buf_flags, K_RESERVED),
	FIELD(struct pfm_dfl_smpl_arg, reserved1, K_RESERVED),
	FIELD(struct pfm_dfl_smpl_arg, reserved, K_RESERVED),
};

static const struct field ring_arg[] = {
	NUMBERS(struct perfmon_ring_arg, size, K_BYTES, 4096, 65536),
	NUMBERS(struct perfmon_ring_arg, flags, K_FLAGS,
		PERFMON_RING_BACKWARD | PERFMON_RING_OVERWRITE, 0),
	NUMBERS(struct perfmon_ring_arg, watermark, K_RANGE, 0, 2048),
	NUMBERS(struct perfmon_ring_arg, fields, K_FLAGS,
		PERFMON_FIELD_KERNEL_STACK | PERFMON_FIELD_USER_STACK, 0),
	NUMBERS(struct perfmon_ring_arg, max_frames, K_RANGE, 0, 127),
	FIELD(struct perfmon_ring_arg, reserved, K_RESERVED),
};

/*
 * Describes struct perfmon_ring_arg for sampling formats that choose the flags of the ring and the
 * sampled fields themselves. The caller of such a format must set the members `flags` and `fields`
 * to 0.
 */
static const struct field fixed_ring_arg[] = {
	NUMBERS(struct perfmon_ring_arg, size, K_BYTES, 4096, 65536),
	FIELD(struct perfmon_ring_arg, flags, K_RESERVED),
	NUMBERS(struct perfmon_ring_arg, watermark, K_RANGE, 0, 2048),
	FIELD(struct perfmon_ring_arg, fields, K_RESERVED),
	NUMBERS(struct perfmon_ring_arg, max_frames, K_RANGE, 0, 127),
	FIELD(struct perfmon_ring_arg, reserved, K_RESERVED),
};

static const struct field nway_arg[] = {
	NUMBERS(struct perfmon_nway_arg, size, K_BYTES, 1024, 32768),
	NUMBERS(struct perfmon_nway_arg, nr, K_RANGE, 2, 5),
	FIELD(struct perfmon_nway_arg, reserved1, K_RESERVED),
	FIELD(struct perfmon_nway_arg, reserved, K_RESERVED),
};

static const struct field histogram_arg[] = {
	FIELD(struct perfmon_histogram_arg, base, K_ANY),
	NUMBERS(struct perfmon_histogram_arg, shift, K_RANGE, 0, 63),
	NUMBERS(struct perfmon_histogram_arg, nr, K_RANGE, 1, 4096),
	FIELD(struct perfmon_histogram_arg, reserved, K_RESERVED),
};

#define FORMAT(id, type, table, format)						\
	static const struct shape id##_arg_shape = SHAPE(type, table);		\
	static const struct field id##_create[] = {				\
		CTX(struct perfmon_create, ctx.ctx_flags, ctx.ctx_core,	\
		    ctx.ctx_reserved2, PFM_FL_OVFL_NO_MSG | PFM_FL_NOTIFY_BLOCK, 0), \
		FIELD_OF(struct perfmon_create, name, K_STRING, 0, 0, format),	\
		FIELD(struct perfmon_create, uuid, K_ANY),			\
		FIELD_OF(struct perfmon_create, arg, K_PTR, 1, 0, &id##_arg_shape), \
		FIELD_OF(struct perfmon_create, arg_size, K_SIZE, 0, 0, &id##_arg_shape), \
	};									\
	static const struct shape id##_shape = SHAPE(struct perfmon_create, id##_create)

FORMAT(dfl, struct pfm_dfl_smpl_arg, dfl_arg, "default");
FORMAT(ring, struct perfmon_ring_arg, ring_arg, "ring");
FORMAT(flight, struct perfmon_ring_arg, fixed_ring_arg, "flight-recorder");
FORMAT(stack, struct perfmon_ring_arg, fixed_ring_arg, "call-stack");
FORMAT(nway, struct perfmon_nway_arg, nway_arg, "n-way");
FORMAT(histogram, struct perfmon_histogram_arg, histogram_arg, "histogram");

static __u64 controls[] = {
	0xc0 | PFM_USER | PFM_ENABLE, 0x3c | PFM_USER | PFM_ENABLE, 0x76 | PFM_USER | PFM_ENABLE,
	0xc0 | PFM_USER | PFM_KERNEL | PFM_ENABLE, 0, 0x222, 1, 2, 3, 5,
};

static __u64 resets[] = { -2000ULL, -20000ULL, -200000ULL, -2000000ULL, 0, -1ULL };

static const struct field pmc_write[] = {
	FIELD(struct pfarg_pmc, reg_num, K_PMC),
	FIELD(struct pfarg_pmc, reg_set, K_SET),
	NUMBERS(struct pfarg_pmc, reg_flags, K_FLAGS, 0, 0),
	ONE_OF(struct pfarg_pmc, reg_value, K_ENUM, controls),
	FIELD(struct pfarg_pmc, reg_reserved2, K_RESERVED),
};

#define PMD(register_kind, flags, bits, resets_kind, switches, mask)		\
	FIELD(struct pfarg_pmd, reg_num, register_kind),			\
	FIELD(struct pfarg_pmd, reg_set, K_SET),				\
	flags,									\
	ONE_OF(struct pfarg_pmd, reg_value, resets_kind, resets),		\
	ONE_OF(struct pfarg_pmd, reg_long_reset, resets_kind, resets),		\
	ONE_OF(struct pfarg_pmd, reg_short_reset, resets_kind, resets),		\
	FIELD(struct pfarg_pmd, reg_last_reset_val, K_OUT),			\
	NUMBERS(struct pfarg_pmd, reg_ovfl_switch_cnt, K_RANGE, 0, switches),	\
	NUMBERS(struct pfarg_pmd, reg_reset_pmds, bits, K_COUNTER, 0),		\
	NUMBERS(struct pfarg_pmd, reg_smpl_pmds, bits, K_PMD, 0),		\
	FIELD(struct pfarg_pmd, reg_smpl_eventid, K_ANY),			\
	FIELD(struct pfarg_pmd, reg_random_mask, mask),				\
	FIELD(struct pfarg_pmd, reg_random_seed, K_ANY),			\
	FIELD(struct pfarg_pmd, reg_reserved2, K_RESERVED)

static const struct field pmd_write[] = {
	PMD(K_COUNTER, FIELD(struct pfarg_pmd, reg_flags, K_RESERVED), K_RESERVED, K_ENUM, 0,
	    K_RESERVED),
};

static const struct field pmd_period[] = {
	PMD(K_COUNTER, NUMBERS(struct pfarg_pmd, reg_flags, K_FLAGS, PFM_REGFL_OVFL_NOTIFY,
			       PFM_REGFL_RANDOM), K_BITS, K_ENUM, 2, K_ANY),
};

static const struct field pmd_read[] = {
	PMD(K_PMD, FIELD(struct pfarg_pmd, reg_flags, K_OUT), K_OUT, K_OUT, 100, K_OUT),
};

static const struct shape pmc_shape = SHAPE(struct pfarg_pmc, pmc_write);
static const struct shape pmd_shape = SHAPE(struct pfarg_pmd, pmd_write);
static const struct shape period_shape = SHAPE(struct pfarg_pmd, pmd_period);
static const struct shape read_shape = SHAPE(struct pfarg_pmd, pmd_read);

#define SETDESC(table, id, next, flags, always, timeout)			\
	static const struct field table[] = {					\
		id,								\
		next,								\
		NUMBERS(struct pfarg_setdesc, set_flags, K_FLAGS, flags, always), \
		timeout,							\
		FIELD(struct pfarg_setdesc, reserved, K_RESERVED),		\
	};									\
	static const struct shape table##_shape = SHAPE(struct pfarg_setdesc, table)
#define SET_ID		FIELD(struct pfarg_setdesc, set_id, K_SET)
#define SET_OTHER	NUMBERS(struct pfarg_setdesc, set_id, K_RANGE, 1, 3)
#define SET_NO_NEXT	FIELD(struct pfarg_setdesc, set_id_next, K_RESERVED)
#define SET_NEXT	FIELD(struct pfarg_setdesc, set_id_next, K_SET)
#define SET_NO_TIME	FIELD(struct pfarg_setdesc, set_timeout, K_RESERVED)
#define SET_TIME	NUMBERS(struct pfarg_setdesc, set_timeout, K_RANGE, 10000, 10000000)

SETDESC(set_plain, SET_ID, SET_NO_NEXT, PFM_SETFL_OVFL_SWITCH, 0, SET_NO_TIME);
SETDESC(set_timed, SET_ID, SET_NO_NEXT, 0, PFM_SETFL_TIME_SWITCH, SET_TIME);
SETDESC(set_next, SET_ID, SET_NEXT, PFM_SETFL_OVFL_SWITCH, PFM_SETFL_EXPL_NEXT, SET_NO_TIME);
SETDESC(set_gone, SET_OTHER, SET_NO_NEXT, 0, 0, SET_NO_TIME);

static const struct field set_info_fields[] = {
	FIELD(struct pfarg_setinfo, set_id, K_SET),
	FIELD(struct pfarg_setinfo, set_id_next, K_OUT),
	FIELD(struct pfarg_setinfo, set_flags, K_OUT),
	FIELD(struct pfarg_setinfo, set_ovfl_pmds, K_OUT),
	FIELD(struct pfarg_setinfo, set_runs, K_OUT),
	FIELD(struct pfarg_setinfo, set_timeout, K_OUT),
	FIELD(struct pfarg_setinfo, set_act_duration, K_OUT),
	FIELD(struct pfarg_setinfo, set_avail_pmcs, K_OUT),
	FIELD(struct pfarg_setinfo, set_avail_pmds, K_OUT),
	FIELD(struct pfarg_setinfo, reserved, K_RESERVED),
};

static const struct field runs_fields[] = {
	FIELD(struct perfmon_runs, reg_num, K_COUNTER),
	FIELD(struct perfmon_runs, reg_set, K_SET),
	FIELD(struct perfmon_runs, reg_flags, K_RESERVED),
	FIELD(struct perfmon_runs, runs, K_OUT),
	FIELD(struct perfmon_runs, time, K_OUT),
	FIELD(struct perfmon_runs, time2, K_OUT),
	FIELD(struct perfmon_runs, value, K_OUT),
	FIELD(struct perfmon_runs, value2, K_OUT),
	FIELD(struct perfmon_runs, value_time, K_OUT),
};

static const struct shape info_shape = SHAPE(struct pfarg_setinfo, set_info_fields);
static const struct shape runs_shape = SHAPE(struct perfmon_runs, runs_fields);

#define VECTOR(id, element, most)						\
	static const struct field id[] = {					\
		FIELD_OF(struct perfmon_vector, items, K_PTR, most, 0, &element), \
		NUMBERS(struct perfmon_vector, nr, K_COUNT, 0, 0),		\
		FIELD_OF(struct perfmon_vector, size, K_SIZE, 0, 0, &element),	\
	};									\
	static const struct shape id##_shape = SHAPE(struct perfmon_vector, id)

VECTOR(pmcs, pmc_shape, 3);
VECTOR(pmds, pmd_shape, 2);
VECTOR(periods, period_shape, 2);
VECTOR(reads, read_shape, 4);
VECTOR(plain_sets, set_plain_shape, 2);
VECTOR(timed_sets, set_timed_shape, 2);
VECTOR(next_sets, set_next_shape, 2);
VECTOR(gone_sets, set_gone_shape, 1);
VECTOR(infos, info_shape, 3);
VECTOR(some_runs, runs_shape, 2);

static __u64 booleans[] = { 0, 1 };

#define LOAD(table, kind)							\
	static const struct field table[] = {					\
		FIELD(struct pfarg_load, load_pid, kind),			\
		FIELD(struct pfarg_load, load_set, K_SET),			\
		FIELD(struct pfarg_load, load_reserved1, K_RESERVED),		\
		FIELD(struct pfarg_load, load_reserved2, K_RESERVED),		\
	};									\
	static const struct shape table##_shape = SHAPE(struct pfarg_load, table)

LOAD(load_thread, K_PID);
LOAD(load_cpu, K_CPU);

static const struct field start_fields[] = {
	FIELD(struct pfarg_start, start_set, K_SET),
	FIELD(struct pfarg_start, start_reserved1, K_RESERVED),
	FIELD(struct pfarg_start, start_reserved2, K_RESERVED),
	FIELD(struct pfarg_start, start_reserved3, K_RESERVED),
};

struct word {
	__u32 word;
};

static const struct field pause_fields[] = { ONE_OF(struct word, word, K_ENUM, booleans) };

static const struct field status_fields[] = {
	FIELD(struct perfmon_status, flags, K_OUT),
	FIELD(struct perfmon_status, nr_throttles, K_OUT),
	FIELD(struct perfmon_status, throttled, K_OUT),
	FIELD(struct perfmon_status, lost, K_OUT),
	FIELD(struct perfmon_status, elsewhere, K_OUT),
	FIELD(struct perfmon_status, reserved, K_OUT),
};

static const struct shape start_shape = SHAPE(struct pfarg_start, start_fields);
static const struct shape pause_shape = SHAPE(struct word, pause_fields);
static const struct shape status_shape = SHAPE(struct perfmon_status, status_fields);

/*
 * PERFMON_LOAD with a CPU number is called only on CPU contexts. On a thread's context, the kernel
 * would take the CPU number as a thread ID: 1 would be the ID of init.
 */
static const struct call calls[] = {
	CALL(PERFMON_CREATE, &thread_shape, R_NEW, R_THREAD, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE, &cpu_shape, R_NEW, R_CPU, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &dfl_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &ring_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &flight_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &stack_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &nway_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_CREATE_FORMAT, &histogram_shape, R_NEW, R_SAMPLING, C_SHAPE_ONLY),
	CALL(PERFMON_WRITE_PMCS, &pmcs_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_WRITE_PMDS, &pmds_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_WRITE_PMDS, &periods_shape, R_SAMPLING, 0, 0),
	CALL(PERFMON_READ_PMDS, &reads_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_LOAD, &load_thread_shape, R_OF_THREAD, 0, C_SHAPE_ONLY),
	CALL(PERFMON_LOAD, &load_thread_shape, R_SAMPLING, 0, C_SHAPE_ONLY),
	CALL(PERFMON_LOAD, &load_cpu_shape, R_CPU, 0, C_SHAPE_ONLY | C_ROLE_ONLY),
	CALL(PERFMON_UNLOAD, NULL, R_CONTEXT, 0, 0),
	CALL(PERFMON_START, &start_shape, R_CONTEXT, 0, C_NULL_OK),
	CALL(PERFMON_START, &start_shape, R_SAMPLING, 0, C_NULL_OK),
	CALL(PERFMON_STOP, NULL, R_CONTEXT, 0, 0),
	CALL(PERFMON_RESTART, NULL, R_SAMPLING, 0, 0),
	CALL(PERFMON_PAUSE, &pause_shape, R_SAMPLING, 0, 0),
	CALL(PERFMON_CREATE_EVTSETS, &plain_sets_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_CREATE_EVTSETS, &timed_sets_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_CREATE_EVTSETS, &next_sets_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_DELETE_EVTSETS, &gone_sets_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_GETINFO_EVTSETS, &infos_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_READ_RUNS, &some_runs_shape, R_CONTEXT, 0, 0),
	CALL(PERFMON_STATUS, &status_shape, R_CONTEXT, 0, 0),
};

static struct range ranges[] = {
	{ 0, 0, PROT_READ },
	{ 0, 0, PROT_READ },
	{ PERFMON_SELF_OFFSET, 4096, PROT_READ },
	{ PERFMON_TAIL_OFFSET, 4096, PROT_READ | PROT_WRITE },
};

/*
 * Returns the role (R_THREAD, R_CPU or R_SAMPLING) of a descriptor on which @call has created a
 * context. The role of the descriptor depends on the flags in @arg, in which the fuzzer may have
 * set or cleared PFM_FL_SYSTEM_WIDE at random.
 */
static __u16 role_of_new(const struct call *call, const void *arg)
{
	const struct pfarg_ctx *ctx = arg;

	if (ctx->ctx_flags & PFM_FL_SYSTEM_WIDE)
		return R_CPU;
	return call->new_role == R_CPU ? R_THREAD : call->new_role;
}

/*
 * Fills the pools of register numbers from /proc/perfmon_map. Calls use the first three numbers of
 * a pool more often than the others, so each process moves three random numbers to the front.
 */
static void init_process(void)
{
	static const enum kind kinds[] = { K_PMC, K_PMD, K_COUNTER };
	FILE *f = fopen("/proc/perfmon_map", "re");
	char line[400];
	int n;

	for (int i = 0; i < 3; i++)
		pools[kinds[i]].nr = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "PMC%d ", &n) == 1)
			pool_add(K_PMC, n);
		if (sscanf(line, "PMD%d ", &n) != 1)
			continue;
		pool_add(K_PMD, n);
		if (!strstr(line, " virtual value "))
			pool_add(K_COUNTER, n);
	}
	if (f)
		fclose(f);
	for (int i = 0; i < 3; i++) {
		struct pool *pool = &pools[kinds[i]];

		for (__u32 k = 0; k < 3 && pool->nr; k++) {
			__u32 other = random_below(pool->nr);
			__u64 v = pool->v[k];

			pool->v[k] = pool->v[other];
			pool->v[other] = v;
		}
	}
	/* Most calls use event set 0, which exists in each context. */
	pools[K_SET] = (struct pool) { { 0, 0, 1, 2, 3 }, 5 };
}

static void prepare(void)
{
	static const char *const modules[] = {
		"pfm_intel", "pfm_amd", "pfm_soft", "pfm_default", "pfm_ring", "pfm_nway",
		"pfm_histogram",
	};

	/* Otherwise the first context makes the kernel load other modules. */
	write_file("/proc/sys/kernel/modprobe", "\n");
	load_modules("");
	load_module("perfmon");
	for (unsigned int i = 0; i < sizeof(modules) / sizeof(*modules); i++)
		insmod(modules[i], "");
	/* In some rounds a user without capabilities makes the calls. */
	bail_if(chmod("/dev/perfmon", 0666), "chmod /dev/perfmon");
}

static const struct program perfmon = {
	.device = "/dev/perfmon",
	.calls = calls,
	.nr_calls = sizeof(calls) / sizeof(*calls),
	.ranges = ranges,
	.nr_ranges = sizeof(ranges) / sizeof(*ranges),
	.role = role_of_new,
	.init_process = init_process,
};

int main(int argc, char **argv)
{
	return fuzz_main(&perfmon, argc, argv, prepare);
}
