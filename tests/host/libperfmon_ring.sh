#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests libperfmon's reader of rings (ring buffers of samples). The rings are files with the layout
# of the ring of a context.

set -u
out=${LIB_OUT:?} top=${TOP:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ring.c" <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <perfmon/perfmon.h>

#define DATA 4096

static int tests, failed;

static void ok(bool good, const char *name)
{
	failed += !good;
	printf("%sok %d %s\n", good ? "" : "not ", ++tests, name);
}

/* The ring, which new_ring() and put() write as the kernel would. */
static struct perfmon_ring_page *page;
static uint64_t *data, *tail;
static int fd;
static uint64_t serial;

static void new_ring(uint32_t flags, uint64_t begin)
{
	fd = memfd_create("ring", 0);
	if (fd < 0 || ftruncate(fd, PERFMON_TAIL_OFFSET + 4096))
		exit(2);
	page = mmap(NULL, 4096 + DATA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PERFMON_TAIL_OFFSET);
	if (page == MAP_FAILED || tail == MAP_FAILED)
		exit(2);
	data = (void *)page + 4096;
	page->version = PERFMON_RING_VERSION;
	page->size = sizeof(*page);
	page->flags = flags;
	page->data_offset = 4096;
	page->data_size = DATA;
	page->head = page->reserve = *tail = begin;
}

/* Writes a record of @words words. All words after the header have the record's number. */
static void put(uint32_t words)
{
	bool backward = page->flags & PERFMON_RING_BACKWARD;
	uint64_t at = page->head - (backward ? words * 8 : 0);
	struct perfmon_record header = { .size = words * 8, .type = PERFMON_RECORD_SAMPLE };

	serial++;
	page->reserve = page->head + (backward ? -words : words) * 8ULL;
	if (backward)
		page->reserve = at;
	for (uint32_t n = 0; n < words; n++)
		data[(at / 8 + n) % (DATA / 8)] = serial;
	memcpy(&data[at / 8 % (DATA / 8)], &header, 8);
	page->head = page->reserve;
}

/* Reads a record. Returns true if it is complete and has this number and this size. */
static bool next(struct pfm_ring *ring, uint64_t number, uint32_t words)
{
	const struct perfmon_record *r = NULL;
	const uint64_t *word;

	if (pfm_ring_read(ring, &r) != 1 || r->size != words * 8 || r->type != PERFMON_RECORD_SAMPLE)
		return false;
	word = (const uint64_t *)r;
	for (uint32_t n = 1; n < words; n++)
		if (word[n] != number)
			return false;
	return true;
}

static int end(struct pfm_ring *ring)
{
	const struct perfmon_record *r;
	int got = pfm_ring_read(ring, &r);

	return got < 0 ? -errno : got;
}

static int fails(int fd)
{
	struct pfm_ring *ring;

	return pfm_ring_open(fd, &ring) ? -errno : 0;
}

static uint32_t size(uint64_t n)
{
	return 2 + n * 7 % 20;
}

static struct pfm_ring *opened(uint32_t flags, uint64_t begin)
{
	struct pfm_ring *ring;

	new_ring(flags, begin);
	if (pfm_ring_open(fd, &ring))
		exit(3);
	return ring;
}

/*
 * Reads as many records as fit into the ring, the newest first. Returns true if they are complete
 * and the reader then finds no more records.
 */
static bool newest(struct pfm_ring *ring)
{
	uint64_t n = serial, left = DATA / 8;

	for (; n && size(n) <= left; n--) {
		if (!next(ring, n, size(n)))
			return false;
		left -= size(n);
	}
	return !end(ring) && !end(ring);
}

/* The mappings of all rings, those of the earlier tests included. */
static struct { unsigned long start, end; } maps[64];
static int nr_maps;

static void find_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];

	for (nr_maps = 0; f && nr_maps < 64 && fgets(line, sizeof(line), f); )
		if (strstr(line, "memfd:ring") &&
		    sscanf(line, "%lx-%lx", &maps[nr_maps].start, &maps[nr_maps].end) == 2)
			nr_maps++;
	if (f)
		fclose(f);
}

/*
 * Forks a child without the mappings of the ring, as for a ring of the kernel. The child maps other
 * memory at their addresses. Returns true if reading the ring fails with EPERM in the child, and if
 * the memory is still mapped after the child has closed the ring.
 */
