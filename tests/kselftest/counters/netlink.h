/* SPDX-License-Identifier: GPL-2.0 */
/* Sends requests by rtnetlink. */
#ifndef NETLINK_H
#define NETLINK_H

#include "kselftest_pc.h"
#include <linux/rtnetlink.h>
#include <sys/socket.h>

/* Sends a request with NLM_F_ACK, which must succeed. @what describes the request. */
static void send_netlink(const struct nlmsghdr *request, const char *what)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct {
		struct nlmsghdr message;
		struct nlmsgerr error;
		char rest[1024];
	} ack;

	bail_if(send(fd, request, request->nlmsg_len, 0) < 0 ||
		recv(fd, &ack, sizeof(ack), 0) < (ssize_t)NLMSG_LENGTH(sizeof(ack.error)) ||
		ack.message.nlmsg_type != NLMSG_ERROR, "netlink");
	bail_on_error(ack.error.error, what);
	close(fd);
}

#endif
