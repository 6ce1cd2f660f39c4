// SPDX-License-Identifier: GPL-2.0

//! The device `/dev/perfmon`: the private data of its open files, the file operations, and the
//! mappings. The file operations copy structures from and to user space, and call the functions of
//! [`Context`]. A program maps the sampling buffer, and the self page of a thread's context.
//! Mapping the self page also permits RDPMC in the process.

#![expect(
    unsafe_code,
    reason = "wait queues, user memory, and calls of C with mappings"
)]

use core::mem::{offset_of, size_of};
use core::pin::Pin;
use core::slice::from_ref;

use kernel::alloc::flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT};
use kernel::alloc::{KBox, KVVec, KVec};
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::c_int;
use kernel::fs::LocalFile;
use kernel::mm::virt::VmaNew;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use kernel::uaccess::{UserPtr, UserSlice, UserSliceWriter};
use perfmon_rules::abi::{
    self, Create, Ctx, Load, Message, Pmc, Pmd, Runs, SetDesc, SetInfo, Start, Vector,
};
use perfmon_rules::error::Error;
use perfmon_rules::register_map::{kind, Scope};
use perfmon_rules::registers::{check_pmc, REGFL_SHORT};
use protocols::ring::TAIL_OFFSET;
use protocols::self_page::SELF_PAGE_FILE_OFFSET;
use protocols::structure::FromBytes;

use crate::contexts::context::{Context, ContextConfig};
use crate::formats::{self, FormatId};
use crate::helpers;
use crate::pmus::{self, to_kernel_error};
use crate::sample_buffer::{self, SampleBuffer, SamplingMemory};
use crate::stats::{self, PerfmonStatistic};
use base::device::{Device, FileOperationTables, FileOperations, ModuleReady, PageFault, Vma};
use base::user_memory::{read, read_array, values_as_bytes, write, write_array};
use base::{access, clock, random};

/// Set at the end of module init, after the last step that can fail. Until `MODULE_READY` is set,
/// the device cannot be opened.
pub(crate) static MODULE_READY: ModuleReady = ModuleReady::new();

static PERFMON_OPERATIONS: FileOperationTables<PerfmonFile> = FileOperationTables::new();

/// Registers the device `/dev/perfmon`.
pub(crate) fn register() -> Result<Device> {
    Device::register(c"perfmon", &PERFMON_OPERATIONS, 0o660)
}

/// The private data of an open file of `/dev/perfmon`.
#[pin_data]
struct PerfmonFile {
    /// The file's context, or `None` until an ioctl creates it.
    #[pin]
    context: Mutex<Option<Arc<Context>>>,
}

impl PerfmonFile {
    /// Creates the private data of a file without a context.
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            context <- new_mutex!(None),
        })
    }

    /// Returns the file's context, or `EINVAL` if it has none yet. Releases the mutex `context`
    /// before it returns, so that a system call that sleeps does not block other system calls on
    /// the file.
    fn context(&self) -> Result<Arc<Context>> {
        self.context.lock().clone().ok_or(EINVAL)
    }
}

#[vtable]
impl FileOperations for PerfmonFile {
    /// Opens `/dev/perfmon`. The new file has no context yet.
    fn open(_: &LocalFile) -> Result<Pin<KBox<Self>>> {
        MODULE_READY.check()?;
        KBox::pin_init(Self::new(), GFP_KERNEL_ACCOUNT)
    }

    /// Detaches and closes the file's context.
    fn release(&self, _: *mut bindings::file) {
        let context = self.context.lock().take();
        if let Some(context) = context {
            let _ = context.unload();
            context.free_detached();
        }
    }

