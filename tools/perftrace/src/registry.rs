// SPDX-License-Identifier: GPL-2.0

//! The programs and libraries of this process that have markers, from constructor to
//! destructor; and what a child of fork() does.
#![expect(
    clippy::disallowed_methods,
    reason = "it is the kernel whose char is unsigned"
)]
#![expect(
    unsafe_code,
    reason = "a list of other programs' memory, pthread_atfork"
)]

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, CStr};
use core::ptr::{null, null_mut};
use core::slice;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{Marker, FIELDS_MAX, NAME_MAX, VERSION};
use crate::device::{self, Errno, Pieces};
use crate::site::{Site, REFUSED, REGISTERED, UNKNOWN};
use crate::{state, thread};

extern "C" {
    /// The C library's; the crate libc leaves it out.
    fn dprintf(fd: c_int, format: *const c_char, ...) -> c_int;
}

/// A program or library: `struct perftrace_module` of `perftrace/perftrace.h`.
///
/// # Invariants
///
/// `first` to `last` are its sites; `off` is a word that is 0. All of them are there
/// while it is registered.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    pub(crate) next: *mut Module,
    pub(crate) first: *const Site,
    pub(crate) last: *const Site,
    pub(crate) off: *const AtomicU32,
    /// The objects that it is linked of, as far as their constructors have run: the macro's.
    pub(crate) users: u32,
    pub(crate) reserved: u32,
}

impl Module {
    fn sites(&self) -> &[Site] {
        let bytes = (self.last as usize).saturating_sub(self.first as usize);
        match self.first.is_null() {
            true => &[],
            // SAFETY: By the invariant.
            false => unsafe { slice::from_raw_parts(self.first, bytes / size_of::<Site>()) },
        }
    }
}

/// Who is registered, and whether this process is attached.
struct Registry {
    modules: *mut Module,
    /// Nothing was tried yet; or it is of no use.
    stage: Stage,
    shared: bool,
    debug: bool,
    pieces: (*mut u8, *mut u8),
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    New,
    Attached,
    Off,
}

/// # Invariants
///
/// `registry` is touched only by who has the lock; by the child of fork(), for which its parent took
/// it.
struct Locked {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    registry: UnsafeCell<Registry>,
}

// SAFETY: By the invariant.
unsafe impl Sync for Locked {}

static REGISTRY: Locked = Locked {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    registry: UnsafeCell::new(Registry {
        modules: null_mut(),
        stage: Stage::New,
        shared: false,
        debug: false,
        pieces: (null_mut(), null_mut()),
    }),
};

fn locked(what: impl FnOnce(&mut Registry)) {
    // SAFETY: By the invariant of `Locked`; nothing below comes back here.
    unsafe {
        libc::pthread_mutex_lock(REGISTRY.lock.get());
        what(&mut *REGISTRY.registry.get());
        libc::pthread_mutex_unlock(REGISTRY.lock.get());
    }
}

/// A program or library has been loaded.
///
/// # Safety
///
/// The module's invariants hold until it is given to [`unregister`]; it is not registered.
pub unsafe extern "C" fn register(module: *mut Module) {
    locked(|registry| {
        // SAFETY: By the caller's word.
        let new = unsafe { &mut *module };
        if new.sites().is_empty() {
            return;
        }
        new.next = registry.modules;
        registry.modules = module;
        if registry.stage == Stage::New {
            registry.begin();
        }
        registry.register(new);
    });
}

/// It is about to be unmapped, or the program ends.
///
/// # Safety
///
/// The module is one that [`register`] was given.
pub unsafe extern "C" fn unregister(module: *mut Module) {
    locked(|registry| {
        let mut at = &raw mut registry.modules;
        // SAFETY: By the invariants of those in the list.
        unsafe {
            while !(*at).is_null() && *at != module {
                at = &raw mut (**at).next;
            }
            if let Some(old) = (*at).as_mut() {
                *at = old.next;
                registry.unregister(old);
            }
        }
    });
}

