/* SPDX-License-Identifier: GPL-2.0 */
/* Sends frames of an unknown protocol, which the receiving interface drops. */
#ifndef FRAMES_H
#define FRAMES_H

#include "provider.h"
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

/* Columns of /proc/net/dev, counted from the name of the interface. */
enum { RX_PACKETS = 1, RX_DROPS = 3, TX_PACKETS = 9 };

static int64_t proc_net_dev(const char *interface, int column)
{
	char first[40];

	snprintf(first, sizeof(first), "%s:", interface);
	return proc_field("/proc/net/dev", first, column);
}

static void send_frames(const char *sender, int nr)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	to.sll_ifindex = if_nametoindex(sender);
	for (int i = 0; i < nr; i++)
		if (sendto(fd, frame, sizeof(frame), 0, (void *)&to, sizeof(to)) < 0)
			bail("sendto");
	close(fd);
}

/*
 * Waits until frames from @sender reach @receiver. A kernel worker starts the queue of an interface
 * shortly after the link is up; until then the kernel drops the frames.
 */
static void wait_for_link(const char *sender, const char *receiver)
{
	int64_t before = proc_net_dev(receiver, RX_PACKETS);

	for (int left = 6000; left && proc_net_dev(receiver, RX_PACKETS) == before; left--) {
		send_frames(sender, 1);
		sleep_ms(10);
	}
	/* The receiver counts a frame shortly before the network stack drops the frame. */
	sleep_ms(50);
}

/* Sends @nr frames, and waits until @receiver has received them and the stack has dropped them. */
static void send_and_wait(const char *sender, const char *receiver, int nr)
{
	int64_t before = proc_net_dev(receiver, RX_PACKETS);

	send_frames(sender, nr);
	/* A softirq, which may run later than sendto(), receives the frames. */
	wait_until(proc_net_dev(receiver, RX_PACKETS) >= before + nr);
	sleep_ms(50);
}

#endif
