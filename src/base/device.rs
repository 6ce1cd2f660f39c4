// SPDX-License-Identifier: GPL-2.0

//! Misc devices: their registration, and their file operations. The trait [`FileOperations`] is
//! implemented by the private data of open files.
//!
//! The kernel crate's `MiscDevice` has no methods for poll(), SIGIO and page faults. Before Linux
//! 7.3 `MiscDevice` sets no owner, so that a module could be removed while its device is open.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::pin::Pin;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::KBox;
use kernel::bindings;
use kernel::error::{from_result, to_result, Result, VTABLE_DEFAULT_ERROR};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong, CStr};
use kernel::fs::LocalFile;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::types::ForeignOwnable;
use kernel::uaccess::{UserPtr, UserSlice, UserSliceWriter};

use crate::module::this_module_ptr;

/// Whether the files of a device may be opened: a flag that is set when module init has succeeded.
///
/// A module whose init fails is freed without regard to open files, so no file may be open before
/// init has succeeded.
pub struct ModuleReady(Atomic<u32>);

impl ModuleReady {
    /// Creates a `ModuleReady` whose flag is not set.
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Sets the flag. Called at the end of module init, after the last step that can fail.
    pub fn set(&self) {
        // Pairs with the acquire in `check`: an open() that succeeds sees everything that module
        // init has set up.
        self.0.store(1, Release);
    }

    /// Returns `EAGAIN` until module init has succeeded. The open function of each device calls
    /// this function.
    pub fn check(&self) -> Result {
        // Pairs with the release in `set`: a caller that sees the flag also sees everything that
        // module init has set up.
        match self.0.load(Acquire) {
            0 => Err(EAGAIN),
            _ => Ok(()),
        }
    }
}

/// A registered misc device. Dropping this value deregisters the device.
///
/// # Invariants
///
/// The miscdevice structure is pinned and registered.
pub struct Device(Pin<KBox<UnsafeCell<bindings::miscdevice>>>);

impl Device {
    /// Registers a misc device with a dynamic minor number. `name` and `ops` are static, because
    /// the kernel keeps pointers to both.
    pub fn register<T: FileOperations>(
        name: &'static CStr,
        ops: &'static FileOperationTables<T>,
        mode: u16,
    ) -> Result<Self> {
        let device = bindings::miscdevice {
            minor: bindings::MISC_DYNAMIC_MINOR as c_int,
            name: name.as_char_ptr(),
            fops: ops.files(),
            mode,
            ..pin_init::zeroed()
        };
        let device = KBox::pin(UnsafeCell::new(device), GFP_KERNEL)?;
        // SAFETY: The structure is pinned until drop, and its name and operations are static.
        to_result(unsafe { bindings::misc_register(device.get()) })?;
        // INVARIANT: The miscdevice structure is pinned, and was just registered.
        Ok(Self(device))
    }
}

// SAFETY: A device may be removed by any thread; `misc_deregister()` does its own locking.
unsafe impl Send for Device {}
// SAFETY: A shared reference to a `Device` gives no access to the miscdevice structure.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: The device is registered, by the type's invariant.
        unsafe { bindings::misc_deregister(self.0.get()) }
    }
}

