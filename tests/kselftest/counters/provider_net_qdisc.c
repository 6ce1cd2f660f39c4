// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 60
 *
 * Tests pfc_net with queueing disciplines that pass packets on to other parts of the network stack.
 */
#include "qdisc.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/tc_act/tc_mirred.h>

/* Redirects all packets that @from receives to the IFB @to. */
static void redirect(const char *from, const char *to)
{
	struct tc_mirred mirred = {
		.action = TC_ACT_STOLEN, .eaction = TCA_EGRESS_REDIR,
		.ifindex = if_nametoindex(to)
	};
	struct tc_request qdisc = tc_request(RTM_NEWQDISC, from, TC_H_INGRESS,
					     TC_H_MAKE(TC_H_INGRESS, 0), "ingress");
	struct tc_request filter = tc_request(RTM_NEWTFILTER, from, TC_H_MAKE(TC_H_INGRESS, 0), 0,
					      "matchall");
	struct rtattr *options, *actions, *action, *action_options;

	tc_send(&qdisc);
	filter.tc.tcm_info = TC_H_MAKE(1 << 16, htons(ETH_P_ALL));
	options = tc_add(&filter, TCA_OPTIONS, NULL, 0);
	actions = tc_add(&filter, TCA_MATCHALL_ACT, NULL, 0);
	/* The type of an action is its place in the list of actions. */
	action = tc_add(&filter, 1, NULL, 0);
	tc_add(&filter, TCA_ACT_KIND, "mirred", sizeof("mirred"));
	action_options = tc_add(&filter, TCA_ACT_OPTIONS, NULL, 0);
	tc_add(&filter, TCA_MIRRED_PARMS, &mirred, sizeof(mirred));
	tc_end(&filter, action_options);
	tc_end(&filter, action);
	tc_end(&filter, actions);
	tc_end(&filter, options);
	tc_send(&filter);
}

/*
 * Sends NR_FRAMES frames to pcv1. The IFB returns each frame to the receive path of pcv1, which
 * drops it. Few frames are sent at a time, because the queue of an IFB holds 32 frames.
 */
static void send_to_redirected(void)
{
	for (int i = 0; i < NR_FRAMES; i += 20) {
		int64_t before = proc_net_dev("pcv1", RX_DROPS);

		send_frames("pcv0", UNKNOWN_FRAME, 20);
		wait_until(proc_net_dev("pcv1", RX_DROPS) >= before + 20);
	}
}

static void test_ifb(void)
{
	static const struct counter counters[] = {
		{ "pcv1", "rx_packets", RX_PACKETS }, { "pcv1", "rx_bytes", RX_BYTES },
	};

	add_pair("pcv0", "pcv1");
	shell("ip link set pcv1 up; modprobe ifb numifbs=1; ip link set ifb0 up");
	shell("modprobe act_mirred; modprobe cls_matchall; modprobe sch_ingress");
	wait_until(pc_find(&pc, "net/pcv1/rx_packets"));
	wait_for_link("pcv0", "pcv1");
	redirect("pcv1", "ifb0");
	for (int i = 0; i < 2; i++)
		test_counter_with(&counters[i], "frames through an IFB", send_to_redirected,
				  NR_FRAMES);
	shell("ip link del pcv0; rmmod ifb");
}

int main(void)
{
	plan(2);
	shell("modprobe veth");
	load_provider("pfc_net");
	test_ifb();
	return finish();
}
