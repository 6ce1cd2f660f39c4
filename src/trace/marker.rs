// SPDX-License-Identifier: GPL-2.0

//! Markers of processes: their names and fields, and their conversion from and to `struct
//! perftrace_marker`.

use core::cmp::Ordering;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::{filter, structure::FromBytes};
use trace_rules::abi::Marker;

use crate::page::Page;
use crate::sorted::allocate_list_for_more_than;

/// A registered marker, which never changes.
pub(crate) struct RegisteredMarker {
    /// The name of the marker, `provider:event`.
    pub(crate) name: KVec<u8>,
    /// The fields of the marker, as text.
    pub(super) fields: KVec<u8>,
}

impl RegisteredMarker {
    /// Copies a marker that a process registers. Returns `EINVAL` if the marker's name or fields
    /// are invalid, or `ENOMEM`. May sleep.
    pub(crate) fn new(marker: &Marker) -> Result<Self> {
        let (name, fields) = checked_name_and_fields(marker)?;
        Ok(Self {
            name: copy_bytes(name)?,
            fields: copy_bytes(fields)?,
        })
    }

    /// Returns the size of the marker in memory in bytes, including its entries in the lists of a
    /// process.
    pub(super) fn memory(&self) -> usize {
        let texts = self.name.len().wrapping_add(self.fields.len());
        let beside = size_of::<(Arc<Self>, u32, u16)>();
        texts.wrapping_add(size_of::<Self>()).wrapping_add(beside)
    }

    /// Orders the marker relative to another name and other fields: first by name, then by fields.
    pub(super) fn cmp(&self, name: &[u8], fields: &[u8]) -> Ordering {
        let by_name = (*self.name).cmp(name);
        by_name.then_with(|| (*self.fields).cmp(fields))
    }

    /// Returns the marker as `struct perftrace_marker`.
    pub(crate) fn abi_marker(&self, number: usize) -> Marker {
        abi_marker(&self.name, &self.fields, number)
    }
}

/// Creates a `struct perftrace_marker` from the name, the fields and the number of a marker.
pub(crate) fn abi_marker(name: &[u8], fields: &[u8], number: usize) -> Marker {
    let mut marker = Marker {
        number: number as u32,
        ..Marker::ZERO
    };
    for (to, byte) in marker.name.iter_mut().zip(name) {
        *to = *byte;
    }
    for (to, byte) in marker.fields.iter_mut().zip(fields) {
        *to = *byte;
    }
    marker
}

/// Returns the name and the fields of a marker that a process registers. Returns `EINVAL` if the
/// name or the fields are invalid, or if the name starts with `kernel:`, the prefix of kernel
/// markers.
fn checked_name_and_fields(marker: &Marker) -> Result<(&[u8], &[u8])> {
    let name = filter::text_before_nul(&marker.name).ok_or(EINVAL)?;
    let fields = filter::text_before_nul(&marker.fields).ok_or(EINVAL)?;
    let kernels = name.starts_with(b"kernel:");
    if kernels || !filter::is_valid_marker_name(name) || !filter::is_valid_field_list(fields) {
        return Err(EINVAL);
    }
    Ok((name, fields))
}

/// Returns a copy of `bytes`, or `ENOMEM`.
fn copy_bytes(bytes: &[u8]) -> Result<KVec<u8>> {
    let mut copy = KVec::with_capacity(bytes.len(), GFP_KERNEL_ACCOUNT)?;
    copy.extend_from_slice(bytes, GFP_KERNEL_ACCOUNT)?;
    Ok(copy)
}

/// Memory that the registration of a marker may need, allocated before `TRACING` is taken.
#[derive(Default)]
pub(crate) struct MarkerMemory {
    pub(crate) markers: KVVec<Arc<RegisteredMarker>>,
    pub(crate) registration_counts: KVVec<u32>,
    pub(crate) sorted_marker_numbers: KVVec<u16>,
    pub(crate) page: Option<Page>,
}

impl MarkerMemory {
    /// Allocates lists with capacity for more than `nr` markers, and a page of marker words. May
    /// sleep.
    pub(crate) fn with_room_for_more_than(nr: usize) -> Result<Self> {
        Ok(Self {
            markers: allocate_list_for_more_than(nr)?,
            registration_counts: allocate_list_for_more_than(nr)?,
            sorted_marker_numbers: allocate_list_for_more_than(nr)?,
            page: Some(Page::new()?),
        })
    }
}
