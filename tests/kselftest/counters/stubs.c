// SPDX-License-Identifier: GPL-2.0
/*
 * Tests that a driver that is built without CONFIG_PERFCOUNTERS does not need perfcounters.ko.
 * sample_off is sample_c built without this option; tests/host/objdump.sh checks its symbols.
 */
#include "kselftest_pc.h"

int main(void)
{
	__u64 gen;

	plan(8);
	unload_modules();
	rmmod("sample_off");
	ok(!is_loaded("perfcounters"), "0.13 perfcounters.ko is not loaded at the start");
	is(insmod("sample_c", ""), -ENOENT,
	   "0.13 sample_c.ko without perfcounters.ko: insmod is ENOENT");
	is(insmod("sample_off", "period_us=1000"), 0,
	   "0.13 sample_off.ko without perfcounters.ko: loads");
	sleep_ms(200);
	ok(!is_loaded("perfcounters"), "0.13 sample_off.ko: does not load perfcounters.ko");
	is(rmmod("sample_off"), 0, "0.13 sample_off.ko: unloads after its timer ran");

	load_and_map("");
	gen = pc.h->gen2;
	is(insmod("sample_off", ""), 0, "0.13 sample_off.ko with perfcounters.ko loaded: loads");
	is(pc.h->gen2, gen, "0.13 sample_off.ko with perfcounters.ko loaded: adds no instance");
	is(rmmod("sample_off"), 0, "0.13 sample_off.ko with perfcounters.ko loaded: unloads");
	return finish();
}
