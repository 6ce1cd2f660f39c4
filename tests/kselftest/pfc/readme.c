// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the example program that counter-pages.md quotes. The program prints lines, each with a
 * name and a value. This file includes the source of the program, so main() is the program's
 * main(). The test runs in a constructor, before main(), and executes itself again to run the
 * program.
 */
#include "kselftest_pc.h"
#include "readme/reader.c"

static char text[65536];

/* Runs the example program as a child and stores its output in @text. Returns the wait status. */
static int run_reader(void)
{
	int fds[2], status;
	size_t len = 0;
	ssize_t got;
	pid_t pid;

	bail_if(pipe2(fds, O_CLOEXEC), "pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDOUT_FILENO);
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		setenv("README_READER", "1", 1);
		execl("/proc/self/exe", "reader", NULL);
		_exit(2);
	}
	close(fds[1]);
	while ((got = read(fds[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += got;
	text[len] = '\0';
	close(fds[0]);
	waitpid(pid, &status, 0);
	return status;
}

static const char *skip_builtin(void)
{
	const char *line = text;

	while (!strncmp(line, "perfcounters/", 13) && strchr(line, '\n'))
		line = strchr(line, '\n') + 1;
	return line;
}

__attribute__((constructor)) static void test(void)
{
	__u32 a, b, dormant;

	if (getenv("README_READER"))
		return;
	plan(8);
	unload_modules();
	is(run_reader(), 1 << 8,
	   "0.3 reader of counter-pages.md, perfcounters.ko not loaded: status 1");
	load_modules("");
	is(run_reader(), 0, "0.3 reader of counter-pages.md without drivers: exit status 0");
	ok(*text && !*skip_builtin(),
	   "0.3 reader of counter-pages.md without drivers: prints the module's own instances only");
	a = driver_cmd("add readme/a");
	b = driver_cmd("add readme/b");
	dormant = driver_cmd("add readme/gone");
	for (int i = 0; i < 600; i++)
		driver_cmd("add readme/%d", i);
	pin_to_cpu(0);
	driver_cmd("adjust %u 40", a);
	driver_cmd("adjust %u -1", b);
	pin_to_cpu(1);
	driver_cmd("adjust %u 2", a);
	driver_cmd("del %u", dormant);
	is(run_reader(), 0, "0.3 reader of counter-pages.md with 602 instances: exit status 0");
	ok(!strncmp(skip_builtin(), "readme/a 42\nreadme/b -1\nreadme/0 0\n", 35),
	   "0.3 reader of counter-pages.md: prints the name and the total over all CPUs");
	ok(strstr(text, "\nreadme/599 0\n"),
	   "0.3 reader of counter-pages.md: prints the last instance, in the second chunk");
	ok(!strstr(text, "readme/gone"),
	   "0.3 reader of counter-pages.md: leaves out dormant instances");
	driver_cmd("adjust %u 8", a);
	run_reader();
	ok(!strncmp(skip_builtin(), "readme/a 50\n", 12),
	   "0.3 reader of counter-pages.md: a second run prints the new total");
	exit(finish());
}
