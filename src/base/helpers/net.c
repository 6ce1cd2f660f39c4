// SPDX-License-Identifier: GPL-2.0
/* Network interfaces and packets. */
#include <linux/etherdevice.h>
#include <linux/export.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <net/rtnetlink.h>
#include "helpers.h"

/*
 * Takes the RTNL lock. The kernel sends notifications about network interfaces with the RTNL lock
 * held. May sleep.
 */
void pfc_rtnl_lock(void)
{
	rtnl_lock();
}
EXPORT_SYMBOL_GPL(pfc_rtnl_lock);

void pfc_rtnl_unlock(void)
{
	rtnl_unlock();
}
EXPORT_SYMBOL_GPL(pfc_rtnl_unlock);

/*
 * Returns the interface of the initial network namespace that follows @dev, or the first interface
 * if @dev is NULL. Returns NULL after the last interface. Caller holds the RTNL lock.
 */
struct net_device *pfc_netdev_next(struct net_device *dev)
{
	return dev ? next_net_device(dev) : first_net_device(&init_net);
}
EXPORT_SYMBOL_GPL(pfc_netdev_next);

/*
 * Returns the index of an interface of the initial network namespace, or 0 for an interface of
 * another namespace.
 */
unsigned int pfc_netdev_index(const struct net_device *dev)
{
	return net_eq(dev_net(dev), &init_net) ? dev->ifindex : 0;
}
EXPORT_SYMBOL_GPL(pfc_netdev_index);

unsigned int pfc_netdev_name(const struct net_device *dev, char *name)
{
	strscpy(name, dev->name, IFNAMSIZ);
	return pfc_netdev_index(dev);
}
EXPORT_SYMBOL_GPL(pfc_netdev_name);

/*
 * Returns the change of the interface @dev that a notification announces (PFC_NETDEV_*). While a
 * reference to a removed interface exists, the kernel repeats NETDEV_UNREGISTER each second. The
 * result for a repeated notification is 0, because another interface may have the index of @dev.
 */
unsigned int pfc_netdev_change_of_event(unsigned long event, const struct net_device *dev)
{
	switch (event) {
	case NETDEV_REGISTER:
		return PFC_NETDEV_ADDED;
	case NETDEV_UNREGISTER:
		return dev->reg_state == NETREG_UNREGISTERED ? 0 : PFC_NETDEV_REMOVED;
	case NETDEV_CHANGENAME:
		return PFC_NETDEV_REMOVED | PFC_NETDEV_ADDED;
	default:
		return 0;
	}
}
EXPORT_SYMBOL_GPL(pfc_netdev_change_of_event);

/*
 * Returns whether the tracepoint netif_receive_skb is called for the packets that an interface
 * receives. The tracepoint is called once for a packet, before the kernel moves the packet from a
 * lower interface to an interface of one of these kinds. The kind of an interface is known when the
 * kernel announces the interface, but the flags in dev->priv_flags may be set later.
 */
bool pfc_netdev_has_rx_tracepoint(const struct net_device *dev)
{
	static const char *const kinds[] = {
		"vlan", "bond", "team", "macvlan", "macvtap", "ipvlan", "ipvtap", "vrf",
	};

	return !dev->rtnl_link_ops ||
	       match_string(kinds, ARRAY_SIZE(kinds), dev->rtnl_link_ops->kind) < 0;
}
EXPORT_SYMBOL_GPL(pfc_netdev_has_rx_tracepoint);

struct net_device *pfc_netdev_of_notification(void *info)
{
	return netdev_notifier_info_to_dev(info);
}
EXPORT_SYMBOL_GPL(pfc_netdev_of_notification);

struct net_device *pfc_skb_receive_dev(const struct sk_buff *skb)
{
	return skb->dev;
}
EXPORT_SYMBOL_GPL(pfc_skb_receive_dev);

/*
 * Returns the interface that has received a packet, or NULL if the receive path gets the packet
 * from the kernel itself: a copy of a broadcast or multicast that this machine sends through the
 * interface, or a packet that an IFB passes to the receive path for the second time.
 */
struct net_device *pfc_skb_received_dev(const struct sk_buff *skb)
{
	if (skb->pkt_type == PACKET_LOOPBACK)
		return NULL;
#ifdef CONFIG_NET_XGRESS
	/* Only an IFB sets this flag, which the receive path clears after the tracepoint. */
	if (skb->tc_skip_classify)
		return NULL;
#endif
	return skb->dev;
}
EXPORT_SYMBOL_GPL(pfc_skb_received_dev);

/*
 * Returns the length of a packet including its link header. The receive path has already removed
 * the link header from skb->len.
 */
u32 pfc_skb_wire_len(const struct sk_buff *skb)
{
	u32 len = skb->len;

	if (skb_mac_header_was_set(skb) && skb_mac_offset(skb) < 0)
		len -= skb_mac_offset(skb);
	return len;
}
EXPORT_SYMBOL_GPL(pfc_skb_wire_len);

/*
 * Returns whether the core of the network stack counts a packet in rx_nohandler of the interface
 * @dev instead of rx_dropped, if no protocol takes the packet. The core does so for packets of an
 * inactive interface: the inactive port of a bond or team, or the standby interface of a failover
 * pair. The packets of an active port are moved to the bond, team or failover interface before they
 * can be dropped. If an inactive port of a bond or team drops packets to link-local addresses
 * (LLDP, STP), the core counts them in rx_dropped.
 */
static bool is_rx_nohandler(const struct sk_buff *skb, const struct net_device *dev)
{
	if (netif_is_failover_slave(dev))
		return true;
	return netif_is_lag_port(dev) && !is_link_local_ether_addr(eth_hdr(skb)->h_dest);
}

/*
 * Returns whether a packet that is dropped because its protocol is unknown is counted in rx_dropped
 * of its interface. The core of the network stack counts the packets that it drops. Protocols drop
 * packets for the same reason, and no interface counts these drops. A packet was dropped by a
 * protocol if its network header was removed, or if it is an IPv6 packet and IPv6 is enabled: IPv6
 * takes all IPv6 packets, and drops some of them before it removes the network header.
 */
bool pfc_skb_is_rx_dropped(const struct sk_buff *skb)
{
	if (skb_network_offset(skb) || !skb->dev)
		return false;
	if (skb->protocol == htons(ETH_P_IPV6) && ipv6_mod_enabled())
		return false;
	return !is_rx_nohandler(skb, skb->dev);
}
EXPORT_SYMBOL_GPL(pfc_skb_is_rx_dropped);
