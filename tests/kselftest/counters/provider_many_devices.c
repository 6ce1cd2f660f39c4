// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 600
 *
 * Tests pfc_net and pfc_block with more interfaces and disks than they have entries for. pfc_net
 * adds instances until its table has no free entry. pfc_block adds instances until too few instance
 * numbers are left for another disk. When a provider cannot add instances for further devices, the
 * kernel log reports once that the devices without instances are counted together.
 */
#include "links.h"
#include "provider.h"

/* The number of disks, as text for a shell command and as a number. */
#define NR_DISKS_TEXT	"520"
#define NR_DISKS	520

/* The number of interfaces, each of which is one end of a pair. */
#define NR_INTERFACES	1100

/* Maximum number of entries of a provider, as in src/counters/keyed_counters.rs. */
#define MAX_ENTRIES	1024

static int count_live(const char *prefix, const char *suffix)
{
	int nr = 0;

	for (__u32 n = 1; n < pc.h->nr_slots; n++) {
		const char *name = (const char *)pc.desc[n].name;
		size_t bytes = strlen(name), end = strlen(suffix);

		nr += pc.desc[n].state == PERFCOUNTERS_LIVE && bytes > end &&
		      !strncmp(name, prefix, strlen(prefix)) && !strcmp(name + bytes - end, suffix);
	}
	return nr;
}

/* Unloads a provider. Returns how long the unload took, in nanoseconds. */
static __u64 unload_time(const char *provider)
{
	__u64 begin = now_ns();

	is(rmmod(provider), 0, "9.4 %s: rmmod succeeds", provider);
	return now_ns() - begin;
}

static void run_and_close(const char *driver)
{
	shell(driver);
	pc_close(&pc);
}

static void test_interfaces(void)
{
	int log;
	__u64 changes, few, many;

	load_provider("pfc_net");
	few = unload_time("pfc_net");
	load_module("pfc_net");
	log = klog_open();
	shell("ip link set lo up; modprobe veth");
	bail_on_error(add_veth_pairs(NR_INTERFACES / 2), "add veth interfaces");
	is(count_live("net/", "/rx_bytes"), MAX_ENTRIES,
	   "9.4 %d interfaces: %d of them have instances", NR_INTERFACES, MAX_ENTRIES);
	is(klog_count(log, "reached; all others are counted together"), 1,
	   "9.4 interfaces without instances: the log reports them once");
	changes = pc.h->gen2;
	shell("for i in 1 2 3; do ping -c 1 127.0.0.1 >/dev/null || exit 1; done");
	ok(pc.h->gen2 == changes && total_by_name("net/lo/rx_packets") >= 3,
	   "9.4 interfaces with instances: still counted, and no instance is added");
	close(log);
	/* Delete 20 interfaces with instances. The peer of each interface is deleted with it. */
	shell("for i in 0 2 4 6 8 10 12 14 16 18; do ip link del veth$i || exit 1; done");
	wait_until(!pc_find(&pc, "net/veth18/rx_bytes") && !pc_find(&pc, "net/veth19/rx_bytes"));
	wait_until(count_live("net/", "/rx_bytes") == MAX_ENTRIES);
	is(count_live("net/", "/rx_bytes"), MAX_ENTRIES,
	   "9.4 20 interfaces are deleted: others, which had no instances, get instances");
	many = unload_time("pfc_net");
	ok(many < 100 * few,
	   "9.4 pfc_net: rmmod does not wait for each of %d entries (%llu us, %llu with few)",
	   MAX_ENTRIES, many / 1000, few / 1000);
	run_and_close("rmmod veth");
}

static int read_disks(void)
{
	void *block = aligned_alloc(4096, 4096);
	int done = 0;

	for (int i = 0; i < NR_DISKS; i++) {
		int fd;

		fd = open(format_text("/dev/nullb%d", i), O_RDONLY | O_DIRECT | O_CLOEXEC);
		done += fd >= 0 && read(fd, block, 4096) == 4096;
		close(fd);
	}
	free(block);
	return done;
}

static void test_disks(void)
{
	int log, have;
	__u64 changes;
	__s64 unnamed;

	load_provider("pfc_block");
	log = klog_open();
	/* With one tag set for all disks, rmmod waits for a single SRCU barrier. */
	shell("modprobe null_blk nr_devices=" NR_DISKS_TEXT
	      " submit_queues=1 shared_tags=1 hw_queue_depth=1 gb=1");
	is(read_disks(), NR_DISKS, "9.4 %d disks: a block of each is read", NR_DISKS);
	/* If the queue of pfc_block is full, a later read requests the instances. */
	do {
		have = count_live("block/nullb", "/reads");
		read_disks();
		sleep_ms(100);
	} while (count_live("block/nullb", "/reads") != have);
	ok(have > 400 && have < NR_DISKS,
	   "9.4 disks: as many have instances as there are slots for (%d)", have);
	is(klog_count(log, "cannot add counters for disks"), 1,
	   "9.4 disks without instances: the log reports them once");
	changes = pc.h->gen2;
	unnamed = total_by_name("block/unnamed");
	read_disks();
	is(pc.h->gen2 - changes, 0, "9.4 disks: no further instance is added");
	ok(total_by_name("block/unnamed") - unnamed >= NR_DISKS - have,
	   "9.4 disks without instances: counted in block/unnamed");
	close(log);
	unload_time("pfc_block");
	run_and_close("rmmod null_blk");
}

int main(void)
{
	plan(gate_or_long(7, 13));
	test_interfaces();
	/*
	 * Only long runs test disks, because the kernel takes long to add and remove the disks.
	 */
	if (is_long_run())
		test_disks();
	return finish();
}
