/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Adds queueing disciplines and filters to network interfaces by rtnetlink, because the command tc
 * of busybox cannot set their options.
 */
#ifndef QDISC_H
#define QDISC_H

#include "net.h"
#include "netlink.h"
#include <linux/pkt_sched.h>

/* A request to the traffic control of the kernel. tc_add() appends attributes to @attrs. */
struct tc_request {
	struct nlmsghdr message;
	struct tcmsg tc;
	char attrs[512];
};

/* Appends an attribute with @bytes bytes of data to a request. */
static struct rtattr *tc_add(struct tc_request *request, int type, const void *data, size_t bytes)
{
	struct rtattr *attr = (void *)((char *)request + request->message.nlmsg_len);

	if (request->message.nlmsg_len + RTA_SPACE(bytes) > sizeof(*request))
		bail("a request to traffic control is too long");
	attr->rta_type = type;
	attr->rta_len = RTA_LENGTH(bytes);
	if (bytes)
		memcpy(RTA_DATA(attr), data, bytes);
	request->message.nlmsg_len += RTA_SPACE(bytes);
	return attr;
}

/* Ends attribute @attr, which contains all attributes that were appended after it. */
static void tc_end(struct tc_request *request, struct rtattr *attr)
{
	attr->rta_len = (char *)request + request->message.nlmsg_len - (char *)attr;
}

/* @type is RTM_NEWQDISC (a queueing discipline) or RTM_NEWTFILTER (a filter). */
static struct tc_request tc_request(int type, const char *interface, __u32 parent, __u32 handle,
				    const char *kind)
{
	struct tc_request request = {
		.message = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(struct tcmsg)),
			.nlmsg_type = type,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK,
		},
		.tc = {
			.tcm_ifindex = if_nametoindex(interface),
			.tcm_parent = parent,
			.tcm_handle = handle,
		},
	};

	tc_add(&request, TCA_KIND, kind, strlen(kind) + 1);
	return request;
}

static void tc_send(const struct tc_request *request)
{
	send_netlink(&request->message, RTA_DATA((struct rtattr *)request->attrs));
}

#endif
