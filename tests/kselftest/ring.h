/* SPDX-License-Identifier: GPL-2.0 */
/* A reader of rings that uses only the uapi header, not libperfmon and not the engine's reader. */
#ifndef RING_H
#define RING_H

#include "perfmon.h"

/* Maximum size of a record, in bytes. */
#define RING_MOST	16384

/* A mapped ring. */
struct ring {
	int fd;
	const struct perfmon_ring_page *page;
	const __u64 *data;
	struct perfmon_ring_tail *tail;
	__u64 size;
};

#define MAP(fd, size, prot, offset) ({						\
	void *at_ = mmap(NULL, size, prot, MAP_SHARED, fd, offset);		\
										\
	at_ == MAP_FAILED ? NULL : at_;						\
})

static inline struct ring ring_of(int fd, __u64 size)
{
	struct ring r = { .fd = fd, .size = size };

	errno = fd < 0 ? -fd : 0;
	if (fd < 0)
		bail("a context with a ring");
	r.page = MAP(fd, 4096 + size, PROT_READ, 0);
	r.tail = MAP(fd, 4096, PROT_READ | PROT_WRITE, PERFMON_TAIL_OFFSET);
	if (!r.page || !r.tail)
		bail("mmap of a ring");
	r.data = (const void *)r.page + 4096;
	return r;
}

static inline void ring_close(struct ring *r)
{
	munmap((void *)r->page, 4096 + r->size);
	munmap(r->tail, 4096);
	close(r->fd);
}

static inline __u64 head_of(const struct ring *r)
{
	return __atomic_load_n(&r->page->head, __ATOMIC_ACQUIRE);
}

static inline __u64 word_of(const struct ring *r, __u64 position)
{
	return __atomic_load_n(&r->data[position % r->size / 8], __ATOMIC_RELAXED);
}

#define GONE	-1
#define BROKEN	-2

union record {
	struct perfmon_record header;
	struct perfmon_sample sample;
	__u64 words[RING_MOST / 8];
};

/*
 * Copies the record at a position. Returns its size in bytes, 0 if there is none yet, GONE if it
 * was overwritten, or BROKEN if the size in it is impossible.
 */
static inline int copy(const struct ring *r, __u64 head, __u64 at, union record *to)
{
	bool backward = r->page->flags & PERFMON_RING_BACKWARD;
	__u64 left = backward ? head + r->size - at : head - at, end, reserve, n;
	int bytes;

	if (!left)
		return backward ? GONE : 0;
	if (left > r->size)
		return GONE;
	to->words[0] = word_of(r, at);
	bytes = to->header.size;
	if (bytes < 8 || bytes % 8 || (__u64)bytes > left) {
		end = at + 8;
		bytes = !backward ? BROKEN : to->words[0] ? GONE : 0;
	} else {
		for (n = 8; n < (__u64)bytes; n += 8)
			to->words[n / 8] = word_of(r, at + n);
		end = at + bytes;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	reserve = __atomic_load_n(&r->page->reserve, __ATOMIC_RELAXED);
	if (backward ? end - reserve > r->size : reserve - at > r->size)
		return GONE;
	return bytes;
}

#endif
