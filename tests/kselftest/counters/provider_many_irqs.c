// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 240
 *
 * Tests pfc_irq with many interrupt lines. pfc_irq adds instances for lines until its table has no
 * free entry. When the table is full, pfc_irq adds no more instances. The kernel log reports once
 * that lines without an instance are counted together. No interrupt is lost.
 */
#include "provider.h"

/* Maximum number of entries of a provider, as in src/counters/keyed_counters.rs. */
#define MAX_ENTRIES	1024

/* Table entries of pfc_irq for other devices, which may raise interrupts during the test. */
#define NR_OTHER_LINES	30

static long first, lines;

static struct line_sums {
	/* Sum of the values of all instances that count an interrupt line of irq_lines.ko. */
	__s64 counted;
	__s64 unnamed;
	/*
	 * Lowest and highest value among the instances that count an interrupt line of
	 * irq_lines.ko.
	 */
	__s64 min, max;
	int instances, others;
} now;

static void read_instances(void)
{
	now = (struct line_sums) { .min = INT64_MAX, .unnamed = total_by_name("irq/unnamed") };
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
		if (value < now.min)
			now.min = value;
		if (value > now.max)
			now.max = value;
	}
}

static void raise_interrupts(int times)
{
	write_file("/sys/module/irq_lines/parameters/fire", format_text("%d", times));
}

/* Ends also if no line has got an instance in 20 rounds. Returns the interrupts on each line. */
static int raise_until_instances(int want)
{
	int fired = 0;

	for (int unchanged = 0; unchanged < 20 && now.instances < want; fired++) {
		int old = now.instances;

		raise_interrupts(1);
		sleep_ms(20);
		read_instances();
		unchanged = now.instances == old ? unchanged + 1 : 0;
	}
	return fired;
}

static void test_lines(int nr)
{
	int log, want;
	struct line_sums before;
	__u64 changes;

	load_provider("pfc_irq");
	log = klog_open();
	bail_on_error(insmod("irq_lines", format_text("lines=%d", nr)), "insmod irq_lines");
	first = read_number("/sys/module/irq_lines/parameters/first");
	lines = nr;
	read_instances();
	want = nr < MAX_ENTRIES ? nr : MAX_ENTRIES;
	raise_until_instances(want);
	ok(now.instances <= want && now.instances + now.others >= want &&
	   (nr > MAX_ENTRIES || now.instances == want),
	   "9.4 %d lines: as many as there is room for have instances (%d, and %d others)", nr,
	   now.instances, now.others);
	do {
		changes = pc.h->gen2;
		read_instances();
	} while (pc.h->gen2 != changes);
	before = now;
	for (int i = 0; i < 50; i++) {
		raise_interrupts(1);
		sleep_ms(10);
	}
	read_instances();
	/*
	 * While the loop raises 50 interrupts on each line of irq_lines.ko, no further line of
	 * irq_lines.ko may get an instance. Interrupt lines of other devices may still get
	 * instances, at their first interrupts.
	 */
	is(pc.h->gen2 - changes, now.others - before.others,
	   "9.4 %d lines: no further instance is added", nr);
	is(now.counted - before.counted, 50LL * before.instances,
	   "9.4 %d lines: each line with an instance counts its interrupts", nr);
	ok(now.unnamed - before.unnamed >= 50LL * (nr - before.instances) &&
	   now.unnamed - before.unnamed <= 50LL * (nr - before.instances) + 1000,
	   "9.4 %d lines: all other lines are counted in irq/unnamed (%lld)", nr,
	   now.unnamed - before.unnamed);
	is(klog_count(log, "reached; all others are counted together"), nr > MAX_ENTRIES,
	   "9.4 %d lines: messages in the log about missing room: %s", nr,
	   nr > MAX_ENTRIES ? "one" : "none");
	close(log);
	is(rmmod("pfc_irq"), 0, "9.4 %d lines: pfc_irq unloads", nr);
	is(rmmod("irq_lines"), 0, "9.4 %d lines: irq_lines.ko unloads", nr);
	pc_close(&pc);
}

int main(void)
{
	plan(gate_or_long(2, 3) * 7);
	if (is_long_run())
		test_lines(900);
	test_lines(MAX_ENTRIES - NR_OTHER_LINES);
	test_lines(2000);
	return finish();
}
