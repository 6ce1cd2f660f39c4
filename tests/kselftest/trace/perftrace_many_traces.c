// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Sixteen traces of one program exist at once, with different filters and modes. Each trace has
 * exactly the events that it selects. A child of fork() is traced as a separate process, and so is
 * the program that the child executes.
 */
#include "perftrace.h"

#define EVENTS	20000

static void write_all(void)
{
	for (__u64 n = 0; n < EVENTS; n++) {
		PERFTRACE(many, number, (u64, number, n), (s32, negative, -(__s32)n));
		if (n % 10 == 0)
			PERFTRACE(many, text, (str, text, n % 20 ? "odd" : "even"));
	}
}

static void write_in_children(void)
{
	pid_t pid = fork();

	if (!pid) {
		PERFTRACE(many, child, (u64, number, getpid()));
		execl("/proc/self/exe", "perftrace_test", "after", NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	PERFTRACE(many, parent, (u64, number, pid));
	/*
	 * Forks by the bare system call, not by the C library. The child has no open files and no
	 * path to the device.
	 */
	pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		exit_if(chroot("/proc") || chdir("/") || syscall(SYS_close_range, 0, ~0U, 0), 1);
		PERFTRACE(many, alone, (u64, number, syscall(SYS_getpid)));
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void run_program(const char *what)
{
	if (!strcmp(what, "writer")) {
		write_all();
		write_in_children();
	} else {
		PERFTRACE(many, after, (u64, number, getpid()));
	}
	_exit(0);
}

/* A filter of up to four steps; it selects an event if all steps are true. */
struct filter_program {
	struct perftrace_filter head;
	struct perftrace_step steps[4];
	char texts[128];
};

static __u16 add_text(struct filter_program *p, const char *text)
{
	size_t offset = 0;

	while (p->texts[offset] || (offset && p->texts[offset - 1]))
		offset++;
	strcpy(p->texts + offset, text);
	return offsetof(struct filter_program, texts) + offset;
}

static void add_step(struct filter_program *p, const char *field, __u8 op, __u64 value)
{
	struct perftrace_step *step = &p->steps[p->head.nr_steps++];

	*step = (struct perftrace_step) {
		.op = op, .field = add_text(p, field), .yes = p->head.nr_steps,
		.no = PERFTRACE_REJECT, .value = value,
	};
}

static void add_glob(struct filter_program *p, const char *field, const char *glob)
{
	add_step(p, field, PERFTRACE_GLOB, add_text(p, glob));
}

/* Ends the filter after the last step that was added. Steps beyond nr_steps are not evaluated. */
static void end_program(struct filter_program *p)
{
	p->head.bytes = sizeof(*p);
	p->steps[p->head.nr_steps - 1].yes = PERFTRACE_ACCEPT;
	for (int i = p->head.nr_steps; i < 4; i++)
		p->steps[i] = p->steps[0];
}

static struct {
	const char *name;
	__u32 flags;
	const char *globs;
	void (*filter)(struct filter_program *p);
	__u64 want;
} traces[16];

static void filter_below_100(struct filter_program *p) { add_step(p, "number", PERFTRACE_LT, 100); }
static void filter_one(struct filter_program *p) { add_step(p, "number", PERFTRACE_EQ, 4711); }
static void filter_not_one(struct filter_program *p) { add_step(p, "number", PERFTRACE_NE, 4711); }
static void filter_range(struct filter_program *p)
{
	add_step(p, "number", PERFTRACE_GE, 1000);
	add_step(p, "number", PERFTRACE_LE, 1999);
}

static void filter_negative(struct filter_program *p)
{
	add_step(p, "negative", PERFTRACE_LT | PERFTRACE_SIGNED, -19990LL);
}

static void filter_bits(struct filter_program *p) { add_step(p, "number", PERFTRACE_ANY, 1); }
static void filter_even(struct filter_program *p) { add_glob(p, "text", "e*"); }
static void filter_odd(struct filter_program *p) { add_glob(p, "text", "?dd"); }
static void filter_marker(struct filter_program *p) { add_glob(p, "$marker", "many:n[a-z]mber"); }
static void filter_missing_field(struct filter_program *p)
{
	add_step(p, "nothing", PERFTRACE_NE, 1);
}

static void filter_above_half(struct filter_program *p)
{
	double d = 9999.5;
	__u64 value;

	memcpy(&value, &d, sizeof(value));
	add_step(p, "number", PERFTRACE_GT | PERFTRACE_FLOAT, value);
}

static void filter_no_thread(struct filter_program *p) { add_step(p, "$thread", PERFTRACE_EQ, 0); }

/*
 * The traces that filter by `number` do not select markers such as many:child and many:alone,
 * because the field `number` of these markers is a process id.
 */
static const typeof(traces[0]) wanted_traces[16] = {
	{ "all", 0, "many:number many:text", NULL, EVENTS + EVENTS / 10 },
	{ "below", 0, "many:n* many:t*", filter_below_100, 100 },
	{ "one", 0, "many:number", filter_one, 1 },
	{ "all but one", 0, "many:number", filter_not_one, EVENTS - 1 },
	{ "some", 0, "many:num*", filter_range, 1000 },
	{ "negative", 0, "", filter_negative, 9 },
	{ "bits", PERFTRACE_WAIT, "many:number", filter_bits, EVENTS / 2 },
	{ "even", 0, "many:*", filter_even, EVENTS / 20 },
	{ "odd", PERFTRACE_WAIT, "", filter_odd, EVENTS / 20 },
	{ "marker", 0, "*", filter_marker, EVENTS },
	{ "missing field", 0, "", filter_missing_field, 0 },
	{ "above 9999.5", 0, "many:number", filter_above_half, EVENTS - 10000 },
	{ "no thread", 0, "", filter_no_thread, 0 },
	{ "flight", PERFTRACE_FLIGHT, "many:number", NULL, 0 },
	{ "flight and filter", PERFTRACE_FLIGHT, "many:number", filter_one, 1 },
	{ "other markers", 0, "few:* man:*", NULL, 0 },
};

static __u64 nr, newest;

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	if (record->marker >= PERFTRACE_LOST)
		return;
	nr++;
	/* The newest record of a flight recorder is read first. */
	if (nr == 1)
		memcpy(&newest, record + 1, sizeof(newest));
}

static __u64 drain(int fd)
{
	struct perftrace_read r = first_buffer;

	nr = 0;
	while (!trace_read_next(fd, &r))
		perftrace_for_each(read_buffer, r.bytes, add_record, r.cpu);
	return nr;
}

static int create_trace(int n)
{
	struct perftrace_create create;
	static struct filter_program program;
	char name[16];
	int fd;

	traces[n] = wanted_traces[n];
	snprintf(name, sizeof(name), "many-%d", n);
	create = make_trace(name, traces[n].globs, traces[n].flags, 1 << 20);
	memset(&program, 0, sizeof(program));
	if (traces[n].filter) {
		traces[n].filter(&program);
		end_program(&program);
		create.filter = (unsigned long)&program;
		create.filter_bytes = sizeof(program);
	}
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	if (fd < 0)
		note("%s: %d, step %u", traces[n].name, fd, create.position);
	return fd;
}

static void test_sixteen(void)
{
	__u64 found[16] = { 0 };
	int fds[16], status;
	bool good = true;
	pid_t pid;

	for (int n = 0; n < 16; n++) {
		fds[n] = create_trace(n);
		good &= fds[n] >= 0;
	}
	ok(good, "3.11 sixteen traces: all are created");
	pid = perftrace_spawn("writer");
	while (waitpid(pid, &status, WNOHANG) != pid) {
		for (int n = 0; n < 16; n++)
			if (!(traces[n].flags & PERFTRACE_FLIGHT))
				found[n] += drain(fds[n]);
		usleep(1000);
	}
	is(status, 0, "3.11 sixteen traces: the traced program exits with status 0");
	for (int n = 0; n < 16; n++) {
		found[n] += drain(fds[n]);
		if (!strcmp(traces[n].name, "flight")) {
			is(newest, EVENTS - 1,
			   "3.11 trace %d, a flight recorder: the newest event is read first",
			   n);
			ok(found[n] > EVENTS / 10,
			   "3.11 trace %d, a flight recorder: has over a tenth of the events", n);
			continue;
		}
		is(found[n] + trace_info(fds[n]).lost, traces[n].want,
		   "3.10 trace %d, %s: has each event that it selects, and no other",
		   n, traces[n].name);
		is(trace_info(fds[n]).lost, 0, "3.10 trace %d: no event is lost", n);
	}
	for (int n = 0; n < 16; n++)
		close(fds[n]);
}

/* Checks which processes wrote many:parent, many:child, many:after and many:alone. */
static void test_children(void)
{
	struct perftrace_read r = first_buffer;
	int slot, fd = trace_create("family", "many:child many:parent many:after many:alone", 0, 0,
				    &slot);
	__u64 numbers[4] = { 0 }, pids[4] = { 0 }, keys[4] = { 0 }, thread = 0;
	const char *const names[] = { "many:parent", "many:child", "many:after", "many:alone" };
	pid_t pid = perftrace_spawn("writer");

	waitpid(pid, NULL, 0);
	while (!trace_read_next(fd, &r)) {
		struct perftrace_describe d = { .key = r.key };
		struct perftrace_process p = { .key = r.key };
		const struct perftrace_record *record = (const void *)read_buffer;

		d.number = record->marker;
		trace_ioctl(fd, PERFTRACE_DESCRIBE, &d);
		trace_ioctl(fd, PERFTRACE_PROCESS, &p);
		for (int i = 0; i < 4; i++) {
			if (strcmp(d.marker.name, names[i]))
				continue;
			memcpy(&numbers[i], record + 1, sizeof(__u64));
			pids[i] = p.pid ? p.pid : record->thread;
			keys[i] = r.key;
			thread = i == 3 ? record->thread : thread;
		}
	}
	ok(keys[0] && keys[1] && keys[2] && keys[0] != keys[1] && keys[1] != keys[2],
	   "3.8 fork and exec: parent, child and executed program have different keys");
	is(numbers[1], numbers[0], "3.8 fork: an event of the child is read");
	is(numbers[2], numbers[0], "3.8 exec: an event of the executed program is read");
	ok(pids[1] == numbers[0] || !pids[1],
	   "3.8 fork: the event of the child has the child's process id");
	ok(keys[3] && keys[3] != keys[0],
	   "3.8 bare clone(): a child without the device is traced as a process of its own");
	is(thread, numbers[3], "3.8 bare clone(): the record has the child's thread id");
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_program(argv[1]);
	restart_untraced(argv);
	plan(2 + 32 + 6 + 1);
	trace_load();
	pin_to_cpu(0);
	test_sixteen();
	test_children();
	unload_modules();
	ok(!is_loaded("perfcounters"), "3.8 sixteen traces: perfcounters.ko unloads");
	return finish();
}
