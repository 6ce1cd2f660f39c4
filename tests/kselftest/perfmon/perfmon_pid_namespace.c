// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake
 * timeout: 60
 *
 * The process and thread IDs in samples, messages and registers are IDs of the PID namespace of the
 * process that created the context.
 */
#include "sampling.h"

#define SIZE	65536

struct reported_ids {
	__u32 pid, tgid, message, value;
	int mine;
	bool there;
};

/* Samples process @target, or the caller if @target is 0. */
static void report_ids(struct reported_ids *ids, pid_t target)
{
	int fd = pfm_create_default(0, SIZE);
	const struct pfm_dfl_smpl_hdr *hdr;
	const struct pfm_dfl_smpl_entry *entry;
	struct pfarg_ovfl_msg msg;

	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	pfm_period(fd, 0, 100000, PFM_REGFL_OVFL_NOTIFY);
	pfm_write_pmd(fd, PERFMON_TID, 0);
	bail_if(pfm_load(fd, target ?: (pid_t)this_thread()), "load");
	pfm_start(fd);
	spin(10000000);
	wait_until(((hdr = pfm_map_default(fd, SIZE)), hdr->hdr_count > 0));
	entry = (const void *)(hdr + 1);
	ids->pid = entry->pid;
	ids->tgid = entry->tgid;
	ids->there = true;
	ids->value = pfm_read_pmd(fd, PERFMON_TID);
	ids->mine = getpid();
	/* Spins until the buffer is full. A full buffer queues a message. */
	if (!target)
		while (!pfm_read_message(fd, &msg, 0))
			spin(1000000);
	else
		pfm_read_message(fd, &msg, 60000);
	ids->message = msg.msg_ovfl_pid;
	close(fd);
}

int main(void)
{
	struct reported_ids *ids = map_memory(4096, MAP_SHARED);

	plan(8);
	load_sampling_modules(SKYLAKE);
	pfm_set_limits("0", "0");
	report_ids(ids, 0);
	is(ids->tgid, getpid(), "9.6 initial PID namespace: a sample has the process ID");
	is(ids->message, getpid(),
	   "9.6 initial PID namespace: an overflow message has the process ID");
	in_child({
		exit_if(unshare(CLONE_NEWPID), 1);
		in_child(report_ids(&ids[1], 0));
	});
	is(ids[1].mine, 1, "9.6 the first process of a new PID namespace has ID 1 there");
	ok(ids[1].there && ids[1].pid == 1 && ids[1].tgid == 1,
	   "9.6 new PID namespace: samples of its first process have IDs 1 and 1");
	is(ids[1].message, 1, "9.6 new PID namespace: messages about its first process have ID 1");
	is(ids[1].value, 1, "9.6 new PID namespace: PERFMON_TID of its first process is 1");
	bail_if(in_child({
		pid_t inner;

		exit_if(unshare(CLONE_NEWPID), 1);
		inner = fork_child({
			for (;;)
				spin(1000);
		});
		report_ids(&ids[2], inner);
		kill_child(inner);
		ids[2].mine = inner;
	}), "a child");
	is(ids[2].tgid, ids[2].mine,
	   "9.6 context created outside: samples have the process ID of the outer namespace");
	is(ids[2].message, ids[2].mine,
	   "9.6 context created outside: messages have the process ID of the outer namespace");
	return finish();
}
