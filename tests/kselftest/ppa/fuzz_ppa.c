// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 600
 * long: stock
 *
 * Makes random calls of process accounting: ioctls of /dev/ppa, reads of /dev/ppa, /proc/rawsysppa
 * and the files in /proc/ppa/PID, and writes to /proc/sys/kernel/ppa, /proc/sys/kernel/ppa_levels,
 * /proc/ppa/ppactl and /proc/ppa/PID/ppactl. Root and a user make the calls while tasks start and
 * exit. Each kind of call must succeed some times and fail some times. To repeat a run, set the
 * environment variables SEED, CALLS and ROUND.
 */
#include "ioctl_fuzz_run.h"
#include "ppa.h"

static const char *const empty_text[] = { "" };

static const struct field info_fields[] = {
	FIELD(struct ppa_info, size, K_OUT),
	FIELD(struct ppa_info, version, K_OUT),
	FIELD(struct ppa_info, khz, K_OUT),
	FIELD(struct ppa_info, levels, K_OUT),
	FIELD(struct ppa_info, flags, K_OUT),
	FIELD(struct ppa_info, scaling, K_OUT),
	FIELD(struct ppa_info, nr_cpus, K_OUT),
	FIELD(struct ppa_info, nr_groups, K_OUT),
	FIELD(struct ppa_info, nr_tasks, K_OUT),
	FIELD(struct ppa_info, nr_ended, K_OUT),
	FIELD(struct ppa_info, lost, K_OUT),
	FIELD(struct ppa_info, refused, K_OUT),
	FIELD(struct ppa_info, now, K_OUT),
};

static const struct field task_fields[] = {
	FIELD(struct ppa_task, size, K_SIZE),
	FIELD(struct ppa_task, flags, K_OUT),
	FIELD(struct ppa_task, pid, K_PID),
	FIELD(struct ppa_task, tgid, K_OUT),
	FIELD(struct ppa_task, ppid, K_OUT),
	FIELD(struct ppa_task, uid, K_OUT),
	FIELD(struct ppa_task, cpu, K_OUT),
	FIELD(struct ppa_task, reserved, K_OUT),
	FIELD(struct ppa_task, began, K_OUT),
	FIELD(struct ppa_task, counted, K_OUT),
	FIELD(struct ppa_task, values, K_OUT),
	FIELD(struct ppa_task, runq, K_OUT),
	FIELD(struct ppa_task, latencies, K_OUT),
	FIELD(struct ppa_task, signals, K_OUT),
	FIELD(struct ppa_task, reserved2, K_OUT),
	ONE_OF(struct ppa_task, comm, K_TEXT, empty_text),
};

static const struct shape info_shape = SHAPE(struct ppa_info, info_fields);
static const struct shape task_shape = SHAPE(struct ppa_task, task_fields);

static const struct call calls[] = {
	CALL(PPA_GETINFO, &info_shape, R_NEW, 0, 0),
	CALL(PPA_GETTASK, &task_shape, R_NEW, 0, 0),
};

enum extra { READ_TASKS, READ_SYSTEM, WRITE_SETTINGS, WRITE_LEVELS, WRITE_ENTRIES, WRITE_ENTRY,
READ_ENTRY };

static const char *const extras[] = {
	"read /dev/ppa", "read /proc/rawsysppa", "write /proc/sys/kernel/ppa",
	"write /proc/sys/kernel/ppa_levels", "write /proc/ppa/ppactl", "write /proc/ppa/PID/ppactl",
	"read /proc/ppa/PID/*",
};

/*
 * Writes a line of @nr numbers to @to. Makes one line in four invalid, but never changes the first
 * @keep numbers.
 */
static size_t make_line(char *to, size_t room, const long *numbers, int nr, int keep)
{
	static const char *const others[] = {
		"", " ", "x", "-1", "2", "4294967296", "18446744073709551616",
		"-9223372036854775809", "0x1", "1.5", "\n", "\t\t1", "99999999999999999999999999", "0",
	};
	bool wrong = !random_below(4);
	size_t at = 0, kept = 0, n;

	if (wrong && random_below(2))
		nr += random_below(2) ? 1 : -1;
	for (int i = 0; i < nr; i++) {
		const char *number = format_text("%ld", i < 5 ? numbers[i] : 1);

		at += snprintf(to + at, room - at, "%s%s", i ? random_below(8) ? " " : "\t" : "",
			       wrong && i >= keep && !random_below(nr) ? others[random_below(14)] :
			       number);
		kept = i < keep ? at : kept;
	}
	if (random_below(2))
		to[at++] = '\n';
	if (!wrong || random_below(2))
		return at;
	switch (random_below(4)) {
	case 0:
		/* Makes the text about as long as a page, or slightly longer. */
		n = 4090 + random_below(20);
		memset(to + at, " 1x"[random_below(3)], n);
		return at + n;
	case 1:
		to[kept + random_below(at - kept + 1)] = random_u64();
		return at;
	case 2:
		to[at++] = 0;
		return at;
	default:
		return random_below(at + 1);
	}
}

static int open_extra(enum extra extra, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		count_extra_outcome(extra, -1);
	return fd;
}

