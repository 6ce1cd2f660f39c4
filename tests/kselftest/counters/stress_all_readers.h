/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes of stress_all.c that read counters: by snapshots, after forks, by name, with pfc.
 */
#ifndef STRESS_ALL_READERS_H
#define STRESS_ALL_READERS_H

#include "stress_all.h"
#include <poll.h>

struct last_seen {
	__u64 seq[64];
	__s64 a[MAX_PAIRS][64];
};

/* Returns false if the seqflag rejects the copy. */
static bool check_pair(const struct pc *p, __u32 i, __u32 cpu, struct last_seen *last)
{
	__u32 n = shared->pair[i];
	__u64 before = pc_seq(p, cpu);
	__s64 a = pc_value(p, cpu, n), b = pc_value(p, cpu, n + 1);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (before & PERFCOUNTERS_SEQ_BUSY || pc_seq(p, cpu) != before) {
		count_event(REJECTED);
		if (a != b)
			count_event(REJECTED_WRONG);
		return false;
	}
	expect(a == b, WRONG_SNAPSHOT, "pair %u, CPU %u: %lld and %lld", i, cpu, (long long)a,
	       (long long)b);
	if (last) {
		expect(before >= last->seq[cpu] && a >= last->a[i][cpu], WRONG_BACKWARDS,
		       "pair %u, CPU %u went back", i, cpu);
		last->seq[cpu] = before;
		last->a[i][cpu] = a;
	}
	return true;
}

static void check_all_pairs(const struct pc *p, __u32 pairs, struct last_seen *last, enum event e)
{
	for (__u32 i = 0; i < pairs && !shared->stop; i++) {
		const volatile struct perfcounters_desc *d = &p->desc[shared->pair[i]];

		expect(d->instance == shared->pair[i] && d->state == PERFCOUNTERS_LIVE, WRONG_DESC,
		       "descriptor of pair %u: instance %u, state %u", i, d->instance, d->state);
		for (__u32 cpu = 0; cpu < p->geometry.nr_cpus; cpu++)
			if (check_pair(p, i, cpu, last))
				count_event(e);
	}
}

/* The parent's mapping has room for all chunks that may be added later. */
static void fixed_reader(void)
{
	static struct last_seen last;

	while (!shared->stop)
		check_all_pairs(&pc, read_nr_pairs(), &last, FIXED_SNAPSHOTS);
}

/* In each round, maps exactly the chunks that exist. */
static void renewing_reader(void)
{
	static struct last_seen last;

	while (!shared->stop) {
		struct pc p = pc;
		__u32 pairs = read_nr_pairs(), chunks = p.h->nr_chunks;
		__u32 per_chunk = p.geometry.pages_per_chunk * p.geometry.page_size / 8;
		void *base;

		p.fd = open("/dev/perfcounters", O_RDONLY | O_CLOEXEC);
		p.len = perfcounters_offset(&p.geometry, 0, chunks * per_chunk);
		base = mmap(NULL, p.len, PROT_READ, MAP_SHARED, p.fd, 0);
		close(p.fd);
		expect(base != MAP_FAILED, WRONG_MMAP, "a mapping of %zu bytes: errno %d", p.len,
		       errno);
		if (base == MAP_FAILED)
			continue;
		p.base = base;
		check_all_pairs(&p, pairs, &last, RENEWED_SNAPSHOTS);
		munmap(base, p.len);
		count_event(MAPPINGS_RENEWED);
	}
}

/* Maps only chunk 0, once. */
static void old_reader(void)
{
	static struct last_seen last;
	struct pc p = pc;

	p.len = perfcounters_offset(&p.geometry, p.geometry.nr_cpus, 0);
	p.base = mmap(NULL, p.len, PROT_READ, MAP_SHARED, pc.fd, 0);
	bail_if(p.base == MAP_FAILED, "mmap of chunk 0");
	while (!shared->stop)
		check_all_pairs(&p, 1, &last, OLD_SNAPSHOTS);
}

/*
 * Runs a child that reads through the mappings of its parent. A child of kind 0 reads until it is
 * killed. A child of kind 1, 2 or 3 reads three times and then unmaps the mappings (kind 1),
 * executes another program (kind 2) or exits (kind 3).
 */
