// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-amd2
 * timeout: 200
 * symbols: kept
 *
 * pfc stat must count everything that a command starts: threads, processes, and programs that a
 * thread other than the first one executes. Signals, including SIGSTOP, must have the same effect
 * on the command as without pfc stat. With arguments, this program acts as the command that pfc
 * stat counts.
 */
#include "../perfmon/perfmon.h"
#include <pthread.h>
#include <sys/personality.h>

static char self_path[200];

static void *spinner(void *rounds)
{
	spin((__u64)rounds);
	return NULL;
}

static void *sleeper(void *arg)
{
	pause();
	return NULL;
}

static int start_sleepers(int n)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	while (n-- > 0)
		if (pthread_create(&thread, &small, sleeper, NULL))
			return 1;
	pause();
	return 0;
}

static void *exec_program(void *rounds)
{
	execl(self_path, self_path, "spin", rounds, NULL);
	_exit(9);
}

static int nr_signals;

static void count_signal(int signal)
{
	nr_signals++;
}

static int test_signals(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		raise(SIGSTOP);
		signal(SIGUSR1, count_signal);
		signal(SIGRTMIN, count_signal);
		raise(SIGUSR1);
		raise(SIGRTMIN);
		_exit(nr_signals == 2 ? 0 : 3);
	}
	if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status))
		return 4;
	usleep(200000);
	/* The child must not continue before SIGCONT. */
	if (waitpid(child, &status, WNOHANG))
		return 5;
	kill(child, SIGCONT);
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

/* Functions with frame pointers that call each other, for samples with call stacks */
#define FRAME __attribute__((noinline, optimize("no-omit-frame-pointer", \
						"no-optimize-sibling-calls")))

static volatile __u64 work_done;

static FRAME void work_inner(__u64 rounds)
{
	/* A leaf function has a frame pointer only if it uses its frame address. */
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
	while (rounds--)
		work_done++;
}

static FRAME void work_middle(__u64 rounds)
{
	work_inner(rounds);
	work_done++;
}

static FRAME void work_outer(__u64 rounds)
{
	work_middle(rounds);
	work_done++;
}

/*
 * Alternates between phases with many instructions in user mode and phases of system calls. @seed
 * determines the sequence of the phases.
 */
static int run_phases(unsigned int seed, int n)
{
	for (int i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		if (seed & 0x10000)
			spin(20000 + (seed >> 17) % 100000);
		else
			for (int calls = 500 + (seed >> 17) % 2000; calls; calls--)
				syscall(SYS_getppid);
	}
	return 0;
}

static int run_work(char **argv, int n)
{
	__u64 rounds = strtoull(argv[2], NULL, 0);
	pthread_t thread[16];

	if (!strcmp(argv[1], "spin")) {
		spin(rounds);
	} else if (!strcmp(argv[1], "phases")) {
		return run_phases(atoi(argv[2]), n);
	} else if (!strcmp(argv[1], "calls")) {
		work_outer(rounds);
	} else if (!strcmp(argv[1], "threads")) {
		for (int i = 0; i < n; i++)
			pthread_create(&thread[i], NULL, spinner, (void *)rounds);
		for (int i = 0; i < n; i++)
			pthread_join(thread[i], NULL);
	} else if (!strcmp(argv[1], "forks")) {
		/* Each process forks the next one, and waits until its child exits. */
		for (int i = 0; i < n; i++) {
			if (fork()) {
				wait(NULL);
				_exit(0);
			}
			spin(rounds);
		}
	} else if (!strcmp(argv[1], "vforks")) {
		for (int i = 0; i < n; i++) {
			if (!vfork())
				exec_program(argv[2]);
			wait(NULL);
		}
	} else if (!strcmp(argv[1], "exec")) {
		pthread_create(&thread[0], NULL, exec_program, argv[2]);
		pthread_join(thread[0], NULL);
	} else if (!strcmp(argv[1], "signals")) {
		return test_signals();
	} else if (!strcmp(argv[1], "sleepers")) {
		return start_sleepers(rounds);
	} else if (!strcmp(argv[1], "perf")) {
		/* Keeps an event of perf open until the process is killed. */
		if (perf_user(PERF_COUNT_HW_INSTRUCTIONS, -1) < 0)
			return 1;
		pause();
	}
	return 0;
}

/* Returns the instructions that pfc stat counts for this program with @arguments, or -1. */
static long long count_instructions(const char *options, const char *arguments)
{
	char line[600], text[300] = "";
	FILE *f;
	int rc;

	snprintf(line, sizeof(line), "pfc stat %s -x, -o counts -e instructions:u %s %s",
		 options, self_path, arguments);
	rc = system(line);
	f = fopen("counts", "r");
	if (rc || !f || !fgets(text, sizeof(text), f) || text[0] < '0' || text[0] > '9') {
		note("status %#x: %s: %s", rc, line, text);
		return -1;
	}
	fclose(f);
	return atoll(text);
}

