// SPDX-License-Identifier: GPL-2.0

//! Process accounting: its settings and its readers. The probes are in [`crate::accounts`], the
//! arithmetic is in `engine::accounting`.

use engine::accounting::NR_CPU_VALUES;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::pr_warn_once;
use kernel::prelude::*;

use crate::accounts::{count, level, Accounts};
use crate::costs::Cost;
use crate::entries::Entries;
use crate::provider::Probes;
use crate::sys::lock::ACCOUNTING;
use crate::sys::ppa::{self, Here, Info, Told};
use crate::sys::proc;
use crate::sys::records::Record;
use crate::sys::rights;
use crate::sys::sched::{self, NoPreempt};
use crate::sys::{costs, cpu};
use crate::totals::{self, Totals};

/// The position in `/dev/ppa` at which the tasks that have ended follow. Lower ones are of living
/// tasks.
const PAST: u64 = 1 << 62;
/// Position after the tasks that have ended were moved to `unread`. A reader gets only those: tasks
/// that end later are for the next pass, which otherwise might never end.
const LAST: u64 = PAST + 1;
/// Bit of the flags of `PPA_GETINFO`: `PPA_UNSTABLE`.
const UNSTABLE: u32 = 8;
/// Maximum number of tasks that one read returns.
const AT_ONCE: usize = 256;
/// Maximum number of passes over the task list when accounting starts. Each pass finds tasks that
/// the one before missed.
const ADOPTIONS: u32 = 10;
/// Attempts to read values that are being changed, 1 ms apart. The change may take long if a
/// virtual CPU is preempted in the middle of it.
pub(crate) const ROUNDS: u32 = 200;

/// Returns `ENODATA`, for which the kernel crate has no name: the task is not accounted.
pub(crate) fn nothing() -> Error {
    Error::from_errno(-61)
}

/// The four values of `kernel.ppa` and of the `ppactl` files, for all tasks or for one. The third
/// one, for timers, must be 0 and is not stored.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Accounting is on.
    pub(crate) on: bool,
    /// Wakeup latencies are also counted by length, in a histogram.
    pub(crate) latencies: bool,
    /// CPUs per group.
    pub(crate) scaling: u32,
}

impl Wanted {
    /// Checks the four values. Invalid ones are reported in the kernel log.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid value, `EOPNOTSUPP` if timers are requested.
    pub(crate) fn new(values: &[i32; 4]) -> Result<Self> {
        let [on, latencies, timers, scaling] = *values;
        let mut flags = [on, latencies, timers].into_iter();
        if flags.any(|flag| !(0..=1).contains(&flag)) || scaling < 1 {
            pr_notice!("ppa: expected \"ON LATENCIES TIMERS CPUS\", three flags of 0 or 1 and CPUs per group >= 1\n");
            return Err(EINVAL);
        }
        if timers != 0 {
            pr_notice!("ppa: timers (third value) are not supported; set it to 0\n");
            return Err(Error::from_errno(-95));
        }
        if latencies > on {
            pr_notice!("ppa: latencies (second value) require accounting on (first value 1)\n");
            return Err(EINVAL);
        }
        Ok(Self {
            on: on != 0,
            latencies: latencies != 0,
            scaling: (scaling as u32).min(cpu::nr_cpu_ids()),
        })
    }

    /// Returns the four values.
    pub(crate) fn values(&self) -> [i32; 4] {
        [
            self.on.into(),
            self.latencies.into(),
            0,
            self.scaling as i32,
        ]
    }
}

/// The state of process accounting, protected by `ACCOUNTING`.
pub(crate) struct Accounting {
    /// The probes and their state; `None` while accounting is off.
    on: Option<Probes<Accounts>>,
    /// The settings for all tasks. A `scaling` of 0 is one group of all CPUs.
    wanted: Wanted,
    /// The tasks that are accounted individually.
    pub(crate) entries: Entries,
    /// The levels (`PPA_LEVEL_*`) that are measured.
    levels: u32,
    /// The values of CPUs as instances of the counter pages; `None` before the first start.
    totals: Option<Totals>,
    /// Records of ended tasks that were taken for a reader and are not read yet.
    unread: KVVec<Option<KBox<Record>>>,
}

