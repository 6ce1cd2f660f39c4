// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Permissions of the files of accounting: CAP_PERFMON gives access, and the user id of root does
 * not. Each operation is tried by a user without capabilities, by root without capabilities, and by
 * a user whose only capability is CAP_PERFMON. A program with CAP_PERFMON, such as a set-user-ID
 * program, cannot write through a file that was opened without CAP_PERFMON.
 */
#include "capabilities.h"
#include "memory.h"
#include "ppa.h"
#include <sys/stat.h>

#define USER	1000
#define RAWSYSPPA	"/proc/rawsysppa"
#define PPACTL	"/proc/ppa/ppactl"

static int target;

static const char *target_path(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/ppa/%d/%s", target, name);
	return path;
}

static int try_read(const char *path)
{
	char bytes[sizeof(struct ppa_task)];
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = read(fd, bytes, sizeof(bytes)) < 0 ? -errno : 0;
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

	return ppa_get_task(ppa_open(), pid, &task);
}

static int get_own(void) { return get_task(getpid()); }
static int get_target(void) { return get_task(target); }
static int read_tasks(void) { return try_read("/dev/ppa"); }
static int read_cpus(void) { return try_read(RAWSYSPPA); }
static int read_settings(void) { return try_read(SETTINGS); }
static int write_settings(void) { return try_write_file(SETTINGS, "1 0 0 1"); }
static int read_levels(void) { return try_read(LEVELS); }
static int write_levels(void) { return try_write_file(LEVELS, "15"); }
static int read_ppactl(void) { return try_read(PPACTL); }
static int read_task_text(void) { return try_read(target_path("ppa")); }
static int read_task_raw(void) { return try_read(target_path("rawppa")); }
static int read_task_ppactl(void) { return try_read(target_path("ppactl")); }
static int write_task_ppactl(void) { return try_write_file(target_path("ppactl"), "1 0 0 1"); }
static int write_user_kb(void) { return try_write_file(USER_KB, "0"); }

static int write_ppactl(void)
{
	return try_write_file(PPACTL, format_text("%d 1 0 0 1", target));
}

static int write_all(void) { return try_write_file(PPACTL, "0 1 0 0 1"); }

/*
 * Operations, each with its expected results: for a user without capabilities, for root without
 * capabilities, and for a user with CAP_PERFMON.
 */
static const struct {
	const char *name;
	int (*run)(void);
	int want[3];
} operations[] = {
	{ "PPA_GETINFO", get_info, { 0, 0, 0 } },
	{ "PPA_GETTASK of the caller", get_own, { 0, 0, 0 } },
	{ "PPA_GETTASK of a task of root", get_target, { -EPERM, -EPERM, 0 } },
	{ "read of /dev/ppa", read_tasks, { -EACCES, -EACCES, 0 } },
	{ "read of rawsysppa", read_cpus, { -EPERM, -EPERM, 0 } },
	{ "read of kernel/ppa", read_settings, { 0, 0, 0 } },
	{ "write of kernel/ppa", write_settings, { -EACCES, -EPERM, -EACCES } },
	{ "read of kernel/ppa_levels", read_levels, { 0, 0, 0 } },
	{ "write of kernel/ppa_levels", write_levels, { -EACCES, -EPERM, -EACCES } },
	{ "read of ppa/ppactl", read_ppactl, { -EPERM, -EPERM, 0 } },
	{ "write of ppa/ppactl", write_ppactl, { -EPERM, -EPERM, 0 } },
	{ "write of ppa/ppactl for all tasks", write_all, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/ppa of a task of root", read_task_text, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/rawppa of a task of root", read_task_raw, { -EPERM, -EPERM, 0 } },
	{ "read of ppa/PID/ppactl of a task of root", read_task_ppactl, { -EPERM, -EPERM, 0 } },
	{ "write of ppa/PID/ppactl of a task of root", write_task_ppactl, { -EPERM, -EPERM, 0 } },
	/* The file of the module parameter user_kb belongs to root, so other users get EACCES. */
	{ "write of user_kb", write_user_kb, { -EACCES, -EPERM, -EACCES } },
};

static void set_effective(bool on)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	bail_if(syscall(SYS_capget, &header, data), "capget");
	for (int i = 0; i < 2; i++)
		data[i].effective = on ? data[i].permitted : 0;
	bail_if(syscall(SYS_capset, &header, data), "capset");
}

