// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: plain pmu-skylake pmu-amd2
 * gate: pmu-skylake pmu-amd2
 * timeout: 200
 *
 * Stress test: monitoring and monitored processes start, exit, are killed and execute programs,
 * while a CPU goes offline and online and formats are removed. At the end no module, file or
 * mapping uses perfmon.ko. The test rig also checks the kernel log.
 */
#include "kselftest_pc.h"
#include "sampling.h"
#include "sets.h"

#define WORKERS		6
#define MONITORS	6
#define MS		1000000ULL

static const char *const formats[] = { "default", "ring", "flight-recorder", "call-stack", "n-way",
				       "histogram" };
static const char *const format_modules[] = { "pfm_default", "pfm_ring", "pfm_nway",
					      "pfm_histogram" };

/* Shared by all processes: the IDs of the workers, and the numbers of operations. */
static struct {
	volatile int worker[WORKERS];
	volatile long created, loaded, sets, runs, messages, restarts, kills;
	volatile long in_use, removed, offline;
	volatile bool over;
} *all;

static __u32 seed;

static __u32 random_below(__u32 sides)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % sides;
}

/* Process that is monitored: at random it sleeps, forks, exits, or executes this program. */
static void work_process(int n)
{
	all->worker[n] = getpid();
	for (;;) {
		spin(200000);
		switch (random_below(40)) {
		case 0:
			usleep(1000);
			break;
		case 1:
			if (!fork()) {
				spin(10000);
				_exit(0);
			}
			wait(NULL);
			break;
		case 2:
			_exit(0);
		case 3:
			execl("/proc/self/exe", "perfmon_stress", "work", NULL);
			_exit(0);
		default:
			break;
		}
	}
}

static int create(bool system)
{
	static const __u64 sizes[] = { 4096, 65536 };
	const char *format = formats[random_below(6)];
	__u64 size = sizes[random_below(2)];
	union {
		struct pfm_dfl_smpl_arg dfl;
		struct perfmon_ring_arg ring;
		struct perfmon_nway_arg nway;
		struct perfmon_histogram_arg hist;
	} arg = {};

	if (!random_below(5))
		return pfm_create(system ? PFM_FL_SYSTEM_WIDE :
				  random_below(2) ? PFM_FL_NOTIFY_BLOCK : 0);
	if (!strcmp(format, "default"))
		arg.dfl.buf_size = size;
	else if (!strcmp(format, "n-way"))
		arg.nway.size = 4096, arg.nway.nr = 2 + random_below(4);
	else if (!strcmp(format, "histogram"))
		arg.hist.base = 0x400000, arg.hist.shift = 4, arg.hist.nr = 4096;
	else
		arg.ring.size = size;
	return pfm_create_format(system ? PFM_FL_SYSTEM_WIDE : 0, format, &arg, 64);
}

/*
 * Creates set 0 and up to three more sets, which are switched by time, by overflows or by both.
 * Each set samples by the CPU clock and, with a PMU, by instructions.
 */
static void create_sets(int fd, const struct pmu_model *m)
{
	__u16 id, last = random_below(4);

	for (id = 0; id <= last; id++) {
		struct pfarg_setdesc desc = {
			.set_id = id, .set_flags = 1 + random_below(3),
			.set_timeout = MS / 10 + random_below(MS),
		};
		struct pfarg_pmd pmd = {
			.reg_num = PERFMON_CPU_CLOCK, .reg_set = id,
			.reg_ovfl_switch_cnt = random_below(3),
			.reg_value = -(MS / 2ULL), .reg_short_reset = -(MS / 2ULL),
			.reg_flags = random_below(4) ? 0 : PFM_REGFL_OVFL_NOTIFY,
		};

		if (!(desc.set_flags & PFM_SETFL_TIME_SWITCH))
			desc.set_timeout = 0;
		if (!random_below(4)) {
			desc.set_flags |= PFM_SETFL_EXPL_NEXT;
			desc.set_id_next = random_below(last + 1);
		}
		all->sets += !set_create(fd, &desc);
		set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
		if (!m)
			continue;
		pmd.reg_num = random_below(2);
		pmd.reg_value = -(1000 + random_below(100000));
		pmd.reg_short_reset = pmd.reg_value;
		set_pmc(fd, id, pmd.reg_num, pfm_instructions(m));
		set_call(fd, PERFMON_WRITE_PMDS, &pmd, sizeof(pmd));
	}
}

