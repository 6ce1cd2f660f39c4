/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for all test programs in C. The helpers print KTAP output, load modules, map the counter
 * pages, send textual commands to the test driver test_driver.ko, and read the kernel log.
 *
 * Each table row of Documentation/rows.md is a promise of the project, with an id such as 0.10. The
 * text of a test result, which is passed to ok() or is(), begins with the id of the promise that
 * the result checks.
 */
#ifndef KSELFTEST_PC_H
#define KSELFTEST_PC_H

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/perfcounters.h>

/* Each program uses only some of these functions, and many callbacks ignore their arguments. */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

static int ksft_planned, ksft_done, ksft_failed;

static void plan(int tests)
{
	/* A child of fork() would print buffered lines a second time. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_planned = tests;
	printf("TAP version 13\n1..%d\n", tests);
}

__attribute__((format(printf, 2, 3)))
static bool ok(bool good, const char *name, ...)
{
	va_list ap;

	ksft_failed += !good;
	printf("%sok %d ", good ? "" : "not ", ++ksft_done);
	va_start(ap, name);
	vprintf(name, ap);
	va_end(ap);
	printf("\n");
	return good;
}

/* Checks that two numbers are equal. If the numbers differ, the report shows both of them. */
#define is(got, want, ...) do {						\
	long long got_ = (got), want_ = (want);				\
									\
	if (!ok(got_ == want_, __VA_ARGS__))				\
		printf("# got %lld, want %lld\n", got_, want_);		\
} while (0)

__attribute__((format(printf, 1, 2)))
static void note(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

static void skip(const char *name, const char *why)
{
	printf("ok %d %s # SKIP %s\n", ++ksft_done, name, why);
}

__attribute__((noreturn))
static void bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Bails out if @failed is true. @what names the step that failed, for the message. */
static inline void bail_if(bool failed, const char *what)
{
	if (failed)
		bail(what);
}

static inline void bail_on_error(long long rc, const char *what)
{
	errno = rc < 0 ? -rc : 0;
	bail_if(errno, what);
}

static int finish(void)
{
	return ksft_failed || ksft_done != ksft_planned;
}

/* insmod() and rmmod() return 0 or a negative errno. */
static int insmod(const char *name, const char *params)
{
	char path[80];
	int fd, ret;

	snprintf(path, sizeof(path), "/modules/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, params, 0) ? -errno : 0;
	close(fd);
	return ret;
}

/* Loads modules whose names are separated by blanks. Ignores errors. */
static inline void insmod_each(const char *names)
{
	char text[200], *rest = text, *name;

	snprintf(text, sizeof(text), "%s", names);
	while ((name = strsep(&rest, " ")))
		insmod(name, "");
}

static int rmmod(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

static bool is_loaded(const char *name)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	return access(path, F_OK) == 0;
}

/* The test driver test_driver.ko: tests/modules/test_driver.c defines its commands. */

static __thread int driver_fd = -1;

static void driver_close(void)
{
	if (driver_fd >= 0)
		close(driver_fd);
	driver_fd = -1;
}

/* Removes the modules that use the module @name, and then the module @name. */
static void unload_with_users(const char *name)
{
	struct dirent *holder;
	char path[80];
	DIR *holders;

	snprintf(path, sizeof(path), "/sys/module/%s/holders", name);
	holders = opendir(path);
	while (holders && (holder = readdir(holders)))
		if (holder->d_name[0] != '.')
			unload_with_users(holder->d_name);
	if (holders)
		closedir(holders);
	rmmod(name);
}

/* Removes perfcounters.ko and all modules that use it. */
static void unload_modules(void)
{
	driver_close();
	unload_with_users("perfcounters");
}

/* At exit: closes the mappings and open files that pin perfcounters.ko, and unloads the modules. */
static void exit_cleanup(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "/dev/perfcounters") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			munmap((void *)from, to - from);
	close_range(3, ~0U, 0);
	driver_fd = -1;
	unload_modules();
}

/*
 * Reloads perfcounters.ko, and loads test_driver.ko. When the test program exits, exit_cleanup()
 * unloads perfcounters.ko and test_driver.ko.
 */
static void load_modules(const char *params)
{
	static bool registered;

	unload_modules();
	bail_on_error(insmod("perfcounters", params), "insmod perfcounters");
	bail_on_error(insmod("test_driver", ""), "insmod test_driver");
	if (!registered)
		atexit(exit_cleanup);
	registered = true;
}

/* Loads a module that uses perfcounters.ko. unload_modules() removes it. */
static void load_module(const char *name)
{
	bail_on_error(insmod(name, ""), name);
}

static long long driver_cmd_raw(const char *command, size_t len)
{
	char reply[32] = "";

	if (driver_fd < 0)
		driver_fd = open("/proc/test_driver", O_RDWR | O_CLOEXEC);
	bail_if(driver_fd < 0 || pwrite(driver_fd, command, len, 0) != (ssize_t)len ||
		pread(driver_fd, reply, sizeof(reply) - 1, 0) <= 0, command);
	return strtoll(reply, NULL, 10);
}

__attribute__((format(printf, 1, 2)))
static long long driver_cmd(const char *fmt, ...)
{
	char command[4000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	return driver_cmd_raw(command, strlen(command));
}

/* The counter pages */

/* Number of instances of perfcounters.ko itself, which src/counters/stats.rs adds. */
#define PC_BUILTIN 2

struct pc {
	int fd;
	size_t len;
	const char *base;
	struct perfcounters_header geometry;	/* copy of the header, for its constant fields */
	const volatile struct perfcounters_header *h;
	const volatile struct perfcounters_desc *desc;
};

/* Maps the header, then the slots and descriptors of as many instances as the header allows. */
static void pc_open(struct pc *pc)
{
	struct perfcounters_header *h;
	__u64 slots_per_chunk;
	void *p;

	pc->fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC);
	bail_if(pc->fd < 0, "open /dev/perfcounters");
	h = mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, pc->fd, 0);
	bail_if(h == MAP_FAILED, "mmap of the header");
	pc->geometry = *h;
	munmap(h, getpagesize());
	h = &pc->geometry;
	slots_per_chunk = (__u64)h->pages_per_chunk * h->page_size / 8;
	pc->len = h->counters_offset + (h->max_instances + slots_per_chunk - 1) /
		  slots_per_chunk * slots_per_chunk * 8 * h->nr_cpus;
	p = mmap(NULL, pc->len, PROT_READ, MAP_SHARED, pc->fd, 0);
	bail_if(p == MAP_FAILED, "mmap of the counters");
	pc->base = p;
	pc->h = p;
	p = mmap(NULL, (size_t)h->max_instances * h->desc_size, PROT_READ, MAP_SHARED,
		 pc->fd, h->desc_offset);
	bail_if(p == MAP_FAILED, "mmap of the descriptors");
	pc->desc = p;
}

