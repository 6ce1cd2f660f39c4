// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that is built without CONFIG_PERFCOUNTERS does not need perfcounters.ko. sample_off is
 * sample_c built that way; tests/host/objdump.sh checks its symbols.
 */
#include "kselftest_pc.h"

int main(void)
{
	struct pc pc;
	__u64 gen;

	plan(8);
	unload();
	rmmod("sample_off");
	ok(!is_loaded("perfcounters"), "0.13 perfcounters.ko is not loaded");
	is(insmod("sample_c", ""), -ENOENT, "0.13 a driver that counts does not load without it");
	is(insmod("sample_off", "period_us=1000"), 0,
	   "0.13 the same driver, built without the interface, does");
	sleep_ms(200);
	ok(!is_loaded("perfcounters"), "0.13 and brings nothing in");
	is(rmmod("sample_off"), 0, "0.13 its timer ran over no-ops, and it unloads");

	load("");
	pc_open(&pc);
	gen = pc.h->gen2;
	is(insmod("sample_off", ""), 0, "0.13 beside perfcounters.ko it loads, too");
	is(pc.h->gen2, gen, "0.13 and adds no instance");
	is(rmmod("sample_off"), 0, "0.13 and unloads");
	return finish();
}
