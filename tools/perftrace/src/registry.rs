// SPDX-License-Identifier: GPL-2.0

//! The programs and libraries of this process that have markers, from constructor to
//! destructor. A child of fork() has them too: the kernel makes it a process of its own as soon as
//! it has an event.
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
use core::ptr::{self, null_mut};
use core::slice;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{self, Marker, FIELDS_MAX, NAME_MAX, NO_NUMBER, VERSION};
use crate::device::{self, Errno, Pieces};
use crate::site::{Site, REFUSED, REGISTERED, UNKNOWN, WAITING};
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

/// Markers that the kernel is asked for at once.
const AT_ONCE: usize = 512;

/// Who is registered, and whether this process is attached.
struct Registry {
    modules: *mut Module,
    /// Nothing was tried yet; or it is of no use.
    stage: Stage,
    shared: bool,
    debug: bool,
    /// The C library knows what to do at a fork().
    forks: bool,
    /// The process whose registry it is: not one that only has its memory.
    process: u32,
    /// Where there is no device: what tells when there is one, and what it said last.
    wake: *const AtomicU32,
    told: u32,
    #[cfg(feature = "simulate")]
    pieces: (*mut u8, *mut u8),
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    New,
    Attached,
    /// There is no device, and something that tells when there is one.
    Waiting,
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
        forks: false,
        process: 0,
        wake: ptr::null(),
        told: 0,
        #[cfg(feature = "simulate")]
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
        match registry.stage {
            Stage::New => registry.begin(),
            // There may be one by now.
            Stage::Waiting => return registry.again(),
            Stage::Attached if state::is_released() => return registry.again(),
            _ => {}
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
            if registry.modules.is_null() && registry.stage == Stage::Attached {
                // The next one attaches anew.
                device::close();
                registry.stage = Stage::New;
            }
        }
    });
}