static bool child_keeps_memory(struct pfm_ring *ring)
{
	uint64_t lost;
	int status;
	pid_t pid;

	find_maps();
	for (int i = 0; i < nr_maps; i++)
		madvise((void *)maps[i].start, maps[i].end - maps[i].start, MADV_DONTFORK);
	pid = fork();
	if (!pid) {
		bool good = nr_maps >= 2;

		for (int i = 0; i < nr_maps; i++) {
			size_t bytes = maps[i].end - maps[i].start;
			void *at = mmap((void *)maps[i].start, bytes, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

			if (at != (void *)maps[i].start)
				_exit(1);
			memset(at, 42, bytes);
		}
		good &= end(ring) == -EPERM && pfm_ring_snapshot(ring) && errno == EPERM &&
			pfm_ring_lost(ring, &lost) && errno == EPERM && !pfm_ring_close(ring);
		for (int i = 0; i < nr_maps; i++)
			good &= *(volatile char *)maps[i].start == 42 &&
				*(volatile char *)(maps[i].end - 1) == 42;
		_exit(good ? 42 : 2);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

int main(void)
{
	struct pfm_ring *ring;
	uint64_t lost, first;
	bool good;

	ok(fails(-1) == -EBADF, "1.9 pfm_ring_open: descriptor -1 is EBADF");
	ok(pfm_ring_close(NULL) && pfm_ring_snapshot(NULL) && pfm_ring_read(NULL, NULL) == -1 &&
	   pfm_ring_lost(NULL, &lost) && errno == EINVAL, "1.9 no ring (NULL): close, snapshot, read and lost fail, errno EINVAL");
	new_ring(0, 0);
	page->version = 2;
	ok(fails(fd) == -EPROTO, "1.9 pfm_ring_open: a ring of version 2 is EPROTO");
	page->version = 1;
	page->size = 40;
	ok(fails(fd) == -EPROTO, "1.9 pfm_ring_open: a page of 40 bytes is EPROTO");
	page->size = 56;
	page->data_size = 3000;
	ok(fails(fd) == -EPROTO, "1.9 pfm_ring_open: a data size that is not a power of two is EPROTO");
	close(fd);

	/* The first record crosses the end of the data. */
	ring = opened(0, DATA - 16);
	page->lost = 7;
	ok(!pfm_ring_lost(ring, &lost) && lost == 7, "1.9 pfm_ring_lost: the number of lost records in the page");
	put(4);
	put(2);
	good = next(ring, 1, 4) && *tail == DATA + 16 && next(ring, 2, 2);
	put(512);
	ok(good && next(ring, 3, 512) &&
	   !end(ring) && *tail == page->head, "1.9 forward: records are read in order, and their space is freed");
	put(3);
	pfm_ring_close(ring);
	pfm_ring_open(fd, &ring);
	ok(next(ring, 4, 3) && !end(ring), "1.9 forward: a new reader begins at the tail of the previous one");
	put(3);
	data[*tail / 8 % (DATA / 8)] = 12;
	ok(end(ring) == -EPROTO, "1.9 forward: an invalid record is EPROTO");
	pfm_ring_close(ring);
	close(fd);

	ring = opened(PERFMON_RING_OVERWRITE, -DATA / 2);
	first = serial;
	put(2);
	put(5);
	/*
	 * The reader begins at position 0, whatever position the ring has reached. The reader may
	 * report EOVERFLOW, which does not matter in this test.
	 */
	good = end(ring) == -EOVERFLOW || true;
	put(4);
	ok(good && next(ring, first + 3, 4) && !end(ring), "2.7 forward, overwriting: a record that is written after the first read is read");
	for (int i = 0; i < 300; i++)
		put(size(serial + 1));
	ok(end(ring) == -EOVERFLOW && !end(ring), "2.7 forward, overwriting: overwritten records are EOVERFLOW, once");
	put(6);
	ok(next(ring, serial, 6) && !end(ring), "2.7 forward, overwriting: after EOVERFLOW the next record is read");
	pfm_ring_close(ring);
	close(fd);

	serial = 0;
	ring = opened(PERFMON_RING_BACKWARD | PERFMON_RING_OVERWRITE, 0);
	ok(!end(ring), "2.1 backward: an empty ring has no record");
	put(size(1));
	put(size(2));
	ok(!end(ring), "2.1 backward: records that are newer than the snapshot are not read");
	ok(!pfm_ring_snapshot(ring) && newest(ring), "2.1 backward: a snapshot has all records, newest first");
	good = true;
	for (int i = 0; i < 1000 && good; i++) {
		put(size(serial + 1));
		good = !pfm_ring_snapshot(ring) && newest(ring);
	}
	ok(good, "2.3 backward: a snapshot has exactly the records that fit, after each of 1,000 records");
	pfm_ring_snapshot(ring);
	first = serial;
	good = next(ring, first, size(first)) && next(ring, first - 1, size(first - 1));
	for (int i = 0; i < 60; i++)
		put(size(serial + 1));
	ok(good && !end(ring), "2.5 backward: records that are overwritten after the snapshot are not read");
	pfm_ring_close(ring);
	close(fd);

	ring = opened(PERFMON_RING_BACKWARD, 0);
	for (int i = 0; i < 3; i++)
		put(4);
	first = serial;
	good = !pfm_ring_snapshot(ring) && next(ring, first, 4);
	put(6);
	ok(good && next(ring, first - 1, 4) && !*tail && next(ring, first - 2, 4) && !end(ring) &&
	   *tail == page->head + 48, "2.7 backward with a tail: the space of a snapshot is freed once it is read");
	ok(!end(ring) && !pfm_ring_snapshot(ring) && next(ring, first + 1, 6) && !end(ring) &&
	   *tail == page->head, "2.7 backward with a tail: the next snapshot has only the newer record");
	pfm_ring_close(ring);
	close(fd);

	ring = opened(0, 0);
	put(3);
	ok(child_keeps_memory(ring), "1.9 a child: reading the ring is EPERM, and closing the ring unmaps nothing");
	ok(next(ring, serial, 3) && !end(ring), "1.9 after a child has closed the ring, the parent reads it");
	pfm_ring_close(ring);
	printf("1..%d\n", tests);
	return failed;
}
END
echo "TAP version 13"
gcc-14 -std=gnu11 -Wall -Wextra -Werror -O1 -g -fsanitize=address,undefined -I "$top/tools/libperfmon/include" -idirafter "$top/include/uapi" \
	-o "$work/ring" "$work/ring.c" "$out/libperfmon.a" || {
	echo "Bail out! the test program does not compile"
	exit 1
}
ASAN_OPTIONS=detect_leaks=1 "$work/ring"
