// SPDX-License-Identifier: GPL-2.0

//! A substitute for `/dev/perfcounters`: an ordinary file with the same layout. The registry code
//! of the kernel modules (`counters_rules::registry`) maintains the file. Tests use this module;
//! with it users can try `pfc` without the kernel modules. Only builds with the feature `fake` have
//! this module; `pfc` is built without it.
//!
//! A [`FakeCounters`] adds and deletes instances (named counters), one at a time, as the kernel
//! does under its lock. A [`FakeCpu`] updates counters as a CPU does in the kernel. At most one
//! thread may update the counters of a CPU, because updates are not atomic.

mod memory;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use counters_rules::abi::{self, Desc, Header};
use counters_rules::error::Error;
use counters_rules::layout::Layout;
use counters_rules::registry::{Registry, RegistryStore, NR_HASH_BUCKETS};
use counters_rules::spec::Spec;
use protocols::generation::Generation;
use protocols::seqflag;
use protocols::sync::{fence_release, Word};

use crate::raw;
use memory::{desc_words, header_words, FakeMemory};

/// A file with a set of instances and the layout of `/dev/perfcounters`.
pub struct FakeCounters {
    registry: Registry<FakeRegistryStore>,
    shared: Arc<SharedFile>,
}

struct SharedFile {
    memory: FakeMemory,
    layout: Layout,
    /// One word for each instance number; the word is 1 if the instance is live. These words are
    /// not in the file, because readers of the file do not need them.
    instance_live_flags: Vec<Word>,
}

/// The store of the registry. Descriptors and counters are in the file, and the hash chains are in
/// vectors.
struct FakeRegistryStore {
    shared: Arc<SharedFile>,
    hash_chain_heads: Vec<u32>,
    hash_chain_nexts: Vec<u32>,
}

impl FakeCounters {
    /// Creates or truncates a file and writes the structures of `/dev/perfcounters` into the file.
    /// All CPUs are possible and online.
    pub fn create(path: &Path, nr_cpus: u32, pages_per_chunk: u32) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Self::new(file, nr_cpus, pages_per_chunk)
    }

    /// Creates a file in memory with the structures of `/dev/perfcounters`. Returns the
    /// `FakeCounters` for the file, and a path by which this process can open the file.
    pub fn in_memory(nr_cpus: u32, pages_per_chunk: u32) -> io::Result<(Self, String)> {
        let fd = rustix::fs::memfd_create("perfcounters", rustix::fs::MemfdFlags::CLOEXEC)?;
        // Never close the descriptor, so that the path stays valid for as long as the test runs.
        let file = Box::leak(Box::new(File::from(fd)));
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        Ok((
            Self::new(file.try_clone()?, nr_cpus, pages_per_chunk)?,
            path,
        ))
    }

    fn new(file: File, nr_cpus: u32, pages_per_chunk: u32) -> io::Result<Self> {
        let layout = Layout::new(nr_cpus, pages_per_chunk)
            .filter(|_| nr_cpus <= abi::MAX_CPUS)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let shared = Arc::new(SharedFile {
            memory: FakeMemory::new(&file, layout)?,
            layout,
            instance_live_flags: (0..abi::MAX_INSTANCES).map(|_| Word::new(0)).collect(),
        });
        shared.write_header();
        let store = FakeRegistryStore {
            shared: Arc::clone(&shared),
            hash_chain_heads: vec![0; NR_HASH_BUCKETS as usize],
            hash_chain_nexts: vec![0; abi::MAX_INSTANCES as usize],
        };
        let registry =
            Registry::new(layout, (1, 2), store).map_err(|e| io::Error::other(e.explanation()))?;
        Ok(Self { registry, shared })
    }

    /// Adds an instance, as `perf_add_desc()` does in the kernel.
    pub fn add(&mut self, spec: &Spec<'_>) -> Result<u32, Error> {
        self.registry.add(spec)
    }

    /// Adds a counter, as `perf_add()` does in the kernel.
    pub fn add_counter(&mut self, name: &str) -> Result<u32, Error> {
        self.add(&Spec::counter(name.as_bytes()))
    }

    /// Makes an instance dormant, as `perf_del()` does in the kernel.
    pub fn del(&mut self, instance: u32) -> Result<(), Error> {
        self.registry.del(instance)
    }

    /// Returns the number of the live or dormant instance with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.registry.find(name.as_bytes())
    }

    /// Returns the writer of a CPU's counters.
    pub fn cpu(&self, cpu: u32) -> FakeCpu {
        FakeCpu {
            shared: Arc::clone(&self.shared),
            cpu,
        }
    }

    /// Sets or clears a CPU in the bitmap of online CPUs.
    pub fn set_online(&self, cpu: u32, online: bool) {
        self.set_bit(abi::ONLINE_OFFSET, cpu, online);
    }

    /// Sets or clears a CPU in the bitmap of possible CPUs.
    pub fn set_possible(&self, cpu: u32, possible: bool) {
        self.set_bit(abi::POSSIBLE_OFFSET, cpu, possible);
    }

    /// Changes the boot id, to simulate that the module was loaded again.
    pub fn set_boot_id(&self, id: [u8; 16]) {
        let at = std::mem::offset_of!(Header, boot_id) as u64;
        for (n, half) in id.chunks_exact(8).enumerate() {
            let half = half.try_into().map(u64::from_ne_bytes).unwrap_or(0);
            self.shared
                .word_at_offset(at + 8 * n as u64)
                .store_relaxed(half);
        }
    }

    /// Overwrites a word of the file, to test readers with invalid contents.
    pub fn write_word(&self, offset: u64, value: u64) {
        self.shared.word_at_offset(offset).store_relaxed(value);
    }

    /// Begins a change of the set of instances; [`Self::end_change`] ends the change.
    pub fn begin_change(&mut self) {
        self.registry.store_mut().begin_change();
    }

    /// Ends the change that [`Self::begin_change`] began.
    pub fn end_change(&mut self) {
        self.registry.store_mut().end_change();
    }

    fn set_bit(&self, offset: u32, cpu: u32, on: bool) {
        let word = self
            .shared
            .word_at_offset(u64::from(offset) + u64::from(cpu / 64) * 8);
        let bit = 1 << (cpu % 64);
        let old = word.load_relaxed();
        word.store_relaxed(if on { old | bit } else { old & !bit });
    }
}

