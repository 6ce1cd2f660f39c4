/* SPDX-License-Identifier: GPL-2.0 */
/* The C declarations for Rust code. src/Kbuild.bindgen generates Rust declarations from them. */
#include <linux/perfmon.h>
#include "pmu.h"
#include "sampling.h"
#include "stats_files.h"
