// SPDX-License-Identifier: GPL-2.0

//! Types for kernel tracepoints, and functions that attach the handlers of counter providers to
//! them.
//!
//! Each kernel tracepoint that is used has a type, an [`Event`], whose fields are the arguments of
//! the tracepoint. The state of a provider implements [`EventHandler`] for the events that the
//! provider uses. The provider gives its state to [`Probes`], which attaches the handlers. When a
//! [`Probes`] is dropped, it detaches the handlers, waits until no probe runs, and then drops the
//! state.
//!
//! Every handler runs in the context of its tracepoint, which is often a hard interrupt. Handlers
//! of scheduler events run under the run-queue lock. A handler must not sleep, take locks, allocate
//! or panic. Handlers of rare events are exceptions: they may take locks and allocate if their
//! tracepoint's context allows it, but must not sleep, because detaching a handler from any
//! tracepoint waits until no handler runs. Preemption may be on while a handler runs, so handlers
//! update counters by single instructions or in an `UpdateGroup` of the driver interface.

use core::ffi::CStr;
use core::marker::PhantomData;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use kernel::prelude::*;

use super::block::Request;
use super::helpers;
use super::irq::IrqAction;
use super::net::{self, Interface, InterfaceListener, Packet, RegisteredListener, RxDropPoint};
use super::task::TaskRef;

/// A kernel tracepoint. A value of an `Event` type has the arguments of one call of the tracepoint.
///
/// # Safety
///
/// The function that `trampoline` returns has the prototype of a probe of tracepoint `NAME`.
pub unsafe trait Event {
    /// The tracepoint's name in the kernel.
    const NAME: &'static CStr;
    /// The event type whose arguments are valid for the lifetime `'a`.
    type Of<'a>;
    /// Returns the probe function that calls the handler of a state of type `T`.
    fn trampoline<T: for<'a> EventHandler<Self::Of<'a>>>() -> *mut c_void;
}

/// The handler of an event, implemented by the state of a provider. The documentation of this
/// module describes the context in which handlers run.
pub trait EventHandler<E>: Sync {
    /// Handles one event.
    fn handle_event(&self, event: E);
}

macro_rules! event {
    ($(#[$doc:meta])* $event:ident($name:literal $(, $arg:ident: $raw:ty)*) {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $value:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $event<'a> {
            $($(#[$field_doc])* pub $field: $type,)*
            of: PhantomData<&'a ()>,
        }

        // SAFETY: The probe function `call_handler` has the prototype of the tracepoint in Linux
        // 7.2.
        unsafe impl Event for $event<'_> {
            const NAME: &'static CStr = $name;
            type Of<'a> = $event<'a>;

            #[inline]
            fn trampoline<T: for<'a> EventHandler<$event<'a>>>() -> *mut c_void {
                /// # Safety
                ///
                /// Called only by the tracepoint, with the state that `Probes::attach` has
                /// registered.
                unsafe extern "C" fn call_handler<'a, T: for<'b> EventHandler<$event<'b>>>(
                    state: *const c_void,
                    $($arg: $raw,)*
                ) {
                    $(let _ = $arg;)*
                    // SAFETY: `Probes::attach` has registered this pointer together with this
                    // function, and `Probes` keeps the state until no probe runs.
                    let state = unsafe { &*state.cast::<T>() };
                    let event: $event<'a> = $event { $($field: $value,)* of: PhantomData };
                    state.handle_event(event);
                }
                call_handler::<T> as *mut c_void
            }
        }
    };
}

event! {
    /// A CPU switches from one task to another, with the run-queue lock held.
    SchedSwitch(c"sched_switch", preempt: bool, prev: *mut bindings::task_struct,
                next: *mut bindings::task_struct, prev_state: c_uint) {
        /// Whether the previous task is still runnable. Always false if the previous task is the
        /// idle task.
        // SAFETY: The task is valid during the call.
        preempted: bool = (preempt || prev_state == 0) && unsafe { (*prev).pid } != 0,
        /// The task from which the CPU switches.
        // SAFETY: The task is valid during the call.
        before: TaskRef<'a> = unsafe { TaskRef::new(prev) },
        /// The task to which the CPU switches.
        // SAFETY: The task is valid during the call.
        next: TaskRef<'a> = unsafe { TaskRef::new(next) },
        /// The state of the previous task.
        prev_state: PreviousState = PreviousState { preempt, state: prev_state },
    }
}

