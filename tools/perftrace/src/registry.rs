// SPDX-License-Identifier: GPL-2.0

//! The registry of modules: the programs and libraries of this process that have markers.
//! Constructors add modules to the registry, and destructors remove them. A child of fork()
//! inherits the registry. If the parent is traced, the kernel makes the child a traced process of
//! its own when the child reaches its first marker. If the parent waits for a device, the child
//! waits as well, and attaches itself. A traced or waiting child is attached without the handlers
//! of pthread_atfork(), which do not run in every child (`wiped_page.rs`).
#![expect(
    unsafe_code,
    reason = "a list of other programs' memory, pthread_atfork"
)]

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, CStr};
use core::ptr::{self, null_mut};
use core::slice;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{Marker, MAX_FIELDS_BYTES, MAX_NAME_BYTES, NO_MARKER_NUMBER, VERSION};
use crate::device::{self, DeviceMappings, Errno};
use crate::site::{Site, SITE_REFUSED, SITE_REGISTERED, SITE_UNREGISTERED, SITE_WAITING};
use crate::wake_file::WakeFile;
use crate::{state, thread, wiped_page};

extern "C" {
    /// A function of the C library that the crate libc does not declare.
    fn dprintf(fd: c_int, format: *const c_char, ...) -> c_int;
}

/// A program or library with markers, `struct perftrace_module` of `perftrace/perftrace.h`.
///
/// # Invariants
///
/// The module's sites begin at `first_site` and end before `sites_end`. `off_word` points to a word
/// that is 0. The sites and the word are live while the module is registered.
#[repr(C)]
#[derive(Debug)]
pub struct MarkerModule {
    pub(crate) next: *mut MarkerModule,
    pub(crate) first_site: *const Site,
    pub(crate) sites_end: *const Site,
    pub(crate) off_word: *const AtomicU32,
    /// Each object file of the module has a constructor; `nr_users` is the number of constructors
    /// that have run. Only the C macro uses this field.
    pub(crate) nr_users: u32,
    pub(crate) reserved: u32,
}

impl MarkerModule {
    fn sites(&self) -> &[Site] {
        let bytes = (self.sites_end as usize).saturating_sub(self.first_site as usize);
        match self.first_site.is_null() {
            true => &[],
            // SAFETY: By the invariant of `MarkerModule`, the sites are live.
            false => unsafe { slice::from_raw_parts(self.first_site, bytes / size_of::<Site>()) },
        }
    }
}

/// Maximum number of markers in one request to the kernel.
const MAX_MARKERS_PER_CALL: usize = 512;

/// The registered modules, and the state of this process's attachment.
struct Registry {
    /// The registered modules, as a linked list.
    modules: *mut MarkerModule,
    /// The state of this process's attachment to the device.
    attach_state: AttachState,
    /// True if the process takes part in traces with shared buffers: `PERFTRACE_SHARED=1` is in the
    /// environment, and the process has restartable sequences.
    joins_shared_traces: bool,
    /// True if `PERFTRACE_DEBUG=1` is in the environment.
    is_debug_on: bool,
    /// True if the handlers for fork() are installed.
    has_fork_handlers: bool,
    wake_file: WakeFile,
    #[cfg(feature = "simulate")]
    mappings: (*mut u8, *mut u8),
}

/// The state of this process's attachment to the device.
#[derive(Clone, Copy, PartialEq)]
enum AttachState {
    /// The process has not tried to attach yet, or has unregistered its last module.
    New,
    /// The process is traced.
    Attached,
    /// The last attempt to attach failed, for example because the device did not exist. The process
    /// tries again at its first event after the next announcement of the device in the wake file.
    Waiting,
    /// The process is not traced, and will not attach.
    Off,
}

/// The registry.
///
/// # Invariants
///
/// The registry is accessed only while the lock of [`wiped_page::get_or_map_page`] is held.
struct LockedRegistry(UnsafeCell<Registry>);

// SAFETY: By the invariant of `LockedRegistry`, accesses of several threads are serialised by the
// lock.
unsafe impl Sync for LockedRegistry {}

static REGISTRY: LockedRegistry = LockedRegistry(UnsafeCell::new(Registry {
    modules: null_mut(),
    attach_state: AttachState::New,
    joins_shared_traces: false,
    is_debug_on: false,
    has_fork_handlers: false,
    wake_file: WakeFile::new(),
    #[cfg(feature = "simulate")]
    mappings: (null_mut(), null_mut()),
}));

