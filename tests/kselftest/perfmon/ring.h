/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A reader of rings that uses only the uapi header, not libperfmon and not the
 * reader of src/protocols.
 */
#ifndef RING_H
#define RING_H

#include "perfmon.h"

/* Maximum size of a record, in bytes. */
#define RING_MAX_RECORD	16384

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

static inline struct ring ring_map(int fd, __u64 size)
{
	struct ring r = { .fd = fd, .size = size };

	bail_on_error(fd, "a context with a ring");
	r.page = MAP(fd, 4096 + size, PROT_READ, 0);
	r.tail = MAP(fd, 4096, PROT_READ | PROT_WRITE, PERFMON_TAIL_OFFSET);
	bail_if(!r.page || !r.tail, "mmap of a ring");
	r.data = (const void *)r.page + 4096;
	return r;
}

static inline void ring_close(struct ring *r)
{
	munmap((void *)r->page, 4096 + r->size);
	munmap(r->tail, 4096);
	close(r->fd);
}

static inline __u64 ring_head(const struct ring *r)
{
	return __atomic_load_n(&r->page->head, __ATOMIC_ACQUIRE);
}

static inline __u64 ring_word(const struct ring *r, __u64 position)
{
	return __atomic_load_n(&r->data[position % r->size / 8], __ATOMIC_RELAXED);
}

#define RECORD_OVERWRITTEN	-1
#define RECORD_CORRUPT	-2

union record {
	struct perfmon_record header;
	struct perfmon_sample sample;
	__u64 words[RING_MAX_RECORD / 8];
};

/*
 * Copies the record at position @pos. Returns the size of the record in bytes, 0 if there is no
 * record yet, RECORD_OVERWRITTEN if it was overwritten, or RECORD_CORRUPT if the size in the
 * record's header is impossible.
 */
static inline int ring_copy_record(const struct ring *r, __u64 head, __u64 pos, union record *to)
{
	bool backward = r->page->flags & PERFMON_RING_BACKWARD;
	__u64 left = backward ? head + r->size - pos : head - pos, end, reserve, n;
	int bytes;

	if (!left)
		return backward ? RECORD_OVERWRITTEN : 0;
	if (left > r->size)
		return RECORD_OVERWRITTEN;
	to->words[0] = ring_word(r, pos);
	bytes = to->header.size;
	if (bytes < 8 || bytes % 8 || (__u64)bytes > left) {
		end = pos + 8;
		bytes = !backward ? RECORD_CORRUPT : to->words[0] ? RECORD_OVERWRITTEN : 0;
	} else {
		for (n = 8; n < (__u64)bytes; n += 8)
			to->words[n / 8] = ring_word(r, pos + n);
		end = pos + bytes;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	reserve = __atomic_load_n(&r->page->reserve, __ATOMIC_RELAXED);
	if (backward ? end - reserve > r->size : reserve - pos > r->size)
		return RECORD_OVERWRITTEN;
	return bytes;
}

#endif
