/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations on the counter pages whose allocations are made to fail, each with its checks.
 * faults.c and fail_nth.c say how they are made to fail.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "operation.h"

static struct pc pc;
static const char *driver;	/* the driver under test */
static char name[PERFCOUNTERS_NAME_MAX];
static __u32 number, nr_slots, nr_live, serial;
static __u64 gen;
static int fd = -1;

static __u32 live_now(void)
{
	__u32 live = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		live += pc.desc[n].state == PERFCOUNTERS_LIVE;
	return live;
}

static __s64 sum_of_all(void)
{
	__s64 sum = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		sum += pc_total(&pc, n);
	return sum;
}

/* Makes the providers count: processes, system calls, page faults and interrupts. */
static void work(void)
{
	for (int i = 0; i < 3; i++) {
		void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		*(volatile char *)p = 1;
		munmap(p, 4096);
		in_child(getppid());
	}
	sleep_ms(15);
}

/* Reloads perfcounters.ko and the test driver, and maps the counter pages. */
static void afresh(void)
{
	static bool mapped;

	if (mapped)
		pc_close(&pc);
	load_modules("");
	pc_open(&pc);
	mapped = true;
}

/* insmod perfcounters */

static void gone(void)
{
	unload_modules();
}

static int load_perfcounters(void)
{
	return insmod("perfcounters", "");
}

static bool not_there(void)
{
	char misc[8192];

	read_file("/proc/misc", misc, sizeof(misc));
	return note_unless(!is_loaded("perfcounters"), "perfcounters.ko is half loaded") &
	       note_unless(!strstr(misc, "perfcounters"), "a device is still registered") &
	       note_unless(access("/dev/perfcounters", F_OK) &&
			   access("/dev/perfcounters_names", F_OK),
			   "a device node is left");
}

static bool is_empty(void)
{
	struct pc p;
	bool good;

	pc_open(&p);
	good = p.h->version == PERFCOUNTERS_VERSION && p.h->gen1 == p.h->gen2 &&
	       p.h->nr_slots == 1 + PC_BUILTIN && p.h->nr_chunks == 1 && pc_total(&p, 511) == 0 &&
	       !access("/dev/perfcounters_names", R_OK);
	pc_close(&p);
	return note_unless(good, "the pages are not those of an empty set");
}

static void unload_perfcounters(void)
{
	if (!note_unless(!rmmod("perfcounters"), "perfcounters.ko does not unload"))
		exit(1);
}

/* insmod DRIVER */

static void count_live(void)
{
	nr_live = live_now();
}

static int load_driver(void)
{
	return insmod(driver, "");
}

static bool driver_not_there(void)
{
	__s64 before = sum_of_all();

	work();
	return note_unless(!is_loaded(driver), "the driver is half loaded") &
	       note_unless(live_now() == nr_live, "it left live instances") &
	       note_unless(sum_of_all() == before, "something still counts") &
	       note_unless(pc.h->gen1 == pc.h->gen2, "gen1 is not gen2");
}

static bool driver_counts(void)
{
	bool idle = !strcmp(driver, "pfc_block") || !strcmp(driver, "pfc_net");
	__s64 before = sum_of_all();

	work();
	/* A sample driver counts when its timer expires, which a busy host may delay. */
	wait_until(idle || sum_of_all() > before);
	return note_unless(live_now() > nr_live, "it has no instances") &
	       note_unless(idle || sum_of_all() > before, "it does not count");
}

static void unload_driver(void)
{
	if (!note_unless(!rmmod(driver), "the driver does not unload"))
		exit(1);
}

/* Opening, mapping and reading */

