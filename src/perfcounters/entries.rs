// SPDX-License-Identifier: GPL-2.0

//! Tasks that are accounted by themselves: `/proc/ppa/<pid>`, whether or not all are.
//!
//! An entry's files may be read while it goes, and its removal waits for them: so entries
//! are marked as gone under the lock, and removed by the worker without it.

use engine::accounting::{value, NR_LATENCIES, NR_SIGNALS, NR_VALUES};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KVVec, KVec};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use crate::accounting::{each_cpu, nothing, Accounting, Wanted, ROUNDS};
use crate::accounts::Accounts;
use crate::sys::lock::{ACCOUNTING, ENTRIES};
use crate::sys::ppa::{self, Clock};
use crate::sys::proc::{self, Directory};
use crate::sys::records::Record;
use crate::sys::rights;
use crate::sys::sched::{self, NoPreempt};
use crate::sys::task::TaskRef;

/// Tasks with entries, at the most.
const MOST: usize = 4096;

/// A task that is accounted by itself.
pub(crate) struct Entry {
    /// What its files know it by; never given again.
    id: usize,
    /// In the initial name space, as its directory.
    pid: u32,
    task: ARef<Task>,
    wanted: Wanted,
    gone: bool,
    /// Until it is removed; the entry stays until after that, so that nobody makes another
    /// of the same name.
    directory: Option<Directory>,
}

impl Entry {
    /// It is accounted, as it was asked for.
    fn account(&self, accounts: &Accounts) -> Result {
        let Wanted {
            scaling, latencies, ..
        } = self.wanted;
        accounts.account(TaskRef::of(&self.task), scaling, latencies)
    }

    fn has_ended(&self) -> bool {
        sched::has_ended(&self.task)
    }
}

/// All entries, and what the next one is known by.
pub(crate) struct Entries {
    all: KVec<Option<Entry>>,
    next: usize,
}

impl Entries {
    /// Nobody.
    pub(crate) const NONE: Self = Self {
        all: KVec::new(),
        next: 1,
    };

    /// There are none, but those that go.
    pub(crate) fn is_empty(&self) -> bool {
        !self.there().any(|entry| !entry.gone && !entry.has_ended())
    }

    fn nr(&self) -> usize {
        self.there().fold(0, |n: usize, _| n.wrapping_add(1))
    }

    fn there(&self) -> impl Iterator<Item = &Entry> {
        self.all.iter().flatten()
    }

    /// Puts one in; there must be room.
    fn put(&mut self, entry: Entry) {
        match self.all.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(entry),
            None => {
                let _ = self.all.push_within_capacity(Some(entry));
            }
        }
    }

    /// Accounting has begun anew: theirs, too.
    pub(crate) fn account(&self, accounts: &Accounts) -> Result {
        self.there()
            .try_for_each(|entry| match entry.gone || entry.has_ended() {
                true => Ok(()),
                false => entry.account(accounts),
            })
    }

    fn find(&self, id: usize) -> Result<&Entry> {
        self.there()
            .find(|entry| entry.id == id && !entry.gone && !entry.has_ended())
            .ok_or(ESRCH)
    }

    fn find_any(&mut self, id: usize) -> Option<&mut Entry> {
        let mut there = self.all.iter_mut().flatten();
        there.find(|entry| entry.id == id)
    }

    /// The files of one that goes, and what it is known by.
    fn take_gone(&mut self) -> Option<(usize, Option<Directory>)> {
        let goes = |entry: &&mut Entry| entry.gone || entry.has_ended();
        let entry = self.all.iter_mut().flatten().find(goes)?;
        entry.gone = true;
        Some((entry.id, entry.directory.take()))
    }

    fn remove(&mut self, id: usize) -> Option<Entry> {
        let mut places = self.all.iter_mut();
        places
            .find(|place| place.as_ref().is_some_and(|entry| entry.id == id))
            .and_then(Option::take)
    }
}

