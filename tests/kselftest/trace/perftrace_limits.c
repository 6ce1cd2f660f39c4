// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * A program with more markers than a process may have (PERFTRACE_NR_MARKERS) runs, but the markers
 * beyond the limit are not traced, and the kernel log reports the limit. The test registers a table
 * of markers, just like the constructor of a program that has a PERFTRACE() statement for each of
 * these markers. A program that has no address space for the buffers runs untraced.
 */
#include "perftrace.h"
#include <sys/resource.h>

#define MAX_SITES	5000

static struct shared {
	__u32 wanted, mappings;
} *shared;

static const __u32 off_word;
static struct perftrace_site sites[MAX_SITES];
static char texts[MAX_SITES][32];
static struct perftrace_module modules[2];

/* If @bad is set, every tenth of markers @first to @last - 1 has an invalid name. */
static void register_sites(struct perftrace_module *module, int first, int last, bool bad)
{
	for (int i = first; i < last; i++) {
		snprintf(texts[i], sizeof(texts[i]),
			 bad && i % 10 == 9 ? "limits:%d bad" : "limits:m%d", i);
		sites[i] = (struct perftrace_site) {
			.word = &off_word, .text = texts[i],
			.header = sizeof(struct perftrace_record) / 8 << 16,
		};
	}
	*module = (struct perftrace_module) {
		.first = sites + first, .last = sites + last, .off = &off_word,
	};
	perftrace_register(module);
}

/* Limits the address space of this process to its present size and a few MiB. */
static void limit_address_space(void)
{
	struct rlimit limit = {
		read_number("/proc/self/statm") * getpagesize() + (4 << 20), RLIM_INFINITY
	};

	exit_if(setrlimit(RLIMIT_AS, &limit), 2);
}

static __u32 count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	__u32 nr = 0;

	exit_if(!maps, 3);
	while (fgets(line, sizeof(line), maps))
		nr += !!strstr(line, DEVICE);
	fclose(maps);
	return nr;
}

static void run_program(const char *what)
{
	int first = 0, second = 0;
	char kind = 0;

	/* Kills the program if it has not finished after two minutes. */
	alarm(120);
	shared = perftrace_map_inherited(sizeof(*shared));
	shared->wanted = 0;
	exit_if(sscanf(what, "%d+%d%c", &first, &second, &kind) < 2, 1);
	if (kind == 'l')
		limit_address_space();
	register_sites(&modules[0], 0, first, kind == 'b');
	shared->mappings = count_mappings();
	if (second)
		register_sites(&modules[1], first, first + second, false);
	for (int i = 0; i < first + second; i++)
		if (__atomic_load_n(sites[i].word, __ATOMIC_ACQUIRE)) {
			perftrace_write_0(&sites[i]);
			shared->wanted++;
		}
	_exit(0);
}

static void test_program(const char *what, __u32 traced, bool logged)
{
	static const char *const words[] = { "exceeds the limit of 4096 markers", NULL };
	int log = klog_open();
	pid_t pid = perftrace_spawn(what);

	is(wait_child(pid), 0, "3.8 %s markers: the program exits with status 0", what);
	is(shared->wanted, traced, "3.8 %s markers: %u are traced", what, traced);
	ok(klog_has(log, words) == logged, "3.8 %s markers: the kernel log %s", what,
	   logged ? "reports that there are too many" : "reports nothing");
}

int main(int argc, char **argv)
{
	int fd, slot;

	if (argc > 1)
		run_program(argv[1]);
	restart_untraced(argv);
	trace_load();
	plan(5 * 3 + 3 + 2);
	shared = perftrace_map_shared(sizeof(*shared));
	fd = trace_create("limits", "limits:*", 0, 1 << 20, &slot);
	test_program("4096+0", 4096, false);
	test_program("4097+0", 4096, true);
	test_program("4000+97", 4096, true);
	test_program("4900+100", 4096, true);
	/*
	 * Refused markers do not affect valid markers. Of 1,000 markers, the 100 markers with bad
	 * names are refused, and the other 900 are traced.
	 */
	test_program("1000+0bad", 900, false);
	is(shared->mappings, 2, "3.8 1000+0bad markers: the device is mapped twice");
	test_program("10+0limited", 0, false);
	is(shared->mappings, 0,
	   "3.8 no address space for the buffers: no mapping of the device is left");
	close(fd);
	return finish();
}
