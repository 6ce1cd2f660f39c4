/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the calls that ioctl_fuzz.h generates. Between the calls the fuzzer opens, maps and reads
 * the device.
 *
 * Each program of the fuzzer describes its device in a struct program. The main function of all
 * programs is in ioctl_fuzz_run.h. The outcomes of the calls, and the last call of each process,
 * are stored in memory that all processes share.
 */
#ifndef IOCTL_FUZZ_CALLS_H
#define IOCTL_FUZZ_CALLS_H

#include "ioctl_fuzz_race.h"
#include <setjmp.h>
#include <sys/ioctl.h>

#define MAX_ROWS	64
#define MAX_FDS		64
#define MAX_MAPS	16
#define NR_CHILDREN	3
#define MAX_VARIANTS	24	/* maximum number of variants of one call */
#define MAX_ERRNO	134

/* Roles of a descriptor. Programs define the bits between R_NEW and R_OTHER_FILE. */
#define R_NEW	0x0001	/* a descriptor of the device, just opened */
#define R_OTHER_FILE	0x4000	/* a descriptor of another file */
#define R_UNKNOWN	0x8000	/* a descriptor of the device in an unknown state */
#define R_ANY	0xffff

/* struct call.flags */
#define C_ROLE_ONLY	1	/* the call's descriptor always has one of the roles @roles */
#define C_SHAPE_ONLY	2	/* the argument has the shape @arg, and is not in device memory */
#define C_NULL_OK	4	/* the argument may be NULL */

struct call {
	const char *name;
	unsigned long request;
	const struct shape *arg;	/* NULL: the call has no argument */
	__u16 roles;			/* roles of the descriptors for the call */
	__u16 new_role;			/* the role of the descriptor after success; 0: unchanged */
	__u8 flags;
};

#define CALL(request, arg, wants, gives, flags)	{ #request, request, arg, wants, gives, flags }

/* A range of the device that can be mapped. If bytes is 0, a random number of pages is mapped. */
struct range {
	__u64 at;
	size_t bytes;
	int prot;
};

struct program {
	const char *device;
	const struct call *calls;
	int nr_calls;
	/* Operations other than ioctls, whose rows follow those of the ioctls. */
	const char *const *extras;
	int nr_extras;
	void (*extra)(void);		/* makes one of the extra operations */
	struct range *ranges;
	int nr_ranges;
	/*
	 * Returns the role (R_...) that a descriptor gets after @call has created an object on it.
	 * If the pointer to this function is NULL, the descriptor gets the role call->new_role.
	 */
	__u16 (*role)(const struct call *call, const void *arg);
	/* Called at the start of each process that makes calls (see begin_process()). */
	void (*init_process)(void);
	/* Called in the main process of the fuzzer after each round of calls. */
	void (*after_round)(void);
};

static const struct program *program;
static int round_number;

struct last_call {
	volatile pid_t pid;
	volatile __u64 number;
	const char *name, *shape;
	int fd;
	__u64 arg;
	__u32 bytes;
	unsigned char first_bytes[64];
};

static struct {
	volatile __u64 steps;
	unsigned long nr_good[MAX_ROWS], nr_refused[MAX_ROWS];
	unsigned int errnos[MAX_ROWS][MAX_ERRNO];
	__u64 ns[MAX_ROWS];
	unsigned int nr_wrong, nr_hung, nr_died, raced;
	volatile bool done;
	struct last_call last_calls[1 + NR_CHILDREN];
} *shared;

static struct last_call *last_call;
static bool has_race_thread;

#define count_up(what)	__atomic_fetch_add(&(what), 1, __ATOMIC_RELAXED)

__attribute__((format(printf, 2, 3)))
static bool expect_sane(bool is_sane, const char *fmt, ...)
{
	va_list ap;
	char line[200];

	if (is_sane || count_up(shared->nr_wrong) >= 10)
		return is_sane;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	note("round %d, uid %d: %s", round_number, getuid(), line);
	return false;
}

/* The errno of a failed call must be one of user space. Returns @ret. */
static long count_outcome(int row, const char *what, long ret)
{
	int error = errno;

	if (ret >= 0) {
		if (row >= 0)
			count_up(shared->nr_good[row]);
		return ret;
	}
	if (expect_sane(error > 0 && error < MAX_ERRNO, "%s: errno %d", what, error) && row >= 0) {
		count_up(shared->nr_refused[row]);
		count_up(shared->errnos[row][error]);
	}
	errno = error;
	return ret;
}

