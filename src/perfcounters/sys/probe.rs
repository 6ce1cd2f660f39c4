// SPDX-License-Identifier: GPL-2.0

//! Probes on tracepoints, for providers.
//!
//! Each tracepoint is a type that carries its arguments; a provider's state
//! implements [`Handler`] for those it wants and is given to [`Probes`], which
//! attaches it and, when dropped, detaches it, waits until no probe runs, and
//! then drops the state.
//!
//! Context of every handler: as the tracepoint's, often hard interrupt, or with
//! the run-queue lock held (scheduler). So: no sleeping, no locks, no
//! allocation, no panic. Preemption may be on: single-instruction updates only,
//! or a [`crate::driver::Group`].

use core::ffi::CStr;
use core::marker::PhantomData;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{KBox, KVec};
use kernel::bindings;
use kernel::error::{to_result, Result};
use kernel::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use kernel::prelude::*;

use super::block::Request;
use super::irq::Action;
use super::net::{self, Interface, Packet, Watch, Watching};
use super::shim;
use super::task::TaskRef;

/// A tracepoint, and the arguments of one hit.
///
/// # Safety
///
/// `NAME`'s prototype is that of the function `trampoline` gives.
pub unsafe trait Event {
    /// The tracepoint's name in the kernel.
    const NAME: &'static CStr;
    /// The event with a lifetime of its arguments.
    type Of<'a>;
    /// The function to attach, for a state of type `T`.
    fn trampoline<T: for<'a> Handler<Self::Of<'a>>>() -> *mut c_void;
}

/// What a provider does at an event. See the module for the context.
pub trait Handler<E>: Sync {
    /// Called at each hit.
    fn on(&self, event: E);
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

        // SAFETY: The prototype is that of include/trace/events in 7.2.
        unsafe impl Event for $event<'_> {
            const NAME: &'static CStr = $name;
            type Of<'a> = $event<'a>;

            #[inline]
            fn trampoline<T: for<'a> Handler<$event<'a>>>() -> *mut c_void {
                /// # Safety
                ///
                /// Called by the tracepoint, with what `Probes::attach` registered.
                unsafe extern "C" fn hit<'a, T: for<'b> Handler<$event<'b>>>(
                    state: *const c_void,
                    $($arg: $raw,)*
                ) {
                    $(let _ = $arg;)*
                    // SAFETY: `Probes` gave this pointer with the function and
                    // keeps the state until no probe runs.
                    let state = unsafe { &*state.cast::<T>() };
                    let event: $event<'a> = $event { $($field: $value,)* of: PhantomData };
                    state.on(event);
                }
                hit::<T> as *mut c_void
            }
        }
    };
}

