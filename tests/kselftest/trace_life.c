// SPDX-License-Identifier: GPL-2.0
/*
 * guest: poke
 * worlds: stock debug
 * timeout: 600
 *
 * User tracing: how processes come and go. What was committed is there after the writer was
 * killed; exit, exec, fork, mappings that are taken apart; what is kept of processes that have
 * ended, and for how long; the module, which stays while anybody needs it.
 */
#include "trace.h"
#include <sys/prctl.h>

#define FIELDS	"number:u64"

/* Shared with children. */
static struct {
	volatile __u64 committed, ready;
	volatile __u64 key;
} *shared;

/* A process that is traced, in the trace of this slot. */
static int child_attach(struct traced *t, int slot, const char *event)
{
	int marker;

	on_cpu(0);
	traced_open(t, 0);
	marker = marker_register(t, event, FIELDS);
	if (marker < 0 || !becomes_wanted(t, marker, slot, true))
		_exit(99);
	shared->key = t->attach.key;
	return marker;
}

/* Writes until it is killed, and says how far it came, after each event. */
static void write_on(int slot)
{
	struct traced t;
	int marker = child_attach(&t, slot, "life:x");

	shared->ready = 1;
	for (__u64 n = 0;; n++) {
		while (!put_number(&t, slot, 0, marker, n))
			pause();
		shared->committed = n + 1;
	}
}

static void killed(void)
{
	int slot, fd = trace_create("killed", "life:*", 0, 1 << 20, &slot), status;
	int rounds = bounded(gate_or_long(60, 200)), whole = 0, most = 0;

	srandom(1);
	for (int i = 0; i < rounds; i++) {
		struct tally tally = { 0 };
		pid_t pid;
		__u64 told;

		shared->committed = 0;
		shared->ready = 0;
		pid = fork();
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			write_on(slot);
		}
		while (!shared->ready && !waitpid(pid, &status, WNOHANG))
			usleep(100);
		/* At any moment, but once after it has written much. */
		usleep(random() % 3000);
		if (!i)
			wait_until(shared->committed > 100);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		told = shared->committed;
		trace_drain(fd, shared->key, &tally);
		/* One may have been committed and not been told any more. */
		if (!tally.broken && !tally.gaps && !tally.lost_records &&
		    (tally.events == told || tally.events == told + 1) &&
		    (!tally.events || (!tally.first && tally.last == tally.events - 1)))
			whole++;
		else
			note("%llu were committed, %llu are there", told, tally.events);
		if ((int)tally.events > most)
			most = tally.events;
	}
	is(whole, rounds, "3.1 killed at any moment, a writer leaves all that it has committed");
	ok(most > 100, "3.1 which was a lot (up to %d events)", most);
	trace_drain(fd, 1, &(struct tally) { 0 });
	is(trace_info(fd).nr_processes, 0, "3.8 processes go that have ended and were read");
	is(trace_info(fd).memory, 0, "3.2 and so do their buffers");
	close(fd);
}

static void ended(void)
{
	struct perftrace_process p;
	struct perftrace_describe d;
	struct perftrace_read r = first_buffer;
	struct traced t;
	int slot, fd = trace_create("ended", "life:*", 0, 0, &slot);

	in_child(put_number(&t, slot, 0, child_attach(&t, slot, "life:ended"), 5));
	p.key = shared->key;
	d.key = shared->key;
	d.number = 0;
	is(trace_call(fd, PERFTRACE_PROCESS, &p), 0, "3.1 a process that has ended is still known");
	is(p.flags, PERFTRACE_ENDED, "3.1 as one that has");
	ok(!trace_call(fd, PERFTRACE_DESCRIBE, &d) && !strcmp(d.marker.name, "life:ended"),
	   "3.8 so are its markers");
	ok(!trace_next(fd, &r) && r.key == shared->key && r.bytes == 24,
	   "3.1 what it wrote is read");
	is(trace_call(fd, PERFTRACE_PROCESS, &p), 0, "3.1 its name as well, until reading begins again");
	is(trace_next(fd, &r), -ENOENT, "3.1 there is nothing else");
	r = first_buffer;
	trace_next(fd, &r);
	is(trace_call(fd, PERFTRACE_PROCESS, &p), -ENOENT, "3.8 then it is gone");
	d.number = 0;
	d.key = 0;
	is(trace_call(fd, PERFTRACE_NEXT_MARKER, &d), -ENOENT, "3.8 and its markers are");
	close(fd);
}

