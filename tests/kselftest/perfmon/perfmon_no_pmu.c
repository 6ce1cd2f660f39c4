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
	unload_modules();
	insmod("perfcounters", "");
	is(insmod("perfmon", ""), 0, "1.1 no PMU: perfmon.ko loads");
	is(insmod("pfm_intel", ""), -ENODEV, "1.1 no PMU: insmod of pfm_intel is ENODEV");
	is(insmod("pfm_amd", ""), -ENODEV, "1.1 no PMU: insmod of pfm_amd is ENODEV");
	f = fopen("/proc/perfmon_map", "r");
	ok(f && !fgets(line, sizeof(line), f), "1.1 no PMU: /proc/perfmon_map is empty");
	if (f)
		fclose(f);
	is(pfm_create(0), -EBUSY, "1.3 no PMU: create is EBUSY");
	is(rmmod("perfmon"), 0, "1.1 no PMU: rmmod of perfmon.ko succeeds");
	unload_modules();
	return finish();
}
