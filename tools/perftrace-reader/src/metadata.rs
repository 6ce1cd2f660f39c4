// SPDX-License-Identifier: GPL-2.0

//! A cache of processes and markers, so that the reader requests each process and each marker from
//! the kernel once.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::rc::Rc;

use crate::error::Error;
use crate::fields::{self, Field, FieldValue};
use crate::source::{ProcessInfo, Source};
use crate::syscalls;
use trace_rules::abi::KEY_KERNEL;

/// Maximum number of classes (distinct pairs of marker name and fields) of all users. The reader
/// drops the events of further classes.
const MAX_CLASSES: usize = 1 << 16;
/// Maximum number of classes that processes of one user add, so that the programs of one user leave
/// classes for other users.
const MAX_CLASSES_PER_USER: usize = MAX_CLASSES / 4;

/// A class of events. Markers with the same name and fields are one class.
#[derive(Debug)]
pub struct MarkerClass {
    /// The number by which outputs identify the class: 0, 1 and so on.
    pub class_number: u32,
    /// The name of the class, `provider:event`.
    pub name: String,
    /// The fields, in the order of their values in a record.
    pub fields: Vec<Field>,
    /// True if each event of the class reports a system call. All output formats add the name of
    /// the system call to the event (`syscalls.rs`).
    pub is_syscall: bool,
}

impl MarkerClass {
    /// Returns the names and values of the fields in the payload of an event of this class. If the
    /// event is a known system call, the name of the call follows the fields.
    pub fn values<'a>(
        &'a self,
        payload: &'a [u8],
    ) -> impl Iterator<Item = (&'a str, FieldValue<'a>)> + 'a {
        let mut rest = payload;
        let name = self.syscall_name(payload);
        self.fields
            .iter()
            .map_while(move |f| {
                Some((
                    f.name.as_str(),
                    fields::take_field_value(f.kind, &mut rest)?,
                ))
            })
            .chain(name.map(|name| {
                (
                    syscalls::SYSCALL_NAME_FIELD,
                    FieldValue::Text(name.as_bytes()),
                )
            }))
    }

    /// Returns the name of the system call in the payload of an event of this class, or `None` if
    /// the event is not a system call or the system call is unknown.
    pub fn syscall_name(&self, payload: &[u8]) -> Option<&'static str> {
        if !self.is_syscall {
            return None;
        }
        let mut rest = payload;
        let [number, abi] = self.fields.as_slice() else {
            return None;
        };
        match (
            fields::take_field_value(number.kind, &mut rest)?,
            fields::take_field_value(abi.kind, &mut rest)?,
        ) {
            (FieldValue::Signed(number), FieldValue::Text(abi)) => {
                syscalls::syscall_name(abi, number)
            }
            _ => None,
        }
    }
}

/// A process that wrote events.
#[derive(Debug)]
pub struct Process {
    /// The key by which the trace identifies the process.
    pub key: u64,
    /// The kernel's description of the process.
    pub info: ProcessInfo,
}

#[derive(Debug)]
struct CachedProcess {
    process: Rc<Process>,
    /// The markers by their numbers; `None` if the class of a marker exceeds a limit of classes.
    markers: HashMap<u16, Option<Rc<MarkerClass>>>,
    /// The round (pass over all buffers) in which the process was looked up last.
    last_used_round: u64,
}

/// The cache: processes by their keys, and markers by their numbers in each process.
#[derive(Debug, Default)]
pub struct MetadataCache {
    processes: HashMap<u64, CachedProcess>,
    classes: HashMap<(String, String), Rc<MarkerClass>>,
    /// Number of classes that the processes of each user have added.
    nr_classes_of_user: HashMap<u32, usize>,
    current_round: u64,
    /// The key and the marker number that were looked up last in this round, and the result.
    last_lookup: Option<((u64, u16), ProcessAndMarker)>,
}

/// The process and the marker of an event. The marker is `None` if its class exceeds a limit of
/// classes, so that the event is dropped.
pub type ProcessAndMarker = (Rc<Process>, Option<Rc<MarkerClass>>);