/* The counter pages, for programs that map them once. */
static struct pc pc __attribute__((unused));

/* Reloads perfcounters.ko and test_driver.ko, and maps the counter pages. */
static inline void load_and_map(const char *params)
{
	load_modules(params);
	pc_open(&pc);
}

static void pc_close(struct pc *pc)
{
	munmap((void *)pc->base, pc->len);
	munmap((void *)pc->desc, (size_t)pc->geometry.max_instances * pc->geometry.desc_size);
	close(pc->fd);
}

static const volatile __s64 *pc_slot(const struct pc *pc, __u32 cpu, __u32 slot)
{
	return (const void *)(pc->base + perfcounters_offset(&pc->geometry, cpu, slot));
}

static __s64 pc_value(const struct pc *pc, __u32 cpu, __u32 slot)
{
	return *pc_slot(pc, cpu, slot);
}

static __s64 pc_total(const struct pc *pc, __u32 slot)
{
	__s64 sum = 0;

	for (__u32 cpu = 0; cpu < pc->geometry.nr_cpus; cpu++)
		sum += pc_value(pc, cpu, slot);
	return sum;
}

static __u64 pc_seq(const struct pc *pc, __u32 cpu)
{
	return __atomic_load_n((const __u64 *)pc_slot(pc, cpu, 0), __ATOMIC_ACQUIRE);
}

static bool pc_name_is(const struct pc *pc, __u32 n, const char *name)
{
	return !strcmp((const char *)pc->desc[n].name, name);
}

/* Returns the number of the live instance with this name, or 0 if no instance has it. */
static __u32 pc_find(const struct pc *pc, const char *name)
{
	for (__u32 n = 1; n < pc->h->nr_slots; n++)
		if (pc->desc[n].state == PERFCOUNTERS_LIVE && pc_name_is(pc, n, name))
			return n;
	return 0;
}

/* Maps a file and unmaps it again. Returns 0, or a negative errno if mmap() is refused. */
static int map_error(int fd, size_t size, int prot, int flags, off_t offset)
{
	void *mem = mmap(NULL, size, prot, flags, fd, offset);

	if (mem == MAP_FAILED)
		return -errno;
	munmap(mem, size);
	return 0;
}

/* Maps anonymous memory, which children share if @flags is MAP_SHARED. */
static inline void *map_memory(size_t bytes, int flags)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	bail_if(mem == MAP_FAILED, "mmap");
	return mem;
}