/// Updates the counters of one CPU.
pub struct FakeCpu {
    shared: Arc<SharedFile>,
    cpu: u32,
}

impl FakeCpu {
    /// Begins an update of any number of counters.
    pub fn begin_update(&self) {
        let flag = self.slot(0);
        // This store is step A of the seqflag protocol.
        flag.store_relaxed(flag.load_relaxed().wrapping_add(seqflag::BEGIN_INCREMENT));
        fence_release();
    }

    /// Ends the update that [`Self::begin_update`] began.
    pub fn end_update(&self) {
        let flag = self.slot(0);
        // This store is step B of the seqflag protocol.
        flag.store_release(flag.load_relaxed().wrapping_add(seqflag::END_INCREMENT));
    }

    /// Adds to a slot without an update of the seqflag, like the inline `perf_counter_add`.
    pub fn add_without_seqflag(&self, slot: u32, delta: i64) {
        let slot = self.slot(slot);
        slot.store_relaxed(slot.load_relaxed().wrapping_add(delta as u64));
    }

    /// Adds `delta` to an instance if the instance is live, like the kernel's `perf_adjust`.
    pub fn adjust_if_live(&self, instance: u32, delta: i64) {
        self.add_to_instances_if_live(&[(instance, delta)]);
    }

    /// Adds a number to each of several instances, in one update, if all of the instances are live.
    pub fn add_to_instances_if_live(&self, deltas: &[(u32, i64)]) {
        self.begin_update();
        // Pairs with the fence in is_quiescent: either this thread sees that an instance is
        // dormant, or is_quiescent sees that this update is in flight.
        fence(Ordering::SeqCst);
        if deltas.iter().all(|(n, _)| self.shared.is_instance_live(*n)) {
            for (instance, delta) in deltas {
                self.add_without_seqflag(*instance, *delta);
            }
        }
        self.end_update();
    }

    /// Returns the value of a slot on this CPU.
    pub fn get(&self, slot: u32) -> i64 {
        self.slot(slot).load_relaxed() as i64
    }

    fn slot(&self, slot: u32) -> &Word {
        self.shared
            .word_at_offset(self.shared.layout.slot_offset(self.cpu, slot))
    }
}

impl SharedFile {
    fn word_at_offset(&self, offset: u64) -> &Word {
        self.memory.word(offset)
    }

    fn is_instance_live(&self, instance: u32) -> bool {
        self.instance_live_flags
            .get(instance as usize)
            .is_some_and(|live| live.load_relaxed() != 0)
    }

