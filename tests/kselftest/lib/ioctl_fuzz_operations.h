/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The operations of the fuzz tests: the ioctls that a program lists, and calls on descriptors and
 * mappings.
 */
#ifndef IOCTL_FUZZ_OPERATIONS_H
#define IOCTL_FUZZ_OPERATIONS_H

#include "ioctl_fuzz_calls.h"
#include <poll.h>

/* Changes one bit, unless that makes the request of another call. */
static unsigned long change_request(unsigned long request)
{
	unsigned long changed = request ^ 1UL << random_below(32);

	for (int i = 0; i < program->nr_calls; i++)
		if (program->calls[i].request == changed)
			return request;
	return changed;
}

/* Number of operations that this process has made. */
static int steps_done;

static void step(void)
{
	count_up(shared->steps);
	steps_done++;
}

static int make_call(int row, int fd, unsigned long request, unsigned long arg)
{
	__u64 begin = now_ns();
	int ret, error;

	ret = ioctl(fd, request, arg);
	error = errno;
	__atomic_fetch_add(&shared->ns[row], now_ns() - begin, __ATOMIC_RELAXED);
	errno = error;
	return ret;
}

static void check_objects(const struct call *call)
{
	for (int i = 0; i < gen.nr; i++)
		expect_sane(is_object_intact(&gen.objects[i]),
			    "%s: bytes beside a structure (%s) changed",
			    call->name, gen.objects[i].shape ? gen.objects[i].shape->name :
			    "bytes");
}

/*
 * Repeats an ioctl several times. Each repetition first changes one field of the ioctl's
 * structures, and keeps the fields that earlier repetitions have changed. Changing a field is
 * faster than generating new structures, which takes longer than most ioctls.
 */
static void do_variants(int row, const struct open_fd *opened, unsigned long arg)
{
	const struct call *call = &program->calls[row];
	__u64 nr = program->nr_calls;

	/*
	 * The number of variants (repetitions with a changed field) of a call is at most the number
	 * of ioctls of the device. On a device with few ioctls, many variants of each call would
	 * leave few steps for other operations.
	 */
	for (__u64 n = random_below(1 + (nr < MAX_VARIANTS ? nr : MAX_VARIANTS)); n; n--) {
		const struct object *o = &gen.objects[random_below(gen.nr)];
		const struct field *f = o->shape ? &o->shape->fields[random_below(o->shape->nr)] :
			NULL;
		__u64 valid;

		if (!f || !o->nr || !is_number(f))
			continue;
		valid = valid_number(f);
		store_number(o->at + random_below(o->nr) * o->shape->bytes + f->at, f->bytes,
			     random_below(4) ? valid : invalid_number(f, valid));
		restore_lengths();
		step();
		record_call(call->name, opened->fd, arg, o);
		if (count_outcome(row, call->name,
				  make_call(row, opened->fd, call->request, arg)) >= 0)
			collect_numbers();
		check_objects(call);
	}
}