event! {
    /// A CPU goes from one task to another. Run-queue lock held.
    SchedSwitch(c"sched_switch", preempt: bool, prev: *mut bindings::task_struct,
                next: *mut bindings::task_struct, prev_state: c_uint) {
        /// The task before could have run on. Not said of the idle task.
        // SAFETY: The kernel's own, for the time of the call.
        preempted: bool = (preempt || prev_state == 0) && unsafe { (*prev).pid } != 0,
        /// The task before.
        // SAFETY: The kernel's own, for the time of the call.
        before: TaskRef<'a> = unsafe { TaskRef::new(prev) },
        /// The task after.
        // SAFETY: The kernel's own, for the time of the call.
        after: TaskRef<'a> = unsafe { TaskRef::new(next) },
        /// It waits, or is no more.
        blocks: bool = !preempt && prev_state != 0,
        /// It will never run again.
        dies: bool = prev_state & bindings::TASK_DEAD != 0,
    }
}
event! {
    /// The scheduler is done; `current` runs. Preemption off.
    SchedExit(c"sched_exit_tp", switched: bool) {
        /// It is another task than before.
        is_switch: bool = switched,
    }
}
event! {
    /// A task is about to be woken. The waker's context, interrupts off.
    SchedWaking(c"sched_waking", task: *mut bindings::task_struct) {
        /// The task.
        // SAFETY: The kernel's own, for the time of the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A task was woken.
    SchedWakeup(c"sched_wakeup", task: *mut bindings::task_struct) {
        /// The task.
        // SAFETY: The kernel's own, for the time of the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A new task was woken for the first time.
    SchedWakeupNew(c"sched_wakeup_new", task: *mut bindings::task_struct) {
        /// The task.
        // SAFETY: The kernel's own, for the time of the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
    }
}
event! {
    /// A task moves to another CPU.
    SchedMigrate(c"sched_migrate_task", task: *mut c_void, cpu: c_int) {}
}
event! {
    /// A task was made: fork, clone, or a kernel thread.
    TaskNew(c"task_newtask", task: *mut bindings::task_struct, flags: u64) {
        /// The task, which has not run yet.
        // SAFETY: The kernel's own, for the time of the call.
        task: TaskRef<'a> = unsafe { TaskRef::new(task) },
        /// It is another process with the memory of the current one.
        shares: bool = flags & u64::from(bindings::CLONE_VM) != 0
            && flags & u64::from(bindings::CLONE_THREAD) == 0,
    }
}
event! {
    /// A task ends.
    ProcessExit(c"sched_process_exit", task: *mut c_void, group_dead: bool) {}
}
event! {
    /// A task runs another program.
    ProcessExec(c"sched_process_exec", task: *mut c_void, old_pid: c_int, bprm: *mut c_void) {
        /// One that has more rights than its user, or secrets from him.
        // SAFETY: The kernel's own, for the time of the call.
        secret: bool = unsafe { shim::pfm_exec_is_secret(bprm) },
    }
}
event! {
    /// A system call begins.
    SysEnter(c"sys_enter", regs: *mut c_void, id: c_long) {
        /// Its number, as the caller gave it.
        number: i64 = id as i64,
    }
}

impl SysEnter<'_> {
    /// Is it of the 32-bit or the x32 kind?
    #[inline]
    pub fn is_compat(&self) -> bool {
        // SAFETY: No requirements; `current` is the caller.
        unsafe { shim::pfc_in_compat_syscall() }
    }
}

event! {
    /// A system call returns.
    SysExit(c"sys_exit", regs: *mut c_void, value: c_long) {
        /// What it returns.
        result: i64 = value as i64,
    }
}
event! {
    /// A signal is delivered to the task that runs. Interrupts off.
    SignalDeliver(c"signal_deliver", sig: c_int, info: *mut c_void, action: *mut c_void) {
        /// Its number.
        number: u32 = sig as u32,
    }
}
event! {
    /// A fault of a memory access in user mode.
    PageFaultUser(c"page_fault_user", address: c_ulong, regs: *mut c_void, code: c_ulong) {}
}
event! {
    /// A fault of a memory access in the kernel.
    PageFaultKernel(c"page_fault_kernel", address: c_ulong, regs: *mut c_void, code: c_ulong) {}
}
event! {
    /// A handler of a hard interrupt begins. Hard interrupt.
    IrqEntry(c"irq_handler_entry", irq: c_int, handler: *const bindings::irqaction) {
        /// The line.
        irq: u32 = irq as u32,
        /// The handler.
        // SAFETY: The kernel's own, for the time of the call.
        action: &'a Action = unsafe { &*handler.cast::<Action>() },
    }
}
event! {
    /// A handler of a hard interrupt is done.
    IrqExit(c"irq_handler_exit", irq: c_int, handler: *mut c_void, result: c_int) {}
}
event! {
    /// A softirq is over.
    SoftirqExit(c"softirq_exit", vec: c_uint) {}
}
event! {
    /// A softirq begins.
    SoftirqEntry(c"softirq_entry", vec: c_uint) {
        /// Its number.
        vector: u32 = vec,
    }
}
event! {
    /// A request was completed, in part or whole.
    BlockComplete(c"block_rq_complete", rq: *mut bindings::request, error: u8, done: c_uint) {
        /// The request.
        // SAFETY: The kernel's own, for the time of the call.
        request: &'a Request = unsafe { &*rq.cast::<Request>() },
        /// Bytes of this part.
        bytes: u32 = done,
    }
}
event! {
    /// A request is over.
    BlockDone(c"block_io_done", rq: *mut bindings::request) {
        /// The request.
        // SAFETY: The kernel's own, for the time of the call.
        request: &'a Request = unsafe { &*rq.cast::<Request>() },
    }
}
event! {
    /// A packet was handed to a driver.
    NetXmit(c"net_dev_xmit", skb: *mut c_void, rc: c_int, dev: *mut bindings::net_device,
            len: c_uint) {
        /// 0 if the driver took it.
        result: i32 = rc,
        /// The interface.
        // SAFETY: The kernel's own, for the time of the call.
        interface: &'a Interface = unsafe { &*dev.cast::<Interface>() },
        /// Bytes on the wire.
        bytes: u32 = len,
    }
}
event! {
    /// A packet came in from a driver.
    NetReceive(c"netif_receive_skb", skb: *mut bindings::sk_buff) {
        /// The packet.
        // SAFETY: The kernel's own, for the time of the call.
        packet: &'a Packet = unsafe { &*skb.cast::<Packet>() },
        /// Where.
        // SAFETY: Received packets are at a device.
        interface: Option<&'a Interface> = unsafe { net::interface(skb) },
    }
}
event! {
    /// A packet was dropped, anywhere between driver and socket.
    NetDrop(c"kfree_skb", skb: *mut bindings::sk_buff, location: *mut c_void, why: c_uint,
            socket: *const c_void) {
        /// The interface whose own statistics count this drop, if one does.
        interface: Option<&'a Interface> = if net::is_dropped_at_device(why) {
            // SAFETY: For these reasons the packet is at a device.
            unsafe { net::interface(skb) }
        } else {
            None
        },
    }
}