impl MetadataCache {
    fn find_or_add_process(
        &mut self,
        source: &impl Source,
        key: u64,
    ) -> Result<Option<&mut CachedProcess>, Error> {
        let cached = match self.processes.entry(key) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(vacant) => {
                let info = match key {
                    KEY_KERNEL => Some(ProcessInfo {
                        comm: "kernel".to_owned(),
                        ..ProcessInfo::default()
                    }),
                    _ => source.process(key)?,
                };
                let Some(info) = info else {
                    return Ok(None);
                };
                vacant.insert(CachedProcess {
                    process: Rc::new(Process { key, info }),
                    markers: HashMap::new(),
                    last_used_round: 0,
                })
            }
        };
        cached.last_used_round = self.current_round;
        Ok(Some(cached))
    }

    /// Looks up a process. Returns `None` if the process does not exist.
    pub fn process(
        &mut self,
        source: &impl Source,
        key: u64,
    ) -> Result<Option<Rc<Process>>, Error> {
        let cached = self.find_or_add_process(source, key)?;
        Ok(cached.map(|cached| Rc::clone(&cached.process)))
    }

    /// Looks up a process and one of its markers. Returns `None` if the process or the marker does
    /// not exist.
    pub fn look_up_marker(
        &mut self,
        source: &impl Source,
        key: u64,
        number: u16,
    ) -> Result<Option<ProcessAndMarker>, Error> {
        // Most events have the same process and the same marker as the event before them.
        if let Some((last, found)) = &self.last_lookup {
            if *last == (key, number) {
                return Ok(Some(found.clone()));
            }
        }
        let Some(cached) = self.find_or_add_process(source, key)? else {
            return Ok(None);
        };
        let process = Rc::clone(&cached.process);
        let marker = match cached.markers.get(&number) {
            Some(marker) => marker.clone(),
            None => {
                // Do not cache failures: a marker that does not exist may be registered later.
                let found = source.describe_marker(key, number.into())?;
                let Some((found, fields)) = found.and_then(|d| {
                    let fields = fields::parse_fields(&d.fields)?;
                    Some((d, fields))
                }) else {
                    return Ok(None);
                };
                let marker =
                    self.find_or_add_class(process.info.uid, (found.name, found.fields), fields);
                if let Some(cached) = self.processes.get_mut(&key) {
                    cached.markers.insert(number, marker.clone());
                }
                marker
            }
        };
        self.last_lookup = Some(((key, number), (process, marker)));
        Ok(self.last_lookup.as_ref().map(|(_, found)| found.clone()))
    }

    /// Returns the class with the name and the text of fields in `key`, for a process of the user
    /// `uid`. Returns `None` if a new class would exceed a limit.
    fn find_or_add_class(
        &mut self,
        uid: u32,
        key: (String, String),
        fields: Vec<Field>,
    ) -> Option<Rc<MarkerClass>> {
        if let Some(marker) = self.classes.get(&key) {
            return Some(Rc::clone(marker));
        }
        let next = self.classes.len();
        let of_user = self.nr_classes_of_user.get(&uid).copied().unwrap_or(0);
        if next >= MAX_CLASSES || of_user >= MAX_CLASSES_PER_USER {
            return None;
        }
        let marker = Rc::new(MarkerClass {
            class_number: u32::try_from(next).ok()?,
            name: key.0.clone(),
            fields,
            is_syscall: (key.0.as_str(), key.1.as_str()) == syscalls::SYSCALL_MARKER,
        });
        self.nr_classes_of_user.insert(uid, of_user + 1);
        self.classes.insert(key, Rc::clone(&marker));
        Some(marker)
    }

    /// Begins another round, that is, a pass over all buffers. In each `every`-th round, checks the
    /// idle processes. A process is idle if it was not looked up for more than `every` rounds. The
    /// cache drops each idle process that the kernel no longer has. The kernel never reuses the
    /// keys of processes. Returns the keys of the processes that were dropped.
    pub fn begin_round_and_drop_exited(
        &mut self,
        source: &impl Source,
        every: u64,
    ) -> Result<Vec<u64>, Error> {
        self.current_round += 1;
        self.last_lookup = None;
        let mut exited = Vec::new();
        if self.current_round % every != 0 {
            return Ok(exited);
        }
        for (key, cached) in &self.processes {
            let idle = self.current_round - cached.last_used_round > every;
            if idle && *key != KEY_KERNEL && source.process(*key)?.is_none() {
                exited.push(*key);
            }
        }
        for key in &exited {
            self.processes.remove(key);
        }
        Ok(exited)
    }
}
