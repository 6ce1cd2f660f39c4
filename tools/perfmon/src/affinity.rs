// SPDX-License-Identifier: GPL-2.0

//! The CPU affinity of the calling thread, on machines with any number of CPUs.
//!
//! `sched_getaffinity()` fails with EINVAL if the buffer has fewer bits than the machine has
//! possible CPUs. `rustix::thread::CpuSet` has 1,024 bits, so this file calls libc instead.
#![expect(unsafe_code, reason = "affinity calls with a buffer of any size")]

use std::io::{self, ErrorKind};

/// Maximum size of a set of CPUs in 64-bit words: 65,536 CPUs. Linux supports at most 8,192 CPUs
/// on x86.
const MAX_CPU_MASK_WORDS: usize = 1024;

/// A set of CPUs, one bit for each CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuMask(Vec<u64>);

impl CpuMask {
    /// Makes a set of one CPU. The error is `InvalidInput` if `cpu` is 65,536 or more.
    /// apply_to_this_thread() returns the same error for a CPU that is offline.
    pub(crate) fn of_cpu(cpu: u32) -> io::Result<Self> {
        let index = cpu as usize / 64;
        if index >= MAX_CPU_MASK_WORDS {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut words = vec![0; index + 1];
        words[index] = 1 << (cpu % 64);
        Ok(Self(words))
    }

    /// Returns the CPUs on which the calling thread may run.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        Self::read_into_growing_buffer(|words| {
            // SAFETY: The buffer `words` is writable and has the size that is passed.
            let rc = unsafe {
                libc::sched_getaffinity(0, size_of_val(words), words.as_mut_ptr().cast())
            };
            check_libc_result(rc)
        })
    }

    /// Calls `read` with a buffer of zeros. Doubles the size of the buffer until `read` succeeds.
    fn read_into_growing_buffer(
        mut read: impl FnMut(&mut [u64]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut words = vec![0; 16];
        loop {
            match read(&mut words) {
                Ok(()) => return Ok(Self(words)),
                Err(e)
                    if e.kind() == ErrorKind::InvalidInput && words.len() < MAX_CPU_MASK_WORDS =>
                {
                    words = vec![0; words.len() * 2];
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Lets the calling thread run on the CPUs of this set only. The error is `InvalidInput` if no
    /// CPU of the set is online.
    pub(crate) fn apply_to_this_thread(&self) -> io::Result<()> {
        let words = &self.0[..];
        // SAFETY: The buffer `words` is readable and has the size that is passed.
        let rc = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
        check_libc_result(rc)
    }
}

fn check_libc_result(rc: libc::c_int) -> io::Result<()> {
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_6_affinity_of_a_machine_with_many_cpus_is_read() {
        let read = |nr_words: usize| {
            CpuMask::read_into_growing_buffer(|words| {
                if words.len() < nr_words {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                words[nr_words - 1] = 1;
                Ok(())
            })
        };
        for nr_words in [1, 16, 17, 100, MAX_CPU_MASK_WORDS] {
            let cpu = 64 * (nr_words as u32 - 1);
            let (mask, only) = (read(nr_words).expect("read"), CpuMask::of_cpu(cpu));
            assert_eq!(mask.0[..nr_words], only.expect("a CPU").0);
        }
        let error = read(MAX_CPU_MASK_WORDS + 1).expect_err("too large");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(CpuMask::of_cpu(u32::MAX).is_err());
    }

    #[test]
    fn r1_6_affinity_of_this_thread_is_restored() {
        let before = CpuMask::of_this_thread().expect("affinity");
        let word = before.0.iter().position(|w| *w != 0).expect("a CPU");
        let cpu = 64 * word as u32 + before.0[word].trailing_zeros();
        let one = CpuMask::of_cpu(cpu).expect("a CPU");
        one.apply_to_this_thread().expect("allowed");
        let now = CpuMask::of_this_thread().expect("affinity");
        assert_eq!(now.0[..one.0.len()], one.0);
        assert!(now.0[one.0.len()..].iter().all(|w| *w == 0));
        before.apply_to_this_thread().expect("allowed");
        assert_eq!(CpuMask::of_this_thread().expect("affinity"), before);
    }
}
