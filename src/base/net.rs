// SPDX-License-Identifier: GPL-2.0

//! Packets and network interfaces, for the probes of network providers.

use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::types::Opaque;

use super::helpers;
use super::key::Key;

/// Guard of the RTNL mutex, which is held when network interfaces are added and removed.
pub struct RtnlLock(());

impl RtnlLock {
    /// Takes the RTNL mutex. Called in process context, without the RTNL mutex held.
    #[inline]
    pub fn lock() -> Self {
        // SAFETY: The caller is in process context and does not hold the RTNL mutex, which drop
        // releases.
        unsafe { helpers::pfc_rtnl_lock() };
        Self(())
    }

    /// Calls `call` for each interface of the initial network namespace.
    #[inline]
    pub fn for_each_init_net_interface(&self, call: impl Fn(&Interface)) {
        // SAFETY: The RTNL mutex is held, so that no interface is added or removed during the walk.
        let next = |dev| unsafe { helpers::pfc_netdev_next(dev) };
        let mut dev = next(core::ptr::null_mut());
        // SAFETY: The interface is alive while the RTNL mutex is held.
        while let Some(interface) = unsafe { dev.cast::<Interface>().as_ref() } {
            call(interface);
            dev = next(dev);
        }
    }
}

impl Drop for RtnlLock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `RtnlLock::lock` has taken the RTNL mutex, and each `RtnlLock` is dropped once.
        unsafe { helpers::pfc_rtnl_unlock() };
    }
}

/// A network interface (`struct net_device`), valid during a probe or a notification.
#[repr(transparent)]
pub struct Interface(Opaque<bindings::net_device>);

impl Interface {
    /// Returns the name of an interface and, as a key, the interface's index. The interface must be
    /// in the initial network namespace. Returns `None` for an interface in another namespace,
    /// because names are not unique across namespaces.
    #[inline]
    pub fn name_and_key(&self) -> Option<([u8; 32], Key)> {
        let mut name = [0; 32];
        // SAFETY: The interface is alive during the probe or notification. The callee writes at
        // most 16 bytes, the size of an interface's name.
        let index = unsafe { helpers::pfc_netdev_name(self.0.get(), name.as_mut_ptr().cast()) };
        (index != 0).then(|| (name, Key::from_number(index)))
    }

    /// Returns the index of the interface as a key, for lookups. Returns `None` for an interface
    /// outside the initial network namespace.
    #[inline]
    pub fn key(&self) -> Option<Key> {
        // SAFETY: The interface is alive during the probe or notification.
        let index = unsafe { helpers::pfc_netdev_index(self.0.get()) };
        (index != 0).then(|| Key::from_number(index))
    }

    /// Returns the size on the wire of a packet that the interface sends. `bytes` is the size with
    /// which the kernel has passed the packet to the driver.
    #[inline]
    pub fn wire_bytes(&self, bytes: u32) -> u32 {
        // SAFETY: The interface is alive during the probe.
        unsafe { helpers::pfc_netdev_wire_len(self.0.get(), bytes) }
    }

    /// Returns whether the tracepoint of received packets is called for this interface. The
    /// tracepoint is not called for VLANs, bonds and other upper interfaces, because the kernel
    /// moves packets from a lower to an upper interface after the tracepoint.
    #[inline]
    pub fn has_receive_tracepoint(&self) -> bool {
        // SAFETY: The interface is alive during the notification. The RTNL mutex is held during the
        // notification, so that the interface's `rtnl_link_ops` stay registered.
        unsafe { helpers::pfc_netdev_has_rx_tracepoint(self.0.get()) }
    }
}

/// A packet (`struct sk_buff`), valid during a probe.
#[repr(transparent)]
pub struct Packet(Opaque<bindings::sk_buff>);

impl Packet {
    /// Returns the size of a received packet on the wire in bytes, including the link-layer header.
    /// Packets of the loopback interface have no link-layer header.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        // SAFETY: The packet is alive during the probe.
        unsafe { helpers::pfc_skb_wire_len(self.0.get()) }
    }
}

/// Returns the interface of a packet that is owned by a device or its receive path. While a packet
/// has another owner, `skb->dev` may hold other data.
///
/// # Safety
///
/// `skb` is alive, and `skb->dev` is valid: the packet is owned by a device or its receive path.
#[inline]
pub unsafe fn packet_interface<'a>(skb: *const bindings::sk_buff) -> Option<&'a Interface> {
    // SAFETY: By this function's requirement `skb->dev` is valid. The device stays alive while the
    // probe runs.
    unsafe { helpers::pfc_skb_dev(skb).cast::<Interface>().as_ref() }
}

/// Returns the interface that has received a packet. Returns `None` if the receive path gets the
/// packet from the kernel itself: a copy of a broadcast or multicast that this machine sends, or a
/// packet that an IFB (intermediate functional block) returns to the receive path.
///
/// # Safety
///
/// `skb` is alive, and the receive path owns the packet.
#[inline]
pub unsafe fn receiving_interface<'a>(skb: *const bindings::sk_buff) -> Option<&'a Interface> {
    // SAFETY: By this function's requirement `skb->dev` is valid. The device stays alive while the
    // probe runs.
    unsafe {
        helpers::pfc_skb_receiving_dev(skb)
            .cast::<Interface>()
            .as_ref()
    }
}

