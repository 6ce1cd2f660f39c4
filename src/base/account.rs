// SPDX-License-Identifier: GPL-2.0

//! Limits per user: for the kernel memory of contexts, traces and records of accounted tasks, and
//! for the numbers of contexts, traces and traced processes. `helpers/account.c` keeps the sums.
//!
//! Each amount is added to the account of the user, and to the account of each owner of a user
//! namespace that contains the user. Sample buffers are also charged to `RLIMIT_MEMLOCK`. All
//! memory is also charged to the control group of the task that allocates it.

use kernel::cred::Credential;
use kernel::error::code::{ENOMEM, ENOSPC};
use kernel::error::{to_result, Error, Result};
use kernel::sync::aref::ARef;
use protocols::sync::Word;

use super::access;
use super::errno;
pub use super::helpers::Resource;
use super::helpers::{self, Amount};
use super::task::TaskRef;

/// Maximum number of contexts of a user without `CAP_SYS_RESOURCE`. If an administrator calls
/// `PERFMON_LOAD`, all attached contexts are searched for contexts to evict: the limit keeps this
/// search short.
const MAX_CONTEXTS_PER_USER: usize = 16_384;

/// The debugfs file `perfcounters/users`, which shows the account of each user. Dropping this value
/// removes the file.
pub struct UserAccountsFile(());

impl UserAccountsFile {
    /// Creates the file. In a kernel without debugfs, creates nothing and reports no error.
    pub fn create() -> Self {
        // SAFETY: The callee creates the file, and is called once. Drop removes the file.
        unsafe { helpers::pfc_account_file_create() };
        Self(())
    }
}

impl Drop for UserAccountsFile {
    fn drop(&mut self) {
        // SAFETY: `create` has created the file, which is removed once.
        unsafe { helpers::pfc_account_file_remove() };
    }
}

/// Bytes that are charged to a user until the charge is dropped.
///
/// Context: a charge may be dropped in any context except an NMI, but not under a run-queue lock.
/// In a kernel with `PREEMPT_RT`, a charge must not be dropped with preemption off.
pub struct MemoryCharge {
    user: ARef<Credential>,
    /// Counts one monitoring context in the account of the user. `None` unless
    /// [`of_new_context`](Self::of_new_context) has created this charge.
    _context_count: Option<ResourceCharge>,
    /// Whether the amount is unlimited, because the user had `CAP_SYS_RESOURCE` in the initial user
    /// namespace when the charge was created.
    is_unlimited: bool,
    /// A [`Word`], so that [`absorb`](Self::absorb) can add bytes to a charge in a shared object.
    bytes: Word,
}

impl MemoryCharge {
    /// Charges `bytes` to the caller. Later calls of [`charge_same_user`](Self::charge_same_user)
    /// on the returned `MemoryCharge` charge further bytes to this caller, even if another task
    /// makes the calls. Called in process context.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the limit `user_kb` would be exceeded, `ENOMEM` if memory is short.
    pub fn of_caller(bytes: usize) -> Result<Self> {
        // SAFETY: The callee only checks a capability of the current task.
        let free = unsafe { helpers::pfc_is_caller_unlimited() };
        let nothing = Self {
            user: access::caller_credentials(),
            _context_count: None,
            is_unlimited: free,
            bytes: Word::new(0),
        };
        nothing.charge_same_user(bytes)
    }

    /// Charges `bytes` to the user of a task. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the limit `user_kb` would be exceeded, `ENOMEM` if memory is short.
    pub fn of_task(task: TaskRef<'_>, bytes: usize) -> Result<Self> {
        let user = access::task_credentials(task);
        // SAFETY: The reference keeps the credentials alive.
        let unlimited = unsafe { helpers::pfc_is_cred_unlimited(user.as_ptr()) };
        let nothing = Self {
            user,
            is_unlimited: unlimited,
            bytes: Word::new(0),
            _context_count: None,
        };
        nothing.charge_same_user(bytes)
    }

    /// Charges the `bytes` of a new monitoring context to the caller, and counts the context for
    /// the caller. Called in process context.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the caller has [`MAX_CONTEXTS_PER_USER`] contexts already or would exceed its
    /// memory limit, `ENOMEM` if memory is short.
    pub fn of_new_context(bytes: usize) -> Result<Self> {
        let mut charge = Self::of_caller(bytes)?;
        let most = match charge.is_unlimited {
            true => usize::MAX,
            false => MAX_CONTEXTS_PER_USER,
        };
        charge._context_count = Some(ResourceCharge::of_user(
            &charge.user,
            Resource::PFC_CONTEXTS,
            most,
            errno::edquot(),
        )?);
        Ok(charge)
    }

