// SPDX-License-Identifier: GPL-2.0

//! Process accounting, where it touches the kernel: each CPU's words, the clock, the device.
//! Tasks' records are in [`super::records`], the files in [`super::proc`].

use core::arch::asm;
use core::mem::size_of;

use engine::accounting::{self, Cpu, NR_SIGNALS, NR_VALUES};
use engine::sync::Word;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KVVec;
use kernel::bindings;
use kernel::error::{from_result, Result};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::uaccess::{UserPtr, UserSlice};

use super::file::{is_ready, Device, Ops};
use super::records::Record;
use super::task::TaskRef;
use super::user::{bytes_of, read, write, Given};
use super::{cpu, rights, sched, shim};
use crate::accounting as files;

/// Ticks of a millisecond, and whether they are the processor's own.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) khz: u32,
    tsc: bool,
}

impl Clock {
    /// The time stamp counter where it goes on at one pace on all CPUs, else the
    /// scheduler's clock of nanoseconds.
    pub(crate) fn choose() -> Self {
        // SAFETY: No requirements.
        match unsafe { shim::ppa_tsc_khz() } {
            0 => Self {
                khz: 1_000_000,
                tsc: false,
            },
            khz => Self { khz, tsc: true },
        }
    }

    /// That of all traces: what it is for the first one it stays, as records and those who read
    /// them rely on it.
    pub(crate) fn of_traces() -> Self {
        const TSC: u64 = 1 << 32;
        static CHOSEN: Atomic<u64> = Atomic::new(0);
        // Relaxed: the word is all there is.
        let chosen = match CHOSEN.load(Relaxed) {
            0 => {
                let new = Self::choose();
                let new = u64::from(new.khz) | if new.tsc { TSC } else { 0 };
                match CHOSEN.cmpxchg(0, new, Relaxed) {
                    Ok(_) => new,
                    Err(other) => other,
                }
            }
            chosen => chosen,
        };
        Self {
            khz: chosen as u32,
            tsc: chosen & TSC != 0,
        }
    }

    /// It is the time stamp counter, which the kernel has given up since.
    pub(crate) fn is_unstable(&self) -> bool {
        // SAFETY: No requirements.
        self.tsc && unsafe { shim::ppa_tsc_khz() } == 0
    }

    /// Ticks that user space can read, too: without the time stamp counter, CLOCK_MONOTONIC.
    pub(crate) fn ticks(&self) -> u64 {
        match self.tsc {
            true => self.now_after(),
            // SAFETY: No requirements.
            false => unsafe { bindings::ktime_get_mono_fast_ns() },
        }
    }

    /// Are those of [`ticks`](Self::ticks) CLOCK_MONOTONIC's?
    pub(crate) fn is_monotonic(&self) -> bool {
        !self.tsc
    }

    /// Nanoseconds of ticks.
    pub(crate) fn nanos(&self, ticks: u64) -> u64 {
        let khz = u64::from(self.khz);
        let ms = ticks.checked_div(khz).unwrap_or(0);
        let rest = ticks.wrapping_sub(ms.wrapping_mul(khz));
        let rest = rest.wrapping_mul(1_000_000).checked_div(khz).unwrap_or(0);
        ms.wrapping_mul(1_000_000).wrapping_add(rest)
    }

    /// Now, after whatever was read before, and before what is read next. Any context.
    pub(crate) fn now_after(&self) -> u64 {
        // SAFETY: Instructions without operands; the time stamp counter might else be read
        // before earlier loads are done, or after later ones.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        let now = self.now();
        // SAFETY: An instruction without operands, which only waits.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        now
    }

    /// Now, if that takes no call. Any context.
    #[inline(always)]
    pub(crate) fn quick(&self) -> Option<u64> {
        // SAFETY: An instruction that every such processor has.
        self.tsc.then(|| unsafe { core::arch::x86_64::_rdtsc() })
    }

    /// Now. Any context.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        match self.tsc {
            // SAFETY: An instruction that every such processor has.
            true => unsafe { core::arch::x86_64::_rdtsc() },
            // SAFETY: No requirements.
            false => unsafe { shim::ppa_local_clock() },
        }
    }
}

/// A CPU's words, and the task that runs there.
#[repr(C, align(64))]
pub(crate) struct Here {
    pub(crate) words: Cpu,
    task: Word,
    pub(crate) cpu: u32,
    pub(crate) clock: Clock,
}

impl Here {
    /// This CPU's, while there is accounting. Preemption off while it is used: it goes
    /// when no probe can run any more.
    #[inline(always)]
    pub(crate) fn get<'a>() -> Option<&'a Self> {
        let here: usize;
        // SAFETY: A word of this CPU: 0 or its words, which are freed after the probes.
        unsafe {
            asm!("movq %gs:{p}, {h}", p = sym shim::ppa_here,
                h = out(reg) here, options(att_syntax, nostack, readonly, preserves_flags));
            (here as *const Self).as_ref()
        }
    }

