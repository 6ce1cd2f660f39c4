// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_block with a SCSI disk in memory that has partitions. The disk is added, removed and
 * added again.
 */
#include "provider.h"

static char disk[32];		/* sda, or another free name */
static char partition[34];	/* first partition of the disk */

/* A worker adds the instances after the device's first requests. */
static bool has_instance(const char *device)
{
	return pc_find(&pc, format_text("block/%s/reads", device));
}

static void check_write_cache(void)
{
	char path[64], text[40];

	snprintf(path, sizeof(path), "/sys/block/%s/queue/write_cache", disk);
	bail_if(strcmp(read_file(path, text, sizeof(text)), "write back\n"), path);
}

static void add_disk(void)
{
	if (system("modprobe sd_mod; modprobe scsi_debug dev_size_mb=16 num_parts=2 delay=0"))
		bail("modprobe scsi_debug");
	for (int tries = 0; tries < 3000; tries++, sleep_ms(20)) {
		for (char letter = 'a'; letter < 'e'; letter++) {
			snprintf(disk, sizeof(disk), "sd%c", letter);
			snprintf(partition, sizeof(partition), "%s1", disk);
			if (!access(format_text("/dev/%s", partition), F_OK))
				return;
		}
	}
	bail("no disk appeared");
}

static void remove_disk(void)
{
	for (int tries = 0; tries < 600; tries++, sleep_ms(100))
		if (!system("rmmod scsi_debug 2>/dev/null"))
			return;
	bail("rmmod scsi_debug");
}

/* Does direct I/O: each call is a request, and half of the requests are to the partition. */
static void do_io(void)
{
	char path[64], *buf = aligned_alloc(4096, 65536);
	const char *const names[] = { disk, partition };

	memset(buf, 1, 65536);
	for (int d = 0; d < 2; d++) {
		int fd;

		snprintf(path, sizeof(path), "/dev/%s", names[d]);
		fd = open(path, O_RDWR | O_DIRECT);
		bail_if(fd < 0, path);
		for (int i = 0; i < 100; i++) {
			bail_if(pread(fd, buf, 4096 << (i % 5), 65536 * 20) < 0 ||
				pwrite(fd, buf, 4096 << (i % 5), 65536 * 40) < 0, "I/O");
		}
		fsync(fd);
		close(fd);
	}
	free(buf);
}

/* Flushes the cache of the disk 100 times: half of the flushes are requested for the partition. */
static void flush(void)
{
	const char *const names[] = { disk, partition };
	char path[64];

	for (int d = 0; d < 2; d++) {
		int fd;

		snprintf(path, sizeof(path), "/dev/%s", names[d]);
		fd = open(path, O_RDWR);
		bail_if(fd < 0, path);
		for (int i = 0; i < 50; i++)
			bail_if(fsync(fd), "fsync");
		close(fd);
	}
}

/* Columns are counted from the name of the device. Returns -1 if there is no such device. */
static int64_t diskstats(const char *name, int column)
{
	static char buf[1 << 14];
	char *line;
	const char *want = format_text(" %s ", name);

	line = strstr(read_file("/proc/diskstats", buf, sizeof(buf)), want);
	if (!line)
		return -1;
	for (line += strlen(want); column; column--)
		line = strchr(line, ' ') + 1;
	return strtoll(line, NULL, 10);
}

struct counter {
	const char *word;
	int column;
};

static const struct counter counters[] = {
	{ "reads", 0 }, { "read_sectors", 2 }, { "writes", 4 }, { "write_sectors", 6 },
};

static const struct counter flushes = { "flushes", 15 };

static const char *device;

static int64_t disk_total(const char *word)
{
	return total_by_name(format_text("block/%s/%s", device, word));
}

static int64_t provider_total(const void *arg)
{
	return disk_total(((const struct counter *)arg)->word);
}

static int64_t diskstats_value(const void *arg)
{
	return diskstats(device, ((const struct counter *)arg)->column);
}

static int64_t histogram_sum(const char *name)
{
	uint32_t n = pc_find(&pc, name);
	int64_t sum = 0;

	for (uint32_t b = 0; n && b < pc.desc[n].nr_slots; b++)
		sum += pc_total(&pc, n + b);
	return sum;
}

static void test_counters(const char *name)
{
	char test[120];

	device = name;
	for (int i = 0; i < 4; i++) {
		snprintf(test, sizeof(test), "0.15 block: %s %s are those of /proc/diskstats",
			 name == disk ? "disk" : "partition", counters[i].word);
		test_matches_proc(test, provider_total, &counters[i], diskstats_value, &counters[i],
				  do_io, 50, SLACK_IN_FLIGHT);
	}
}

