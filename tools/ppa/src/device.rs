// SPDX-License-Identifier: GPL-2.0

//! The device, and the file of CPUs.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::abi::{self, Info, Task, VERSION};
use crate::bytes::{parse_cpus, parse_tasks};
use crate::error::Error;
use crate::values::{latest, Cpu};

/// Where tasks are.
pub const DEVICE: &str = "/dev/ppa";
/// Where CPUs are.
pub const CPUS: &str = "/proc/rawsysppa";

/// Bytes of a read: some thousand tasks.
const AT_ONCE: usize = 1 << 20;

/// The open device.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens it. `NotFound`: the module is not loaded.
    pub fn open() -> Result<Self, Error> {
        let file = File::open(DEVICE).map_err(Error::Open)?;
        Ok(Self { file })
    }

    /// How accounting stands.
    pub fn info(&self) -> Result<Info, Error> {
        let info = abi::info(self.file.as_fd()).map_err(|e| Error::Read(DEVICE, e.into()))?;
        checked(info)
    }

    /// A task's values.
    pub fn task(&self, pid: u32) -> Result<Task, Error> {
        let mut task = Task {
            pid,
            ..Task::default()
        };
        abi::task(self.file.as_fd(), &mut task).map_err(|e| match e {
            Errno::SRCH => Error::NoTask(pid),
            Errno::NODATA => Error::NotAccounted(pid),
            Errno::ACCESS | Errno::PERM => Error::Denied(pid),
            e => Error::Read(DEVICE, e.into()),
        })?;
        match task.pid == pid {
            true => Ok(task),
            false => Err(Error::Corrupt(format!("asked for {pid}, it is another's"))),
        }
    }

    /// All tasks, and those that have ended since somebody did this last, which are
    /// forgotten by it.
    pub fn tasks(&self) -> Result<Vec<Task>, Error> {
        let mut file = &self.file;
        let failed = |e| Error::Read(DEVICE, e);
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut buffer = vec![0; AT_ONCE];
        let mut tasks = Vec::new();
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(latest(tasks)),
                Ok(n) => parse_tasks(&buffer[..n], &mut tasks)?,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// Each CPU that can be.
    pub fn cpus(&self) -> Result<Vec<Cpu>, Error> {
        parse_cpus(&std::fs::read(CPUS).map_err(|e| Error::Read(CPUS, e))?)
    }
}

/// What times can be reckoned by.
fn checked(info: Info) -> Result<Info, Error> {
    match info {
        Info { version, .. } if version != VERSION => Err(Error::Version(version)),
        Info { khz: 0, .. } => Err(Error::Corrupt("ticks have no length".to_owned())),
        info => Ok(info),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_6_ticks_without_a_length_are_refused() {
        let info = |version, khz| {
            checked(Info {
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
