// SPDX-License-Identifier: GPL-2.0
/*
 * Counts instructions and cycles of the calling thread around a loop of two
 * instructions.
 *
 * Usage: self [ROUNDS]
 */
#include "events.h"
#include "loop.h"
#include <unistd.h>

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	int fd;

	fd = new_counting_context(0, COUNT_USER);
	/* The id of a process is also the id of its first thread. */
	attach(fd, getpid());
	if (pfm_start(fd, NULL))
		err(1, "pfm_start");
	loop(rounds);
	if (pfm_stop(fd))
		err(1, "pfm_stop");
	print_counts(fd, "");
	if (pfm_unload_context(fd))
		err(1, "pfm_unload_context");
	close(fd);
	return 0;
}