    /// Another CPU's, which is off and so does not use it. Preemption off, as above.
    pub(crate) fn of<'a>(cpu: u32) -> Option<&'a Self> {
        // SAFETY: A CPU's number; 0 or its words, as above.
        unsafe { (shim::ppa_here_of(cpu) as *const Self).as_ref() }
    }

    /// The record of the task that runs here. Preemption off.
    #[inline(always)]
    pub(crate) fn task<'a>(&self) -> Option<&'a Record> {
        // SAFETY: A record is not freed before a grace period after its task's last switch,
        // which takes it out of here.
        unsafe { (self.task.load_relaxed() as *const Record).as_ref() }
    }

    /// Does a thread run here that is there for softirqs? Preemption off.
    #[inline(always)]
    pub(crate) fn is_softirqd(&self) -> bool {
        self.task().is_some_and(|record| record.softirqd)
    }

    /// Another task runs. Interrupts off.
    #[inline(always)]
    pub(crate) fn set_task(&self, record: Option<&Record>) {
        let address = record.map_or(0, |r| core::ptr::from_ref(r) as u64);
        self.task.store_relaxed(address);
    }
}

/// The words of all CPUs, where they find them.
///
/// # Invariants
///
/// Each CPU's pointer is null or to its element, which does not move.
pub(crate) struct Heres(KVVec<Here>);

