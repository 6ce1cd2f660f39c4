// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the page faults of the calling thread with libperfmon. The program needs no PMU.
 * Documentation/install.md describes how to build this program.
 *
 *	cc page_faults.c $(pkg-config --cflags --libs libperfmon) -o page_faults
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <perfmon/perfmon.h>

int main(void)
{
	pfarg_ctx_t ctx = { 0 };
	pfarg_load_t self = { .load_pid = getpid() };
	pfarg_pmd_t faults = { .reg_num = PERFMON_PAGE_FAULTS };
	int fd = pfm_create_context(&ctx, NULL, NULL, 0);

	if (fd < 0 || pfm_write_pmds(fd, &faults, 1) || pfm_load_context(fd, &self) ||
	    pfm_start(fd, NULL))
		err(1, "/dev/perfmon");
	memset(malloc(100 * 4096), 1, 100 * 4096);
	if (pfm_stop(fd) || pfm_read_pmds(fd, &faults, 1))
		err(1, "/dev/perfmon");
	printf("%llu page faults\n", (unsigned long long)faults.reg_value);
	return 0;
}
