// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 240
 *
 * Tests pfc trace with traced programs: it records to a file, keeps a flight recorder, prints
 * events live and lists traces. Some tests kill the program or the recording pfc. With arguments,
 * this program is the traced program.
 */
#include "../trace/trace.h"

#define GLOBS	"-e 'app:*'"
#define NO_TRACES	"pfc trace list --json | grep -q '\"traces\":\\[\\]'"

static struct traced_process self;

/*
 * Writes @nr events with consecutive numbers, or without end if @nr is negative, and sleeps for @ms
 * milliseconds after each event. Returns 7, the exit status of the program.
 */
static int run_app(long nr, int ms)
{
	struct { __u64 n; char name[8]; } __attribute__((packed)) fields = { 0, "step" };
	int marker;

	pin_to_cpu(0);
	traced_open(&self, PERFTRACE_SHARED);
	marker = marker_register(&self, "app:step", "n:u64 name:str");
	if (marker < 0)
		return 3;
	for (long n = 0; nr < 0 || n < nr; n++) {
		fields.n = n;
		for (int slot = 0; slot < PERFTRACE_NR_TRACES; slot++)
			if (is_wanted(&self, marker, slot))
				write_event(&self, slot, 0, marker, &fields, 8 + 5);
		if (ms)
			sleep_ms(ms);
	}
	return 7;
}

static pid_t start_app(void)
{
	return fork_child(execl("/tests/pfc_trace", "pfc_trace", "app", "-1", "1", NULL));
}

