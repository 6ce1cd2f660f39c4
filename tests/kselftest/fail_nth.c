// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 400
 * worlds: debug
 *
 * The kernel's own fault injection (nth.h) in each operation of faults.h. That is
 * deeper than faults.c goes: page tables, inodes, the parts of a percpu allocation.
 *
 * It fails what this task asks for. Of loading a module only what its own init
 * function asks for, which is what has the module's text on the stack.
 */
#include "faults.h"
#include "nth.h"
#include <pthread.h>

/* Only with an address from here on upwards on the stack. */
static void only_above(unsigned long address)
{
	char text[24];

	snprintf(text, sizeof(text), "%#lx", address);
	for (int i = 0; i < 3; i++)
		if (!set(attributes[i], "require-start", text))
			bail("require-start");
}

/* Where the kernel puts modules: above its own text, of 512 MB or 1 GB. */
static unsigned long modules_start(void)
{
	char text[40];
	unsigned long at = strtoul(slurp("/sys/module/puppet/sections/.text", text, sizeof(text)),
				   NULL, 16);

	if (!at)
		bail("the puppet's address");
	return at & ~0x1fffffffUL;
}

/* The kernel registers a device for which it has no memory to make a node. */
static bool is_empty_set(void)
{
	if (!access("/dev/perfcounters", F_OK) && !access("/dev/perfcounters_names", F_OK))
		return is_empty();
	note("a device without a node");
	return is_loaded("perfcounters");
}

/* While it is loaded a thread tries to open each device, and keeps the first that it gets. */
static volatile bool opens, is_open, waits = true;
static int too_early;

static void *open_them(void *unused)
{
	static const char *const devices[] = {
		"/dev/perfcounters", "/dev/perfcounters_names", "/dev/perfmon", "/dev/ppa",
		"/dev/perftrace",
	};

	on_cpu(1);
	for (unsigned int i = 0;; i = (i + 1) % 5) {
		int fd = opens ? open(devices[i], O_RDONLY | O_CLOEXEC) : -1;

		is_open = fd >= 0;
		while (is_open && opens)
			sleep_ms(1);
		if (fd >= 0)
			close(fd);
		is_open = false;
		while (!opens) {
			waits = true;
			sleep_ms(1);
		}
		waits = false;
	}
	return NULL;
}

static int load_while_it_is_opened(void)
{
	int ret;

	opens = true;
	ret = load_perfcounters();
	disarm();
	too_early += ret < 0 && is_open;
	opens = false;
	do
		sleep_ms(1);
	while (is_open || !waits);
	return ret;
}

static const struct operation loading_it = {
	"insmod perfcounters", gone, load_while_it_is_opened, not_there, is_empty_set,
	unload_perfcounters, 1, false, 8
};

/* The last is of a CPU, which others bring up. */
#define NTH_OPERATIONS	(OPERATIONS - 1)

int main(void)
{
	static const char *const some[] = { "pfc_sched", "pfc_net", "sample_rust" };
	unsigned long modules;
	pthread_t thread;

	plan(NTH_OPERATIONS + 1 + 3 + 2);
	set_up();
	afresh();
	for (int i = 0; i < 50; i++)
		puppet("add faults/first/%u", serial++);
	modules = modules_start();
	for (int i = 0; i < NTH_OPERATIONS; i++)
		inject("0.10", &operations[i], "");
	close_it();
	only_above(modules);
	for (int i = 0; i < 3; i++) {
		char of[40];

		driver = some[i];
		snprintf(of, sizeof(of), " %s", driver);
		inject("0.10", i == 2 ? &sample_loading : &driver_loading, of);
	}
	pc_close(&pc);
	pthread_create(&thread, NULL, open_them, NULL);
	inject("0.10", &loading_it, "");
	is(too_early, 0, "9.2 no device is opened of a module whose init fails");
	only_above(0);
	unload();
	note("%lu requests failed, one at a time", all_failed);
	ok(!is_loaded("perfcounters"), "0.10 fail-nth: everything unloads");
	return finish();
}
