// SPDX-License-Identifier: GPL-2.0

//! Process accounting, where it touches the kernel: each CPU's words, tasks' records by
//! pid, records of tasks that have ended, the clock, the files.

use core::arch::asm;
use core::mem::size_of;
use core::ptr::NonNull;

use engine::accounting::{self, At, Cpu, Task, NR_CPU_VALUES, NR_SIGNALS, NR_VALUES};
use engine::sync::Word;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVBox, KVVec, KVec};
use kernel::bindings;
use kernel::error::{from_result, to_result, Result};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use super::file::{Device, Ops};
use super::task::TaskRef;
use super::{cpu, sched, shim};
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

/// A task's words, and who it is.
pub(crate) struct Record {
    pub(crate) words: Task<KVec<Word>>,
    pub(crate) address: usize,
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) kernel: bool,
    /// It runs softirqs for others.
    pub(crate) softirqd: bool,
    pub(crate) began: u64,
    /// What it was when it ended: user, parent's process, name.
    last: [Word; 3],
    next: Word,
}

impl Record {
    /// A record with values for so many groups of CPUs. May sleep.
    pub(crate) fn new(
        task: TaskRef<'_>,
        calling: bool,
        groups: usize,
        latencies: bool,
        now: u64,
    ) -> Result<KBox<Self>> {
        let mut record = Self::blank(groups)?;
        record.words.set_out(calling, latencies, now);
        record.fill(task);
        Ok(record)
    }

