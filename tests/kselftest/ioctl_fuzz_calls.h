/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the calls that ioctl_fuzz.h generates, among opens, mappings and reads.
 *
 * A program of the fuzzer describes its device in a struct program; ioctl_fuzz_run.h has its main
 * function. The outcomes of the calls are counted in memory that all processes share. It also has
 * the last call of each process.
 */
#ifndef IOCTL_FUZZ_CALLS_H
#define IOCTL_FUZZ_CALLS_H

#include "ioctl_fuzz.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/ioctl.h>

#define MAX_ROWS	64
#define MAX_FDS		64
#define MAX_MAPS	16
#define KIDS		3
#define VARIANTS	24	/* of one call, at most */
#define MAX_ERRNO	134

/* Roles of a descriptor. Programs define bits of their own between these. */
#define R_NEW	0x0001	/* of the device, just opened */
#define R_ALIEN	0x4000	/* of another file */
#define R_ODD	0x8000	/* of the device, with an unknown state */
#define R_ANY	0xffff

/* struct call.flags */
#define C_STRICT	1	/* only with descriptors of this role */
#define C_CAREFUL	2	/* only with this shape, and not in memory of the device */
#define C_NULL		4	/* the structure may be left out */

struct call {
	const char *name;
	unsigned long request;
	const struct shape *arg;	/* NULL: no argument */
	__u16 wants;			/* roles of its descriptor */
	__u16 gives;			/* the role of the descriptor after success; 0: unchanged */
	__u8 flags;
};

#define CALL(request, arg, wants, gives, flags)	{ #request, request, arg, wants, gives, flags }

/* A range of the device that can be mapped. Bytes 0: a few pages, a random number of them. */
struct range {
	__u64 at;
	size_t bytes;
	int prot;
};

struct program {
	const char *device;
	const struct call *calls;
	int nr_calls;
	/* Operations other than ioctls. Their rows follow those of the calls. */
	const char *const *extras;
	int nr_extras;
	void (*extra)(void);		/* makes one of them */
	struct range *ranges;
	int nr_ranges;
	/* Returns the role of a descriptor after a call; NULL: it is call->gives. */
	__u16 (*role)(const struct call *call, const void *arg);
	void (*begin)(void);		/* called in a round's process, and in each child of it */
	void (*after)(void);		/* called in the test, after a round */
};

static const struct program *program;
static int round_number;

struct last {
	volatile pid_t pid;
	volatile __u64 number;
	const char *name, *shape;
	int fd;
	__u64 arg;
	__u32 bytes;
	unsigned char first[64];
};

static struct {
	volatile __u64 steps;
	unsigned long good[MAX_ROWS], refused[MAX_ROWS];
	unsigned int errnos[MAX_ROWS][MAX_ERRNO];
	__u64 ns[MAX_ROWS];
	unsigned int wrong, hung, died, raced;
	volatile bool done;
	struct last last[1 + KIDS];
} *shared;

static struct last *last;
static bool has_racer;

#define count_up(what)	__atomic_fetch_add(&(what), 1, __ATOMIC_RELAXED)

__attribute__((format(printf, 2, 3)))
static bool sane(bool is_sane, const char *fmt, ...)
{
	va_list ap;
	char line[200];

	if (is_sane || count_up(shared->wrong) >= 10)
		return is_sane;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	note("round %d, uid %d: %s", round_number, getuid(), line);
	return false;
}

/*
 * Counts the outcome of a call and returns @ret. An error must be an errno of user space, not one
 * that is internal to the kernel.
 */
static long outcome(int row, const char *what, long ret)
{
	int error = errno;

	if (ret >= 0) {
		if (row >= 0)
			count_up(shared->good[row]);
		return ret;
	}
	if (sane(error > 0 && error < MAX_ERRNO, "%s: errno %d", what, error) && row >= 0) {
		count_up(shared->refused[row]);
		count_up(shared->errnos[row][error]);
	}
	errno = error;
	return ret;
}

/* Counts the outcome of one of the program's extra operations. */
static long extra_outcome(int extra, long ret)
{
	return outcome(program->nr_calls + extra, program->extras[extra], ret);
}

static void remember(const char *name, int fd, unsigned long arg, const struct object *o)
{
	last->name = name;
	last->fd = fd;
	last->arg = arg;
	last->shape = o && o->shape ? o->shape->name : "";
	last->bytes = o ? o->bytes : 0;
	if (o)
		memcpy(last->first, o->at, o->bytes < 64 ? o->bytes : 64);
	last->number++;
}

/* Accesses that may fault */

static sigjmp_buf jump;
static volatile bool may_fault;

