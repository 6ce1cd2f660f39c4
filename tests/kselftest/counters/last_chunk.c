// SPDX-License-Identifier: GPL-2.0
/*
 * Tests chunk sizes that do not divide the number of slots, so that the last chunk extends past
 * the last slot. The excess slots of the last chunk must not be used, and the first slots must
 * not change.
 */
#include "kselftest_pc.h"

int main(void)
{
	static const int sizes[] = { 3, 7 };

	plan(2 * 3);
	for (int i = 0; i < 2; i++) {
		long long n, added = 0;

		load_modules(format_text("pages_per_chunk=%d", sizes[i]));
		n = driver_cmd("add first");
		driver_cmd("adjust %lld 5", n);
		while (added < 2000 && driver_cmd("desc 32 4 1 0 64 0 -1 h/%lld", added) > 0)
			added++;
		note("%lld histograms", added);
		ok(added > 1000 && added < 2000,
		   "0.4 pages_per_chunk=%d: histograms fill the table",
		   sizes[i]);
		pc_open(&pc);
		is(pc_total(&pc, n), 5,
		   "0.4 pages_per_chunk=%d, full table: the first value is unchanged", sizes[i]);
		driver_cmd("adjust %lld 5", n);
		is(pc_total(&pc, n), 10,
		   "0.4 pages_per_chunk=%d, full table: the first value still counts",
		   sizes[i]);
		pc_close(&pc);
	}
	return finish();
}
