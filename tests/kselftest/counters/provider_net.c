// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_net with a pair of virtual interfaces that is added, deleted and added again, and with
 * the loopback interface.
 */
#include "provider.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

static void shell(const char *command)
{
	if (system(command))
		bail(command);
}

/*
 * Returns true if interface @name has instances. While the instances of an earlier interface with
 * this name are being removed, the new interface has no instances. A kernel worker adds the
 * instances of the new interface later.
 */
static bool has_instances(const char *name)
{
	wait_until(pc_find(&pc, name));
	return pc_find(&pc, name);
}

static void add_pair(void)
{
	/*
	 * The ip command of busybox cannot name the second interface of a new pair. The kernel
	 * names the second interface veth0, and a second command renames veth0 to pcv1.
	 */
	shell("ip link add pcv0 type veth && ip link set veth0 name pcv1");
	shell("ip link set pcv0 up && ip link set pcv1 up");
	if (!has_instances("net/pcv0/tx_packets") || !has_instances("net/pcv1/tx_packets"))
		bail("instances of a pair");
}

/* Sends frames of an unknown protocol, which pcv1 receives and drops. */
static void send_frames(void)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	char frame[200] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };
	int64_t before = total_by_name("net/pcv1/rx_packets");
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	to.sll_ifindex = if_nametoindex("pcv0");
	for (int i = 0; i < 200; i++)
		if (sendto(fd, frame, 60 + i % 100, 0, (void *)&to, sizeof(to)) < 0)
			bail("sendto");
	close(fd);
	/* A softirq, which may run later than sendto(), receives the frames. */
	wait_until(total_by_name("net/pcv1/rx_packets") >= before + 200);
}

static void send_datagrams(void)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(9),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int sink = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
	char data[500] = "";

	if (bind(sink, (void *)&to, sizeof(to)))
		bail("bind");
	/*
	 * Each datagram is received before the next one is sent, so that it is counted completely.
	 */
	for (int i = 0; i < 200; i++)
		if (sendto(fd, data, 1 + i, 0, (void *)&to, sizeof(to)) < 0 ||
		    recv(sink, data, sizeof(data), 0) < 0)
			bail("a datagram");
	close(fd);
	close(sink);
}

/*
 * Sends ICMP messages of an unknown type. The protocol ICMP drops the messages, and the interface
 * does not count them as dropped.
 */
static void send_unknown_icmp(void)
{
	/* Type 200. The checksum is the complement of the sum of the other 16-bit words. */
	unsigned char message[8] = { 200, 0, 0xff - 200, 0xff };
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int64_t before = total_by_name("net/lo/rx_packets");
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);

	for (int i = 0; i < 200; i++)
		if (sendto(fd, message, sizeof(message), 0, (void *)&to, sizeof(to)) < 0)
			bail("an ICMP message");
	close(fd);
	wait_until(total_by_name("net/lo/rx_packets") >= before + 200);
}

struct counter {
	const char *interface, *word;
	int column;	/* column in /proc/net/dev, counted from the name */
};

static int64_t provider_total(const void *arg)
{
	const struct counter *counter = arg;
	char name[80];

	snprintf(name, sizeof(name), "net/%s/%s", counter->interface, counter->word);
	return total_by_name(name);
}

static int64_t proc_net_dev(const void *arg)
{
	const struct counter *counter = arg;
	char first[40];

	snprintf(first, sizeof(first), "%s:", counter->interface);
	return proc_field("/proc/net/dev", first, counter->column);
}

static void test_counter(const struct counter *counter, void (*work)(void), int64_t min)
{
	char test[120];
	/*
	 * The tolerance for a packet that is in progress during a read is 1514 bytes, the largest
	 * packet.
	 */
	int64_t slack = strstr(counter->word, "bytes") ? SLACK_IN_FLIGHT * 1514 : SLACK_IN_FLIGHT;

	snprintf(test, sizeof(test), "0.15 net: %s of %s are those of /proc/net/dev", counter->word,
		 counter->interface);
	test_matches_proc(test, provider_total, counter, proc_net_dev, counter, work, min, slack);
}

int main(void)
{
	static const struct counter counters[] = {
		{ "pcv0", "tx_packets", 9 }, { "pcv0", "tx_bytes", 8 },
		{ "pcv1", "rx_packets", 1 }, { "pcv1", "rx_bytes", 0 }, { "pcv1", "rx_drops", 3 },
		{ "lo", "tx_packets", 9 }, { "lo", "tx_bytes", 8 },
		{ "lo", "rx_packets", 1 }, { "lo", "rx_bytes", 0 },
	};
	static const struct counter drops = { "lo", "rx_drops", 3 };
	uint32_t number, incarnation;

	plan(1 + 9 + 1 + 7 + NR_RELOAD_TESTS);
	shell("modprobe veth; ip link set lo up");
	load_provider("pfc_net");
	ok(pc_find(&pc, "net/lo/rx_packets"),
	   "0.14 net: interfaces that exist at load have instances");
	add_pair();
	for (int i = 0; i < 9; i++)
		test_counter(&counters[i], i < 5 ? send_frames : send_datagrams, 200);
	test_counter(&drops, send_unknown_icmp, 0);

	number = pc_find(&pc, "net/pcv0/tx_packets");
	incarnation = pc.desc[number].incarnation;
	shell("ip link del pcv0");
	/* The instances become dormant once no probe uses them any more. */
	wait_until(pc.desc[number].state == PERFCOUNTERS_DORMANT);
	is(pc.desc[number].state, PERFCOUNTERS_DORMANT,
	   "0.14 net: an interface that is deleted leaves dormant instances");
	ok(number && pc_total(&pc, number) > 0,
	   "0.11 net: the dormant instances of an interface keep their values");
	add_pair();
	is(pc_find(&pc, "net/pcv0/tx_packets"), number,
	   "0.11 net: an interface that is added again has its old numbers");
	is(pc.desc[number].incarnation, incarnation + 1,
	   "0.14 net: an interface that is added again has the next incarnation");
	shell("ip link set pcv0 down; ip link set pcv0 name pcv9; ip link set pcv9 up");
	ok(has_instances("net/pcv9/tx_packets") && !pc_find(&pc, "net/pcv0/tx_packets"),
	   "0.14 net: a renamed interface has instances of its new name only");
	/* Give two interfaces names that are not UTF-8 and that differ in one byte only. */
	shell("ip link set pcv9 down; ip link set pcv9 name pc\376");
	shell("ip link set pcv1 down; ip link set pcv1 name pc\377");
	ok(has_instances("net/pc\\xfe/tx_packets") && has_instances("net/pc\\xff/tx_packets"),
	   "0.14 net: bytes that are not UTF-8 are escaped in names, which differ");
	shell("ip link del pc\376");
	test_counter(&counters[5], send_datagrams, 200);
	test_unload_and_reload("pfc_net", "net/lo/tx_packets", send_datagrams);
	return finish();
}