/// Calls `f` with the registry while the lock of the registry is held. If there is no memory for
/// the lock, `f` is not called, and the program is not traced.
fn with_locked_registry(f: impl FnOnce(&mut Registry)) {
    let Some(page) = wiped_page::get_or_map_page() else {
        return;
    };
    page.lock();
    // SAFETY: The lock is held, as the invariant of `LockedRegistry` requires. No `f` that is
    // passed to this function takes the lock again.
    f(unsafe { &mut *REGISTRY.0.get() });
    page.unlock();
}

/// Registers a program or library that has been loaded.
///
/// # Safety
///
/// The module's invariants hold until the module is passed to [`unregister_module`]. The module is
/// not registered yet.
pub unsafe extern "C" fn register_module(module: *mut MarkerModule) {
    with_locked_registry(|registry| {
        // SAFETY: The caller guarantees that the module is live and not registered, so nothing else
        // uses it.
        let new = unsafe { &mut *module };
        if new.sites().is_empty() {
            return;
        }
        new.next = registry.modules;
        registry.modules = module;
        let announcement = registry.wake_file.last_announcement;
        match registry.attach_state {
            AttachState::New => registry.init_and_attach(),
            // The cause of the last failure may be gone: the device may have appeared.
            AttachState::Waiting => return registry.reattach_and_register_all(announcement),
            AttachState::Attached if state::is_mapping_released() => {
                return registry.reattach_and_register_all(announcement)
            }
            _ => {}
        }
        registry.register_markers_of(new);
    });
}

/// Unregisters a program or library that is about to be unmapped, or whose process exits.
///
/// # Safety
///
/// The module was passed to [`register_module`].
pub unsafe extern "C" fn unregister_module(module: *mut MarkerModule) {
    with_locked_registry(|registry| {
        let mut at = &raw mut registry.modules;
        // SAFETY: By the invariant of `MarkerModule`, the modules in the list are live. The lock
        // protects the list.
        unsafe {
            while !(*at).is_null() && *at != module {
                at = &raw mut (**at).next;
            }
            if let Some(old) = (*at).as_mut() {
                *at = old.next;
                registry.unregister_markers_of(old);
            }
            if registry.modules.is_null() && registry.attach_state == AttachState::Attached {
                // The process attaches to the device again when the next module is registered.
                device::close_device();
                registry.attach_state = AttachState::New;
            }
        }
    });
}

/// Attaches the process to `/dev/perftrace`. Called when a thread writes an event and finds, in the
/// word of the event's marker, that `/dev/perftrace` has appeared. `announcement` is the value of
/// the marker's word. The thread may be in a signal handler.
#[cold]
pub(crate) fn attach_on_wake(announcement: u32) {
    device::run_without_cancellation(|| {
        let Some(page) = wiped_page::get_or_map_page().filter(|page| page.try_lock()) else {
            return;
        };
        // SAFETY: The lock is held, as the invariant of `LockedRegistry` requires.
        let registry = unsafe { &mut *REGISTRY.0.get() };
        let is_waiting = match registry.attach_state {
            AttachState::Waiting => true,
            // The calling process may be a child that was created while its parent registered the
            // markers of the program.
            AttachState::Attached => state::is_mapping_released() || page.is_owner_unknown(),
            AttachState::New | AttachState::Off => false,
        };
        // Two announcements of the device have different values. Attach once for each announcement,
        // and never in a child process that shares the memory of its parent.
        let is_new = registry.wake_file.last_announcement != announcement;
        if is_waiting && is_new && page.is_owned_by_calling_process() {
            if page.is_owner_unknown() {
                // The thread-local words still have the values of the parent's thread: no fork
                // handler has cleared them.
                thread::clear_thread_words();
            }
            registry.reattach_and_register_all(announcement);
            // Store `last_announcement` last: a child that is created before the store still has
            // the previous value, so the child attaches as well.
            registry.wake_file.last_announcement = announcement;
        }
        page.unlock();
    });
}

/// Attaches to the simulated kernel that a test has set up. With `replace`, the new kernel replaces
/// the current simulated kernel.
#[cfg(feature = "simulate")]
pub(crate) fn attach_simulated(replace: bool) {
    with_locked_registry(|registry| {
        if replace {
            registry.reattach_to_simulation();
        } else if registry.attach_state != AttachState::Attached {
            registry.init_and_attach();
            registry.for_each_module(|module| registry.register_markers_of(module));
        }
    });
}

