// SPDX-License-Identifier: GPL-2.0

//! The registry of the programs and libraries of this process that have markers, from their
//! constructors to their destructors. A child of fork() inherits it. If its parent is traced, the
//! kernel makes the child a process of its own when it reaches its first marker. If its parent waits
//! for a device, the child waits as well, and attaches itself. This does not need the handlers of
//! pthread_atfork(), which do not run in each child (`wiped.rs`).
#![expect(
    clippy::disallowed_methods,
    reason = "the lint is for the kernel, whose char is unsigned"
)]
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

use crate::abi::{self, Marker, FIELDS_MAX, NAME_MAX, NO_NUMBER, VERSION};
use crate::device::{self, Errno, Pieces};
use crate::site::{Site, REFUSED, REGISTERED, UNKNOWN, WAITING};
use crate::{state, thread, wiped};

extern "C" {
    /// A function of the C library that the crate libc does not declare.
    fn dprintf(fd: c_int, format: *const c_char, ...) -> c_int;
}

/// A program or library with markers: `struct perftrace_module` of `perftrace/perftrace.h`.
///
/// # Invariants
///
/// `first` to `last` are its sites, and `off` points to a word that is 0. All of them are live
/// while the module is registered.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    pub(crate) next: *mut Module,
    pub(crate) first: *const Site,
    pub(crate) last: *const Site,
    pub(crate) off: *const AtomicU32,
    /// The number of its objects whose constructors have run. Only the C macro uses it.
    pub(crate) users: u32,
    pub(crate) reserved: u32,
}

impl Module {
    fn sites(&self) -> &[Site] {
        let bytes = (self.last as usize).saturating_sub(self.first as usize);
        match self.first.is_null() {
            true => &[],
            // SAFETY: By the invariant of `Module`, `first` to `last` are live sites.
            false => unsafe { slice::from_raw_parts(self.first, bytes / size_of::<Site>()) },
        }
    }
}

/// Maximum number of markers in one request to the kernel.
const AT_ONCE: usize = 512;

/// The registered modules, and the state of this process's attachment.
struct Registry {
    /// The registered modules, as a list.
    modules: *mut Module,
    /// The progress of attaching.
    stage: Stage,
    /// `PERFTRACE_SHARED=1` is in the environment, and the process has restartable sequences.
    shared: bool,
    /// `PERFTRACE_DEBUG=1` is in the environment.
    debug: bool,
    /// The handlers for fork() are installed.
    forks: bool,
    /// A word of the wake file (`device::wake()`), or null if the file is not mapped.
    wake: *const AtomicU32,
    /// The value of that word on which this process has acted last.
    told: u32,
    #[cfg(feature = "simulate")]
    pieces: (*mut u8, *mut u8),
}

/// The state of attaching.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Attaching was not tried yet, or the last module was unregistered.
    New,
    /// The process is traced.
    Attached,
    /// There is no device. The wake file says when there is one.
    Waiting,
    /// The process is not traced.
    Off,
}

/// The registry.
///
/// # Invariants
///
/// It is accessed only with the lock of [`wiped::page`] held.
struct Locked(UnsafeCell<Registry>);

// SAFETY: By the invariant of `Locked`, accesses of several threads are serialised by the lock.
unsafe impl Sync for Locked {}

static REGISTRY: Locked = Locked(UnsafeCell::new(Registry {
    modules: null_mut(),
    stage: Stage::New,
    shared: false,
    debug: false,
    forks: false,
    wake: ptr::null(),
    told: 0,
    #[cfg(feature = "simulate")]
    pieces: (null_mut(), null_mut()),
}));

/// Calls `what` with the registry, with its lock held. Without memory for the lock the program is
/// not traced, and `what` is not called.
fn locked(what: impl FnOnce(&mut Registry)) {
    let Some(page) = wiped::page() else { return };
    page.lock();
    // SAFETY: The lock is held, as the invariant of `Locked` requires. No `what` takes it again.
    what(unsafe { &mut *REGISTRY.0.get() });
    page.unlock();
}

/// Registers a program or library that has been loaded.
///
/// # Safety
///
/// The module's invariants hold until it is passed to [`unregister`]. It is not registered yet.
pub unsafe extern "C" fn register(module: *mut Module) {
    locked(|registry| {
        // SAFETY: The caller guarantees that the module is live and not registered, so nothing else
        // uses it.
        let new = unsafe { &mut *module };
        if new.sites().is_empty() {
            return;
        }
        new.next = registry.modules;
        registry.modules = module;
        match registry.stage {
            Stage::New => registry.begin(),
            // The device may exist by now.
            Stage::Waiting => return registry.again(),
            Stage::Attached if state::is_released() => return registry.again(),
            _ => {}
        }
        registry.register(new);
    });
}

