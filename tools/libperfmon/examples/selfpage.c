// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a loop several times, and counts the instructions of each run, which is
 * called a lap. The program reads the counter while the counter runs, without a
 * system call if the processor and the kernel allow RDPMC.
 *
 * Usage: selfpage [LAPS [ROUNDS]]
 */
#include "events.h"
#include "loop.h"
#include <unistd.h>

int main(int argc, char **argv)
{
	int laps = argc > 1 ? atoi(argv[1]) : 5;
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000000;
	const struct perfmon_self *page;
	uint64_t before, after;
	int fd, i;

	fd = new_counting_context(0, COUNT_USER);
	attach(fd, getpid());
	if (pfm_self_map(fd, &page)) {
		warn("pfm_self_map: each lap needs system calls");
		page = NULL;
	}
	if (pfm_start(fd, NULL))
		err(1, "pfm_start");
	for (i = 0; i < laps; i++) {
		if (pfm_self_read(fd, page, 0, &before))
			err(1, "pfm_self_read");
		loop(rounds);
		if (pfm_self_read(fd, page, 0, &after))
			err(1, "pfm_self_read");
		printf("lap %d %20llu instructions\n", i + 1,
		       (unsigned long long)(after - before));
	}
	if (pfm_stop(fd))
		err(1, "pfm_stop");
	print_counts(fd, "");
	if (page)
		pfm_self_unmap(page);
	close(fd);
	return 0;
}