/// The state of the task from which a CPU switches to another task.
#[derive(Clone, Copy)]
pub struct PreviousState {
    /// Whether the task is preempted. It does not block then, whatever `state` is.
    preempt: bool,
    /// `TASK_*` of the kernel; 0 if the task is runnable.
    state: c_uint,
}

impl PreviousState {
    /// Returns whether the task blocks or exits.
    #[inline(always)]
    pub const fn blocks_or_exits(self) -> bool {
        !self.preempt && self.state != 0
    }

    /// Returns whether the task has exited and never runs again.
    #[inline(always)]
    pub const fn is_dead(self) -> bool {
        self.state & bindings::TASK_DEAD != 0
    }

    /// Returns whether the task blocks in a state below `TASK_DEAD`, such as `TASK_INTERRUPTIBLE`.
    /// False for a task that exits. One branch tests this: the low byte of the state, in which
    /// preemption sets the bit `TASK_DEAD`, is a positive `i8`.
    #[inline(always)]
    pub const fn blocks_in_low_state(self) -> bool {
        (self.state as u8 | (self.preempt as u8) << 7) as i8 > 0
    }
}

const _: () = {
    assert!(bindings::TASK_DEAD == 1 << 7);
    let mut state = 0;
    while state <= 0xfff {
        let blocked = PreviousState {
            preempt: false,
            state,
        };
        let is_low = state % 0x80 != 0;
        assert!(blocked.blocks_in_low_state() == (is_low && !blocked.is_dead()));
        assert!(blocked.blocks_or_exits() || !blocked.blocks_in_low_state());
        // A task can be preempted after it has set its state, and before it calls schedule().
        let preempted = PreviousState {
            preempt: true,
            state,
        };
        assert!(!preempted.blocks_or_exits() && !preempted.blocks_in_low_state());
        state += 1;
    }
};
event! {
    /// The function __schedule() is about to return, with preemption off, and the current task
    /// continues.
    SchedExit(c"sched_exit_tp", switched: bool) {
        /// Whether this call of the scheduler has switched to another task.
        is_switch: bool = switched,
    }
}
event! {
    /// A task is about to be woken. The tracepoint is called in the waker's context, with
    /// interrupts off.
    SchedWaking(c"sched_waking", task: *mut bindings::task_struct) {
        /// The task that is woken.
        // SAFETY: The task is valid during the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A task was woken.
    SchedWakeup(c"sched_wakeup", task: *mut bindings::task_struct) {
        /// The task that was woken.
        // SAFETY: The task is valid during the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A newly created task was woken for the first time.
    SchedWakeupNew(c"sched_wakeup_new", task: *mut bindings::task_struct) {
        /// The new task.
        // SAFETY: The task is valid during the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A task is moved to another CPU.
    SchedMigrate(c"sched_migrate_task", task: *mut c_void, cpu: c_int) {}
}
event! {
    /// A task was created, by fork() or clone() or as a kernel thread.
    TaskNew(c"task_newtask", task: *mut bindings::task_struct, flags: u64) {
        /// The new task, which has not run yet.
        // SAFETY: The task is valid during the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
        /// Whether the new task is another process that shares the memory of the current process,
        /// as after vfork().
        shares: bool = flags & u64::from(bindings::CLONE_VM) != 0
            && flags & u64::from(bindings::CLONE_THREAD) == 0,
    }
}
event! {
    /// The current task exits.
    ProcessExit(c"sched_process_exit", task: *mut c_void, group_dead: bool) {}
}
event! {
    /// The current task executes another program.
    ProcessExec(c"sched_process_exec", task: *mut c_void, old_pid: c_int, bprm: *mut c_void) {
        /// Whether the program is secret: it runs with more privileges than its user has
        /// (`secureexec`, for example a set-user-ID program), or its user may not read the
        /// program's file.
        // SAFETY: `bprm` points to a `struct linux_binprm` that is valid during the call.
        secret: bool = unsafe { helpers::pfc_exec_gains_rights_or_unreadable(bprm.cast()) },
    }
}
event! {
    /// A system call begins.
    SysEnter(c"sys_enter", regs: *mut c_void, id: c_long) {
        /// The number of the system call that the caller has passed, including [`X32_BIT`].
        number: i64 = id as i64,
    }
}

/// The ABI of a system call. The same number means different calls in different ABIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallAbi {
    /// The system calls of 64-bit programs.
    X86_64,
    /// The system calls of 32-bit programs. 64-bit programs can make i386 system calls too, by `int
    /// 0x80`.
    I386,
    /// The system calls of the x32 ABI: 64-bit programs with 32-bit pointers. [`X32_BIT`] is set in
    /// the number of each x32 system call.
    X32,
}

/// `__X32_SYSCALL_BIT`: the bit that marks the number of an x32 system call. The bits below
/// `X32_BIT` are the index in the system-call table.
const X32_BIT: i64 = 1 << 30;

impl SysEnter<'_> {
    /// Returns the ABI of the system call. The result does not depend on whether the kernel
    /// supports x32. A kernel without x32 rejects system calls with [`X32_BIT`] in their number.
    #[inline]
    pub fn abi(&self) -> SyscallAbi {
        // SAFETY: `pfc_is_i386_syscall()` has no requirements: it reads the state of the current
        // task, which makes the system call.
        match (unsafe { helpers::pfc_is_i386_syscall() }, self.number) {
            (true, _) => SyscallAbi::I386,
            (false, X32_BIT..=0x7fff_ffff) => SyscallAbi::X32,
            (false, _) => SyscallAbi::X86_64,
        }
    }

    /// Returns the index of the system call in the system-call table of `abi`; the index may be
    /// beyond the end of the table. Returns `None` if the number of the system call is negative.
    #[inline]
    pub fn index(&self, abi: SyscallAbi) -> Option<usize> {
        usize::try_from(match abi {
            SyscallAbi::X32 => self.number & !X32_BIT,
            SyscallAbi::X86_64 | SyscallAbi::I386 => self.number,
        })
        .ok()
    }
}

event! {
    /// A system call returns.
    SysExit(c"sys_exit", regs: *mut c_void, value: c_long) {
        /// The return value of the system call.
        result: i64 = value as i64,
    }
}
event! {
    /// A signal is delivered to the current task, with interrupts off.
    SignalDeliver(c"signal_deliver", sig: c_int, info: *mut c_void, action: *mut c_void) {
        /// The number of the signal.
        number: u32 = sig as u32,
    }
}
event! {
    /// A page fault happens in user mode.
    PageFaultUser(c"page_fault_user", address: c_ulong, regs: *mut c_void, code: c_ulong) {}
}
event! {
    /// A page fault happens in kernel mode.
    PageFaultKernel(c"page_fault_kernel", address: c_ulong, regs: *mut c_void, code: c_ulong) {}
}
event! {
    /// A handler of a hard interrupt is about to be called.
    IrqEntry(c"irq_handler_entry", irq: c_int, handler: *const bindings::irqaction) {
        /// The number of the interrupt line.
        irq: u32 = irq as u32,
        /// The interrupt handler that is about to be called.
        // SAFETY: The handler stays installed while its interrupt is handled.
        action: &'a IrqAction = unsafe { &*handler.cast::<IrqAction>() },
    }
}
event! {
    /// A handler of a hard interrupt has returned.
    IrqExit(c"irq_handler_exit", irq: c_int, handler: *mut c_void, result: c_int) {}
}
event! {
    /// A softirq has ended.
    SoftirqExit(c"softirq_exit", vec: c_uint) {}
}
event! {
    /// A softirq begins.
    SoftirqEntry(c"softirq_entry", vec: c_uint) {
        /// The vector number of the softirq.
        vector: u32 = vec,
    }
}
event! {
    /// A block request was completed, partly or as a whole.
    BlockComplete(c"block_rq_complete", rq: *mut bindings::request, error: u8, done: c_uint) {
        /// The request.
        // SAFETY: The request is alive during the call.
        request: &'a Request = unsafe { &*rq.cast::<Request>() },
        /// The number of bytes that were completed.
        bytes: u32 = done,
    }
}
event! {
    /// A block request was completed as a whole.
    BlockDone(c"block_io_done", rq: *mut bindings::request) {
        /// The request.
        // SAFETY: The request is alive during the call.
        request: &'a Request = unsafe { &*rq.cast::<Request>() },
    }
}
event! {
    /// A packet was passed to the driver of a network interface.
    NetXmit(c"net_dev_xmit", skb: *mut c_void, rc: c_int, dev: *mut bindings::net_device,
            len: c_uint) {
        /// The return value of the driver: 0 if the driver has accepted the packet. The driver of an
        /// upper interface may return the result of the lower interface's queue.
        result: i32 = rc,
        /// The interface that sends the packet.
        // SAFETY: The interface is alive during the call.
        interface: &'a Interface = unsafe { &*dev.cast::<Interface>() },
        /// The size of the packet on the wire, in bytes.
        // SAFETY: The interface is alive during the call.
        bytes: u32 = unsafe { &*dev.cast::<Interface>() }.wire_bytes(len),
    }
}
event! {
    /// The receive path of the network stack has got a packet.
    NetReceive(c"netif_receive_skb", skb: *mut bindings::sk_buff) {
        /// The packet.
        // SAFETY: The packet is alive during the call.
        packet: &'a Packet = unsafe { &*skb.cast::<Packet>() },
        /// The interface that has received the packet. `None` if the receive path gets the packet
        /// from the kernel itself: a packet that this machine sends, or a packet that an IFB
        /// returns to the receive path.
        // SAFETY: The packet is alive during the call, and the receive path owns it.
        interface: Option<&'a Interface> = unsafe { net::receiving_interface(skb) },
    }
}
event! {
    /// A packet was dropped, anywhere between the network driver and the socket.
    NetDrop(c"kfree_skb", skb: *mut bindings::sk_buff, location: *mut c_void, why: c_uint,
            socket: *const c_void) {
        /// The place at which the packet was dropped, and the interface that counts the drop in its
        /// own statistics. `None` if no interface counts the drop.
        // SAFETY: The packet is alive during the call. If `counted_rx_drop_point` returns a place,
        // `skb->dev` is valid.
        at: Option<(RxDropPoint, &'a Interface)> = unsafe {
            net::counted_rx_drop_point(skb, why).zip(net::packet_interface(skb))
        },
    }
}

macro_rules! vector_events {
    ($($(#[$doc:meta])* $event:ident($name:literal);)*) => {
        $(event! { $(#[$doc])* $event($name, vector: c_int) {} })*
    };
}

// Entry events of x86 interrupt vectors that do not belong to the interrupt line of a device.
vector_events! {
    /// The timer of the local APIC has expired.
    LocalTimer(c"local_timer_entry");
    /// Another CPU asks this CPU to reschedule.
    Reschedule(c"reschedule_entry");
    /// Another CPU asks several CPUs, including this CPU, to run a function.
    CallFunction(c"call_function_entry");
    /// Another CPU asks this CPU to run a function.
    CallFunctionSingle(c"call_function_single_entry");
    /// The interrupt that runs work queued by irq_work_queue().
    IrqWork(c"irq_work_entry");
    /// A platform-specific interprocessor interrupt has arrived.
    PlatformIpi(c"x86_platform_ipi_entry");
    /// The local APIC has detected an error.
    ErrorApic(c"error_apic_entry");
    /// The local APIC has raised a spurious interrupt.
    SpuriousApic(c"spurious_apic_entry");
    /// A thermal event has happened.
    ThermalApic(c"thermal_apic_entry");
    /// The count of corrected machine-check errors has reached its threshold.
    ThresholdApic(c"threshold_apic_entry");
    /// A deferred machine-check error has happened.
    DeferredErrorApic(c"deferred_error_apic_entry");
}

// Exit events of x86 interrupt vectors that do not belong to the interrupt line of a device.
vector_events! {
    /// The exit of a [`LocalTimer`] interrupt.
    LocalTimerExit(c"local_timer_exit");
    /// The exit of a [`Reschedule`] interrupt.
    RescheduleExit(c"reschedule_exit");
    /// The exit of a [`CallFunction`] interrupt.
    CallFunctionExit(c"call_function_exit");
    /// The exit of a [`CallFunctionSingle`] interrupt.
    CallFunctionSingleExit(c"call_function_single_exit");
    /// The exit of an [`IrqWork`] interrupt.
    IrqWorkExit(c"irq_work_exit");
    /// The exit of a [`PlatformIpi`] interrupt.
    PlatformIpiExit(c"x86_platform_ipi_exit");
    /// The exit of an [`ErrorApic`] interrupt.
    ErrorApicExit(c"error_apic_exit");
    /// The exit of a [`SpuriousApic`] interrupt.
    SpuriousApicExit(c"spurious_apic_exit");
    /// The exit of a [`ThermalApic`] interrupt.
    ThermalApicExit(c"thermal_apic_exit");
    /// The exit of a [`ThresholdApic`] interrupt.
    ThresholdApicExit(c"threshold_apic_exit");
    /// The exit of a [`DeferredErrorApic`] interrupt.
    DeferredErrorApicExit(c"deferred_error_apic_exit");
}

/// The state of a provider, and the tracepoint probes that call the handlers of this state.
///
/// # Invariants
///
/// Each probe in `attached` is registered with the address of `state`, which does not change until
/// drop.
pub struct Probes<T> {
    attached: KVec<(*mut bindings::tracepoint, *mut c_void)>,
    state: KBox<T>,
}

// SAFETY: Tracepoints of the kernel are never freed, and `T` may be sent to another thread.
unsafe impl<T: Send + Sync> Send for Probes<T> {}
// SAFETY: Tracepoints of the kernel are never freed. A shared reference to `Probes` gives access
// only to `&T`.
unsafe impl<T: Send + Sync> Sync for Probes<T> {}

impl<T> Probes<T> {
    /// Creates a `Probes` with no probe attached. Called in process context.
    #[inline]
    pub fn new(state: T) -> Result<Self> {
        Ok(Self {
            attached: KVec::new(),
            state: KBox::new(state, GFP_KERNEL)?,
        })
    }

    /// Returns the provider's state.
    #[inline]
    pub fn state(&self) -> &T {
        &self.state
    }

    /// Attaches the state's handler of event `E` to the tracepoint of the event. Called in process
    /// context.
    ///
    /// # Errors
    ///
    /// `ENOENT`, with a line in the kernel log, if this kernel does not have the tracepoint; or the
    /// error of a failed allocation or registration.
    #[inline]
    pub fn attach<E: Event>(&mut self) -> Result
    where
        T: for<'a> EventHandler<E::Of<'a>>,
    {
        // SAFETY: The event's name is a C string.
        let tracepoint = unsafe { helpers::pfc_tracepoint_find(E::NAME.as_char_ptr()) };
        if tracepoint.is_null() {
            kernel::pr_err!(
                "tracepoint {:?} not found; is this a supported kernel?\n",
                E::NAME
            );
            return Err(ENOENT);
        }
        self.attached.reserve(1, GFP_KERNEL)?;
        let probe = E::trampoline::<T>();
        let state: *const T = &*self.state;
        // SAFETY: The probe has the tracepoint's prototype by the requirement of `Event`. The state
        // outlives the probe, because the drop of `Probes` detaches the probe first.
        to_result(unsafe {
            bindings::tracepoint_probe_register(tracepoint, probe, state.cast_mut().cast())
        })?;
        // INVARIANT: The probe was just registered. The push cannot fail, because the vector has
        // capacity for one more element.
        let _ = self.attached.push((tracepoint, probe), GFP_KERNEL);
        Ok(())
    }

    /// Detaches all probes, but does not wait for probes that are already running. These probes can
    /// still use the provider's state, which lives until the drop of `Probes` has waited for them.
    /// Called in process context.
    #[inline]
    pub fn detach(&mut self) {
        let state: *const T = &*self.state;
        while let Some((tracepoint, probe)) = self.attached.pop() {
            // SAFETY: By the type's invariant, the probe was registered with this state. The probe
            // is no longer in `attached`, so it is unregistered once.
            unsafe {
                bindings::tracepoint_probe_unregister(tracepoint, probe, state.cast_mut().cast())
            };
        }
    }
}

impl<T: InterfaceListener> Probes<T> {
    /// Registers the state of the provider as a listener for changes of network interfaces. Called
    /// in process context.
    #[inline]
    pub fn listen_for_interfaces(self) -> Result<ListeningProbes<T>> {
        let state: *const T = &*self.state;
        Ok(ListeningProbes {
            _listener: RegisteredListener::register(state)?,
            _probes: self,
        })
    }
}

/// A [`Probes`] whose state is also notified of changes of network interfaces.
pub struct ListeningProbes<T: InterfaceListener> {
    // `_listener` is dropped before `_probes`, because the listener uses the state in `_probes`.
    _listener: RegisteredListener<T>,
    _probes: Probes<T>,
}

impl<T> Drop for Probes<T> {
    #[inline]
    fn drop(&mut self) {
        self.detach();
        // SAFETY: The caller is in process context. After this call no probe runs with this state.
        unsafe { helpers::pfc_tracepoint_sync() };
    }
}
