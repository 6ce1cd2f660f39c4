// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: plain
 * timeout: 600
 *
 * Tests the sampling formats, which are modules that write sample buffers. Each format must refuse
 * invalid arguments. The test samples a thread and a CPU by clocks, which every machine has. If the
 * sampling period of a context is too short, the kernel must throttle the context. Another program,
 * perfmon_ring.c, tests rings that are read while the kernel writes them.
 */
#include "kselftest_pc.h"
#include "sampling.h"

#define MS	1000000ULL
#define SIZE	(1 << 16)

static void burn(__u64 ms)
{
	__u64 end = thread_ns() + ms * MS;

	while (thread_ns() < end)
		spin(10000);
}

/*
 * Uses CPU time until the condition is true, for at most one minute of CPU time. A fixed time would
 * not give a fixed number of samples: if the host gives the guest little CPU time, timers expire
 * late, and several periods become one sample.
 */
#define burn_until(condition) do {					\
	for (int left_ = 60000 / 5; left_ && !(condition); left_--)	\
		burn(5);						\
} while (0)

static void test_refusals(void)
{
	struct pfm_dfl_smpl_arg dfl = { .buf_size = 4096 };
	struct perfmon_nway_arg nway = { .size = 4096, .nr = 2 };
	struct perfmon_histogram_arg hist = { .nr = 100 };
	struct perfmon_create create = { .uuid = PFM_DFL_SMPL_UUID, .arg = (__u64)&dfl,
					 .arg_size = sizeof(dfl) };
	int fd = open("/dev/perfmon", O_RDWR | O_CLOEXEC);

	is(pfm_call(fd, PERFMON_CREATE_FORMAT, &create), 0,
	   "1.9 create format: the default format is found by its UUID");
	is(pfm_call(fd, PERFMON_PAUSE, &(__u32){ 1 }), -EINVAL,
	   "2.4 pause: a context with the default format is EINVAL");
	close(fd);
	is(pfm_create_format(0, "../default", &dfl, sizeof(dfl)), -EINVAL,
	   "1.9 create format: a name with a slash is EINVAL");
	is(pfm_create_format(0, "default", &dfl, 63), -EINVAL,
	   "1.9 create format: an argument that is one byte too short is EINVAL");
	is(pfm_create_format(0, "default", NULL, sizeof(dfl)), -EFAULT,
	   "1.9 create format: an argument at NULL is EFAULT");
	dfl.buf_size = 500;
	is(pfm_create_format(0, "default", &dfl, sizeof(dfl)), -EINVAL,
	   "1.9 default format: a buffer without room for an entry is EINVAL");
	dfl.buf_size = 1ULL << 62;
	is(pfm_create_format(0, "default", &dfl, sizeof(dfl)), -EINVAL,
	   "1.9 default format: a buffer of 2^62 bytes is EINVAL");
	nway.nr = 17;
	is(pfm_create_format(0, "n-way", &nway, sizeof(nway)), -EINVAL,
	   "1.10 n-way format: 17 buffers is EINVAL");
	hist.shift = 64;
	is(pfm_create_format(0, "histogram", &hist, sizeof(hist)), -EINVAL,
	   "1.10 histogram format: buckets of 2^64 bytes is EINVAL");
	is(rmmod("pfm_ring"), 0, "1.9 rmmod of an unused format succeeds");
	is(insmod("pfm_ring", ""), 0, "1.9 insmod of a format succeeds");
	fd = pfm_create_ring(0, "ring", 4096, 0);
	is(rmmod("pfm_ring"), -EWOULDBLOCK,
	   "1.9 rmmod of a format that a context uses is EWOULDBLOCK");
	is(pfm_call(fd, PERFMON_PAUSE, &(__u32){ 2 }), -EINVAL,
	   "2.4 pause: a value of 2 is EINVAL");
	close(fd);
}

/*
 * Copies the record at position @at of a ring's data. A record may wrap around, so that its end is
 * at the beginning of the data. Bails out if the record's size is 0, over 4,096 or not a multiple
 * of 8.
 */
