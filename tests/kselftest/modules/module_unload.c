// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 600
 * long: stock
 *
 * perfcounters.ko cannot be unloaded while a file, a mapping, a driver or another module uses it.
 * perfcounters.ko can be loaded and unloaded any number of times.
 */
#include "memory.h"

/* Free memory is read before the first cycle, after half of the cycles, and after the last. */
#define NR_CYCLES	100
#define NR_CYCLES_GATE	24
/* The test fails if free memory decreases by this many kB or more in both halves of the cycles. */
#define MAX_LOST_KB	170

static int nr_misc_devices(void)
{
	char devices[8192];
	int nr = 0;

	read_file("/proc/misc", devices, sizeof(devices));
	for (const char *line = devices; (line = strchr(line, '\n')); line++)
		nr++;
	return nr;
}

static void test_busy(void)
{
	struct perfcounters_header *h;
	int fd, names, nr_devices;
	pid_t child;

	unload_modules();
	is(insmod("perftrace", ""), -ENOENT, "3.1 perftrace.ko needs perfcounters.ko");
	is(insmod("ppa", ""), -ENOENT, "4.8 ppa.ko needs perfcounters.ko");
	is(insmod("perfmon", ""), -ENOENT, "1.1 perfmon.ko needs perfcounters.ko");
	nr_devices = nr_misc_devices();
	is(insmod("perfcounters", ""), 0, "0.1 perfcounters.ko loads");
	is(nr_misc_devices(), nr_devices + 2, "0.1 perfcounters.ko registers two devices");
	ok(!access("/dev/perfcounters", F_OK) && !access("/dev/perfcounters_names", F_OK) &&
	   access("/proc/perfmon_map", F_OK) && access("/proc/ppa", F_OK) &&
	   access("/proc/sys/kernel/ppa", F_OK), "0.1 perfcounters.ko has no files in /proc");
	ok(access("/dev/perftrace", F_OK), "3.1 perfcounters.ko alone: user tracing has no device");
	ok(access("/dev/ppa", F_OK), "4.8 perfcounters.ko alone: accounting has no device");
	ok(access("/dev/perfmon", F_OK), "1.1 perfcounters.ko alone: contexts have no device");
	is(insmod("perfcounters", ""), -EEXIST, "0.1 perfcounters.ko loaded: insmod is EEXIST");
	fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.1 rmmod perfcounters: EWOULDBLOCK while /dev/perfcounters is open");
	h = mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.1 rmmod perfcounters: EWOULDBLOCK while mapped, with the file closed");
	is(h->version, PERFCOUNTERS_VERSION,
	   "0.1 a mapping of the counter pages is readable after its file is closed");
	munmap((char *)h + 4096, 4096);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.1 rmmod perfcounters: EWOULDBLOCK while a part of a mapping is left");
	child = fork_sleeper();
	munmap(h, 3 * 4096);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.1 rmmod perfcounters: EWOULDBLOCK while a forked child has the mapping");
	kill_child(child);
	names = open("/dev/perfcounters_names", O_RDONLY | O_CLOEXEC);
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.2 rmmod perfcounters: EWOULDBLOCK while /dev/perfcounters_names is open");
	close(names);
	insmod("sample_c", "");
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "0.10 rmmod perfcounters: EWOULDBLOCK while sample_c.ko is loaded");
	is(rmmod("sample_c"), 0, "0.11 sample_c.ko unloads");
	is(insmod("perftrace", ""), 0, "3.1 perftrace.ko loads");
	ok(!access("/dev/perftrace", F_OK), "3.1 perftrace.ko loaded: user tracing has its device");
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "3.1 rmmod perfcounters: EWOULDBLOCK while perftrace.ko is loaded");
	is(rmmod("perftrace"), 0, "3.1 perftrace.ko unloads");
	ok(access("/dev/perftrace", F_OK), "3.1 perftrace.ko unloaded: its device is removed");
	is(insmod("ppa", ""), 0, "4.8 ppa.ko loads");
	ok(!access("/dev/ppa", F_OK), "4.8 ppa.ko loaded: accounting has its device");
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "4.8 rmmod perfcounters: EWOULDBLOCK while ppa.ko is loaded");
	is(rmmod("ppa"), 0, "4.8 ppa.ko unloads");
	ok(access("/dev/ppa", F_OK) && access("/proc/ppa", F_OK) &&
	   access("/proc/sys/kernel/ppa", F_OK), "4.8 ppa.ko unloaded: its files are removed");
	is(insmod("perfmon", ""), 0, "1.1 perfmon.ko loads");
	ok(!access("/dev/perfmon", F_OK), "1.1 perfmon.ko loaded: contexts have their device");
	is(rmmod("perfcounters"), -EWOULDBLOCK,
	   "1.1 rmmod perfcounters: EWOULDBLOCK while perfmon.ko is loaded");
	is(rmmod("perfmon"), 0, "1.1 perfmon.ko unloads");
	ok(access("/dev/perfmon", F_OK) && access("/proc/perfmon_map", F_OK),
	   "1.1 perfmon.ko unloaded: its files are removed");
	is(rmmod("perfcounters"), 0, "0.1 rmmod perfcounters: succeeds when nothing uses it");
	ok(access("/dev/perfcounters", F_OK) && access("/dev/perfcounters_names", F_OK),
	   "0.1 perfcounters.ko unloaded: its device nodes are removed");
}