impl Accounting {
    /// The state before accounting was first started.
    pub(crate) const OFF: Self = Self {
        on: None,
        wanted: Wanted {
            on: false,
            latencies: false,
            scaling: 0,
        },
        entries: Entries::NONE,
        levels: level::ALL,
        totals: None,
        unread: KVVec::new(),
    };

    /// Returns the number of CPUs per group.
    fn scaling(&self) -> u32 {
        match self.wanted.scaling {
            0 => cpu::nr_cpu_ids(),
            cpus => cpus,
        }
    }

    /// Stops accounting and frees its records. The last values of CPUs are added to the counter
    /// pages.
    fn stop(&mut self) {
        self.unread = KVVec::new();
        let Some(probes) = self.on.take() else { return };
        if let Some(totals) = &mut self.totals {
            totals.publish(probes.state());
            totals.begin_anew();
        }
        drop(probes);
        ppa::wait_for_frees();
    }

    /// Stops accounting if it is off for all tasks, no task is accounted individually, and all
    /// records were read.
    pub(crate) fn stop_if_done(&mut self) {
        let is_done = |accounts: &Accounts| {
            accounts.nr_tasks.load_relaxed() == 0 && accounts.nr_ended.load_relaxed() == 0
        };
        if !self.wanted.on && self.entries.is_empty() && self.accounts().is_some_and(is_done) {
            self.stop();
        }
    }

