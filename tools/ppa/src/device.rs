// SPDX-License-Identifier: GPL-2.0

//! Reads the values of tasks from `/dev/ppa`, and the values of CPUs from `/proc/rawsysppa`.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::abi::{self, Info, Task, VERSION};
use crate::error::Error;
use crate::parse::{append_parsed_tasks, parse_cpus};
use crate::values::{keep_latest_entry_per_task, Cpu};

/// The device with the values of tasks.
pub const PPA_DEVICE_PATH: &str = "/dev/ppa";
/// The file with the values of CPUs.
pub const CPU_VALUES_PATH: &str = "/proc/rawsysppa";

/// Number of bytes per read(): room for 2,000 tasks or 7,000 CPUs.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// The opened device `/dev/ppa`.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens `/dev/ppa`. The error is `NotFound` if the module is not loaded.
    pub fn open() -> Result<Self, Error> {
        let file = File::open(PPA_DEVICE_PATH).map_err(Error::Open)?;
        Ok(Self { file })
    }

    /// Returns the state of accounting.
    pub fn info(&self) -> Result<Info, Error> {
        let info = abi::read_info(self.file.as_fd())
            .map_err(|e| Error::Read(PPA_DEVICE_PATH, e.into()))?;
        check_version_and_frequency(info)
    }

    /// Returns the values of one task.
    pub fn task(&self, pid: u32) -> Result<Task, Error> {
        let mut task = Task {
            pid,
            ..Task::default()
        };
        abi::read_task(self.file.as_fd(), &mut task).map_err(|e| match e {
            Errno::SRCH => Error::NoTask(pid),
            Errno::NODATA => Error::NotAccounted(pid),
            Errno::ACCESS | Errno::PERM => Error::Denied(pid),
            e => Error::Read(PPA_DEVICE_PATH, e.into()),
        })?;
        match task {
            Task { size, .. } if (size as usize) < size_of::<Task>() => Err(Error::Corrupt(
                format!("record of a task with {size} bytes"),
            )),
            task if task.pid != pid => {
                let returned = task.pid;
                Err(Error::Corrupt(format!(
                    "record of task {returned} instead of task {pid}"
                )))
            }
            task => Ok(task),
        }
    }

    /// Returns all tasks, and the tasks that have ended since the last call. The first call also
    /// returns the ended tasks that no reader has read. If accounting is off, fails with an error
    /// for which [`Error::is_accounting_off`] is true.
    pub fn read_tasks_and_take_ended(&self) -> Result<Vec<Task>, Error> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .map_err(|e| Error::Read(PPA_DEVICE_PATH, e))?;
        read_tasks(file)
    }

    /// Checks that the caller may call [`Self::read_tasks_and_take_ended`], even while accounting
    /// is off. The check does not read ended tasks, so the kernel keeps their values.
    pub fn check_task_read_permission(&self) -> Result<(), Error> {
        check_read_permission(&self.file)
    }

    /// Returns the values of each possible CPU.
    pub fn cpus(&self) -> Result<Vec<Cpu>, Error> {
        let file = File::open(CPU_VALUES_PATH).map_err(|e| Error::Read(CPU_VALUES_PATH, e))?;
        let mut all = Vec::new();
        read_file_in_large_blocks(&file, CPU_VALUES_PATH, |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        parse_cpus(&all)
    }
}

/// Reads a file to its end in large blocks, so that all values were read at nearly the same time.
fn read_file_in_large_blocks(
    mut file: impl Read,
    path: &'static str,
    mut consume: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => consume(&buffer[..n])?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::Read(path, e)),
        }
    }
}

/// Reads tasks to the end of the list, or until accounting is turned off. The kernel returns each
/// ended task only once, so the tasks that were read before accounting was turned off are returned.
fn read_tasks(file: impl Read) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    match read_file_in_large_blocks(file, PPA_DEVICE_PATH, |bytes| {
        append_parsed_tasks(bytes, &mut tasks)
    }) {
        Err(error) if error.is_accounting_off() && !tasks.is_empty() => {}
        result => result?,
    }
    Ok(keep_latest_entry_per_task(tasks))
}