impl Registry {
    fn init_and_attach(&mut self) {
        self.is_debug_on = env_starts_with(c"PERFTRACE_DEBUG", b'1');
        self.attach_state = AttachState::Off;
        if env_starts_with(c"PERFTRACE", b'0') {
            return self.log_why_tracing_is_off(c"PERFTRACE=0 is in the environment");
        }
        // SAFETY: getauxval() only reads the auxiliary vector.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return self.log_why_tracing_is_off(c"the program has more privileges than its user");
        }
        // A process without restartable sequences does not use shared buffers, because it would
        // lock a shared buffer by the word `owner`, which the restartable sequences of other
        // processes do not check.
        self.joins_shared_traces =
            env_starts_with(c"PERFTRACE_SHARED", b'1') && thread::detect_rseq();
        self.attach_or_prepare_to_wait(self.wake_file.last_announcement);
        if self.attach_state != AttachState::Off && !self.has_fork_handlers {
            self.has_fork_handlers = true;
            // SAFETY: The handlers are functions of this library. The C library removes the
            // handlers when this library is unmapped.
            let result = unsafe {
                libc::pthread_atfork(
                    Some(lock_before_fork),
                    Some(unlock_parent_after_fork),
                    Some(reset_child_after_fork),
                )
            };
            if result != 0 {
                self.log_error(c"pthread_atfork", result);
            }
        }
    }

    /// Attaches this process. Changes `attach_state` last. If another thread creates a child by a
    /// system call before `attach_state` changes, the child has the previous state, and attaches
    /// itself. `announcement` is the last announcement that caused an attempt to attach, or 0.
    fn attach_or_prepare_to_wait(&mut self, announcement: u32) {
        if let Some(page) = wiped_page::get_or_map_page() {
            page.set_owner();
        }
        match device::attach_process(self.joins_shared_traces) {
            Ok(mappings) => self.install_and_check_mappings(mappings, announcement),
            Err(error) => {
                self.log_error(c"/dev/perftrace", error.0);
                self.attach_state = match self.prepare_to_wait_for_device(announcement) {
                    true => AttachState::Waiting,
                    false => AttachState::Off,
                };
            }
        }
    }

    /// Prepares for a later announcement of the device in the wake file. Returns false if the wake
    /// file cannot be mapped.
    fn prepare_to_wait_for_device(&mut self, announcement: u32) -> bool {
        if let Err(Errno(error)) = self.wake_file.select_announcement_word(announcement) {
            // Do not report a missing wake file: the failure to attach was reported already.
            if error != libc::ENOENT {
                self.log_error(c"/run/perftrace/wake", error);
            }
            return false;
        }
        self.log_why_tracing_is_off(c"waiting for /dev/perftrace");
        true
    }

    /// Attaches again, and registers all markers again, because the device has appeared or may have
    /// appeared. `announcement` is the last announcement that caused an attempt to attach, or 0.
    ///
    /// Until a site gets a marker word of the device, its pointer `word` points into the wake file.
    /// A child that another thread creates before `word` changes finds the announcement of the
    /// device in the wake file, and attaches itself.
    fn reattach_and_register_all(&mut self, announcement: u32) {
        let known =
            |site: &&Site| matches!(site.state.load(Relaxed), SITE_REGISTERED | SITE_WAITING);
        self.for_each_module(|module| {
            let sites = module.sites().iter().filter(known);
            sites.for_each(|site| site.state.store(SITE_UNREGISTERED, Relaxed));
        });
        self.attach_or_prepare_to_wait(announcement);
        self.for_each_module(|module| match self.attach_state {
            AttachState::New | AttachState::Off => {
                let sites = module.sites().iter();
                let unregistered =
                    sites.filter(|site| site.state.load(Relaxed) == SITE_UNREGISTERED);
                unregistered.for_each(|site| site.disable(module.off_word, SITE_UNREGISTERED));
            }
            AttachState::Attached | AttachState::Waiting => self.register_markers_of(module),
        });
    }

    /// Installs the mappings of an attach. Sets `attach_state` by the version in the control page.
    fn install_and_check_mappings(&mut self, mappings: DeviceMappings, announcement: u32) {
        // SAFETY: `device::attach_process()` has returned these mappings, which are never unmapped.
        unsafe { state::set_mappings(mappings.control, mappings.buffers) };
        #[cfg(feature = "simulate")]
        {
            self.mappings = (mappings.control, mappings.buffers);
        }
        let version = state::control_page().map(|control| control.version.load(Relaxed));
        self.attach_state = match version {
            Some(VERSION) => AttachState::Attached,
            // The version 0 in the control page means that the kernel has removed mappings that
            // another copy of the library in this process has made.
            Some(0) if self.prepare_to_wait_for_device(announcement) => AttachState::Waiting,
            Some(0) | None => AttachState::Off,
            Some(_) => {
                self.log_why_tracing_is_off(c"the kernel uses another version of the interface");
                AttachState::Off
            }
        };
        if self.attach_state == AttachState::Attached {
            thread::detect_rseq();
        }
    }

    /// Registers all markers of a module. Skips sites that are registered already. Sites that the
    /// kernel refuses stay disabled.
    fn register_markers_of(&self, module: &MarkerModule) {
        let is_unregistered = |site: &&Site| site.state.load(Relaxed) == SITE_UNREGISTERED;
        match self.attach_state {
            AttachState::Attached => {}
            AttachState::Waiting => {
                let sites = module.sites().iter().filter(is_unregistered);
                return sites.for_each(|site| site.set_waiting_for_device(self.wake_file.word));
            }
            AttachState::New | AttachState::Off => return,
        }
        for sites in module.sites().chunks(MAX_MARKERS_PER_CALL) {
            for site in sites.iter().filter(is_unregistered) {
                // SAFETY: By the invariant of `Site`, `text` is a name and fields, both with a NUL.
                if unsafe { split_name_and_fields(site.text) }.is_none() {
                    self.disable_refused_site(module, site, libc::E2BIG);
                }
            }
            let count = sites.iter().filter(is_unregistered).count();
            let result = with_marker_memory(count, |markers| {
                for (site, marker) in sites.iter().filter(is_unregistered).zip(&mut *markers) {
                    // SAFETY: By the invariant of `Site`, `text` is a name and fields, both with a
                    // NUL.
                    unsafe { fill_marker_request(marker, site.text) };
                }
                let call_error = self
                    .register_with_reopen(markers)
                    .map_or_else(|Errno(error)| error, |()| 0);
                for (site, marker) in sites.iter().filter(is_unregistered).zip(&*markers) {
                    match (state::marker_word_address(marker.number), marker.error) {
                        (Some(word), _) => site.set_registered(marker.number, word),
                        (None, 0) => self.disable_refused_site(module, site, call_error),
                        (None, error) => self.disable_refused_site(module, site, error as c_int),
                    }
                }
            });
            if let Err(Errno(error)) = result {
                let rest = sites.iter().filter(is_unregistered);
                rest.for_each(|site| self.disable_refused_site(module, site, error));
            }
        }
    }

    /// Sends the registration of markers to the kernel. Opens the device again if the program has
    /// closed the descriptor.
    fn register_with_reopen(&self, markers: &mut [Marker]) -> Result<(), Errno> {
        match device::register_markers(markers) {
            Err(Errno(libc::EBADF)) => {
                let mappings = device::attach_process(self.joins_shared_traces)?;
                // The attach creates new mappings if the kernel has ended the previous attach of
                // this process. A process that still uses the previous mappings cannot register
                // markers.
                match state::control_page()
                    .is_some_and(|at| ptr::from_ref(at).cast() == mappings.control)
                {
                    true => device::register_markers(markers),
                    false => Err(Errno(libc::ESRCH)),
                }
            }
            result => result,
        }
    }

    fn disable_refused_site(&self, module: &MarkerModule, site: &Site, error: c_int) {
        site.disable(module.off_word, SITE_REFUSED);
        self.log_error_of_c_string(site.text, error);
    }

    fn unregister_markers_of(&self, module: &MarkerModule) {
        let is_registered = |site: &&Site| site.state.load(Relaxed) == SITE_REGISTERED;
        let count = module.sites().iter().filter(is_registered).count();
        if self.attach_state == AttachState::Off {
            return;
        }
        // If no marker is registered, the count is 0 and no memory is allocated.
        let _ = with_marker_memory(count, |markers| {
            for (site, marker) in module
                .sites()
                .iter()
                .filter(is_registered)
                .zip(&mut *markers)
            {
                marker.number = site.header.load(Relaxed) & 0xffff;
            }
            device::unregister_markers(markers);
        });
        // Disable the module's sites even if the kernel could not unregister the markers.
        for site in module.sites() {
            site.disable(module.off_word, SITE_UNREGISTERED);
        }
    }

    /// Attaches a child of fork() to a simulated kernel, or replaces the simulated kernel of this
    /// process. The real kernel attaches a child without help from the library.
    #[cfg(feature = "simulate")]
    fn reattach_to_simulation(&mut self) {
        if self.attach_state != AttachState::Attached {
            return;
        }
        self.for_each_module(|module| {
            for site in module.sites() {
                if site.state.load(Relaxed) == SITE_REGISTERED {
                    site.disable(module.off_word, SITE_UNREGISTERED);
                }
            }
        });
        self.attach_state = AttachState::Off;
        let replace = DeviceMappings {
            control: self.mappings.0,
            buffers: self.mappings.1,
        };
        match crate::simulate::attach_simulated_process(Some(&replace)) {
            Some(Ok(mappings)) => self.install_and_check_mappings(mappings, 0),
            Some(Err(error)) => self.log_error(c"simulation in a child process", error),
            None => {}
        }
        self.for_each_module(|module| self.register_markers_of(module));
    }

    fn for_each_module(&self, f: impl Fn(&MarkerModule)) {
        let mut next = self.modules;
        // SAFETY: By the invariant of `MarkerModule`, all modules in the list are live.
        while let Some(module) = unsafe { next.as_ref() } {
            f(module);
            next = module.next;
        }
    }

    fn log_why_tracing_is_off(&self, reason: &CStr) {
        if self.is_debug_on {
            // SAFETY: The format and its argument are C strings.
            unsafe { dprintf(2, c"perftrace: off: %s\n".as_ptr(), reason.as_ptr()) };
        }
    }

    fn log_error(&self, what: &CStr, error: c_int) {
        self.log_error_of_c_string(what.as_ptr(), error);
    }

    fn log_error_of_c_string(&self, what: *const c_char, error: c_int) {
        if self.is_debug_on && !what.is_null() {
            // SAFETY: The format and its two arguments are C strings.
            unsafe {
                let message = libc::strerror(error);
                dprintf(2, c"perftrace: off: %s: %s\n".as_ptr(), what, message);
            }
        }
    }
}