static const struct perfmon_sample *read_record(const char *data, __u64 size, __u64 at, char *to)
{
	__u32 bytes, i;

	memcpy(&bytes, data + (at & (size - 1)), sizeof(bytes));
	for (i = 0; i < bytes && i < 4096; i += 8)
		memcpy(to + i, data + ((at + i) & (size - 1)), 8);
	if (i != bytes || !bytes) {
		errno = EINVAL;
		bail("a record");
	}
	return (void *)to;
}

static char record_buf[4096] __attribute__((aligned(8)));

/*
 * The kernel queues an overflow message when the ring has filled to its watermark, and not before.
 * While the reader's tail is beyond the head, the kernel treats the ring as full.
 */
static void test_watermark(void)
{
	int fd = pfm_create_ring(0, "ring", SIZE, 0);
	const volatile struct perfmon_ring_page *page = mmap(NULL, 4096 + SIZE, PROT_READ,
							     MAP_SHARED, fd, 0);
	volatile struct perfmon_ring_tail *tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						       MAP_SHARED, fd, PERFMON_TAIL_OFFSET);
	struct pfarg_ovfl_msg msg;
	__u64 at, lost;

	bail_if(page == MAP_FAILED || tail == MAP_FAILED, "mmap of a ring");
	pfm_period(fd, PERFMON_TASK_CLOCK, MS, 0);
	pfm_start_self(fd);
	burn_until(page->head > 10 * 64);
	ok(!pfm_read_message(fd, &msg, 0), "2.4 ring: no message before the watermark");
	/* The ring has no reader: it fills, and later samples are lost. */
	burn_until(page->lost);
	ok(pfm_read_message(fd, &msg, 0) && msg.msg_type == PFM_MSG_OVFL,
	   "2.4 ring: an overflow message at the watermark");
	pfm_stop(fd);
	is(page->head, page->reserve, "2.5 ring: head is reserve while the context is stopped");
	lost = page->lost;
	at = page->head;
	tail->tail = at + 12345;
	pfm_start(fd);
	burn_until(page->lost > lost);
	pfm_stop(fd);
	ok(page->head == at && page->lost > lost,
	   "2.5 ring: with a tail beyond the head, samples are lost and the head stays");
	munmap((void *)page, 4096 + SIZE);
	munmap((void *)tail, 4096);
	close(fd);
}

static void test_nway(void)
{
	struct perfmon_nway_arg arg = { .size = 4096, .nr = 4 };
	int fd = pfm_create_format(0, "n-way", &arg, sizeof(arg)), full, messages = 0;
	volatile struct perfmon_nway_hdr *hdr = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	struct pfarg_ovfl_msg msg;
	__u64 used;

	pfm_period(fd, PERFMON_TASK_CLOCK, MS / 10, PFM_REGFL_OVFL_NOTIFY);
	pfm_start_self(fd);
	burn_until(hdr->nr_full >= 2);
	/* Stops the context, so that no further buffer fills while the messages are counted. */
	pfm_stop(fd);
	full = hdr->nr_full;
	while (pfm_read_message(fd, &msg, 0))
		messages++;
	is(messages, full, "1.10 n-way: one message for each full buffer");
	is(hdr->masked, 0, "1.10 n-way: not masked while there is a free buffer");
	used = hdr->used[0];
	is(pfm_restart(fd), 0, "1.10 n-way: restart succeeds while buffers are full");
	ok(hdr->first == 1 && hdr->used[0] < used, "1.10 n-way: restart frees the oldest buffer");
	pfm_start(fd);
	burn_until(hdr->masked);
	is(hdr->nr_full, 4, "1.10 n-way: masked when all four buffers are full");
	burn(10);
	is(hdr->total, 5, "1.10 n-way: no further buffer is filled while masked");
	is(pfm_restart(fd), 0, "1.10 n-way: restart succeeds while all buffers are full");
	burn_until(hdr->total >= 6);
	is(hdr->total, 6, "1.10 n-way: the freed buffer is filled after the restart");
	munmap((void *)hdr, 4096);
	close(fd);
}

/*
 * Spins until the histogram has @samples samples, without making a system call. The function does
 * not use burn(), which reads a clock after every 20,000 instructions: in the emulator, one read of
 * the clock may take longer than 20,000 instructions. If samples are missing, the function returns
 * after 10,000 calls of spin().
 */
