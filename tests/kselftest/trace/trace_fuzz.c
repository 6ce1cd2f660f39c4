// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Fuzzes user tracing for some seconds. A traced process writes random values into all memory of
 * the device that it may write, another process makes ioctls with random arguments, and a reader
 * reads everything. The kernel must keep working, and all events of a well-behaved process must be
 * read.
 */
#include "random.h"
#include "trace.h"
#include <sys/prctl.h>

#define SECONDS	gate_or_long(2, 5)
#define TRACES	4

static const __u32 modes[TRACES] = { 0, PERFTRACE_FLIGHT, PERFTRACE_SHARED, PERFTRACE_WAIT };

static struct {
	volatile __u64 written, rewritten, calls, ready;
} *shared;

/* Returns a number that may do harm: small, near a power of two, near @base, or random. */
static __u64 odd_number(__u64 base)
{
	switch (random_u64() % 6) {
	case 0:
		return random_u64() % 8192;
	case 1:
		return (1ULL << random_u64() % 64) + random_u64() % 16 - 8;
	case 2:
		return base + random_u64() % 8192 - 4096;
	case 3:
		return base + 8 * (random_u64() % 64);
	case 4:
		return -(random_u64() % 8192);
	default:
		return random_u64();
	}
}

static void rewriter(const int *slots)
{
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	marker = traced_open_marker(&t, PERFTRACE_SHARED, "fuzz:bad");
	shared->ready = 1;
	for (;;) {
		int slot = random_u64() % 8 ? slots[random_u64() % TRACES] :
			(int)(random_u64() % PERFTRACE_NR_TRACES);
		int cpu = random_u64() % t.attach.nr_cpus;
		__u64 *counts = (void *)get_buffer(&t, slot, cpu), *word;

		/* A count of the header, a word of the first 4 KiB of records, or of 12 KiB. */
		switch (random_u64() % 4) {
		case 0:
			word = counts + random_u64() % 9;
			break;
		case 1:
			word = counts + 512 + random_u64() % 512;
			break;
		case 2:
			word = counts + random_u64() % 1536;
			break;
		default:
			/* Write a valid event, so that the reader has events to read. */
			memset(counts, 0, 64);
			counts[8] = 0;
			write_number(&t, slots[random_u64() % 2], cpu, marker, random_u64());
			continue;
		}
		*word = odd_number(*word);
		shared->rewritten++;
	}
}

/* Makes calls with structures of random words, some of which are valid. */
static void random_calls(void)
{
	static const unsigned long requests[] = {
		PERFTRACE_REGISTER, PERFTRACE_UNREGISTER, PERFTRACE_NOTIFY, PERFTRACE_NEXT_TRACE,
		PERFTRACE_NEXT_MARKER, PERFTRACE_CREATE, PERFTRACE_OPEN, PERFTRACE_INFO,
		PERFTRACE_READ, PERFTRACE_PROCESS, PERFTRACE_DESCRIBE, PERFTRACE_PAUSE,
		PERFTRACE_END, PERFTRACE_ATTACH,
	};
	static __u64 words[600];
	struct traced_process t;
	int slot, fds[3];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	traced_open(&t, 0);
	fds[0] = t.fd;
	fds[1] = trace_create("called", "none:*", 0, 4096, &slot);
	for (;;) {
		unsigned long request = requests[random_u64() % 14];

		fds[2] = open_trace_device();
		for (int i = 0; i < 600; i++)
			words[i] = random_u64() % 3 ? 0 : odd_number((unsigned long)words);
		if (random_u64() % 4)
			words[0] = _IOC_SIZE(request) | random_u64() % 8 << (32 + random_u64() % 8);
		if (random_u64() % 2)
			memcpy(words + 4, "fuzzed", 7);
		if (request == PERFTRACE_REGISTER && random_u64() % 2) {
			((struct perftrace_markers *)words)->nr = random_u64() % 8;
			((struct perftrace_markers *)words)->markers = (unsigned long)(words + 8);
		}
		/* With PERFTRACE_KEEP, traces would use up all slots. */
		if (request == PERFTRACE_CREATE)
			words[0] &= ~((__u64)PERFTRACE_KEEP << 32);
		ioctl(fds[random_u64() % 3], request, words);
		if (random_u64() % 8 == 0)
			mmap(NULL, random_u64() % 65536, PROT_READ, MAP_SHARED,
			     fds[random_u64() % 3], odd_number(0) & ~4095ULL);
		shared->calls++;
		close(fds[2]);
	}
}

