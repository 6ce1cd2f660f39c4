// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 120
 *
 * Tests providers with a full table of instances. If all instance numbers are in use, a new device,
 * interrupt line or system call gets no instance. The kernel log reports once that instances cannot
 * be added. All events without an instance are counted together. No instance is added or deleted,
 * and the existing instances continue to count. A provider that needs instances when it is loaded
 * fails to load.
 */
#include "net.h"

#define NR	20

/* Uses up all instance numbers: first by histograms of 64 buckets, then by single counters. */
static void fill_table(void)
{
	long long n = 0;

	load_module("test_driver");
	for (int i = 0; n >= 0; i++)
		n = driver_cmd("desc 32 4 1 0 64 0 -1 full/hist%d", i);
	n = 0;
	for (int i = 0; n >= 0; i++)
		n = driver_cmd("add full/%d", i);
	bail_if(n != -ENOSPC, "fill the table");
}

static void call_getpid_i386(void)
{
	long number = 20;

	asm volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
}

static void make_calls(void)
{
	for (int i = 0; i < NR; i++) {
		call_getpid_i386();
		sleep_ms(10);
	}
}

static void add_interfaces(void)
{
	shell("ip link set lo up; modprobe dummy numdummies=20");
	for (int i = 0; i < 3; i++)
		shell("ping -c 1 127.0.0.1 >/dev/null");
}

static void raise_interrupts(void)
{
	bail_on_error(insmod("irq_lines", "lines=20"), "insmod irq_lines");
	for (int i = 0; i < 10; i++) {
		write_file("/sys/module/irq_lines/parameters/fire", "1");
		sleep_ms(20);
	}
}

static void read_disks(void)
{
	void *block = aligned_alloc(4096, 4096);
	char path[30];

	shell("modprobe null_blk nr_devices=20 submit_queues=1 hw_queue_depth=1 gb=1");
	for (int i = 0; i < NR; i++) {
		int fd;

		snprintf(path, sizeof(path), "/dev/nullb%d", i);
		fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
		bail_if(fd < 0 || read(fd, block, 4096) != 4096, path);
		close(fd);
		sleep_ms(10);
	}
	free(block);
}

/* @work must cause at least @events events for which the provider has no instance. */
static void test_provider(const char *provider, const char *line, const char *unnamed,
			  void (*work)(void), long events)
{
	__u64 changes;
	__s64 before;
	int log;

	load_provider(provider);
	log = klog_open();
	fill_table();
	changes = pc.h->gen2;
	before = total_by_name(unnamed);
	work();
	sleep_ms(100);
	is(klog_count(log, line), 1, "9.4 full table, %s: the log says once what gets no instance",
	   provider);
	is(pc.h->gen2 - changes, 0, "9.4 full table, %s: no instance is added or deleted",
	   provider);
	ok(total_by_name(unnamed) - before >= events,
	   "9.4 full table, %s: events without an instance are counted in %s", provider, unnamed);
	close(log);
}

/* Each frame of an unknown protocol counts when sent and when received, although it is dropped. */
static void test_dropped_frames(void)
{
	__s64 before;

	/* Without IPv6, the kernel sends no packets of its own through the new interfaces. */
	shell("echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6");
	shell("modprobe veth");
	add_pair("pcf0", "pcf1");
	shell("ip link set pcf1 up");
	wait_for_link("pcf0", "pcf1");
	before = total_by_name("net/unnamed");
	send_and_wait("pcf0", "pcf1", UNKNOWN_FRAME);
	is(total_by_name("net/unnamed") - before, 2 * NR_FRAMES,
	   "9.4 full table, pfc_net: a received frame that is dropped is counted once");
	shell("ip link del pcf0");
}

static void remove_provider(const char *provider)
{
	is(rmmod(provider), 0, "9.4 full table, %s: it unloads", provider);
	pc_close(&pc);
	unload_modules();
}

static void test_load(const char *provider)
{
	__u64 changes = pc.h->gen2;

	is(insmod(provider, ""), -ENOSPC, "9.4 full table, %s: loading it is ENOSPC", provider);
	is(pc.h->gen2 - changes, 0, "9.4 full table, %s: a failed load leaves nothing", provider);
}

int main(void)
{
	__s64 before;

	plan(23);
	test_provider("pfc_syscalls", "cannot add counters for system calls", "syscalls/unnamed",
		      make_calls, NR);
	before = total_by_name("syscalls/getppid");
	for (int i = 0; i < NR; i++)
		syscall(SYS_getppid);
	ok(total_by_name("syscalls/getppid") - before >= NR,
	   "9.4 full table, pfc_syscalls: calls with an instance are still counted");
	remove_provider("pfc_syscalls");

	test_provider("pfc_net", "cannot add counters for interface", "net/unnamed",
		      add_interfaces, 0);
	ok(total_by_name("net/lo/rx_packets") >= 3,
	   "9.4 full table, pfc_net: interfaces with instances are still counted");
	test_dropped_frames();
	remove_provider("pfc_net");
	shell("rmmod dummy");

	test_provider("pfc_irq", "cannot add counters for interrupt", "irq/unnamed",
		      raise_interrupts, NR * 5);
	remove_provider("pfc_irq");
	rmmod("irq_lines");

	test_provider("pfc_block", "cannot add counters for disks", "block/unnamed", read_disks,
		      NR);
	test_load("pfc_sched");
	test_load("pfc_mm");
	remove_provider("pfc_block");
	shell("rmmod null_blk");
	return finish();
}
