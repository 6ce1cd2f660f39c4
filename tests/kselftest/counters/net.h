/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the tests of pfc_net. They add pairs of virtual interfaces, send frames of an unknown
 * protocol (which the receiving interface drops), and compare counters with /proc/net/dev.
 */
#ifndef NET_H
#define NET_H

#include "provider.h"
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

#define NR_FRAMES 200

/*
 * Headers of frames: destination, source and protocol. UNKNOWN_FRAME has a protocol that no
 * protocol handler takes. LINK_LOCAL_FRAME also has a link-local destination address. IPV6_FRAME is
 * followed by zeros, which are not a valid IPv6 header.
 */
#define UNKNOWN_FRAME	"\xff\xff\xff\xff\xff\xff\2\0\0\0\0\1\x88\xb5"
#define LINK_LOCAL_FRAME "\x01\x80\xc2\0\0\0\2\0\0\0\0\1\x88\xb5"
#define IPV6_FRAME	"\xff\xff\xff\xff\xff\xff\2\0\0\0\0\1\x86\xdd"
#define HEADER_BYTES	14

/* Columns of /proc/net/dev, counted from the name of the interface. */
enum {
	RX_BYTES = 0, RX_PACKETS = 1, RX_DROPS = 3,
	TX_BYTES = 8, TX_PACKETS = 9, TX_DROPS = 11
};

/* Adds a pair of interfaces, @a and @b, and sets @a up. */
static void add_pair(const char *a, const char *b)
{
	char command[160];

	/*
	 * The ip command of busybox cannot name the second interface of a new pair. The kernel
	 * names the second interface veth0, and a second command renames veth0.
	 */
	snprintf(command, sizeof(command),
		 "ip link add %s type veth && ip link set veth0 name %s && ip link set %s up",
		 a, b, a);
	shell(command);
}

static int64_t proc_net_dev(const char *interface, int column)
{
	return proc_field("/proc/net/dev", format_text("%s:", interface), column);
}

static void send_frames(const char *sender, const char *header, int nr)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	char frame[160] = "";

	memcpy(frame, header, HEADER_BYTES);
	to.sll_ifindex = if_nametoindex(sender);
	for (int i = 0; i < nr; i++)
		bail_if(sendto(fd, frame, 60 + i % 100, 0, (void *)&to, sizeof(to)) < 0, "sendto");
	close(fd);
}

/* Until a kernel worker has started the queue of an interface, the kernel drops the frames. */
static void wait_for_link(const char *sender, const char *receiver)
{
	int64_t before = proc_net_dev(receiver, RX_PACKETS);

	for (int left = 6000; left && proc_net_dev(receiver, RX_PACKETS) == before; left--) {
		send_frames(sender, UNKNOWN_FRAME, 1);
		sleep_ms(10);
	}
	/* The receiver counts a frame shortly before the network stack drops the frame. */
	sleep_ms(50);
}

/* Also waits until @receiver has received the frames and the stack has dropped them. */
static void send_and_wait(const char *sender, const char *receiver, const char *header)
{
	int64_t before = proc_net_dev(receiver, RX_PACKETS);

	send_frames(sender, header, NR_FRAMES);
	/* A softirq, which may run later than sendto(), receives the frames. */
	wait_until(proc_net_dev(receiver, RX_PACKETS) >= before + NR_FRAMES);
	sleep_ms(50);
}

/* A counter of an interface: the last part of its name, and its column in /proc/net/dev. */
struct counter {
	const char *interface, *word;
	int column;
};

static int64_t provider_total(const void *arg)
{
	const struct counter *counter = arg;

	return total_by_name(format_text("net/%s/%s", counter->interface, counter->word));
}

static int64_t proc_value(const void *arg)
{
	const struct counter *counter = arg;

	return proc_net_dev(counter->interface, counter->column);
}

/* Works like test_counter(). @packets, for the name of the test, describes what @work sends. */
static void test_counter_with(const struct counter *counter, const char *packets,
			      void (*work)(void), int64_t min)
{
	char test[120];
	/* Packets of IPv6 that the kernel itself sends may be in progress during a read. */
	int64_t slack = strstr(counter->word, "bytes") ? SLACK_IN_FLIGHT * 128 : SLACK_IN_FLIGHT;

	snprintf(test, sizeof(test), "0.15 net: %s of %s are those of /proc/net/dev%s%s",
		 counter->word, counter->interface, *packets ? " after " : "", packets);
	test_matches_proc(test, provider_total, counter, proc_value, counter, work, min, slack);
}

static void test_counter(const struct counter *counter, void (*work)(void), int64_t min)
{
	test_counter_with(counter, "", work, min);
}

#endif