/// The place in the receive path at which a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RxDropPoint {
    /// The packet was dropped before the tracepoint of received packets, because the backlog of the
    /// CPU is full.
    Backlog,
    /// The packet was dropped after the tracepoint of received packets, because no protocol takes
    /// the packet.
    Protocol,
}

/// Returns the place at which a packet was dropped. Returns `None` if the statistic `rx_dropped` of
/// the packet's interface does not count the drop. If the result is not `None`, `skb->dev` is
/// valid.
///
/// # Safety
///
/// `skb` is alive, and is being dropped for the reason `reason`.
#[inline]
pub unsafe fn counted_rx_drop_point(
    skb: *const bindings::sk_buff,
    reason: u32,
) -> Option<RxDropPoint> {
    match reason {
        bindings::skb_drop_reason_SKB_DROP_REASON_CPU_BACKLOG => Some(RxDropPoint::Backlog),
        bindings::skb_drop_reason_SKB_DROP_REASON_UNHANDLED_PROTO => {
            // SAFETY: The packet is alive, by this function's requirement. The receive path owns a
            // packet that is dropped for this reason, so that `skb->dev` is null or valid.
            unsafe { helpers::pfc_skb_is_rx_dropped(skb) }.then_some(RxDropPoint::Protocol)
        }
        _ => None,
    }
}

/// A listener for changes of network interfaces. The functions of the listener are called with the
/// RTNL mutex held. At registration, `interface_added` is called for each interface that exists.
pub trait InterfaceListener: Sync {
    /// Called after an interface was added or renamed.
    fn interface_added(&self, interface: &Interface);
    /// Called when an interface is being removed or renamed.
    fn interface_removed(&self, interface: &Interface);
}

#[repr(C)]
struct NetdevNotifier<T> {
    // `notifier_block` is the first field, because the notifier callback gets the address of
    // `notifier_block`, and casts this address to a pointer to `NetdevNotifier`.
    notifier_block: Opaque<bindings::notifier_block>,
    listener: *const T,
}

/// A registered [`InterfaceListener`]. Dropping this value unregisters the listener.
///
/// # Invariants
///
/// The notifier is registered and pinned. `listener` outlives the notifier, as the caller of
/// [`RegisteredListener::register`] guarantees.
pub struct RegisteredListener<T: InterfaceListener>(Pin<KBox<NetdevNotifier<T>>>);

// SAFETY: The kernel's notifier functions do their own locking, and the listener is shared as `&T`.
unsafe impl<T: InterfaceListener> Send for RegisteredListener<T> {}
// SAFETY: The kernel's notifier functions do their own locking, and the listener is shared as `&T`.
unsafe impl<T: InterfaceListener> Sync for RegisteredListener<T> {}

impl<T: InterfaceListener> RegisteredListener<T> {
    /// Registers a notifier for `listener`. The provider that owns `listener` drops the result of
    /// this function before it drops `listener`: see
    /// [`super::tracepoint::Probes::listen_for_interfaces`].
    #[inline]
    pub fn register(listener: *const T) -> Result<Self> {
        /// # Safety
        ///
        /// Called only by the kernel, with the notifier block that `register` has registered.
        unsafe extern "C" fn notify_listener<T: InterfaceListener>(
            block: *mut bindings::notifier_block,
            event: c_ulong,
            info: *mut c_void,
        ) -> c_int {
            // SAFETY: The notifier block is the first field of a `NetdevNotifier`, whose `listener`
            // is alive by the invariant of [`RegisteredListener`].
            let listener = unsafe { &*(*block.cast::<NetdevNotifier<T>>()).listener };
            // SAFETY: `info` is the argument of a notification about a network device.
            let dev = unsafe { helpers::pfc_netdev_of_notification(info) }.cast::<Interface>();
            // SAFETY: The device is alive during the notification.
            if let Some(interface) = unsafe { dev.as_ref() } {
                // SAFETY: The device is alive during the notification.
                let change =
                    unsafe { helpers::pfc_netdev_change_of_event(event, interface.0.get()) };
                if change & helpers::PFC_NETDEV_REMOVED != 0 {
                    listener.interface_removed(interface);
                }
                if change & helpers::PFC_NETDEV_ADDED != 0 {
                    listener.interface_added(interface);
                }
            }
            0
        }
        let block = bindings::notifier_block {
            notifier_call: Some(notify_listener::<T>),
            next: core::ptr::null_mut(),
            priority: 0,
        };
        let this = KBox::pin(
            NetdevNotifier {
                notifier_block: Opaque::new(block),
                listener,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The notifier block is pinned until drop has unregistered it.
        to_result(unsafe { helpers::register_netdevice_notifier(this.notifier_block.get()) })?;
        // INVARIANT: The notifier was just registered.
        Ok(Self(this))
    }
}

impl<T: InterfaceListener> Drop for RegisteredListener<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The notifier is registered, by the type's invariant.
        // unregister_netdevice_notifier() first calls the notifier as if each interface were
        // removed.
        unsafe { helpers::unregister_netdevice_notifier(self.0.notifier_block.get()) };
    }
}