    /// Returns a `MemoryCharge` of 0 bytes, whose charged user is the user of `self`.
    pub fn empty_for_same_user(&self) -> Self {
        Self {
            user: self.user.clone(),
            _context_count: None,
            is_unlimited: self.is_unlimited,
            bytes: Word::new(0),
        }
    }

    /// Returns the credentials of the charged user.
    pub fn user(&self) -> &ARef<Credential> {
        &self.user
    }

    /// Charges further bytes to the same user, and returns them as a separate charge. Does not
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the limit `user_kb` would be exceeded, `ENOMEM` if memory is short.
    pub fn charge_same_user(&self, bytes: usize) -> Result<Self> {
        let more = self.empty_for_same_user();
        let most = match self.is_unlimited {
            true => u64::MAX,
            // SAFETY: The callee only reads a module parameter and the size of memory.
            false => unsafe { helpers::pfc_user_memory_limit_bytes() },
        };
        charge_user(&more.user, (Resource::PFC_BYTES, bytes as u64), most)?;
        more.bytes.store_relaxed(bytes as u64);
        Ok(more)
    }

    /// Returns the number of charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load_relaxed() as usize
    }

    /// Moves the bytes of `other` to `self`. `self` and `other` must be charges of the same user.
    /// The caller serialises the calls that change `self`. Callable in any context.
    pub fn absorb(&self, other: &mut Self) {
        let bytes = self.bytes.load_relaxed();
        self.bytes
            .store_relaxed(bytes.wrapping_add(other.bytes.load_relaxed()));
        other.bytes.store_relaxed(0);
    }

    /// Subtracts `bytes` from the charge and from the user's account. If the charge has fewer than
    /// `bytes` bytes, subtracts all of them. Called in process context.
    pub fn uncharge(&mut self, bytes: usize) {
        let less = self.empty_for_same_user();
        let all = self.bytes.load_relaxed();
        let nr = all.min(bytes as u64);
        less.bytes.store_relaxed(nr);
        self.bytes.store_relaxed(all.wrapping_sub(nr));
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        let bytes = self.bytes.load_relaxed();
        uncharge_user(&self.user, (Resource::PFC_BYTES, bytes));
    }
}

/// One object (for example a trace, a traced process or a concurrent call) that is counted in the
/// account of a user until this value is dropped.
///
/// Context: dropped in process context.
pub struct ResourceCharge {
    user: ARef<Credential>,
    resource: Resource,
}

impl ResourceCharge {
    /// Adds 1 to the count of the resource `thing` in the account of the caller. Returns `error` if
    /// the count would exceed `most`, `ENOMEM` if memory is short. Called in process context.
    pub fn of_caller(thing: Resource, most: usize, error: Error) -> Result<Self> {
        Self::of_user(&access::caller_credentials(), thing, most, error)
    }

    /// Adds 1 to the count of the resource `thing` in the account of a user. Returns `error` if the
    /// count would exceed `most`, `ENOMEM` if memory is short. Called in process context.
    pub fn of_user(
        user: &ARef<Credential>,
        thing: Resource,
        most: usize,
        error: Error,
    ) -> Result<Self> {
        match charge_user(user, (thing, 1), most as u64) {
            Err(ENOMEM) => Err(ENOMEM),
            Err(_) => Err(error),
            Ok(()) => Ok(Self {
                user: user.clone(),
                resource: thing,
            }),
        }
    }
}

impl Drop for ResourceCharge {
    fn drop(&mut self) {
        uncharge_user(&self.user, (self.resource, 1));
    }
}

/// Adds `nr` to the amount of the resource `thing` in the user's account, and in the account of
/// each owner of a user namespace that contains the user. Returns `EDQUOT` if a charged account
/// would exceed `most`, `ENOMEM` if memory is short. After an error no account has changed.
fn charge_user(user: &Credential, (thing, nr): (Resource, u64), most: u64) -> Result {
    // SAFETY: The reference keeps the credentials alive; the callee takes its own lock.
    to_result(unsafe {
        helpers::pfc_charge_user_accounts(
            user.as_ptr(),
            Amount {
                resource: thing,
                nr,
            },
            most,
        )
    })
}

fn uncharge_user(user: &Credential, (thing, nr): (Resource, u64)) {
    // SAFETY: The reference keeps the credentials alive, and `charge_user` has added `nr` for the
    // same `user`.
    unsafe {
        helpers::pfc_uncharge_user_accounts(
            user.as_ptr(),
            Amount {
                resource: thing,
                nr,
            },
        )
    }
}

/// Returns whether an error (`ENOSPC`, `EDQUOT` or `ENOMEM`) means that a limit was reached or
/// memory is short.
pub fn is_limit_or_memory_error(error: Error) -> bool {
    [ENOSPC, errno::edquot(), ENOMEM].contains(&error)
}