impl Heres {
    /// For all CPUs that can be. May sleep.
    pub(crate) fn new(clock: Clock) -> Result<Self> {
        let mut all = KVVec::with_capacity(cpu::nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..cpu::nr_cpu_ids() {
            let here = Here {
                words: Cpu::default(),
                task: Word::new(0),
                cpu,
                clock,
            };
            all.push(here, GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// CPUs find them from now on. Once they are where they stay.
    pub(crate) fn publish(&self) {
        for (here, cpu) in self.0.iter().zip(0..) {
            // SAFETY: A CPU's number; the type's invariant.
            unsafe { shim::ppa_set_here(cpu, core::ptr::from_ref(here).cast_mut().cast()) };
        }
    }

    /// A CPU's.
    #[inline]
    pub(crate) fn of(&self, cpu: u32) -> Option<&Here> {
        self.0.get(cpu as usize)
    }
}

impl Drop for Heres {
    fn drop(&mut self) {
        // The probes went first; a CPU that comes or goes may still look.
        for cpu in 0..cpu::nr_cpu_ids() {
            // SAFETY: A CPU's number.
            unsafe { shim::ppa_set_here(cpu, core::ptr::null_mut()) };
        }
        sched::synchronize();
    }
}

/// Is a CPU there?
pub(crate) fn is_online(cpu: u32) -> bool {
    // SAFETY: A number below nr_cpu_ids, of the callers.
    unsafe { shim::ppa_cpu_online(cpu) }
}

/// Calls a function with each task but the idle ones; it must not sleep.
pub(crate) fn each_task(mut function: &mut dyn FnMut(TaskRef<'_>)) {
    /// # Safety
    ///
    /// `function` is a `&mut &mut dyn FnMut(TaskRef)`, `task` a task that stays meanwhile.
    unsafe extern "C" fn each(task: *mut bindings::task_struct, function: *mut c_void) {
        // SAFETY: By the function's requirements.
        unsafe { (*function.cast::<&mut dyn FnMut(TaskRef<'_>)>())(TaskRef::new(task)) }
    }
    let function: *mut &mut dyn FnMut(TaskRef<'_>) = &mut function;
    // SAFETY: The function outlives the call.
    unsafe { shim::ppa_each_task(each, function.cast()) }
}

/// The task that runs. In a probe, or with preemption off.
#[inline(always)]
pub(crate) fn running<'a>() -> TaskRef<'a> {
    // SAFETY: It stays as long as it runs, which is longer than the caller.
    unsafe { TaskRef::new(kernel::task::Task::current_raw()) }
}

/// `struct ppa_task`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Told {
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
    latencies: [u64; accounting::NR_LATENCIES],
    signals: [u32; NR_SIGNALS],
    reserved2: u32,
    pub(crate) name: [u8; 16],
}

const _: () = assert!(size_of::<Told>() == 488);
// SAFETY: Numbers, without padding: their sizes add up to the structure's.
unsafe impl Given for Told {}

/// `PPA_TASK_*`.
const KERNEL: u32 = 1;
const ENDED: u32 = 2;
const RUNNING: u32 = 4;
const LATENCIES: u32 = 8;

impl Told {
    /// What is told of a record: of a task that is there under RCU, or that has ended; to
    /// those who may see all, or with the numbers that the caller knows. `None`: it is just
    /// being changed, or going.
    pub(crate) fn new(
        record: &Record,
        heres: &Heres,
        ended: bool,
        all: bool,
        clock: Clock,
    ) -> Option<Self> {
        let read = record.words.read(
            || clock.now_after(),
            |cpu| heres.of(cpu).map(|here| &here.words),
        )?;
        let (who, name) = match ended {
            true => record.kept(),
            false => {
                // SAFETY: A task is freed a grace period after its last switch, which takes
                // its record out of the index.
                let task = unsafe { TaskRef::new(record.address as *mut _) };
                (task.who(all), task.name())
            }
        };
        // Its last switch is near, which keeps who it was.
        if who.reaped != 0 {
            return None;
        }
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        Some(Self {
            size: size_of::<Self>() as u32,
            flags: bit(record.kernel, KERNEL)
                | bit(ended, ENDED)
                | bit(read.running && !ended, RUNNING)
                | bit(record.words.tells_latencies(), LATENCIES),
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
            signals: core::array::from_fn(|n| record.words.signals(n)),
            reserved2: 0,
            name,
        })
    }

    /// Has it ended?
    pub(crate) fn has_ended(&self) -> bool {
        self.flags & ENDED != 0
    }

    /// Is it of this record, of a task that has ended?
    pub(crate) fn is_of(&self, record: &Record) -> bool {
        self.pid == record.kept().0.pid && self.began == record.began
    }
}

/// `struct ppa_info`.
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
// SAFETY: Numbers, without padding, as its size says.
unsafe impl Given for Info {}

static PPA_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::sys::release::module(),
    open: Some(open),
    read: Some(read_tasks),
    unlocked_ioctl: Some(ioctl),
    // The structures are the same there.
    #[cfg(CONFIG_COMPAT)]
    compat_ioctl: bindings::compat_ptr_ioctl,
    llseek: Some(bindings::default_llseek),
    ..pin_init::zeroed()
});

/// The device; drop removes it.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"ppa", &PPA_OPS, 0o444)
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn open(_: *mut bindings::inode, _: *mut bindings::file) -> c_int {
    from_result(|| is_ready().map(|()| 0))
}

/// # Safety
///
/// Called by the kernel, as the operation `read`.
unsafe extern "C" fn read_tasks(
    _: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    position: *mut bindings::loff_t,
) -> isize {
    let done = || -> Result<usize> {
        if !rights::is_perfmon_capable() {
            return Err(EACCES);
        }
        if count < size_of::<Told>() {
            return Err(EINVAL);
        }
        // SAFETY: The kernel's own, for the time of the call.
        let mut place = unsafe { *position } as u64;
        // Written without the lock: the caller's memory may take its time.
        let all = files::tell(&mut place, count / size_of::<Told>())?;
        let mut writer = UserSlice::new(UserPtr::from_addr(to as usize), count).writer();
        for told in &all {
            writer.write_slice(bytes_of(core::slice::from_ref(told)))?;
        }
        files::forget(&all);
        // SAFETY: The kernel's own, for the time of the call.
        unsafe { *position = place as bindings::loff_t };
        Ok(all.len().wrapping_mul(size_of::<Told>()))
    };
    match done() {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
    }
}

const GETINFO: u32 = kernel::ioctl::_IOR::<Info>('A' as u32, 0xa0);
const GETTASK: u32 = kernel::ioctl::_IOWR::<Told>('A' as u32, 0xa1);

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn ioctl(_: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    let done = || -> Result {
        let at = UserPtr::from_addr(arg);
        match command {
            GETINFO => write(at, &files::info()),
            GETTASK => {
                let [_, _, pid]: [u32; 3] = read(at)?;
                let told = files::tell_one(pid)?;
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

/// Lets others run for a moment. May sleep.
pub(crate) fn pause() {
    // SAFETY: Process context.
    unsafe { bindings::msleep(1) };
}

/// Waits until all that was to be freed later is. May sleep.
pub(crate) fn wait_for_frees() {
    // SAFETY: Process context.
    unsafe { bindings::rcu_barrier() };
}

/// Nanoseconds that a CPU has idled, as the kernel itself knows.
pub(crate) fn idle_ns(cpu: u32) -> u64 {
    // SAFETY: A number below nr_cpu_ids, of the caller.
    unsafe { shim::ppa_idle_ns(cpu) }
}

/// How many CPUs are there now.
pub(crate) fn nr_online() -> u32 {
    (0..cpu::nr_cpu_ids()).fold(0, |n: u32, cpu| n.wrapping_add(is_online(cpu).into()))
}