/// The operations of a device's open files, implemented by the private data of such a file.
///
/// All methods are called in process context and may sleep. If a method is not implemented, the
/// kernel returns its own error for the operation.
#[vtable]
pub trait FileOperations: Sized + Send + Sync + 'static {
    /// Whether each file has a position, which read() uses and lseek() changes.
    const HAS_POSITION: bool = false;

    /// Opens a file, and returns its private data.
    ///
    /// The kernel holds the mutex `misc_mtx` during the call, and each open() of a misc device of
    /// the machine takes this mutex. An implementation therefore allocates little memory and does
    /// not wait: a large allocation that is charged to a full control group can take seconds.
    fn open(file: &LocalFile) -> Result<Pin<KBox<Self>>>;

    /// Closes a file, to which no reference is left. The private data of the file is dropped when
    /// `release` has returned.
    fn release(&self, _file: *mut bindings::file) {}

    /// Copies data to user space, and returns the number of bytes.
    fn read(&self, _: &LocalFile, _: UserSliceWriter, _position: &mut i64) -> Result<usize> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Carries out an ioctl, of a 64-bit or a 32-bit program.
    fn ioctl(&self, _file: &LocalFile, _command: u32, _arg: UserPtr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the events (`POLLIN`, ...) that are pending, and adds the caller of poll() to the
    /// threads that are woken at the next event ([`WaitQueue::poll`](crate::notifier::WaitQueue)).
    fn poll(&self, _: &LocalFile, _table: *mut bindings::poll_table_struct) -> bindings::__poll_t {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Turns SIGIO for a file on or off. If SIGIO is still on when the last reference to the file
    /// is dropped, the kernel turns SIGIO off by a call of `fasync`.
    fn fasync(&self, _file: *mut bindings::file, _fd: c_int, _on: bool) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Sets up a mapping of the file.
    fn mmap(&self, _vma: &mut Vma) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Called for the new VMA when a VMA with [`FileOperationTables::mappings`] was split, moved or
    /// copied.
    fn vma_open(&self, _vma: &mut Vma) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Called when a VMA with [`FileOperationTables::mappings`] is removed.
    fn vma_close(&self, _vma: &Vma) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles a page fault in a VMA with [`FileOperationTables::mappings`].
    fn fault(&self, _fault: &PageFault<'_>) -> bindings::vm_fault_t {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The structures of function pointers through which C calls the methods of `T`.
pub struct FileOperationTables<T> {
    files: bindings::file_operations,
    mappings: bindings::vm_operations_struct,
    _data: PhantomData<fn() -> T>,
}

// SAFETY: The structures are never written.
unsafe impl<T> Sync for FileOperationTables<T> {}

/// Returns `function` if `has` is true, otherwise `None` (a NULL function pointer). `has` is true
/// if a file type supports the operation that `function` implements.
const fn operation_if_supported<F: Copy>(has: bool, function: F) -> Option<F> {
    match has {
        true => Some(function),
        false => None,
    }
}

impl<T: FileOperations> FileOperationTables<T> {
    /// Creates `FileOperationTables` to store in a `static`. Open files hold a reference to this
    /// module.
    pub const fn new() -> Self {
        Self {
            files: bindings::file_operations {
                owner: this_module_ptr(),
                open: Some(open::<T>),
                release: Some(release::<T>),
                read: operation_if_supported(T::HAS_READ, read::<T>),
                llseek: operation_if_supported(T::HAS_POSITION, bindings::default_llseek),
                unlocked_ioctl: operation_if_supported(T::HAS_IOCTL, ioctl::<T>),
                // 32-bit programs use the same ioctl structures as 64-bit programs.
                #[cfg(CONFIG_COMPAT)]
                compat_ioctl: match T::HAS_IOCTL {
                    true => bindings::compat_ptr_ioctl,
                    false => None,
                },
                poll: operation_if_supported(T::HAS_POLL, poll::<T>),
                fasync: operation_if_supported(T::HAS_FASYNC, fasync::<T>),
                mmap: operation_if_supported(T::HAS_MMAP, mmap::<T>),
                ..pin_init::zeroed()
            },
            mappings: bindings::vm_operations_struct {
                open: operation_if_supported(T::HAS_VMA_OPEN, vma_open::<T>),
                close: operation_if_supported(T::HAS_VMA_CLOSE, vma_close::<T>),
                fault: operation_if_supported(T::HAS_FAULT, fault::<T>),
                ..pin_init::zeroed()
            },
            _data: PhantomData,
        }
    }

    /// Returns the operations of files.
    pub const fn files(&'static self) -> &'static bindings::file_operations {
        &self.files
    }

    /// Returns the operations of the VMAs that map a file whose operations are [`Self::files`].
    pub const fn mappings(&'static self) -> &'static bindings::vm_operations_struct {
        &self.mappings
    }
}

/// A mapping of a device (`struct vm_area_struct`).
///
/// # Invariants
///
/// The VMA is valid, and its bounds do not change as long as the value exists.
pub struct Vma(*mut bindings::vm_area_struct);

impl Vma {
    /// Returns the `vm_area_struct`.
    pub fn as_ptr(&self) -> *mut bindings::vm_area_struct {
        self.0
    }

    /// Returns the address of the mapping's first byte.
    pub fn start(&self) -> usize {
        // SAFETY: By the type's invariant the VMA is valid, and its bounds do not change.
        unsafe { (*self.0).__bindgen_anon_1.__bindgen_anon_1.vm_start }
    }

    /// Returns the length of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        // SAFETY: By the type's invariant the VMA is valid, and its bounds do not change.
        unsafe { (*self.0).__bindgen_anon_1.__bindgen_anon_1.vm_end }.wrapping_sub(self.start())
    }

    /// Returns the offset of the mapping in the file, in pages.
    pub fn pgoff(&self) -> u64 {
        // SAFETY: By the type's invariant the VMA is valid, and its bounds do not change.
        unsafe { (*self.0).vm_pgoff as u64 }
    }

    /// Returns the address space that contains the mapping.
    pub fn mm(&self) -> *mut bindings::mm_struct {
        // SAFETY: By the type's invariant the VMA is valid.
        unsafe { (*self.0).vm_mm }
    }

    /// Returns the private data of the mapping, which is 0 until it is set.
    pub fn private_data(&self) -> usize {
        // SAFETY: By the type's invariant the VMA is valid. Only `set_private_data` changes the
        // data.
        unsafe { (*self.0).vm_private_data as usize }
    }

    /// Sets the private data of the mapping.
    pub fn set_private_data(&mut self, data: usize) {
        // SAFETY: By the type's invariant the VMA is valid. A `&mut Vma` exists only while the VMA
        // is being set up or copied, when nothing else reads `vm_private_data`.
        unsafe { (*self.0).vm_private_data = core::ptr::without_provenance_mut(data) };
    }
}

/// A page fault in a mapping.
///
/// # Invariants
///
/// `fault` is valid during `'a`.
pub struct PageFault<'a> {
    fault: *mut bindings::vm_fault,
    /// The mapping.
    pub vma: Vma,
    /// The offset of the page in the file, in pages.
    pub pgoff: u64,
    _call: PhantomData<&'a ()>,
}

impl PageFault<'_> {
    /// Returns the `vm_fault`.
    pub fn as_ptr(&self) -> *mut bindings::vm_fault {
        self.fault
    }

    /// Inserts the page with the frame number `frame`.
    ///
    /// # Safety
    ///
    /// The mapping was set up by `pfc_vma_readonly()`, and the page lives as long as the mapping.
    pub unsafe fn insert_pfn(&self, frame: usize) -> bindings::vm_fault_t {
        // SAFETY: By the type's invariant the fault is valid. pfc_vma_readonly() has set VM_PFNMAP
        // and excluded private copies of pages.
        unsafe {
            let address = (*self.fault).__bindgen_anon_1.address;
            bindings::vmf_insert_pfn(self.vma.as_ptr(), address, frame)
        }
    }
}

/// Returns the private data of a file.
///
/// # Safety
///
/// `file` is an open file with `FileOperationTables<T>`, and stays open during `'a`.
pub unsafe fn file_private_data<'a, T: FileOperations>(file: *mut bindings::file) -> &'a T {
    // SAFETY: By the function's requirement `open` has stored the private data, and `release` has
    // not taken it back.
    Pin::get_ref(unsafe { <Pin<KBox<T>> as ForeignOwnable>::borrow((*file).private_data) })
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.open`.
unsafe extern "C" fn open<T: FileOperations>(
    _: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    from_result(|| {
        // SAFETY: The kernel passes a file, which is valid during the call.
        let data = T::open(unsafe { LocalFile::from_raw_file(file) })?;
        // SAFETY: The file is being opened. `release` takes the private data back.
        unsafe { (*file).private_data = data.into_foreign() };
        Ok(0)
    })
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.release`.
unsafe extern "C" fn release<T: FileOperations>(
    _: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `open` has stored the private data, and the file is no longer used.
    let data = unsafe { <Pin<KBox<T>> as ForeignOwnable>::from_foreign((*file).private_data) };
    data.release(file);
    0
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.read`.
unsafe extern "C" fn read<T: FileOperations>(
    file: *mut bindings::file,
    to: *mut c_char,
    count: usize,
    position: *mut bindings::loff_t,
) -> isize {
    // SAFETY: The kernel passes a file, which is valid during the call.
    let (data, open) = unsafe { (file_private_data::<T>(file), LocalFile::from_raw_file(file)) };
    let to = UserSlice::new(UserPtr::from_addr(to as usize), count).writer();
    // SAFETY: The kernel passes the position, which only this call uses.
    match data.read(open, to, unsafe { &mut *position }) {
        Ok(bytes) => bytes as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.unlocked_ioctl`.
unsafe extern "C" fn ioctl<T: FileOperations>(
    file: *mut bindings::file,
    command: c_uint,
    arg: c_ulong,
) -> c_long {
    // SAFETY: The kernel passes a file, which is valid during the call.
    let (data, open) = unsafe { (file_private_data::<T>(file), LocalFile::from_raw_file(file)) };
    let arg = UserPtr::from_addr(arg);
    from_result(|| data.ioctl(open, command, arg).map(|()| 0))
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.poll`.
unsafe extern "C" fn poll<T: FileOperations>(
    file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The kernel passes a file, which is valid during the call.
    let (data, open) = unsafe { (file_private_data::<T>(file), LocalFile::from_raw_file(file)) };
    data.poll(open, table)
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.fasync`.
unsafe extern "C" fn fasync<T: FileOperations>(
    fd: c_int,
    file: *mut bindings::file,
    on: c_int,
) -> c_int {
    // SAFETY: The kernel passes a file, which is valid during the call.
    let data = unsafe { file_private_data::<T>(file) };
    from_result(|| data.fasync(file, fd, on != 0).map(|()| 0))
}

/// # Safety
///
/// Called only by the kernel, as `file_operations.mmap`.
unsafe extern "C" fn mmap<T: FileOperations>(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: The kernel passes a file, which is valid during the call.
    let data = unsafe { file_private_data::<T>(file) };
    // INVARIANT: The VMA is being set up, with its final bounds; only this call uses it.
    from_result(|| data.mmap(&mut Vma(vma)).map(|()| 0))
}

/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.open`.
unsafe extern "C" fn vma_open<T: FileOperations>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The VMA is a mapping of a file with `FileOperationTables<T>`, and holds the file.
    let data = unsafe { file_private_data::<T>((*vma).vm_file) };
    // INVARIANT: The VMA is being copied; the lock of the address space is held for writing.
    data.vma_open(&mut Vma(vma));
}

/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.close`.
unsafe extern "C" fn vma_close<T: FileOperations>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The VMA is a mapping of a file with `FileOperationTables<T>`, and holds the file.
    let data = unsafe { file_private_data::<T>((*vma).vm_file) };
    // INVARIANT: The VMA is being removed, and nothing changes its bounds any more.
    data.vma_close(&Vma(vma));
}

/// # Safety
///
/// Called only by the kernel, as `vm_operations_struct.fault`.
unsafe extern "C" fn fault<T: FileOperations>(
    fault: *mut bindings::vm_fault,
) -> bindings::vm_fault_t {
    // SAFETY: The kernel passes a fault, which is valid during the call.
    let at = unsafe { &(*fault).__bindgen_anon_1 };
    // SAFETY: The VMA is a mapping of a file with `FileOperationTables<T>`, and holds the file.
    let data = unsafe { file_private_data::<T>((*at.vma).vm_file) };
    // INVARIANT: `fault` is valid during the call. The lock of the VMA or of the address space is
    // held, so that the bounds of the VMA do not change.
    data.fault(&PageFault {
        fault,
        vma: Vma(at.vma),
        pgoff: at.pgoff as u64,
        _call: PhantomData,
    })
}
