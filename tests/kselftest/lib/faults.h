/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations on the counter pages, each with its checks. faults.c and fail_nth.c make allocations
 * of the operations fail.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "operation.h"

static const char *driver;	/* the driver under test */
static char name[PERFCOUNTERS_NAME_MAX];
static __u32 number, nr_slots, nr_live, serial;
static __u64 gen;
static int fd = -1;

static __u32 count_live_now(void)
{
	__u32 live = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		live += pc.desc[n].state == PERFCOUNTERS_LIVE;
	return live;
}

static __s64 sum_of_instances(void)
{
	__s64 sum = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++)
		sum += pc_total(&pc, n);
	return sum;
}

/* Causes events that the providers count: processes, system calls, page faults and interrupts. */
static void cause_events(void)
{
	void *p = map_memory(4096, MAP_PRIVATE);

	*(volatile char *)p = 1;
	munmap(p, 4096);
	in_child(getppid());
	sleep_ms(15);
}

static void reload_and_map(void)
{
	static bool mapped;

	if (mapped)
		pc_close(&pc);
	load_and_map("");
	mapped = true;
}

/* insmod perfcounters */

static void prepare_unloaded(void)
{
	unload_modules();
}

static int load_perfcounters(void)
{
	return insmod("perfcounters", "");
}

static bool is_unloaded(void)
{
	char devices[8192];

	read_file("/proc/misc", devices, sizeof(devices));
	return note_unless(!is_loaded("perfcounters"), "perfcounters.ko is half loaded") &
	       note_unless(!strstr(devices, "perfcounters"), "a device is still registered") &
	       note_unless(access("/dev/perfcounters", F_OK) &&
			   access("/dev/perfcounters_names", F_OK),
			   "a device node is left");
}

static bool has_no_instances(void)
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

static void record_live(void)
{
	nr_live = count_live_now();
}

static int load_driver(void)
{
	return insmod(driver, "");
}

static bool driver_is_unloaded(void)
{
	__s64 before = sum_of_instances();

	cause_events();
	return note_unless(!is_loaded(driver), "the driver is half loaded") &
	       note_unless(count_live_now() == nr_live, "it left live instances") &
	       note_unless(sum_of_instances() == before, "something still counts") &
	       note_unless(pc.h->gen1 == pc.h->gen2, "gen1 is not gen2");
}

static bool driver_counts(void)
{
	bool idle = !strcmp(driver, "pfc_block") || !strcmp(driver, "pfc_net");
	__s64 before = sum_of_instances();

	cause_events();
	/* A sample driver counts when its timer expires. A busy host may delay the timer. */
	wait_until(idle || sum_of_instances() > before);
	return note_unless(count_live_now() > nr_live, "it has no instances") &
	       note_unless(idle || sum_of_instances() > before, "it does not count");
}

static void unload_driver(void)
{
	if (!note_unless(!rmmod(driver), "the driver does not unload"))
		exit(1);
}

/* Operations that insmod perfmon, perftrace or ppa, each of which has a device of the same name */

static const char *device_path(void)
{
	static char path[40];

	snprintf(path, sizeof(path), "/dev/%s", driver);
	return path;
}

static bool device_module_is_unloaded(void)
{
	char devices[8192];

	read_file("/proc/misc", devices, sizeof(devices));
	return note_unless(!is_loaded(driver), "the module is half loaded") &
	       note_unless(count_live_now() == nr_live, "it left live instances") &
	       note_unless(!strstr(devices, driver) && access(device_path(), F_OK),
			   "the device is still registered") &
	       note_unless(access("/proc/ppa", F_OK) && access("/proc/rawsysppa", F_OK) &&
			   access("/proc/sys/kernel/ppa", F_OK) &&
			   access("/proc/perfmon_map", F_OK), "it left files in /proc");
}