    fn write_header(&self) {
        let mut id = [0; 16];
        let seed = now_ns() ^ (u64::from(std::process::id()) << 40);
        id[..8].copy_from_slice(&seed.to_ne_bytes());
        let h = Header {
            version: abi::VERSION,
            size: size_of::<Header>() as u32,
            min_size: size_of::<Header>() as u32,
            nr_cpus: self.layout.nr_cpus(),
            page_size: abi::PAGE_SIZE as u32,
            pages_per_chunk: self.layout.pages_per_chunk(),
            max_instances: abi::MAX_INSTANCES,
            flags: abi::F_ATOMIC64,
            counters_offset: abi::PAGE_SIZE as u64,
            desc_offset: abi::DESC_OFFSET,
            desc_size: size_of::<Desc>() as u32,
            possible_offset: abi::POSSIBLE_OFFSET,
            online_offset: abi::ONLINE_OFFSET,
            boot_id: id,
            loaded_ns: now_ns(),
            ..Header::default()
        };
        for (n, word) in header_words(&h).into_iter().enumerate() {
            self.word_at_offset(n as u64 * 8).store_relaxed(word);
        }
        for bitmap in [abi::POSSIBLE_OFFSET, abi::ONLINE_OFFSET] {
            for first in (0..h.nr_cpus).step_by(64) {
                let nr_bits = (h.nr_cpus - first).min(64);
                let bits = u64::MAX >> (64 - nr_bits);
                self.word_at_offset(u64::from(bitmap + first / 8))
                    .store_relaxed(bits);
            }
        }
    }

    /// Replaces one half of a word, as a store of a `u32` would.
    fn store_u32(&self, offset: u64, value: u32) {
        let word = self.word_at_offset(offset & !7);
        let mut bytes = word.load_relaxed().to_ne_bytes();
        let at = (offset & 4) as usize;
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        word.store_relaxed(u64::from_ne_bytes(bytes));
    }

    fn generation(&self) -> Generation<'_> {
        Generation::new(
            self.word_at_offset(std::mem::offset_of!(Header, gen1) as u64),
            self.word_at_offset(std::mem::offset_of!(Header, gen2) as u64),
        )
    }
}

impl RegistryStore for FakeRegistryStore {
    fn grow(&mut self, slots: u32) -> Result<(), Error> {
        if slots > abi::MAX_INSTANCES {
            return Err(Error::NoMemory);
        }
        // The file is sparse and has its largest possible size, so all chunks exist from the start.
        // Readers may access a chunk only after nr_chunks has been raised.
        let chunks = self.shared.layout.chunks_for(slots);
        let at = std::mem::offset_of!(Header, nr_chunks) as u64;
        self.shared.store_u32(at, chunks);
        Ok(())
    }

    fn head(&self, bucket: u32) -> u32 {
        self.hash_chain_heads[bucket as usize]
    }

    fn set_head(&mut self, bucket: u32, instance: u32) {
        self.hash_chain_heads[bucket as usize] = instance;
    }

    fn next(&self, instance: u32) -> u32 {
        self.hash_chain_nexts[instance as usize]
    }

    fn set_next(&mut self, instance: u32, next: u32) {
        self.hash_chain_nexts[instance as usize] = next;
    }

    fn desc(&self, instance: u32) -> Desc {
        let memory = &self.shared.memory;
        raw::desc_from_words(
            memory.words(byte_offset_of_desc_word(instance, 0), size_of::<Desc>() / 8),
        )
    }

    fn set_desc(&mut self, instance: u32, desc: &Desc) {
        for (n, word) in desc_words(desc).into_iter().enumerate() {
            self.shared
                .word_at_offset(byte_offset_of_desc_word(instance, n))
                .store_relaxed(word);
        }
    }

    fn set_live(&mut self, instance: u32, _nr_slots: u16, live: bool) {
        self.shared.instance_live_flags[instance as usize].store_relaxed(u64::from(live));
    }

    /// Waits until every CPU has ended the update that is in flight, and then returns true. Unlike
    /// the kernel, the fake may wait here, because no other caller is delayed.
    fn is_quiescent(&self, _instance: u32) -> bool {
        // Pairs with the fence in add_to_instances_if_live.
        fence(Ordering::SeqCst);
        for cpu in 0..self.shared.layout.nr_cpus() {
            let flag = self
                .shared
                .word_at_offset(self.shared.layout.slot_offset(cpu, 0));
            let before = flag.load_acquire();
            while !seqflag::is_idle(flag.load_acquire()) && flag.load_acquire() == before {
                std::thread::yield_now();
            }
        }
        true
    }

    fn zero_slots(&mut self, instance: u32, nr_slots: u16) {
        for cpu in 0..self.shared.layout.nr_cpus() {
            for slot in instance..instance + u32::from(nr_slots) {
                self.shared
                    .word_at_offset(self.shared.layout.slot_offset(cpu, slot))
                    .store_relaxed(0);
            }
        }
    }

    fn set_nr_slots(&mut self, slots: u32) {
        let at = std::mem::offset_of!(Header, nr_slots) as u64;
        self.shared.store_u32(at, slots);
    }

    fn begin_change(&mut self) {
        self.shared.generation().begin_change();
    }

    fn end_change(&mut self) {
        self.shared.generation().end_change();
    }

    fn realtime_ns(&self) -> u64 {
        now_ns()
    }
}

fn byte_offset_of_desc_word(instance: u32, word: usize) -> u64 {
    abi::DESC_OFFSET + u64::from(instance) * size_of::<Desc>() as u64 + word as u64 * 8
}

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}
