// SPDX-License-Identifier: GPL-2.0
/*
 * Example of a traced program: records the event shop:sold every ten milliseconds.
 *
 *	cc shop.c $(pkg-config --cflags --libs libperftrace) -o shop
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <perftrace/perftrace.h>

static void sell(uint32_t item, uint64_t price)
{
	PERFTRACE(shop, sold, (u32, item, item), (u64, price, price));
}

int main(int argc, char **argv)
{
	uint32_t sales = argc > 1 ? (uint32_t)atoi(argv[1]) : 100;

	for (uint32_t item = 0; item < sales; item++) {
		sell(item, item * 7ULL % 100);
		usleep(10000);
	}
	return 0;
}
