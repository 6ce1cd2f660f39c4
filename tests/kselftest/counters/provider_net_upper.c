// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 60
 *
 * Tests pfc_net with upper interfaces: a VLAN and a bond. The kernel moves a received packet to an
 * upper interface without a tracepoint, so that pfc_net cannot count what an upper interface
 * receives. An upper interface therefore has no counters of received packets and bytes.
 */
#include "net.h"

static void send_to_vlan(void)
{
	send_and_wait("pcv0.5", "pcv1.5", UNKNOWN_FRAME);
}

static void test_vlan(void)
{
	static const struct counter tx = { "pcv0.5", "tx_packets", TX_PACKETS };
	static const struct counter drops = { "pcv1.5", "rx_drops", RX_DROPS };

	add_pair("pcv0", "pcv1");
	shell("ip link set pcv1 up; modprobe 8021q");
	shell("ip link add link pcv0 name pcv0.5 type vlan id 5 && ip link set pcv0.5 up");
	shell("ip link add link pcv1 name pcv1.5 type vlan id 5 && ip link set pcv1.5 up");
	wait_until(pc_find(&pc, "net/pcv1.5/tx_packets"));
	wait_for_link("pcv0.5", "pcv1.5");
	test_counter(&tx, send_to_vlan, NR_FRAMES);
	test_counter(&drops, send_to_vlan, NR_FRAMES);
	ok(!pc_find(&pc, "net/pcv1.5/rx_packets") && !pc_find(&pc, "net/pcv1.5/rx_bytes"),
	   "0.15 net: a VLAN has no counters of what it receives");
	shell("ip link set pcv1.5 down; ip link set pcv1.5 name pcv1.6");
	wait_until(pc_find(&pc, "net/pcv1.6/tx_packets"));
	ok(pc_find(&pc, "net/pcv1.6/tx_packets") && !pc_find(&pc, "net/pcv1.6/rx_packets"),
	   "0.15 net: a VLAN that is renamed has no counters of what it receives");
	shell("ip link del pcv0");
}

static void send_to_bond(void)
{
	send_and_wait("pcb0", "pcb1", UNKNOWN_FRAME);
}

static void send_to_inactive(void)
{
	send_and_wait("pcb2", "pcb3", UNKNOWN_FRAME);
}

static void send_link_local_to_inactive(void)
{
	send_and_wait("pcb2", "pcb3", LINK_LOCAL_FRAME);
}

static void test_bond(void)
{
	static const struct counter bond_drops = { "bond0", "rx_drops", RX_DROPS };
	static const struct counter inactive_drops = { "pcb3", "rx_drops", RX_DROPS };

	add_pair("pcb0", "pcb1");
	add_pair("pcb2", "pcb3");
	shell("modprobe bonding max_bonds=1 mode=active-backup; ip link set bond0 up");
	write_file("/sys/class/net/bond0/bonding/slaves", "+pcb1");
	write_file("/sys/class/net/bond0/bonding/slaves", "+pcb3");
	write_file("/sys/class/net/bond0/bonding/active_slave", "pcb1");
	wait_until(pc_find(&pc, "net/pcb3/tx_packets") && pc_find(&pc, "net/bond0/tx_packets"));
	wait_for_link("pcb0", "pcb1");
	wait_for_link("pcb2", "pcb3");
	test_counter(&bond_drops, send_to_bond, NR_FRAMES);
	ok(!pc_find(&pc, "net/bond0/rx_packets") && !pc_find(&pc, "net/bond0/rx_bytes"),
	   "0.15 net: a bond has no counters of what it receives");
	test_counter(&inactive_drops, send_to_inactive, 0);
	test_counter_with(&inactive_drops, "link-local frames", send_link_local_to_inactive,
			  NR_FRAMES);
	shell("rmmod bonding; ip link del pcb0; ip link del pcb2");
}

int main(void)
{
	plan(4 + 4);
	shell("modprobe veth");
	load_provider("pfc_net");
	test_vlan();
	test_bond();
	return finish();
}
