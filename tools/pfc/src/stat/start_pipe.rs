// SPDX-License-Identifier: GPL-2.0

//! The pipe in which the new process of a command waits before it executes the command's program.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::pipe::{pipe_with, PipeFlags};

/// Creates a pipe whose two ends are closed when this process or a child executes a program.
pub fn create_cloexec_pipe() -> io::Result<(File, File)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// The pipe in which the process of the command waits until pfc lets it execute the program.
pub struct StartPipe {
    read_end: File,
    /// `None` in the child process. If the child kept its copy of the write end, it would wait for
    /// ever after pfc was killed.
    write_end: Option<File>,
}

impl StartPipe {
    pub fn new() -> io::Result<Self> {
        let (read_end, write_end) = create_cloexec_pipe()?;
        Ok(Self {
            read_end,
            write_end: Some(write_end),
        })
    }

    /// Waits in the child process until pfc calls [`Self::start_child`].
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if pfc has exited or closed the pipe before it has called `start_child()`.
    pub fn wait_in_child(&mut self) -> io::Result<()> {
        self.write_end = None;
        self.read_end.read_exact(&mut [0])
    }

    /// Lets the child process execute the program.
    pub fn start_child(&mut self) -> io::Result<()> {
        self.write_end
            .iter_mut()
            .try_for_each(|end| end.write_all(&[0]))
    }
}
