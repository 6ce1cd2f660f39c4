/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers that start, watch and end child processes, and that take CPUs online or offline. */
#ifndef KSELFTEST_PROCESS_H
#define KSELFTEST_PROCESS_H

#include "kselftest_pc.h"

/*
 * Returns the state from /proc/PID/stat, such as 'R', 'S' or 'T'; '?' if the task does not exist.
 */
static char task_state(pid_t pid)
{
	char text[200], *comm_end;

	/* The task's name is in parentheses, and can itself contain parentheses and blanks. */
	comm_end = strrchr(read_file(format_text("/proc/%d/stat", pid), text, sizeof(text)), ')');
	return comm_end ? comm_end[2] : '?';
}

/* Returns the number of voluntary context switches from /proc/PID/status; -1 if not found. */
static long long voluntary_switches(pid_t pid)
{
	char text[4096], *line;
	long long n = -1;

	read_file(format_text("/proc/%d/status", pid), text, sizeof(text));
	line = strstr(text, "\nvoluntary_ctxt_switches:");
	if (line)
		sscanf(line, "\nvoluntary_ctxt_switches: %lld", &n);
	return n;
}

/* Takes a CPU online or offline. Returns true on success. */
static bool set_cpu_online(int cpu, bool on)
{
	return !try_write_file(format_text("/sys/devices/system/cpu/cpu%d/online", cpu),
			       on ? "1" : "0");
}

/* Ends this process, which is a child of the test, with exit status @status if @failed is true. */
static inline void exit_if(bool failed, int status)
{
	if (failed)
		_exit(status);
}

__attribute__((noreturn))
static inline void pause_forever(void)
{
	for (;;)
		pause();
}

/* Runs statements in a child process, which then exits with status 0. The value is its pid. */
#define fork_child(...) ({						\
	pid_t pid_ = fork();						\
									\
	bail_if(pid_ < 0, "fork");					\
	if (!pid_) {							\
		__VA_ARGS__;						\
		_exit(0);						\
	}								\
	pid_;								\
})

/* Returns the exit status, -signal, or 255 if this process has no such child. */
static int wait_child(pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Runs statements in a child process, and waits until the child ends. See wait_child(). */
#define in_child(...)	wait_child(fork_child(__VA_ARGS__))

/* Returns the exit status, a mask of good results, or 0 if the child did not exit by itself. */
static inline int wait_results(pid_t pid)
{
	int status = wait_child(pid);

	return status > 0 && status < 255 ? status : 0;
}

static inline pid_t fork_sleeper(void)
{
	return fork_child(pause_forever());
}

static inline void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