/// Unregisters a program or library that is about to be unmapped, or whose process exits.
///
/// # Safety
///
/// The module was passed to [`register`].
pub unsafe extern "C" fn unregister(module: *mut Module) {
    locked(|registry| {
        let mut at = &raw mut registry.modules;
        // SAFETY: By the invariant of `Module`, those in the list are live. The lock protects the
        // list.
        unsafe {
            while !(*at).is_null() && *at != module {
                at = &raw mut (**at).next;
            }
            if let Some(old) = (*at).as_mut() {
                *at = old.next;
                registry.unregister(old);
            }
            if registry.modules.is_null() && registry.stage == Stage::Attached {
                // The next module that is registered attaches again.
                device::close();
                registry.stage = Stage::New;
            }
        }
    });
}

/// Attaches because a marker's word says that there is a device. `said` is that word. Called on the
/// path of an event, so possibly in a signal handler.
#[cold]
pub(crate) fn come(said: u32) {
    device::unnoticed(|| {
        let Some(page) = wiped::page().filter(|page| page.try_lock()) else {
            return;
        };
        // SAFETY: The lock is held, as the invariant of `Locked` requires.
        let registry = unsafe { &mut *REGISTRY.0.get() };
        let waits = match registry.stage {
            Stage::Waiting => true,
            // A new process may have been made while its parent registered its markers.
            Stage::Attached => state::is_released() || page.is_new(),
            Stage::New | Stage::Off => false,
        };
        // Act once on each value of the word, and not in a child that shares this memory.
        if waits && registry.told != said && page.is_callers() {
            if page.is_new() {
                // The words are those of the parent's thread: no handler has cleared them.
                thread::forget();
            }
            registry.again();
            // Stored last, so that a child which is made meanwhile acts on this value as well.
            registry.told = said;
        }
        page.unlock();
    });
}

/// Attaches to the simulated kernel that a test has set up. With `again`, it replaces the current
/// one.
#[cfg(feature = "simulate")]
pub(crate) fn begin(again: bool) {
    locked(|registry| {
        if again {
            registry.forked();
        } else if registry.stage != Stage::Attached {
            registry.begin();
            registry.all(|module| registry.register(module));
        }
    });
}