static void run_child(__u32 kind)
{
	for (int i = 0; kind == 0 || i < 3; i++) {
		__u32 pairs = read_nr_pairs();

		for (__u32 k = 0; k < pairs; k++)
			for (__u32 cpu = 0; cpu < pc.geometry.nr_cpus; cpu++)
				check_pair(&pc, k, cpu, NULL);
	}
	if (kind == 1)
		pc_close(&pc);
	if (kind == 2)
		execl("/bin/busybox", "true", NULL);
	_exit(0);
}

static void forker(void)
{
	while (!shared->stop) {
		__u32 kind = random_below(4);
		pid_t pid = fork();
		int status = 0;

		if (!pid)
			run_child(kind);
		if (pid < 0) {
			expect(false, WRONG_CHILD, "fork: errno %d", errno);
			return;
		}
		count_event(FORKS);
		if (kind == 0) {
			sleep_ms(random_below(30));
			kill(pid, SIGKILL);
		}
		waitpid(pid, &status, 0);
		if (kind == 0)
			count_event(KILLS);
		expect(kind == 0 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status,
		       WRONG_CHILD, "child of kind %u ended with %#x", kind, status);
	}
}

/* Checks a complete names file: its generation, the order of its lines, and their states. */
static void check_names(const char *text, __u64 *generation)
{
	unsigned long long gen;
	unsigned int number, last = 0;
	char state[16], name[PERFCOUNTERS_NAME_MAX + 1];
	const char *line;

	if (sscanf(text, "# perfcounters generation %llu boot_id", &gen) != 1 ||
	    gen < *generation) {
		expect(false, WRONG_NAMES, "first line, %.40s", text);
		return;
	}
	*generation = gen;
	for (line = strchr(text, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
		if (!strchr(line, '\n') ||
		    sscanf(line, "%u\t%15[a-z]\t%128[^\n]", &number, state, name) != 3 ||
		    number <= last || (strcmp(state, "live") && strcmp(state, "dormant"))) {
			expect(false, WRONG_NAMES, "line %.60s", line);
			return;
		}
		last = number;
	}
}

static void names_reader(void)
{
	static char whole[4 << 20], pieces[4 << 20];
	__u64 generation = 0;

	while (!shared->stop) {
		int fd = open("/dev/perfcounters_names", O_RDONLY | O_CLOEXEC);
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		ssize_t len = pread(fd, whole, sizeof(whole) - 1, 0), pos = 0, got;

		expect(fd >= 0 && len > 0, WRONG_NAMES, "open %d, %zd bytes, errno %d", fd, len,
		       errno);
		if (len <= 0)
			continue;
		whole[len] = '\0';
		check_names(whole, &generation);
		expect(poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLIN, WRONG_NAMES,
		       "poll gives %#x", poll_fd.revents);
		count_event(NAMES_POLLED);
		/* Read the names file again in pieces, and once more from a random position. */
		while ((got = read(fd, pieces + pos, 1 + random_below(9000))) > 0)
			pos += got;
		expect(pos == len && !memcmp(whole, pieces, len), WRONG_NAMES,
		       "in pieces it is another text");
		pos = random_below(len);
		got = lseek(fd, pos, SEEK_SET) == pos ? read(fd, pieces, 333) : -1;
		expect(got > 0 && !memcmp(whole + pos, pieces, got), WRONG_NAMES,
		       "from %zd on it is another text", pos);
		expect(pread(fd, pieces, 1, len + random_below(1 << 30)) == 0, WRONG_NAMES,
		       "behind its end there is something");
		close(fd);
		count_event(NAMES_READ);
		sleep_ms(50);
	}
}

static void pfc_runner(void)
{
	static const char *const args[][8] = {
		{ "pfc", "list", "torture/*" },
		{ "pfc", "snapshot", "torture/pair/*" },
		{ "pfc", "read", "--csv", "torture/*" },
		{ "pfc", "watch", "--plain", "--count", "2", "--interval", "200" },
	};

	for (__u32 i = 0; !shared->stop; i++) {
		const char *const *argv = args[i % 4];
		pid_t pid = fork();
		int status = 0;

		if (!pid) {
			int null = open("/dev/null", O_WRONLY);

			dup2(null, 1);
			execv("/bin/pfc", (char *const *)argv);
			_exit(127);
		}
		waitpid(pid, &status, 0);
		expect(!status, WRONG_PFC, "pfc %s ended with %#x", argv[1], status);
		count_event(PFC_RUNS);
	}
}

#endif
