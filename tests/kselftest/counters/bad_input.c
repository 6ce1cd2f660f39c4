// SPDX-License-Identifier: GPL-2.0
/*
 * Invalid requests of perf_add(), perf_add_desc() and perf_del() return an errno and change
 * nothing.
 */
#include "kselftest_pc.h"

static struct pc pc;
#define MAX_DESCS	512	/* room in a snapshot for descriptors, and for values of each CPU */

static struct snapshot {
	char header[4096];
	struct perfcounters_desc desc[MAX_DESCS];
	__s64 value[2][MAX_DESCS];
} snapshots[2];

/*
 * The values of the instances in which perfcounters.ko counts its own costs may change at any time,
 * so snapshots leave them out.
 */
static bool is_builtin(__u32 slot)
{
	return slot && slot <= PC_BUILTIN;
}

/* Takes a snapshot of the header, the descriptors and all values of two CPUs. */
static void take_snapshot(struct snapshot *p)
{
	__u32 slots = pc.h->nr_slots;

	if (slots > MAX_DESCS)
		bail("MAX_DESCS is too small");
	memset(p, 0, sizeof(*p));
	memcpy(p->header, pc.base, sizeof(p->header));
	memcpy(p->desc, (const void *)pc.desc, (slots + 15) / 16 * 4096);
	for (__u32 cpu = 0; cpu < 2; cpu++)
		for (__u32 slot = 0; slot < MAX_DESCS; slot++)
			p->value[cpu][slot] = is_builtin(slot) ? 0 : pc_value(&pc, cpu, slot);
}

static bool unchanged(void)
{
	take_snapshot(&snapshots[1]);
	return !memcmp(&snapshots[0], &snapshots[1], sizeof(snapshots[0]));
}

/*
 * Makes a request that must be refused. Checks the errno of the request, and that no value in the
 * snapshots has changed.
 */
static void test_refused(int want, const char *what, const char *command, size_t len)
{
	long long got;
	bool same;

	take_snapshot(&snapshots[0]);
	got = driver_cmd_raw(command, len);
	same = unchanged();
	if (!ok(got == -want && same, "0.10 %s: refused, nothing changes", what))
		note("got %lld, want -%d; %s", got, want, same ?
		     "nothing changed" : "something changed");
}

#define REFUSED(err, what, command)	test_refused(err, what, command, sizeof(command) - 1)

/* Adds an instance whose name is @len bytes long. */
static long long add_name_of_size(size_t len, bool expect, const char *fill)
{
	char command[2000] = "add ";
	size_t unit = strlen(fill);

	for (size_t i = 0; i < len; i++)
		command[4 + i] = fill[i % unit];
	if (expect)
		return driver_cmd_raw(command, 4 + len);
	snprintf(command + 1200, 100, "perf_add, name of %zu bytes: ENAMETOOLONG", len);
	test_refused(ENAMETOOLONG, command + 1200, command, 4 + len);
	return 0;
}

static void test_names(void)
{
	__u32 n;

	REFUSED(EINVAL, "perf_add, empty name: EINVAL", "add ");
	REFUSED(EINVAL, "perf_add, NULL name: EINVAL", "addnull");
	REFUSED(EEXIST, "perf_add, name in use: EEXIST", "add bad_input/live");
	n = add_name_of_size(127, true, "x");
	ok((int)n > 0 && strlen((const char *)pc.desc[n].name) == 127,
	   "0.10 perf_add: a name of 127 bytes is accepted");
	n = add_name_of_size(126, true, "ä");
	ok((int)n > 0, "0.10 perf_add: a name of 63 umlauts (126 bytes) is accepted");
	add_name_of_size(128, false, "x");
	add_name_of_size(129, false, "x");
	add_name_of_size(1000, false, "x");
	add_name_of_size(128, false, "ä");
	REFUSED(EILSEQ, "perf_add, lone continuation byte: EILSEQ", "add \x80");
	REFUSED(EILSEQ, "perf_add, truncated UTF-8 sequence: EILSEQ", "add abc\xc3");
	REFUSED(EILSEQ, "perf_add, overlong encoding of a slash: EILSEQ", "add \xc0\xaf");
	REFUSED(EILSEQ, "perf_add, surrogate: EILSEQ", "add \xed\xa0\x80");
	REFUSED(EILSEQ, "perf_add, code point above U+10FFFF: EILSEQ", "add \xf4\x90\x80\x80");
	REFUSED(EILSEQ, "perf_add, Latin-1 instead of UTF-8: EILSEQ", "add Z\xe4hler");
	REFUSED(EILSEQ, "perf_add, newline: EILSEQ", "add one\ntwo");
	REFUSED(EILSEQ, "perf_add, tab: EILSEQ", "add one\ttwo");
	REFUSED(EILSEQ, "perf_add, escape character: EILSEQ", "add \033[2J");
	REFUSED(EILSEQ, "perf_add, DEL: EILSEQ", "add \177");
	REFUSED(EILSEQ, "perf_add, C1 control character: EILSEQ", "add \xc2\x9b");
	ok(driver_cmd("add \u2028 \U0001f600 %%s%%n") > 0,
	   "0.10 perf_add: U+2028, an emoji and %%s%%n are accepted");
}