impl Registry {
    fn begin(&mut self) {
        self.debug = said(c"PERFTRACE_DEBUG", b'1');
        self.stage = Stage::Off;
        if said(c"PERFTRACE", b'0') {
            return self.say(c"PERFTRACE=0 is in the environment");
        }
        // SAFETY: getauxval() only reads the auxiliary vector.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return self.say(c"the program has more privileges than its user");
        }
        // A process without sequences takes no part in shared traces. It would lock a buffer by
        // `owner`, which the sequences of other processes do not check.
        self.shared = said(c"PERFTRACE_SHARED", b'1') && thread::find_sequences(true);
        self.attach();
        if self.stage != Stage::Off && !self.forks {
            self.forks = true;
            // SAFETY: The handlers are functions of this library. The C library removes them when
            // this library is unmapped.
            let done =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(parent), Some(child)) };
            if done != 0 {
                self.fail(c"pthread_atfork", done);
            }
        }
    }

    /// Attaches this process. The stage changes at the end only. If another thread makes a child by
    /// a system call meanwhile, the child has the former stage, and attaches itself.
    fn attach(&mut self) {
        if let Some(page) = wiped::page() {
            page.claim();
        }
        match device::attach(self.shared) {
            Ok(pieces) => self.attached(pieces),
            Err(error) => {
                self.fail(c"/dev/perftrace", error.0);
                self.stage = match device::is_away(error) && self.wait() {
                    true => Stage::Waiting,
                    false => Stage::Off,
                };
            }
        }
    }

    /// Prepares for a device that appears later: maps the wake file, whose words announce it.
    /// Returns false if that fails.
    fn wait(&mut self) -> bool {
        if self.wake.is_null() {
            match device::wake() {
                // All words have the same value; the first one will do.
                Ok(at) => self.wake = at.wrapping_add(abi::WORDS).cast::<AtomicU32>(),
                Err(Errno(error)) => {
                    // The missing device was reported already.
                    if error != libc::ENOENT {
                        self.fail(c"/run/perftrace/wake", error);
                    }
                    return false;
                }
            }
        }
        self.say(c"waiting for /dev/perftrace");
        true
    }

    /// Attaches from the beginning, with all markers, because the device has appeared or may have.
    ///
    /// Sites keep the words of the wake file until they get others. If a thread makes a child by a
    /// system call meanwhile, these words announce the device to the child, which attaches itself.
    fn again(&mut self) {
        let known = |site: &&Site| matches!(site.state.load(Relaxed), REGISTERED | WAITING);
        self.all(|module| {
            let sites = module.sites().iter().filter(known);
            sites.for_each(|site| site.state.store(UNKNOWN, Relaxed));
        });
        self.attach();
        self.all(|module| match self.stage {
            Stage::New | Stage::Off => {
                let sites = module.sites().iter();
                let unknown = sites.filter(|site| site.state.load(Relaxed) == UNKNOWN);
                unknown.for_each(|site| site.switch_off(module.off, UNKNOWN));
            }
            Stage::Attached | Stage::Waiting => self.register(module),
        });
    }

    fn attached(&mut self, pieces: Pieces) {
        // SAFETY: The attach has returned these mappings, and they are never unmapped.
        unsafe { state::mapped(pieces.control, pieces.buffers) };
        #[cfg(feature = "simulate")]
        {
            self.pieces = (pieces.control, pieces.buffers);
        }
        let version = state::control().map(|control| control.version.load(Relaxed));
        self.stage = match version {
            Some(VERSION) => Stage::Attached,
            // The mappings were another copy's, and the kernel has taken them back meanwhile.
            Some(0) if self.wait() => Stage::Waiting,
            Some(0) | None => Stage::Off,
            Some(_) => {
                self.say(c"the kernel uses another version of the interface");
                Stage::Off
            }
        };
        if let Some(control) = state::control().filter(|_| self.stage == Stage::Attached) {
            thread::find_sequences(control.clock.load(Relaxed) == crate::abi::CLOCK_TSC);
        }
    }

    /// Registers all markers of a module. Each site is asked for once, and those that the kernel
    /// refuses stay off.
    fn register(&self, module: &Module) {
        let wanted = |site: &&Site| site.state.load(Relaxed) == UNKNOWN;
        match self.stage {
            Stage::Attached => {}
            Stage::Waiting => {
                let sites = module.sites().iter().filter(wanted);
                return sites.for_each(|site| site.wait_for(self.wake));
            }
            Stage::New | Stage::Off => return,
        }
        for sites in module.sites().chunks(AT_ONCE) {
            for site in sites.iter().filter(wanted) {
                // SAFETY: By the invariant of `Site`, `text` is a name and fields, both with a NUL.
                if unsafe { texts(site.text) }.is_none() {
                    self.refuse(module, site, libc::E2BIG);
                }
            }
            let count = sites.iter().filter(wanted).count();
            let done = with_markers(count, |markers| {
                for (site, marker) in sites.iter().filter(wanted).zip(&mut *markers) {
                    // SAFETY: By the invariant of `Site`, `text` is a name and fields, both with a
                    // NUL.
                    unsafe { fill(marker, site.text) };
                }
                let whole = self.ask(markers).map_or_else(|Errno(error)| error, |()| 0);
                for (site, marker) in sites.iter().filter(wanted).zip(&*markers) {
                    match (state::word(marker.number), marker.error) {
                        (Some(word), _) => site.switch_to(marker.number, word),
                        (None, 0) => self.refuse(module, site, whole),
                        (None, error) => self.refuse(module, site, error as c_int),
                    }
                }
            });
            if let Err(Errno(error)) = done {
                let left = sites.iter().filter(wanted);
                left.for_each(|site| self.refuse(module, site, error));
            }
        }
    }

    /// Sends a registration. If the program has closed the descriptor, the device is opened again.
    fn ask(&self, markers: &mut [Marker]) -> Result<(), Errno> {
        match device::register(markers) {
            Err(Errno(libc::EBADF)) => {
                let pieces = device::attach(self.shared)?;
                // If the kernel did not know this process, it has made a new one with mappings
                // elsewhere, which are of no use here.
                match state::control().is_some_and(|at| ptr::from_ref(at).cast() == pieces.control)
                {
                    true => device::register(markers),
                    false => Err(Errno(libc::ESRCH)),
                }
            }
            done => done,
        }
    }

    fn refuse(&self, module: &Module, site: &Site, error: c_int) {
        site.switch_off(module.off, REFUSED);
        self.fail_of(site.text, error);
    }

    fn unregister(&self, module: &Module) {
        let known = |site: &&Site| site.state.load(Relaxed) == REGISTERED;
        let count = module.sites().iter().filter(known).count();
        if self.stage == Stage::Off {
            return;
        }
        // Without registered markers no memory is allocated.
        let _ = with_markers(count, |markers| {
            for (site, marker) in module.sites().iter().filter(known).zip(&mut *markers) {
                marker.number = site.header.load(Relaxed) & 0xffff;
            }
            device::unregister(markers);
        });
        // Whether or not the call succeeded, threads must not use the old words any more.
        for site in module.sites() {
            site.switch_off(module.off, UNKNOWN);
        }
    }

    /// Attaches a child of fork() to a simulated kernel. The real kernel does that by itself.
    #[cfg(feature = "simulate")]
    fn forked(&mut self) {
        if self.stage != Stage::Attached {
            return;
        }
        self.all(|module| {
            for site in module.sites() {
                if site.state.load(Relaxed) == REGISTERED {
                    site.switch_off(module.off, UNKNOWN);
                }
            }
        });
        self.stage = Stage::Off;
        let over = Pieces {
            control: self.pieces.0,
            buffers: self.pieces.1,
        };
        match crate::simulate::attach(Some(&over)) {
            Some(Ok(pieces)) => self.attached(pieces),
            Some(Err(error)) => self.fail(c"simulation in a child process", error),
            None => {}
        }
        self.all(|module| self.register(module));
    }

    fn all(&self, what: impl Fn(&Module)) {
        let mut at = self.modules;
        // SAFETY: By the invariant of `Module`, those in the list are live.
        while let Some(module) = unsafe { at.as_ref() } {
            what(module);
            at = module.next;
        }
    }

    fn say(&self, what: &CStr) {
        if self.debug {
            // SAFETY: The format and its argument are C strings.
            unsafe { dprintf(2, c"perftrace: off: %s\n".as_ptr(), what.as_ptr()) };
        }
    }

    fn fail(&self, what: &CStr, error: c_int) {
        self.fail_of(what.as_ptr(), error);
    }

    fn fail_of(&self, what: *const c_char, error: c_int) {
        if self.debug && !what.is_null() {
            // SAFETY: The format and its two arguments are C strings.
            unsafe {
                let why = libc::strerror(error);
                dprintf(2, c"perftrace: off: %s: %s\n".as_ptr(), what, why);
            }
        }
    }
}

