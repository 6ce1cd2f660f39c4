// SPDX-License-Identifier: GPL-2.0
/*
 * Counts instructions and cycles of a command, from the first instruction of the command to the
 * last. The command is stopped at its exec until the context is attached.
 *
 * Usage: task COMMAND [ARGUMENT...]
 */
#include "events.h"
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

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
	/* The exec failed, and the child has printed the reason. */
	if (!WIFSTOPPED(status))
		exit(127);
	return pid;
}

int main(int argc, char **argv)
{
	int fd, status;
	pid_t pid;

	if (argc < 2)
		errx(2, "usage: task COMMAND [ARGUMENT...]");
	pid = start_stopped(argv + 1);
	fd = new_counting_context(0, COUNT_USER);
	attach(fd, pid);
	if (pfm_start(fd, NULL))
		err(1, "pfm_start");
	if (ptrace(PTRACE_DETACH, pid, NULL, NULL))
		err(1, "ptrace");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* The thread has exited, but its counts can still be read. */
	print_counts(fd, "");
	close(fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