static void test_specs(void)
{
	char command[200];

	REFUSED(EINVAL, "perf_add_desc, NULL spec: EINVAL", "descnull");
	REFUSED(EINVAL, "perf_add_desc, size 0: EINVAL", "desc 0 0 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, size 31: EINVAL", "desc 31 0 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, size 40: EINVAL", "desc 40 0 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, reserved byte not 0: EINVAL", "desc 32 0 1 0 1 1 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, kind 5: EINVAL", "desc 32 5 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, kind 65535: EINVAL", "desc 32 65535 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, unit 8: EINVAL", "desc 32 0 8 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, exponent 19: EINVAL", "desc 32 0 1 19 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, exponent -19: EINVAL", "desc 32 0 1 -19 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, exponent -128: EINVAL", "desc 32 0 1 -128 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, counter of 2 slots: EINVAL", "desc 32 0 1 0 2 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, histogram of 0 slots: EINVAL", "desc 32 4 1 0 0 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, histogram of 1 slot: EINVAL", "desc 32 4 1 0 1 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, histogram of 65 slots: EINVAL",
		"desc 32 4 1 0 65 0 -1 bad");
	REFUSED(EINVAL, "perf_add_desc, empty name: EINVAL", "desc 32 0 1 0 1 0 -1 ");
	REFUSED(EILSEQ, "perf_add_desc, newline in the help: EILSEQ",
		"desc 32 0 1 0 1 0 3 a\nbbad");
	REFUSED(EILSEQ, "perf_add_desc, help is not UTF-8: EILSEQ",
		"desc 32 0 1 0 1 0 1 \xff" "bad");
	snprintf(command, sizeof(command), "desc 32 0 1 0 1 0 80 %080dbad", 0);
	test_refused(ENAMETOOLONG, "perf_add_desc, help of 80 bytes: ENAMETOOLONG", command,
		     strlen(command));
	ok(driver_cmd("desc 32 0 1 0 1 0 79 %079dbad_input/help", 0) > 0,
	   "0.10 perf_add_desc: help of 79 bytes is accepted");
	ok(driver_cmd("desc 32 3 2 -18 0 0 0 bad_input/edge") > 0,
	   "0.10 perf_add_desc: exponent -18, 0 slots and an empty help are accepted");
	ok(driver_cmd("desc 32 4 7 18 64 0 -1 bad_input/hist") > 0,
	   "0.10 perf_add_desc: histogram with exponent 18 and 64 slots is accepted");
}

/* Tests that a driver that repeats an invalid request does not fill the kernel log. */
static void test_rate_limit(void)
{
	int log = klog_open(), lines;

	/*
	 * Waits until the kernel's rate limit no longer counts the messages that earlier tests have
	 * logged.
	 */
	sleep_ms(6000);
	for (int i = 0; i < 500; i++)
		driver_cmd("del %u", 60000);
	lines = klog_count(log, "perf_del(60000): no such live instance");
	ok(lines > 0 && lines < 250,
	   "0.11 perf_del of an unknown number, 500 times: logged 1 to 249 times (%d)",
	   lines);
}

static void test_contexts(void)
{
	static const char *const advice[] = { "from atomic context", NULL };
	static const char *const names[] = { "irqoff", "lock", "softirq", "hardirq", "nmi" };
	char command[80], what[60];
	__u32 n = pc_find(&pc, "bad_input/live");
	int log = klog_open();

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(command, sizeof(command), "@%s add bad_input/atomic", names[i]);
		snprintf(what, sizeof(what), "perf_add in context %s: EINVAL", names[i]);
		test_refused(EINVAL, what, command, strlen(command));
	}
	ok(klog_has(log, advice), "0.10 perf_add in atomic context: the kernel log says why");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		take_snapshot(&snapshots[0]);
		driver_cmd("@%s del %u", names[i], n);
		ok(unchanged() && pc.desc[n].state == PERFCOUNTERS_LIVE,
		   "0.11 perf_del in context %s: refused, nothing changes", names[i]);
	}
}

static void test_deleting(void)
{
	static const char *const advice[] = { "no such live instance", NULL };
	const long long numbers[] = { 0, -1, 65535, 65536, INT32_MAX, INT32_MIN, pc.h->nr_slots };
	__u32 hist = pc_find(&pc, "bad_input/hist"), dormant = driver_cmd("add bad_input/dormant");
	bool same;
	int log = klog_open();

	driver_cmd("del %u", dormant);
	take_snapshot(&snapshots[0]);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		driver_cmd("del %lld", numbers[i]);
	driver_cmd("del %u", hist + 1);
	driver_cmd("del %u", dormant);
	same = unchanged();
	ok(same, "0.11 perf_del of a number that is not live: nothing changes");
	ok(klog_has(log, advice),
	   "0.11 perf_del of a number that is not live: the kernel log says so");
}

int main(void)
{
	plan(57);
	load_modules("");
	pc_open(&pc);
	driver_cmd("add bad_input/live");
	driver_cmd("adjust 1 77");
	test_names();
	test_specs();
	test_contexts();
	test_deleting();
	test_rate_limit();
	return finish();
}