/* The kernel counts a flush for the whole disk, also if it is requested for a partition. */
static void test_flushes(void)
{
	char name[80];
	int64_t ns, ms, nr;

	check_write_cache();
	device = disk;
	snprintf(name, sizeof(name), "block/%s/flush_time", disk);
	ns = total_by_name(name);
	ms = diskstats(disk, 16);
	nr = diskstats(disk, 15);
	test_matches_proc("0.15 block: disk flushes are those of /proc/diskstats", provider_total,
			  &flushes, diskstats_value, &flushes, flush, 100, SLACK_IN_FLIGHT);
	ns = total_by_name(name) - ns;
	ms = diskstats(disk, 16) - ms;
	nr = diskstats(disk, 15) - nr;
	note("%lld flushes took %lld ns, /proc/diskstats says %lld ms", (long long)nr,
	     (long long)ns, (long long)ms);
	/* See test_times(). The probe reads the clock a little earlier than the kernel does. */
	ok(ns > 0 && ns / 1000000 >= ms - nr - 1 && ns / 1000000 <= ms + nr + 1,
	   "0.15 block: flush time is that of /proc/diskstats");
	snprintf(name, sizeof(name), "block/%s/flushes", partition);
	is(total_by_name(name), diskstats(partition, 15),
	   "0.15 block: partition flushes are those of /proc/diskstats");
}

static void test_times(void)
{
	int64_t ns, ms, requests;

	device = disk;
	ns = disk_total("read_time");
	requests = disk_total("reads");
	ms = diskstats(disk, 3);
	do_io();
	ns = disk_total("read_time") - ns;
	requests = disk_total("reads") - requests;
	ms = diskstats(disk, 3) - ms;
	note("%lld reads took %lld ns, /proc/diskstats says %lld ms", (long long)requests,
	     (long long)ns, (long long)ms);
	/*
	 * The probe of pfc_block reads the clock a little later than the kernel does, and
	 * /proc/diskstats rounds down, so the read time of pfc_block is not shorter than the read
	 * time in /proc/diskstats. The read time of pfc_block may be longer by at most 1 ms for
	 * each read request.
	 */
	ok(ns / 1000000 >= ms - 1 && ns / 1000000 <= ms + requests + 1,
	   "0.15 block: read time is that of /proc/diskstats");
	is(histogram_sum(format_text("block/%s/read_latency", disk)), disk_total("reads"),
	   "0.15 block: the latency histogram holds every read");
}

int main(void)
{
	uint32_t number;
	char name[80];

	plan(3 + 8 + 3 + 2 + 5 + NR_RELOAD_TESTS);
	load_provider("pfc_block");
	add_disk();
	do_io();
	wait_until(has_instance(disk) && has_instance(partition));
	snprintf(name, sizeof(name), "block/%s/reads", disk);
	number = pc_find(&pc, name);
	ok(number, "0.14 block: a new disk gets instances");
	snprintf(name, sizeof(name), "block/%s/reads", partition);
	ok(pc_find(&pc, name), "0.14 block: a partition of a new disk gets instances");
	ok(total_by_name("block/unnamed") > 0,
	   "0.14 block: requests of a disk that has no instances yet are counted in block/unnamed");
	test_counters(disk);
	test_counters(partition);
	test_flushes();
	test_times();

	snprintf(name, sizeof(name), "block/%s/reads", disk);
	remove_disk();
	ok(pc_find(&pc, name) == number, "0.14 block: a disk that is removed keeps its instances");
	add_disk();
	snprintf(name, sizeof(name), "block/%s/reads", disk);
	do_io();
	wait_until(has_instance(disk));
	is(pc_find(&pc, name), number,
	   "0.11 block: a disk that is added again has its old numbers");
	device = disk;
	test_matches_proc("0.14 block: a disk that is added again counts its reads",
			  provider_total, &counters[0], diskstats_value, &counters[0], do_io, 50,
			  SLACK_IN_FLIGHT);
	ok(pc.desc[number].unit == PERFCOUNTERS_EVENTS, "0.3 block: reads are events");
	snprintf(name, sizeof(name), "block/%s/read_latency", disk);
	ok(pc.desc[pc_find(&pc, name)].kind == PERFCOUNTERS_HISTOGRAM &&
	   pc.desc[pc_find(&pc, name)].exponent == -9,
	   "0.3 block: latency is a histogram of nanoseconds");

	/* The instance block/unnamed exists even if no disk has an instance. */
	test_unload_and_reload("pfc_block", "block/unnamed", do_io);
	remove_disk();
	return finish();
}
