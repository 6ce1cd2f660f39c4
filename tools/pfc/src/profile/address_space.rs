// SPDX-License-Identifier: GPL-2.0

//! The executable mappings of each process and of the kernel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::rc::Rc;
use std::time::SystemTime;

use super::files::FileIdentity;

/// The maximum number of mappings that are copied for all processes together; the copies need about
/// 100 MiB. If a process shares an address space with another process and then adds a mapping, it
/// gets its own copy of the address space. If the copy would exceed `MAX_TOTAL_COPIED_REGIONS`, the
/// process loses the shared mappings.
pub const MAX_TOTAL_COPIED_REGIONS: usize = 1 << 20;

/// A mapping of a file or of memory. The start address is the key in [`AddressSpace`].
#[derive(Clone, Debug)]
pub struct MappedRegion {
    pub end: u64,
    /// The offset in the mapped file at which the mapping starts.
    pub file_offset: u64,
    /// The path of the mapped file, or the name of a mapping without a file. It need not be UTF-8.
    pub object: Rc<OsStr>,
    pub identity: FileIdentity,
    /// The time at which the file was mapped, or a later time; `None` if the time is not known.
    pub mapped_at: Option<SystemTime>,
}

/// The mappings of a process or of the kernel, keyed by start address.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    regions: BTreeMap<u64, MappedRegion>,
    /// The number of mappings that were copied to make this address space.
    nr_copied_regions: usize,
}

impl AddressSpace {
    /// Adds a mapping. The new mapping replaces those parts of earlier mappings that it overlaps.
    pub fn insert(&mut self, start: u64, region: MappedRegion) {
        if start >= region.end {
            return;
        }
        let below = self.regions.range(..region.end).rev();
        let overlapping: Vec<u64> = below
            .take_while(|(_, r)| r.end > start)
            .map(|(s, _)| *s)
            .collect();
        for other in overlapping {
            if let Some(old) = self.regions.remove(&other) {
                // Keep the parts of the earlier mapping before and after the new mapping.
                if other < start {
                    let mut left = old.clone();
                    left.end = start;
                    self.regions.insert(other, left);
                }
                if old.end > region.end {
                    let mut right = old.clone();
                    right.file_offset = right
                        .file_offset
                        .wrapping_add(region.end.wrapping_sub(other));
                    self.regions.insert(region.end, right);
                }
            }
        }
        self.regions.insert(start, region);
    }

    /// Returns the mapping that contains an address, and the offset of the address in the mapped
    /// file.
    pub fn find(&self, address: u64) -> Option<(&MappedRegion, u64)> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        let at = address
            .wrapping_sub(*start)
            .wrapping_add(region.file_offset);
        (address < region.end).then_some((region, at))
    }
}

/// The names of all threads and the mappings of all processes, as of the last record that was read.
#[derive(Default)]
pub struct Processes {
    /// The mappings of each process. A child process shares the mappings of its parent until the
    /// parent or the child changes its mappings.
    address_spaces: HashMap<i32, Rc<AddressSpace>>,
    thread_names: HashMap<(i32, i32), Rc<str>>,
    pub kernel_mappings: AddressSpace,
    /// The sum of [`AddressSpace::nr_copied_regions`] over all address spaces, at most
    /// [`MAX_TOTAL_COPIED_REGIONS`].
    total_copied_regions: usize,
    /// True if a process lost the mappings that it shared, because of [`MAX_TOTAL_COPIED_REGIONS`].
    pub has_lost_mappings: bool,
}

impl Processes {
    pub fn apply_comm_record(&mut self, pid: i32, tid: i32, name: &str, exec: bool) {
        if exec {
            self.remove_address_space(pid);
        }
        self.thread_names.insert((pid, tid), name.into());
    }

    pub fn add_forked_thread(
        &mut self,
        (pid, tid): (i32, i32),
        (parent, parent_thread): (i32, i32),
    ) {
        let name = self.thread_names.get(&(parent, parent_thread));
        if let Some(name) = name.or(self.thread_names.get(&(parent, parent))).cloned() {
            self.thread_names.insert((pid, tid), name);
        }
        if pid != parent {
            let space = self.address_spaces.get(&parent).cloned();
            self.remove_address_space(pid);
            self.address_spaces.insert(pid, space.unwrap_or_default());
        }
    }

    pub fn insert_mapping(&mut self, pid: i32, start: u64, region: MappedRegion) {
        let space = self.address_spaces.entry(pid).or_default();
        if Rc::strong_count(space) > 1 {
            let nr_copied_regions = space.regions.len();
            let sum = self.total_copied_regions.saturating_add(nr_copied_regions);
            if sum <= MAX_TOTAL_COPIED_REGIONS {
                self.total_copied_regions = sum;
                Rc::make_mut(space).nr_copied_regions = nr_copied_regions;
            } else {
                *space = Rc::default();
                self.has_lost_mappings = true;
            }
        }
        Rc::make_mut(space).insert(start, region);
    }

    /// Removes the mappings of a process. Mappings that no other process shares do not count
    /// towards [`MAX_TOTAL_COPIED_REGIONS`] after this call.
    fn remove_address_space(&mut self, pid: i32) {
        let space = self.address_spaces.remove(&pid);
        if let Some(unshared) = space.and_then(Rc::into_inner) {
            self.total_copied_regions = self
                .total_copied_regions
                .saturating_sub(unshared.nr_copied_regions);
        }
    }

