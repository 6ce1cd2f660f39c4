// SPDX-License-Identifier: GPL-2.0

//! Process accounting: the per-CPU state, the clock and the device `/dev/ppa`. Records of tasks are
//! in [`super::records`], and the `/proc` files in [`super::proc`].

use core::arch::asm;
use core::mem::size_of;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVVec;
use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong};
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};
use ppa_rules::{Cpu, NR_LATENCIES, NR_SIGNALS, NR_VALUES};
use protocols::sync::Word;

use super::ppa_shim as shim;
use super::records::TaskRecord;
use crate::accounting as files;
use crate::base::clock::Clock;
use crate::base::device::{Device, Ops, Ready};
use crate::base::task::TaskRef;
use crate::base::user_memory::{bytes_of, read, write, FromBytes};
use crate::base::{access, cpu, rcu};

/// The accounting state of a CPU, and the record of the task that runs on the CPU.
#[repr(C, align(64))]
pub(crate) struct PerCpu {
    pub(crate) words: Cpu,
    task: Word,
    pub(crate) clock: Clock,
}

impl PerCpu {
    /// Returns the accounting state of this CPU; `None` while accounting is off. Preemption is off
    /// while the state is used, because the state is freed after a grace period.
    #[inline(always)]
    pub(crate) fn this_cpu<'a>() -> Option<&'a Self> {
        let here: usize;
        // SAFETY: The per-CPU word is 0 or the address of this CPU's element of [`PerCpuTable`],
        // whose drop clears the word and waits for sections with preemption off.
        unsafe {
            asm!("movq %gs:{p}, {h}", p = sym shim::ppa_percpu,
                h = out(reg) here, options(att_syntax, nostack, readonly, preserves_flags));
            (here as *const Self).as_ref()
        }
    }

    /// Returns the accounting state of an offline CPU, which does not use the state itself.
    /// Preemption is off while the state is used.
    pub(crate) fn of_cpu<'a>(cpu: u32) -> Option<&'a Self> {
        // SAFETY: `cpu` is the number of a CPU. The word of that CPU is 0 or the address of the
        // CPU's element of [`PerCpuTable`], whose drop clears the word and waits for sections with
        // preemption off.
        unsafe { (shim::ppa_percpu_of(cpu) as *const Self).as_ref() }
    }

    /// Returns the record of the task that runs on this CPU. Called with preemption off.
    #[inline(always)]
    pub(crate) fn task<'a>(&self) -> Option<&'a TaskRecord> {
        // SAFETY: A record is freed a grace period after it was taken out of the index: by the
        // task's last switch, which has replaced it here, or by
        // `AccountingState::replace_record()`, which has run `refresh_current()` on this CPU, or by
        // `AccountingState::insert()` for a dead task, which has preemption off until its last
        // switch.
        unsafe { (self.task.load_relaxed() as *const TaskRecord).as_ref() }
    }

    /// Returns whether the task that runs on this CPU is a ksoftirqd thread. Called with preemption
    /// off.
    #[inline(always)]
    pub(crate) fn is_softirqd(&self) -> bool {
        self.task().is_some_and(|record| record.softirqd)
    }

    /// Sets the record of the task that runs on this CPU; `None` if the task is not accounted.
    /// Called with interrupts off.
    #[inline(always)]
    pub(crate) fn set_task(&self, record: Option<&TaskRecord>) {
        let address = record.map_or(0, |r| core::ptr::from_ref(r) as u64);
        self.task.store_relaxed(address);
    }
}

/// The accounting states of all CPUs.
///
/// # Invariants
///
/// Each CPU's pointer (`ppa_percpu`) is null or points to the element of that CPU. Elements do not
/// move.
pub(crate) struct PerCpuTable(KVVec<PerCpu>);