    fn ioctl(&self, _: &LocalFile, command: u32, arg: UserPtr) -> Result {
        if command == abi::CREATE {
            return create_context(self, read(arg)?, None);
        }
        if command == abi::CREATE_FORMAT {
            let create_arg: Create = read(arg)?;
            return create_context(self, create_arg.ctx, Some(&create_arg));
        }
        let context = || {
            self.context()
                .and_then(|context| context.recheck_permission_if_stale().map(|()| context))
        };
        match command {
            abi::WRITE_PMCS => write_pmcs(&*context()?, read(arg)?),
            abi::WRITE_PMDS => write_pmds(&*context()?, read(arg)?),
            abi::READ_PMDS => read_pmds(&*context()?, read(arg)?),
            abi::LOAD => {
                let load: Load = read(arg)?;
                load.check().map_err(to_kernel_error)?;
                context()?.load(load.load_pid, load.load_set)
            }
            abi::UNLOAD => self.context()?.unload(),
            abi::START => {
                let set = match arg.as_const_ptr().is_null() {
                    true => None,
                    false => {
                        let start: Start = read(arg)?;
                        start.check().map_err(to_kernel_error)?;
                        Some(start.start_set)
                    }
                };
                context()?.start(set)
            }
            abi::STOP => context()?.stop(),
            abi::STATUS => write(arg, &context()?.status()),
            abi::CREATE_EVTSETS => create_sets(&*context()?, read(arg)?),
            abi::DELETE_EVTSETS => delete_sets(&*context()?, read(arg)?),
            abi::GETINFO_EVTSETS => fill_set_infos(&*context()?, read(arg)?),
            abi::READ_RUNS => read_runs(&*context()?, read(arg)?),
            abi::RESTART => {
                let context = context()?;
                context.recheck_stop_permission()?;
                context.restart()
            }
            abi::PAUSE => match read::<u32>(arg)? {
                0 => context()?.pause(false),
                1 => context()?.pause(true),
                _ => Err(EINVAL),
            },
            _ => Err(ENOTTY),
        }
    }

    /// Reads the next message of the context. If no message is queued, waits for one, unless the
    /// file is nonblocking.
    fn read(&self, file: &LocalFile, mut to: UserSliceWriter, _: &mut i64) -> Result<usize> {
        let context = self.context()?;
        context.recheck_permission_if_stale()?;
        let waits = file.flags() & bindings::O_NONBLOCK == 0;
        if to.len() < size_of::<Message>() {
            return Err(EINVAL);
        }
        let message = loop {
            if let Some(message) = context.take_message() {
                break message;
            }
            if !waits {
                return Err(EAGAIN);
            }
            context.deferral.wait(|| context.has_message())?;
        };
        to.write_slice(values_as_bytes(from_ref(&message)))
            .inspect_err(|_| context.put_back_message(&message))?;
        Ok(size_of::<Message>())
    }

    /// Reports whether the context has messages to read.
    fn poll(
        &self,
        file: &LocalFile,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        let Ok(context) = self.context() else {
            return bindings::POLLERR;
        };
        // SAFETY: The context lives as long as its file is open.
        unsafe { context.deferral.poll(file, table) };
        match context.has_message() {
            true => bindings::POLLIN | bindings::POLLRDNORM,
            false => 0,
        }
    }