static void on_fault(int sig)
{
	if (may_fault)
		siglongjmp(jump, sig);
	_exit(100 + sig);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Calls a function that may fault. Returns 0, or the signal that it raised. */
static __attribute__((noinline)) int try_call(void (*function)(void))
{
	int sig = sigsetjmp(jump, 1);

	if (!sig) {
		may_fault = true;
		function();
	}
	may_fault = false;
	return sig;
}

static __attribute__((noinline)) int try_copy(void *to, const void *from, size_t bytes)
{
	int sig = sigsetjmp(jump, 1);

	if (!sig) {
		may_fault = true;
		memcpy(to, from, bytes);
	}
	may_fault = false;
	return sig;
}

/* Descriptors */

static struct opened {
	int fd;
	__u16 role;
} fds[MAX_FDS];
static int nr_fds;

static void fd_close(int n)
{
	close(fds[n].fd);
	fds[n] = fds[--nr_fds];
}

static void fd_add(int fd, __u16 role)
{
	if (fd < 0)
		return;
	if (nr_fds == MAX_FDS)
		fd_close(below(MAX_FDS));
	fds[nr_fds++] = (struct opened) { fd, role };
}

static struct opened *fd_open(void)
{
	int fd = open(program->device,
		      O_RDWR | O_CLOEXEC | (below(8) ? O_NONBLOCK : 0));

	if (fd < 0)
		fd = open(program->device, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	outcome(-1, "open", fd);
	fd_add(fd, R_NEW);
	return fd < 0 ? NULL : &fds[nr_fds - 1];
}

/* Returns a descriptor with one of these roles, or NULL. */
static struct opened *fd_of(__u16 roles)
{
	int from = below(nr_fds);

	for (int i = 0; i < nr_fds; i++) {
		struct opened *o = &fds[(from + i) % nr_fds];

		if (o->role & roles)
			return o;
	}
	return roles & R_NEW ? fd_open() : NULL;
}

/* Mappings of the device */

static struct map {
	char *at;
	size_t bytes;
	int prot;
} maps[MAX_MAPS];
static int nr_maps;

static void map_add(char *at, size_t bytes, int prot)
{
	struct map *map = &maps[below(MAX_MAPS)];

	if (nr_maps < MAX_MAPS)
		map = &maps[nr_maps++];
	else
		munmap(map->at, map->bytes);
	*map = (struct map) { at, bytes, prot };
}

static void map_touch(const struct map *map)
{
	char *word = map->at + 8 * (below(2) ? below(map->bytes / 8) : below(8));
	__u64 value = 0;
	int sig = try_copy(&value, word, sizeof(value));

	sane(sig != SIGSEGV || !(map->prot & PROT_READ), "SIGSEGV at a mapping that can be read");
	value = nasty(value);
	if (map->prot & PROT_WRITE)
		try_copy(word, &value, sizeof(value));
}

/* After fork(): forgets mappings that were not copied, as others may take their addresses. */
static void maps_anew(void)
{
	static unsigned char there[1 << 18];
	int nr = 0;

	for (int i = 0; i < nr_maps; i++)
		if (maps[i].bytes / 4096 <= sizeof(there) &&
		    !mincore(maps[i].at, maps[i].bytes, there))
			maps[nr++] = maps[i];
	nr_maps = nr;
}

static char *memory_of_device(size_t bytes)
{
	for (int i = 0; i < nr_maps; i++)
		if (maps[i].bytes >= bytes && below(2))
			return maps[i].at + (maps[i].bytes - bytes) / 8 * 8;
	return NULL;
}

/* Operations */

/* Returns the number with one bit changed, unless that is the number of another call. */
static unsigned long strange_request(unsigned long request)
{
	unsigned long strange = request ^ 1UL << below(32);

	for (int i = 0; i < program->nr_calls; i++)
		if (program->calls[i].request == strange)
			return request;
	return strange;
}

/* Counts a step of this process. */
static int steps_done;

static void step(void)
{
	count_up(shared->steps);
	steps_done++;
}

static int make_call(int row, int fd, unsigned long request, unsigned long arg)
{
	struct timespec from, to;
	int ret, error;

	clock_gettime(CLOCK_MONOTONIC, &from);
	ret = ioctl(fd, request, arg);
	error = errno;
	clock_gettime(CLOCK_MONOTONIC, &to);
	__atomic_fetch_add(&shared->ns[row], (to.tv_sec - from.tv_sec) * 1000000000LL +
			   to.tv_nsec - from.tv_nsec, __ATOMIC_RELAXED);
	errno = error;
	return ret;
}

static void objects_sane(const struct call *call)
{
	for (int i = 0; i < gen.nr; i++)
		sane(object_intact(&gen.objects[i]), "%s: bytes beside a structure (%s) changed",
		     call->name, gen.objects[i].shape ? gen.objects[i].shape->name : "bytes");
}

/*
 * Repeats the call, with one more number changed each time. To generate new structures takes longer
 * than most calls do.
 */
static void do_variants(int row, const struct opened *opened, unsigned long arg)
{
	const struct call *call = &program->calls[row];
	__u64 nr = program->nr_calls;

	/* Programs with few calls make few variants. Else there would be little besides. */
	for (__u64 n = below(1 + (nr < VARIANTS ? nr : VARIANTS)); n; n--) {
		const struct object *o = &gen.objects[below(gen.nr)];
		const struct field *f = o->shape ? &o->shape->fields[below(o->shape->nr)] : NULL;
		__u64 right;

		if (!f || !o->nr || !is_number(f))
			continue;
		right = right_number(f);
		put_number_at(o->at + below(o->nr) * o->shape->bytes + f->at, f->bytes,
			      below(4) ? right : wrong_number(f, right));
		lengths_again();
		step();
		remember(call->name, opened->fd, arg, o);
		if (outcome(row, call->name, make_call(row, opened->fd, call->request, arg)) >= 0)
			learn();
		objects_sane(call);
	}
}

static void do_call(void)
{
	int row = below(program->nr_calls), ret, error;
	const struct call *call = &program->calls[row];
	const struct shape *shape = call->arg;
	unsigned long request = call->request, arg = below(4) ? 0 : nasty(0);
	struct opened *opened;
	struct object *o = NULL;
	bool raced = false;
	char *device;

	/*
	 * Calls that create something are rare. Else most files would be new ones, and closing
	 * takes long.
	 */
	if (call->gives && below(4))
		return;
	opened = fd_of(call->wants);
	if (!(call->flags & C_STRICT) && nr_fds && !below(8))
		opened = &fds[below(nr_fds)];
	if (!opened)
		return;
	gen.nr = 0;
	if (shape) {
		bool careful = call->flags & C_CAREFUL;

		/* Sometimes the structure of another call. */
		if (!careful && !below(64))
			shape = program->calls[below(program->nr_calls)].arg ?: shape;
		o = generate(shape);
		gen.lied |= shape != call->arg;
		arg = (unsigned long)o->seen;
		device = careful || gen.lied || below(32) ? NULL : memory_of_device(o->bytes);
		if (device) {
			try_copy(device, o->at, o->bytes);
			arg = (unsigned long)device;
		}
		if ((call->flags & C_NULL) && !below(3))
			arg = 0;
		raced = has_racer && !below(24) && race_begin();
	}
	if (!below(64))
		request = strange_request(request);
	remember(call->name, opened->fd, arg, o);
	ret = make_call(row, opened->fd, request, arg);
	error = errno;
	if (raced)
		race_end();
	errno = error;
	if (request != call->request) {
		sane(ret < 0, "%s: the unknown number %#lx succeeds", call->name, request);
		outcome(-1, call->name, ret);
		return;
	}
	outcome(row, call->name, ret);
	objects_sane(call);
	if (ret >= 0)
		learn();
	if (!call->gives) {
		/* Variants of a refused call are mostly refused as well. */
		if (o && !gen.lied && o->guarded && arg == (unsigned long)o->at &&
		    (ret >= 0 || !below(4)))
			do_variants(row, opened, arg);
	} else if (ret < 0) {
		/* Another descriptor of the same file has created something. */
		if (error == EBUSY && opened->role == R_NEW)
			opened->role = R_ODD;
	} else if (raced || shape != call->arg || arg != (unsigned long)o->at) {
		opened->role = R_ODD;
	} else {
		opened->role = program->role ? program->role(call, o->at) : call->gives;
	}
}

static void do_open(void)
{
	int pipes[2];

	switch (below(6)) {
	case 0:
		if (!pipe2(pipes, O_NONBLOCK | O_CLOEXEC)) {
			fd_add(pipes[0], R_ALIEN);
			close(pipes[1]);
		}
		break;
	case 1:
		fd_add(open("/dev/null", O_RDWR | O_CLOEXEC), R_ALIEN);
		break;
	case 2:
		/* With O_PATH or similar flags it is not the device's file. */
		fd_add(open(program->device, (rnd() & (O_ACCMODE | O_PATH | O_APPEND | O_DIRECT |
						       O_SYNC | O_NOFOLLOW)) | O_CLOEXEC |
						      O_NONBLOCK), R_ODD);
		break;
	default:
		fd_open();
		break;
	}
}

static void do_dup(void)
{
	int n = below(nr_fds);

	if (nr_fds)
		fd_add(fcntl(fds[n].fd, F_DUPFD_CLOEXEC, 0), fds[n].role);
}

static void do_close(void)
{
	if (nr_fds)
		fd_close(below(nr_fds));
}

static void do_map(void)
{
	static const __u8 pages[] = { 1, 1, 2, 3, 4, 5, 8, 9, 16, 17 };
	struct opened *opened = fd_of(below(8) ? R_ANY & ~(R_NEW | R_ALIEN) : R_ANY);
	size_t bytes = 4096UL * pages[below(sizeof(pages))];
	int prot = below(8), flags = below(8) ? MAP_SHARED : MAP_PRIVATE;
	off_t at = 0;
	char *p;

	if (!opened)
		return;
	if (program->nr_ranges && below(8)) {
		const struct range *range = &program->ranges[below(program->nr_ranges)];

		at = range->at;
		bytes = range->bytes ?: bytes;
		prot = range->prot;
	}
	if (!below(8))
		at = nasty(at) & ~(below(8) ? 4095ULL : 0);
	if (!below(8))
		bytes = nasty(bytes);
	/*
	 * A populated huge mapping would take the memory of the device's buffers for page tables.
	 */
	flags |= below(16) || bytes > (1 << 20) ? 0 : MAP_POPULATE;
	remember("mmap", opened->fd, at, NULL);
	p = mmap(NULL, bytes, prot, flags, opened->fd, at);
	outcome(-1, "mmap", p == MAP_FAILED ? -1 : 0);
	if (p != MAP_FAILED)
		map_add(p, (bytes + 4095) & ~4095UL, prot);
}

static void do_touch(void)
{
	remember("touch", 0, 0, NULL);
	for (int i = 0; nr_maps && i < 4; i++)
		map_touch(&maps[below(nr_maps)]);
}

static void do_arena(void)
{
	struct map *map = &maps[below(nr_maps)];
	size_t part;
	char *p;

	if (!nr_maps)
		return;
	part = (1 + below(map->bytes / 4096)) * 4096;
	remember("madvise and others", 0, (unsigned long)map->at, NULL);
	switch (below(5)) {
	case 0:
		outcome(-1, "madvise", madvise(map->at, part, below(26)));
		break;
	case 1:
		map->prot = below(8);
		if (outcome(-1, "mprotect", mprotect(map->at, map->bytes, map->prot)))
			map->prot = 0;
		break;
	case 2:
		p = mremap(map->at, map->bytes, part, below(2) ? MREMAP_MAYMOVE : 0);
		outcome(-1, "mremap", p == MAP_FAILED ? -1 : 0);
		if (p != MAP_FAILED)
			*map = (struct map) { p, part, map->prot };
		break;
	case 3:
		/* Unmaps the end of the mapping. The rest keeps its address. */
		outcome(-1, "munmap", munmap(map->at + map->bytes - part, part));
		map->bytes -= part;
		if (!map->bytes)
			*map = maps[--nr_maps];
		break;
	default:
		outcome(-1, "munmap", munmap(map->at, map->bytes));
		*map = maps[--nr_maps];
		break;
	}
}

static void do_read(void)
{
	static const size_t sizes[] = { 488, 488 * 20, 48, 96, 128, 4096 };
	struct opened *opened = fd_of(R_ANY);
	size_t bytes = below(4) ? sizes[below(6)] : below(AREA_BYTES / 2);
	struct object *o;
	ssize_t got;

	gen.nr = 0;
	gen.wild = below(2);
	gen.lied = !below(16);
	o = object_new(NULL, 1, bytes);
	if (!opened)
		return;
	/*
	 * With a wrong length it may exceed the buffer. The page behind the area cannot be written.
	 */
	remember("read", opened->fd, (unsigned long)o->seen, NULL);
	got = outcome(-1, "read", read(opened->fd, o->seen, gen.lied ? nasty(bytes) : bytes));
	sane(gen.lied || got <= (ssize_t)bytes, "read of %zu bytes gave %zd", bytes, got);
	sane(object_intact(o), "read() has written beside its buffer");
}

static void do_descriptor(void)
{
	struct opened *opened = fd_of(R_ANY);
	struct pollfd some[4];
	int nr = 1 + below(4), fd;

	if (!opened)
		return;
	fd = opened->fd;
	remember("poll and others", fd, 0, NULL);
	switch (below(5)) {
	case 0:
		outcome(-1, "lseek", lseek(fd, below(2) ? 0 : nasty(0), below(6)));
		break;
	case 1:
		/* SIGIO goes to this process, which ignores it. */
		fcntl(fd, F_SETOWN, getpid());
		outcome(-1, "fcntl", fcntl(fd, F_SETFL, (below(8) ? O_NONBLOCK : 0) |
							(below(2) ? O_ASYNC : 0)));
		break;
	case 2:
		outcome(-1, "write", pwrite(fd, race.a, below(64), nasty(0)));
		break;
	default:
		for (int i = 0; i < nr; i++)
			some[i] = (struct pollfd) { fd_of(R_ANY)->fd, rnd(), 0 };
		outcome(-1, "poll", poll(some, nr, below(3)));
		break;
	}
}

static void do_move(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(below(2), &set);
	if (below(2))
		CPU_SET(below(2), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

#endif
