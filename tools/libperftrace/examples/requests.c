// SPDX-License-Identifier: GPL-2.0
/*
 * Example of a traced program, which records an event at the beginning and at
 * the end of each request.
 *
 *	cc requests.c $(pkg-config --cflags --libs libperftrace) -o requests
 *	pfc trace start requests -e 'requests:*' -o requests.ctf -- ./requests
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <perftrace/perftrace.h>

static uint64_t answer(uint32_t number, const char *from)
{
	uint64_t result = 0;

	PERFTRACE(requests, begin, (u32, number, number), (str, from, from));
	for (uint32_t n = 0; n < number; n++)
		result += (uint64_t)n * n;
	PERFTRACE(requests, end, (u32, number, number), (u64, result, result));
	return result;
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000;
	uint64_t sum = 0;

	PERFTRACE(requests, start);
	for (uint32_t n = 0; n < count; n++)
		sum += answer(n, n % 2 ? "here" : "there");
	printf("%u requests, %llu\n", count, (unsigned long long)sum);
	return 0;
}
