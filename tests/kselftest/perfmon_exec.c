// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: plain
 * timeout: 60
 *
 * An exec of a sampled thread is a record of its ring, between the samples of both programs.
 * Without arguments this is the test, with one it is the program that is executed.
 */
#include "sampling.h"
#include "ring.h"

#define SIZE	RING_MAX_RECORD
#define CLOCK	1000000	/* nanoseconds */

/* Samples before and after the last exec, and execs, in the order of the ring. */
struct found {
	int before, after, execs, disorder;
	__u64 time;
};

static void drain(const struct ring *r, struct found *f)
{
	static union record record;
	__u64 head = ring_head(r), at = 0;
	int bytes;

	memset(f, 0, sizeof(*f));
	while ((bytes = ring_copy_record(r, head, at, &record)) > 0) {
		at += bytes;
		if (record.header.type == PERFMON_RECORD_EXEC) {
			f->execs++;
			f->time = record.words[1];
			f->before += f->after;
			f->after = 0;
			f->disorder += bytes != 16;
		} else if (record.header.type == PERFMON_RECORD_SAMPLE) {
			f->after++;
			f->disorder += record.sample.time < f->time;
		}
	}
}

/* Samples a child across an exec. With @stop the context is stopped before the exec. */
static void sample(struct found *f, bool stop)
{
	struct perfmon_ring_arg arg = { .size = SIZE };
	int fd = pfm_create_format(0, "ring", &arg, sizeof(arg)), go[2], reached[2];
	struct pfarg_pmd pmd = {
		.reg_num = PERFMON_TASK_CLOCK, .reg_value = -CLOCK,
		.reg_long_reset = -CLOCK, .reg_short_reset = -CLOCK,
	};
	struct ring r;
	pid_t child;
	char byte;

	if (fd < 0 || pipe(go) || pipe(reached))
		bail("a context");
	if (pfm_write_smpl(fd, &pmd))
		bail("write of a PMD");
	child = fork();
	if (!child) {
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		spin(3000000);
		if (write(reached[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(1);
		execl("/proc/self/exe", "perfmon_exec", "spin", NULL);
		_exit(1);
	}
	r = ring_map(fd, SIZE);
	if (pfm_load(fd, child))
		bail("load");
	pfm_start(fd);
	if (write(go[1], "x", 1) != 1 || read(reached[0], &byte, 1) != 1)
		bail("a child");
	if (stop)
		pfm_stop(fd);
	if (write(go[1], "x", 1) != 1)
		bail("a child");
	waitpid(child, NULL, 0);
	drain(&r, f);
	ring_close(&r);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(reached[i]);
	}
}

int main(int argc, char **argv)
{
	__u64 begin = now_ns();
	struct found f;

	(void)argv;
	if (argc > 1) {
		spin(3000000);
		return 0;
	}
	plan(6);
	load_modules("");
	pfm_set_limits("0", "0");
	insmod("pfm_soft", "");
	insmod("pfm_ring", "");
	sample(&f, false);
	note("%d samples, %d execs, %d samples", f.before, f.execs, f.after);
	is(f.execs, 1, "1.9 an exec of the sampled thread is one record of its ring");
	ok(f.time > begin && f.time < now_ns(), "1.9 the record of an exec has its time");
	ok(f.before && f.after, "1.9 the record of an exec is between samples of both programs");
	is(f.disorder, 0, "1.9 no sample of the former program follows the record of an exec");
	sample(&f, true);
	is(f.execs, 0, "1.9 an exec of a thread whose context is stopped writes no record");
	is(rmmod("pfm_ring"), 0, "1.9 perfmon_exec leaves no context behind");
	return finish();
}
