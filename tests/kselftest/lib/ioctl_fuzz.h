/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Descriptions of the structures that the ioctls of a device take, and a generator of such
 * structures.
 *
 * Each field of a structure has a kind. About half of the calls that the fuzzer makes are valid,
 * and the others are invalid. In a valid call, every field has a value that is valid for its kind.
 * In an invalid call, about one field in four has a value that the device is likely to handle
 * wrongly. Structures are placed at odd addresses, at the end of a page, in read-only memory, or
 * partly or wholly in memory that is not mapped. In some calls a second thread changes a structure
 * during the call. The bytes around each structure must not change.
 *
 * ioctl_fuzz_calls.h makes the calls; ioctl_fuzz_run.h starts the processes that make them.
 */
#ifndef IOCTL_FUZZ_H
#define IOCTL_FUZZ_H

#include "kselftest_pc.h"
#include "random.h"
#include <stddef.h>

enum kind {
	/* K_PID to K_COUNTER: a number from the pool pools[kind] */
	K_PID, K_CPU, K_SLOT, K_KEY, K_MARKER, K_SET, K_PMC, K_PMD, K_COUNTER, NR_POOLS,
	K_CONST,	/* the number @a */
	K_SIZE,		/* size in bytes of this structure, or of shape @data */
	K_FLAGS,	/* some of the bits of @a and all bits of @b */
	K_ENUM,		/* one of the @a values at @data */
	K_RANGE,	/* a number from @a to @b */
	/* an amount of memory: a power of two from @a to @b, or an impossible amount */
	K_BYTES,
	K_TEXT,		/* characters: one of the @a strings at @data */
	K_BITS,		/* a bit mask: some numbers of pool @a */
	K_PTR,		/* address of an array of up to @a structures of shape @data */
	K_BUFFER,	/* address of up to @a bytes */
	K_STRING,	/* address of the string @data */
	K_GENERATED,	/* address of the bytes that the function @data has written */
	K_LEN,		/* size in bytes of the object that field number @a points to */
	K_COUNT,	/* number of structures that field number @a points to */
	K_RESERVED,	/* must be zero */
	K_OUT,		/* written by the kernel; if @a is not 0, added to pool @a - 1 */
	K_ANY,		/* any value is valid */
};

struct field {
	const char *name;
	__u16 at, bytes;
	__u8 kind;
	__u64 a, b;
	const void *data;
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

typedef size_t (*generate_fn)(char *to, size_t room);

/* Returns a boundary number such as 0 or 2^31, a number near @near, or any number. */
static __u64 boundary_number(__u64 near)
{
	switch (random_below(8)) {
	case 0:
		return 0;
	case 1:
		return near + (random_below(2) ? 1 : -1);
	case 2:
		return 1ULL << random_below(64);
	case 3:
		return (1ULL << random_below(64)) - 1;
	case 4:
		return -1ULL << random_below(64);
	case 5:
		return -near;
	case 6:
		return random_below(1 << 16);
	default:
		return random_u64();
	}
}

/* Pools: numbers of objects that exist at the moment */

#define MAX_POOL	32

static struct pool {
	__u64 v[MAX_POOL];
	__u32 nr;
} pools[NR_POOLS];

static void pool_add(enum kind kind, __u64 value)
{
	struct pool *pool = &pools[kind];

	for (__u32 i = 0; i < pool->nr; i++)
		if (pool->v[i] == value)
			return;
	if (pool->nr < MAX_POOL)
		pool->v[pool->nr++] = value;
	else
		pool->v[random_below(MAX_POOL)] = value;
}

/* Takes one of the first three values more often, so that calls use objects of earlier calls. */
static __u64 pool_take(enum kind kind)
{
	const struct pool *pool = &pools[kind];

	if (!pool->nr)
		return 0;
	return pool->v[random_below(random_below(4) && pool->nr > 3 ? 3 : pool->nr)];
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

		bail_if(fd < 0 || ftruncate(fd, AREA_BYTES), "memfd_create");
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

/* A child of fork() would share the areas of its parent, so it maps new areas in their place. */
static void remap_areas(void)
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
	char *at;			/* the address at which this process writes the object */
	char *passed;			/* the address that is passed to the call */
	bool guarded;			/* the bytes around the object must not change */
};

/* Maximum number of length and count fields in the structures of one call. */
#define NR_LENGTHS	64

static struct {
	struct object objects[NR_AREAS];
	int nr;
	/* Values of the fields that hold the length or the count of another object. */
	struct length {
		char *at;
		__u32 bytes;
		__u64 v;
	} lengths[NR_LENGTHS];
	int nr_lengths;
	bool some_wrong;	/* some fields of this call are wrong */
	bool size_is_wrong;	/* the call may write any bytes behind an object */
} gen;

/* Returns an address in a mapping of the device, or NULL if the device is not mapped. */
static char *(*device_memory)(size_t bytes);

static bool choose_wrong(void)
{
	return gen.some_wrong && !random_below(4);
}

static char *unmapped_address(const struct area *area)
{
	static const __u64 places[] = {
		0, 1, 8, 4096, 1ULL << 63, 0x7ffffffff000ULL, 0x800000000000ULL,
		0xffff888000000000ULL, 0xffffffff81000000ULL, -8ULL, -4096ULL,
	};
	__u64 n = random_below(sizeof(places) / sizeof(*places) + 2);

	return n < sizeof(places) / sizeof(*places) ? (char *)places[n] : area->write + AREA_BYTES;
}

static struct object *new_object(const struct shape *shape, __u32 nr, size_t bytes)
{
	struct area *area = &areas[gen.nr];
	struct object *o = &gen.objects[gen.nr++];
	size_t offset = CANARY + 8 * random_below(64), rest;