/* Opens the file without capabilities. Returns the error of write(), or of open(). */
static int write_after_open(const char *path, const char *text)
{
	int fd, rc;

	set_effective(false);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	rc = fd < 0 ? -errno : 0;
	set_effective(true);
	if (fd < 0)
		return rc;
	rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/*
 * Opens the file and reads its first byte with all capabilities. Returns the errno of the next read
 * of the open file, by a user without capabilities.
 */
static int errno_of_next_read(const char *path)
{
	char bytes[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = -1;

	if (fd >= 0 && read(fd, bytes, 1) == 1)
		rc = in_child({
			switch_user(USER, -1);
			_exit(read(fd, bytes, sizeof(bytes)) < 0 ? errno : 0);
		});
	close(fd);
	return rc;
}

/* seq_file keeps what a read of a part of a file has not returned. */
static void test_partial_reads(void)
{
	is(errno_of_next_read(RAWSYSPPA), EPERM,
	   "9.3 rawsysppa, a part was read with CAP_PERFMON: the next read without it is EPERM");
	is(errno_of_next_read(PPACTL), EPERM,
	   "9.3 ppa/ppactl, a part was read with CAP_PERFMON: the next read without it is EPERM");
	is(errno_of_next_read(target_path("ppa")), EPERM,
	   "9.3 ppa/PID/ppa, a part was read with CAP_PERFMON: the next read without it is EPERM");
	is(errno_of_next_read(target_path("rawppa")), EPERM,
	   "9.3 ppa/PID/rawppa, a part was read with CAP_PERFMON: the next read without it is EPERM");
	is(errno_of_next_read(target_path("ppactl")), EPERM,
	   "9.3 ppa/PID/ppactl, a part was read with CAP_PERFMON: the next read without it is EPERM");
}

static void test_opener(void)
{
	struct stat st;

	is(write_after_open(PPACTL, format_text("%d 1 0 0 1", target)), -EPERM,
	   "9.3 ppa/ppactl opened without CAP_PERFMON: a write with it is EPERM");
	is(write_after_open(PPACTL, "0 1 0 0 1"), -EPERM,
	   "9.3 ppa/ppactl opened without CAP_PERFMON: a write for all tasks is EPERM");
	is(write_after_open(target_path("ppactl"), "1 0 0 1"), -EPERM,
	   "9.3 ppa/PID/ppactl opened without CAP_PERFMON: a write with it is EPERM");
	ok(!stat(SETTINGS, &st) && (st.st_mode & 0777) == 0644,
	   "9.3 kernel/ppa: only root can open it for writing");
	ok(!stat(LEVELS, &st) && (st.st_mode & 0777) == 0644,
	   "9.3 kernel/ppa_levels: only root can open it for writing");
	is(try_write_file(SETTINGS, "1 0 0 1 : text"), -EINVAL,
	   "9.3 kernel/ppa: four numbers with a text after them are EINVAL");
	is(try_write_file(LEVELS, "15 : text"), -EINVAL,
	   "9.3 kernel/ppa_levels: a number with a text after it is EINVAL");
}

static void try_all(const char *caller_name, int user, int capability, int caller)
{
	int *results = map_memory(4096, MAP_SHARED);

	in_child({
		if (user)
			switch_user(user, capability);
		else
			drop_capabilities_except(capability);
		for (unsigned int i = 0; i < ARRAY_SIZE(operations); i++)
			results[i] = operations[i].run();
	});
	for (unsigned int i = 0; i < ARRAY_SIZE(operations); i++) {
		int want = operations[i].want[caller];

		is(results[i], want, "9.3 %s: %s %s", caller_name, operations[i].name,
		   want == -EPERM ? "is EPERM" : want == -EACCES ? "is EACCES" : "succeeds");
	}
	munmap(results, 4096);
}

int main(void)
{
	plan(3 * ARRAY_SIZE(operations) + 7 + 5);
	unload_modules();
	insmod_each("perfcounters ppa");
	target = fork_sleeper();
	bail_if(ppa_write(SETTINGS, "1 0 0 1") || write_ppactl(), "accounting");
	try_all("user without capabilities", USER, -1, 0);
	try_all("root without capabilities", 0, -1, 1);
	try_all("user with CAP_PERFMON", USER, CAP_PERFMON, 2);
	test_opener();
	test_partial_reads();
	kill_child(target);
	ppa_write(SETTINGS, "0 0 0 1");
	unload_modules();
	return finish();
}
