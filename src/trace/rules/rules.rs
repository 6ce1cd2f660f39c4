// SPDX-License-Identifier: GPL-2.0

//! The structures of `/dev/perftrace`, and the rules for their values. The code uses no kernel API.

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