/// Returns whether a variable of the environment begins with a character.
fn said(name: &CStr, first: u8) -> bool {
    // SAFETY: `name` is a C string, and the value is read at once. Constructors run before main(),
    // or in dlopen(), during which the program must not change its environment.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        !value.is_null() && *value as u8 == first
    }
}

/// Calls `what` with memory for `count` markers. The memory is mapped for that time, because the
/// program's allocator may not be usable in a child of fork() or in a signal handler.
fn with_markers(count: usize, what: impl FnOnce(&mut [Marker])) -> Result<(), Errno> {
    if count == 0 {
        return Ok(());
    }
    let bytes = count * size_of::<Marker>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: The kernel chooses the address. The memory is zeroed, which is a valid state of
    // markers, and nothing uses it after `what`.
    unsafe {
        let at = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        what(slice::from_raw_parts_mut(at.cast(), count));
        libc::munmap(at, bytes);
    }
    Ok(())
}

/// Returns a marker's name and fields, or `None` if one of them is too long.
///
/// # Safety
///
/// `text` fulfils the invariant of `Site`.
unsafe fn texts<'a>(text: *const c_char) -> Option<(&'a [u8], &'a [u8])> {
    // SAFETY: The caller guarantees a name and fields, both with a NUL.
    let (name, fields) = unsafe {
        let name = CStr::from_ptr(text).to_bytes();
        let fields = CStr::from_ptr(text.add(name.len() + 1)).to_bytes();
        (name, fields.strip_prefix(b" ").unwrap_or(fields))
    };
    (name.len() < NAME_MAX && fields.len() < FIELDS_MAX).then_some((name, fields))
}

/// Fills in what is asked for: a marker's name and fields, without a number.
///
/// # Safety
///
/// `text` fulfils the invariant of `Site`.
unsafe fn fill(marker: &mut Marker, text: *const c_char) {
    marker.number = NO_NUMBER;
    // SAFETY: The caller guarantees that `text` fulfils the invariant of `Site`.
    let Some((name, fields)) = (unsafe { texts(text) }) else {
        return;
    };
    let names = marker.name.iter_mut().zip(name);
    names
        .chain(marker.fields.iter_mut().zip(fields))
        .for_each(|(to, from)| *to = *from);
}

/// Takes the lock before fork() copies the memory, so that the child gets a registry that no thread
/// is changing.
extern "C" fn before_fork() {
    if let Some(page) = wiped::page() {
        page.lock();
    }
}

extern "C" fn parent() {
    if let Some(page) = wiped::page() {
        page.unlock();
    }
}

/// Prepares the child of fork(). Its lock is free, because the page was wiped.
extern "C" fn child() {
    thread::forget();
    if let Some(page) = wiped::page() {
        page.claim();
    }
    #[cfg(feature = "simulate")]
    locked(Registry::forked);
}