static __attribute__((noinline, noclone))
void spin_until_samples(const volatile struct perfmon_histogram *h, __u64 samples)
{
	for (int left = 10000; left && h->samples < samples; left--)
		spin(1000000);
}

static void test_histogram(void)
{
	struct perfmon_histogram_arg arg = {
		.base = (__u64)spin_until_samples & ~0xfffULL, .shift = 12, .nr = 64
	};
	int fd = pfm_create_format(0, "histogram", &arg, sizeof(arg)), i;
	volatile struct perfmon_histogram *h = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	__u64 sum = 0;

	pfm_period(fd, PERFMON_TASK_CLOCK, MS / 5, 0);
	pfm_start_self(fd);
	spin_until_samples(h, 100);
	pfm_stop(fd);
	for (i = 0; i < 64; i++)
		sum += h->buckets[i];
	ok(h->samples >= 100 && sum + h->outside == h->samples,
	   "1.10 histogram: the buckets and `outside` add up to all samples");
	if (!ok(h->buckets[0] + h->buckets[1] > h->samples / 2,
		"1.10 histogram: more than half of the samples are in the busy function"))
		note("%llu and %llu of %llu, %llu outside of all buckets", h->buckets[0],
		     h->buckets[1], h->samples, h->outside);
	/* The last bucket of the second histogram ends where the page with most samples begins. */
	arg.base += 4096ULL * (h->buckets[1] > h->buckets[0]) - 64 * 4096ULL;
	munmap((void *)h, 4096);
	close(fd);
	fd = pfm_create_format(0, "histogram", &arg, sizeof(arg));
	h = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	pfm_period(fd, PERFMON_TASK_CLOCK, MS / 5, 0);
	pfm_start_self(fd);
	spin_until_samples(h, 100);
	pfm_stop(fd);
	for (sum = i = 0; i < 64; i++)
		sum += h->buckets[i];
	if (!ok(sum + h->outside == h->samples && h->outside > h->samples / 3,
		"1.10 histogram: samples just behind the last bucket are outside"))
		note("%llu in buckets and %llu outside, of %llu", sum, h->outside, h->samples);
	munmap((void *)h, 4096);
	close(fd);
}

/* Samples a CPU with the CPU clock while the CPU is busy, and while the CPU is idle. */
static void test_cpu_context(int cpu, __u64 period)
{
	int fd = pfm_create_ring(PFM_FL_SYSTEM_WIDE, "ring", SIZE, 0), samples = 0, foreign = 0;
	const volatile struct perfmon_ring_page *page = mmap(NULL, 4096 + SIZE, PROT_READ,
							     MAP_SHARED, fd, 0);
	const char *data = (char *)page + 4096;
	__u64 at, begin = now_ns(), busy, idle;

	pfm_period(fd, PERFMON_CPU_CLOCK, period, 0);
	pfm_load(fd, cpu);
	pfm_start(fd);
	burn_until(page->head >= 10 * 64);
	busy = page->head;
	for (int i = 0; i < 10000 && page->head < busy + 5 * 64; i++)
		usleep(5000);
	idle = page->head - busy;
	pfm_stop(fd);
	begin = now_ns() - begin;
	for (at = 0; at != page->head;) {
		const struct perfmon_sample *s = read_record(data, SIZE, at, record_buf);

		samples += s->header.type == PERFMON_RECORD_SAMPLE;
		foreign += s->cpu != (__u32)cpu;
		at += s->header.size;
	}
	if (!ok(busy >= 10 * 64 && idle >= 5 * 64 && !foreign &&
		samples <= begin / period * 5 / 4 + 1,
		"1.17 CPU clock: a CPU is sampled while busy and while idle"))
		note("%llu and %llu bytes, %d samples in %llu ns, %d foreign", busy, idle, samples,
		     begin, foreign);
	munmap((void *)page, 4096 + SIZE);
	close(fd);
}

static volatile sig_atomic_t nr_signals;

static void on_signal(int signal)
{
	nr_signals += signal == SIGIO;
}