    /// Returns the name of a thread. If the thread's name is unknown, returns the name of the
    /// thread's process. If the names of the thread and of its process are unknown, returns the
    /// thread ID after a colon, as perf does. The name of process 0 is "swapper".
    pub fn thread_name(&mut self, pid: i32, tid: i32) -> Rc<str> {
        if pid == 0 {
            return "swapper".into();
        }
        let known = self.thread_names.get(&(pid, tid));
        if let Some(name) = known.or(self.thread_names.get(&(pid, pid))) {
            return name.clone();
        }
        let name: Rc<str> = format!(":{tid}").into();
        self.thread_names.insert((pid, tid), name.clone());
        name
    }

    /// Returns the IDs of all processes that have a name or mappings.
    pub fn pids(&self) -> HashSet<i32> {
        let named = self.thread_names.keys().map(|(pid, _)| *pid);
        named.chain(self.address_spaces.keys().copied()).collect()
    }

    /// Removes the names and mappings of processes.
    pub fn remove_processes(&mut self, pids: &HashSet<i32>) {
        self.thread_names.retain(|(pid, _), _| !pids.contains(pid));
        for pid in pids {
            self.remove_address_space(*pid);
        }
    }

    #[cfg(test)]
    pub fn nr_thread_names(&self) -> usize {
        self.thread_names.len()
    }

    /// Removes the name of a thread.
    pub fn remove_thread(&mut self, pid: i32, tid: i32) {
        self.thread_names.remove(&(pid, tid));
    }

    pub fn find_mapping(&self, pid: i32, address: u64) -> Option<(&MappedRegion, u64)> {
        self.address_spaces.get(&pid)?.find(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_region(end: u64, offset: u64, object: &str) -> MappedRegion {
        MappedRegion {
            end,
            file_offset: offset,
            object: OsStr::new(object).into(),
            identity: FileIdentity::Any,
            mapped_at: None,
        }
    }

    #[test]
    fn r1_9_new_mapping_replaces_overlapped_parts() {
        let mut space = AddressSpace::default();
        space.insert(0x1000, test_region(0x5000, 0x100, "a"));
        space.insert(0x2000, test_region(0x3000, 0, "b"));
        let find = |space: &AddressSpace, at| {
            space
                .find(at)
                .map(|(r, o)| (r.object.to_str().expect("text").to_owned(), o))
        };
        assert_eq!(find(&space, 0x1fff), Some(("a".into(), 0x10ff)));
        assert_eq!(find(&space, 0x2004), Some(("b".into(), 4)));
        assert_eq!(find(&space, 0x3000), Some(("a".into(), 0x2100)));
        assert_eq!(find(&space, 0x5000), None);
        assert_eq!(find(&space, 0xfff), None);
        space.insert(0, test_region(u64::MAX, 0, "all"));
        assert_eq!(find(&space, 0x2004), Some(("all".into(), 0x2004)));
        assert_eq!(space.regions.len(), 1);
    }

    #[test]
    fn r1_9_child_inherits_names_and_mappings_until_exec() {
        let mut processes = Processes::default();
        processes.apply_comm_record(1, 1, "sh", true);
        processes.insert_mapping(1, 0x1000, test_region(0x2000, 0, "sh"));
        processes.add_forked_thread((2, 2), (1, 1));
        assert!(processes.find_mapping(2, 0x1000).is_some());
        assert_eq!(&*processes.thread_name(2, 2), "sh");
        processes.apply_comm_record(2, 2, "ls", true);
        assert!(
            processes.find_mapping(2, 0x1000).is_none()
                && processes.find_mapping(1, 0x1000).is_some()
        );
        assert_eq!(&*processes.thread_name(2, 5), "ls");
        assert_eq!(&*processes.thread_name(7, 8), ":8");
        assert_eq!(&*processes.thread_name(0, 0), "swapper");
    }
    #[test]
    fn r1_9_copied_mappings_are_not_counted_after_exec() {
        const NR_INHERITED_MAPPINGS: usize = 1 << 14;
        let mut processes = Processes::default();
        for n in 1..=NR_INHERITED_MAPPINGS as u64 {
            processes.insert_mapping(1, n << 12, test_region((n + 1) << 12, 0, "inherited"));
        }
        let fork_and_map = |processes: &mut Processes, pid| {
            processes.add_forked_thread((pid, pid), (1, 1));
            processes.insert_mapping(pid, 0, test_region(0x1000, 0, "own"));
            processes.find_mapping(pid, 0x1000).is_some()
        };
        for pid in 2..4 + (MAX_TOTAL_COPIED_REGIONS / NR_INHERITED_MAPPINGS) as i32 {
            assert!(fork_and_map(&mut processes, pid), "process {pid}");
            processes.apply_comm_record(pid, pid, "next", true);
        }
        assert!(processes.total_copied_regions == 0 && !processes.has_lost_mappings);
        let pids = 100..100 + (MAX_TOTAL_COPIED_REGIONS / NR_INHERITED_MAPPINGS) as i32;
        assert!(pids.clone().all(|pid| fork_and_map(&mut processes, pid)));
        assert!(!processes.has_lost_mappings);
        assert!(!fork_and_map(&mut processes, 99) && processes.has_lost_mappings);
        processes.remove_processes(&pids.collect());
        assert_eq!(processes.total_copied_regions, 0);
    }
}
