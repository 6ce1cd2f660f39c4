/* SPDX-License-Identifier: GPL-2.0 */
/* Reads the kernel's memory statistics, for tests that check that memory is freed. */
#ifndef KSELFTEST_MEMORY_H
#define KSELFTEST_MEMORY_H

#include "kselftest_pc.h"
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Returns the sum of the numbers that follow the word @word, over all occurrences in a file. */
static long sum_after(const char *path, const char *word)
{
	static char buf[65536];
	long sum = 0;

	for (char *pos = read_file(path, buf, sizeof(buf)); (pos = strstr(pos, word)); ) {
		pos += strlen(word);
		sum += strtol(pos, &pos, 10);
	}
	return sum;
}

static long long meminfo(const char *what)
{
	long kib = sum_after("/proc/meminfo", what);

	bail_if(!kib, what);
	return kib * 1024LL;
}

/* Free memory and memory of the per-CPU allocator, in kB. */
struct meminfo_kb {
	long free, percpu;
};

/* MemFree does not count the pages in the per-CPU lists of the page allocator. */
static struct meminfo_kb read_meminfo_kb(void)
{
	return (struct meminfo_kb){
		meminfo("MemFree:") / 1024 + 4 * sum_after("/proc/zoneinfo", " count:"),
		meminfo("Percpu:") / 1024,
	};
}

/*
 * Drops caches, waits until deferred work has freed its memory, and returns the statistics. First
 * the kernel calls rcu_barrier(), which waits until all RCU callbacks have freed their memory.
 * Callbacks may queue further work. The function assumes that this work is done when, for two
 * seconds, free memory has grown by at most 64 kB and the per-CPU allocator has freed nothing. In
 * make test half a second is enough, because the kernel runs the queued work at once. The function
 * waits for at most scale_timeout(60) seconds.
 */
static struct meminfo_kb settled_meminfo_kb(void)
{
	struct meminfo_kb cur = { 0 }, best = { 0, LONG_MAX };
	int max_quiet = gate_or_long(5, 20);

	write_file("/proc/sys/vm/drop_caches", "3");
	write_file("/sys/module/rcutree/parameters/do_rcu_barrier", "1");
	for (int left = scale_timeout(600), quiet = 0; left && quiet < max_quiet; left--, quiet++) {
		sleep_ms(100);
		cur = read_meminfo_kb();
		if (cur.free <= best.free + 64 && cur.percpu >= best.percpu)
			continue;
		best.free = cur.free > best.free ? cur.free : best.free;
		best.percpu = cur.percpu < best.percpu ? cur.percpu : best.percpu;
		quiet = 0;
	}
	return cur;
}

/* The memory charged to each user, in bytes, and the limit for a user, in kB. */
#define USERS		"/sys/kernel/debug/perfcounters/users"
#define USER_KB		"/sys/module/perfcounters/parameters/user_kb"

/* Memory charged to each user for accounting records, in bytes. */
#define RECORDS		"/sys/kernel/debug/ppa/records"

/* The control group of a test, to which memory is charged. */
#define CGROUPS	"/tmp/cgroups"
#define CGROUP	CGROUPS "/test"

static inline void remove_cgroup(void)
{
	rmdir(CGROUP);
	umount2(CGROUPS, MNT_DETACH);
}

static inline void create_cgroup(void)
{
	mkdir(CGROUPS, 0755);
	bail_if(mount("cgroups", CGROUPS, "cgroup2", 0, NULL), "mount of cgroup2");
	atexit(remove_cgroup);
	write_file(CGROUPS "/cgroup.subtree_control", "+memory");
	mkdir(CGROUP, 0755);
}

static inline __u64 charged_bytes_in(const char *file, unsigned int uid)
{
	unsigned long long bytes;
	unsigned int user;
	char line[100];
	__u64 found = 0;
	FILE *f = fopen(file, "r");

	bail_if(!f, file);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%u %llu", &user, &bytes) == 2 && user == uid)
			found = bytes;
	fclose(f);
	return found;
}

static inline __u64 charged_bytes(unsigned int uid)
{
	return charged_bytes_in(USERS, uid);
}

static inline bool nothing_charged(void)
{
	char text[200], *line = read_file(USERS, text, sizeof(text));

	/* The file USERS must have only its heading, and no line for a user. */
	return !strncmp(line, "uid\tbytes\t", 10) && !strchr(line, '\n')[1];
}

static inline void set_user_kb(__u64 kb)
{
	write_file(USER_KB, format_text("%llu", kb));
}

#endif