/* One that two traces have: each forgets it when its own reader begins again. */
static void in_two(void)
{
	int slots[2], fds[2], marker;
	struct perftrace_process p;
	struct perftrace_read r = first_buffer;
	struct traced t;

	fds[0] = trace_create("two0", "life:two", 0, 0, slots);
	fds[1] = trace_create("two1", "life:two", 0, 0, slots + 1);
	in_child(marker = child_attach(&t, slots[1], "life:two");
		 put_number(&t, slots[0], 0, marker, 0);
		 put_number(&t, slots[1], 0, marker, 0));
	p.key = shared->key;
	ok(!trace_next(fds[1], &r) && r.bytes == 24, "3.11 one of two traces is read");
	trace_drain(fds[0], 0, &(struct tally) { 0 });
	trace_drain(fds[0], 0, &(struct tally) { 0 });
	is(trace_call(fds[0], PERFTRACE_PROCESS, &p), -ENOENT,
	   "3.8 the other one's reader is done with a process");
	is(trace_call(fds[1], PERFTRACE_PROCESS, &p), 0,
	   "3.8 which is still there for the first one's");
	close(fds[0]);
	close(fds[1]);
}

/* The child of one that is traced; its parent has written one event. */
static int forked_child(struct traced *t, int slot, int marker)
{
	struct perftrace_attach attach;
	struct traced own = *t;
	int n;

	if (t->control->version || t->words[marker] || t->control->slots[slot].generation)
		return 1;
	/* What it writes all the same is nobody's. */
	memset(buffer_of(t, slot, 0), 0xff, 2 * PERFTRACE_RECORDS);
	own.fd = trace_device();
	if (try_attach(own.fd, 0, &attach))
		return 2;
	own.attach = attach;
	traced_map(&own, t);
	if (own.control->key == t->attach.key || own.control->key != attach.key)
		return 3;
	n = marker_register(&own, "life:fork", FIELDS);
	if (n < 0 || !wanted(&own, n, slot) || buffer_of(&own, slot, 0)->head)
		return 4;
	put_number(&own, slot, 0, n, 2000);
	return 0;
}

static void forks(void)
{
	struct tally mine = { 0 }, all = { 0 };
	struct traced t;
	int slot, fd = trace_create("forks", "life:*", 0, 0, &slot), marker;

	traced_open(&t, 0);
	marker = marker_register(&t, "life:fork", FIELDS);
	put_number(&t, slot, 0, marker, 0);
	is(in_child(_exit(forked_child(&t, slot, marker))), 0,
	   "3.1 a child sees empty pages, and attaches for itself over them");
	put_number(&t, slot, 0, marker, 1);
	trace_drain(fd, t.attach.key, &mine);
	ok(mine.events == 2 && !mine.gaps && !mine.broken,
	   "3.1 it has not touched its parent's events");
	put_number(&t, slot, 0, marker, 2);
	is(trace_drain(fd, 0, &all), 1, "3.1 the parent goes on");
	/* With its parent's file and memory that is its own again. */
	ok(in_child(marker_register(&t, "life:stray", FIELDS);
		    notify(&t, slot, 0)) >= 0, "3.7 a child's calls on its parent's file harm nobody");
	traced_close(&t);
	close(fd);
}

static void execs(char *self)
{
	char number[12];
	struct traced t;
	struct tally old = { 0 }, all = { 0 };
	int slot, fd = trace_create("execs", "life:*", 0, 0, &slot);
	__u64 key;

	snprintf(number, sizeof(number), "%d", slot);
	is(in_child(put_number(&t, slot, 0, child_attach(&t, slot, "life:old"), 1);
		    execl(self, self, "again", number, NULL)), 0,
	   "3.1 a program that was exec'ed attaches anew");
	is(trace_drain(fd, 0, &all), 2, "3.1 both programs' events are there");
	key = shared->key;
	trace_drain(fd, key, &old);
	is(all.events, 2, "3.1 each has its own");
	close(fd);
}

/* What a process may do to its mappings: it lives on, or gets a signal. */
static void unmap_half(struct traced *t, int slot)
{
	(void)slot;
	munmap(t->buffers + t->attach.bytes / 2, t->attach.bytes / 2);
}

static void unmap_buffer(struct traced *t, int slot)
{
	munmap(buffer_of(t, slot, 0), 8192);
}

static void unmap_read(struct traced *t, int slot)
{
	(void)slot;
	munmap((void *)t->control, PERFTRACE_READ_BYTES);
}

static void unmap_all(struct traced *t, int slot)
{
	unmap_half(t, slot);
	unmap_read(t, slot);
	munmap(t->buffers, t->attach.bytes / 2);
}

static void move(struct traced *t, int slot)
{
	void *p = mremap(t->buffers, t->attach.bytes, t->attach.bytes, MREMAP_MAYMOVE |
			 MREMAP_FIXED, t->buffers + 2 * t->attach.bytes);

	(void)slot;
	if (p != MAP_FAILED)
		*(volatile __u64 *)((char *)p + t->attach.bytes / 2 + 8192) = 1;
}

static void grow(struct traced *t, int slot)
{
	char *p = mremap(t->buffers, t->attach.bytes, 2 * t->attach.bytes, MREMAP_MAYMOVE);

	(void)slot;
	if (p != MAP_FAILED)
		*(volatile __u64 *)(p + t->attach.bytes) = 1;
}