static void write_line(enum extra extra, const char *path, const long *numbers, int nr)
{
	static char text[12000];
	/*
	 * A line for /proc/ppa/ppactl begins with an ID from random_pid(). make_line() never
	 * changes the ID, so that the line selects no task outside of the fuzzer.
	 */
	int keep = extra == WRITE_ENTRIES;
	size_t bytes = make_line(text, 4000, numbers, nr, keep);
	int fd = open_extra(extra, path, O_WRONLY);
	const char *from = random_below(32) ? text : (char *)4096;

	if (fd < 0)
		return;
	record_call(path, fd, 0, NULL);
	/* Some lines are written at an offset, and some in two pieces. */
	if (!random_below(16))
		count_extra_outcome(extra,
				    pwrite(fd, from, bytes, random_below(2) ? 1 :
					   boundary_number(0)));
	else if (!keep && !random_below(16) && bytes > 2)
		count_extra_outcome(extra, write(fd, text, 2) < 0 ? -1 :
				    write(fd, text + 2, bytes - 2));
	else
		count_extra_outcome(extra, write(fd, from, bytes));
	close(fd);
}

/*
 * Reads a file four times, each time with a random length and offset, into valid or invalid memory.
 */
static void read_text(enum extra extra, const char *path, size_t unit)
{
	int fd = open_extra(extra, path, O_RDONLY);

	if (fd < 0)
		return;
	record_call(path, fd, 0, NULL);
	for (int i = 0; i < 4; i++) {
		struct object *o;
		size_t bytes = random_below(2) ? unit * (1 + random_below(32)) :
			random_below(20000);
		ssize_t got;

		gen.nr = 0;
		gen.some_wrong = random_below(2);
		gen.size_is_wrong = false;
		o = new_object(NULL, 1, bytes);
		got = count_extra_outcome(extra, random_below(8) ? read(fd, o->passed, bytes) :
						      pread(fd, o->passed, bytes,
							    boundary_number(unit)));
		expect_sane(got <= (ssize_t)bytes, "%s: read of %zu bytes gave %zd", path, bytes,
			    got);
		expect_sane(is_object_intact(o), "%s: bytes beside the buffer changed", path);
		if (!random_below(8))
			lseek(fd, random_below(2) ? 0 : boundary_number(unit), random_below(3));
	}
	close(fd);
}

/*
 * Returns the ID of a task of this fuzzer, or an ID that no task has. IDs of other tasks are left
 * out, because a write to ppactl would change the accounting of these tasks.
 */
static long random_pid(void)
{
	static const long none[] = { 0, -1, 0x7fffffff, 0x400000, 0x80000000L };

	return random_below(8) ? (long)pool_take(K_PID) : none[random_below(5)];
}

static void do_extra_operation(void)
{
	static const char *const files[] = { "ppa", "rawppa", "ppactl" };
	long on = random_below(4) != 0;
	long numbers[5] = { on, on && random_below(2), !random_below(16), 1 + random_below(3), 1 };
	long level[1] = { 1 | random_below(16) }, entry[5];
	char path[80];

	/* Each write of the settings attaches or detaches all probes. */
	if (!random_below(32)) {
		if (random_below(2))
			write_line(WRITE_SETTINGS, SETTINGS, numbers, 4);
		else
			write_line(WRITE_LEVELS, LEVELS, level, 1);
		return;
	}
	switch (random_below(14)) {
	case 0:
	case 1:
	case 2:
		entry[0] = random_pid();
		memcpy(entry + 1, numbers, 4 * sizeof(*entry));
		write_line(WRITE_ENTRIES, "/proc/ppa/ppactl", entry, 5);
		break;
	case 3:
	case 4:
		snprintf(path, sizeof(path), "/proc/ppa/%ld/ppactl", random_pid());
		write_line(WRITE_ENTRY, path, numbers, 4);
		break;
	case 5:
		read_text(READ_SYSTEM, "/proc/rawsysppa", sizeof(__u64) * PPA_NR_CPU_VALUES);
		break;
	case 6:
	case 7:
		read_text(READ_TASKS, "/dev/ppa", sizeof(struct ppa_task));
		break;
	default:
		snprintf(path, sizeof(path), "/proc/ppa/%ld/%s", random_pid(),
			 files[random_below(3)]);
		read_text(READ_ENTRY, path, 8);
		break;
	}
}

/* While accounting is off, the fuzzer's reads return little. */
static void turn_on(void)
{
	if (is_child || plain_user)
		return;
	ppa_write(SETTINGS, "1 1 0 1");
}

/*
 * Restores the levels and turns accounting on. The test calls restore_settings() after each round,
 * because a round that runs as a user has no permission to write the levels and the accounting
 * settings.
 */
static void restore_settings(void)
{
	ppa_write(LEVELS, "15");
	ppa_write(SETTINGS, "1 1 0 1");
}

static void prepare(void)
{
	load_modules("");
	load_module("ppa");
	restore_settings();
}

static const struct program ppa = {
	.device = "/dev/ppa",
	.calls = calls,
	.nr_calls = sizeof(calls) / sizeof(*calls),
	.extras = extras,
	.nr_extras = sizeof(extras) / sizeof(*extras),
	.extra = do_extra_operation,
	.init_process = turn_on,
	.after_round = restore_settings,
};

int main(int argc, char **argv)
{
	return fuzz_main(&ppa, argc, argv, prepare);
}
