// SPDX-License-Identifier: GPL-2.0
/*
 * guest: large
 * worlds: stock
 * timeout: 120
 *
 * The largest buffers of samples: 1 GiB of them, and no word more.
 */
#include "memory.h"
#include "sampling.h"
#include <sys/mman.h>

#define LARGEST	(1ULL << 30)

/* Its first and last pages can be read. */
static bool is_mapped(int fd, size_t bytes)
{
	volatile char *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	bool there = at != MAP_FAILED && at[bytes - 1] == 0 && at[0] + 1;

	if (at != MAP_FAILED)
		munmap((void *)at, bytes);
	return there;
}

static void largest(const char *what, int fd, size_t bytes)
{
	long long before;

	if (!ok(fd >= 0, "9.4 %s of 1 GiB", what))
		note("%s", strerror(-fd));
	before = meminfo("MemFree:") / 1024;
	ok(is_mapped(fd, bytes), "9.4 %s of 1 GiB can be read to its end", what);
	close(fd);
	wait_until(meminfo("MemFree:") / 1024 > before + 1000000);
	ok(meminfo("MemFree:") / 1024 > before + 1000000, "9.1 %s of 1 GiB is given back", what);
}

int main(void)
{
	plan(6 + 2 + 1);
	insmod("perfcounters", "");
	insmod("pfm_soft", "");
	insmod("pfm_default", "");
	insmod("pfm_ring", "");
	largest("a buffer", pfm_create_default(0, LARGEST), LARGEST);
	largest("a ring", pfm_create_ring(0, "ring", LARGEST, 0), LARGEST + 4096);
	is(pfm_create_default(0, LARGEST + 8), -EINVAL, "9.4 no word more");
	is(pfm_create_ring(0, "ring", 2 * LARGEST, 0), -EINVAL, "9.4 no larger ring");
	wait_until(nobody_has_any());
	ok(nobody_has_any(), "9.1 all is given back");
	return finish();
}
