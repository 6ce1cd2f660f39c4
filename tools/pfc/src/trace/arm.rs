// SPDX-License-Identifier: GPL-2.0

//! `pfc trace arm` and `pfc trace release`. `pfc trace arm` announces the device to programs that
//! started before the module was loaded. `pfc trace release` makes all programs release the device,
//! so that the module can be unloaded.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use perftrace_reader::{
    Device, Error, NR_MARKERS, NR_RETRY_WORDS, PERFTRACE_DEVICE_PATH, READ_BYTES, RETRY_WORDS,
    WAKE, WORDS,
};
use rustix::fs::OFlags;

use crate::error::{Failure, TryingTo};
use crate::stat::event_loop::EventLoop;
use crate::text_file;
use crate::trace::args::ReleaseArgs;

/// The wake file: programs map this file if they cannot attach to the device.
const WAKE_FILE_PATH: &str = "/run/perftrace/wake";
/// Offset in the wake file of the counter that each call of `announce_in_wake_file` increments. In
/// the wake file, the counter of calls of `announce_in_wake_file` comes after the words of the
/// markers and before the area for filters.
const ANNOUNCE_COUNT_OFFSET: u64 = 0x8000;
/// Mask of the counter of calls of `announce_in_wake_file`. `announce_in_wake_file` increments the
/// counter, and copies it into the word of each marker. A marker's word has one bit for each trace
/// in bits 0 to 15, the counter of `announce_in_wake_file` in bits 16 to 30, and the flag `WAKE` in
/// bit 31.
const ANNOUNCE_COUNT_MASK: u32 = 0x7fff;
/// Time between two checks whether all programs have released the device.
const DETACH_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Cancels a release of the device `/dev/perftrace` in the kernel, and announces the device to
/// running programs. A program that started before the device existed attaches to the device at the
/// program's next event.
pub fn arm_device() -> Result<(), Failure> {
    Device::open()?.resume_after_release()?;
    announce_in_wake_file(&open_wake_file()?)
}

/// Announces the device in the wake file.
fn announce_in_wake_file(file: &File) -> Result<(), Failure> {
    let mut count = [0; 4];
    let written = file
        .read_exact_at(&mut count, ANNOUNCE_COUNT_OFFSET)
        .and_then(|()| {
            let next = u32::from_ne_bytes(count).wrapping_add(1) & ANNOUNCE_COUNT_MASK;
            file.write_all_at(&next.to_ne_bytes(), ANNOUNCE_COUNT_OFFSET)?;
            set_wake_words(file, WAKE | (next << 16))
        });
    written.map_err(wake_file_failure)
}

/// Makes all programs release the device `/dev/perftrace`. After a failure, announces the device to
/// all programs again.
pub fn release_device(args: &ReleaseArgs) -> Result<(), Failure> {
    // Signals are caught before the wake file is changed, so that a signal cannot end pfc before
    // the device is announced again.
    let mut event_loop = EventLoop::new().trying_to("catch signals")?;
    let file = open_wake_file()?;
    let result = detach_all_programs(&file, args, &mut event_loop);
    if result.is_err() {
        // The programs that have released the device attach to the device again.
        if let Err(error) = announce_in_wake_file(&file) {
            message!(
                "pfc: programs that have released {PERFTRACE_DEVICE_PATH} are not traced: {error}; \
                 run pfc trace arm"
            );
        }
    }
    result
}

/// Clears the words of all markers, and waits until all programs have released the device. Returns
/// an error that names the programs that hold the device if some programs have not released it
/// within the timeout, or if a signal ends the wait.
///
/// After an error, tracing of all processes is allowed again: the kernel cancels the release when
/// the device is closed.
fn detach_all_programs(
    file: &File,
    args: &ReleaseArgs,
    event_loop: &mut EventLoop,
) -> Result<(), Failure> {
    set_wake_words(file, 0).map_err(wake_file_failure)?;
    let device = match Device::open() {
        Err(Error::Open(e)) if e.kind() == ErrorKind::NotFound => return Ok(()),
        device => device?,
    };
    let wake = File::open(WAKE_FILE_PATH).map_err(wake_file_failure)?;
    let began = Instant::now();
    let timeout = Duration::from_secs(args.timeout.into());
    let mut nr_attached = device.request_device_release(&wake)?;
    let mut is_interrupted = false;
    while nr_attached != 0 && began.elapsed() < timeout && !is_interrupted {
        let next = Instant::now() + DETACH_POLL_INTERVAL;
        let slept = event_loop.sleep_until(next);
        is_interrupted = !slept.trying_to("wait for programs")?;
        nr_attached = device.request_device_release(&wake)?;
    }
    if nr_attached == 0 {
        return Ok(());
    }
    let reason = match is_interrupted {
        true => "before a signal ended the wait".to_owned(),
        false => format!(
            "within {} s: they are stopped, or have locked all of their memory (mlockall)",
            args.timeout
        ),
    };
    Err(Failure::Refused(format!(
        "{nr_attached} traced programs did not detach {reason}; \
         processes that use {PERFTRACE_DEVICE_PATH}: {}",
        list_device_users().join(", ")
    )))
}

