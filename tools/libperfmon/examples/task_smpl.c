// SPDX-License-Identifier: GPL-2.0
/*
 * Samples a command with the calls and structures that programs for perfmon2 use. After each PERIOD
 * instructions the kernel writes an entry into the buffer of the default format; when the buffer is
 * full, the kernel queues a message. Each entry has the number of cycles of its sampling period.
 *
 * Usage: task_smpl PERIOD BUFFER-SIZE COMMAND [ARGUMENT...]
 */
#include "events.h"
#include <errno.h>
#include <inttypes.h>
#include <perfmon/perfmon_dfl_smpl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Total numbers: entries, cycles, overflow messages, and unexpected entries or messages. */
static uint64_t entries, cycles, messages, others;
static uint64_t lowest = -1, highest;

/*
 * Processes all entries of the buffer. Behind each entry is the value of one PMD (data register).
 */
static void process_smpl_buf(const pfm_dfl_smpl_hdr_t *hdr, pid_t tid, uint64_t period)
{
	const size_t entry_size = sizeof(pfm_dfl_smpl_entry_t) + sizeof(uint64_t);
	const char *pos = (const char *)(hdr + 1);
	static uint64_t last_time, last_overflows = -1, last_count = -1;
	uint64_t count;

	/*
	 * If the buffer has not changed since the last message, the thread ended before the context
	 * was restarted.
	 */
	if (hdr->hdr_overflows == last_overflows && hdr->hdr_count == last_count)
		return;
	last_overflows = hdr->hdr_overflows;
	last_count = hdr->hdr_count;
	for (count = hdr->hdr_count; count; count--, pos += entry_size) {
		const pfm_dfl_smpl_entry_t *ent = (const pfm_dfl_smpl_entry_t *)pos;

		if ((pid_t)ent->pid != tid || (pid_t)ent->tgid != tid || ent->ovfl_pmd ||
		    ent->set || ent->last_reset_val != -period || ent->tstamp < last_time)
			others++;
		last_time = ent->tstamp;
		if (ent->ip < lowest)
			lowest = ent->ip;
		if (ent->ip > highest)
			highest = ent->ip;
		cycles += *(const uint64_t *)(ent + 1);
		entries++;
	}
}

static int new_sampling_context(uint64_t period, size_t size, const pfm_dfl_smpl_hdr_t **hdr)
{
	pfm_dfl_smpl_arg_t arg;
	pfarg_ctx_t ctx;
	pfarg_pmc_t pmcs[2];
	pfarg_pmd_t pmds[2];
	void *buf;
	int fd;

	memset(&ctx, 0, sizeof(ctx));
	memset(&arg, 0, sizeof(arg));
	memset(pmcs, 0, sizeof(pmcs));
	memset(pmds, 0, sizeof(pmds));
	arg.buf_size = size;
	fd = pfm_create_context(&ctx, (char *)PFM_DFL_SMPL_NAME, &arg, sizeof(arg));
	if (fd < 0)
		err(1, "pfm_create_context");
	buf = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (buf == MAP_FAILED)
		err(1, "mmap of the buffer");
	*hdr = buf;
	if ((*hdr)->hdr_version >> 16 != PFM_DFL_SMPL_VERSION >> 16)
		errx(1, "the buffer has version %#x", (*hdr)->hdr_version);

	pmcs[0].reg_num = 0;
	pmcs[0].reg_value = 0xc0 | COUNT_USER | COUNTER_ENABLE;
	pmcs[1].reg_num = 1;
	pmcs[1].reg_value = (is_amd() ? 0x76 : 0x3c) | COUNT_USER | COUNTER_ENABLE;
	if (pfm_write_pmcs(fd, pmcs, 2))
		err(1, "pfm_write_pmcs");
	pmds[0].reg_num = 0;
	pmds[0].reg_flags = PFM_REGFL_OVFL_NOTIFY;
	pmds[0].reg_value = -period;
	pmds[0].reg_long_reset = -period;
	pmds[0].reg_short_reset = -period;
	pmds[0].reg_smpl_pmds[0] = 1 << 1;
	pmds[0].reg_reset_pmds[0] = 1 << 1;
	pmds[1].reg_num = 1;
	if (pfm_write_pmds(fd, pmds, 2))
		err(1, "pfm_write_pmds");
	return fd;
}

static pid_t start_stopped(char **command)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			err(127, "ptrace");
		execvp(command[0], command);
		err(127, "%s", command[0]);
	}
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid");
	if (!WIFSTOPPED(status))
		exit(127);
	return pid;
}

int main(int argc, char **argv)
{
	const pfm_dfl_smpl_hdr_t *hdr;
	uint64_t period;
	pfarg_msg_t msg;
	int fd, status;
	pid_t pid;

	if (argc < 4)
		errx(2, "usage: task_smpl PERIOD BUFFER-SIZE COMMAND [ARGUMENT...]");
	period = strtoull(argv[1], NULL, 0);
	fd = new_sampling_context(period, strtoull(argv[2], NULL, 0), &hdr);
	pid = start_stopped(argv + 3);
	attach(fd, pid);
	if (pfm_start(fd, NULL))
		err(1, "pfm_start");
	if (ptrace(PTRACE_DETACH, pid, NULL, NULL))
		err(1, "ptrace");
	for (;;) {
		ssize_t len = read(fd, &msg, sizeof(msg));

		if (len < 0 && errno == EINTR)
			continue;
		if (len != sizeof(msg))
			err(1, "read of a message");
		if (msg.type == PFM_MSG_END)
			break;
		if (msg.type != PFM_MSG_OVFL)
			errx(1, "a message of type %u", msg.type);
		messages++;
		if ((pid_t)msg.pfm_ovfl_msg.msg_ovfl_tid != pid ||
		    msg.pfm_ovfl_msg.msg_ovfl_pmds[0] != 1)
			others++;
		process_smpl_buf(hdr, pid, period);
		/*
		 * If the thread has ended since it sent the message, pfm_restart() fails with EBUSY
		 * or ESRCH. No samples are lost by this failure of pfm_restart(), because all
		 * entries of the buffer have been processed.
		 */
		if (pfm_restart(fd) && errno != EBUSY && errno != ESRCH)
			err(1, "pfm_restart");
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	process_smpl_buf(hdr, pid, period);
	printf("%20" PRIu64 " entries\n", entries);
	printf("%20" PRIu64 " full\n", messages);
	printf("%20" PRIu64 " overflows\n", (uint64_t)hdr->hdr_overflows);
	printf("%20" PRIu64 " others\n", others);
	printf("%20" PRIu64 " cycles\n", cycles);
	printf("from %#" PRIx64 " to %#" PRIx64 "\n", lowest, highest);
	close(fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