static bool device_module_works(void)
{
	__u32 nr = !strcmp(driver, "perfmon") ? 24 : !strcmp(driver, "perftrace") ? 3 : 1;
	int device = open(device_path(), O_RDONLY | O_CLOEXEC);

	close(device);
	return note_unless(count_live_now() == nr_live + nr, "it has not all its instances") &
	       note_unless(device >= 0, "the device cannot be opened");
}

/* Operations that open, map or read a file */

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

static void close_fd(void)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
}

static void open_names_only(void)
{
	close_fd();
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
	char buf[500];

	return pread(fd, buf, sizeof(buf), 77) == sizeof(buf) ? 0 : -errno;
}

static void *mapping;

static int map_and_touch(void)
{
	volatile char sink;

	mapping = mmap(NULL, pc.len, PROT_READ, MAP_SHARED, pc.fd, 0);
	if (mapping == MAP_FAILED)
		return -errno;
	for (__u64 offset = 0; offset < perfcounters_offset(&pc.geometry, 0, pc.h->nr_chunks * 512);
	     offset += 4096)
		sink = ((volatile char *)mapping)[offset];
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

static void record_state(void)
{
	nr_slots = pc.h->nr_slots;
	nr_live = count_live_now();
	gen = pc.h->gen2;
}

static void record_state_and_name(void)
{
	record_state();
	snprintf(name, sizeof(name), "faults/%u", serial++);
}

/* @multiple is 16 for the first descriptor of a page, 512 for the first slot of a chunk. */
static void add_until_first_of(__u32 multiple)
{
	while (pc.h->nr_slots % multiple) {
		bool wide = multiple - pc.h->nr_slots % multiple >= 64;

		driver_cmd("%s faults/fill/%u", wide ? "desc 32 4 1 0 64 0 -1" : "add", serial++);
	}
	record_state_and_name();
}

static void prepare_new_page(void)
{
	add_until_first_of(16);
	/*
	 * The first instance of a chunk also allocates the chunk, which is another operation (see
	 * prepare_new_chunk()). If this instance would be next, add it now, and go on to the next
	 * page.
	 */
	if (pc.h->nr_slots % 512 == 0) {
		driver_cmd("add faults/fill/%u", serial++);
		add_until_first_of(16);
	}
}

static void prepare_new_chunk(void)
{
	add_until_first_of(512);
}

static void prepare_long_name(void)
{
	prepare_new_page();
	snprintf(name, sizeof(name), "faults/%0119u", serial++);
}

/* Unlike driver_cmd(), returns -errno if the write itself fails. */
static int try_driver_cmd(const char *command, const char *what)
{
	char text[256], reply[32] = "";
	int len = snprintf(text, sizeof(text), "%s %s", command, what);

	if (pwrite(driver_fd, text, len, 0) != len)
		return -errno;
	disarm_failure();
	bail_if(pread(driver_fd, reply, sizeof(reply) - 1, 0) <= 0, command);
	return atoi(reply);
}

static int add_plain(void)
{
	return number = try_driver_cmd("add", name);
}

static int add_histogram(void)
{
	return number = try_driver_cmd("desc 32 4 1 0 64 0 -1", name);
}

static bool nothing_added(void)
{
	return note_unless(pc.h->nr_slots == nr_slots, "nr_slots moved") &
	       note_unless(pc.h->gen1 == gen && pc.h->gen2 == gen, "the generation moved") &
	       note_unless(count_live_now() == nr_live, "there is one more live instance");
}

static bool instance_counts(void)
{
	bool good = pc_find(&pc, name) == number && pc_total(&pc, number) == 0 &&
		    pc.h->gen1 == pc.h->gen2;

	driver_cmd("adjust %u 5", number);
	return note_unless(good && pc_total(&pc, number) == 5, "the new instance does not count");
}

static void delete_instance(void)
{
	driver_cmd("del %u", number);
}

static void prepare_dormant(void)
{
	record_state_and_name();
	add_plain();
	driver_cmd("adjust %u 9", number);
	delete_instance();
	record_state();
}

static void prepare_live(void)
{
	record_state_and_name();
	add_plain();
}

static int try_delete(void)
{
	return try_driver_cmd("del", format_text("%u", number));
}

static bool is_dormant(void)
{
	return pc.desc[number].state == PERFCOUNTERS_DORMANT;
}

/* A CPU */

static int write_cpu1_online(const char *on)
{
	int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC);
	int ret = write(file, on, 1) == 1 ? 0 : -errno;

	close(file);
	return ret;
}