static void monitor_process(const struct pmu_model *m)
{
	struct perfmon_runs runs = { .reg_num = PERFMON_CPU_CLOCK };
	struct pfarg_setinfo info = {};
	struct pfarg_ovfl_msg msg;
	void *map;

	for (;;) {
		bool system = !random_below(4);
		int cpu = random_below(2), fd, i, n;

		if (system) {
			cpu_set_t cpu_set;

			CPU_ZERO(&cpu_set);
			CPU_SET(cpu, &cpu_set);
			if (sched_setaffinity(0, sizeof(cpu_set), &cpu_set))
				continue;
		}
		fd = create(system);
		if (fd < 0)
			continue;
		all->created++;
		fcntl(fd, F_SETFL, O_NONBLOCK);
		if (m && random_below(2)) {
			pfm_write_pmc(fd, 0, pfm_instructions(m));
			pfm_period(fd, 0, 3000 + random_below(100000),
				   random_below(2) ? PFM_REGFL_OVFL_NOTIFY : 0);
		}
		pfm_period(fd, PERFMON_CPU_CLOCK, MS / 4 + random_below(5 * MS),
			   random_below(2) ? PFM_REGFL_OVFL_NOTIFY : 0);
		if (!system)
			pfm_period(fd, PERFMON_CONTEXT_SWITCHES, 1 + random_below(5), 0);
		if (random_below(2))
			create_sets(fd, m);
		if (!set_load_on(fd, system ? cpu : all->worker[random_below(WORKERS)],
				 random_below(2))) {
			all->loaded++;
			pfm_start(fd);
		}
		map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		for (i = 0, n = random_below(30); i < n; i++) {
			switch (random_below(12)) {
			case 0:
				pfm_stop(fd);
				break;
			case 1:
				pfm_start(fd);
				break;
			case 2:
				all->restarts += !pfm_restart(fd);
				break;
			case 3:
				pfm_call(fd, PERFMON_PAUSE, &(__u32){ random_below(2) });
				break;
			case 4:
				pfm_period(fd, PERFMON_CPU_CLOCK, MS / 4 + random_below(MS),
					   random_below(2));
				break;
			case 5:
				usleep(random_below(3000));
				break;
			case 6:
				all->messages += read(fd, &msg, sizeof(msg)) == sizeof(msg);
				break;
			case 7:
				if (!random_below(4))
					pfm_unload(fd);
				break;
			case 8:
				set_start(fd, random_below(4));
				break;
			case 9:
				if (!set_call(fd, PERFMON_GETINFO_EVTSETS, &info, sizeof(info)))
					all->runs += info.set_runs;
				info = (struct pfarg_setinfo){ .set_id = random_below(4) };
				break;
			case 10:
				set_call(fd, PERFMON_READ_RUNS, &runs, sizeof(runs));
				break;
			case 11:
				if (random_below(8))
					break;
				pfm_unload(fd);
				set_delete(fd, random_below(4));
				create_sets(fd, m);
				set_load_on(fd, system ? cpu : all->worker[random_below(WORKERS)],
					    0);
				pfm_start(fd);
				break;
			}
		}
		if (map != MAP_FAILED)
			munmap(map, 4096);
		info = (struct pfarg_setinfo){ .set_id = 0 };
		if (!set_call(fd, PERFMON_GETINFO_EVTSETS, &info, sizeof(info)))
			all->runs += info.set_runs;
		close(fd);
	}
}

static int fork_process(int n, const struct pmu_model *m)
{
	int pid = fork();

	if (pid)
		return pid;
	seed = n * 7919 + (__u32)time(NULL);
	if (n < WORKERS)
		work_process(n);
	monitor_process(m);
	_exit(0);
}

static bool enough(void)
{
	return all->created > 5 && all->loaded > 0 && all->sets > 5 && all->runs > 1 &&
	       all->kills > 1 && all->in_use > 0;
}

