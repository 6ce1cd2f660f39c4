// SPDX-License-Identifier: GPL-2.0
/*
 * sample_off: sample_c built without CONFIG_PERFCOUNTERS (see Kbuild). The module counts nothing
 * and loads without perfcounters.ko.
 */
#include "sample_c.c"