impl PerCpuTable {
    /// Allocates the accounting states of all CPUs. The probes do not use the states before
    /// [`publish`](Self::publish). May sleep.
    pub(crate) fn new(clock: Clock) -> Result<Self> {
        let mut all = KVVec::with_capacity(cpu::nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..cpu::nr_cpu_ids() {
            let here = PerCpu {
                words: Cpu::new(cpu),
                task: Word::new(0),
                clock,
            };
            all.push(here, GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// Sets the pointers of all CPUs to their elements. The elements are on the heap and do not
    /// move.
    pub(crate) fn publish(&self) {
        for (here, cpu) in self.0.iter().zip(0..) {
            // SAFETY: The number is that of a CPU, and drop clears the pointer before the element
            // is freed.
            unsafe { shim::ppa_set_percpu(cpu, core::ptr::from_ref(here).cast_mut().cast()) };
        }
    }

    /// Returns the accounting state of a CPU.
    #[inline]
    pub(crate) fn cpu(&self, cpu: u32) -> Option<&PerCpu> {
        self.0.get(cpu as usize)
    }
}

impl Drop for PerCpuTable {
    fn drop(&mut self) {
        // The wait below is for CPU hotplug callbacks that still use a pointer; the probes are
        // detached already.
        for cpu in 0..cpu::nr_cpu_ids() {
            // SAFETY: The number is that of a CPU.
            unsafe { shim::ppa_set_percpu(cpu, core::ptr::null_mut()) };
        }
        rcu::synchronize();
    }
}

/// `struct ppa_task`: the record of a task that user space reads from `/dev/ppa`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TaskStats {
    size: u32,
    pub(crate) flags: u32,
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) ppid: u32,
    pub(crate) uid: u32,
    cpu: u32,
    reserved: u32,
    began: u64,
    counted: u64,
    values: [u64; NR_VALUES],
    runq: u64,
    latencies: [u64; NR_LATENCIES],
    signals: [u32; NR_SIGNALS],
    reserved2: u32,
    pub(crate) name: [u8; 16],
}

const _: () = assert!(size_of::<TaskStats>() == 488);
// SAFETY: The structure consists of integers without padding: the sizes of its fields add up to its
// size.
unsafe impl FromBytes for TaskStats {}

/// Values of `flags`: `PPA_TASK_*`.
const KERNEL: u32 = 1;
const ENDED: u32 = 2;
const RUNNING: u32 = 4;
const LATENCIES: u32 = 8;

impl TaskStats {
    /// Creates the structure from a record. Returns `None` if the record is being updated, or if
    /// the task was reaped and has no ids any more. After `None` the caller retries.
    ///
    /// With `ended` the task of the record has ended, and the ids and the name are taken from the
    /// record. Without `ended` the record is in the index, and the caller uses it with preemption
    /// off or under RCU. With `all` the ids are those of the initial namespaces, otherwise those of
    /// the caller's namespaces.
    pub(crate) fn new(
        record: &TaskRecord,
        heres: &PerCpuTable,
        ended: bool,
        all: bool,
        clock: Clock,
    ) -> Option<Self> {
        let read = record.read(
            || clock.now_ordered(),
            |cpu| heres.cpu(cpu).map(|here| &here.words),
            &mut [],
        )?;
        let (who, name) = match ended {
            true => record.saved_ids(),
            false => {
                // SAFETY: The record was found in the index with preemption off or under RCU. A
                // task is freed a grace period after its last switch, which takes its record out of
                // the index.
                let task = unsafe { TaskRef::new(record.address as *mut _) };
                (task.ids(all), task.name())
            }
        };
        // A reaped task has no ids. After its last switch, which follows soon, the record of the
        // task is read with the ids that the record has kept since the exit.
        if who.reaped != 0 {
            return None;
        }
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        Some(Self {
            size: size_of::<Self>() as u32,
            flags: bit(record.kernel, KERNEL)
                | bit(ended, ENDED)
                | bit(read.running && !ended, RUNNING)
                | bit(record.words.has_latency_hist(), LATENCIES),
            pid: who.pid,
            tgid: who.tgid,
            ppid: who.ppid,
            uid: who.uid,
            cpu: read.cpu,
            reserved: 0,
            began: record.began,
            counted: read.counted,
            values: read.values,
            runq: read.runq,
            latencies: read.latencies,
            signals: core::array::from_fn(|n| record.signals(n)),
            reserved2: 0,
            name,
        })
    }

    /// Returns whether the task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.flags & ENDED != 0
    }
}

/// `struct ppa_info`: the state of process accounting that user space reads.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Info {
    pub(crate) size: u32,
    pub(crate) version: u32,
    pub(crate) khz: u32,
    pub(crate) levels: u32,
    pub(crate) flags: u32,
    pub(crate) scaling: u32,
    pub(crate) nr_cpus: u32,
    pub(crate) nr_groups: u32,
    pub(crate) nr_tasks: u64,
    pub(crate) nr_ended: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) now: u64,
}