static bool load_and_unload(int i)
{
	bool good;

	if (insmod("perfcounters", i % 8 ? "" : "pages_per_chunk=8") || insmod("test_driver", ""))
		return false;
	pc_open(&pc);
	for (int k = 0; k < 20; k++)
		driver_cmd("desc 32 4 1 0 64 0 -1 module/%d", k);
	driver_cmd("loop %d 1 100 1", PC_BUILTIN + 1);
	good = pc_total(&pc, PC_BUILTIN + 1) == 100 && pc.h->nr_chunks >= 1;
	if (i % 4 == 0)
		good = !insmod("sample_c", "period_us=100") && !insmod("sample_rust", "") &&
		       !insmod("perftrace", "") && !insmod("ppa", "") && !insmod("perfmon", "") &&
		       pc_find(&pc, "sample_rust/ticks") && !rmmod("perfmon") && !rmmod("ppa") &&
		       !rmmod("perftrace") && !rmmod("sample_rust") && !rmmod("sample_c") && good;
	driver_close();
	good = !rmmod("test_driver") && good;
	pc_close(&pc);
	return !rmmod("perfcounters") && good;
}

static void test_repeated_load(void)
{
	/*
	 * On a debug kernel, the test does not compare the amounts of free memory, because a debug
	 * kernel keeps freed memory for some time. The leak detectors of the debug kernel check
	 * each cycle.
	 */
	bool measured = scale_down(NR_CYCLES) == NR_CYCLES;
	int good = 0, times = measured ? gate_or_long(NR_CYCLES_GATE, NR_CYCLES) : 8;
	struct meminfo_kb m[3];

	for (int i = 0; i < gate_or_long(4, 8) && measured; i++)
		load_and_unload(i);
	for (int half = 0; half < 2; half++) {
		m[half] = settled_meminfo_kb();
		for (int i = 0; i < times / 2; i++)
			good += load_and_unload(i);
	}
	m[2] = settled_meminfo_kb();
	is(good, times / 2 * 2,
	   "0.10 perfcounters.ko loaded and unloaded %d times with drivers and a reader",
	   times / 2 * 2);
	note("free %ld, %ld, %ld kB; Percpu %ld, %ld, %ld kB", m[0].free, m[1].free, m[2].free,
	     m[0].percpu, m[1].percpu, m[2].percpu);
	/*
	 * If each cycle of load and unload leaks memory, free memory decreases both in the first
	 * half and in the second half of the cycles. In a long run, each half of the cycles has 50
	 * cycles, and a leak of one page per cycle adds up to 200 kB. In make test, each half of
	 * the cycles has 12 cycles, so the test finds only leaks of 15 kB or more per cycle.
	 */
	if (!measured)
		skip("0.10 perfcounters.ko unloaded: its memory is freed",
		     "a debug kernel keeps freed memory");
	else
		ok(m[0].free - m[1].free < MAX_LOST_KB || m[1].free - m[2].free < MAX_LOST_KB,
		   "0.10 perfcounters.ko unloaded: its memory is freed");
	ok(m[2].percpu <= m[0].percpu + 256,
	   "0.10 perfcounters.ko unloaded: its per-CPU memory is freed");
}

int main(void)
{
	plan(38);
	test_busy();
	test_repeated_load();
	return finish();
}