    /// Turns SIGIO on or off for this file. SIGIO signals that the file has a new message.
    fn fasync(&self, file: *mut bindings::file, fd: c_int, on: bool) -> Result {
        match self.context() {
            // SAFETY: The context lives as long as its file is open.
            Ok(context) => unsafe { context.deferral.fasync(file, fd, on) },
            // If the file has no context, SIGIO was never turned on, and turning it off succeeds.
            Err(_) if !on => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn mmap(&self, vma: &mut Vma) -> Result {
        map_buffer_or_self_page(&*self.context()?, vma, PERFMON_OPERATIONS.mappings())
    }

    fn vma_open(&self, vma: &mut Vma) {
        count_copied_mapping(self.context().ok().as_deref(), vma);
    }

    fn vma_close(&self, vma: &Vma) {
        count_removed_mapping(self.context().ok().as_deref(), vma);
    }

    fn fault(&self, fault: &PageFault<'_>) -> bindings::vm_fault_t {
        insert_self_page(self.context().ok().as_deref(), fault)
    }
}

/// Copies the elements of a vector from user space. Returns `EINVAL` if the vector's element size
/// is not that of `T`, or `E2BIG` if the vector has too many elements.
fn read_vector_elements<T: FromBytes>(vector: &Vector) -> Result<KVVec<T>> {
    let nr = vector.nr as usize;
    if vector.size as usize != size_of::<T>() {
        return Err(EINVAL);
    }
    if nr > abi::VECTOR_MAX / size_of::<T>() {
        return Err(E2BIG);
    }
    read_array(vector.items, nr)
}

/// Creates the sampling buffer of a new context. The ioctl's argument selects the sampling format
/// by name or UUID.
fn create_sample_buffer(create: &Create) -> Result<(SampleBuffer, Arc<SamplingMemory>)> {
    // The array is one byte larger than the longest valid name with its NUL. A name that is too
    // long is therefore refused, not cut to a valid name.
    let mut name = [0u8; abi::FORMAT_NAME + 1];
    let wanted = if create.name == 0 {
        FormatId::Uuid(create.uuid)
    } else {
        let at = UserPtr::from_addr(usize::try_from(create.name)?);
        FormatId::Name(
            UserSlice::new(at, name.len())
                .reader()
                .strcpy_into_buf(&mut name)?,
        )
    };
    let format = formats::find(&wanted)?;
    let bytes = usize::try_from(create.arg_size)?;
    if bytes != format.arg_size() {
        return Err(EINVAL);
    }
    let mut arg = sample_buffer::alloc_format_argument(bytes)?;
    let at = UserPtr::from_addr(usize::try_from(create.arg)?);
    // SAFETY: The slice covers the `bytes` bytes of `arg`, which are initialised.
    let into = unsafe { core::slice::from_raw_parts_mut(arg.as_mut_ptr().cast::<u8>(), bytes) };
    UserSlice::new(at, bytes).reader().read_slice(into)?;
    SampleBuffer::new(format, &arg)
}

fn create_context(opened: &PerfmonFile, ctx: Ctx, format: Option<&Create>) -> Result {
    let scope = ctx.scope().map_err(to_kernel_error)?;
    if scope == Scope::System && !access::is_perfmon_capable() {
        return Err(EPERM);
    }
    pmus::request_modules();
    // The buffer and the context are created before the file's lock is taken, because no other lock
    // may be taken under the file's lock.
    let buffer = format.map(create_sample_buffer).transpose()?;
    let context = Context::new(ContextConfig {
        scope,
        no_overflow_messages: ctx.ctx_flags & abi::FL_OVFL_NO_MSG != 0,
        notify_block: ctx.ctx_flags & abi::FL_NOTIFY_BLOCK != 0,
        core_type: ctx.ctx_core,
        buffer,
    });
    let mut opened = opened.context.lock();
    if opened.is_some() {
        return Err(EBUSY);
    }
    *opened = Some(context?);
    Ok(())
}

fn write_pmcs(context: &Context, vector: Vector) -> Result {
    let privileged = access::may_monitor_kernel();
    let described = &context.pmu_registers;
    let mut values = read_vector_elements::<Pmc>(&vector)?;
    for pmc in &mut values {
        pmc.check().map_err(to_kernel_error)?;
        let (number, flags) = (pmc.reg_num, pmc.reg_flags);
        let allowed = |value| {
            let map = described.as_map();
            check_pmc(&map, context.scope, privileged, number, flags, value)
                .map_err(to_kernel_error)
        };
        // The PMU description's check() may change the value of the PMC. The value that check()
        // returns must pass the same check as the caller's value.
        pmc.reg_value = allowed(described.check_pmc_value(number, allowed(pmc.reg_value)?)?)?;
    }
    context.write_pmcs(&values)
}

fn read_and_check_pmds(
    context: &Context,
    vector: &Vector,
    check: fn(&Pmd) -> Result<(), Error>,
) -> Result<KVVec<Pmd>> {
    let map = context.pmu_registers.as_map();
    let given = read_vector_elements::<Pmd>(vector)?;
    for pmd in &given {
        check(pmd).map_err(to_kernel_error)?;
        let register = map
            .pmd(pmd.reg_num)
            .ok_or(to_kernel_error(Error::NoRegister))?;
        register
            .check_scope(context.scope)
            .map_err(to_kernel_error)?;
    }
    Ok(given)
}

fn write_pmds(context: &Context, vector: Vector) -> Result {
    let map = context.pmu_registers.as_map();
    let mut given = read_and_check_pmds(context, &vector, Pmd::check_write)?;
    for pmd in &mut given {
        if pmd.reg_random_seed == 0 {
            pmd.reg_random_seed = u32::from_ne_bytes(random::random_bytes());
        }
        let counts = |number: u16| map.pmd(number).is_some_and(|r| r.is(kind::COUNTER));
        let usable = |number: u16| {
            map.pmd(number)
                .is_some_and(|r| r.check_scope(context.scope).is_ok())
        };
        let (mut smpl, mut reset) = (pmd.reg_smpl_pmds.iter(), pmd.reg_reset_pmds.iter());
        if (pmd.is_sampling() && !counts(pmd.reg_num))
            || !smpl.all(|n| usable(n as u16))
            || !reset.all(|n| usable(n as u16) && counts(n as u16))
        {
            return Err(EINVAL);
        }
    }
    context.write_pmds(&given)
}

fn read_pmds(context: &Context, vector: Vector) -> Result {
    let mut given = read_and_check_pmds(context, &vector, Pmd::check_read)?;
    context.read_pmds(&mut given)?;
    let first = usize::try_from(vector.items)?;
    for (n, pmd) in given.iter().enumerate() {
        let at = first.wrapping_add(n.wrapping_mul(size_of::<Pmd>()));
        let flags = UserPtr::from_addr(at.wrapping_add(offset_of!(Pmd, reg_flags)));
        UserSlice::new(flags, size_of::<u32>())
            .writer()
            .write(&pmd.reg_flags)?;
        for (field, value) in [
            (offset_of!(Pmd, reg_value), pmd.reg_value),
            (offset_of!(Pmd, reg_last_reset_val), pmd.reg_last_reset_val),
        ] {
            let at = UserPtr::from_addr(at.wrapping_add(field));
            UserSlice::new(at, size_of::<u64>())
                .writer()
                .write(&value)?;
        }
    }
    Ok(())
}

/// Copies `all` to user space, back to the array that contains the elements of `vector`.
fn write_vector_elements<T: FromBytes>(vector: &Vector, all: &[T]) -> Result {
    write_array(UserPtr::from_addr(usize::try_from(vector.items)?), all)
}

fn create_sets(context: &Context, vector: Vector) -> Result {
    let mut given = read_vector_elements::<SetDesc>(&vector)?;
    let mut wanted = KVec::with_capacity(given.len(), GFP_KERNEL)?;
    for set in &mut given {
        let terms = set
            .switch_policy(clock::hrtimer_resolution_ns())
            .map_err(to_kernel_error)?;
        set.set_timeout = terms.timeout_ns();
        wanted.push((set.set_id, terms), GFP_KERNEL)?;
    }
    // The elements are copied back to user space before the event sets are created: if the copy
    // failed afterwards, the caller could not know which sets exist.
    write_vector_elements(&vector, &given)?;
    context.create_sets(&wanted)
}

fn delete_sets(context: &Context, vector: Vector) -> Result {
    let given = read_vector_elements::<SetDesc>(&vector)?;
    let mut ids = KVec::with_capacity(given.len(), GFP_KERNEL)?;
    if given.iter().any(|set| set.reserved != [0; 6]) {
        return Err(EINVAL);
    }
    for set in &given {
        ids.push(set.set_id, GFP_KERNEL)?;
    }
    context.delete_sets(&ids)
}

fn fill_set_infos(context: &Context, vector: Vector) -> Result {
    let mut given = read_vector_elements::<SetInfo>(&vector)?;
    if given.iter().any(|set| set.reserved != [0; 6]) {
        return Err(EINVAL);
    }
    context.fill_set_infos(&mut given)?;
    write_vector_elements(&vector, &given)
}

fn read_runs(context: &Context, vector: Vector) -> Result {
    let mut given = read_vector_elements::<Runs>(&vector)?;
    if given.iter().any(|runs| runs.reg_flags & !REGFL_SHORT != 0) {
        return Err(EINVAL);
    }
    context.read_runs(&mut given)?;
    write_vector_elements(&vector, &given)
}

/// The data of a mapping of the self page that permits RDPMC.
const RDPMC_ALLOWED: usize = 1;

/// Increments the count of the self page's mappings when mremap() moves a mapping: the moved
/// mapping is a new mapping, and the old one is closed later.
fn count_copied_mapping(context: Option<&Context>, vma: &Vma) {
    if let Some(context) = context {
        context.count_copied_self_page_mapping();
    }
    if vma.private_data() == RDPMC_ALLOWED {
        // SAFETY: `vma.mm()` is the address space of the mapping `vma`, which permits RDPMC.
        unsafe { helpers::pfm_rdpmc_add_permission(vma.mm()) };
    }
}

/// Decrements the count of the self page's mappings when a mapping is removed, and drops the
/// mapping's permission for RDPMC.
fn count_removed_mapping(context: Option<&Context>, vma: &Vma) {
    if let Some(context) = context {
        context.remove_self_page_mapping();
    }
    if vma.private_data() == RDPMC_ALLOWED {
        // SAFETY: `vma.mm()` is valid. Only this code drops the RDPMC permission of `vma`.
        unsafe { helpers::pfm_rdpmc_forbid(vma.mm()) };
    }
}

/// Handles a page fault: inserts the self page.
fn insert_self_page(context: Option<&Context>, fault: &PageFault<'_>) -> bindings::vm_fault_t {
    let _span = stats::count_and_time(PerfmonStatistic::Faults, PerfmonStatistic::FaultTime);
    match context
        .ok_or(EINVAL)
        .and_then(Context::self_page_frame_number)
    {
        // SAFETY: pfc_vma_readonly() has set up the mapping. The self page lives as long as the
        // context, which is freed only after its `/dev/perfmon` file was closed.
        Ok(frame) => unsafe { fault.insert_pfn(frame) },
        Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}

/// Maps the memory that the file offset selects: the sampling buffer, the reader's page of a ring,
/// or the self page. `ops` are the operations of mappings of the self page. Returns `EINVAL` if the
/// offset or the length is not valid.
fn map_buffer_or_self_page(
    context: &Context,
    vma: &mut Vma,
    ops: &'static bindings::vm_operations_struct,
) -> Result {
    let page = protocols::PAGE_SIZE;
    let tail = vma.pgoff() == TAIL_OFFSET / page as u64;
    if vma.pgoff() == 0 || tail {
        return context.sampling_memory().ok_or(EINVAL)?.map(vma, tail);
    }
    if vma.pgoff() != SELF_PAGE_FILE_OFFSET / page as u64 || vma.bytes() != page {
        return Err(EINVAL);
    }
    context.self_page_frame_number()?;
    // SAFETY: The mapping is being set up.
    to_result(unsafe { base::helpers::pfc_vma_readonly(vma.as_ptr(), ops) })?;
    // fork() must not copy the mapping: the self page shows the counts of the context's thread, not
    // of the child.
    // SAFETY: The mapping is being set up.
    unsafe { VmaNew::from_raw(vma.as_ptr()) }.set_dontcopy();
    context.count_new_self_page_mapping()?;
    let has_counters = context.pmu_registers.hardware_counters().next().is_some();
    // SAFETY: The caller is in process context, in the process that maps the page.
    let allowed = has_counters && unsafe { helpers::pfm_rdpmc_allow() };
    if allowed {
        vma.set_private_data(RDPMC_ALLOWED);
    }
    context.record_rdpmc_allowed(allowed);
    Ok(())
}
