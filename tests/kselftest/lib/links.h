/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Adds many network interfaces by rtnetlink. Starting the command ip for each of thousands of
 * interfaces takes too long in an emulated guest.
 */
#ifndef LINKS_H
#define LINKS_H

#include "kselftest_pc.h"
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/socket.h>

/*
 * The number of requests that are sent together. The acknowledgments of all of them must fit into
 * the receive buffer of the socket, because they are read only after all requests were sent.
 */
#define LINK_BATCH	64

/*
 * The attributes of one interface: its name and its numbers of queues. If a request gave no numbers
 * of queues, the veth driver would allocate a queue for each CPU and then disable all queues but
 * one. For each interface, disabling the queues waits for an RCU grace period.
 */
struct link_config {
	struct ifinfomsg link;
	struct rtattr name_attr;
	char name[IFNAMSIZ];
	struct rtattr tx_attr;
	__u32 tx_queues;
	struct rtattr rx_attr;
	__u32 rx_queues;
};

/*
 * A request for a pair of veth interfaces. The size of each member is a multiple of 4, so all
 * members and all requests of an array are aligned as netlink requires. Each of the attributes
 * linkinfo, data and peer contains all members that follow it.
 */
struct veth_request {
	struct nlmsghdr message;
	struct link_config config;
	struct rtattr linkinfo;
	struct rtattr kind_attr;
	char kind[8];
	struct rtattr data;
	struct rtattr peer;
	struct link_config peer_config;
};

/* The number of bytes from a member of a request to the end of the request. */
#define LENGTH_FROM(member)							\
	(sizeof(struct veth_request) - offsetof(struct veth_request, member))

/* Returns the attributes of the interface veth<@number>, which has one queue per direction. */
static struct link_config link_config(int number)
{
	struct link_config config = {
		.name_attr = { RTA_LENGTH(IFNAMSIZ), IFLA_IFNAME },
		.tx_attr = { RTA_LENGTH(sizeof(config.tx_queues)), IFLA_NUM_TX_QUEUES },
		.tx_queues = 1,
		.rx_attr = { RTA_LENGTH(sizeof(config.rx_queues)), IFLA_NUM_RX_QUEUES },
		.rx_queues = 1,
	};

	snprintf(config.name, IFNAMSIZ, "veth%d", number);
	return config;
}

/* Returns the request for pair @pair, which is veth<2 * @pair> and veth<2 * @pair + 1>. */
static struct veth_request veth_request(int pair)
{
	return (struct veth_request){
		.message = {
			.nlmsg_len = LENGTH_FROM(message),
			.nlmsg_type = RTM_NEWLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
			.nlmsg_seq = pair,
		},
		.config = link_config(2 * pair),
		.linkinfo = { LENGTH_FROM(linkinfo), IFLA_LINKINFO },
		.kind_attr = { RTA_LENGTH(sizeof("veth")), IFLA_INFO_KIND },
		.kind = "veth",
		.data = { LENGTH_FROM(data), IFLA_INFO_DATA },
		.peer = { LENGTH_FROM(peer), VETH_INFO_PEER },
		.peer_config = link_config(2 * pair + 1),
	};
}

/* The requests are for pairs @first to @first + @nr - 1. Returns 0 or a negative errno. */
static int add_veth_batch(int fd, int first, int nr)
{
	struct veth_request requests[LINK_BATCH];
	struct {
		struct nlmsghdr message;
		struct nlmsgerr error;
	} ack;

	for (int i = 0; i < nr; i++)
		requests[i] = veth_request(first + i);
	if (send(fd, requests, nr * sizeof(requests[0]), 0) < 0)
		return -errno;
	for (int i = 0; i < nr; i++) {
		/* The kernel sends each acknowledgment as a datagram, in the order of requests. */
		ssize_t bytes = recv(fd, &ack, sizeof(ack), 0);

		if (bytes < 0)
			return -errno;
		if (bytes < (ssize_t)sizeof(ack) || ack.message.nlmsg_type != NLMSG_ERROR ||
		    ack.message.nlmsg_seq != (__u32)(first + i))
			return -EPROTO;
		if (ack.error.error)
			return ack.error.error;
	}
	return 0;
}

/* Unloading the module veth removes the interfaces. Returns 0 or a negative errno. */
static int add_veth_pairs(int nr)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), ret = 0;

	if (fd < 0)
		return -errno;
	for (int done = 0; done < nr && !ret; done += LINK_BATCH)
		ret = add_veth_batch(fd, done, nr - done < LINK_BATCH ? nr - done : LINK_BATCH);
	close(fd);
	return ret;
}

#endif