/// Checks the permission to read tasks by a read() into a buffer that is too small for a task.
fn check_read_permission(mut file: impl Read) -> Result<(), Error> {
    match file.read(&mut [0]) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(Error::Read(PPA_DEVICE_PATH, e)),
        _ => Ok(()),
    }
}

/// Checks the version of `info`, and checks that ticks can be converted to time.
fn check_version_and_frequency(info: Info) -> Result<Info, Error> {
    match info {
        Info { version, .. } if version != VERSION => Err(Error::Version(version)),
        Info { khz: 0, .. } => Err(Error::Corrupt("tick frequency is 0".to_owned())),
        info => Ok(info),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader with a list of results: blocks of bytes and errors. Each call of read() removes the
    /// last result from the list and returns it.
    struct ResultListReader(Vec<std::io::Result<Vec<u8>>>);

    impl Read for ResultListReader {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            match self.0.pop() {
                Some(Ok(part)) => {
                    to[..part.len()].copy_from_slice(&part);
                    Ok(part.len())
                }
                Some(Err(error)) => Err(error),
                None => Ok(0),
            }
        }
    }

    #[test]
    fn r4_9_a_file_is_read_to_its_end() {
        let read = |last| {
            let parts = vec![last, Err(ErrorKind::Interrupted.into()), Ok(vec![1, 2])];
            let mut all = Vec::new();
            let result =
                read_file_in_large_blocks(ResultListReader(parts), CPU_VALUES_PATH, |bytes| {
                    all.extend_from_slice(bytes);
                    Ok(())
                });
            result.map(|()| all)
        };
        assert_eq!(read(Ok(vec![3])).expect("all of it"), [1, 2, 3]);
        let error = read(Err(ErrorKind::PermissionDenied.into())).expect_err("it failed");
        assert!(matches!(error, Error::Read(CPU_VALUES_PATH, _)), "{error}");
    }

    #[test]
    fn r4_4_tasks_read_before_accounting_was_turned_off_are_returned() {
        let mut task = vec![0; size_of::<Task>()];
        task[..4].copy_from_slice(&(size_of::<Task>() as u32).to_ne_bytes());
        let off = || Err(Errno::NODATA.into());
        let tasks = read_tasks(ResultListReader(vec![off(), Ok(task.clone())]));
        assert_eq!(tasks.expect("a task").len(), 1);
        let error = read_tasks(ResultListReader(vec![off()])).expect_err("it is off");
        assert!(error.is_accounting_off(), "{error}");
        // If read() fails with another error, read_tasks() returns this error, even if it has read
        // a task before.
        let denied = Err(ErrorKind::PermissionDenied.into());
        let error = read_tasks(ResultListReader(vec![denied, Ok(task)])).expect_err("may not");
        assert!(!error.is_accounting_off(), "{error}");
    }

    #[test]
    fn r4_9_missing_permission_is_found_before_reading() {
        let check =
            |kind: ErrorKind| check_read_permission(ResultListReader(vec![Err(kind.into())]));
        let error = check(ErrorKind::PermissionDenied).expect_err("may not");
        assert!(matches!(error, Error::Read(PPA_DEVICE_PATH, _)), "{error}");
        assert!(check(ErrorKind::InvalidInput).is_ok());
    }

    #[test]
    fn r4_6_tick_frequency_0_is_refused() {
        let info = |version, khz| {
            check_version_and_frequency(Info {
                version,
                khz,
                ..Info::default()
            })
        };
        assert_eq!(info(1, 1_300_000).expect("it is whole").khz, 1_300_000);
        assert!(matches!(info(1, 0), Err(Error::Corrupt(_))));
        assert!(matches!(info(2, 1_300_000), Err(Error::Version(2))));
    }
}
