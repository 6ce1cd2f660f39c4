/* SPDX-License-Identifier: GPL-2.0 */
/* The C declarations for which src/Kbuild.bindgen generates Rust declarations. */
#include "trace.h"
