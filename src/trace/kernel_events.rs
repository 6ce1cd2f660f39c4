// SPDX-License-Identifier: GPL-2.0

//! The kernel's own markers: context switches and system calls. Events of the kernel's markers are
//! written to the buffers of a trace, with time stamps of the clock that traced programs use.

use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;
use kernel::sync::Arc;
use protocols::filter::{Event, Filter};
use protocols::trace_buffer::{Record, Writer};

use crate::buffer::Buffer;
use crate::clock::trace_clock;
use crate::reader_signal::ReaderSignal;
use crate::stats;
use base::clock::Clock;
use base::preempt::NoPreempt;
use base::tracepoint::{EventHandler, Probes};
use base::tracepoint::{SchedSwitch, SysEnter, SysExit, SyscallAbi};
use base::{cpu, task};
use protocols::sync::Word;

/// The names and fields of the kernel's own markers, by marker number.
pub(crate) const KERNEL_MARKERS: [(&[u8], &[u8]); 3] = [
    (
        b"kernel:sched_switch",
        b"prev:u32 next:u32 blocks:u32 prio:s32",
    ),
    (b"kernel:sys_enter", b"number:s64 abi:str"),
    (b"kernel:sys_exit", b"result:s64"),
];

/// The state of the probes of kernel events in one trace.
pub(crate) struct KernelEvents {
    /// The trace's buffer for the kernel events of each CPU.
    buffers: KVec<Option<Arc<Buffer>>>,
    /// The trace's filter program. Empty if the trace has no filter.
    filter_program: KVVec<u8>,
    /// The clock of the events' time stamps.
    clock: Clock,
    /// Wakes the reader of the trace.
    signal: Arc<ReaderSignal>,
    /// Nonzero while the trace is paused.
    paused: Word,
}

impl KernelEvents {
    /// Attaches the probes of the kernel markers for which `wants` returns true. The probes write
    /// into `buffers`, one for each CPU. The caller has allocated all pages of `buffers`. May
    /// sleep.
    pub(crate) fn attach(
        buffers: KVec<Option<Arc<Buffer>>>,
        filter_program: KVVec<u8>,
        signal: Arc<ReaderSignal>,
        wants: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Probes<Self>> {
        let mut probes = Probes::new(Self {
            buffers,
            filter_program,
            clock: trace_clock(),
            signal,
            paused: Word::new(0),
        })?;
        let [switch, enter, exit] = KERNEL_MARKERS;
        if wants(switch.0) {
            probes.attach::<SchedSwitch<'_>>()?;
        }
        if wants(exit.0) {
            probes.attach::<SysExit<'_>>()?;
        }
        if wants(enter.0) {
            probes.attach::<SysEnter<'_>>()?;
        }
        Ok(probes)
    }

    /// Pauses (`pause` is true) or resumes the writing of kernel events.
    pub(crate) fn set_paused(&self, pause: bool) {
        self.paused.store_relaxed(pause.into());
    }

    /// Writes an event of a kernel marker into the buffer of this CPU. Called with preemption off.
    ///
    /// On one CPU, the probes of the three kernel markers do not interrupt each other. A buffer
    /// therefore has only one writer at a time.
    fn write_event<const N: usize>(&self, marker: u16, fields: [u64; N]) {
        if self.paused.load_relaxed() != 0 {
            return;
        }
        let cpu = cpu::this_cpu() as usize;
        let Some(Some(buffer)) = self.buffers.get(cpu) else {
            return;
        };
        let task = task::current_task_ref();
        if !self.filter_program.is_empty() {
            let Some((name, kinds)) = KERNEL_MARKERS.get(usize::from(marker)) else {
                return;
            };
            let mut payload = [0u8; 32];
            for (to, word) in payload.chunks_exact_mut(8).zip(&fields) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            let event = Event {
                marker: name,
                fields: kinds,
                payload: &payload,
                thread: task.pid(),
                process: task.tgid(),
            };
            if !Filter::new(self.filter_program.as_slice()).accepts(&event) {
                return;
            }
        }
        let writer = Writer {
            counts: buffer.counts(),
            bytes: buffer.bytes,
            is_flight_recorder: buffer.flight,
            word_at: |number| buffer.word(number),
        };
        let record = Record {
            marker,
            thread: task.pid(),
            time: self.clock.now_by_user_readable_clock(),
            fields,
        };
        let lost = buffer.unchecked_lost_count();
        let due = writer.write_and_check_wakeup(&record);
        if buffer.unchecked_lost_count() != lost {
            stats::count_lost_kernel_event();
        }
        if due && !self.signal.may_have_unread_data() {
            self.signal.notify_reader();
        }
    }
}

fn pack_u32_pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

impl EventHandler<SchedSwitch<'_>> for KernelEvents {
    fn handle_event(&self, event: SchedSwitch<'_>) {
        let (before, after) = (event.before, event.next);
        let fields = [
            pack_u32_pair(before.pid(), after.pid()),
            pack_u32_pair(
                event.prev_state.blocks_or_exits().into(),
                after.prio() as u32,
            ),
        ];
        self.write_event(0, fields);
    }
}

impl EventHandler<SysEnter<'_>> for KernelEvents {
    fn handle_event(&self, event: SysEnter<'_>) {
        let _preempt = NoPreempt::new();
        // A text field of a record consists of the bytes of the text and a NUL. Zeros fill the rest
        // of the field's last 64-bit word.
        let abi = match event.abi() {
            SyscallAbi::X86_64 => b"x86_64\0\0",
            SyscallAbi::I386 => b"i386\0\0\0\0",
            SyscallAbi::X32 => b"x32\0\0\0\0\0",
        };
        self.write_event(1, [event.number as u64, u64::from_ne_bytes(*abi)]);
    }
}

impl EventHandler<SysExit<'_>> for KernelEvents {
    fn handle_event(&self, event: SysExit<'_>) {
        let _preempt = NoPreempt::new();
        self.write_event(2, [event.result as u64]);
    }
}
