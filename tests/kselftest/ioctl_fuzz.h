/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Descriptions of the structures that a device's calls take, and a generator that fills them.
 *
 * A field has a kind. In half of the calls every field is right by its kind; in the other half
 * one field in four has a value that is likely to be handled wrongly. Structures are placed at
 * odd addresses, at the end of a page, in read-only memory, partly or wholly in memory that is
 * not mapped; or a second thread changes one while the call is made. Around each structure are
 * bytes that must not change.
 *
 * ioctl_fuzz_calls.h makes the calls, ioctl_fuzz_run.h the processes that do.
 */
#ifndef IOCTL_FUZZ_H
#define IOCTL_FUZZ_H

#include "kselftest_pc.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>

enum kind {
	/* a value from the pool of that number */
	K_PID, K_CPU, K_SLOT, K_KEY, K_MARKER, K_SET, K_PMC, K_PMD, K_COUNTER, NR_POOLS,
	K_CONST,	/* the number a */
	K_SIZE,		/* bytes of this structure, or of shape @of */
	K_FLAGS,	/* some of the bits of a, all of b */
	K_ENUM,		/* one of the a values at @of */
	K_RANGE,	/* from a to b */
	K_BYTES,	/* an amount of memory: a power of two from a to b, or an absurd one */
	K_TEXT,		/* characters: one of the a strings at @of */
	K_BITS,		/* a set of bits: some numbers of pool a */
	K_PTR,		/* address of 1 to a structures of shape @of */
	K_BUFFER,	/* address of up to a bytes */
	K_STRING,	/* address of the string @of */
	K_MADE,		/* address of what the function @of has written */
	K_LEN,		/* bytes of what the field of number a points to */
	K_COUNT,	/* structures that the field of number a points to */
	K_RESERVED,	/* zero */
	K_OUT,		/* written by the kernel; with a: it is added to pool a - 1 */
	K_ANY,		/* any value is valid */
};

struct field {
	const char *name;
	__u16 at, bytes;
	__u8 kind;
	__u64 a, b;
	const void *of;
};

struct shape {
	const char *name;
	__u32 bytes;
	__u32 nr;
	const struct field *fields;
};