	*o = (struct object){ .shape = shape, .nr = nr, .bytes = bytes, .guarded = true };
	if (bytes > AREA_BYTES - 1024 || !random_below(4))
		offset = AREA_BYTES - bytes;
	else if (!random_below(8))
		offset += 1 + random_below(7);
	o->at = area->write + offset;
	o->passed = o->at;
	rest = AREA_BYTES - offset - bytes;
	memset(o->at - (offset < CANARY ? offset : CANARY), CANARY_BYTE,
	       offset < CANARY ? offset : CANARY);
	memset(o->at + bytes, CANARY_BYTE, rest < CANARY ? rest : CANARY);
	if (!gen.some_wrong || random_below(4))
		return o;
	switch (random_below(4)) {
	case 0:
		o->passed = area->read + offset;
		break;
	case 1:
		/*
		 * Places the object at the end of its area, and passes an address inside the
		 * object. No memory is mapped behind the area. If a call accesses the whole size of
		 * the object from the passed address on, it may therefore access an address that is
		 * not mapped.
		 */
		o->at = area->write + AREA_BYTES - bytes;
		o->passed = o->at + random_below(bytes + 1);
		o->guarded = false;
		break;
	case 2:
		o->passed = unmapped_address(area);
		break;
	default:
		break;
	}
	return o;
}

static bool is_object_intact(const struct object *o)
{
	const struct area *area = &areas[o - gen.objects];
	size_t offset = o->at - area->write, rest = AREA_BYTES - offset - o->bytes;

	if (!o->guarded || gen.size_is_wrong)
		return true;
	for (size_t i = 1; i <= CANARY && i <= offset; i++)
		if ((unsigned char)o->at[-i] != CANARY_BYTE)
			return false;
	for (size_t i = 0; i < CANARY && i < rest; i++)
		if ((unsigned char)o->at[o->bytes + i] != CANARY_BYTE)
			return false;
	return true;
}

static __u64 valid_number(const struct field *f)
{
	switch (f->kind) {
	case K_CPU:
		return random_below(4) ? (__u64)sched_getcpu() : random_below(4);
	case K_CONST:
		return f->a;
	case K_FLAGS:
		return (random_below(2) ? 0 : random_u64() & random_u64() & f->a) | f->b;
	case K_ENUM:
		return ((const __u64 *)f->data)[random_below(f->a)];
	case K_RANGE:
		return f->a + random_below(f->b - f->a + 1);
	case K_BYTES:
		return f->a << random_below(__builtin_ctzll(f->b) - __builtin_ctzll(f->a) + 1);
	case K_RESERVED:
		return 0;
	case K_OUT:
		return random_below(2) ? 0 : random_u64();
	case K_ANY:
		return boundary_number(f->a);
	default:
		return f->kind < NR_POOLS ? pool_take(f->kind) : 0;
	}
}

static __u64 invalid_number(const struct field *f, __u64 valid)
{
	/* No process has one of these IDs, so no call affects other processes. */
	static const __u32 invalid_pids[] = { 0, ~0U, 0x80000000, 0x7fffffff, 0x400000, 0x400001 };

	switch (f->kind) {
	case K_PID:
		return invalid_pids[random_below(6)];
	case K_BYTES:
		/* A length is either small, or larger than the memory of any machine. */
		return random_below(2) ? random_below(65536) : -1ULL >> random_below(12);
	default:
		return boundary_number(valid);
	}
}

static __u64 generate_number(const struct field *f)
{
	__u64 valid = valid_number(f);

	return choose_wrong() ? invalid_number(f, valid) : valid;
}

static void store_number(char *to, __u32 bytes, __u64 v)
{
	for (__u32 i = 0; i < bytes; i += 8)
		memcpy(to + i, &v, bytes - i < 8 ? bytes - i : 8);
}

static __u64 load_number(const char *from, __u32 bytes)
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
	case K_GENERATED:
	case K_LEN:
	case K_COUNT:
		return false;
	default:
		return true;
	}
}