/// Returns true if the value of an environment variable begins with `first_char`.
fn env_starts_with(name: &CStr, first_char: u8) -> bool {
    // SAFETY: `name` is a C string. The environment does not change before the value is read: the
    // caller is a constructor, which runs before main() or in dlopen(), and the program must not
    // change its environment in dlopen().
    unsafe {
        let value = libc::getenv(name.as_ptr());
        !value.is_null() && *value as u8 == first_char
    }
}

/// Maps memory for `count` markers for the duration of the call, and calls `f` with the memory. The
/// allocator of the program must not be called in a signal handler, nor in some children of fork().
fn with_marker_memory(count: usize, f: impl FnOnce(&mut [Marker])) -> Result<(), Errno> {
    if count == 0 {
        return Ok(());
    }
    let bytes = count * size_of::<Marker>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: The kernel chooses the address. The memory is zeroed, which is a valid state of
    // markers, and no code uses the memory after `f` has returned.
    unsafe {
        let at = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        f(slice::from_raw_parts_mut(at.cast(), count));
        libc::munmap(at, bytes);
    }
    Ok(())
}

/// Returns a marker's name and fields, or `None` if the name or the fields are too long.
///
/// # Safety
///
/// `text` fulfils the invariant of `Site`.
unsafe fn split_name_and_fields<'a>(text: *const c_char) -> Option<(&'a [u8], &'a [u8])> {
    // SAFETY: The caller guarantees that `text` is a name and fields, both with a NUL.
    let (name, fields) = unsafe {
        let name = CStr::from_ptr(text).to_bytes();
        let fields = CStr::from_ptr(text.add(name.len() + 1)).to_bytes();
        (name, fields.strip_prefix(b" ").unwrap_or(fields))
    };
    (name.len() < MAX_NAME_BYTES && fields.len() < MAX_FIELDS_BYTES).then_some((name, fields))
}

