/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers for tests that run as another user or with a single capability. */
#ifndef KSELFTEST_CAPABILITIES_H
#define KSELFTEST_CAPABILITIES_H

#include "kselftest_pc.h"
#include <grp.h>
#include <sys/prctl.h>
#include <linux/capability.h>
#include <linux/landlock.h>

/* Drops all capabilities of this process except one; -1 drops all. */
static inline void drop_capabilities_except(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (capability >= 0) {
		data[capability / 32].effective = 1u << capability % 32;
		data[capability / 32].permitted = 1u << capability % 32;
	}
	exit_if(syscall(SYS_capset, &header, data), 98);
}

/*
 * Makes this process run as user @user, with one capability or none (-1). The change of the user
 * clears the dumpable flag of the process. switch_user() makes the process dumpable again, like a
 * program that the user has started.
 */
static inline void switch_user(int user, int capability)
{
	prctl(PR_SET_KEEPCAPS, 1);
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
		_exit(97);
	drop_capabilities_except(capability);
	prctl(PR_SET_DUMPABLE, 1);
}

/* Puts this process into a new Landlock domain, which forbids the creation of socket files. */
static inline void enter_landlock_domain(void)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SOCK };
	int ruleset = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	exit_if(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || ruleset < 0 ||
		syscall(SYS_landlock_restrict_self, ruleset, 0), 95);
	close(ruleset);
}

/* @path becomes the path of the namespace, which the returned child keeps alive. */
static inline pid_t create_user_namespace(int user, const char *uid_map, char *path, size_t bytes)
{
	int ready[2];
	pid_t child;
	char byte;

	bail_if(pipe(ready), "pipe");
	fflush(stdout);
	child = fork_child({
		switch_user(user, -1);
		exit_if(unshare(CLONE_NEWUSER) || write(ready[1], "x", 1) != 1, 96);
		pause_forever();
	});
	close(ready[1]);
	bail_if(read(ready[0], &byte, 1) != 1, "a user name space");
	close(ready[0]);
	snprintf(path, bytes, "/proc/%d/uid_map", child);
	write_file(path, uid_map);
	snprintf(path, bytes, "/proc/%d/ns/user", child);
	return child;
}

/* Enters the user namespace at @path, as user @user of that namespace. */
static inline void enter_user_namespace(const char *path, int user)
{
	int ns = open(path, O_RDONLY);

	exit_if(ns < 0 || setns(ns, CLONE_NEWUSER) || setresuid(user, user, user), 95);
	close(ns);
}

#endif
