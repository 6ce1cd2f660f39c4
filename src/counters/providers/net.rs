// SPDX-License-Identifier: GPL-2.0

//! pfc_net: counts network traffic by interface.
//!
//! The provider counts traffic of interfaces of the initial network namespace. The instances of an
//! interface, `net/<name>/...`, are live as long as the interface exists, and become live again
//! when an interface with the same name appears.
//!
//! Packets and bytes are counted where the network stack and the driver exchange them. Bytes
//! include the link header. A packet that the driver splits later (TSO), or that was merged from
//! several packets before (GRO), counts as one packet. The driver's own counts may differ from the
//! counts of this provider.
//!
//! The tracepoint of received packets is also called for packets that the kernel itself passes to
//! the receive path: copies of broadcasts and multicasts that this machine sends, and packets that
//! an IFB returns. The provider does not count packets that the kernel itself passes to the receive
//! path.
//!
//! The kernel calls no tracepoint when it moves received packets to VLANs, bonds and other upper
//! interfaces. An upper interface therefore has no instances `rx_packets` and `rx_bytes`.

use core::pin::Pin;

use kernel::prelude::*;
use provider::net::{Interface, InterfaceListener, RtnlLock, RxDropPoint};
use provider::probe::{NetDrop, NetReceive, NetXmit};
use provider::{
    EventHandler, Instance, InstanceSpec, Key, KeyedCounters, ListeningProbes, Probes, Unit,
    UpdateGroup,
};

module! {
    type: Provider,
    name: "pfc_net",
    authors: ["The perfcounters developers"],
    description: "perfcounters provider: network traffic by interface",
    license: "GPL",
}

struct Provider {
    _probes: ListeningProbes<Counts>,
}

struct Counts {
    interfaces: Pin<KBox<KeyedCounters<InterfaceCounters>>>,
    unnamed: Instance,
}

/// The counters of received packets.
struct ReceiveCounters {
    packets: Instance,
    bytes: Instance,
}

struct InterfaceCounters {
    /// `None` if the tracepoint of received packets is not called for the interface.
    received: Option<ReceiveCounters>,
    rx_drops: Instance,
    tx_packets: Instance,
    tx_bytes: Instance,
    tx_drops: Instance,
}

/// Marks an interface for which the tracepoint of received packets is not called. The key that
/// holds the interface's name has this number. For other interfaces the number of the key is 0.
const KEY_WITHOUT_RECEIVE_COUNTERS: u32 = 1;

impl InterfaceCounters {
    /// Adds the instances of an interface. The text of `key` is the interface's name.
    fn new(key: &Key) -> Result<Self> {
        let interface = key.text();
        let add = |unit, help, word: &str| {
            InstanceSpec::counter(unit, help).add_instance(fmt!("net/{interface}/{word}"))
        };
        let received = || -> Result<ReceiveCounters> {
            Ok(ReceiveCounters {
                packets: add(Unit::Packets, c"Packets received", "rx_packets")?,
                bytes: add(
                    Unit::Bytes,
                    c"Bytes received, including the link header",
                    "rx_bytes",
                )?,
            })
        };
        Ok(Self {
            received: match key.number() {
                KEY_WITHOUT_RECEIVE_COUNTERS => None,
                _ => Some(received()?),
            },
            rx_drops: add(
                Unit::Packets,
                c"Received packets dropped: backlog full, or unknown protocol",
                "rx_drops",
            )?,
            tx_packets: add(
                Unit::Packets,
                c"Packets accepted by the driver for transmission",
                "tx_packets",
            )?,
            tx_bytes: add(
                Unit::Bytes,
                c"Bytes accepted by the driver, including the link header",
                "tx_bytes",
            )?,
            tx_drops: add(Unit::Packets, c"Packets dropped by the driver", "tx_drops")?,
        })
    }
}

