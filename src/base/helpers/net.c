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
 * Returns how the interface @dev has changed according to a notification (PFC_NETDEV_*). While a
 * reference to a removed interface exists, the kernel repeats NETDEV_UNREGISTER each second. The
 * result for a repeated notification is 0, because another interface may have got the index of @dev
 * in the meantime.
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
 * receives. The tracepoint is called once for a packet. If the kernel later moves the packet from a
 * lower interface to a VLAN, a bond or another upper interface, the tracepoint is not called again.
 * This function recognizes upper interfaces by the kind in dev->rtnl_link_ops, and not by the flags
 * in dev->priv_flags: when the kernel announces an interface, the flags may not be set yet.
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

struct net_device *pfc_skb_dev(const struct sk_buff *skb)
{
	return skb->dev;
}
EXPORT_SYMBOL_GPL(pfc_skb_dev);

/*
 * Returns the interface that has received a packet, or NULL if the receive path gets the packet
 * from the kernel itself. The kernel itself passes two kinds of packets to the receive path: copies
 * of broadcasts and multicasts that this machine sends, and packets that an IFB returns to the
 * receive path.
 */
struct net_device *pfc_skb_receiving_dev(const struct sk_buff *skb)
{
	if (skb->pkt_type == PACKET_LOOPBACK)
		return NULL;
#ifdef CONFIG_NET_XGRESS
	/* Only an IFB sets tc_skip_classify; the receive path clears it after the tracepoint. */
	if (skb->tc_skip_classify)
		return NULL;
#endif
	return skb->dev;
}
EXPORT_SYMBOL_GPL(pfc_skb_receiving_dev);

/*
 * Returns the length of a packet of which the driver of @dev has got @len bytes, as the driver
 * counts it. The driver of the loopback interface leaves out the link header.
 */
u32 pfc_netdev_wire_len(const struct net_device *dev, u32 len)
{
	return dev->flags & IFF_LOOPBACK ? len - min_t(u32, len, ETH_HLEN) : len;
}
EXPORT_SYMBOL_GPL(pfc_netdev_wire_len);

/*
 * Returns the length of a packet that skb->dev has received, including its link header. The receive
 * path has already removed the link header from skb->len. The driver of the loopback interface
 * counts packets without a link header.
 */
u32 pfc_skb_wire_len(const struct sk_buff *skb)
{
	u32 len = skb->len;

	if (skb->dev->flags & IFF_LOOPBACK)
		return len;
	if (skb_mac_header_was_set(skb) && skb_mac_offset(skb) < 0)
		len -= skb_mac_offset(skb);
	return len;
}
EXPORT_SYMBOL_GPL(pfc_skb_wire_len);

/*
 * Returns whether a packet that no protocol takes is counted in rx_nohandler of the interface @dev,
 * and not in rx_dropped. The core of the network stack counts packets of inactive interfaces in
 * rx_nohandler. An inactive interface is the inactive port of a bond or team, or the standby
 * interface of a failover pair. The packets of an active port are moved to the bond, team or
 * failover interface before they can be dropped. Packets to link-local addresses (LLDP, STP) are an
 * exception: if an inactive port of a bond or team drops them, the core counts them in rx_dropped.
 */
static bool is_rx_nohandler(const struct sk_buff *skb, const struct net_device *dev)
{
	if (netif_is_failover_slave(dev))
		return true;
	return netif_is_lag_port(dev) && !is_link_local_ether_addr(eth_hdr(skb)->h_dest);
}

/*
 * Called for a packet that is dropped because its protocol is unknown. Returns whether the packet
 * is counted in rx_dropped of its interface. The core of the network stack counts the packets that
 * it drops itself. Packets that a protocol drops for the same reason are not counted by any
 * interface. If the network header of the packet was removed, a protocol drops the packet. If IPv6
 * is enabled, it takes all IPv6 packets, and drops some of them before it removes the network
 * header.
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