static int open_names(void)
{
	fd = open("/dev/perfcounters_names", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

static int open_counters(void)
{
	fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

static void close_it(void)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
}

static void open_both(void)
{
	close_it();
	open_names();
}

static bool has_all_names(void)
{
	static char text[1 << 20];
	__u32 lines = 0, instances = 0;

	if (lseek(fd, 0, SEEK_SET))
		return false;
	for (ssize_t len = 0, got; (got = read(fd, text + len, sizeof(text) - len)) > 0; len += got)
		for (ssize_t i = len; i < len + got; i++)
			lines += text[i] == '\n';
	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		instances += pc.desc[n].state != PERFCOUNTERS_FREE;
	return note_unless(lines == instances + 1, "names are missing");
}

static int read_names(void)
{
	char some[500];

	return pread(fd, some, sizeof(some), 77) == sizeof(some) ? 0 : -errno;
}

static void *mapping;

static int map_and_touch(void)
{
	volatile char sink;

	mapping = mmap(NULL, pc.len, PROT_READ, MAP_SHARED, pc.fd, 0);
	if (mapping == MAP_FAILED)
		return -errno;
	for (__u64 at = 0; at < perfcounters_offset(&pc.geometry, 0, pc.h->nr_chunks * 512);
	     at += 4096)
		sink = ((volatile char *)mapping)[at];
	(void)sink;
	return 0;
}

static bool is_same_mapping(void)
{
	return !memcmp(mapping, pc.base, sizeof(pc.geometry));
}

static void unmap(void)
{
	munmap(mapping, pc.len);
}

/* perf_add */

static void take_stock(void)
{
	nr_slots = pc.h->nr_slots;
	nr_live = live_now();
	gen = pc.h->gen2;
}

static void remember(void)
{
	take_stock();
	snprintf(name, sizeof(name), "faults/%u", serial++);
}

/*
 * Adds instances until the next one is the first of a page of descriptors (16) or of a chunk (512).
 */
static void fill_to(__u32 multiple)
{
	while (pc.h->nr_slots % multiple)
		driver_cmd("add faults/fill/%u", serial++);
	remember();
}

static void fill_page(void)
{
	fill_to(16);
	/* The first instance of a chunk would need a chunk too, which is a different operation. */
	if (pc.h->nr_slots % 512 == 0) {
		driver_cmd("add faults/fill/%u", serial++);
		fill_to(16);
	}
}

static void fill_chunk(void)
{
	fill_to(512);
}

static void long_name(void)
{
	fill_page();
	snprintf(name, sizeof(name), "faults/%0119u", serial++);
}

/*
 * Sends a command to the test driver. Unlike driver_cmd(), it returns -errno if the write itself
 * fails.
 */
static int ask(const char *command, const char *what)
{
	char text[256], reply[32] = "";
	int len = snprintf(text, sizeof(text), "%s %s", command, what);

	if (pwrite(driver_fd, text, len, 0) != len)
		return -errno;
	disarm_failure();
	if (pread(driver_fd, reply, sizeof(reply) - 1, 0) <= 0)
		bail(command);
	return atoi(reply);
}

static int add_plain(void)
{
	return number = ask("add", name);
}

static int add_histogram(void)
{
	return number = ask("desc 32 4 1 0 64 0 -1", name);
}

static bool nothing_added(void)
{
	return note_unless(pc.h->nr_slots == nr_slots, "nr_slots moved") &
	       note_unless(pc.h->gen1 == gen && pc.h->gen2 == gen, "the generation moved") &
	       note_unless(live_now() == nr_live, "there is one more live instance");
}

static bool counts(void)
{
	bool good = pc_find(&pc, name) == number && pc_total(&pc, number) == 0 &&
		    pc.h->gen1 == pc.h->gen2;

	driver_cmd("adjust %u 5", number);
	return note_unless(good && pc_total(&pc, number) == 5, "the new instance does not count");
}

static void delete(void)
{
	driver_cmd("del %u", number);
}

static void make_dormant(void)
{
	remember();
	add_plain();
	driver_cmd("adjust %u 9", number);
	delete();
	take_stock();
}

static void make_live(void)
{
	remember();
	add_plain();
}

static int delete_it(void)
{
	char text[12];

	snprintf(text, sizeof(text), "%u", number);
	return ask("del", text);
}

static bool is_dormant(void)
{
	return pc.desc[number].state == PERFCOUNTERS_DORMANT;
}

/* A CPU */

static int cpu1(const char *on)
{
	int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC);
	int ret = write(file, on, 1) == 1 ? 0 : -errno;

	close(file);
	return ret;
}

static void cpu1_off(void)
{
	cpu1("0");
}

static int cpu1_on(void)
{
	return cpu1("1");
}

static bool cpu1_is_on(void)
{
	return *(const volatile __u64 *)(pc.base + pc.geometry.online_offset) & 2;
}

static const struct operation loading = {
	"insmod perfcounters", gone, load_perfcounters, not_there, is_empty, unload_perfcounters,
	13, false, 8
}, driver_loading = {
	"insmod", count_live, load_driver, driver_not_there, driver_counts, unload_driver, 1, false,
	8
}, net_loading = {
	/* pfc_net loads without them: an interface without instances is counted in net/unnamed. */
	"insmod", count_live, load_driver, driver_not_there, driver_counts, unload_driver, 8, true,
	8
}, sample_loading = {
	/* A sample driver also loads if some of its counters cannot be added. */
	"insmod", count_live, load_driver, driver_not_there, driver_counts, unload_driver, 1, true,
	8
}, operations[] = {
	{ "open /dev/perfcounters_names",
	  do_nothing, open_names, return_true, has_all_names, close_it, 3, false, 0 },
	{ "read /dev/perfcounters_names",
	  open_both, read_names, return_true, has_all_names, do_nothing, 0, false, 0 },
	{ "open /dev/perfcounters",
	  close_it, open_counters, return_true, return_true, close_it, 0, false, 0 },
	{ "map and touch every counter page",
	  do_nothing, map_and_touch, return_true, is_same_mapping, unmap, 0, false, 0 },
	{ "add an instance, needs a page of descriptors",
	  fill_page, add_plain, nothing_added, counts, delete, 1, false, 0 },
	{ "add a long name, needs a page of descriptors", long_name, add_plain, nothing_added,
	  counts, delete, 1, false, 0 },
	{ "add a histogram, needs four pages of descriptors", fill_page, add_histogram,
	  nothing_added, counts, delete, 4, false, 0 },
	{ "add an instance, needs a chunk",
	  fill_chunk, add_plain, nothing_added, counts, delete, 2, false, 0 },
	{ "add a histogram, needs a chunk", fill_chunk, add_histogram, nothing_added, counts,
	  delete, 5, false, 0 },
	{ "add a dormant name again",
	  make_dormant, add_plain, nothing_added, counts, delete, 0, false, 0 },
	{ "delete an instance", make_live, delete_it, return_true, is_dormant, do_nothing, 0, false,
	  0 },
	{ "bring CPU 1 online", cpu1_off, cpu1_on, return_true, cpu1_is_on, do_nothing, 0, false,
	  0 },
};

#define OPERATIONS ((int)(sizeof(operations) / sizeof(*operations)))

static const char *const drivers[] = {
	"pfc_sched", "pfc_syscalls", "pfc_irq", "pfc_block", "pfc_net", "pfc_mm", "sample_rust",
};

#define DRIVERS ((int)(sizeof(drivers) / sizeof(*drivers)))

#endif