/// Fills in a request to register a marker: its name and fields, without a number.
///
/// # Safety
///
/// `text` fulfils the invariant of `Site`.
unsafe fn fill_marker_request(marker: &mut Marker, text: *const c_char) {
    marker.number = NO_MARKER_NUMBER;
    // SAFETY: The caller guarantees that `text` fulfils the invariant of `Site`.
    let Some((name, fields)) = (unsafe { split_name_and_fields(text) }) else {
        return;
    };
    let names = marker.name.iter_mut().zip(name);
    names
        .chain(marker.fields.iter_mut().zip(fields))
        .for_each(|(to, from)| *to = *from);
}

/// Takes the lock before fork() copies the memory, so that no thread changes the registry during
/// the copy.
extern "C" fn lock_before_fork() {
    if let Some(page) = wiped_page::get_or_map_page() {
        page.lock();
    }
}

extern "C" fn unlock_parent_after_fork() {
    if let Some(page) = wiped_page::get_or_map_page() {
        page.unlock();
    }
}

/// Prepares the child of fork(). The lock is free in the child, because the kernel has wiped the
/// page of the lock.
extern "C" fn reset_child_after_fork() {
    thread::clear_thread_words();
    if let Some(page) = wiped_page::get_or_map_page() {
        page.set_owner();
    }
    #[cfg(feature = "simulate")]
    with_locked_registry(Registry::reattach_to_simulation);
}
