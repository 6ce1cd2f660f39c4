// SPDX-License-Identifier: GPL-2.0

//! The rules of user tracing: the structures of `/dev/perftrace`. The code uses no kernel API.

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