static void do_call(void)
{
	int row = random_below(program->nr_calls), ret, error;
	const struct call *call = &program->calls[row];
	const struct shape *shape = call->arg;
	unsigned long request = call->request, arg = random_below(4) ? 0 : boundary_number(0);
	struct open_fd *opened;
	struct object *o = NULL;
	bool raced = false;
	char *device;

	/*
	 * Skips three of four calls that create an object. Without the skips, most descriptors
	 * would belong to new objects, and the fuzzer would spend much of its time on closing new
	 * objects.
	 */
	if (call->new_role && random_below(4))
		return;
	opened = pick_fd(call->roles);
	if (!(call->flags & C_ROLE_ONLY) && nr_fds && !random_below(8))
		opened = &fds[random_below(nr_fds)];
	if (!opened)
		return;
	gen.nr = 0;
	if (shape) {
		bool shape_only = call->flags & C_SHAPE_ONLY;

		/* Sometimes passes the structure that belongs to another ioctl. */
		if (!shape_only && !random_below(64))
			shape = program->calls[random_below(program->nr_calls)].arg ?: shape;
		o = generate(shape);
		gen.size_is_wrong |= shape != call->arg;
		arg = (unsigned long)o->passed;
		device = shape_only || gen.size_is_wrong ||
			random_below(32) ? NULL : get_device_memory(o->bytes);
		if (device) {
			try_copy(device, o->at, o->bytes);
			arg = (unsigned long)device;
		}
		if ((call->flags & C_NULL_OK) && !random_below(3))
			arg = 0;
		raced = has_race_thread && !random_below(24) && race_start();
	}
	if (!random_below(64))
		request = change_request(request);
	record_call(call->name, opened->fd, arg, o);
	ret = make_call(row, opened->fd, request, arg);
	error = errno;
	if (raced)
		race_stop();
	errno = error;
	if (request != call->request) {
		expect_sane(ret < 0, "%s: the unknown number %#lx succeeds", call->name, request);
		count_outcome(-1, call->name, ret);
		return;
	}
	count_outcome(row, call->name, ret);
	check_objects(call);
	if (ret >= 0)
		collect_numbers();
	if (!call->new_role) {
		/* Most variants of a refused call are refused as well. */
		if (o && !gen.size_is_wrong && o->guarded && arg == (unsigned long)o->at &&
		    (ret >= 0 || !random_below(4)))
			do_variants(row, opened, arg);
	} else if (ret < 0) {
		/*
		 * A call on a descriptor with the role R_NEW fails with EBUSY if the open file
		 * already has an object, which a call on a duplicate of the descriptor has created.
		 * The fuzzer does not know the kind of this object, so the descriptor gets the role
		 * R_UNKNOWN.
		 */
		if (error == EBUSY && opened->role == R_NEW)
			opened->role = R_UNKNOWN;
	} else if (raced || shape != call->arg || arg != (unsigned long)o->at) {
		opened->role = R_UNKNOWN;
	} else {
		opened->role = program->role ? program->role(call, o->at) : call->new_role;
	}
}

static void do_open(void)
{
	int pipes[2];

	switch (random_below(6)) {
	case 0:
		if (!pipe2(pipes, O_NONBLOCK | O_CLOEXEC)) {
			add_fd(pipes[0], R_OTHER_FILE);
			close(pipes[1]);
		}
		break;
	case 1:
		add_fd(open("/dev/null", O_RDWR | O_CLOEXEC), R_OTHER_FILE);
		break;
	case 2:
		/* With O_PATH or similar flags the descriptor does not reach the device. */
		add_fd(open(program->device,
			    (random_u64() & (O_ACCMODE | O_PATH | O_APPEND | O_DIRECT |
							      O_SYNC | O_NOFOLLOW)) | O_CLOEXEC |
						      O_NONBLOCK), R_UNKNOWN);
		break;
	default:
		open_device();
		break;
	}
}

static void do_dup(void)
{
	int n = random_below(nr_fds);

	if (nr_fds)
		add_fd(fcntl(fds[n].fd, F_DUPFD_CLOEXEC, 0), fds[n].role);
}

static void do_close(void)
{
	if (nr_fds)
		close_fd(random_below(nr_fds));
}

static void do_map(void)
{
	static const __u8 pages[] = { 1, 1, 2, 3, 4, 5, 8, 9, 16, 17 };
	struct open_fd *opened = pick_fd(random_below(8) ? R_ANY & ~(R_NEW | R_OTHER_FILE) : R_ANY);
	size_t bytes = 4096UL * pages[random_below(sizeof(pages))];
	int prot = random_below(8), flags = random_below(8) ? MAP_SHARED : MAP_PRIVATE;
	off_t offset = 0;
	char *p;

	if (!opened)
		return;
	if (program->nr_ranges && random_below(8)) {
		const struct range *range = &program->ranges[random_below(program->nr_ranges)];

		offset = range->at;
		bytes = range->bytes ?: bytes;
		prot = range->prot;
	}
	if (!random_below(8))
		offset = boundary_number(offset) & ~(random_below(8) ? 4095ULL : 0);
	if (!random_below(8))
		bytes = boundary_number(bytes);
	/* Page tables of large mappings would use up the memory for buffers. */
	flags |= random_below(16) || bytes > (1 << 20) ? 0 : MAP_POPULATE;
	record_call("mmap", opened->fd, offset, NULL);
	p = mmap(NULL, bytes, prot, flags, opened->fd, offset);
	count_outcome(-1, "mmap", p == MAP_FAILED ? -1 : 0);
	if (p != MAP_FAILED)
		add_map(p, (bytes + 4095) & ~4095UL, prot);
}