/// A task is accounted by itself from now on, or no longer. `ESRCH`: there is none of that
/// number in the initial name space; `EBUSY`: the number was another's, whose files go.
pub(crate) fn set(pid: u32, values: &[i32; 4]) -> Result {
    rights::is_perfmon_capable().then_some(()).ok_or(EPERM)?;
    let wanted = Wanted::new(values)?;
    let task = proc::find(pid).ok_or(ESRCH)?;
    if sched::has_ended(&task) {
        return Err(ESRCH);
    }
    let _others = ENTRIES.lock();
    // What went with this number should be out of the way. Not for ever: its readers are
    // waited for, and may take their time.
    for _ in 0..ROUNDS {
        let is_going = |entry: &Entry| entry.pid == pid && (entry.gone || entry.has_ended());
        if !ACCOUNTING.lock().entries.there().any(is_going) {
            break;
        }
        proc::queue_worker();
        ppa::pause();
    }
    let id = {
        let mut all = ACCOUNTING.lock();
        let same = |entry: &&Entry| sched::address(&entry.task) == sched::address(&task);
        let found = all.entries.there().find(same);
        match found.map(|entry| (entry.id, entry.gone)) {
            Some((_, true)) => return Err(EBUSY),
            Some((id, false)) => return change(&mut all, id, wanted),
            None => {}
        }
        // Also of a thread that has another number since it became another program.
        if all.entries.there().any(|entry| entry.pid == pid) {
            proc::queue_worker();
            return Err(EBUSY);
        }
        if !wanted.on {
            return Ok(());
        }
        if all.entries.nr() >= MOST {
            pr_notice!("{MOST} tasks are accounted by themselves; no more\n");
            return Err(ENOSPC);
        }
        all.entries.all.reserve(1, GFP_KERNEL)?;
        let id = all.entries.next;
        all.entries.next = id.wrapping_add(1);
        id
    };
    let entry = Entry {
        id,
        pid,
        wanted,
        gone: false,
        directory: Some(Directory::create(pid, id)?),
        task,
    };
    add(&mut ACCOUNTING.lock(), entry)
}

/// There is room.
fn add(all: &mut Accounting, entry: Entry) -> Result {
    let id = entry.id;
    all.entries.put(entry);
    let done = match all.accounts() {
        // With this one.
        None => all.start(),
        Some(accounts) => all.entries.find(id).and_then(|e| e.account(accounts)),
    };
    // It may have ended meanwhile: then nobody else has it looked after.
    let done = done.and_then(|()| all.entries.find(id).map(|_| ()));
    if done.is_err() {
        let entry = all.entries.there().find(|entry| entry.id == id);
        if let (Some(entry), Some(accounts)) = (entry, all.accounts()) {
            let _ = accounts.release(TaskRef::of(&entry.task));
        }
        leave(all, id);
    }
    done
}

/// An entry goes, later.
fn leave(all: &mut Accounting, id: usize) {
    if let Some(entry) = all.entries.find_any(id) {
        entry.gone = true;
    }
    proc::queue_worker();
}

fn change(all: &mut Accounting, id: usize, wanted: Wanted) -> Result {
    let entry = all.entries.find(id)?;
    if !wanted.on {
        if let Some(accounts) = all.accounts() {
            accounts.release(TaskRef::of(&entry.task))?;
        }
        leave(all, id);
        return Ok(());
    }
    let accounts = all.accounts().ok_or_else(nothing)?;
    let before = entry.wanted;
    if before.scaling == wanted.scaling {
        let _preempt = NoPreempt::new();
        if let Some(record) = accounts.index.get(sched::address(&entry.task)) {
            record.words.tell_latencies(wanted.latencies);
        }
    }
    if let Some(entry) = all.entries.find_any(id) {
        entry.wanted = wanted;
    }
    if before.scaling == wanted.scaling {
        return Ok(());
    }
    let done = match (all.accounts(), all.entries.find(id)) {
        (Some(accounts), Ok(entry)) => entry.account(accounts),
        _ => Ok(()),
    };
    if done.is_err() {
        if let Some(entry) = all.entries.find_any(id) {
            entry.wanted = before;
        }
    }
    done
}

/// The four values of a task by its files.
pub(crate) fn settings(id: usize) -> Result<[i32; 4]> {
    Ok(ACCOUNTING.lock().entries.find(id)?.wanted.values())
}

/// The same, set.
pub(crate) fn set_settings(id: usize, values: &[i32; 4]) -> Result {
    rights::is_perfmon_capable().then_some(()).ok_or(EPERM)?;
    let wanted = Wanted::new(values)?;
    change(&mut ACCOUNTING.lock(), id, wanted)
}

/// Each of them: its number, its four values.
pub(crate) fn each(each: &mut dyn FnMut(u32, [i32; 4])) {
    for entry in ACCOUNTING.lock().entries.there() {
        if !entry.gone && !entry.has_ended() {
            each(entry.pid, entry.wanted.values());
        }
    }
}

/// Those whose tasks have ended go, and accounting with the last one if nobody else wants
/// it and all was read: it is off before the last one's files are gone. The worker's; waits
/// for readers of their files.
pub(crate) fn tidy() {
    loop {
        let gone = {
            let mut all = ACCOUNTING.lock();
            all.stop_if_done();
            all.entries.take_gone()
        };
        let Some((id, directory)) = gone else { break };
        drop(directory);
        let entry = ACCOUNTING.lock().entries.remove(id);
        drop(entry);
    }
}

