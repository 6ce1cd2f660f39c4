// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 60
 *
 * On a machine without a PMU, PMU descriptions do not load, and a context cannot be created.
 */
#include "perfmon.h"

int main(void)
{
	char line[200] = "";
	FILE *f;

	plan(6);
	unload();
	is(insmod("perfcounters", ""), 0, "1.1 perfcounters.ko loads without a PMU");
	is(insmod("pfm_intel", ""), -ENODEV, "1.1 there is none of Intel's");
	is(insmod("pfm_amd", ""), -ENODEV, "1.1 and none of AMD's, whatever CPUID says");
	f = fopen("/proc/perfmon_map", "r");
	ok(f && !fgets(line, sizeof(line), f), "1.1 /proc/perfmon_map is empty");
	if (f)
		fclose(f);
	is(pfm_create(0), -EBUSY, "1.3 a context is EBUSY");
	is(rmmod("perfcounters"), 0, "1.1 and perfcounters.ko goes");
	return finish();
}