const _: () = assert!(size_of::<Info>() == 72);
// SAFETY: The structure consists of integers without padding, as the asserted size shows.
unsafe impl FromBytes for Info {}

/// Set at the end of module init, after the last step that can fail. Until then the device cannot be
/// opened.
pub(crate) static READY: Ready = Ready::new();

static PPA_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::base::module::module(),
    open: Some(open),
    release: Some(release),
    read: Some(read_tasks),
    unlocked_ioctl: Some(ioctl),
    // The structures of the calls have the same layout in 32-bit and 64-bit programs.
    #[cfg(CONFIG_COMPAT)]
    compat_ioctl: bindings::compat_ptr_ioctl,
    llseek: Some(bindings::default_llseek),
    ..pin_init::zeroed()
});

/// Registers the device `/dev/ppa`. Dropping the result removes the device.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"ppa", &PPA_OPS, 0o444)
}

/// Opens `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.open`.
unsafe extern "C" fn open(_: *mut bindings::inode, _: *mut bindings::file) -> c_int {
    from_result(|| READY.check().map(|()| 0))
}

/// Closes a file of `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.release`.
unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    files::close(file as usize);
    0
}

/// Reads the records of tasks: first the records in the index, then the records of ended tasks that
/// this file has not got. Returns `EACCES` without `CAP_PERFMON` or `CAP_SYS_ADMIN`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.read`.
unsafe extern "C" fn read_tasks(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    position: *mut bindings::loff_t,
) -> isize {
    let done = || -> Result<usize> {
        if !access::is_perfmon_capable() {
            return Err(EACCES);
        }
        if count < size_of::<TaskStats>() {
            return Err(EINVAL);
        }
        // SAFETY: The kernel passes the position, which is valid during the call.
        let mut place = unsafe { *position } as u64;
        // The records are copied after the lock was released, because page faults of the caller's
        // memory may take long.
        let most = count / size_of::<TaskStats>();
        let (all, next) = files::collect_tasks(file as usize, &mut place, most)?;
        let mut writer = UserSlice::new(UserPtr::from_addr(to as usize), count).writer();
        for told in &all {
            writer.write_slice(bytes_of(core::slice::from_ref(told)))?;
        }
        if all.iter().any(TaskStats::has_ended) {
            files::delivered(file as usize, next);
        }
        // SAFETY: The kernel passes the position, which is valid during the call.
        unsafe { *position = place as bindings::loff_t };
        Ok(all.len().wrapping_mul(size_of::<TaskStats>()))
    };
    match done() {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
    }
}

const GETINFO: u32 = kernel::ioctl::_IOR::<Info>('A' as u32, 0xa0);
const GETTASK: u32 = kernel::ioctl::_IOWR::<TaskStats>('A' as u32, 0xa1);

/// Dispatches the calls of `/dev/ppa`.
///
/// # Safety
///
/// Called only by the kernel, as `file_operations.unlocked_ioctl`.
unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    let done = || -> Result {
        let at = UserPtr::from_addr(arg);
        match command {
            GETINFO => write(at, &files::info(file as usize)),
            GETTASK => {
                let [_, _, pid]: [u32; 3] = read(at)?;
                let told = files::collect_task(pid)?;
                write(at, &told)
            }
            _ => Err(ENOTTY),
        }
    };
    match done() {
        Ok(()) => 0,
        Err(error) => error.to_errno() as c_long,
    }
}
