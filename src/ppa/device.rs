// SPDX-License-Identifier: GPL-2.0

//! File operations of `/dev/ppa`.

use core::mem::size_of;
use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::Result;
use kernel::fs::LocalFile;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Mutex;
use kernel::uaccess::{UserPtr, UserSliceWriter};

use crate::abi::{Info, TaskStats};
use crate::read_tasks;
use crate::start_stop::ACCOUNTING;
use base::device::{Device, FileOperationTables, FileOperations, ModuleReady};
use base::user_memory::{read, values_as_bytes, write};
use base::{access, clock, cpu};

const GETINFO: u32 = kernel::ioctl::_IOR::<Info>('A' as u32, 0xa0);
const GETTASK: u32 = kernel::ioctl::_IOWR::<TaskStats>('A' as u32, 0xa1);
/// The bit `PPA_UNSTABLE` in the flags of `PPA_GETINFO`.
const INFO_UNSTABLE: u32 = 8;

/// Set at the end of module init, after the last step that can fail. Until `MODULE_READY` is set,
/// `/dev/ppa` cannot be opened.
pub(crate) static MODULE_READY: ModuleReady = ModuleReady::new();

static PPA_OPERATIONS: FileOperationTables<PpaFile> = FileOperationTables::new();

/// Registers the device `/dev/ppa`. Dropping the result removes the device.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"ppa", &PPA_OPERATIONS, 0o444)
}

/// The position that the reads of an open file have reached.
#[derive(Default)]
struct ReadCursor {
    /// The file position after the last read: the number of bytes read since position 0.
    file_position: i64,
    /// The position of the next task, in the numbering that [`read_tasks::collect_tasks`] uses. User
    /// space must not see this position, because it contains the address of a task structure.
    walk_position: u64,
}

/// An open file of `/dev/ppa`.
#[pin_data]
struct PpaFile {
    #[pin]
    cursor: Mutex<ReadCursor>,
}

/// Returns the number that identifies an open file as a reader.
fn reader_id(file: &LocalFile) -> usize {
    file.as_ptr() as usize
}

/// Returns the data of `PPA_GETINFO` for an open file.
fn info(file: usize) -> Info {
    let all = ACCOUNTING.lock();
    let clock = all
        .state()
        .map_or_else(clock::Clock::choose, |accounts| accounts.clock);
    let mut info = Info {
        size: size_of::<Info>() as u32,
        version: 1,
        khz: clock.khz,
        scaling: all.cpus_per_group(),
        nr_cpus: cpu::nr_cpu_ids(),
        nr_groups: cpu::nr_cpu_ids().div_ceil(all.cpus_per_group().max(1)),
        now: clock.now(),
        ..Info::default()
    };
    info.flags = u32::from(all.config.on) | u32::from(all.config.latency_hist) << 1;
    if let Some(accounts) = all.state() {
        if accounts.clock.is_unstable() {
            info.flags |= INFO_UNSTABLE;
        }
        info.levels = accounts.levels;
        info.nr_tasks = accounts.nr_tasks.load_relaxed();
        let unread = all
            .ended_tasks
            .end()
            .saturating_sub(all.ended_tasks.next_record_of_reader(file));
        info.nr_ended = accounts.nr_ended.load_relaxed().wrapping_add(unread);
        let lost = all.ended_tasks.lost_records_of_reader(file);
        info.lost = accounts.lost.load_relaxed().wrapping_add(lost);
        info.refused = accounts.refused.load_relaxed();
    }
    info
}

#[vtable]
impl FileOperations for PpaFile {
    const HAS_POSITION: bool = true;

    fn open(_: &LocalFile) -> Result<Pin<KBox<Self>>> {
        MODULE_READY.check()?;
        let file = pin_init!(Self { cursor <- new_mutex!(ReadCursor::default()) });
        KBox::pin_init(file, GFP_KERNEL_ACCOUNT)
    }

    fn release(&self, file: *mut bindings::file) {
        read_tasks::remove_file_reader(file as usize);
    }

    /// Reads the records of tasks: first the records in the index, then the records of ended tasks
    /// that have not been read through this file yet. A read at position 0 begins again with the
    /// first task. Returns `EACCES` without `CAP_PERFMON` or `CAP_SYS_ADMIN`, and `EINVAL` at a
    /// wrong position: a read has to begin at position 0 or where the last read ended.
    fn read(&self, file: &LocalFile, mut to: UserSliceWriter, position: &mut i64) -> Result<usize> {
        if !access::is_perfmon_capable() {
            return Err(EACCES);
        }
        let most = to.len() / size_of::<TaskStats>();
        if most == 0 {
            return Err(EINVAL);
        }
        let mut cursor = self.cursor.lock();
        if *position == 0 {
            *cursor = ReadCursor::default();
        } else if *position != cursor.file_position {
            return Err(EINVAL);
        }
        let mut walk_position = cursor.walk_position;
        // Copy the records to user space after `collect_tasks()` has released `ACCOUNTING`, because
        // the copy may wait for page faults of the caller's memory. During the copy only the file's
        // own lock, `cursor`, is held.
        let (all, next) = read_tasks::collect_tasks(reader_id(file), &mut walk_position, most)?;
        to.write_slice(values_as_bytes(&all))?;
        if all.iter().any(TaskStats::has_ended) {
            read_tasks::note_delivered_records(reader_id(file), next);
        }
        let bytes = all.len().wrapping_mul(size_of::<TaskStats>());
        *position = position.wrapping_add(bytes as i64);
        *cursor = ReadCursor {
            file_position: *position,
            walk_position,
        };
        Ok(bytes)
    }

    fn ioctl(&self, file: &LocalFile, command: u32, arg: UserPtr) -> Result {
        match command {
            GETINFO => write(arg, &info(reader_id(file))),
            GETTASK => {
                let [_, _, pid]: [u32; 3] = read(arg)?;
                write(arg, &read_tasks::collect_task(pid)?)
            }
            _ => Err(ENOTTY),
        }
    }
}
