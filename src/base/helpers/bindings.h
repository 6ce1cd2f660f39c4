/* SPDX-License-Identifier: GPL-2.0 */
/* The C declarations from which bindgen (src/Kbuild.bindgen) makes declarations for Rust. */
#include <linux/netdevice.h>
#include "access.h"
#include "account.h"
#include "helpers.h"
#include "notifier.h"
#include "work.h"