/*
 * Returns by how much the count of pfc stat grows when the program makes 3000000 rounds instead of
 * 1000000. Each of the two counts contains the instructions of the program's start, which cancel
 * out in the difference, so the expected growth is known exactly.
 */
static long long count_growth(const char *options, const char *kind, const char *more)
{
	char arguments[100];
	long long few, many;

	snprintf(arguments, sizeof(arguments), "%s 1000000 %s", kind, more);
	few = count_instructions(options, arguments);
	snprintf(arguments, sizeof(arguments), "%s 3000000 %s", kind, more);
	many = count_instructions(options, arguments);
	note("%s %s: %lld, %lld", options, kind, few, many);
	return few < 0 || many < 0 ? -1 : many - few;
}

static bool is_about(long long got, long long want)
{
	return got > want - 50000 && got < want + 50000;
}

/*
 * Runs pfc stat -i and pfc record -i for a program that the user nobody may execute but not read.
 * Counting and sampling must end at the exec, the count must be marked as short, and a message must
 * say so. The status of the program is 0, so the status of pfc must be 2.
 */
static void test_unreadable_program(void)
{
	char line[600];
	int rc;

	snprintf(line, sizeof(line),
		 "cp %s /tmp/unreadable && chmod 711 /tmp/unreadable && chmod 666 /dev/perfmon && su nobody -s /bin/sh -c 'cd /tmp && pfc stat -i -x, -e instructions:u ./unreadable spin 1000000' 2>counts",
		 self_path);
	rc = system(line);
	is(WEXITSTATUS(rc), 2, "9.6 pfc stat -i of an unreadable program: exit status is 2");
	rc = system("sed 's,^,# ,' counts; grep -q '^[0-9].*,instructions:u,.*,short$' counts");
	is(rc, 0, "9.6 pfc stat -i of an unreadable program: count is marked as short");
	rc = system("grep -q '^pfc: counting thread [0-9]* ended early: .* set-uid' counts");
	is(rc, 0, "9.6 pfc stat -i of an unreadable program: a message says that the count ended");
	insmod("pfm_ring", "");
	rc = system("chmod 1777 /tmp && su nobody -s /bin/sh -c 'cd /tmp && pfc record -i -m 8 -c 10000 -o unreadable.data -e instructions:u ./unreadable spin 1000000' 2>words");
	is(WEXITSTATUS(rc), 2, "9.6 pfc record -i of an unreadable program: exit status is 2");
	rc = system("sed 's,^,# ,' words; grep -q '^pfc: sampling thread [0-9]* ended early: .* set-uid' words");
	is(rc, 0, "9.6 pfc record -i of an unreadable program: a message says that sampling ended");
	rmmod("pfm_ring");
	unlink("/tmp/unreadable.data");
	unlink("/tmp/unreadable");
}

int main(int argc, char **argv)
{
	const struct pmu_model *m;
	long long got;

	bail_if(readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) < 0, "readlink");
	if (argc > 1)
		return run_work(argv, argc > 3 ? atoi(argv[3]) : 0);
	m = guest_model();
	/* Instructions in string functions depend on addresses. */
	bail_if(personality(ADDR_NO_RANDOMIZE) < 0, "personality");
	plan(16);
	pfm_load_modules(m);
	is(count_growth("", "spin", ""), 4000000,
	   "1.6 pfc stat: a followed program is counted exactly");
	/*
	 * With -i, pfc stat does not follow new tasks, and the count includes the instructions of
	 * pfc before the exec of the program. The number of instructions before the exec varies
	 * slightly, because pfc processes strings before the exec, and string functions depend on
	 * addresses.
	 */
	got = count_growth("-i", "spin", "");
	ok(got > 3999900 && got < 4000100,
	   "1.6 pfc stat -i: a program is counted within 100 instructions");
	ok(is_about(count_growth("", "threads", "4"), 16000000),
	   "1.6 pfc stat: four threads of a command are counted");
	ok(is_about(count_growth("-i", "threads", "4"), 0),
	   "1.6 pfc stat -i: four threads of a command are not counted");
	ok(is_about(count_growth("", "forks", "5"), 20000000),
	   "1.6 pfc stat: five nested child processes are counted");
	ok(is_about(count_growth("-i", "forks", "5"), 0),
	   "1.6 pfc stat -i: five nested child processes are not counted");
	ok(is_about(count_growth("", "vforks", "3"), 12000000),
	   "1.6 pfc stat: three programs of vfork() and exec are counted");
	ok(is_about(count_growth("", "exec", ""), 4000000),
	   "1.6 pfc stat: exec by a thread other than the first is counted");
	ok(is_about(count_growth("-i", "exec", ""), 0),
	   "1.6 pfc stat -i: exec by a thread other than the first is not counted");
	is(system("pfc stat -o counts /tests/pfc_follow signals 0") >> 8, 0,
	   "1.6 pfc stat: SIGSTOP stops a followed process and signals arrive once");
	test_unreadable_program();
	is(rmmod(m->amd ? "pfm_amd" : "pfm_intel"), 0,
	   "1.1 rmmod of the PMU description succeeds after all runs of pfc");
	return finish();
}
