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
	/* The type of the attribute is the position of the action in the list, counted from 1. */
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

/* The IFB returns each frame to pcv1, which drops it. The queue of an IFB holds 32 frames. */
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

/*
 * Limits the packets that @interface sends to 100 bytes/s, with a queue of one packet. If the queue
 * is full, a new packet replaces the queued packet, which is dropped, and the caller gets
 * NET_XMIT_CN.
 */
static void congest(const char *interface)
{
	/* If the rate names its link layer, the kernel needs no table of transmission times. */
	struct tc_tbf_qopt rate = {
		.rate = { .rate = 100, .linklayer = TC_LINKLAYER_ETHERNET }, .limit = 1000000
	};
	struct tc_fifo_qopt fifo = { .limit = 1 };
	__u32 burst = 2000;
	struct tc_request tbf = tc_request(RTM_NEWQDISC, interface, TC_H_ROOT, 1 << 16, "tbf");
	struct tc_request queue = tc_request(RTM_NEWQDISC, interface, 1 << 16 | 1, 2 << 16,
					     "pfifo_head_drop");
	struct rtattr *options = tc_add(&tbf, TCA_OPTIONS, NULL, 0);

	tc_add(&tbf, TCA_TBF_PARMS, &rate, sizeof(rate));
	tc_add(&tbf, TCA_TBF_BURST, &burst, sizeof(burst));
	tc_end(&tbf, options);
	tc_send(&tbf);
	tc_add(&queue, TCA_OPTIONS, &fifo, sizeof(fifo));
	tc_send(&queue);
}

static void send_to_congested(void)
{
	send_frames("pcv0.5", UNKNOWN_FRAME, NR_FRAMES);
}

static void test_congestion(void)
{
	static const struct counter packets = { "pcv0.5", "tx_packets", TX_PACKETS };
	static const struct counter bytes = { "pcv0.5", "tx_bytes", TX_BYTES };
	static const struct counter drops = { "pcv0.5", "tx_drops", TX_DROPS };

	add_pair("pcv0", "pcv1");
	shell("ip link set pcv1 up; modprobe 8021q; modprobe sch_tbf");
	shell("ip link add link pcv0 name pcv0.5 type vlan id 5 && ip link set pcv0.5 up");
	wait_until(pc_find(&pc, "net/pcv0.5/tx_packets"));
	wait_for_link("pcv0.5", "pcv1");
	congest("pcv0");
	test_counter_with(&packets, "congestion of the lower interface", send_to_congested,
			  NR_FRAMES);
	test_counter_with(&bytes, "congestion of the lower interface", send_to_congested,
			  NR_FRAMES * 60);
	test_counter_with(&drops, "congestion of the lower interface", send_to_congested, 0);
	shell("ip link del pcv0");
}

int main(void)
{
	plan(2 + 3);
	shell("modprobe veth");
	load_provider("pfc_net");
	test_ifb();
	test_congestion();
	return finish();
}
