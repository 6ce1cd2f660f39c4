// SPDX-License-Identifier: GPL-2.0

//! What network providers see of packets and interfaces.

use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::types::Opaque;

use super::family::Key;
use super::shim;

/// `struct net_device`, for the time of a probe or a notice.
#[repr(transparent)]
pub struct Interface(Opaque<bindings::net_device>);

impl Interface {
    /// Name and number, as the machine's own network namespace has them;
    /// `None` in other namespaces, whose names are not unique.
    #[inline]
    pub fn name(&self) -> Option<([u8; 32], Key)> {
        let mut name = [0; 32];
        // SAFETY: Alive for the time of the probe or notice; the name of an
        // interface has 16 bytes.
        let index = unsafe { shim::pfc_netdev_name(self.0.get(), name.as_mut_ptr().cast()) };
        (index != 0).then(|| (name, Key::number_only(index)))
    }

    /// The number alone, for look-up: no row has number 0, which is what
    /// interfaces of other namespaces get.
    #[inline]
    pub fn key(&self) -> Key {
        // SAFETY: Alive for the time of the probe or notice.
        Key::number_only(unsafe { shim::pfc_netdev_index(self.0.get()) })
    }
}

/// `struct sk_buff`, for the time of a probe.
#[repr(transparent)]
pub struct Packet(Opaque<bindings::sk_buff>);

impl Packet {
    /// Bytes on the wire, link header included.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        // SAFETY: Alive for the time of the probe.
        unsafe { shim::pfc_skb_wire_len(self.0.get()) }
    }
}

/// The interface a packet is at, for events that happen in a device's care:
/// elsewhere the field holds something else.
///
/// # Safety
///
/// `skb` is alive, and at a device.
#[inline]
pub(super) unsafe fn interface<'a>(skb: *const bindings::sk_buff) -> Option<&'a Interface> {
    // SAFETY: By the function's requirement; the device lives as long as the
    // probe.
    unsafe { shim::pfc_skb_dev(skb).cast::<Interface>().as_ref() }
}

/// Does the interface's own `rx_dropped` count drops for this reason?
#[inline]
pub(super) fn is_dropped_at_device(reason: u32) -> bool {
    matches!(
        reason,
        bindings::skb_drop_reason_SKB_DROP_REASON_CPU_BACKLOG
            | bindings::skb_drop_reason_SKB_DROP_REASON_UNHANDLED_PROTO
    )
}

/// Word of interfaces that come and go. Called with the rtnl lock held, once
/// for each that exists, then for each change.
pub trait Watch: Sync {
    /// An interface is there, or has a new name.
    fn arrived(&self, interface: &Interface);
    /// An interface goes.
    fn left(&self, interface: &Interface);
}

#[repr(C)]
struct Notifier<T> {
    // First: the callback gets its address.
    block: Opaque<bindings::notifier_block>,
    state: *const T,
}

/// A registered [`Watch`]; drop ends it.
///
/// # Invariants
///
/// Registered, pinned, and `state` outlives it (the caller's promise in
/// [`Watching::start`]).
pub struct Watching<T: Watch>(Pin<KBox<Notifier<T>>>);

// SAFETY: C takes its own lock; the state is shared as `&T`.
unsafe impl<T: Watch> Send for Watching<T> {}
// SAFETY: C takes its own lock; the state is shared as `&T`.
unsafe impl<T: Watch> Sync for Watching<T> {}

impl<T: Watch> Watching<T> {
    /// Starts. `state` lies in a box of the same provider, which drops this
    /// first: see [`super::probe::Probes::watch`].
    #[inline]
    pub(super) fn start(state: *const T) -> Result<Self> {
        /// # Safety
        ///
        /// Called by the kernel, with the block that `start` registered.
        unsafe extern "C" fn notice<T: Watch>(
            block: *mut bindings::notifier_block,
            event: c_ulong,
            info: *mut c_void,
        ) -> c_int {
            // SAFETY: The first field of a `Notifier`, whose state lives.
            let state = unsafe { &*(*block.cast::<Notifier<T>>()).state };
            // SAFETY: `info` of a net device notice.
            let dev = unsafe { shim::pfc_notifier_dev(info) }.cast::<Interface>();
            // SAFETY: Alive for the time of the notice.
            if let Some(interface) = unsafe { dev.as_ref() } {
                // SAFETY: No requirements.
                let change = unsafe { shim::pfc_netdev_change(event) };
                if change & shim::PFC_NETDEV_LEFT != 0 {
                    state.left(interface);
                }
                if change & shim::PFC_NETDEV_ARRIVED != 0 {
                    state.arrived(interface);
                }
            }
            0
        }
        let block = bindings::notifier_block {
            notifier_call: Some(notice::<T>),
            next: core::ptr::null_mut(),
            priority: 0,
        };
        let this = KBox::pin(
            Notifier {
                block: Opaque::new(block),
                state,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: Pinned until unregistered in drop.
        to_result(unsafe { shim::register_netdevice_notifier(this.block.get()) })?;
        // INVARIANT: just registered.
        Ok(Self(this))
    }
}

impl<T: Watch> Drop for Watching<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Registered, by the type's invariant. The kernel calls `left`
        // for each interface first.
        unsafe { shim::unregister_netdevice_notifier(self.0.block.get()) };
    }
}
