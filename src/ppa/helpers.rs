// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C functions and structures in `helpers/`.

base::include_helpers!(pub(crate) use "ppa");
