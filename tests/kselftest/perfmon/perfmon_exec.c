// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: plain
 * timeout: 60
 *
 * When a sampled thread executes a program, the kernel writes a record into the context's ring
 * (sample buffer), between the samples of the old and of the new program. Without arguments this
 * program is the test; with one argument it is the program that the test executes.
 */
#include "sampling.h"
#include "ring.h"

#define SIZE	RING_MAX_RECORD
#define CLOCK_PERIOD	1000000	/* nanoseconds */

/* Numbers of samples before and after the last exec record, and of exec records. */
struct exec_records {
	int before, after, nr_execs, nr_disordered;
	__u64 time;
};

static void read_records(const struct ring *r, struct exec_records *f)
{
	static union record record;
	__u64 head = ring_head(r), pos = 0;
	int bytes;

	memset(f, 0, sizeof(*f));
	while ((bytes = ring_copy_record(r, head, pos, &record)) > 0) {
		pos += bytes;
		if (record.header.type == PERFMON_RECORD_EXEC) {
			f->nr_execs++;
			f->time = record.words[1];
			f->before += f->after;
			f->after = 0;
			f->nr_disordered += bytes != 16;
		} else if (record.header.type == PERFMON_RECORD_SAMPLE) {
			f->after++;
			f->nr_disordered += record.sample.time < f->time;
		}
	}
}

static void sample_child(struct exec_records *f, bool stop)
{
	struct perfmon_ring_arg arg = { .size = SIZE };
	int fd = pfm_create_format(0, "ring", &arg, sizeof(arg)), start[2], reached[2];
	struct pfarg_pmd pmd = {
		.reg_num = PERFMON_TASK_CLOCK, .reg_value = -CLOCK_PERIOD,
		.reg_long_reset = -CLOCK_PERIOD, .reg_short_reset = -CLOCK_PERIOD,
	};
	struct ring r;
	pid_t child;
	char byte;

	bail_if(fd < 0 || pipe(start) || pipe(reached), "a context");
	bail_if(pfm_write_smpl(fd, &pmd), "write of a PMD");
	child = fork_child({
		exit_if(read(start[0], &byte, 1) != 1, 1);
		spin(3000000);
		exit_if(write(reached[1], &byte, 1) != 1 || read(start[0], &byte, 1) != 1, 1);
		execl("/proc/self/exe", "perfmon_exec", "spin", NULL);
		_exit(1);
	});
	r = ring_map(fd, SIZE);
	bail_if(pfm_load(fd, child), "load");
	pfm_start(fd);
	bail_if(write(start[1], "x", 1) != 1 || read(reached[0], &byte, 1) != 1, "a child");
	if (stop)
		pfm_stop(fd);
	bail_if(write(start[1], "x", 1) != 1, "a child");
	waitpid(child, NULL, 0);
	read_records(&r, f);
	ring_close(&r);
	for (int i = 0; i < 2; i++) {
		close(start[i]);
		close(reached[i]);
	}
}

int main(int argc, char **argv)
{
	__u64 begin = now_ns();
	struct exec_records f;

	if (argc > 1) {
		spin(3000000);
		return 0;
	}
	plan(6);
	load_modules("");
	load_module("perfmon");
	pfm_set_limits("0", "0");
	insmod_each("pfm_soft pfm_ring");
	sample_child(&f, false);
	note("%d samples, %d execs, %d samples", f.before, f.nr_execs, f.after);
	is(f.nr_execs, 1, "1.9 an exec of the sampled thread is one record of its ring");
	ok(f.time > begin && f.time < now_ns(), "1.9 the record of an exec has its time");
	ok(f.before && f.after, "1.9 the record of an exec is between samples of both programs");
	is(f.nr_disordered, 0, "1.9 no sample of the former program follows the record of an exec");
	sample_child(&f, true);
	is(f.nr_execs, 0, "1.9 an exec of a thread whose context is stopped writes no record");
	is(rmmod("pfm_ring"), 0, "1.9 perfmon_exec leaves no context behind");
	return finish();
}
