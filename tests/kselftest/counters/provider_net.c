// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_net with a pair of virtual interfaces that is added, deleted and added again, and with
 * the loopback interface.
 */
#include "net.h"
#include <arpa/inet.h>

/*
 * Returns true if interface @name has instances. While the instances of an earlier interface with
 * this name are being removed, the new interface has no instances. A kernel worker adds the
 * instances of the new interface later.
 */
static bool has_instances(const char *name)
{
	return wait_until(pc_find(&pc, name));
}

static void add_interfaces(void)
{
	add_pair("pcv0", "pcv1");
	shell("ip link set pcv1 up");
	if (!has_instances("net/pcv0/tx_packets") || !has_instances("net/pcv1/tx_packets"))
		bail("instances of a pair");
	wait_for_link("pcv0", "pcv1");
}

static void send_to_pair(void)
{
	send_and_wait("pcv0", "pcv1", UNKNOWN_FRAME);
}

/* Sends packets that IPv6 drops, and that the interface does not count as dropped. */
static void send_invalid_ipv6(void)
{
	send_and_wait("pcv0", "pcv1", IPV6_FRAME);
}

/* Sockets of this machine also get a copy of each broadcast, which pcv0 does not count. */
static void send_broadcasts(void)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(9),
		.sin_addr.s_addr = inet_addr("192.0.2.255")
	}, any = { .sin_family = AF_INET, .sin_port = htons(9) };
	int sink = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	char data[8] = "";

	if (bind(sink, (void *)&any, sizeof(any)) ||
	    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)))
		bail("a socket for broadcasts");
	for (int i = 0; i < 200; i++)
		bail_if(sendto(fd, data, sizeof(data), 0, (void *)&to, sizeof(to)) < 0 ||
			recv(sink, data, sizeof(data), 0) < 0, "a broadcast");
	close(fd);
	close(sink);
}

static void send_datagrams(void)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(9),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int sink = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
	char data[500] = "";

	bail_if(bind(sink, (void *)&to, sizeof(to)), "bind");
	/*
	 * Each datagram is received before the next one is sent, so that it is counted completely.
	 */
	for (int i = 0; i < 200; i++)
		bail_if(sendto(fd, data, 1 + i, 0, (void *)&to, sizeof(to)) < 0 ||
			recv(sink, data, sizeof(data), 0) < 0, "a datagram");
	close(fd);
	close(sink);
}

/* ICMP drops messages of an unknown type, which the interface does not count as dropped. */
static void send_unknown_icmp(void)
{
	/*
	 * The message has the type 200. Its checksum is the complement of the sum of its other
	 * 16-bit words.
	 */
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

int main(void)
{
	static const struct counter counters[] = {
		{ "pcv0", "tx_packets", TX_PACKETS }, { "pcv0", "tx_bytes", TX_BYTES },
		{ "pcv1", "rx_packets", RX_PACKETS }, { "pcv1", "rx_bytes", RX_BYTES },
		{ "pcv1", "rx_drops", RX_DROPS },
		{ "lo", "tx_packets", TX_PACKETS }, { "lo", "tx_bytes", TX_BYTES },
		{ "lo", "rx_packets", RX_PACKETS }, { "lo", "rx_bytes", RX_BYTES },
	};
	static const struct counter drops = { "lo", "rx_drops", RX_DROPS };
	static const struct counter copies = { "pcv0", "rx_packets", RX_PACKETS };
	uint32_t number, incarnation;

	plan(1 + 9 + 1 + 1 + 1 + 7 + NR_RELOAD_TESTS);
	shell("modprobe veth; ip link set lo up");
	load_provider("pfc_net");
	ok(pc_find(&pc, "net/lo/rx_packets"),
	   "0.14 net: interfaces that exist at load have instances");
	add_interfaces();
	for (int i = 0; i < 9; i++)
		test_counter(&counters[i], i < 5 ? send_to_pair : send_datagrams, 200);
	test_counter(&drops, send_unknown_icmp, 0);
	test_counter_with(&counters[4], "invalid IPv6 packets", send_invalid_ipv6, 0);
	shell("ip addr add 192.0.2.1/24 broadcast 192.0.2.255 dev pcv0");
	test_counter_with(&copies, "broadcasts that this machine sends", send_broadcasts, 0);

	number = pc_find(&pc, "net/pcv0/tx_packets");
	incarnation = pc.desc[number].incarnation;
	shell("ip link del pcv0");
	/* The instances become dormant once no probe uses them any more. */
	wait_until(pc.desc[number].state == PERFCOUNTERS_DORMANT);
	is(pc.desc[number].state, PERFCOUNTERS_DORMANT,
	   "0.14 net: an interface that is deleted leaves dormant instances");
	ok(number && pc_total(&pc, number) > 0,
	   "0.11 net: the dormant instances of an interface keep their values");
	add_interfaces();
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