/* Counts the outcome of one of the program's extra operations. */
static long count_extra_outcome(int extra, long ret)
{
	return count_outcome(program->nr_calls + extra, program->extras[extra], ret);
}

static void record_call(const char *name, int fd, unsigned long arg, const struct object *o)
{
	last_call->name = name;
	last_call->fd = fd;
	last_call->arg = arg;
	last_call->shape = o && o->shape ? o->shape->name : "";
	last_call->bytes = o ? o->bytes : 0;
	if (o)
		memcpy(last_call->first_bytes, o->at, o->bytes < 64 ? o->bytes : 64);
	last_call->number++;
}

/* Accesses that may fault */

static sigjmp_buf fault_jmp;
static volatile bool may_fault;

static void on_fault(int sig)
{
	if (may_fault)
		siglongjmp(fault_jmp, sig);
	_exit(100 + sig);
}

static void on_alarm(int sig)
{
}

/* Returns the SIGSEGV or SIGBUS that the function raised, or 0. */
static __attribute__((noinline)) int try_call(void (*function)(void))
{
	int sig = sigsetjmp(fault_jmp, 1);

	if (!sig) {
		may_fault = true;
		function();
	}
	may_fault = false;
	return sig;
}

static __attribute__((noinline)) int try_copy(void *to, const void *from, size_t bytes)
{
	int sig = sigsetjmp(fault_jmp, 1);

	if (!sig) {
		may_fault = true;
		memcpy(to, from, bytes);
	}
	may_fault = false;
	return sig;
}

static struct open_fd {
	int fd;
	__u16 role;
} fds[MAX_FDS];
static int nr_fds;

static void close_fd(int n)
{
	close(fds[n].fd);
	fds[n] = fds[--nr_fds];
}

static void add_fd(int fd, __u16 role)
{
	if (fd < 0)
		return;
	if (nr_fds == MAX_FDS)
		close_fd(random_below(MAX_FDS));
	fds[nr_fds++] = (struct open_fd) { fd, role };
}

static struct open_fd *open_device(void)
{
	int fd = open(program->device, O_RDWR | O_CLOEXEC | (random_below(8) ? O_NONBLOCK : 0));

	if (fd < 0)
		fd = open(program->device, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	count_outcome(-1, "open", fd);
	add_fd(fd, R_NEW);
	return fd < 0 ? NULL : &fds[nr_fds - 1];
}

/* Returns an open descriptor that has one of @roles, or NULL if there is none. */
static struct open_fd *pick_fd(__u16 roles)
{
	int from = random_below(nr_fds);

	for (int i = 0; i < nr_fds; i++) {
		struct open_fd *o = &fds[(from + i) % nr_fds];

		if (o->role & roles)
			return o;
	}
	return roles & R_NEW ? open_device() : NULL;
}

/* Mappings of the device */

static struct map {
	char *at;
	size_t bytes;
	int prot;
} maps[MAX_MAPS];
static int nr_maps;

static void add_map(char *at, size_t bytes, int prot)
{
	struct map *map = &maps[random_below(MAX_MAPS)];

	if (nr_maps < MAX_MAPS)
		map = &maps[nr_maps++];
	else
		munmap(map->at, map->bytes);
	*map = (struct map) { at, bytes, prot };
}

static void touch_map(const struct map *map)
{
	char *word = map->at +
		8 * (random_below(2) ? random_below(map->bytes / 8) : random_below(8));
	__u64 value = 0;
	int sig = try_copy(&value, word, sizeof(value));

	expect_sane(sig != SIGSEGV || !(map->prot & PROT_READ),
		    "SIGSEGV at a mapping that can be read");
	value = boundary_number(value);
	if (map->prot & PROT_WRITE)
		try_copy(word, &value, sizeof(value));
}

/* After fork(): other mappings may take the addresses of those that fork() did not copy. */
static void drop_uncopied_maps(void)
{
	static unsigned char resident[1 << 18];
	int nr = 0;

	for (int i = 0; i < nr_maps; i++)
		if (maps[i].bytes / 4096 <= sizeof(resident) &&
		    !mincore(maps[i].at, maps[i].bytes, resident))
			maps[nr++] = maps[i];
	nr_maps = nr;
}

static char *get_device_memory(size_t bytes)
{
	for (int i = 0; i < nr_maps; i++)
		if (maps[i].bytes >= bytes && random_below(2))
			return maps[i].at + (maps[i].bytes - bytes) / 8 * 8;
	return NULL;
}

#endif
