// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake
 * timeout: 60
 *
 * Process and thread IDs in samples, messages and registers are those of the PID namespace of the
 * process that created the context.
 */
#include "sampling.h"
#include <sched.h>

#define SIZE	65536

struct seen {
	__u32 pid, tgid, message, value;
	int mine;
	bool there;
};

/*
 * Samples the given process, or itself if that is 0, and stores the IDs that the context reports.
 */
static void sample(struct seen *seen, pid_t whom)
{
	int fd = pfm_create_default(0, SIZE);
	const struct pfm_dfl_smpl_hdr *hdr;
	const struct pfm_dfl_smpl_entry *entry;
	struct pfarg_ovfl_msg msg;

	pfm_write_pmc(fd, 0, pfm_instructions(SKYLAKE));
	pfm_period(fd, 0, 100000, PFM_REGFL_OVFL_NOTIFY);
	pfm_write_pmd(fd, PERFMON_TID, 0);
	if (pfm_load(fd, whom ?: (pid_t)this_thread()))
		bail("load");
	pfm_start(fd);
	spin(10000000);
	wait_until(((hdr = pfm_map_default(fd, SIZE)), hdr->hdr_count > 0));
	entry = (const void *)(hdr + 1);
	seen->pid = entry->pid;
	seen->tgid = entry->tgid;
	seen->there = true;
	seen->value = pfm_read_pmd(fd, PERFMON_TID);
	seen->mine = getpid();
	/* Spins until the buffer is full, which queues a message. */
	if (!whom)
		while (!pfm_read_message(fd, &msg, 0))
			spin(1000000);
	else
		pfm_read_message(fd, &msg, 60000);
	seen->message = msg.msg_ovfl_pid;
	close(fd);
}

int main(void)
{
	struct seen *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				 -1, 0);
	pid_t outer, inner;
	int status;

	plan(8);
	load_sampling_modules(SKYLAKE);
	pfm_set_limits("0", "0");
	sample(seen, 0);
	is(seen->tgid, getpid(), "9.6 initial PID namespace: a sample has the process ID");
	is(seen->message, getpid(),
	   "9.6 initial PID namespace: an overflow message has the process ID");
	outer = fork();
	if (!outer) {
		if (unshare(CLONE_NEWPID))
			_exit(1);
		inner = fork();
		if (!inner) {
			sample(&seen[1], 0);
			_exit(0);
		}
		waitpid(inner, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	waitpid(outer, &status, 0);
	is(seen[1].mine, 1, "9.6 the first process of a new PID namespace has ID 1 there");
	ok(seen[1].there && seen[1].pid == 1 && seen[1].tgid == 1,
	   "9.6 new PID namespace: samples of its first process have IDs 1 and 1");
	is(seen[1].message, 1, "9.6 new PID namespace: messages about its first process have ID 1");
	is(seen[1].value, 1, "9.6 new PID namespace: PERFMON_TID of its first process is 1");
	outer = fork();
	if (!outer) {
		if (unshare(CLONE_NEWPID))
			_exit(1);
		inner = fork();
		if (!inner)
			for (;;)
				spin(1000);
		sample(&seen[2], inner);
		kill(inner, SIGKILL);
		waitpid(inner, &status, 0);
		seen[2].mine = inner;
		_exit(0);
	}
	waitpid(outer, &status, 0);
	is(seen[2].tgid, seen[2].mine,
	   "9.6 context created outside: samples have the process ID of the outer namespace");
	is(seen[2].message, seen[2].mine,
	   "9.6 context created outside: messages have the process ID of the outer namespace");
	return finish();
}