    /// One that is no task's yet. May sleep.
    pub(crate) fn blank(groups: usize) -> Result<KBox<Self>> {
        let nr = groups.wrapping_mul(NR_VALUES);
        let mut values = KVec::with_capacity(nr, GFP_KERNEL)?;
        for _ in 0..nr {
            values.push(Word::new(0), GFP_KERNEL)?;
        }
        Ok(KBox::new(
            Self {
                words: Task::new(values),
                address: 0,
                pid: 0,
                tgid: 0,
                kernel: false,
                softirqd: false,
                began: 0,
                last: Default::default(),
                next: Word::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// Is a task's from now on.
    pub(crate) fn fill(&mut self, task: TaskRef<'_>) {
        self.address = task.address();
        self.pid = task.pid();
        self.tgid = task.tgid();
        self.kernel = task.is_kernel();
        self.softirqd = task.is_softirqd();
        self.began = task.began();
    }

    /// It ends: who it was is kept. In its own context.
    pub(crate) fn keep(&self, task: TaskRef<'_>) {
        let (uid, ppid) = task.relations();
        let name = task.name();
        self.last[0].store_relaxed(u64::from(uid) | u64::from(ppid) << 32);
        for (word, half) in self.last.iter().skip(1).zip(name.chunks_exact(8)) {
            let half = half
                .first_chunk()
                .map_or(0, |half| u64::from_ne_bytes(*half));
            word.store_relaxed(half);
        }
    }

    /// Who it was.
    fn kept(&self) -> (u32, u32, [u8; 16]) {
        let ids = self.last[0].load_relaxed();
        let mut name = [0; 16];
        for (to, word) in name.chunks_exact_mut(8).zip(self.last.iter().skip(1)) {
            to.copy_from_slice(&word.load_relaxed().to_ne_bytes());
        }
        (ids as u32, (ids >> 32) as u32, name)
    }
}

/// A record that nobody new can find.
///
/// # Invariants
///
/// It was taken out of the index by whoever has this, who alone may free it, a grace
/// period later.
pub(crate) struct Taken(NonNull<Record>);

impl Taken {
    /// To look at.
    pub(crate) fn get(&self) -> &Record {
        // SAFETY: It is there, by the type's invariant.
        unsafe { self.0.as_ref() }
    }
}

/// A CPU's words, and the task that runs there.
#[repr(C, align(64))]
pub(crate) struct Here {
    pub(crate) words: Cpu,
    task: Word,
    /// It runs softirqs for others.
    pub(crate) softirqd: Word,
    pub(crate) at: At,
}

impl Here {
    /// This CPU's, while there is accounting. Preemption off while it is used: it goes
    /// when no probe can run any more.
    #[inline(always)]
    pub(crate) fn get<'a>() -> Option<&'a Self> {
        let here: usize;
        // SAFETY: A word of this CPU: 0 or its words, which are freed after the probes.
        unsafe {
            asm!("movq %gs:({p}), {h}", p = in(reg) &raw const shim::ppa_here,
                h = out(reg) here, options(att_syntax, nostack, readonly, preserves_flags));
            (here as *const Self).as_ref()
        }
    }

    /// The record of the task that runs here. Preemption off.
    #[inline(always)]
    pub(crate) fn task<'a>(&self) -> Option<&'a Record> {
        // SAFETY: A record is not freed before a grace period after its task's last switch,
        // which takes it out of here.
        unsafe { (self.task.load_relaxed() as *const Record).as_ref() }
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
    /// For all CPUs that can be, in groups of so many. May sleep.
    pub(crate) fn new(scaling: u32) -> Result<Self> {
        let mut all = KVVec::with_capacity(cpu::nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..cpu::nr_cpu_ids() {
            let here = Here {
                words: Cpu::default(),
                task: Word::new(0),
                softirqd: Word::new(0),
                at: At {
                    cpu,
                    group: (cpu / scaling.max(1)) as usize,
                },
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

    /// All.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Here> {
        self.0.iter()
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

const LEAVES: usize = 4096;
const LEAF: usize = 1024;

/// Records by pid: two levels, as far as pids go.
///
/// # Invariants
///
/// A word of the top is 0 or a leaf, of a leaf 0 or a record, which is freed by whoever
/// took it out, after a grace period.
pub(crate) struct Index(KVVec<Word>);

impl Index {
    /// Without any. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(words(LEAVES)?))
    }

    #[inline(always)]
    fn place(&self, pid: u32) -> Option<&Word> {
        let leaf = self.0.get(pid as usize / LEAF)?.load_acquire();
        // SAFETY: A leaf, by the type's invariant; leaves stay.
        let leaf = unsafe { (leaf as *const [Word; LEAF]).as_ref()? };
        leaf.get(pid as usize % LEAF)
    }

    /// A pid's record. Preemption off, or under RCU, while it is used.
    #[inline(always)]
    pub(crate) fn get(&self, pid: u32) -> Option<&Record> {
        // Acquire: with the release in `insert`, the record is there.
        let record = self.place(pid)?.load_acquire();
        // SAFETY: By the type's invariant.
        unsafe { (record as *const Record).as_ref() }
    }

    /// Makes room for a pid. May sleep.
    pub(crate) fn make_room(&self, pid: u32) -> Result {
        let top = self.0.get(pid as usize / LEAF).ok_or(ERANGE)?;
        if top.load_relaxed() == 0 {
            let leaf = KVBox::into_raw(boxed_leaf()?);
            // Release: with the acquire in `place`, it is all zero.
            if !top.replace(0, leaf as u64) {
                // SAFETY: From `into_raw`; another one was first.
                drop(unsafe { KVBox::from_raw(leaf) });
            }
        }
        Ok(())
    }

    /// Puts a task's record in, where there is room and none; gives it back else.
    pub(crate) fn insert(&self, record: KBox<Record>) -> Option<KBox<Record>> {
        let Some(place) = self.place(record.pid) else {
            return Some(record);
        };
        let record = KBox::into_raw(record);
        // Release: with the acquire in `get`.
        match place.replace(0, record as u64) {
            true => None,
            // SAFETY: From `into_raw`.
            false => Some(unsafe { KBox::from_raw(record) }),
        }
    }

    /// Takes one out, which the caller then owns, but for those who still look at it.
    pub(crate) fn take(&self, pid: u32) -> Option<Taken> {
        let place = self.place(pid)?;
        let record = place.load_acquire();
        // INVARIANT: whoever changes the word has it.
        let taken = NonNull::new(record as *mut Record).map(Taken)?;
        place.replace(record, 0).then_some(taken)
    }

    /// The next pid from this one on that has a record.
    pub(crate) fn next(&self, mut pid: u32) -> Option<u32> {
        while (pid as usize) < LEAVES.wrapping_mul(LEAF) {
            let top = self.0.get(pid as usize / LEAF)?;
            if top.load_relaxed() == 0 {
                pid = (pid | (LEAF as u32 - 1)).wrapping_add(1);
                continue;
            }
            if self
                .place(pid)
                .is_some_and(|place| place.load_relaxed() != 0)
            {
                return Some(pid);
            }
            pid = pid.wrapping_add(1);
        }
        None
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let mut pid = 0;
        while let Some(found) = self.next(pid) {
            if let Some(record) = self.take(found) {
                // SAFETY: From `into_raw`; the probes went first, and with them whoever
                // could look at it.
                drop(unsafe { KBox::from_raw(record.0.as_ptr()) });
            }
            pid = found.wrapping_add(1);
        }
        for top in &self.0 {
            if let Some(leaf) = NonNull::new(top.load_relaxed() as *mut [Word; LEAF]) {
                // SAFETY: From `into_raw`.
                drop(unsafe { KVBox::from_raw(leaf.as_ptr()) });
            }
        }
    }
}

fn words(nr: usize) -> Result<KVVec<Word>> {
    let mut words = KVVec::with_capacity(nr, GFP_KERNEL)?;
    for _ in 0..nr {
        words.push(Word::new(0), GFP_KERNEL)?;
    }
    Ok(words)
}

fn boxed_leaf() -> Result<KVBox<[Word; LEAF]>> {
    let memory = KVBox::<[Word; LEAF]>::new_uninit(GFP_KERNEL | kernel::alloc::flags::__GFP_ZERO)?;
    // SAFETY: Zeroed; words of which each bit pattern is a value.
    Ok(unsafe { memory.assume_init() })
}

/// Records that nobody can find any more, linked; pushed in any context.
///
/// # Invariants
///
/// Each is owned by this list, from its push to its drop.
pub(crate) struct List {
    first: Word,
}

impl List {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            first: Word::new(0),
        }
    }

    /// Puts one in.
    pub(crate) fn push(&self, record: Taken) {
        let record = record.0;
        loop {
            let first = self.first.load_relaxed();
            // SAFETY: Ours, by the type's invariant.
            unsafe { record.as_ref() }.next.store_relaxed(first);
            // Release: with the acquire in `take`, who takes it sees all of it.
            if self.first.replace(first, record.as_ptr() as u64) {
                return;
            }
        }
    }

    /// Is there any?
    pub(crate) fn is_empty(&self) -> bool {
        self.first.load_relaxed() == 0
    }

    /// Takes all, after whoever may look at them still. May sleep.
    pub(crate) fn take(&self, each: &mut dyn FnMut(KBox<Record>)) {
        let mut next = loop {
            let first = self.first.load_acquire();
            if self.first.replace(first, 0) {
                break first;
            }
        };
        if next != 0 {
            sched::synchronize();
        }
        while let Some(record) = NonNull::new(next as *mut Record) {
            // SAFETY: By the type's invariant; nobody looks any more.
            let record = unsafe { KBox::from_raw(record.as_ptr()) };
            next = record.next.load_relaxed();
            each(record);
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.take(&mut drop);
    }
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

/// `PPA_TASK_*`.
const KERNEL: u32 = 1;
const ENDED: u32 = 2;
const RUNNING: u32 = 4;
const LATENCIES: u32 = 8;

impl Told {
    /// What is told of a record: of a task that is there under RCU, or that has ended.
    pub(crate) fn new(record: &Record, heres: &Heres, ended: bool, now: u64) -> Self {
        let find = |cpu| heres.of(cpu).map(|here| &here.words);
        let read = record.words.read(now, find);
        let (uid, ppid, name) = match ended {
            true => record.kept(),
            false => {
                // SAFETY: A task is freed a grace period after its last switch, which takes
                // its record out of the index.
                let task = unsafe { TaskRef::new(record.address as *mut _) };
                let (uid, ppid) = task.relations();
                (uid, ppid, task.name())
            }
        };
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        Self {
            size: size_of::<Self>() as u32,
            flags: bit(record.kernel, KERNEL)
                | bit(ended, ENDED)
                | bit(read.running && !ended, RUNNING)
                | bit(record.words.tells_latencies(), LATENCIES),
            pid: record.pid,
            tgid: record.tgid,
            ppid,
            uid,
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
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: Numbers, without padding: their sizes add up to the structure's.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
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

static PPA_OPS: Ops<bindings::file_operations> = Ops(bindings::file_operations {
    owner: crate::THIS_MODULE.as_ptr(),
    read: Some(read),
    unlocked_ioctl: Some(ioctl),
    llseek: Some(bindings::noop_llseek),
    ..pin_init::zeroed()
});

/// The files; drop removes them.
pub(crate) struct Files {
    _device: Device,
}

impl Files {
    /// Makes them appear.
    pub(crate) fn create() -> Result<Self> {
        let device = Device::register(c"ppa", &PPA_OPS, 0o444)?;
        // SAFETY: Once; drop removes them.
        to_result(unsafe { shim::ppa_files_create() })?;
        Ok(Self { _device: device })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: They are there. Waits for readers.
        unsafe { shim::ppa_files_remove() }
    }
}

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn read(
    _: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    position: *mut bindings::loff_t,
) -> isize {
    let done = || -> Result<usize> {
        if !sched::is_perfmon_capable() {
            return Err(EACCES);
        }
        if count < size_of::<Told>() {
            return Err(EINVAL);
        }
        // SAFETY: The kernel's own, for the time of the call.
        let mut pid = unsafe { *position } as u64;
        let mut writer = UserSlice::new(UserPtr::from_addr(to as usize), count).writer();
        let mut bytes = 0usize;
        let told = files::tell(&mut pid, count / size_of::<Told>(), &mut |told| {
            writer.write_slice(told.bytes())?;
            bytes = bytes.wrapping_add(size_of::<Told>());
            Ok(())
        });
        if bytes == 0 {
            told?;
        }
        // SAFETY: As above.
        unsafe { *position = pid as bindings::loff_t };
        Ok(bytes)
    };
    match done() {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
    }
}

const GETINFO: u32 = kernel::ioctl::_IOR::<Info>('A' as u32, 0x70);
const GETTASK: u32 = kernel::ioctl::_IOWR::<Told>('A' as u32, 0x71);

/// # Safety
///
/// Called by the kernel, as the operation it is named after.
unsafe extern "C" fn ioctl(_: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
    let done = || -> Result {
        let at = UserPtr::from_addr(arg as usize);
        match command {
            GETINFO => {
                let info = files::info();
                // SAFETY: Numbers without padding, of a size that is asserted.
                let bytes = unsafe {
                    core::slice::from_raw_parts((&raw const info).cast::<u8>(), size_of::<Info>())
                };
                UserSlice::new(at, bytes.len()).writer().write_slice(bytes)
            }
            GETTASK => {
                let mut head = [0u8; 12];
                UserSlice::new(at, head.len())
                    .reader()
                    .read_slice(&mut head)?;
                let pid = head.last_chunk().map_or(0, |pid| u32::from_ne_bytes(*pid));
                let told = files::tell_one(pid)?;
                UserSlice::new(at, size_of::<Told>())
                    .writer()
                    .write_slice(told.bytes())
            }
            _ => Err(ENOTTY),
        }
    };
    match done() {
        Ok(()) => 0,
        Err(error) => error.to_errno() as c_long,
    }
}

/// # Safety
///
/// Called by seq_file.
#[no_mangle]
unsafe extern "C" fn ppa_show_cpus(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    files::each_cpu(&mut |values: [u64; NR_CPU_VALUES]| {
        // SAFETY: seq_file's own, for the time of the call; an array of ours.
        unsafe {
            bindings::seq_write(
                seq,
                values.as_ptr().cast(),
                size_of::<[u64; NR_CPU_VALUES]>(),
            )
        };
    });
    0
}

/// # Safety
///
/// Four numbers, which it reads or writes.
#[no_mangle]
unsafe extern "C" fn ppa_settings(values: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement.
    let values = unsafe { &mut *values.cast::<[i32; 4]>() };
    from_result(|| files::settings(values, write).map(|()| 0))
}

/// # Safety
///
/// A number, which it reads or writes.
#[no_mangle]
unsafe extern "C" fn ppa_levels(level: *mut c_int, write: bool) -> c_int {
    // SAFETY: By the function's requirement.
    let level = unsafe { &mut *level };
    from_result(|| files::levels(level, write).map(|()| 0))
}

/// Nanoseconds that a CPU has idled, as the kernel itself knows.
pub(crate) fn idle_ns(cpu: u32) -> u64 {
    // SAFETY: A number below nr_cpu_ids, of the caller.
    unsafe { shim::ppa_idle_ns(cpu) }
}