/// Opens the wake file, or creates the wake file with its full size. Root may write the wake file,
/// and all users may read it.
fn open_wake_file() -> Result<File, Failure> {
    let folder = Path::new(WAKE_FILE_PATH).parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().mode(0o755).create(folder);
    made.or_else(|e| match e.kind() {
        ErrorKind::AlreadyExists => Ok(()),
        _ => Err(wake_file_failure(e)),
    })?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o644);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(WAKE_FILE_PATH).map_err(wake_file_failure)?;
    let bytes = file.metadata().map_err(wake_file_failure)?.len();
    // A file longer than `READ_BYTES` is not truncated, because programs may have mapped it.
    if bytes < READ_BYTES {
        file.set_len(READ_BYTES).map_err(wake_file_failure)?;
    }
    Ok(file)
}

/// Sets all retry words and the words of all markers in the wake file to `word`. If `word`
/// announces the device, the retry word of this announcement becomes 0 instead. A program that
/// cannot attach at an announcement waits until the retry word of the announcement changes.
fn set_wake_words(file: &File, word: u32) -> io::Result<()> {
    let mut retry = [word.to_ne_bytes(); NR_RETRY_WORDS];
    if let Some(own) = retry.get_mut((word >> 16) as usize % NR_RETRY_WORDS) {
        *own = [0; 4];
    }
    // The retry words are written before the words of the markers. A program that finds the
    // announcement in the word of a marker then reads the new retry word, which is 0.
    file.write_all_at(retry.as_flattened(), RETRY_WORDS)?;
    file.write_all_at(&word.to_ne_bytes().repeat(NR_MARKERS), WORDS)
}

fn wake_file_failure(error: io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; run this as root",
        _ => "",
    };
    Failure::Refused(format!("{WAKE_FILE_PATH}: {error}{hint}"))
}

/// Returns the ids and names of the processes that have the device open or mapped.
fn list_device_users() -> Vec<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = all
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id() && has_device_open_or_mapped(*pid))
        .collect();
    pids.sort_unstable();
    let name = |pid: &u32| {
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
        format!("{pid} ({})", visible::escape_bytes(comm))
    };
    pids.iter().map(name).collect()
}

fn has_device_open_or_mapped(pid: u32) -> bool {
    let mapped = fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| {
        text_file::split_byte_lines(&maps)
            .any(|line| line.ends_with(PERFTRACE_DEVICE_PATH.as_bytes()))
    });
    let open = || {
        let all = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut all = all.into_iter().flatten().flatten();
        all.any(|fd| {
            fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(PERFTRACE_DEVICE_PATH))
        })
    };
    mapped || open()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of the wake file that start at the offset `at`.
    fn read_wake_words(file: &File, at: u64, nr: usize) -> Vec<u32> {
        let mut bytes = vec![0; nr * 4];
        file.read_exact_at(&mut bytes, at).expect("words");
        let words = bytes.chunks_exact(4);
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
        words.map(word).collect()
    }

    #[test]
    fn r3_8_retry_word_of_an_announcement_is_0_until_the_next_announcement() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(READ_BYTES).expect("room");
        for _ in 0..3 {
            announce_in_wake_file(&file).expect("announced");
            let words = read_wake_words(&file, WORDS, NR_MARKERS);
            let [word, ..] = words[..] else { panic!() };
            assert_ne!(word & WAKE, 0);
            assert!(words.iter().all(|other| *other == word));
            let retry = read_wake_words(&file, RETRY_WORDS, NR_RETRY_WORDS);
            let number = ((word & !WAKE) >> 16) as usize;
            for (n, retry_word) in retry.into_iter().enumerate() {
                assert_eq!(retry_word, if n == number { 0 } else { word });
            }
        }
        set_wake_words(&file, 0).expect("cleared");
        assert!(read_wake_words(&file, RETRY_WORDS, NR_RETRY_WORDS)
            .iter()
            .all(|word| *word == 0));
    }
}
