// SPDX-License-Identifier: GPL-2.0

//! The structures of `/dev/perftrace`, the rules for their values, and searches in sorted lists.
//! The code uses no kernel API.

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod sorted;
