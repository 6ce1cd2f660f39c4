// SPDX-License-Identifier: GPL-2.0

//! Whose memory it is that the kernel has for contexts and traces, and whose traces and traced
//! processes there are: `sys/shim/account.c`. What a user has counts for the owners of his user name
//! spaces as well. Buffers of samples are charged to `RLIMIT_MEMLOCK`, too, and all memory to its
//! control group.

use kernel::cred::Credential;
use kernel::error::{code::ENOMEM, to_result, Error, Result};
use kernel::sync::aref::ARef;

use super::shim::Amount;
pub(crate) use super::shim::Thing;
use super::{rights, shim};

/// Bytes that a user has; given back by drop, in process context.
pub(crate) struct Charge {
    user: ARef<Credential>,
    /// There is no limit for it.
    free: bool,
    bytes: u64,
}

impl Charge {
    /// The caller's, whose memory what it makes is from now on. `EDQUOT`: that is too much.
    /// Process context.
    pub(crate) fn of_caller(bytes: usize) -> Result<Self> {
        // SAFETY: No requirements.
        let free = unsafe { shim::pfm_account_is_free() };
        let nothing = Self {
            user: rights::of_caller(),
            free,
            bytes: 0,
        };
        nothing.more(bytes)
    }

    /// Nothing, yet, of the same user.
    pub(crate) fn none(&self) -> Self {
        Self {
            user: self.user.clone(),
            free: self.free,
            bytes: 0,
        }
    }

    /// Whose they are.
    pub(crate) fn user(&self) -> &ARef<Credential> {
        &self.user
    }

    /// More of the same user's, apart.
    pub(crate) fn more(&self, bytes: usize) -> Result<Self> {
        let mut more = self.none();
        let most = match self.free {
            true => u64::MAX,
            // SAFETY: No requirements.
            false => unsafe { shim::pfm_account_bytes() },
        };
        add(&more.user, (Thing::Bytes, bytes as u64), most)?;
        more.bytes = bytes as u64;
        Ok(more)
    }

    /// How many.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Has what another one had, which is of the same user. Any context.
    pub(crate) fn take(&mut self, other: &mut Self) {
        self.bytes = self.bytes.wrapping_add(core::mem::take(&mut other.bytes));
    }

    /// Has so many less. Process context.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let mut less = self.none();
        less.bytes = self.bytes.min(bytes as u64);
        self.bytes = self.bytes.wrapping_sub(less.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        sub(&self.user, (Thing::Bytes, self.bytes));
    }
}

/// One of what is counted, that a user has; given back by drop, in process context.
pub(crate) struct Share {
    user: ARef<Credential>,
    thing: Thing,
}

impl Share {
    /// One more of the caller's, up to so many, or else this error. `ENOMEM`. Process context.
    pub(crate) fn of_caller(thing: Thing, most: usize, error: Error) -> Result<Self> {
        Self::of(&rights::of_caller(), thing, most, error)
    }

    /// Counts one more for a user. Returns `error` if the user would have more than `most`, or
    /// `ENOMEM`. Process context.
    pub(crate) fn of(
        user: &ARef<Credential>,
        thing: Thing,
        most: usize,
        error: Error,
    ) -> Result<Self> {
        match add(user, (thing, 1), most as u64) {
            Err(ENOMEM) => Err(ENOMEM),
            Err(_) => Err(error),
            Ok(()) => Ok(Self {
                user: user.clone(),
                thing,
            }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        sub(&self.user, (self.thing, 1));
    }
}

/// Up to so many.
fn add(user: &Credential, (thing, nr): (Thing, u64), most: u64) -> Result {
    // SAFETY: There are these credentials.
    to_result(unsafe { shim::pfm_account_add(user.as_ptr(), Amount { thing, nr }, most) })
}

fn sub(user: &Credential, (thing, nr): (Thing, u64)) {
    // SAFETY: There are these credentials, and they have that.
    unsafe { shim::pfm_account_sub(user.as_ptr(), Amount { thing, nr }) }
}