static void generate_text(const struct field *f, char *to)
{
	const char *const *list = f->data;
	bool wrong = choose_wrong();

	memset(to, 0, f->bytes);
	snprintf(to, f->bytes, "%s", list[random_below(f->a)]);
	if (!wrong)
		return;
	switch (random_below(4)) {
	case 0:
		/* The text has no terminating NUL. */
		memset(to, "a*0:"[random_below(4)], f->bytes);
		break;
	case 1:
		to[random_below(f->bytes)] = random_u64();
		break;
	case 2:
		for (__u32 i = 0; i < f->bytes; i++)
			to[i] = random_u64();
		break;
	default:
		/* The text has the greatest length that may be valid, or one byte less. */
		memset(to, 'b', f->bytes - 1 - random_below(2));
		break;
	}
}

static void generate_bits(const struct field *f, char *to)
{
	memset(to, 0, f->bytes);
	for (__u64 n = random_below(4); n; n--) {
		__u64 bit = choose_wrong() ? random_below(f->bytes * 8) : pool_take(f->a);

		if (bit < f->bytes * 8U)
			to[bit / 8] |= 1 << bit % 8;
	}
}

static void fill_object(const struct shape *shape, char *to);

/* Returns NULL, which makes the pointer field null, if no area is left. */
static struct object *generate_pointed(const struct field *f)
{
	const struct shape *shape = f->data;
	struct object *o;
	char *device;
	__u32 nr;

	if (gen.nr == NR_AREAS)
		return NULL;
	switch (f->kind) {
	case K_PTR:
		nr = random_below(16) ? 1 + random_below(f->a) : 0;
		o = new_object(shape, nr, nr * shape->bytes);
		for (__u32 i = 0; i < nr; i++)
			fill_object(shape, o->at + i * shape->bytes);
		return o;
	case K_STRING:
		nr = strlen(f->data) + 1;
		o = new_object(NULL, 1, nr);
		memcpy(o->at, f->data, nr);
		if (choose_wrong())
			o->at[random_below(nr)] = random_u64();
		return o;
	case K_GENERATED:
		{
			static char room[AREA_BYTES];

			nr = ((generate_fn)f->data)(room, AREA_BYTES - 1024);
			o = new_object(NULL, 1, nr);
			memcpy(o->at, room, nr);
		}
		return o;
	default:
		o = new_object(NULL, 1, random_below(4) ? f->a : random_below(f->a + 1));
		memset(o->at, 0, o->bytes);
		device = gen.some_wrong || !device_memory ||
			random_below(8) ? NULL : device_memory(o->bytes);
		if (device) {
			o->passed = device;
			o->guarded = false;
		}
		return o;
	}
}