static void do_touch(void)
{
	record_call("touch", 0, 0, NULL);
	for (int i = 0; nr_maps && i < 4; i++)
		touch_map(&maps[random_below(nr_maps)]);
}

static void do_map_calls(void)
{
	struct map *map = &maps[random_below(nr_maps)];
	size_t part;
	char *p;

	if (!nr_maps)
		return;
	part = (1 + random_below(map->bytes / 4096)) * 4096;
	record_call("madvise and others", 0, (unsigned long)map->at, NULL);
	switch (random_below(5)) {
	case 0:
		count_outcome(-1, "madvise", madvise(map->at, part, random_below(26)));
		break;
	case 1:
		map->prot = random_below(8);
		if (count_outcome(-1, "mprotect", mprotect(map->at, map->bytes, map->prot)))
			map->prot = 0;
		break;
	case 2:
		p = mremap(map->at, map->bytes, part, random_below(2) ? MREMAP_MAYMOVE : 0);
		count_outcome(-1, "mremap", p == MAP_FAILED ? -1 : 0);
		if (p != MAP_FAILED)
			*map = (struct map) { p, part, map->prot };
		break;
	case 3:
		/* Unmaps the end of the mapping. The rest of the mapping keeps its address. */
		count_outcome(-1, "munmap", munmap(map->at + map->bytes - part, part));
		map->bytes -= part;
		if (!map->bytes)
			*map = maps[--nr_maps];
		break;
	default:
		count_outcome(-1, "munmap", munmap(map->at, map->bytes));
		*map = maps[--nr_maps];
		break;
	}
}

static void do_read(void)
{
	static const size_t sizes[] = { 488, 488 * 20, 48, 96, 128, 4096 };
	struct open_fd *opened = pick_fd(R_ANY);
	size_t bytes = random_below(4) ? sizes[random_below(6)] : random_below(AREA_BYTES / 2);
	struct object *o;
	ssize_t got;

	gen.nr = 0;
	gen.some_wrong = random_below(2);
	gen.size_is_wrong = !random_below(16);
	o = new_object(NULL, 1, bytes);
	if (!opened)
		return;
	/*
	 * If gen.size_is_wrong is set, the length that the test passes to read() may be larger than
	 * the buffer. In this case read() may write past the end of the buffer, but not past the
	 * end of the buffer's area, because the page behind the area is not writable.
	 */
	record_call("read", opened->fd, (unsigned long)o->passed, NULL);
	got = count_outcome(-1, "read",
			    read(opened->fd, o->passed, gen.size_is_wrong ? boundary_number(bytes) :
				 bytes));
	expect_sane(gen.size_is_wrong || got <= (ssize_t)bytes, "read of %zu bytes gave %zd", bytes,
		    got);
	expect_sane(is_object_intact(o), "read() has written beside its buffer");
}

static void do_fd_calls(void)
{
	struct open_fd *opened = pick_fd(R_ANY);
	struct pollfd poll_fds[4];
	int nr = 1 + random_below(4), fd;

	if (!opened)
		return;
	fd = opened->fd;
	record_call("poll and others", fd, 0, NULL);
	switch (random_below(5)) {
	case 0:
		count_outcome(-1, "lseek",
			      lseek(fd, random_below(2) ? 0 : boundary_number(0), random_below(6)));
		break;
	case 1:
		/* SIGIO goes to this process, which ignores it. */
		fcntl(fd, F_SETOWN, getpid());
		count_outcome(-1, "fcntl", fcntl(fd, F_SETFL, (random_below(8) ? O_NONBLOCK : 0) |
							(random_below(2) ? O_ASYNC : 0)));
		break;
	case 2:
		count_outcome(-1, "write",
			      pwrite(fd, race.a, random_below(64), boundary_number(0)));
		break;
	default:
		for (int i = 0; i < nr; i++)
			poll_fds[i] = (struct pollfd) { pick_fd(R_ANY)->fd, random_u64(), 0 };
		count_outcome(-1, "poll", poll(poll_fds, nr, random_below(3)));
		break;
	}
}

static void do_setaffinity(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(random_below(2), &set);
	if (random_below(2))
		CPU_SET(random_below(2), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

#endif
