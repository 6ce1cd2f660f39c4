// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 200
 *
 * Tests pfc_net with an interface that is removed while a module holds a reference to it. The
 * kernel then repeats the notification of the removal each second. If a new interface has the index
 * of the removed interface, the repeated notifications must not remove the instances of the new
 * interface.
 */
#include "net.h"
#include "netlink.h"

/* The ip command of busybox cannot set the index of an interface. */
static void add_with_index(int index)
{
	struct {
		struct nlmsghdr message;
		struct ifinfomsg link;
		struct rtattr name_attr;
		char name[8];
		struct rtattr linkinfo;
		struct rtattr kind_attr;
		char kind[8];
	} request = {
		.message = {
			.nlmsg_len = sizeof(request),
			.nlmsg_type = RTM_NEWLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
		},
		.link = { .ifi_index = index },
		.name_attr = { RTA_LENGTH(sizeof(request.name)), IFLA_IFNAME },
		.name = "pch1",
		.linkinfo = { RTA_LENGTH(RTA_LENGTH(sizeof(request.kind))), IFLA_LINKINFO },
		.kind_attr = { RTA_LENGTH(sizeof("dummy")), IFLA_INFO_KIND },
		.kind = "dummy",
	};

	send_netlink(&request.message, "add pch1");
}

static int nr_repeated(void)
{
	return read_number("/sys/module/hold_interface/parameters/repeated");
}

static void send_to_dummy(void)
{
	send_frames("pch1", UNKNOWN_FRAME, NR_FRAMES);
}

static void release_interface(void)
{
	rmmod("hold_interface");
}

int main(void)
{
	static const struct counter tx = { "pch1", "tx_packets", TX_PACKETS };
	int index, before;

	plan(2);
	shell("modprobe dummy numdummies=0; ip link add pch0 type dummy");
	load_provider("pfc_net");
	index = if_nametoindex("pch0");
	bail_on_error(insmod("hold_interface", "interface=pch0"), "insmod hold_interface");
	atexit(release_interface);
	/* "ip link del" waits until hold_interface is unloaded, so it runs in the background. */
	shell("ip link del pch0 &");
	wait_until(!if_nametoindex("pch0"));
	add_with_index(index);
	shell("ip link set pch1 up");
	wait_until(pc_find(&pc, "net/pch1/tx_packets"));
	before = nr_repeated();
	wait_until(nr_repeated() > before);
	ok(nr_repeated() > before, "0.14 net: the removal of a held interface is announced again");
	test_counter_with(&tx, "a repeated removal of its index", send_to_dummy, NR_FRAMES);
	release_interface();
	shell("ip link del pch1; rmmod dummy");
	return finish();
}
