// SPDX-License-Identifier: GPL-2.0

//! The memory that a page fault needs for the buffers of a trace.

use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::buffer::{Buffer, ChargedPage};
use crate::buffer_set::BufferSet;
use crate::page::{Page, GFP_NO_OOM, PAGE_SIZE};
use crate::sorted::allocate_list_for_more_than;
use base::account::MemoryCharge;
use base::cpu;

/// The kind of memory that must be allocated before a page fault can be handled. The memory is
/// allocated while `TRACING` is not held, and the page fault is then handled again.
#[derive(Clone, Copy)]
pub(crate) enum NeededMemory {
    /// A list of [`BufferSet`]s. The value is the present number of elements; the new list has
    /// capacity for more.
    SetList(usize),
    /// A [`BufferSet`] without buffers.
    BufferSet,
    /// A buffer with its first page.
    Buffer,
    /// A page of a buffer.
    Page,
}

/// The parameters for allocating a trace's buffers.
pub(crate) struct BufferParams {
    pub(crate) trace: u64,
    pub(crate) bytes: u32,
    pub(crate) flight: bool,
    pub(crate) payer: MemoryCharge,
}

/// The memory that was allocated for a page fault. All memory except `set_list` is charged to the
/// user that created the trace.
#[derive(Default)]
pub(crate) struct FaultMemory {
    pub(crate) set_list: KVVec<BufferSet>,
    pub(crate) set: Option<(BufferSet, MemoryCharge)>,
    pub(crate) buffer: Option<Arc<Buffer>>,
    pub(crate) page: Option<ChargedPage>,
    /// The id of the trace that may use the memory; 0 before anything is allocated.
    pub(crate) trace: u64,
}

impl FaultMemory {
    /// Returns whether the memory can be used for this trace.
    pub(crate) fn is_usable_for_trace(&self, trace: u64) -> bool {
        self.trace == 0 || self.trace == trace
    }

    /// Allocates memory of the kind `need`. Returns `EDQUOT` or `ENOMEM` on failure. May sleep.
    pub(crate) fn allocate(&mut self, need: NeededMemory, terms: &BufferParams) -> Result {
        self.trace = terms.trace;
        match need {
            NeededMemory::SetList(nr) => self.set_list = allocate_list_for_more_than(nr)?,
            NeededMemory::BufferSet => {
                let nr = cpu::nr_cpu_ids();
                let charge = terms
                    .payer
                    .charge_same_user(BufferSet::bytes_without_buffers(nr))?;
                self.set = Some((BufferSet::new(0, nr)?, charge));
            }
            NeededMemory::Buffer => {
                let charge = terms
                    .payer
                    .charge_same_user(Buffer::bytes_without_records(terms.bytes))?;
                let buffer = Buffer::new(terms.bytes, terms.flight, charge)?;
                self.buffer = Some(Arc::new(buffer, GFP_NO_OOM)?);
            }
            NeededMemory::Page => {
                let charge = terms.payer.charge_same_user(PAGE_SIZE)?;
                self.page = Some((Page::new()?, charge));
            }
        }
        Ok(())
    }
}