static void fill_object(const struct shape *shape, char *to)
{
	struct object *objects[32] = { NULL };
	const struct field *f;
	__u64 v;

	for (__u32 i = 0; i < shape->nr; i++) {
		f = &shape->fields[i];
		if (is_number(f)) {
			store_number(to + f->at, f->bytes, generate_number(f));
		} else if (f->kind == K_TEXT) {
			generate_text(f, to + f->at);
		} else if (f->kind == K_BITS) {
			generate_bits(f, to + f->at);
		} else if (f->kind == K_SIZE) {
			v = f->data ? ((const struct shape *)f->data)->bytes : shape->bytes;
			if (choose_wrong()) {
				v = boundary_number(v);
				gen.size_is_wrong = true;
			}
			store_number(to + f->at, f->bytes, v);
		} else if (f->kind != K_LEN && f->kind != K_COUNT) {
			objects[i] = generate_pointed(f);
			store_number(to + f->at, f->bytes,
				     objects[i] ? (unsigned long)objects[i]->passed : 0);
		}
	}
	for (__u32 i = 0; i < shape->nr; i++) {
		f = &shape->fields[i];
		if (f->kind != K_LEN && f->kind != K_COUNT)
			continue;
		v = !objects[f->a] ? 0 : f->kind == K_LEN ? objects[f->a]->bytes :
							    objects[f->a]->nr;
		if (choose_wrong()) {
			v = boundary_number(v);
			gen.size_is_wrong = true;
		}
		if (gen.nr_lengths < NR_LENGTHS)
			gen.lengths[gen.nr_lengths++] = (struct length) { to + f->at, f->bytes, v };
		else
			gen.size_is_wrong = true;
		store_number(to + f->at, f->bytes, v);
	}
}

/* A call may have overwritten length and count fields with the sizes that it requires. */
static void restore_lengths(void)
{
	for (int i = 0; i < gen.nr_lengths; i++)
		store_number(gen.lengths[i].at, gen.lengths[i].bytes, gen.lengths[i].v);
}

static struct object *generate(const struct shape *shape)
{
	struct object *o;

	gen.nr = 0;
	gen.nr_lengths = 0;
	gen.some_wrong = random_below(2);
	gen.size_is_wrong = false;
	o = new_object(shape, 1, shape->bytes);
	fill_object(shape, o->at);
	return o;
}

/* Later calls use the IDs and numbers that a successful call has returned. */
static void collect_numbers(void)
{
	for (int n = 0; n < gen.nr; n++) {
		const struct object *o = &gen.objects[n];

		for (__u32 i = 0; o->shape && i < o->nr * o->shape->nr; i++) {
			const struct field *f = &o->shape->fields[i % o->shape->nr];
			const char *src = o->at + i / o->shape->nr * o->shape->bytes + f->at;

			if (f->kind == K_OUT && f->a)
				pool_add(f->a - 1, load_number(src, f->bytes));
		}
	}
}

/* Each byte of a structure, and of those that it points to, must belong to exactly one field. */
static bool is_shape_complete(const struct shape *shape)
{
	__u32 offset = 0;

	for (bool found = true; found && offset < shape->bytes;) {
		found = false;
		for (__u32 i = 0; i < shape->nr && !found; i++) {
			found = shape->fields[i].at == offset;
			offset += found ? shape->fields[i].bytes : 0;
		}
	}
	for (__u32 i = 0; i < shape->nr; i++) {
		const struct field *f = &shape->fields[i];

		if (f->kind == K_PTR && !is_shape_complete(f->data))
			return false;
	}
	if (offset != shape->bytes || shape->nr > 32)
		note("%s: byte %u is not described", shape->name, offset);
	return offset == shape->bytes && shape->nr <= 32;
}

#endif