static void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	bail_if(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

/* Returns @n, such as a number of rounds, divided by this kernel's SLOWNESS (see testing.md). */
static long scale_down(long n)
{
	const char *slowness = getenv("SLOWNESS");

	return n / (slowness && atoi(slowness) > 0 ? atoi(slowness) : 1);
}

/* LONG is set in make test-all and make test-debug, and if ONLY names the test (testing.md). */
static bool is_long_run(void)
{
	const char *value = getenv("LONG");

	return value && *value;
}

/*
 * Returns @all in a long run (see is_long_run()) and @gate in any other run. @all and @gate are,
 * for example, numbers of rounds.
 */
static long gate_or_long(long gate, long all)
{
	return is_long_run() ? all : gate;
}

/* Scales a timeout for a slow kernel and a busy host (PATIENCE in testing.md). */
static long scale_timeout(long seconds)
{
	const char *factor = getenv("PATIENCE");

	return seconds * (factor && atoi(factor) > 0 ? atoi(factor) : 1);
}

/* Returns the minimum count that a test requires: n, or n / 25 rounded up on a slower kernel. */
static __u64 scale_min(__u64 n)
{
	return scale_down(1000) == 1000 ? n : (n + 24) / 25;
}

/* Returns the time of a clock in nanoseconds; 0 if there is no such clock. */
static inline __u64 clock_ns(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static inline __u64 now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline __u64 thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/*
 * Waits until the condition is true, for at most 60,000 sleeps of 1 ms. The limit is a number of
 * wakeups, so that a busy host extends the wait. The value is true if the condition is true, and
 * false if it is still false at the limit.
 */
#define wait_until(condition) ({					\
	int left_ = 60000;						\
	bool done_;							\
									\
	while (!(done_ = (condition)) && left_--)			\
		sleep_ms(1);						\
	done_;								\
})

/* The text is valid until the thread has made seven more calls. */
__attribute__((format(printf, 1, 2)))
static const char *format_text(const char *fmt, ...)
{
	static __thread char texts[8][400];
	static __thread unsigned int calls;
	char *text = texts[calls++ % 8];
	va_list ap;

	va_start(ap, fmt);
	bail_if(vsnprintf(text, sizeof(texts[0]), fmt, ap) >= (int)sizeof(texts[0]), fmt);
	va_end(ap);
	return text;
}

/* Writes a text to a file. Returns 0 or a negative errno. */
static int try_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;
	ssize_t len = strlen(text), written;

	if (fd < 0)
		return -errno;
	written = write(fd, text, len);
	if (written != len)
		rc = written < 0 ? -errno : -EIO;
	close(fd);
	return rc;
}

static void write_file(const char *path, const char *text)
{
	bail_on_error(try_write_file(path, text), path);
}

/* Reads a file into the buffer as a string, which is truncated to the size of the buffer. */
static char *read_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got;

	while (fd >= 0 && len < size - 1 && (got = read(fd, buf + len, size - 1 - len)) > 0)
		len += got;
	buf[len] = '\0';
	if (fd >= 0)
		close(fd);
	return buf;
}

/* Returns the number at the beginning of a file; 0 if there is none. */
static inline long long read_number(const char *path)
{
	char text[40];

	return strtoll(read_file(path, text, sizeof(text)), NULL, 10);
}

/*
 * Opens the kernel log. Reads of the returned file give only the lines that are logged from now on.
 */
static int klog_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	lseek(fd, 0, SEEK_END);
	return fd;
}

/* Returns "" if lines were overwritten, NULL after the last line. */
static char *klog_next_line(int fd, char *line, size_t size)
{
	ssize_t len = read(fd, line, size - 1);
	char *text;

	if (!len || (len < 0 && errno != EPIPE))
		return NULL;
	line[len > 0 ? len : 0] = '\0';
	text = strchr(line, ';');
	if (!text)
		return line + strlen(line);
	text[strcspn(text, "\n")] = '\0';
	return text + 1;
}

/* Returns how many of the unread lines of the kernel log contain this text. */
static inline int klog_count(int fd, const char *what)
{
	char line[2048], *text;
	int nr = 0;

	while ((text = klog_next_line(fd, line, sizeof(line))))
		nr += !!strstr(text, what);
	return nr;
}

/* Prints each unread line that contains one of the words, and closes @fd. */
static bool klog_has(int fd, const char *const words[])
{
	char line[2048], *text;
	bool found = false;

	while ((text = klog_next_line(fd, line, sizeof(line))))
		for (int i = 0; words[i]; i++)
			if (strstr(text, words[i])) {
				note("log: %s", text);
				found = true;
			}
	close(fd);
	return found;
}

#include "process.h"

#endif