/* Returns the number of modules that use perfmon.ko and hold a reference to it. */
static int nr_holders(void)
{
	DIR *dir = opendir("/sys/module/perfmon/holders");
	struct dirent *d;
	int nr = 0;

	while (dir && (d = readdir(dir)))
		nr += d->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return nr;
}

int main(int argc, char **argv)
{
	const struct pmu_model *m = getenv("PMU") ? guest_model() : NULL;
	int pids[WORKERS + MONITORS], i, rc;
	long idle = 0;
	time_t end;

	if (argc > 1 && !strcmp(argv[1], "work")) {
		/*
		 * This process is a former worker of the test. The worker has executed the test
		 * program with the argument "work". The executed program does not know its index in
		 * all->worker, so it exits soon. When a worker has exited, the main process starts
		 * a new worker.
		 */
		seed = getpid();
		spin(1000000);
		return 0;
	}
	plan(8);
	write_file("/proc/sys/kernel/modprobe", "\n");
	insmod_each("perfcounters perfmon");
	if (m)
		insmod(m->amd ? "pfm_amd" : "pfm_intel", "");
	insmod("pfm_soft", "");
	for (i = 0; i < 4; i++)
		insmod(format_modules[i], "");
	all = map_memory(4096, MAP_SHARED);
	for (i = 0; i < WORKERS + MONITORS; i++)
		pids[i] = fork_process(i, m);
	seed = 42;
	end = time(NULL) + gate_or_long(3, 6);
	/* A busy machine needs longer until enough operations have been made. */
	while (time(NULL) < end || (!enough() && time(NULL) < end + scale_timeout(100))) {
		usleep(20000);
		/*
		 * Kills a random process from time to time, and replaces all processes that have
		 * exited.
		 */
		i = random_below(WORKERS + MONITORS);
		/* On a slow machine, contexts must be created between kills. */
		if (!random_below(3) && all->created >= idle) {
			kill(pids[i], SIGKILL);
			all->kills++;
			idle = all->created + 2;
		}
		for (i = 0; i < WORKERS + MONITORS; i++)
			if (waitpid(pids[i], NULL, WNOHANG) == pids[i])
				pids[i] = fork_process(i, m);
		i = random_below(4);
		rc = rmmod(format_modules[i]);
		if (rc)
			all->in_use++;
		else
			all->removed += !insmod(format_modules[i], "");
		if (!random_below(20)) {
			all->offline += set_cpu_online(1, false);
			usleep(30000);
			set_cpu_online(1, true);
		}
	}
	for (i = 0; i < WORKERS + MONITORS; i++)
		kill(pids[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	note("%ld contexts, %ld of them loaded, %ld sets created, %ld runs seen, %ld messages, %ld restarts; %ld kills; formats %ld times in use, %ld times removed; CPU 1 %ld times offline",
	     all->created, all->loaded, all->sets, all->runs, all->messages,
	     all->restarts, all->kills, all->in_use, all->removed, all->offline);
	ok(all->created > 5 && all->loaded > 0,
	   "1.2 stress: more than five contexts were opened, some of them loaded");
	ok(all->sets > 5 && all->runs > 1, "1.12 stress: event sets were created and ran");
	ok(all->kills > 1, "1.2 stress: monitoring and monitored processes were killed");
	ok(all->in_use > 0, "1.9 stress: rmmod of a format in use was refused");
	for (i = rc = 0; i < 4; i++)
		rc |= rmmod(format_modules[i]);
	is(rc, 0, "1.9 stress: rmmod of all formats succeeds at the end");
	rc = rmmod("pfm_soft");
	if (m)
		rc |= rmmod(m->amd ? "pfm_amd" : "pfm_intel");
	is(rc, 0, "1.1 stress: rmmod of the PMU descriptions succeeds at the end");
	is(read_number("/sys/module/perfmon/refcnt"), nr_holders(),
	   "1.2 stress: no reference to perfmon.ko is left");
	unload_modules();
	ok(!is_loaded("perfcounters"), "1.2 stress: perfmon.ko and perfcounters.ko unload");
	return finish();
}