#define FIELD_OF(type, member, kind, a, b, of)					\
	{ #member, offsetof(type, member), sizeof(((type *)0)->member), kind, a, b, of }
#define FIELD(type, member, kind)	FIELD_OF(type, member, kind, 0, 0, NULL)
#define NUMBERS(type, member, kind, a, b) FIELD_OF(type, member, kind, a, b, NULL)
#define ONE_OF(type, member, kind, list)					\
	FIELD_OF(type, member, kind, sizeof(list) / sizeof(*(list)), 0, list)
#define SHAPE(type, table)							\
	{ #table, sizeof(type), sizeof(table) / sizeof(*(table)), table }

typedef size_t (*made_t)(char *to, size_t room);

/* Random numbers */

static __u64 seed;

static __u64 rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static __u64 below(__u64 n)
{
	return n ? rnd() % n : 0;
}

/* Returns a number at a boundary, or near @right. */
static __u64 nasty(__u64 right)
{
	switch (below(8)) {
	case 0:
		return 0;
	case 1:
		return right + (below(2) ? 1 : -1);
	case 2:
		return 1ULL << below(64);
	case 3:
		return (1ULL << below(64)) - 1;
	case 4:
		return -1ULL << below(64);
	case 5:
		return -right;
	case 6:
		return below(1 << 16);
	default:
		return rnd();
	}
}

/* Pools: numbers that refer to something at the moment */

#define POOL_MAX	32

static struct pool {
	__u64 v[POOL_MAX];
	__u32 nr;
} pools[NR_POOLS];

static void pool_add(enum kind kind, __u64 value)
{
	struct pool *pool = &pools[kind];

	for (__u32 i = 0; i < pool->nr; i++)
		if (pool->v[i] == value)
			return;
	if (pool->nr < POOL_MAX)
		pool->v[pool->nr++] = value;
	else
		pool->v[below(POOL_MAX)] = value;
}

/* The first three values are taken more often, so that calls meet what other calls have made. */
static __u64 pool_take(enum kind kind)
{
	const struct pool *pool = &pools[kind];

	if (!pool->nr)
		return 0;
	return pool->v[below(below(4) && pool->nr > 3 ? 3 : pool->nr)];
}

/* Memory for structures: areas that are mapped twice, each with an unmapped page at its end */

#define NR_AREAS	6
#define AREA_BYTES	(16 * 4096UL)
#define CANARY		64
#define CANARY_BYTE	0xc5

static struct area {
	char *write, *read;
} areas[NR_AREAS];

static void areas_map(void)
{
	for (int i = 0; i < NR_AREAS; i++) {
		int fd = memfd_create("fuzz", MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, AREA_BYTES))
			bail("memfd_create");
		for (int write = 0; write < 2; write++) {
			char *p = mmap(NULL, AREA_BYTES + 4096, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (p == MAP_FAILED ||
			    mmap(p, AREA_BYTES, write ? PROT_READ | PROT_WRITE : PROT_READ,
				 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
				bail("mmap of an area");
			*(write ? &areas[i].write : &areas[i].read) = p;
		}
		close(fd);
	}
}

/* A child of fork() needs areas of its own: it would share those of its parent. */
static void areas_anew(void)
{
	for (int i = 0; i < NR_AREAS; i++) {
		munmap(areas[i].write, AREA_BYTES + 4096);
		munmap(areas[i].read, AREA_BYTES + 4096);
	}
	areas_map();
}

struct object {
	const struct shape *shape;	/* NULL: plain bytes */
	__u32 nr;
	size_t bytes;
	char *at;			/* where this process writes it */
	char *seen;			/* the address that is passed to the call */
	bool guarded;			/* bytes around it must not change */
};

/* Largest number of lengths and counts in one call. */
#define NR_LENGTHS	64

static struct {
	struct object objects[NR_AREAS];
	int nr;
	/* Lengths and counts that fields have of other objects. */
	struct length {
		char *at;
		__u32 bytes;
		__u64 v;
	} lengths[NR_LENGTHS];
	int nr_lengths;
	bool wild;	/* some fields of this call are wrong */
	bool lied;	/* a size or a count may be wrong: anything behind may be written */
} gen;

/* Returns memory of the device itself, or NULL if none is mapped. */
static char *(*device_memory)(size_t bytes);

static bool goes_wrong(void)
{
	return gen.wild && !below(4);
}

/* Returns an address at which nothing is mapped. */
static char *nowhere(const struct area *area)
{
	static const __u64 places[] = {
		0, 1, 8, 4096, 1ULL << 63, 0x7ffffffff000ULL, 0x800000000000ULL,
		0xffff888000000000ULL, 0xffffffff81000000ULL, -8ULL, -4096ULL,
	};
	__u64 n = below(sizeof(places) / sizeof(*places) + 2);

	return n < sizeof(places) / sizeof(*places) ? (char *)places[n] :
						      area->write + AREA_BYTES;
}

static struct object *object_new(const struct shape *shape, __u32 nr, size_t bytes)
{
	struct area *area = &areas[gen.nr];
	struct object *o = &gen.objects[gen.nr++];
	size_t at = CANARY + 8 * below(64), behind;

	*o = (struct object){ .shape = shape, .nr = nr, .bytes = bytes, .guarded = true };
	if (bytes > AREA_BYTES - 1024 || !below(4))
		at = AREA_BYTES - bytes;
	else if (!below(8))
		at += 1 + below(7);
	o->at = area->write + at;
	o->seen = o->at;
	behind = AREA_BYTES - at - bytes;
	memset(o->at - (at < CANARY ? at : CANARY), CANARY_BYTE, at < CANARY ? at : CANARY);
	memset(o->at + bytes, CANARY_BYTE, behind < CANARY ? behind : CANARY);
	if (!gen.wild || below(4))
		return o;
	switch (below(4)) {
	case 0:
		o->seen = area->read + at;
		break;
	case 1:
		/*
		 * The call gets an address within the object, so that the end of what it reads is
		 * not mapped.
		 */
		o->at = area->write + AREA_BYTES - bytes;
		o->seen = o->at + below(bytes + 1);
		o->guarded = false;
		break;
	case 2:
		o->seen = nowhere(area);
		break;
	default:
		break;
	}
	return o;
}

/* Returns true if the bytes around the object are unchanged. */
static bool object_intact(const struct object *o)
{
	const struct area *area = &areas[o - gen.objects];
	size_t at = o->at - area->write, behind = AREA_BYTES - at - o->bytes;

	if (!o->guarded || gen.lied)
		return true;
	for (size_t i = 1; i <= CANARY && i <= at; i++)
		if ((unsigned char)o->at[-i] != CANARY_BYTE)
			return false;
	for (size_t i = 0; i < CANARY && i < behind; i++)
		if ((unsigned char)o->at[o->bytes + i] != CANARY_BYTE)
			return false;
	return true;
}

/* Numbers */

static __u64 right_number(const struct field *f)
{
	switch (f->kind) {
	case K_CPU:
		return below(4) ? (__u64)sched_getcpu() : below(4);
	case K_CONST:
		return f->a;
	case K_FLAGS:
		return (below(2) ? 0 : rnd() & rnd() & f->a) | f->b;
	case K_ENUM:
		return ((const __u64 *)f->of)[below(f->a)];
	case K_RANGE:
		return f->a + below(f->b - f->a + 1);
	case K_BYTES:
		return f->a << below(__builtin_ctzll(f->b) - __builtin_ctzll(f->a) + 1);
	case K_RESERVED:
		return 0;
	case K_OUT:
		return below(2) ? 0 : rnd();
	case K_ANY:
		return nasty(f->a);
	default:
		return f->kind < NR_POOLS ? pool_take(f->kind) : 0;
	}
}

static __u64 wrong_number(const struct field *f, __u64 right)
{
	/* No process has such an ID, so that no process outside of the fuzzer is affected. */
	static const __u32 strange_pids[] = { 0, ~0U, 0x80000000, 0x7fffffff, 0x400000, 0x400001 };

	switch (f->kind) {
	case K_PID:
		return strange_pids[below(6)];
	case K_BYTES:
		/* Either a small amount, or more than any machine has. */
		return below(2) ? below(65536) : -1ULL >> below(12);
	default:
		return nasty(right);
	}
}

static __u64 number_for(const struct field *f)
{
	__u64 right = right_number(f);

	return goes_wrong() ? wrong_number(f, right) : right;
}

static void put_number_at(char *to, __u32 bytes, __u64 v)
{
	for (__u32 i = 0; i < bytes; i += 8)
		memcpy(to + i, &v, bytes - i < 8 ? bytes - i : 8);
}

static __u64 number_at(const char *from, __u32 bytes)
{
	__u64 v = 0;

	memcpy(&v, from, bytes < 8 ? bytes : 8);
	return v;
}

static bool is_number(const struct field *f)
{
	switch (f->kind) {
	case K_SIZE:
	case K_TEXT:
	case K_BITS:
	case K_PTR:
	case K_BUFFER:
	case K_STRING:
	case K_MADE:
	case K_LEN:
	case K_COUNT:
		return false;
	default:
		return true;
	}
}

/* Other fields */

static void put_text(const struct field *f, char *to)
{
	const char *const *list = f->of;
	bool wrong = goes_wrong();

	memset(to, 0, f->bytes);
	snprintf(to, f->bytes, "%s", list[below(f->a)]);
	if (!wrong)
		return;
	switch (below(4)) {
	case 0:
		/* Without a terminating NUL. */
		memset(to, "a*0:"[below(4)], f->bytes);
		break;
	case 1:
		to[below(f->bytes)] = rnd();
		break;
	case 2:
		for (__u32 i = 0; i < f->bytes; i++)
			to[i] = rnd();
		break;
	default:
		/* The longest text that may be valid, or one byte less. */
		memset(to, 'b', f->bytes - 1 - below(2));
		break;
	}
}

static void put_bits(const struct field *f, char *to)
{
	memset(to, 0, f->bytes);
	for (__u64 n = below(4); n; n--) {
		__u64 bit = goes_wrong() ? below(f->bytes * 8) : pool_take(f->a);

		if (bit < f->bytes * 8U)
			to[bit / 8] |= 1 << bit % 8;
	}
}

static void fill(const struct shape *shape, char *to);

/* Creates what a pointer points to. Returns NULL, for a null pointer, if no area is left. */
static struct object *pointed(const struct field *f)
{
	const struct shape *shape = f->of;
	struct object *o;
	char *device;
	__u32 nr;

	if (gen.nr == NR_AREAS)
		return NULL;
	switch (f->kind) {
	case K_PTR:
		nr = below(16) ? 1 + below(f->a) : 0;
		o = object_new(shape, nr, nr * shape->bytes);
		for (__u32 i = 0; i < nr; i++)
			fill(shape, o->at + i * shape->bytes);
		return o;
	case K_STRING:
		nr = strlen(f->of) + 1;
		o = object_new(NULL, 1, nr);
		memcpy(o->at, f->of, nr);
		if (goes_wrong())
			o->at[below(nr)] = rnd();
		return o;
	case K_MADE:
		{
			static char room[AREA_BYTES];

			nr = ((made_t)f->of)(room, AREA_BYTES - 1024);
			o = object_new(NULL, 1, nr);
			memcpy(o->at, room, nr);
		}
		return o;
	default:
		o = object_new(NULL, 1, below(4) ? f->a : below(f->a + 1));
		memset(o->at, 0, o->bytes);
		device = gen.wild || !device_memory || below(8) ? NULL : device_memory(o->bytes);
		if (device) {
			o->seen = device;
			o->guarded = false;
		}
		return o;
	}
}

static void fill(const struct shape *shape, char *to)
{
	struct object *objects[32] = { NULL };
	const struct field *f;
	__u64 v;

	for (__u32 i = 0; i < shape->nr; i++) {
		f = &shape->fields[i];
		if (is_number(f)) {
			put_number_at(to + f->at, f->bytes, number_for(f));
		} else if (f->kind == K_TEXT) {
			put_text(f, to + f->at);
		} else if (f->kind == K_BITS) {
			put_bits(f, to + f->at);
		} else if (f->kind == K_SIZE) {
			v = f->of ? ((const struct shape *)f->of)->bytes : shape->bytes;
			if (goes_wrong()) {
				v = nasty(v);
				gen.lied = true;
			}
			put_number_at(to + f->at, f->bytes, v);
		} else if (f->kind != K_LEN && f->kind != K_COUNT) {
			objects[i] = pointed(f);
			put_number_at(to + f->at, f->bytes,
				      objects[i] ? (unsigned long)objects[i]->seen : 0);
		}
	}
	for (__u32 i = 0; i < shape->nr; i++) {
		f = &shape->fields[i];
		if (f->kind != K_LEN && f->kind != K_COUNT)
			continue;
		v = !objects[f->a] ? 0 : f->kind == K_LEN ? objects[f->a]->bytes :
							    objects[f->a]->nr;
		if (goes_wrong()) {
			v = nasty(v);
			gen.lied = true;
		}
		if (gen.nr_lengths < NR_LENGTHS)
			gen.lengths[gen.nr_lengths++] = (struct length) { to + f->at, f->bytes, v };
		else
			gen.lied = true;
		put_number_at(to + f->at, f->bytes, v);
	}
}

/* Restores lengths and counts, as a call may have written those that it wanted. */
static void lengths_again(void)
{
	for (int i = 0; i < gen.nr_lengths; i++)
		put_number_at(gen.lengths[i].at, gen.lengths[i].bytes, gen.lengths[i].v);
}

/* Generates a structure and all that it points to. */
static struct object *generate(const struct shape *shape)
{
	struct object *o;

	gen.nr = 0;
	gen.nr_lengths = 0;
	gen.wild = below(2);
	gen.lied = false;
	o = object_new(shape, 1, shape->bytes);
	fill(shape, o->at);
	return o;
}

/* Adds what a successful call has returned to the pools, for other calls. */
static void learn(void)
{
	for (int n = 0; n < gen.nr; n++) {
		const struct object *o = &gen.objects[n];

		for (__u32 i = 0; o->shape && i < o->nr * o->shape->nr; i++) {
			const struct field *f = &o->shape->fields[i % o->shape->nr];
			const char *at = o->at + i / o->shape->nr * o->shape->bytes + f->at;

			if (f->kind == K_OUT && f->a)
				pool_add(f->a - 1, number_at(at, f->bytes));
		}
	}
}

/*
 * Returns true if every byte of the structure belongs to exactly one field, also in those that it
 * points to.
 */
static bool shape_whole(const struct shape *shape)
{
	__u32 at = 0;

	for (bool found = true; found && at < shape->bytes;) {
		found = false;
		for (__u32 i = 0; i < shape->nr && !found; i++) {
			found = shape->fields[i].at == at;
			at += found ? shape->fields[i].bytes : 0;
		}
	}
	for (__u32 i = 0; i < shape->nr; i++) {
		const struct field *f = &shape->fields[i];

		if (f->kind == K_PTR && !shape_whole(f->of))
			return false;
	}
	if (at != shape->bytes || shape->nr > 32)
		note("%s: byte %u is not described", shape->name, at);
	return at == shape->bytes && shape->nr <= 32;
}

/* The second thread: it switches words between two valid or invalid values */

static struct {
	/* Futexes: the second thread waits for `wanted`, the caller waits for `on`. */
	int wanted, on;
	char *at;
	__u32 words;
	__u64 a[64], b[64];
} race;

static void race_set(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Waits until the word has another value than @value. */
static void race_wait(int *word, int value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void *racer(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (;;) {
		race_wait(&race.wanted, 0);
		race_set(&race.on, 1);
		/* Each of the two values is there half of the time. */
		for (const __u64 *from = race.b; __atomic_load_n(&race.wanted, __ATOMIC_RELAXED);
		     from = from == race.b ? race.a : race.b)
			for (__u32 i = 0; i < race.words; i++)
				if (race.a[i] != race.b[i])
					((volatile __u64 *)race.at)[i] = from[i];
		race_set(&race.on, 0);
	}
	return unused;
}

/*
 * Lets the second thread change one of the call's structures. False: the chosen one cannot change.
 */
static bool race_begin(void)
{
	const struct object *o = &gen.objects[below(gen.nr)];
	const struct field *f;

	if (!o->shape || !o->nr || !o->guarded || o->bytes > sizeof(race.a) ||
	    (unsigned long)o->at % 8)
		return false;
	race.at = o->at;
	race.words = o->bytes / 8;
	memcpy(race.a, o->at, race.words * 8);
	memcpy(race.b, o->at, race.words * 8);
	for (__u64 n = 1 + below(3); n; n--) {
		f = &o->shape->fields[below(o->shape->nr)];
		if (is_number(f) && f->at + f->bytes <= race.words * 8U)
			put_number_at((char *)race.b + f->at, f->bytes,
				      below(2) ? right_number(f) : wrong_number(f, 0));
	}
	gen.lied = true;
	race_set(&race.wanted, 1);
	race_wait(&race.on, 0);
	return true;
}

static void race_end(void)
{
	race_set(&race.wanted, 0);
	race_wait(&race.on, 1);
}

#endif