static void double_map(struct traced *t, int slot)
{
	char *p = mremap(buffer_of(t, slot, 0), 0, 8192, MREMAP_MAYMOVE);

	if (p != MAP_FAILED)
		*(volatile __u64 *)p = 1;
}

static void advise(struct traced *t, int slot)
{
	static const int all[] = { MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_DOFORK,
				   MADV_KEEPONFORK, MADV_PAGEOUT, MADV_COLD };

	for (int i = 0; i < 7; i++)
		madvise(buffer_of(t, slot, 0), 8192, all[i]);
	mlock(buffer_of(t, slot, 0), 8192);
	in_child((void)*(volatile char *)buffer_of(t, slot, 0));
}

static void read_only(struct traced *t, int slot)
{
	mprotect(buffer_of(t, slot, 0), 8192, PROT_READ);
}

static void close_file(struct traced *t, int slot)
{
	(void)slot;
	close(t->fd);
}

static void apart(void)
{
	static const struct {
		const char *what;
		void (*harm)(struct traced *t, int slot);
	} all[] = {
		{ "half of its buffers are unmapped", unmap_half },
		{ "one of its buffers is", unmap_buffer },
		{ "what it reads is", unmap_read },
		{ "all is", unmap_all },
		{ "its buffers are moved", move },
		{ "they are made larger", grow },
		{ "one is mapped twice", double_map },
		{ "advice of all kinds is given", advise },
		{ "one is made read-only", read_only },
		{ "its file is closed", close_file },
		{ NULL, NULL },
	};

	for (int i = 0; all[i].what; i++) {
		struct tally tally = { 0 };
		struct traced t;
		int slot, fd = trace_create("apart", "life:*", 0, 0, &slot);

		in_child(int m = child_attach(&t, slot, "life:apart");
			 put_number(&t, slot, 0, m, 0);
			 all[i].harm(&t, slot);
			 put_number(&t, slot, 0, m, 1));
		trace_drain(fd, 0, &tally);
		ok(tally.events && !tally.first && !tally.broken,
		   "3.7 what was written is there though %s (%llu events)", all[i].what,
		   tally.events);
		trace_drain(fd, 0, &tally);
		if (trace_info(fd).nr_processes)
			note("it is still a process");
		close(fd);
	}
}

/* Writes until there is no room. */
static void fill(int slot)
{
	static char fields[1000];
	struct traced t;
	int marker = child_attach(&t, slot, "life:dropped");

	while (put_event(&t, slot, 0, marker, fields, sizeof(fields)))
		;
}

/* More processes than are kept of those that nobody reads. */
static void dropped(void)
{
	int slot, fd = trace_create("dropped", "life:*", 0, 1 << 20, &slot), rounds = 0;
	struct perftrace_info info;
	struct tally tally = { 0 };

	do {
		in_child(fill(slot));
		info = trace_info(fd);
	} while (!info.dropped && ++rounds < 1000);
	ok(info.dropped > 0, "3.2 what ended is not kept for ever: after %d processes one goes",
	   rounds);
	ok(info.memory < 256 << 20, "3.2 that is %llu MiB", info.memory >> 20);
	ok(trace_drain(fd, 0, &tally) == (int)info.nr_processes && !tally.broken,
	   "3.2 the others are there (%llu)", info.nr_processes);
	close(fd);
}

static void module(void)
{
	struct perftrace_create open = a_trace("kept", "", 0, 0);
	struct traced t;
	int slot, fd;

	/* Nothing of ours but what is tested here may hold it. */
	rmmod("puppet");
	traced_open(&t, 0);
	is(rmmod("perfcounters"), -EAGAIN, "3.1 the module stays while a process is traced");
	close(t.fd);
	is(rmmod("perfcounters"), -EAGAIN, "3.1 also without its file");
	munmap((void *)t.control, PERFTRACE_READ_BYTES);
	munmap(t.buffers, t.attach.bytes);
	fd = trace_create("kept", "", PERFTRACE_KEEP, 0, &slot);
	is(rmmod("perfcounters"), -EAGAIN, "3.11 while a trace is open");
	close(fd);
	is(rmmod("perfcounters"), -EAGAIN, "3.11 while one is kept");
	fd = trace_try(PERFTRACE_OPEN, &open);
	trace_call(fd, PERFTRACE_END, NULL);
	close(fd);
	wait_until(rmmod("perfcounters") != -EAGAIN);
	ok(!is_loaded("perfcounters"), "3.11 and goes afterwards");
	ok(access(DEVICE, F_OK), "3.11 with its device");
}

int main(int argc, char **argv)
{
	struct traced t;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc > 2)
		return !put_number(&t, atoi(argv[2]), 0,
				   child_attach(&t, atoi(argv[2]), "life:new"), 2);
	trace_load();
	plan(41);
	killed();
	ended();
	in_two();
	forks();
	execs(argv[0]);
	apart();
	dropped();
	module();
	return finish();
}
