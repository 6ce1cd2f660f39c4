// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 240
 *
 * pfc_irq with many interrupt lines: as many as there is room for have an instance, also if there
 * are more lines than that. Then no instance is added any more, the log reports once that the other
 * lines are counted together, and no interrupt is lost.
 */
#include "provider.h"

/* The limit of entries, ROWS in src/perfcounters/sys/family.rs. */
#define ROWS	1024

/* Room that is left for the lines of devices, which may have interrupts as well. */
#define OTHERS	30

static long first, lines;

static struct sums {
	__s64 counted;		/* of the test's lines that have instances */
	__s64 unnamed;
	__s64 least, most;	/* of one such line */
	int instances, others;
} now;

static void look(void)
{
	now = (struct sums) { .least = INT64_MAX, .unnamed = total_by_name("irq/unnamed") };
	for (__u32 n = 1; n < pc.h->nr_slots; n++) {
		const char *name = (const char *)pc.desc[n].name;
		__s64 value = pc_total(&pc, n);
		long irq;

		if (pc.desc[n].state != PERFCOUNTERS_LIVE || sscanf(name, "irq/%ld/", &irq) != 1)
			continue;
		if (irq < first || irq >= first + lines) {
			now.others++;
			continue;
		}
		now.instances++;
		now.counted += value;
		if (value < now.least)
			now.least = value;
		if (value > now.most)
			now.most = value;
	}
}

static void fire(int times)
{
	char text[20];

	snprintf(text, sizeof(text), "%d", times);
	write_file("/sys/module/irq_lines/parameters/fire", text);
}

/*
 * Raises interrupts until @want lines have an instance, or their number stays the same for long.
 * Returns how often each line was interrupted.
 */
static int settle(int want)
{
	int fired = 0;

	for (int still = 0; still < 20 && now.instances < want; fired++) {
		int had = now.instances;

		fire(1);
		sleep_ms(20);
		look();
		still = now.instances == had ? still + 1 : 0;
	}
	return fired;
}

static void with_lines(int nr)
{
	int log, want;
	struct sums before;
	char text[40];
	__u64 changes;

	snprintf(text, sizeof(text), "lines=%d", nr);
	load_provider("pfc_irq");
	log = klog_open();
	errno = -insmod("irq_lines", text);
	if (errno)
		bail("insmod lines");
	read_file("/sys/module/irq_lines/parameters/first", text, sizeof(text));
	first = atol(text);
	lines = nr;
	look();
	want = nr < ROWS ? nr : ROWS;
	settle(want);
	ok(now.instances <= want && now.instances + now.others >= want &&
	   (nr > ROWS || now.instances == want),
	   "9.4 %d lines: as many as there is room for have instances (%d, and %d others)", nr,
	   now.instances, now.others);
	do {
		changes = pc.h->gen2;
		look();
	} while (pc.h->gen2 != changes);
	before = now;
	for (int i = 0; i < 50; i++) {
		fire(1);
		sleep_ms(10);
	}
	look();
	/* Only a device's line may have been added, with its first interrupt. */
	is(pc.h->gen2 - changes, now.others - before.others,
	   "9.4 %d lines: no further instance is added", nr);
	is(now.counted - before.counted, 50LL * before.instances,
	   "9.4 %d lines: each line with an instance counts its interrupts", nr);
	ok(now.unnamed - before.unnamed >= 50LL * (nr - before.instances) &&
	   now.unnamed - before.unnamed <= 50LL * (nr - before.instances) + 1000,
	   "9.4 %d lines: all other lines are counted in irq/unnamed (%lld)", nr,
	   now.unnamed - before.unnamed);
	is(klog_count(log, "no place for"), nr > ROWS,
	   "9.4 %d lines: messages in the log about missing room: %s", nr,
	   nr > ROWS ? "one" : "none");
	close(log);
	is(rmmod("pfc_irq"), 0, "9.4 %d lines: pfc_irq unloads", nr);
	is(rmmod("irq_lines"), 0, "9.4 %d lines: irq_lines.ko unloads", nr);
	pc_close(&pc);
}

int main(void)
{
	plan(gate_or_long(2, 3) * 7);
	if (is_long_run())
		with_lines(900);
	with_lines(ROWS - OTHERS);
	with_lines(2000);
	return finish();
}