/// A marker's word says that there is a device. Where an event is: in a signal handler, perhaps.
#[cold]
pub(crate) fn come(said: u32) {
    device::unnoticed(|| {
        // SAFETY: By the invariant of `Locked`; who has the lock and waits for nobody comes back
        // with EBUSY, and so does its own signal handler.
        unsafe {
            if libc::pthread_mutex_trylock(REGISTRY.lock.get()) != 0 {
                return;
            }
            let registry = &mut *REGISTRY.registry.get();
            let waits = match registry.stage {
                Stage::Waiting => true,
                Stage::Attached => state::is_released(),
                _ => false,
            };
            // Once each time that it is said, and not by a child that has this one's memory.
            if waits && registry.told != said && registry.process == device::process() {
                registry.told = said;
                registry.again();
            }
            libc::pthread_mutex_unlock(REGISTRY.lock.get());
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
        self.process = device::process();
        self.attach();
        if self.stage != Stage::Off && !self.forks {
            self.forks = true;
            // SAFETY: Functions of this library. When it is unmapped the C library forgets them.
            let done =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(parent), Some(child)) };
            if done != 0 {
                self.fail(c"pthread_atfork", done);
            }
        }
    }

    fn attach(&mut self) {
        self.stage = Stage::Off;
        match device::attach(self.shared) {
            Ok(pieces) => self.attached(pieces),
            Err(error) => {
                self.fail(c"/dev/perftrace", error.0);
                if device::is_away(error) {
                    self.wait();
                }
            }
        }
    }

    /// There is no device, or not any more. Something may tell when there is one.
    fn wait(&mut self) {
        if self.wake.is_null() {
            match device::wake() {
                // Any of its words: all say the same.
                Ok(at) => self.wake = at.wrapping_add(abi::WORDS).cast::<AtomicU32>(),
                // What was said of the device is enough.
                Err(Errno(libc::ENOENT)) => return,
                Err(Errno(error)) => return self.fail(c"/run/perftrace/wake", error),
            }
        }
        self.stage = Stage::Waiting;
        self.say(c"until there is /dev/perftrace");
    }

    /// There is a device, or there may be one: from the beginning, with all markers.
    fn again(&mut self) {
        self.all(|module| {
            for site in module.sites() {
                if matches!(site.state.load(Relaxed), REGISTERED | WAITING) {
                    site.switch_off(module.off, UNKNOWN);
                }
            }
        });
        self.attach();
        self.all(|module| self.register(module));
    }

    fn attached(&mut self, pieces: Pieces) {
        // SAFETY: They were mapped just now, and nobody unmaps them.
        unsafe { state::mapped(pieces.control, pieces.buffers) };
        #[cfg(feature = "simulate")]
        {
            self.pieces = (pieces.control, pieces.buffers);
        }
        let Some(control) = state::control() else {
            return;
        };
        match control.version.load(Relaxed) {
            VERSION => {}
            // Another copy had mapped them, and has just been told to let go.
            0 => return self.wait(),
            _ => return self.say(c"the kernel's version is another one"),
        }
        thread::find_sequences(control.clock.load(Relaxed) == crate::abi::CLOCK_TSC);
        self.stage = Stage::Attached;
    }

    /// All markers of a module. Those that are refused stay off: whatever the kernel answers,
    /// each site is asked for once.
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
                // SAFETY: By the invariant of sites.
                if unsafe { texts(site.text) }.is_none() {
                    self.refuse(site, libc::E2BIG);
                }
            }
            let count = sites.iter().filter(wanted).count();
            let done = with_markers(count, |markers| {
                for (site, marker) in sites.iter().filter(wanted).zip(&mut *markers) {
                    // SAFETY: By the invariant of sites.
                    unsafe { fill(marker, site.text) };
                }
                let whole = self.ask(markers).map_or_else(|Errno(error)| error, |()| 0);
                for (site, marker) in sites.iter().filter(wanted).zip(&*markers) {
                    match (state::word(marker.number), marker.error) {
                        (Some(word), _) => site.switch_to(marker.number, word),
                        (None, 0) => self.refuse(site, whole),
                        (None, error) => self.refuse(site, error as c_int),
                    }
                }
            });
            if let Err(Errno(error)) = done {
                let left = sites.iter().filter(wanted);
                left.for_each(|site| self.refuse(site, error));
            }
        }
    }

    /// Programs close descriptors that they do not know: then there is another one.
    fn ask(&self, markers: &mut [Marker]) -> Result<(), Errno> {
        match device::register(markers) {
            Err(Errno(libc::EBADF)) => {
                let pieces = device::attach(self.shared)?;
                // If it was no process of the kernel's it is one elsewhere, in vain.
                match state::control().is_some_and(|at| ptr::from_ref(at).cast() == pieces.control)
                {
                    true => device::register(markers),
                    false => Err(Errno(libc::ESRCH)),
                }
            }
            done => done,
        }
    }

    fn refuse(&self, site: &Site, error: c_int) {
        site.state.store(REFUSED, Relaxed);
        self.fail_of(site.text, error);
    }

    fn unregister(&self, module: &Module) {
        let known = |site: &&Site| site.state.load(Relaxed) == REGISTERED;
        let count = module.sites().iter().filter(known).count();
        if self.stage == Stage::Off {
            return;
        }
        // No memory is asked for where there are none.
        let _ = with_markers(count, |markers| {
            for (site, marker) in module.sites().iter().filter(known).zip(&mut *markers) {
                marker.number = site.header.load(Relaxed) & 0xffff;
            }
            device::unregister(markers);
        });
        // Whether or not the kernel knows: no thread may look there any more.
        for site in module.sites() {
            site.switch_off(module.off, UNKNOWN);
        }
    }

    /// There is no kernel that makes a child of fork() its own process.
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
            Some(Err(error)) => self.fail(c"simulated, in a child", error),
            None => {}
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
fn with_markers(count: usize, what: impl FnOnce(&mut [Marker])) -> Result<(), Errno> {
    if count == 0 {
        return Ok(());
    }
    let bytes = count * size_of::<Marker>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: No address is asked for. It is filled with zeroes, which markers may be.
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

/// A marker's name and fields, if there is room for them.
///
/// # Safety
///
/// `text` is as the invariant of sites says.
unsafe fn texts<'a>(text: *const c_char) -> Option<(&'a [u8], &'a [u8])> {
    // SAFETY: By the caller's word.
    let (name, fields) = unsafe {
        let name = CStr::from_ptr(text).to_bytes();
        let fields = CStr::from_ptr(text.add(name.len() + 1)).to_bytes();
        (name, fields.strip_prefix(b" ").unwrap_or(fields))
    };
    (name.len() < NAME_MAX && fields.len() < FIELDS_MAX).then_some((name, fields))
}

/// What is asked for. It has no number yet.
///
/// # Safety
///
/// As for [`texts`].
unsafe fn fill(marker: &mut Marker, text: *const c_char) {
    marker.number = NO_NUMBER;
    // SAFETY: By the caller's word.
    let Some((name, fields)) = (unsafe { texts(text) }) else {
        return;
    };
    let names = marker.name.iter_mut().zip(name);
    names
        .chain(marker.fields.iter_mut().zip(fields))
        .for_each(|(to, from)| *to = *from);
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
        thread::forget();
        let registry = &mut *REGISTRY.registry.get();
        registry.process = device::process();
        #[cfg(feature = "simulate")]
        registry.forked();
        libc::pthread_mutex_unlock(REGISTRY.lock.get());
    }
}