static void write_well(int slot)
{
	struct traced_process t;
	int marker;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_to_cpu(0);
	marker = traced_open_marker(&t, 0, "fuzz:good");
	for (__u64 n = 0;; usleep(100))
		if (write_number(&t, slot, 0, marker, n))
			shared->written = ++n;
}

static pid_t start_child(void (*body)(void *), void *arg)
{
	return fork_child(body(arg));
}

static void start_rewriter(void *arg)
{
	rewriter(arg);
}

static void start_caller(void *arg)
{
	random_calls();
}

static void start_well_behaved(void *arg)
{
	write_well(*(int *)arg);
}

int main(void)
{
	int fds[TRACES], slots[TRACES], well_behaved_slot, well_behaved_fd, wrong = 0;
	__u64 readings = 0, bytes = 0, cut = 0;
	struct event_stats good = { 0 };
	time_t end;
	pid_t pids[3];
	char name[12];

	trace_load();
	shared = map_memory(4096, MAP_SHARED);
	plan(6);
	for (int i = 0; i < TRACES; i++) {
		snprintf(name, sizeof(name), "fuzz%d", i);
		fds[i] = trace_create(name, "fuzz:bad", modes[i], 4096 << i % 2, &slots[i]);
	}
	well_behaved_fd = trace_create("good", "fuzz:*", 0, 65536, &well_behaved_slot);
	pids[0] = start_child(start_rewriter, slots);
	pids[1] = start_child(start_caller, NULL);
	pids[2] = start_child(start_well_behaved, &well_behaved_slot);
	end = time(NULL) + SECONDS;
	/* On a busy machine, it takes longer until enough reads, writes and calls have happened. */
	while (time(NULL) < end ||
	       (time(NULL) < end + 100 &&
		(readings <= scale_min(1000) || shared->rewritten <= scale_min(100000) ||
		 shared->calls <= scale_min(1000)))) {
		struct perftrace_read r = first_buffer;

		for (int i = 0; i < TRACES; i++) {
			int rc = 0;

			r = first_buffer;
			for (int n = 0; n < 20 && !rc; n++) {
				r.to = (unsigned long)read_buffer;
				r.bytes = random_u64() % 4 ? sizeof(read_buffer) :
					random_u64() % 9000;
				rc = trace_ioctl(fds[i], PERFTRACE_READ, &r);
				bytes += rc ? 0 : r.bytes;
				readings++;
			}
			if (rc && rc != -ENOENT && rc != -ENOSPC && !wrong++)
				note("reading trace %d: %d", i, rc);
		}
		r = first_buffer;
		while (!trace_read_next(well_behaved_fd, &r)) {
			struct perftrace_process p = { .key = r.key };

			trace_ioctl(well_behaved_fd, PERFTRACE_PROCESS, &p);
			if ((pid_t)p.pid == pids[2])
				count_records(&good, read_buffer, r.bytes, 1, 0);
		}
	}
	for (int i = 0; i < TRACES; i++)
		cut += trace_info(fds[i]).cut;
	ok(readings > scale_min(1000) && !wrong,
	   "3.7 fuzz: no read fails with another errno (%llu times, %llu bytes)", readings, bytes);
	ok(shared->rewritten > scale_min(100000),
	   "3.7 fuzz: a process rewrites its buffers meanwhile (%llu words)",
	   shared->rewritten);
	ok(cut, "3.7 fuzz: invalid bytes are counted in cut (%llu bytes)", cut);
	ok(shared->calls > scale_min(1000),
	   "3.7 fuzz: another process makes random calls meanwhile (%llu times)",
	   shared->calls);
	for (int i = 0; i < 3; i++)
		kill_child(pids[i]);
	trace_drain(well_behaved_fd, 0, &(struct event_stats) { 0 });
	ok(good.events > 100 && !good.broken && !good.gaps && !good.lost_records && !good.first,
	   "3.7 fuzz: all events of a well-behaved process are read (%llu)", good.events);
	close(well_behaved_fd);
	for (int i = 0; i < TRACES; i++)
		close(fds[i]);
	well_behaved_fd = trace_create("after", "", 0, 0, &well_behaved_slot);
	ok(well_behaved_fd >= 0, "3.7 fuzz: a trace can be created afterwards");
	close(well_behaved_fd);
	return finish();
}