/// All go, and the room for them; nobody makes new ones any more.
pub(crate) fn remove_all() {
    // Not under the lock: their files' readers are waited for, and need it.
    let all = core::mem::take(&mut ACCOUNTING.lock().entries.all);
    drop(all);
}

/// What a task has had, by its entry.
struct Had {
    read: engine::accounting::Read,
    groups: KVVec<[u64; NR_VALUES]>,
    signals: [u32; NR_SIGNALS],
    latencies: bool,
    clock: Clock,
}

/// `EPERM` if ptrace would not let the caller see it.
fn read(id: usize) -> Result<Had> {
    let all = ACCOUNTING.lock();
    let entry = all.entries.find(id)?;
    if !rights::may_watch(&entry.task) && !rights::is_perfmon_capable() {
        return Err(EPERM);
    }
    let accounts = all.accounts().ok_or_else(nothing)?;
    let nr = Record::groups(entry.wanted.scaling);
    let mut groups = KVVec::with_capacity(nr, GFP_KERNEL)?;
    for _ in 0..nr {
        groups.push([0; NR_VALUES], GFP_KERNEL)?;
    }
    for _ in 0..ROUNDS {
        {
            let _preempt = NoPreempt::new();
            let record = accounts.index.get(sched::address(&entry.task));
            let words = &record.ok_or(ESRCH)?.words;
            let clock = || accounts.clock.now_after();
            let found = words.read_groups(clock, |cpu| accounts.words_of(cpu), &mut groups);
            if let Some(read) = found {
                return Ok(Had {
                    read,
                    signals: core::array::from_fn(|n| words.signals(n)),
                    latencies: words.tells_latencies(),
                    clock: accounts.clock,
                    groups,
                });
            }
        }
        ppa::pause();
    }
    Err(EAGAIN)
}

fn ratio(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

/// The text of 2006.
pub(crate) fn show(id: usize, seq: &SeqFile) -> Result {
    let had = read(id)?;
    let v = &had.read.values;
    let micros = |ticks: u64| had.clock.nanos(ticks) / 1000;
    // Nanoseconds of each, to be shown as microseconds.
    let average = |ticks: u64, of: u64| had.clock.nanos(ratio(ticks, of));
    let mut idle = 0u64;
    each_cpu(&mut |values| idle = idle.wrapping_add(values[3]))?;
    // Precise times of others are a side channel: of them all, 10 ms will do.
    let idle = ratio(micros(idle), 10_000).wrapping_mul(10_000);
    // What is rounded still adds up.
    let (total, system) = (micros(v[value::SCHED]), micros(v[value::SYSTEM]));
    let blocked = v[value::BLOCKED];
    let switches = blocked
        .wrapping_add(v[value::EXPIRED])
        .wrapping_add(v[value::PREEMPTED]);
    // Near enough where latencies are not counted.
    let wakeups = match had.latencies {
        true => had
            .read
            .latencies
            .iter()
            .fold(0, |n: u64, m| n.wrapping_add(*m)),
        false => blocked,
    };
    // The first wait may not be over.
    let latency = average(v[value::LATENCY], wakeups.max(1));
    let switching = average(v[value::SWITCHING], switches);
    seq_print!(
        seq,
        "All results in micro seconds ([v2.0]) {} cycles/usec {} CPUs active\n",
        had.clock.khz / 1000,
        ppa::nr_online()
    );
    seq_print!(
        seq,
        "Usr Sys Int Total\n{} {} {} {}\n",
        total.saturating_sub(system),
        system,
        micros(v[value::INTERRUPTS]),
        total
    );
    seq_print!(
        seq,
        "Rescheds Scho Prmpt-Pri Prmpt-Exp Avg-Latency\n{} {} {} {} {}.{:03}\n",
        v[value::RESCHEDULED],
        v[value::BLOCKED],
        v[value::PREEMPTED],
        v[value::EXPIRED],
        latency / 1000,
        latency % 1000
    );
    seq_print!(
        seq,
        "Sys-Idle Avg-Ctxt-Dur\n{} {}.{:03}\n",
        idle,
        switching / 1000,
        switching % 1000
    );
    Ok(())
}

/// The values as numbers: of each group of CPUs, time on the run queue, signals, latencies
/// if they are told apart.
pub(crate) fn each_number(id: usize, write: &mut dyn FnMut(&[u8])) -> Result {
    let had = read(id)?;
    for number in had.groups.iter().flatten() {
        write(&number.to_ne_bytes());
    }
    write(&had.read.runq.to_ne_bytes());
    for number in &had.signals {
        write(&number.to_ne_bytes());
    }
    if had.latencies {
        let latencies: &[u64; NR_LATENCIES] = &had.read.latencies;
        for number in latencies {
            write(&number.to_ne_bytes());
        }
    }
    Ok(())
}
