// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * The text of an open /dev/perfcounters_names is charged to the user who first reads the file, up
 * to the limit user_kb. If the control group of a process is full, reading the file can take
 * seconds. Meanwhile other processes can open the devices of perfcounters.ko.
 */
#include "memory.h"
#include <sys/mount.h>
#include <sys/stat.h>

#define NAMES	"/dev/perfcounters_names"
#define NR_NAMES 1000
#define USER	1000
#define NR_FILES 8
#define CGROUPS	"/tmp/cgroups"
#define CGROUP	CGROUPS "/names"

/* Number of names whose text is larger than the memory that the kernel charges at once. */
#define NR_NAMES_FULL 4000

/* Shared with the child that reads the files. */
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
	if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
		bail("setresuid");
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
	child = fork();
	if (!child)
		read_as_user();
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
	/* Memory for the texts of three and a half files. */
	set_user_kb(7 * size / 2048);
	child = fork_user();
	is(report->error, EDQUOT, "9.1 user_kb: reading the names beyond the limit is EDQUOT");
	is(report->nr_read, 3, "9.1 user_kb: the names can be read up to the limit");
	kill_child(child);
	set_user_kb(0);
}

static void remove_cgroup(void)
{
	rmdir(CGROUP);
	umount2(CGROUPS, MNT_DETACH);
}

/*
 * Runs in a child: joins the control group with 2 MiB of memory, and reads the names of new files
 * when the parent has lowered the limit of the control group.
 */
__attribute__((noreturn))
static void read_in_full_group(void)
{
	size_t size = 2 << 20;
	char *memory;

	write_file(CGROUP "/cgroup.procs", "0");
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(memory, 1, size);
	report->done = 1;
	wait_until(!report->done);
	while (!open_and_read())
		report->nr_read++;
	_exit(1);
}

/*
 * Opens /dev/perfcounters again and again for @seconds. Returns the longest time of an open(), in
 * milliseconds.
 */
static long long max_open_ms(int seconds)
{
	__u64 end = now_ns() + seconds * 1000000000ULL, max = 0;

	while (now_ns() < end) {
		__u64 before = now_ns(), time;

		close(open("/dev/perfcounters", O_RDONLY | O_CLOEXEC));
		time = now_ns() - before;
		max = time > max ? time : max;
		sleep_ms(1);
	}
	return max / 1000000;
}

static void test_full_group(void)
{
	long long ms;
	pid_t child;

	mkdir(CGROUPS, 0755);
	if (mount("cgroups", CGROUPS, "cgroup2", 0, NULL))
		bail("mount of cgroup2");
	atexit(remove_cgroup);
	write_file(CGROUPS "/cgroup.subtree_control", "+memory");
	mkdir(CGROUP, 0755);
	for (int i = NR_NAMES; i < NR_NAMES_FULL; i++)
		driver_cmd("add charged/%0100d", i);
	memset(report, 0, sizeof(*report));
	child = fork();
	if (!child)
		read_in_full_group();
	wait_until(report->done);
	/* Beyond memory.high, each large allocation sleeps for up to 2 seconds. */
	write_file(CGROUP "/memory.high", "1M");
	report->done = 0;
	ms = max_open_ms(gate_or_long(3, 8));
	note("%d texts were read; the longest open() took %lld ms", report->nr_read, ms);
	ok(ms < 1000, "9.2 names: open() does not wait for a reader in a full control group");
	kill_child(child);
}

int main(void)
{
	plan(5);
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	load_modules("");
	for (int i = 0; i < NR_NAMES; i++)
		driver_cmd("add charged/%0100d", i);
	test_user();
	test_full_group();
	return finish();
}
