// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: plain pmu-skylake pmu-amd2
 * gate: plain pmu-skylake
 * timeout: 200
 *
 * Tests rings (ring buffers of samples) from user space:
 *  - which arguments and mappings are refused;
 *  - what readers find in rings that the kernel writes forward or backward: rings that are in use,
 *    are paused, are full, or have a tail that a hostile reader keeps changing;
 *  - how long mappings of a ring keep its context alive.
 *
 * The contexts sample by the CPU time of a thread and, on machines with a PMU, by its instructions.
 */
#include "perfmon_ring.h"
#include <grp.h>
#include <sys/resource.h>

static int create_error(const char *format, struct perfmon_ring_arg arg, size_t size)
{
	int fd = pfm_create_format(0, format, &arg, size);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void test_arguments(void)
{
	struct perfmon_ring_arg a = { .size = SIZE };

	is(create_error("ring", a, sizeof(a)), 0, "1.9 create format: a ring of 16 KiB is created");
	is(create_error("no-such-ring", a, sizeof(a)), -ENOENT,
	   "1.9 create format: an unknown name is ENOENT");
	is(create_error("ring", a, sizeof(a) - 8), -EINVAL,
	   "1.9 create format: a ring's argument that is 8 bytes too short is EINVAL");
	a.size = 5000;
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: size 5000, no power of two, is EINVAL");
	a.size = 2048;
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: size 2048, less than a page, is EINVAL");
	a.size = 1ULL << 62;
	is(create_error("ring", a, sizeof(a)), -EINVAL, "1.9 ring argument: size 2^62 is EINVAL");
	a = (struct perfmon_ring_arg){ .size = SIZE, .flags = 4 };
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: an unknown flag is EINVAL");
	a = (struct perfmon_ring_arg){ .size = SIZE, .watermark = SIZE + 1 };
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: a watermark above the size is EINVAL");
	a = (struct perfmon_ring_arg){ .size = SIZE, .fields = 4 };
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: an unknown field is EINVAL");
	a = (struct perfmon_ring_arg){ .size = SIZE, .max_frames = 128 };
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: 128 stack frames is EINVAL");
	a = (struct perfmon_ring_arg){ .size = SIZE, .reserved = { [4] = 1 } };
	is(create_error("ring", a, sizeof(a)), -EINVAL,
	   "1.9 ring argument: a reserved field that is not zero is EINVAL");
}

/* /proc/self/mem can write to read-only mappings. Returns 0 or a negative errno. */
static int write_through_proc_mem(const volatile void *addr)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC), ret;
	__u64 value = ~0ULL;

	ret = pwrite(fd, &value, sizeof(value), (off_t)addr) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static void test_mappings(void)
{
	const int r = PROT_READ, rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
	struct ring ring = create_ring("ring", 0, SIZE, 0);
	int fd = ring.fd, plain = pfm_create(0);
	const struct perfmon_ring_page *page = ring.page;
	const off_t tail = PERFMON_TAIL_OFFSET;
	void *private;
	__u64 n, sum;

	ok(page->version == PERFMON_RING_VERSION && page->size == sizeof(*page) && !page->flags &&
	   page->data_offset == 4096 && page->data_size == SIZE,
	   "2.2 ring page: version, sizes and offset of the data");
	ok(!page->head && !page->reserve && !page->lost && !page->paused && !ring.tail->tail,
	   "2.2 ring page: head, reserve, lost, paused and tail are 0 at first");
	for (n = sum = 0; n < SIZE / 8; n++)
		sum |= ring.data[n];
	is(sum, 0, "1.9 ring: the data are zero at first");
	is(map_error(fd, 4096 + SIZE, rw, MAP_SHARED, 0), -EACCES,
	   "2.2 map: page and data, shared and writable, is refused");
	is(map_error(fd, 4096 + SIZE, rw, MAP_PRIVATE, 0), -EACCES,
	   "2.2 map: page and data, private and writable, is refused");
	is(map_error(fd, 4096 + SIZE, rx, MAP_SHARED, 0), -EACCES,
	   "2.2 map: page and data, executable, is refused");
	is(map_error(fd, 8192 + SIZE, r, MAP_SHARED, 0), -EINVAL,
	   "2.2 map: one page more than page and data is refused");
	is(map_error(fd, SIZE, r, MAP_SHARED, 4096), -EINVAL,
	   "2.2 map: the data without the page is refused");
	is(map_error(fd, 4096, r, MAP_SHARED, 0), 0, "2.2 map: the page alone succeeds");
	is(mprotect((void *)page, 4096 + SIZE, rw) ? -errno : 0, -EACCES,
	   "2.2 mprotect: page and data to writable is EACCES");
	is(mprotect((void *)page, 4096, rx) ? -errno : 0, -EACCES,
	   "2.2 mprotect: page to executable is EACCES");
	is(mremap((void *)page, 4096 + SIZE, 8192 + SIZE, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0,
	   EFAULT,
	   "2.2 mremap: page and data cannot be enlarged");
	ok(write_through_proc_mem(page) == -EIO && page->version == 1,
	   "2.2 /proc/self/mem: a write to the shared page fails");
	private = mmap(NULL, 4096 + SIZE, r, MAP_PRIVATE, fd, 0);
	ok(private == MAP_FAILED || (write_through_proc_mem(private) < 0 && page->version == 1),
	   "2.2 /proc/self/mem: a write to a private mapping fails and leaves the page");
	is(map_error(fd, 4096, rw, MAP_SHARED, tail), 0,
	   "2.2 map: the tail, shared and writable, succeeds");
	is(map_error(fd, 4096, rw, MAP_PRIVATE, tail), -EINVAL,
	   "2.2 map: the tail, private and writable, is refused");
	is(map_error(fd, 8192, rw, MAP_SHARED, tail), -EINVAL,
	   "2.2 map: two pages from the tail is refused");
	is(map_error(fd, 4096, rw, MAP_SHARED, tail + 4096), -EINVAL,
	   "2.2 map: the page behind the tail is refused");
	is(map_error(fd, 4096, rw, MAP_SHARED, tail - 4096), -EINVAL,
	   "2.2 map: the page before the tail is refused");
	is(map_error(fd, 4096, rw | PROT_EXEC, MAP_SHARED, tail), -EINVAL,
	   "2.2 map: the tail, executable, is refused");
	is(mprotect(ring.tail, 4096, rx) ? -errno : 0, -EACCES,
	   "2.2 mprotect: the tail to executable is EACCES");
	is(map_error(plain, 4096, r, MAP_SHARED, 0), -EINVAL,
	   "2.2 map: the buffer of a context without a format is refused");
	is(map_error(plain, 4096, rw, MAP_SHARED, tail), -EINVAL,
	   "2.2 map: the tail of a context without a format is refused");
	close(plain);
	if (private != MAP_FAILED)
		munmap(private, 4096 + SIZE);
	ring_close(&ring);
}

/* In a forward ring, every overflow is a sample or is counted in a LOST record. */
static void test_forward(void)
{
	struct ring r = create_ring("ring", 0, SIZE, worker_tid);
	struct reader_state f = { .since = now_ns() };
	struct pfarg_ovfl_msg msg;
	__u64 end, all, kept;
	int messages = 0;

	may_spin = 1;
	pfm_start(r.fd);
	for (end = now_ns() + EVENT_TIMEOUT; (messages < 5 || f.samples < 500) && now_ns() < end;) {
		messages += pfm_read_message(r.fd, &msg, 20);
		drain(&r, &f, true);
	}
	ok(messages > 0, "1.9 %s, forward: messages are queued as the ring fills", source->name);
	/* The ring is not read until it is full and has lost samples. */
	kept = r.page->lost;
	for (end = now_ns() + EVENT_TIMEOUT; r.page->lost < kept + 10 && now_ns() < end;)
		usleep(10000);
	ok(r.page->lost >= kept + 10,
	   "2.2 %s, forward: a ring that is not read loses samples", source->name);
	kept = ring_head(&r) - r.tail->tail;
	if (!ok(kept <= SIZE && kept > SIZE - SAMPLE_BYTES - 16,
		"2.2 %s, forward: a full ring has no room for one more sample",
		source->name))
		note("%llu", kept);
	/* When the ring has room again, the kernel writes a LOST record before the next sample. */
	for (end = now_ns() + EVENT_TIMEOUT; f.reported_lost != r.page->lost && now_ns() < end;) {
		drain(&r, &f, true);
		usleep(1000);
		pfm_stop(r.fd);
		drain(&r, &f, true);
		if (f.reported_lost != r.page->lost)
			pfm_start(r.fd);
	}
	may_spin = 0;
	pfm_stop(r.fd);
	all = count_overflows(r.fd);
	is(f.wrong + f.overwritten, 0,
	   "1.9 %s, forward: every record is complete, in the order of time", source->name);
	is(f.reported_lost, r.page->lost,
	   "1.9 %s, forward: LOST records add up to the page's count", source->name);
	/* If a clock's timer expires late, several periods count as one overflow. */
	if (!ok(source->pmd ? f.samples > 0 && f.samples + f.reported_lost <= all + 2 :
		f.samples + f.reported_lost == all,
		"1.9 %s, forward: samples and lost ones are all overflows", source->name))
		note("%llu + %llu of %llu", f.samples, f.reported_lost, all);
	note("%llu samples, %llu lost, %llu others, %d messages", f.samples, f.reported_lost,
	     f.others, messages);
	ring_close(&r);
}

/* Set while a hostile reader sets any tail, a tail near the head, or the head itself. */
static volatile int may_corrupt_tail;

static void *corrupt_tail(void *arg)
{
	struct ring *r = arg;
	__u64 x = 88172645463325252ULL, tail;

	while (may_corrupt_tail) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		tail = x % 4 == 0 ? x : ring_head(r) + (x >> 32) % (4 * SIZE) - 2 * SIZE;
		__atomic_store_n(&r->tail->tail, x % 4 == 1 ? ring_head(r) : tail,
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void test_hostile_tail(__u32 flags)
{
	struct ring r = create_ring("ring", flags, SIZE, worker_tid);
	const char *direction = flags & PERFMON_RING_BACKWARD ? "backward" : "forward";
	struct reader_state f = { .since = now_ns() };
	__u64 begin = now_ns(), end, all, kept, bytes, rest;
	union record record;
	pthread_t thread;
	int n;

	may_spin = 1;
	may_corrupt_tail = 1;
	pthread_create(&thread, NULL, corrupt_tail, &r);
	pfm_start(r.fd);
	/* Samples for some time, and until the ring has both stored and lost samples. */
	for (end = begin + scale_down(gate_or_long(300, 1000)) * 1000000;
	     now_ns() < end ||
	     ((!f.samples || !r.page->lost) && now_ns() < begin + EVENT_TIMEOUT);) {
		if (!flags) {
			drain(&r, &f, false);
			continue;
		}
		/* From the newest record to the first overwritten one. */
		__u64 head = ring_head(&r), pos = head;

		while ((n = ring_copy_record(&r, head, pos, &record)) > 0) {
			f.wrong += !is_complete(&record, n, f.since);
			f.samples += record.header.type == PERFMON_RECORD_SAMPLE;
			pos += n;
		}
		f.wrong += n == RECORD_CORRUPT;
	}
	pfm_stop(r.fd);
	may_spin = 0;
	may_corrupt_tail = 0;
	pthread_join(thread, NULL);
	is(f.wrong, 0, "1.9 %s, %s, hostile tail: every record is complete", source->name,
	   direction);
	ok(f.samples > 0 && r.page->lost > 0,
	   "1.9 %s, %s, hostile tail: some samples are written, some are lost",
	   source->name, direction);
	/*
	 * The kernel must have written one sample for each overflow that was not counted as lost.
	 * Records that are not samples report losses or throttling, and have 16 bytes.
	 */
	all = count_overflows(r.fd);
	kept = all - r.page->lost;
	bytes = flags ? -r.page->head : r.page->head;
	rest = bytes - kept * SAMPLE_BYTES;
	if (!ok(source->pmd ? bytes >= SAMPLE_BYTES :
		rest % 16 == 0 && rest <= 16 * (r.page->lost + 100),
		"1.9 %s, %s, hostile tail: the bytes written fit the samples that are not lost",
		source->name, direction))
		note("%llu overflows, %llu lost, %llu bytes", all, r.page->lost, bytes);
	note("%llu samples, %llu gone, %llu overflows, %llu lost", f.samples, f.overwritten, all,
	     r.page->lost);
	/* After the tail has been set to a valid value, the ring takes samples again. */
	__atomic_store_n(&r.tail->tail, ring_head(&r), __ATOMIC_RELEASE);
	kept = ring_head(&r);
	may_spin = 1;
	pfm_start(r.fd);
	for (end = now_ns() + EVENT_TIMEOUT; ring_head(&r) == kept && now_ns() < end;)
		usleep(1000);
	may_spin = 0;
	ok(ring_head(&r) != kept, "1.9 %s, %s, valid tail again: the head moves", source->name,
	   direction);
	ring_close(&r);
}

/*
 * Tests a flight recorder, a ring that is written backward and overwrites its oldest records.
 * Snapshots that are taken while the kernel writes have complete records, newest first. The ring
 * does not change while it is paused. After the pause, a LOST record has the number of samples that
 * were dropped during the pause.
 */
static void test_flight_recorder(void)
{
	struct ring r = create_ring("flight-recorder", 0, SIZE, worker_tid);
	__u64 end, begin = now_ns(), since = begin, samples = 0, snapshots = 0, max = 0, lost;
	const __u32 flags = PERFMON_RING_BACKWARD | PERFMON_RING_OVERWRITE;
	union record record;
	__u64 pos;
	int wrong = 0, n;

	is(r.page->flags, flags, "2.1 %s, flight recorder: the page has BACKWARD and OVERWRITE",
	   source->name);
	may_spin = 1;
	pfm_start(r.fd);
	/* Samples for some time, and until the kernel has written twice the size of the ring. */
	for (end = begin + scale_down(gate_or_long(300, 1000)) * 1000000;
	     now_ns() < end || (-ring_head(&r) < 2 * SIZE && now_ns() < begin + EVENT_TIMEOUT);) {
		__u64 head = ring_head(&r), pos = head, time = -1, nr_seen = 0;

		while ((n = ring_copy_record(&r, head, pos, &record)) > 0) {
			if (!is_complete(&record, n, since))
				wrong++;
			if (record.header.type == PERFMON_RECORD_SAMPLE) {
				wrong += record.sample.time > time;
				time = record.sample.time;
				nr_seen++;
			}
			pos += n;
		}
		samples += nr_seen;
		max = nr_seen > max ? nr_seen : max;
		snapshots++;
	}
	is(wrong, 0, "2.5 %s, flight recorder: snapshots have complete records, newest first",
	   source->name);
	note("%llu snapshots, %llu samples, up to %llu in one", snapshots, samples, max);
	/*
	 * A paused ring does not change. The variable `lost` serves as the argument of
	 * PERFMON_PAUSE.
	 */
	lost = 1;
	is(pfm_call(r.fd, PERFMON_PAUSE, (__u32 *)&lost), 0,
	   "2.4 %s, flight recorder: pause succeeds", source->name);
	is(r.page->paused, 1,
	   "2.4 %s, flight recorder: the page says that it is paused", source->name);
	lost = r.page->lost;
	pos = ring_head(&r);
	end = pos;
	while ((n = ring_copy_record(&r, end, pos, &record)) > 0) {
		wrong += !is_complete(&record, n, since);
		pos += n;
	}
	ok(!wrong && pos - end <= SIZE && pos - end > SIZE - SAMPLE_BYTES,
	   "2.3 %s, flight recorder: it holds as many records as fit", source->name);
	wait_until(r.page->lost > lost + 10);
	ok(ring_head(&r) == end && r.page->lost > lost,
	   "2.4 %s, flight recorder: while paused samples are lost and the head stays",
	   source->name);
	lost = 0;
	is(pfm_call(r.fd, PERFMON_PAUSE, (__u32 *)&lost), 0,
	   "2.4 %s, flight recorder: resume succeeds", source->name);
	for (since = now_ns() + EVENT_TIMEOUT; ring_head(&r) == end && now_ns() < since;)
		usleep(1000);
	pfm_stop(r.fd);
	may_spin = 0;
	/* The LOST record is just before the first sample after the pause. */
	n = ring_copy_record(&r, end - 16, end - 16, &record);
	if (n == RECORD_OVERWRITTEN)
		skip("2.4 flight recorder: a LOST record after the pause",
		     "the record was overwritten");
	else
		ok(n == 16 && record.header.type == PERFMON_RECORD_LOST &&
		   record.words[1] == r.page->lost,
		   "2.4 %s, flight recorder: a LOST record after the pause has the page's count",
		   source->name);
	ring_close(&r);
}

/*
 * Tests the errors that PERFMON_PAUSE returns for a context without a ring, and for a bad address.
 */
static void test_pause_errors(void)
{
	int plain = pfm_create(0), fd = pfm_create_ring(0, "ring", SIZE, 0);
	__u32 two = 2;

	is(pfm_call(plain, PERFMON_PAUSE, &two), -EINVAL,
	   "2.4 pause: a context without a format is EINVAL");
	is(pfm_call(fd, PERFMON_PAUSE, (void *)8), -EFAULT, "2.4 pause: a bad address is EFAULT");
	close(plain);
	close(fd);
}

/* Runs in a child; returns 42 if all steps pass, else the number of the failed step. */
static int test_memlock_limit(void)
{
	const struct rlimit limit = { 65536, 65536 };
	int device[4], i, got[4];
	struct perfmon_ring_arg arg = { .size = 32768 };
	struct perfmon_create create = {
		.name = (__u64)"ring", .arg = (__u64)&arg, .arg_size = sizeof(arg),
	};
	void *mem;

	for (i = 0; i < 4; i++)
		device[i] = open("/dev/perfmon", O_RDWR | O_CLOEXEC);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, NULL) ||
	    setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return 1;
	arg.size = 65536;
	got[0] = pfm_call(device[0], PERFMON_CREATE_FORMAT, &create);
	if (got[0] != -ENOMEM)
		return 2;
	arg.size = 32768;
	if (pfm_call(device[0], PERFMON_CREATE_FORMAT, &create))
		return 3;
	if (pfm_call(device[1], PERFMON_CREATE_FORMAT, &create) != -ENOMEM)
		return 4;
	/* A mapping keeps the ring after close(), so the memory of the ring is still charged. */
	mem = MAP(device[0], 4096, PROT_READ, 0);
	close(device[0]);
	if (!mem || pfm_call(device[1], PERFMON_CREATE_FORMAT, &create) != -ENOMEM)
		return 5;
	munmap(mem, 4096);
	if (pfm_call(device[1], PERFMON_CREATE_FORMAT, &create))
		return 6;
	return 42;
}

static void test_lifetimes(void)
{
	struct ring r = create_ring("ring", 0, SIZE, worker_tid);
	__u64 head, end;
	int other;

	may_spin = 1;
	pfm_start(r.fd);
	for (end = now_ns() + EVENT_TIMEOUT; ring_head(&r) < SIZE / 2 && now_ns() < end;)
		usleep(1000);
	is(in_child(_exit(r.tail->tail)), -SIGSEGV,
	   "1.2 fork: a child does not inherit the ring's mapping");
	is(in_child(execl("/bin/true", "true", NULL)), 0,
	   "1.2 exec: a child that executes a program exits with 0");
	close(r.fd);
	head = ring_head(&r);
	r.tail->tail = head;
	usleep(50000);
	ok(ring_head(&r) - head <= SIZE,
	   "1.2 close: the mapped ring can be read, and stays as it was");
	munmap((void *)r.page, 4096 + SIZE);
	munmap(r.tail, 4096);
	other = create_sampling("ring", &(struct perfmon_ring_arg){ .size = SIZE }, worker_tid);
	ok(other >= 0, "1.2 munmap after close: the thread can have another context");
	r = ring_map(other, SIZE);
	pfm_start(other);
	for (end = now_ns() + EVENT_TIMEOUT; !ring_head(&r) && now_ns() < end;)
		usleep(1000);
	stop_worker();
	head = ring_head(&r);
	ok(head > 0, "1.9 exit of the thread: the ring has its samples");
	usleep(20000);
	is(ring_head(&r), head, "1.9 exit of the thread: the head stays");
	ring_close(&r);
	start_worker();
}

/*
 * Tests contexts that are stopped, unloaded and closed while another CPU handles their overflows.
 */
static void test_brief_contexts(void)
{
	__u64 begin = now_ns(), end = begin + scale_down(gate_or_long(1000, 3000)) * 1000000;
	__u64 seen = 0;
	/*
	 * The probes of context switches stay attached while any context is loaded. The context
	 * `other` stays loaded during the loop, because it would take long to attach the probes
	 * again in each round.
	 */
	int other = pfm_create(0);
	unsigned int rounds;

	pfm_load(other, this_thread());
	may_spin = 1;
	for (rounds = 0; now_ns() < end ||
	     ((rounds <= 10 || !seen) && now_ns() < begin + EVENT_TIMEOUT);
	     rounds++) {
		struct ring r = create_ring(rounds % 2 ? "ring" : "flight-recorder", 0, SIZE,
					    worker_tid);

		pfm_start(r.fd);
		usleep(rounds * 37 % 3000);
		if (rounds % 3 == 0)
			pfm_stop(r.fd);
		if (rounds % 3 == 1)
			pfm_unload(r.fd);
		seen += ring_head(&r) != 0;
		ring_close(&r);
	}
	may_spin = 0;
	close(other);
	if (!ok(rounds > 10 && seen,
		"1.2 %s: contexts are stopped, unloaded and closed while they sample",
		source->name))
		note("%u, %llu", rounds, seen);
}

/*
 * Samples user and kernel mode with a period of ten instructions, so that PMU interrupts arrive
 * faster than the kernel can handle them. Some of the PMU interrupts arrive while the kernel holds
 * locks. With the default limits the machine stays usable, and the ring has THROTTLE records.
 */
static void test_throttling(void)
{
	int fd = pfm_create_ring(0, "flight-recorder", SIZE, 0), throttled = 0;
	const struct perfmon_ring_page *page = MAP(fd, 4096 + SIZE, PROT_READ, 0);
	struct pfarg_pmd pmd = { .reg_value = -10ULL, .reg_long_reset = -10ULL,
				 .reg_short_reset = -10ULL };
	__u64 begin = now_ns(), now, calls = 0;

	pfm_set_limits("100000", "25");
	pfm_write_pmc(fd, 0, pfm_instructions(model) | PFM_KERNEL);
	is(pfm_write_smpl(fd, &pmd), 0,
	   "1.7 write PMDs: a period of ten instructions, kernel mode included");
	pfm_load(fd, this_thread());
	/*
	 * If the guest gets little CPU time, sampling does not always exceed the limits of
	 * pfm_set_limits() in the first round of the loop. The loop repeats until sampling has been
	 * throttled and the thread has made some calls.
	 */
	do {
		__u64 start = now_ns();

		pfm_start(fd);
		for (; now_ns() - start < 500000000ULL; calls++) {
			sched_yield();
			spin(1000);
		}
		pfm_stop(fd);
		for (now = page->head; now && now - page->head < SIZE - 4096;) {
			const struct perfmon_record *h = (void *)page + 4096 + (now & (SIZE - 1));

			throttled += h->type == PERFMON_RECORD_THROTTLE;
			now += h->size;
		}
	} while ((!throttled || calls <= 10) && now_ns() - begin < EVENT_TIMEOUT);
	note("%llu calls in %llu ns", calls, now_ns() - begin);
	ok(calls > 10, "1.7 period of ten instructions: the thread still makes calls");
	ok(throttled, "1.7 period of ten instructions: the ring has THROTTLE records");
	pfm_set_limits("0", "0");
	munmap((void *)page, 4096 + SIZE);
	close(fd);
}

static void test_source(const struct source *s)
{
	source = s;
	test_forward();
	test_hostile_tail(0);
	test_hostile_tail(PERFMON_RING_BACKWARD);
	test_flight_recorder();
	test_lifetimes();
	test_brief_contexts();
}

int main(void)
{
	bool pmu = getenv("PMU");

	plan(11 + 23 + 2 + 1 + (pmu ? 2 : 1) * (6 + 4 + 4 + 8 + 6 + 1) + (pmu ? 3 : 0) + 1);
	load_modules("");
	load_module("perfmon");
	if (pmu) {
		model = guest_model();
		pfm_load_modules(model);
	}
	pfm_set_limits("0", "0");
	insmod("pfm_soft", "");
	load_module("pfm_ring");
	nr_cpus = sysconf(_SC_NPROCESSORS_CONF);
	source = &clocks;
	start_worker();
	test_arguments();
	test_mappings();
	test_pause_errors();
	is(in_child(_exit(test_memlock_limit())), 42,
	   "1.9 rings are charged to RLIMIT_MEMLOCK until they are unmapped");
	test_source(&clocks);
	if (pmu)
		test_source(&instructions);
	stop_worker();
	if (pmu)
		test_throttling();
	is(rmmod("pfm_ring"), 0, "1.9 rmmod of the ring format at the end succeeds");
	return finish();
}
