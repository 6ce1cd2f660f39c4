// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 60
 *
 * The text of an open /dev/perfcounters_names is charged to the user who opens the file, up to the
 * limit user_kb.
 */
#include "memory.h"
#include <sys/stat.h>

#define NAMES	"/dev/perfcounters_names"
#define NR_NAMES 1000
#define USER	1000
#define NR_FILES 8

/* Shared with the child that opens the files. */
struct report {
	volatile int done, nr_open, error;
};

static struct report *report;

/* Opens the file NR_FILES times, or until an error, as a user without privileges. */
__attribute__((noreturn))
static void open_as_user(void)
{
	if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
		bail("setresuid");
	for (int i = 0; i < NR_FILES && !report->error; i++) {
		if (open(NAMES, O_RDONLY | O_CLOEXEC) < 0)
			report->error = errno;
		else
			report->nr_open++;
	}
	report->done = 1;
	pause();
	_exit(0);
}

static pid_t fork_user(void)
{
	pid_t child;

	memset(report, 0, sizeof(*report));
	child = fork();
	if (!child)
		open_as_user();
	wait_until(report->done);
	return child;
}

static void test_user(void)
{
	static char text[1 << 20];
	long long size = strlen(read_file(NAMES, text, sizeof(text)));
	pid_t child;
	__u64 bytes;

	chmod(NAMES, 0444);
	child = fork_user();
	bytes = charged_bytes(USER);
	note("%d open files of %lld bytes: %llu bytes are charged", report->nr_open, size, bytes);
	ok(report->nr_open == NR_FILES && (long long)bytes >= NR_FILES * size &&
	   (long long)bytes < NR_FILES * (size + 2 * getpagesize()),
	   "9.1 names: the text of each open file is charged to the user");
	kill_child(child);
	ok(nothing_charged(), "9.1 names: nothing is charged when the files are closed");
	/* Memory for the texts of three and a half files. */
	set_user_kb(7 * size / 2048);
	child = fork_user();
	is(report->error, EDQUOT, "9.1 user_kb: the names cannot be opened beyond the limit");
	is(report->nr_open, 3, "9.1 user_kb: the names can be opened up to the limit");
	kill_child(child);
	set_user_kb(0);
}

int main(void)
{
	plan(4);
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	load_modules("");
	for (int i = 0; i < NR_NAMES; i++)
		driver_cmd("add charged/%0100d", i);
	test_user();
	return finish();
}