impl kernel::Module for Provider {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut probes = Probes::new(Counts {
            // The probes do not request instances, because `interface_added()` adds the instances
            // of each interface under its name.
            interfaces: KeyedCounters::new(
                "interfaces",
                InterfaceCounters::new,
                Some(add_existing_interfaces),
            )?,
            unnamed: InstanceSpec::counter(
                Unit::Packets,
                c"Packets of interfaces without counters of their own",
            )
            .add_instance(fmt!("net/unnamed"))?,
        })?;
        probes.attach::<NetReceive<'_>>()?;
        probes.attach::<NetXmit<'_>>()?;
        probes.attach::<NetDrop<'_>>()?;
        Ok(Self {
            _probes: probes.listen_for_interfaces()?,
        })
    }
}

/// Adds the instances of an interface, unless it is in another network namespace.
fn add_interface_counters(interfaces: &KeyedCounters<InterfaceCounters>, interface: &Interface) {
    let Some((name, key)) = interface.name_and_key() else {
        return;
    };
    let number = match interface.has_receive_tracepoint() {
        true => 0,
        false => KEY_WITHOUT_RECEIVE_COUNTERS,
    };
    interfaces.add_or_defer(&key, &Key::new(&name, number));
}

/// Adds the instances of all interfaces that have none.
fn add_existing_interfaces(interfaces: &KeyedCounters<InterfaceCounters>, rtnl: &RtnlLock) {
    rtnl.for_each_init_net_interface(|interface| add_interface_counters(interfaces, interface));
}

impl InterfaceListener for Counts {
    fn interface_added(&self, interface: &Interface) {
        add_interface_counters(&self.interfaces, interface);
    }

    fn interface_removed(&self, interface: &Interface) {
        if let Some(key) = interface.key() {
            self.interfaces.remove(&key);
        }
    }
}

impl Counts {
    /// Returns the counters of an interface. A packet of an interface without counters is counted
    /// in `unnamed`, unless the interface is in another network namespace.
    fn find_interface_counters(&self, interface: &Interface) -> Option<&InterfaceCounters> {
        let found = self.interfaces.find(&interface.key()?);
        if found.is_none() {
            self.unnamed.counter().add(1);
        }
        found
    }
}

impl EventHandler<NetReceive<'_>> for Counts {
    fn handle_event(&self, event: NetReceive<'_>) {
        let traffic = event
            .interface
            .and_then(|interface| self.find_interface_counters(interface));
        if let Some(received) = traffic.and_then(|traffic| traffic.received.as_ref()) {
            let _group = UpdateGroup::begin();
            received.packets.counter().add(1);
            received
                .bytes
                .counter()
                .add(i64::from(event.packet.wire_bytes()));
        }
    }
}

/// Return value of a driver that has no room for a packet (`enum netdev_tx`).
const NETDEV_TX_BUSY: i32 = 0x10;
/// Return value of a VLAN or another upper interface: the queue of the lower interface, to which
/// the packet was passed, has dropped a packet. The upper interface counts its own packet as sent.
const NET_XMIT_CN: i32 = 2;

impl EventHandler<NetXmit<'_>> for Counts {
    fn handle_event(&self, event: NetXmit<'_>) {
        if event.result == NETDEV_TX_BUSY {
            // The packet stays in the queue, and the kernel passes it to the driver again.
            return;
        }
        let Some(traffic) = self.find_interface_counters(event.interface) else {
            return;
        };
        let _group = UpdateGroup::begin();
        if matches!(event.result, 0 | NET_XMIT_CN) {
            traffic.tx_packets.counter().add(1);
            traffic.tx_bytes.counter().add(i64::from(event.bytes));
        } else {
            traffic.tx_drops.counter().add(1);
        }
    }
}

impl EventHandler<NetDrop<'_>> for Counts {
    fn handle_event(&self, event: NetDrop<'_>) {
        let traffic = match event.at {
            None => None,
            Some((RxDropPoint::Backlog, interface)) => self.find_interface_counters(interface),
            // The packet of an interface without counters is already counted in `unnamed`.
            Some((RxDropPoint::Protocol, interface)) => {
                interface.key().and_then(|key| self.interfaces.find(&key))
            }
        };
        if let Some(traffic) = traffic {
            traffic.rx_drops.counter().add(1);
        }
    }
}
