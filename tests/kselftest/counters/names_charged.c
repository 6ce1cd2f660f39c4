// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 60
 *
 * The text of an open /dev/perfcounters_names is charged to the user who first reads the file, up
 * to the limit user_kb.
 */
#include "memory.h"
#include <sys/stat.h>

#define NAMES	"/dev/perfcounters_names"
#define NR_NAMES 1000
#define USER	1000
#define NR_FILES 8

struct report {
	volatile int done, nr_read, error;
};

static struct report *report;

/* Opens the file and reads its first byte. Returns 0 or an errno. */
static int open_and_read(void)
{
	int fd = open(NAMES, O_RDONLY | O_CLOEXEC);
	char byte;

	return fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : errno;
}

/* Reads NR_FILES files, or until an error, as a user without privileges. */
__attribute__((noreturn))
static void read_as_user(void)
{
	bail_if(setresgid(USER, USER, USER) || setresuid(USER, USER, USER), "setresuid");
	for (int i = 0; i < NR_FILES && !report->error; i++) {
		report->error = open_and_read();
		report->nr_read += !report->error;
	}
	report->done = 1;
	pause();
	_exit(0);
}

static pid_t fork_user(void)
{
	pid_t child;

	memset(report, 0, sizeof(*report));
	child = fork_child(read_as_user());
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
	note("%d open files of %lld bytes: %llu bytes are charged", report->nr_read, size, bytes);
	ok(report->nr_read == NR_FILES && (long long)bytes >= NR_FILES * size &&
	   (long long)bytes < NR_FILES * (size + 2 * getpagesize()),
	   "9.1 names: the text of each open file is charged to the user");
	kill_child(child);
	ok(nothing_charged(), "9.1 names: nothing is charged when the files are closed");
	/* The limit is enough for the texts of three and a half files. */
	set_user_kb(7 * size / 2048);
	child = fork_user();
	is(report->error, EDQUOT, "9.1 user_kb: reading the names beyond the limit is EDQUOT");
	is(report->nr_read, 3, "9.1 user_kb: the names can be read up to the limit");
	kill_child(child);
	set_user_kb(0);
}

int main(void)
{
	plan(4);
	report = map_memory(sizeof(*report), MAP_SHARED);
	load_modules("");
	for (int i = 0; i < NR_NAMES; i++)
		driver_cmd("add charged/%0100d", i);
	test_user();
	return finish();
}
