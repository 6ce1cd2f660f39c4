/* SPDX-License-Identifier: GPL-2.0 */
/* What Rust code uses: src/Kbuild.bindgen generates its declarations in Rust. */
#include <linux/netdevice.h>
#include "access.h"
#include "account.h"
#include "helpers.h"
#include "notifier.h"
#include "work.h"