static void prepare_cpu1_offline(void)
{
	write_cpu1_online("0");
}

static int set_cpu1_online(void)
{
	return write_cpu1_online("1");
}

static bool cpu1_is_on(void)
{
	return *(const volatile __u64 *)(pc.base + pc.geometry.online_offset) & 2;
}

static const struct operation loading_operation = {
	"insmod perfcounters", prepare_unloaded, load_perfcounters, is_unloaded,
	has_no_instances, unload_perfcounters, 13, false, 8
}, device_module_operation = {
	"insmod", record_live, load_driver, device_module_is_unloaded, device_module_works,
	unload_driver, 2, false, 8
}, driver_operation = {
	"insmod", record_live, load_driver, driver_is_unloaded, driver_counts, unload_driver,
	1, false, 8
}, net_operation = {
	/* pfc_net loads even without instances, and then counts in net/unnamed. */
	"insmod", record_live, load_driver, driver_is_unloaded, driver_counts, unload_driver,
	8, true, 8
}, sample_operation = {
	/* A sample driver also loads if some of its counters cannot be added. */
	"insmod", record_live, load_driver, driver_is_unloaded, driver_counts, unload_driver,
	1, true, 8
}, operations[] = {
	{ "open /dev/perfcounters_names",
	  do_nothing, open_names, return_true, has_all_names, close_fd, 1, false, 0 },
	{ "read /dev/perfcounters_names",
	  open_names_only, read_names, return_true, has_all_names, do_nothing, 2, false, 0 },
	{ "open /dev/perfcounters",
	  close_fd, open_counters, return_true, return_true, close_fd, 0, false, 0 },
	{ "map and touch every counter page",
	  do_nothing, map_and_touch, return_true, is_same_mapping, unmap, 0, false, 0 },
	{ "add an instance, needs a page of descriptors",
	  prepare_new_page, add_plain, nothing_added, instance_counts, delete_instance, 1, false,
	  0 },
	{ "add a long name, needs a page of descriptors", prepare_long_name, add_plain,
	  nothing_added, instance_counts, delete_instance, 1, false, 0 },
	{ "add a histogram, needs four pages of descriptors", prepare_new_page, add_histogram,
	  nothing_added, instance_counts, delete_instance, 4, false, 0 },
	{ "add an instance, needs a chunk",
	  prepare_new_chunk, add_plain, nothing_added, instance_counts, delete_instance, 2, false,
	  0 },
	{ "add a histogram, needs a chunk", prepare_new_chunk, add_histogram, nothing_added,
	  instance_counts, delete_instance, 5, false, 0 },
	{ "add a dormant name again",
	  prepare_dormant, add_plain, nothing_added, instance_counts, delete_instance, 0, false,
	  0 },
	{ "delete an instance", prepare_live, try_delete, return_true, is_dormant, do_nothing, 0,
	  false, 0 },
	{ "bring CPU 1 online", prepare_cpu1_offline, set_cpu1_online, return_true, cpu1_is_on,
	  do_nothing, 0, false, 0 },
};

#define NR_OPERATIONS ((int)(sizeof(operations) / sizeof(*operations)))

static const char *const drivers[] = {
	"pfc_sched", "pfc_syscalls", "pfc_irq", "pfc_block", "pfc_net", "pfc_mm", "sample_rust",
};

#define NR_DRIVERS ((int)(sizeof(drivers) / sizeof(*drivers)))

#endif