macro_rules! vector_events {
    ($($(#[$doc:meta])* $event:ident($name:literal);)*) => {
        $(event! { $(#[$doc])* $event($name, vector: c_int) {} })*
    };
}

// x86 interrupt vectors that are no device's line.
vector_events! {
    /// The local APIC timer.
    LocalTimer(c"local_timer_entry");
    /// Another CPU asks this one to reschedule.
    Reschedule(c"reschedule_entry");
    /// Another CPU asks all others to run a function.
    CallFunction(c"call_function_entry");
    /// Another CPU asks this one to run a function.
    CallFunctionSingle(c"call_function_single_entry");
    /// Work queued by irq_work_queue().
    IrqWork(c"irq_work_entry");
    /// Platform interprocessor interrupt.
    PlatformIpi(c"x86_platform_ipi_entry");
    /// APIC error.
    ErrorApic(c"error_apic_entry");
    /// Spurious interrupt.
    SpuriousApic(c"spurious_apic_entry");
    /// Thermal event.
    ThermalApic(c"thermal_apic_entry");
    /// Machine-check threshold.
    ThresholdApic(c"threshold_apic_entry");
    /// Deferred machine-check error.
    DeferredErrorApic(c"deferred_error_apic_entry");
}

// And when they are over.
vector_events! {
    /// See [`LocalTimer`].
    LocalTimerExit(c"local_timer_exit");
    /// See [`Reschedule`].
    RescheduleExit(c"reschedule_exit");
    /// See [`CallFunction`].
    CallFunctionExit(c"call_function_exit");
    /// See [`CallFunctionSingle`].
    CallFunctionSingleExit(c"call_function_single_exit");
    /// See [`IrqWork`].
    IrqWorkExit(c"irq_work_exit");
    /// See [`PlatformIpi`].
    PlatformIpiExit(c"x86_platform_ipi_exit");
    /// See [`ErrorApic`].
    ErrorApicExit(c"error_apic_exit");
    /// See [`SpuriousApic`].
    SpuriousApicExit(c"spurious_apic_exit");
    /// See [`ThermalApic`].
    ThermalApicExit(c"thermal_apic_exit");
    /// See [`ThresholdApic`].
    ThresholdApicExit(c"threshold_apic_exit");
    /// See [`DeferredErrorApic`].
    DeferredErrorApicExit(c"deferred_error_apic_exit");
}

/// A state and the probes that feed it.
///
/// # Invariants
///
/// Each of `attached` is registered with `state`'s address, which is fixed
/// until drop.
pub struct Probes<T> {
    attached: KVec<(*mut bindings::tracepoint, *mut c_void)>,
    state: KBox<T>,
}

// SAFETY: Tracepoints are the kernel's and live for ever; the rest is `T`'s.
unsafe impl<T: Send + Sync> Send for Probes<T> {}
// SAFETY: Tracepoints live for ever; a shared reference gives only `&T`.
unsafe impl<T: Send + Sync> Sync for Probes<T> {}

impl<T> Probes<T> {
    /// A state without probes yet. Process context.
    #[inline]
    pub fn new(state: T) -> Result<Self> {
        Ok(Self {
            attached: KVec::new(),
            state: KBox::new(state, GFP_KERNEL)?,
        })
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> &T {
        &self.state
    }

    /// Attaches the state's handler of an event. `ENOENT`, with a line in the
    /// log, if this kernel has no such tracepoint. Process context.
    #[inline]
    pub fn attach<E: Event>(&mut self) -> Result
    where
        T: for<'a> Handler<E::Of<'a>>,
    {
        // SAFETY: A C string.
        let tracepoint = unsafe { shim::pfc_tracepoint_find(E::NAME.as_char_ptr()) };
        if tracepoint.is_null() {
            kernel::pr_err!("this kernel has no tracepoint {:?}\n", E::NAME);
            return Err(ENOENT);
        }
        self.attached.reserve(1, GFP_KERNEL)?;
        let probe = E::trampoline::<T>();
        let state: *const T = &*self.state;
        // SAFETY: The prototype is right by `Event`; the state outlives the
        // probe: drop detaches it first.
        to_result(unsafe {
            bindings::tracepoint_probe_register(tracepoint, probe, state.cast_mut().cast())
        })?;
        // INVARIANT: just registered; there is room.
        let _ = self.attached.push((tracepoint, probe), GFP_KERNEL);
        Ok(())
    }
}

impl<T: Watch> Probes<T> {
    /// Lets the state hear of network interfaces, too. Process context.
    #[inline]
    pub fn watch(self) -> Result<Watched<T>> {
        let state: *const T = &*self.state;
        Ok(Watched {
            _watching: Watching::start(state)?,
            _probes: self,
        })
    }
}

/// [`Probes`] whose state also hears of network interfaces.
pub struct Watched<T: Watch> {
    // Dropped first: the state is in the other.
    _watching: Watching<T>,
    _probes: Probes<T>,
}

impl<T> Drop for Probes<T> {
    #[inline]
    fn drop(&mut self) {
        let state: *const T = &*self.state;
        for (tracepoint, probe) in &self.attached {
            // SAFETY: Registered so, by the type's invariant.
            unsafe {
                bindings::tracepoint_probe_unregister(*tracepoint, *probe, state.cast_mut().cast())
            };
        }
        // SAFETY: Process context. After this no probe runs with our state.
        unsafe { shim::pfc_tracepoint_sync() };
    }
}
