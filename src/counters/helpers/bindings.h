/* SPDX-License-Identifier: GPL-2.0 */
/* The C declarations from which bindgen (src/Kbuild.bindgen) makes declarations for Rust. */
#include <linux/perfcounters.h>
#include "counters.h"
