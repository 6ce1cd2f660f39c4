// SPDX-License-Identifier: GPL-2.0
/*
 * sample_off: sample_c built without CONFIG_PERFCOUNTERS (see Kbuild). Nothing
 * is counted, nothing is needed: it loads where perfcounters.ko does not exist.
 */
#include "sample_c.c"
