// SPDX-License-Identifier: GPL-2.0

//! The rules of the counter pages (`/dev/perfcounters`). The code uses no kernel API.
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | structures of `/dev/perfcounters`, with their sizes |
//! | [`layout`] | offsets of a CPU's slots in the file; search for consecutive slots |
//! | [`spec`] | rules for names, units and kinds of new instances |
//! | [`registry`] | instances by name: add, delete, revive |
//! | [`error`] | reasons why a request to add or delete an instance is refused |

#![cfg_attr(not(in_kernel), no_std)]
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod error;
pub mod layout;
pub mod registry;
pub mod spec;
