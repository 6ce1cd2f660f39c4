// SPDX-License-Identifier: GPL-2.0
/*
 * A reader needs no system call after mmap(): a child takes snapshots under a seccomp filter that
 * kills the child at any system call but exit_group().
 */
#include "kselftest_pc.h"
#include <stddef.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define SNAPSHOTS	100000

struct result {
	__u64 snapshots;
	__u64 tries;
	__u64 decreases;
	__s64 first, last;
};

static __u32 ticks, requests, bytes;

static void forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(*filter), filter };

	exit_if(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 2);
}

/* Takes a snapshot of three counters, summed over all CPUs. Returns false if it is inconsistent. */
static bool snapshot(__s64 sum[3])
{
	memset(sum, 0, 3 * sizeof(*sum));
	for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++) {
		__u64 before = pc_seq(&pc, cpu);

		sum[0] += pc_value(&pc, cpu, ticks);
		sum[1] += pc_value(&pc, cpu, requests);
		sum[2] += pc_value(&pc, cpu, bytes);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (before & PERFCOUNTERS_SEQ_BUSY || pc_seq(&pc, cpu) != before)
			return false;
	}
	return true;
}

static void read_without_system_calls(struct result *r)
{
	__s64 sum[3], last = 0;

	while (!snapshot(sum))
		;
	r->first = sum[0];
	forbid_system_calls();
	while (r->snapshots < SNAPSHOTS || sum[0] < r->first + 10) {
		r->tries++;
		if (!snapshot(sum))
			continue;
		r->snapshots++;
		r->decreases += sum[0] < last || sum[2] != sum[1] * 4096;
		last = sum[0];
	}
	r->last = last;
	_exit(0);
}

int main(void)
{
	struct result *r;
	struct rusage usage;
	int status;
	pid_t pid;

	plan(6);
	load_modules("");
	bail_on_error(insmod("sample_c", "period_us=1000"), "insmod sample_c");
	pc_open(&pc);
	ticks = pc_find(&pc, "sample_c/ticks");
	requests = pc_find(&pc, "sample_c/requests");
	bytes = pc_find(&pc, "sample_c/bytes");
	r = map_memory(4096, MAP_SHARED);

	is(in_child({
		forbid_system_calls();
		getppid();
	}), -SIGSYS, "0.15 seccomp filter: a process is killed by SIGSYS at its first system call");

	pid = fork_child(read_without_system_calls(r));
	wait4(pid, &status, 0, &usage);
	note("%llu snapshots of %llu tries, %lld ticks meanwhile", (unsigned long long)r->snapshots,
	     (unsigned long long)r->tries, (long long)(r->last - r->first));
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "0.15 reader under the seccomp filter: exits with status 0");
	ok(r->snapshots >= SNAPSHOTS,
	   "0.15 reader under the seccomp filter: takes %d snapshots", SNAPSHOTS);
	ok(r->last >= r->first + 10,
	   "0.15 reader under the seccomp filter: the counter increases meanwhile");
	is(r->decreases, 0, "0.15 reader under the seccomp filter: every snapshot is consistent");
	ok(usage.ru_nvcsw < 20,
	   "0.15 reader under the seccomp filter: fewer than 20 voluntary context switches");
	return finish();
}
