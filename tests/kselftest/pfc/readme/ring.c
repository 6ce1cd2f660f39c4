// SPDX-License-Identifier: GPL-2.0
/*
 * Samples this thread after each millisecond of its CPU time, and reads the samples from a ring
 * that the kernel writes at the same time. The program needs no PMU. Documentation/sampling.md
 * quotes read_record().
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <linux/perfmon.h>
#include <linux/perfmon_ring.h>

#define MS	1000000ULL
/*
 * The program reads records of up to MAX_WORDS 64-bit words. A sample with two stacks and 64 values
 * is smaller.
 */
#define MAX_WORDS	1024

static const struct perfmon_ring_page *page;
static const volatile __u64 *data;
static __u64 size;

/* Copies the record at pos. Returns its size in bytes, 0 if there is none, -1 if it is lost. */
static int read_record(__u64 pos, __u64 *copy)
{
	bool backward = page->flags & PERFMON_RING_BACKWARD;
	__u64 head = __atomic_load_n(&page->head, __ATOMIC_ACQUIRE);
	__u64 left = backward ? head + size - pos : head - pos;

	if (!left || left > size)
		return left || backward ? -1 : 0;
	copy[0] = data[pos % size / 8];
	__u32 bytes = (__u32)copy[0];			/* perfmon_record.size */

	if (bytes < 8 || bytes % 8 || bytes > left || bytes > MAX_WORDS * 8)
		return backward && !copy[0] ? 0 : -1;	/* 0: no record, -1: overwritten */
	for (__u32 n = 8; n < bytes; n += 8)
		copy[n / 8] = data[(pos + n) % size / 8];
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	__u64 reserve = __atomic_load_n(&page->reserve, __ATOMIC_RELAXED);
	bool overwritten = backward ? pos + bytes - reserve > size : reserve - pos > size;

	return overwritten ? -1 : (int)bytes;
}

int main(void)
{
	struct perfmon_ring_arg arg = { .size = 65536 };
	struct perfmon_create create = { .name = (__u64)"ring", .arg = (__u64)&arg,
					 .arg_size = sizeof(arg) };
	struct pfarg_pmd clock_pmd = { .reg_num = PERFMON_TASK_CLOCK, .reg_value = -MS,
				       .reg_short_reset = -MS };
	struct perfmon_vector pmds = { (__u64)&clock_pmd, 1, sizeof(clock_pmd) };
	struct pfarg_load load = { .load_pid = getpid() };
	int fd = open("/dev/perfmon", O_RDWR), bytes, samples = 0, own = 0;
	struct perfmon_ring_tail *tail;
	__u64 pos = 0, copy[MAX_WORDS];

	if (ioctl(fd, PERFMON_CREATE_FORMAT, &create) || ioctl(fd, PERFMON_WRITE_PMDS, &pmds) ||
	    ioctl(fd, PERFMON_LOAD, &load) || ioctl(fd, PERFMON_START, NULL))
		return perror("/dev/perfmon"), 1;
	page = mmap(NULL, 4096 + arg.size, PROT_READ, MAP_SHARED, fd, 0);
	tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PERFMON_TAIL_OFFSET);
	if (page == MAP_FAILED || tail == MAP_FAILED)
		return perror("mmap"), 1;
	data = (const void *)((const char *)page + page->data_offset);
	size = page->data_size;
	while (clock() < CLOCKS_PER_SEC / 5)
		;
	ioctl(fd, PERFMON_STOP);
	while ((bytes = read_record(pos, copy)) > 0) {
		const struct perfmon_sample *sample = (const void *)copy;

		if (sample->header.type == PERFMON_RECORD_SAMPLE) {
			samples++;
			own += sample->tid == (__u32)gettid();
		}
		pos += bytes;
		__atomic_store_n(&tail->tail, pos, __ATOMIC_RELEASE);
	}
	printf("%d samples, %d of this thread, %llu lost\n", samples, own, page->lost);
	return bytes < 0;
}
