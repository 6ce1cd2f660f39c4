// SPDX-License-Identifier: GPL-2.0
/*
 * Tests pfc_mm: page faults.
 */
#include "provider.h"

#define PAGES 4000

static void touch_pages(void)
{
	size_t page = getpagesize();
	char *p = map_memory(PAGES * page, MAP_PRIVATE);

	madvise(p, PAGES * page, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < PAGES; i++)
		p[i * page] = 1;
	munmap(p, PAGES * page);
}

/* Makes the kernel touch pages on behalf of this task. */
static void touch_pages_by_kernel(void)
{
	size_t page = getpagesize();
	char *p = map_memory(PAGES * page, MAP_PRIVATE);
	int fd = open("/dev/zero", O_RDONLY);

	bail_if(fd < 0, "/dev/zero");
	madvise(p, PAGES * page, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < PAGES; i++)
		bail_if(read(fd, p + i * page, 1) != 1, "read");
	close(fd);
	munmap(p, PAGES * page);
}

static int64_t provider_faults(const void *arg)
{
	return total_by_name("mm/page_faults_user") + total_by_name("mm/page_faults_kernel");
}

static int64_t proc_faults(const void *arg)
{
	return proc_field("/proc/vmstat", "pgfault ", 0);
}

int main(void)
{
	int64_t before, increase;

	plan(3 + NR_RELOAD_TESTS);
	load_provider("pfc_mm");
	before = total_by_name("mm/page_faults_user");
	touch_pages();
	increase = total_by_name("mm/page_faults_user") - before;
	note("%lld user faults for %d pages", (long long)increase, PAGES);
	ok(increase >= PAGES && increase < PAGES + PAGES / 20,
	   "0.15 mm: every page touched is a user fault");
	before = total_by_name("mm/page_faults_kernel");
	touch_pages_by_kernel();
	increase = total_by_name("mm/page_faults_kernel") - before;
	note("%lld kernel faults for %d pages", (long long)increase, PAGES);
	ok(increase >= PAGES && increase < PAGES + PAGES / 20,
	   "0.15 mm: every page the kernel touches is a kernel fault");
	/*
	 * The kernel counts pgfault in the memory manager, so its value differs from the number of
	 * page faults. pgfault counts a fault again for each retry, and counts pages that exec and
	 * fork populate without a fault. pgfault does not count a fault that is refused before it
	 * reaches the memory manager. The test tolerates a difference of 2 % between pgfault and
	 * the page faults that pfc_mm counts.
	 */
	test_matches_proc("0.15 mm: faults are pgfault of /proc/vmstat within 2 %", provider_faults,
			  NULL, proc_faults, NULL, touch_pages, PAGES, PAGES / 50);
	test_unload_and_reload("pfc_mm", "mm/page_faults_user", touch_pages);
	return finish();
}