static int run(const char *command)
{
	int rc = system(command);

	return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* Returns the number that @command prints, or -1 if it prints none. */
static long number_from(const char *command)
{
	FILE *out = popen(command, "re");
	long n = -1;

	if (out && fscanf(out, "%ld", &n) != 1)
		n = -1;
	if (out)
		pclose(out);
	return n;
}

/* Returns 0 if the field n does not increase by 1 from each event to the next. */
static long count_steps(const char *path)
{
	FILE *lines = fopen(path, "re");
	long n, last = -1, count = 0;
	char line[512];

	while (lines && fgets(line, sizeof(line), lines)) {
		char *at = strstr(line, " app:step: n=");

		if (!at || !strstr(at, " name=\"step\"\n"))
			continue;
		n = atol(at + strlen(" app:step: n="));
		if (last >= 0 && n != last + 1)
			count = -1000000;
		last = n;
		count++;
	}
	if (lines)
		fclose(lines);
	return count > 0 ? count : 0;
}

/* Shell code that waits for up to a minute, until @file has more than @n lines with an event. */
#define LINES(n, file)							\
	"for i in $(seq 1200); do [ \"$(grep -c app:step " file ")\" -gt " n " ] && break; "	\
	"sleep 0.05; done\n"

static void test_stream(void)
{
	is(run("pfc trace list --markers | grep -q '^app:step  *[1-9].*n:u64 name:str'"), 0,
	   "3.8 pfc trace list --markers: the marker of a running program");
	is(run("pfc trace start rec " GLOBS " --format text -o rec.txt 2>rec.err & pid=$!\n"
	       "for i in $(seq 1200); do pfc trace list 2>/dev/null | grep -q '^rec ' && break; sleep 0.05; done\n"
	       LINES("60", "rec.txt") "pfc trace start rec 2>twice; echo $? >>twice\n"
	       "pfc trace stop rec && wait $pid"), 0,
	   "3.11 pfc trace stop: the trace ends, its recorder exits with 0");
	ok(count_steps("rec.txt") > 50,
	   "3.11 pfc trace start: more than 50 events in the file, none missing (%ld)",
	   count_steps("rec.txt"));
	is(run("grep -q 'pfc trace stop rec' twice && tail -n 1 twice | grep -qx 2"), 0,
	   "3.11 pfc trace start: a name in use is refused with status 2 and the remedy");
	is(run("pfc trace stop rec 2>words; [ $? = 2 ] && grep -q 'no trace' words"), 0,
	   "3.11 pfc trace stop: status 2 for a trace that has ended");
	is(run("pfc trace live " GLOBS " >live.txt 2>words & pid=$!\n"
	       LINES("60", "live.txt") "kill -INT $pid; wait $pid"), 0,
	   "3.11 pfc trace live: SIGINT ends it with status 0");
	ok(count_steps("live.txt") > 50,
	   "3.11 pfc trace live: more than 50 events, none missing (%ld)", count_steps("live.txt"));
}

static void test_command(void)
{
	long nr = gate_or_long(5000, 20000);
	long lost, written;
	char command[200];

	is(run("pfc trace start cmd " GLOBS " -o cmd -- /tests/pfc_trace app 100 1 2>words"), 7,
	   "3.11 pfc trace start with a command: ends with it, with its status");
	is(run("grep -q ' events, .* in cmd ]' words && [ -s cmd/metadata ] && ls cmd/stream_*_0"),
	   0, "3.11 pfc trace start with a command: a directory with CTF metadata and a stream");
	/* A stream is a file of complete packets, one after the other, each with a magic number. */
	is(number_from("hexdump -e '1/4 \"%x\\n\"' cmd/stream_*_0 | grep -c c1fc1fc1") > 0, true,
	   "3.11 pfc trace start with a command: the stream has packets");
	is(run("pfc trace start cmd -o cmd 2>words; [ $? = 2 ] && grep -q 'not empty' words"), 0,
	   "3.11 pfc trace start: a directory that is not empty is refused with status 2");
	is(run("pfc trace start none -o none -- /nowhere 2>words; [ $? = 127 ] && ! [ -e none ]"),
	   0, "3.11 pfc trace start: an unknown command is status 127 and leaves no directory");
	snprintf(command, sizeof(command), "pfc trace start less " GLOBS
		 " -s 4K --format text -o less.txt -- /tests/pfc_trace app %ld 0 2>words", nr);
	is(run(command), 7,
	   "3.2 small buffer: a command that writes too fast ends with its status");
	lost = number_from("awk '/ events lost / { n += $2 } END { print n + 0 }' less.txt");
	written = number_from("grep -c 'app:step: ' less.txt");
	ok(lost > 0 && written > 0 && lost + written <= nr,
	   "3.2 small buffer: lines about losses in the text (%ld lost, %ld written)", lost,
	   written);
	is(run("cat words; grep -qE '^pfc: [0-9]+ events were lost because buffers' words"), 0,
	   "3.2 small buffer: losses are reported at the end");
}

static void test_killed(void)
{
	pid_t pid = start_app();

	is(run("pfc trace start box " GLOBS " -s 4K --flight"), 0,
	   "3.11 flight recorder: pfc trace start --flight succeeds");
	is(run("for i in $(seq 1200); do pfc trace snapshot box --format text 2>words >some.txt\n"
	       "[ $(grep -c app:step some.txt) -gt 20 ] && break; sleep 0.05; done"), 0,
	   "3.11 flight recorder: a snapshot has more than 20 events");
	kill_child(pid);
	is(run("pfc trace list | grep -q '^box .*flight,keep'"), 0,
	   "3.11 flight recorder: the trace exists after its program was killed");
	is(run("pfc trace snapshot box --format text >box.txt"), 0,
	   "3.11 flight recorder: snapshot after its program was killed");
	ok(count_steps("box.txt") > 20,
	   "3.11 flight recorder: the snapshot has more than 20 events, none missing (%ld)",
	   count_steps("box.txt"));
	is(run("pfc trace snapshot box -o box 2>words && [ -s box/metadata ]"), 0,
	   "3.11 flight recorder: a second snapshot, as CTF");
	is(run("pfc trace stop box"), 0, "3.11 flight recorder: pfc trace stop succeeds");
	is(run(NO_TRACES), 0, "3.11 flight recorder: no trace is left after the stop");

	pid = start_app();
	is(run("pfc trace start dead " GLOBS " --format perfetto -o dead.json 2>words & pid=$!\n"
	       LINES("0", "dead.json") "kill -9 $pid; wait $pid\n"
	       "for i in $(seq 1200); do " NO_TRACES " && break; sleep 0.05; done; " NO_TRACES), 0,
	   "3.11 recorder killed: its trace ends");
	is(run("head -c 20 dead.json | grep -q '^{' && tail -n 1 dead.json | grep -qx ']}' &&\n"
	       "grep -q app:step dead.json"), 0, "3.11 recorder killed: the JSON file is complete");
	kill_child(pid);
}

static void test_other_cases(void)
{
	pid_t pid;

	/* There is a switch to, and one away from, each of the six subshells. */
	is(run("pfc trace start sys -e kernel:sched_switch --format text -o sys.txt -- \\\n"
	       "sh -c 'for i in 1 2 3 4 5 6; do (:); done'"), 0,
	       "3.11 kernel events: a trace of kernel:sched_switch");
	ok(number_from("grep -c 'kernel 0/.*kernel:sched_switch: prev=' sys.txt") > 5,
	   "3.11 kernel events: more than five in the file");
	pid = start_app();
	is(run("pfc trace start both " GLOBS " --shared --format text -o both.txt -- \\\n"
	       "/tests/pfc_trace app 100 1"), 7,
	       "3.2 shared buffer: a trace with a command ends with its status");
	is(number_from("grep -c 'app:step: ' both.txt") > 100, true,
	   "3.2 shared buffer: events of both programs");
	kill_child(pid);
	is(run("pfc trace start x -e 'app:x*' -- true 2>words; grep -q ' yet; ' words"), 0,
	   "3.8 pfc trace start without a program that has markers: it says so");
	is(run("pfc trace start x -f 'n >' 2>words; [ $? = 2 ] &&\n"
	       "tail -n 1 words | grep -q '^ *^$'"), 0,
	       "3.10 pfc trace start: an invalid filter is status 2, with the place of the error");
}

int main(int argc, char **argv)
{
	int gone = -EAGAIN;
	pid_t pid;

	if (argc > 3)
		return run_app(atol(argv[2]), atoi(argv[3]));
	trace_load();
	bail_if(chdir("/tmp"), "chdir");
	plan(32);
	pid = start_app();
	run("for i in $(seq 1200); do pfc trace list --markers | grep -q app:step && break; "
	    "sleep 0.05; done");
	test_stream();
	kill_child(pid);
	test_command();
	test_killed();
	test_other_cases();
	/* The mappings of a killed program keep the module loaded for some time. */
	for (int i = 0; i < 1200 && (gone = rmmod("perftrace")) == -EAGAIN; i++)
		sleep_ms(50);
	is(gone, 0, "3.7 rmmod of perftrace.ko succeeds at the end");
	return finish();
}
