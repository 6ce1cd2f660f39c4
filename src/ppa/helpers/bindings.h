/* SPDX-License-Identifier: GPL-2.0 */
/* What Rust code uses: src/Kbuild.bindgen generates its declarations in Rust. */
#include "ppa.h"
