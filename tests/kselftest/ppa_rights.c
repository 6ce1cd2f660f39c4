// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 120
 *
 * Permissions of the files of accounting: CAP_PERFMON decides, and not the user id. Each operation
 * is tried by a user without capabilities, by root without capabilities, and by a user whose only
 * capability is CAP_PERFMON.
 */
#include "capabilities.h"
#include "memory.h"
#include "ppa.h"

#define USER	1000
#define CPUS	"/proc/rawsysppa"
#define ENTRIES	"/proc/ppa/ppactl"

static int other;

static const char *of_other(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/ppa/%d/%s", other, name);
	return path;
}

static int read_of(const char *path)
{
	char bytes[sizeof(struct ppa_task)];
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = read(fd, bytes, sizeof(bytes)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int write_of(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int get_info(void)
{
	struct ppa_info info;
	int fd = open("/dev/ppa", O_RDONLY | O_CLOEXEC);

	return fd < 0 || ioctl(fd, PPA_GETINFO, &info) ? -errno : 0;
}

static int get_task(int pid)
{
	struct ppa_task task;

	return ppa_try(ppa_open(), pid, &task);
}

static int get_own(void) { return get_task(getpid()); }
static int get_other(void) { return get_task(other); }
static int read_all(void) { return read_of("/dev/ppa"); }
static int read_cpus(void) { return read_of(CPUS); }
static int read_settings(void) { return read_of(SETTINGS); }
static int write_settings(void) { return write_of(SETTINGS, "1 0 0 1"); }
static int read_levels(void) { return read_of(LEVELS); }
static int write_levels(void) { return write_of(LEVELS, "15"); }
static int read_entries(void) { return read_of(ENTRIES); }
static int read_text(void) { return read_of(of_other("ppa")); }
static int read_raw(void) { return read_of(of_other("rawppa")); }
static int read_control(void) { return read_of(of_other("ppactl")); }
static int write_control(void) { return write_of(of_other("ppactl"), "1 0 0 1"); }
static int write_limit(void) { return write_of(USER_KB, "0"); }

static int write_entries(void)
{
	char text[32];

	snprintf(text, sizeof(text), "%d 1 0 0 1", other);
	return write_of(ENTRIES, text);
}

/* Results for a user and for root without capabilities, and for a user with CAP_PERFMON. */
static const struct {
	const char *what;
	int (*run)(void);
	int want[3];
} operations[] = {
	{ "PPA_GETINFO", get_info, { 0, 0, 0 } },
	{ "PPA_GETTASK of the caller", get_own, { 0, 0, 0 } },
	{ "PPA_GETTASK of a task of root", get_other, { -EPERM, -EPERM, 0 } },
	{ "read of /dev/ppa", read_all, { -EACCES, -EACCES, 0 } },
	{ "read of rawsysppa", read_cpus, { -EPERM, -EPERM, 0 } },
	{ "read of kernel/ppa", read_settings, { 0, 0, 0 } },
	{ "write of kernel/ppa", write_settings, { -EPERM, -EPERM, 0 } },
	{ "read of kernel/ppa_levels", read_levels, { 0, 0, 0 } },
	{ "write of kernel/ppa_levels", write_levels, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/ppactl", read_entries, { -EPERM, -EPERM, 0 } },
	{ "write of ppa/ppactl", write_entries, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/ppa of a task of root", read_text, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/rawppa of a task of root", read_raw, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/ppactl of a task of root", read_control, { -EPERM, -EPERM, 0 } },
	{ "write of ppa/PID/ppactl of a task of root", write_control, { -EPERM, -EPERM, 0 } },
	/* The kernel refuses to give a parameter to users other than root. */
	{ "write of user_kb", write_limit, { -EACCES, -EPERM, -EACCES } },
};

#define NR	(sizeof(operations) / sizeof(operations[0]))

static void check(const char *who, int user, int capability, int caller)
{
	int *results = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		if (user)
			become_user(user, capability);
		else
			keep(capability);
		for (unsigned int i = 0; i < NR; i++)
			results[i] = operations[i].run();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	for (unsigned int i = 0; i < NR; i++) {
		int want = operations[i].want[caller];

		is(results[i], want, "9.3 %s: %s %s", who, operations[i].what,
		   want == -EPERM ? "is EPERM" : want == -EACCES ? "is EACCES" : "succeeds");
	}
	munmap(results, 4096);
}

int main(void)
{
	plan(3 * NR);
	unload();
	insmod("perfcounters", "");
	fflush(stdout);
	other = fork();
	if (!other)
		for (;;)
			pause();
	if (ppa_write(SETTINGS, "1 0 0 1") || write_entries())
		bail("accounting");
	check("user without capabilities", USER, -1, 0);
	check("root without capabilities", 0, -1, 1);
	check("user with CAP_PERFMON", USER, CAP_PERFMON, 2);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	ppa_write(SETTINGS, "0 0 0 1");
	rmmod("perfcounters");
	return finish();
}
