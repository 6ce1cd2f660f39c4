/* SPDX-License-Identifier: GPL-2.0 */
/* The C declarations for which src/Kbuild.bindgen generates Rust declarations. */
#include "trace.h"

const gfp_t pt_gfp_no_oom = PT_GFP_NO_OOM;
