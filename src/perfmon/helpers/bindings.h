/* SPDX-License-Identifier: GPL-2.0 */
/* What Rust code uses: src/Kbuild.bindgen generates its declarations in Rust. */
#include <linux/perfmon.h>
#include "pmu.h"
#include "sampling.h"
#include "stats_files.h"