/* An overflow queues a message with SIGIO, and the exit of the process an end message. */
static void test_target_messages(void)
{
	int fd = pfm_create(0), pid, status, go[2];
	struct pfarg_ovfl_msg msg;
	char byte;

	signal(SIGIO, on_signal);
	bail_if(pipe(go), "pipe");
	pid = fork_child({
		close(go[1]);
		read(go[0], &byte, 1);
		burn(100);
	});
	close(go[0]);
	pfm_period(fd, PERFMON_TASK_CLOCK, 20 * MS, PFM_REGFL_OVFL_NOTIFY);
	fcntl(fd, F_SETOWN, getpid());
	fcntl(fd, F_SETFL, O_ASYNC);
	is(pfm_load(fd, pid), 0, "1.7 load: another process, sampled by its task clock");
	pfm_start(fd);
	close(go[1]);
	ok(pfm_read_message(fd, &msg, 60000) && msg.msg_type == PFM_MSG_OVFL &&
	   msg.msg_ovfl_pid == (__u32)pid && msg.msg_ovfl_pmds[PERFMON_TASK_CLOCK / 64] ==
	   1ULL << (PERFMON_TASK_CLOCK % 64),
	   "1.7 another process: an overflow message with its PID and PMD");
	/* A reader that waits for the message may wake before SIGIO is sent. */
	for (int i = 0; i < 60000 && !nr_signals; i++)
		usleep(1000);
	ok(nr_signals >= 1, "1.3 another process: SIGIO for the overflow message");
	is(pfm_restart(fd), 0, "1.8 another process: restart succeeds");
	waitpid(pid, &status, 0);
	while (pfm_read_message(fd, &msg, 60000) && msg.msg_type != PFM_MSG_END)
		pfm_restart(fd);
	is(msg.msg_type, PFM_MSG_END, "1.3 another process: PFM_MSG_END when it exits");
	is(pfm_restart(fd) == -ESRCH || pfm_restart(fd) == -EBUSY, 1,
	   "1.3 another process: restart is ESRCH or EBUSY after it has exited");
	close(fd);
}

/*
 * Samples with a period of 1 ns. Sampling must be throttled, the ring must have records of
 * throttling, and the machine must stay usable.
 */
static void test_throttling(void)
{
	int fd = pfm_create_ring(0, "flight-recorder", SIZE, 0), throttled = 0, went_on = 0;
	struct perfmon_ring_page *page = mmap(NULL, 4096 + SIZE, PROT_READ, MAP_SHARED, fd, 0);
	const char *data = (char *)page + 4096;
	__u64 at, head, begin = now_ns();

	/* Even a guest with little CPU time exceeds 100 samples per second. */
	pfm_set_limits("100", "25");
	pfm_period(fd, PERFMON_TASK_CLOCK, 1, 0);
	pfm_load(fd, this_thread());
	for (int i = 0; i < 200 && throttled < 3; i++) {
		pfm_start(fd);
		burn(200);
		pfm_stop(fd);
		throttled = 0;
		went_on = 0;
		head = page->head;
		for (at = head; at && at - head < SIZE - 4096;) {
			const struct perfmon_sample *s = read_record(data, SIZE, at, record_buf);

			throttled += s->header.type == PERFMON_RECORD_THROTTLE;
			went_on += s->header.type == PERFMON_RECORD_UNTHROTTLE;
			at += s->header.size;
		}
	}
	note("it took %llu ms", (now_ns() - begin) / MS);
	if (!ok(throttled > 2 && went_on >= throttled - 2,
		"1.7 a period of 1 ns is throttled, with THROTTLE and UNTHROTTLE records"))
		note("%d, %d; head %lld lost %lld", throttled, went_on, page->head, page->lost);
	munmap(page, 4096 + SIZE);
	close(fd);
}

int main(void)
{
	plan(37);
	write_file("/proc/sys/kernel/modprobe", "\n");
	insmod_each("perfcounters perfmon pfm_soft pfm_default pfm_ring pfm_nway pfm_histogram");
	pfm_set_limits("0", "0");
	test_refusals();
	test_watermark();
	test_nway();
	test_histogram();
	pin_to_cpu(1);
	test_cpu_context(1, MS);
	test_target_messages();
	test_throttling();
	is(rmmod("pfm_ring"), 0, "1.9 rmmod of the ring format at the end succeeds");
	return finish();
}