/// Tries again to attach, as there is something in the kernel's stead now, or something else.
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
        // SAFETY: It only looks.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return self.say(c"this program has more rights than its user");
        }
        // Processes without sequences have no part in shared traces: nobody would see them write.
        self.shared = said(c"PERFTRACE_SHARED", b'1') && thread::find_sequences(true);
        match device::attach(self.shared, None) {
            Ok(pieces) => self.attached(pieces),
            Err(Errno(error)) => self.fail(c"/dev/perftrace", error),
        }
        if self.stage == Stage::Attached {
            // SAFETY: Functions of this library. When it is unmapped the C library forgets them.
            let done =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(parent), Some(child)) };
            if done != 0 {
                self.fail(c"pthread_atfork", done);
            }
        }
    }

    fn attached(&mut self, pieces: Pieces) {
        // SAFETY: They were mapped just now, and nobody unmaps them.
        unsafe { state::mapped(pieces.control, pieces.buffers) };
        self.pieces = (pieces.control, pieces.buffers);
        state::PROCESS.store(device::process(), Relaxed);
        let Some(control) = state::control() else {
            return;
        };
        if control.version.load(Relaxed) != VERSION {
            return self.say(c"the kernel's version is another one");
        }
        thread::find_sequences(control.clock.load(Relaxed) == crate::abi::CLOCK_TSC);
        self.stage = Stage::Attached;
    }

    /// All markers of a module in one call. If one is refused, again without that one.
    fn register(&self, module: &Module) {
        if self.stage != Stage::Attached {
            return;
        }
        loop {
            let wanted = |site: &&Site| site.state.load(Relaxed) == UNKNOWN;
            let count = module.sites().iter().filter(wanted).count();
            let done = with_markers(count, |markers| {
                for (site, marker) in module.sites().iter().filter(wanted).zip(&mut *markers) {
                    // SAFETY: By the invariant of sites.
                    if !unsafe { fill(marker, site.text) } {
                        site.state.store(REFUSED, Relaxed);
                        return Err((Errno(libc::E2BIG), site.text));
                    }
                }
                device::register(markers).map_err(|(error, bad)| {
                    let bad = module.sites().iter().filter(wanted).nth(bad);
                    if let (Some(bad), libc::EINVAL) = (bad, error.0) {
                        bad.state.store(REFUSED, Relaxed);
                    }
                    (error, bad.map_or(null(), |bad| bad.text))
                })?;
                for (site, marker) in module.sites().iter().filter(wanted).zip(&*markers) {
                    if let Some(word) = state::word(marker.number) {
                        site.switch_to(marker.number, word);
                    }
                }
                Ok(())
            });
            match done {
                Err((Errno(error), text)) => {
                    // SAFETY: By the invariant of sites; null is looked for.
                    self.fail_of(text, error);
                    if error != libc::EINVAL && error != libc::E2BIG || text.is_null() {
                        return;
                    }
                }
                Ok(()) => return,
            }
        }
    }

    fn unregister(&self, module: &Module) {
        let known = |site: &&Site| site.state.load(Relaxed) == REGISTERED;
        let count = module.sites().iter().filter(known).count();
        if self.stage != Stage::Attached || count == 0 {
            return;
        }
        let _ = with_markers(count, |markers| {
            for (site, marker) in module.sites().iter().filter(known).zip(&mut *markers) {
                marker.number = site.header.load(Relaxed) & 0xffff;
            }
            device::unregister(markers);
            Ok(())
        });
        // Whether or not the kernel knows: no thread may look there any more.
        for site in module.sites() {
            site.switch_off(module.off, UNKNOWN);
        }
    }

    /// The child of fork() has mappings that are nobody's; it gets its own, where the parent's
    /// were. Its markers may get other numbers.
    fn forked(&mut self) {
        thread::forget();
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
        device::close();
        self.stage = Stage::Off;
        let over = Pieces {
            control: self.pieces.0,
            buffers: self.pieces.1,
        };
        match device::attach(self.shared, Some(over)) {
            Ok(pieces) => self.attached(pieces),
            Err(Errno(error)) => self.fail(c"/dev/perftrace, in a child", error),
        }
        self.all(|module| self.register(module));
    }

    fn all(&self, what: impl Fn(&Module)) {
        let mut at = self.modules;
        // SAFETY: By the invariants of those in the list.
        while let Some(module) = unsafe { at.as_ref() } {
            what(module);
            at = module.next;
        }
    }

    fn say(&self, what: &CStr) {
        if self.debug {
            // SAFETY: C strings. A program's constructors, or a child of fork(): not on an event's way.
            unsafe { dprintf(2, c"perftrace: off: %s\n".as_ptr(), what.as_ptr()) };
        }
    }

    fn fail(&self, what: &CStr, error: c_int) {
        self.fail_of(what.as_ptr(), error);
    }

    fn fail_of(&self, what: *const c_char, error: c_int) {
        if self.debug && !what.is_null() {
            // SAFETY: C strings.
            unsafe {
                let why = libc::strerror(error);
                dprintf(2, c"perftrace: off: %s: %s\n".as_ptr(), what, why);
            }
        }
    }
}

/// Does a variable of the environment begin with that?
fn said(name: &CStr, first: u8) -> bool {
    // SAFETY: C strings; a constructor of a program runs before it changes its environment.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        !value.is_null() && *value as u8 == first
    }
}

/// Memory for so many markers, for a while. Not the program's allocator, in a child of fork().
fn with_markers<T>(
    count: usize,
    what: impl FnOnce(&mut [Marker]) -> Result<T, (Errno, *const c_char)>,
) -> Result<T, (Errno, *const c_char)> {
    if count == 0 {
        return what(&mut []);
    }
    let bytes = count * size_of::<Marker>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: No address is asked for. It is filled with zeroes, which markers may be.
    unsafe {
        let at = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err((Errno(libc::ENOMEM), null()));
        }
        let result = what(slice::from_raw_parts_mut(at.cast(), count));
        libc::munmap(at, bytes);
        result
    }
}

/// A marker's name and fields; false if they have no room.
///
/// # Safety
///
/// `text` is as the invariant of sites says.
unsafe fn fill(marker: &mut Marker, text: *const c_char) -> bool {
    // SAFETY: By the caller's word.
    let (name, fields) = unsafe {
        let name = CStr::from_ptr(text).to_bytes();
        let fields = CStr::from_ptr(text.add(name.len() + 1)).to_bytes();
        (name, fields.strip_prefix(b" ").unwrap_or(fields))
    };
    if name.len() >= NAME_MAX || fields.len() >= FIELDS_MAX {
        return false;
    }
    let names = marker.name.iter_mut().zip(name);
    names
        .chain(marker.fields.iter_mut().zip(fields))
        .for_each(|(to, from)| *to = *from);
    true
}

extern "C" fn before_fork() {
    // SAFETY: Nobody who has it calls fork().
    unsafe { libc::pthread_mutex_lock(REGISTRY.lock.get()) };
}

extern "C" fn parent() {
    // SAFETY: `before_fork()` took it.
    unsafe { libc::pthread_mutex_unlock(REGISTRY.lock.get()) };
}

extern "C" fn child() {
    // SAFETY: By the invariant of `Locked`: the parent's thread took the lock, and here it is alone.
    unsafe {
        (*REGISTRY.registry.get()).forked();
        libc::pthread_mutex_unlock(REGISTRY.lock.get());
    }
}