    /// Adds the instances of the counter pages if they do not exist.
    fn make_totals(&mut self) -> Result {
        if self.totals.is_none() {
            match Totals::new() {
                Ok(totals) => self.totals = Some(totals),
                // The names are in use, or the table is full: accounting works without them.
                Err(error) if error != ENOMEM => pr_notice!(
                    "cannot add accounting counters (error {}); accounting runs without them\n",
                    error.to_errno()
                ),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Starts accounting, for all tasks or for those with entries.
    pub(crate) fn start(&mut self) -> Result {
        self.make_totals()?;
        let Wanted { on, latencies, .. } = self.wanted;
        let accounts = Accounts::new(on, self.levels, self.scaling(), latencies)?;
        let mut probes = Probes::new(accounts)?;
        probes.state().heres.publish();
        Accounts::attach(&mut probes)?;
        let accounts = probes.state();
        let mut refused = 0;
        for _ in 0..ADOPTIONS {
            let added = match on {
                true => adopt(accounts, &mut refused)?,
                false => 0,
            };
            if added == 0 {
                break;
            }
        }
        count(&accounts.refused, refused);
        self.entries.account(accounts)?;
        accounts.begin();
        self.on = Some(probes);
        proc::queue_publisher(totals::PERIOD);
        // A task with an entry may have exited before its probe was attached: have the worker look.
        proc::queue_worker();
        Ok(())
    }

    /// Stops accounting and starts it with the current settings. If it cannot be started, it is
    /// switched off.
    fn restart(&mut self) -> Result {
        self.stop();
        if !self.wanted.on && self.entries.is_empty() {
            return Ok(());
        }
        self.start().inspect_err(|_| {
            self.wanted.on = false;
            self.wanted.latencies = false;
            proc::queue_worker();
        })
    }

    /// Returns the state of the probes; `None` while accounting is off.
    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.on.as_ref().map(Probes::state)
    }
}

/// Creates records for tasks that have none. Returns the number of tasks that got one. Sets
/// `refused` to the number of tasks that got none: their user is at its limit, or memory is short.
fn adopt(accounts: &Accounts, refused: &mut u64) -> Result<usize> {
    let (mut missing, mut added) = (0usize, 0usize);
    *refused = 0;
    ppa::each_task(&mut |task| {
        missing = missing.wrapping_add(usize::from(!accounts.knows(task)));
    });
    let mut blanks = KVec::with_capacity(missing, GFP_KERNEL)?;
    for _ in 0..missing {
        blanks.push(Record::blank(accounts.scaling)?, GFP_KERNEL)?;
    }
    let latencies = accounts.latencies.load_relaxed() != 0;
    ppa::each_task(&mut |task| {
        if accounts.knows(task) {
            return;
        }
        if let Some(mut record) = blanks.pop() {
            if record.fill(task).is_err() {
                *refused = refused.wrapping_add(1);
                // Not freed inside the RCU read-side critical section.
                let _ = blanks.push_within_capacity(record);
                return;
            }
            added = added.wrapping_add(1);
            record.words.set_out(false, latencies, accounts.clock.now());
            if let Some(rejected) = accounts.enter_found(record, task) {
                // Not freed inside the RCU read-side critical section. It takes the room of its
                // blank.
                let _ = blanks.push_within_capacity(rejected);
            }
        }
    });
    Ok(added)
}

/// Reads or writes the four values of `kernel.ppa`. A write is `EPERM` without `CAP_PERFMON`; see
/// [`Wanted::new`] for other errors.
pub(crate) fn settings(values: &mut [i32; 4], write: bool) -> Result {
    if write {
        rights::may_account()?;
    }
    let mut all = ACCOUNTING.lock();
    if !write {
        *values = all.wanted.values();
        values[3] = all.scaling() as i32;
        return Ok(());
    }
    let wanted = Wanted::new(values)?;
    let before = (all.wanted.on, all.scaling());
    all.wanted = wanted;
    if before != (wanted.on, wanted.scaling) || (!wanted.on && all.entries.is_empty()) {
        return all.restart();
    }
    if let Some(accounts) = all.accounts() {
        accounts.latencies.store_relaxed(wanted.latencies.into());
        let mut place = 0;
        loop {
            let _preempt = NoPreempt::new();
            let Some((record, next)) = accounts.index.after(place) else {
                break;
            };
            if !record.own {
                record.words.tell_latencies(wanted.latencies);
            }
            place = next;
        }
    }
    Ok(())
}

/// Reads or writes `kernel.ppa_levels`. A write is `EPERM` without `CAP_PERFMON`, and `EINVAL` for
/// an invalid value.
pub(crate) fn levels(value: &mut i32, write: bool) -> Result {
    if write {
        rights::may_account()?;
    }
    let mut all = ACCOUNTING.lock();
    if !write {
        *value = all.levels as i32;
        return Ok(());
    }
    let levels = *value as u32;
    if levels & level::SCHED == 0 || levels & !level::ALL != 0 {
        pr_notice!(
            "kernel.ppa_levels={}: expected 1, plus 2 for interrupts, 4 for system calls, 8 for the \
             duration of switches\n",
            *value
        );
        return Err(EINVAL);
    }
    if core::mem::replace(&mut all.levels, levels) != levels {
        return all.restart();
    }
    Ok(())
}

/// Returns the data of `PPA_GETINFO`.
pub(crate) fn info() -> Info {
    let all = ACCOUNTING.lock();
    let clock = all
        .accounts()
        .map_or_else(ppa::Clock::choose, |accounts| accounts.clock);
    let mut info = Info {
        size: size_of::<Info>() as u32,
        version: 1,
        khz: clock.khz,
        scaling: all.scaling(),
        nr_cpus: cpu::nr_cpu_ids(),
        nr_groups: cpu::nr_cpu_ids().div_ceil(all.scaling().max(1)),
        now: clock.now(),
        ..Info::default()
    };
    info.flags = u32::from(all.wanted.on) | u32::from(all.wanted.latencies) << 1;
    if let Some(accounts) = all.accounts() {
        if accounts.clock.is_unstable() {
            info.flags |= UNSTABLE;
        }
        info.levels = accounts.levels;
        info.nr_tasks = accounts.nr_tasks.load_relaxed();
        info.nr_ended = accounts.nr_ended.load_relaxed();
        info.lost = accounts.lost.load_relaxed();
        info.refused = accounts.refused.load_relaxed();
    }
    info
}

/// Returns the bytes of records for each user, sorted by user. Records of ended tasks that were not
/// read yet are included. May sleep.
pub(crate) fn of_users() -> Result<KVVec<(u32, u64)>> {
    let mut users: KVVec<(u32, u64)> = KVVec::new();
    let mut add = |user: u32, bytes: u64| -> Result {
        match users.binary_search_by_key(&user, |(known, _)| *known) {
            Ok(at) => {
                let known = users.get_mut(at).ok_or(EINVAL)?;
                known.1 = known.1.wrapping_add(bytes);
            }
            Err(at) => {
                users.reserve(1, GFP_KERNEL)?;
                let _ = users.insert_within_capacity(at, (user, bytes));
            }
        }
        Ok(())
    };
    let all = ACCOUNTING.lock();
    if let Some(accounts) = all.accounts() {
        let mut place = 0;
        loop {
            let found = {
                let _preempt = NoPreempt::new();
                let found = accounts.index.after(place);
                found.map(|(record, next)| (record.user(), record.bytes(), next))
            };
            let Some((user, bytes, next)) = found else {
                break;
            };
            add(user, bytes)?;
            place = next;
        }
        // The list is emptied only with `ACCOUNTING` held.
        let mut done = Ok(());
        accounts.ended.each(|record| {
            if done.is_ok() {
                done = add(record.user(), record.bytes());
            }
        });
        done?;
    }
    for record in all.unread.iter().flatten() {
        add(record.user(), record.bytes())?;
    }
    Ok(users)
}

/// Returns at most `most` tasks from the position `at` on, first the living ones, then those that
/// have ended. Records of the latter are kept until [`forget`]. `ENODATA` if accounting is off.
pub(crate) fn tell(at: &mut u64, most: usize) -> Result<KVVec<Told>> {
    let most = most.min(AT_ONCE);
    let mut found = KVVec::with_capacity(most, GFP_KERNEL)?;
    let mut all = ACCOUNTING.lock();
    let Accounting { on, unread, .. } = &mut *all;
    let accounts = on.as_ref().map(Probes::state).ok_or_else(nothing)?;
    let mut tries = 0u32;
    while found.len() < most && *at < PAST {
        let (told, next) = {
            let _preempt = NoPreempt::new();
            match accounts.index.after(*at) {
                None => (None, PAST),
                Some((record, place)) => {
                    let told = Told::new(record, &accounts.heres, false, true, accounts.clock);
                    (told, place)
                }
            }
        };
        // The record is being changed. Sleep: the task that changes it may need this CPU.
        if told.is_none() && next != PAST && tries < ROUNDS {
            tries = tries.wrapping_add(1);
            ppa::pause();
            continue;
        }
        tries = 0;
        *at = next;
        if let Some(told) = told {
            let _ = found.push_within_capacity(told);
        }
    }
    accounts.sweep();
    if found.len() == most {
        return Ok(found);
    }
    if core::mem::replace(at, LAST) != LAST {
        accounts.ended.take(&mut |record| {
            let bytes = record.bytes();
            if unread.push(Some(record), GFP_KERNEL).is_err() {
                count(&accounts.lost, 1);
                costs::count(Cost::RecordsLost);
                accounts.forget(bytes);
            }
        });
    }
    for record in unread.iter().rev().flatten() {
        if found.len() == most {
            break;
        }
        if let Some(told) = Told::new(record, &accounts.heres, true, true, accounts.clock) {
            let _ = found.push_within_capacity(told);
        }
    }
    Ok(found)
}

/// Frees the records of those of these tasks that have ended, after they were copied to user space.
pub(crate) fn forget(told: &[Told]) {
    if !told.iter().any(Told::has_ended) {
        return;
    }
    let mut all = ACCOUNTING.lock();
    let done = !all.wanted.on;
    let Accounting { on, unread, .. } = &mut *all;
    for told in told.iter().filter(|told| told.has_ended()) {
        // This record need not be the last one, as other readers may run at the same time.
        let is_it = |place: &&mut Option<KBox<Record>>| {
            place.as_ref().is_some_and(|record| told.is_of(record))
        };
        let Some(record) = unread.iter_mut().rev().find(is_it).and_then(Option::take) else {
            continue;
        };
        while unread.last().is_some_and(Option::is_none) {
            unread.pop();
        }
        if let Some(accounts) = on.as_ref().map(Probes::state) {
            accounts.forget(record.bytes());
        }
    }
    if done {
        proc::queue_worker();
    }
}

/// Returns the values of one task.
///
/// # Errors
///
/// `ESRCH` if the task does not exist, `EPERM` if the caller may not watch it, `ENODATA` if it is
/// not accounted, `EAGAIN` if its values kept changing.
pub(crate) fn tell_one(pid: u32) -> Result<Told> {
    let task = sched::find(pid).ok_or(ESRCH)?;
    rights::may_read(&task)?;
    let all = ACCOUNTING.lock();
    let accounts = all.accounts().ok_or_else(nothing)?;
    for _ in 0..ROUNDS {
        {
            let _preempt = NoPreempt::new();
            let record = accounts.index.get(sched::address(&task));
            let record = record.ok_or_else(nothing)?;
            if let Some(told) = Told::new(record, &accounts.heres, false, false, accounts.clock) {
                return Ok(told);
            }
        }
        ppa::pause();
    }
    Err(EAGAIN)
}

/// Calls `each` with the values of each possible CPU number. While accounting is off, the idle time
/// is the kernel's. `EAGAIN` if the values of a CPU kept changing.
pub(crate) fn each_cpu(each: &mut dyn FnMut([u64; NR_CPU_VALUES])) -> Result {
    let all = ACCOUNTING.lock();
    let khz = u64::from(ppa::Clock::choose().khz);
    for cpu in 0..cpu::nr_cpu_ids() {
        let here = all.accounts().and_then(|a| Some((a, a.heres.of(cpu)?)));
        each(match here {
            Some((accounts, here)) => {
                let mut values = None;
                for _ in 0..ROUNDS {
                    let online = ppa::is_online(cpu);
                    values = here.words.values(online, || accounts.clock.now_after());
                    if values.is_some() {
                        break;
                    }
                    ppa::pause();
                }
                values.ok_or(EAGAIN)?
            }
            None => {
                let mut values = [0; NR_CPU_VALUES];
                if cpu::is_possible(cpu) {
                    let ns = ppa::idle_ns(cpu);
                    let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
                    values[3] = ms
                        .wrapping_mul(khz)
                        .wrapping_add(rest.wrapping_mul(khz) / 1_000_000);
                }
                values
            }
        });
    }
    Ok(())
}

/// Notes that this CPU has come online (`here`) or is going offline. Idle time in between is not
/// counted.
pub(crate) fn cpu_comes(here: bool) {
    let _preempt = NoPreempt::new();
    if let Some(words) = Here::get() {
        words.words.set_away(!here);
    }
}

/// Notes that the machine is being suspended (`going`), or has resumed. The time in between is not
/// counted.
///
/// Context: on the only CPU that is online, interrupts off.
pub(crate) fn sleep(going: bool) {
    let _preempt = NoPreempt::new();
    let Some(here) = Here::get() else { return };
    let now = here.clock.now();
    match going {
        true => here.words.suspend(now),
        false => here.words.resume(now),
    }
}

/// Stops accounting when the module is unloaded or could not be loaded.
pub(crate) fn stop_for_good() {
    let mut all = ACCOUNTING.lock();
    all.stop();
    all.totals = None;
    // Also waits for records of a start that failed.
    ppa::wait_for_frees();
}

/// Ends the last run of a CPU that is offline. Called on another CPU.
pub(crate) fn cpu_is_gone(cpu: u32) {
    let _preempt = NoPreempt::new();
    if let Some(here) = Here::of(cpu) {
        let last = here.task().map(|record| &record.words);
        here.words.die(here.cpu, last, here.clock.now());
        here.set_task(None);
    }
}

/// Copies the values of CPUs to the counter pages. Called by a worker, which this queues again
/// while accounting is on.
pub(crate) fn publish() {
    let mut all = ACCOUNTING.lock();
    let Accounting { on, totals, .. } = &mut *all;
    if let (Some(probes), Some(totals)) = (on, totals) {
        if probes.state().clock.is_unstable() {
            pr_warn_once!("accounting: the kernel has marked the TSC unstable; times may be wrong until accounting is turned off and on\n");
        }
        totals.publish(probes.state());
        proc::queue_publisher(totals::PERIOD);
    }
}
