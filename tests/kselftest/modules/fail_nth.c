// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 400
 * worlds: debug
 *
 * Runs each operation of faults.h with the kernel's fault injection (fail_nth.h). Fault injection
 * also fails allocations that tests/modules/faults.c cannot fail: page tables, inodes, and the
 * parts of a per-CPU allocation.
 *
 * Fault injection fails only requests of the calling thread. While the test loads a module, fault
 * injection fails only the requests of the module's init function, which have an address of module
 * text on their stack.
 */
#include "faults.h"
#include "fail_nth.h"
#include <pthread.h>

/* Limits failures to requests with a return address of @address or higher on the stack. */
static void require_start(unsigned long address)
{
	char text[24];

	snprintf(text, sizeof(text), "%#lx", address);
	for (int i = 0; i < 3; i++)
		bail_if(!set_attribute(attributes[i], "require-start", text), "require-start");
}

/*
 * Returns an address above the text of the core kernel and below all modules: the address of the
 * test driver, rounded down to a multiple of 512 MB. The address region of the core kernel's text
 * is 512 MB or 1 GB in size.
 */
static unsigned long modules_address(void)
{
	char text[40];
	unsigned long address = strtoul(read_file("/sys/module/test_driver/sections/.text", text,
						  sizeof(text)), NULL, 16);

	bail_if(!address, "the test driver's address");
	return address & ~0x1fffffffUL;
}

/*
 * Accepts a device without a node: the kernel registers a device even if it cannot allocate the
 * node in /dev.
 */
static bool is_empty_or_without_node(void)
{
	if (!access("/dev/perfcounters", F_OK) && !access("/dev/perfcounters_names", F_OK))
		return has_no_instances();
	note("a device without a node");
	return is_loaded("perfcounters");
}

/*
 * While a module is being loaded, the thread open_devices() tries to open each device of the list
 * `devices` in turn, and keeps the first one that it can open. The variable `i` of open_devices()
 * is an index in the list `devices`, and is 0 while `devices` has a single device. The test
 * replaces `devices` by another list only while `devices` has a single device, so that `i` is valid
 * in the other list, too.
 */
static volatile bool may_open, is_open, is_waiting = true;
static const char *const *volatile devices;
static int nr_failed_while_open;

static void *open_devices(void *unused)
{
	unsigned int i = 0;

	pin_to_cpu(1);
	for (;;) {
		int fd = -1;

		if (may_open) {
			fd = open(devices[i], O_RDONLY | O_CLOEXEC);
			i = devices[i + 1] ? i + 1 : 0;
		}
		is_open = fd >= 0;
		while (is_open && may_open)
			sleep_ms(1);
		if (fd >= 0)
			close(fd);
		is_open = false;
		while (!may_open) {
			is_waiting = true;
			sleep_ms(1);
		}
		is_waiting = false;
	}
	return NULL;
}

static int while_opened(const char *const *names, int (*load)(void))
{
	int ret;

	devices = names;
	may_open = true;
	ret = load();
	disarm_failure();
	nr_failed_while_open += ret < 0 && is_open;
	may_open = false;
	do
		sleep_ms(1);
	while (is_open || !is_waiting);
	return ret;
}

static int load_perfcounters_while_opened(void)
{
	static const char *const names[] = {
		"/dev/perfcounters", "/dev/perfcounters_names", NULL,
	};

	return while_opened(names, load_perfcounters);
}

static int load_driver_while_opened(void)
{
	const char *const names[] = { device_path(), NULL };

	return while_opened(names, load_driver);
}

static const struct operation load_operation = {
	"insmod perfcounters", prepare_unloaded, load_perfcounters_while_opened, is_unloaded,
	is_empty_or_without_node, unload_perfcounters, 1, false, 8
}, load_device_operation = {
	"insmod", record_live, load_driver_while_opened, device_module_is_unloaded, return_true,
	unload_driver, 1, false, 8
};

/*
 * Number of operations to test. The last operation, which brings CPU 1 online, is left out: other
 * threads make its requests, and fault injection fails only requests of the calling thread.
 */
#define NTH_OPERATIONS	(NR_OPERATIONS - 1)

int main(void)
{
	static const char *const some[] = { "pfc_sched", "pfc_net", "sample_rust" };
	unsigned long modules;
	pthread_t thread;

	plan(NTH_OPERATIONS + 3 + 3 * 2 + 2 + 1);
	setup_injection();
	reload_and_map();
	for (int i = 0; i < 50; i++)
		driver_cmd("add faults/first/%u", serial++);
	modules = modules_address();
	for (int i = 0; i < NTH_OPERATIONS; i++)
		test_failures("0.10", &operations[i], "");
	close_fd();
	require_start(modules);
	for (int i = 0; i < 3; i++) {
		char of[40];

		driver = some[i];
		snprintf(of, sizeof(of), " %s", driver);
		test_failures("0.10", i == 2 ? &sample_operation : &driver_operation, of);
	}
	pthread_create(&thread, NULL, open_devices, NULL);
	driver = "perftrace";
	test_failures("0.10", &load_device_operation, " perftrace");
	is(nr_failed_while_open, 0,
	   "9.2 insmod perftrace, init fails: its device could not be opened before");
	driver = "ppa";
	test_failures("0.10", &load_device_operation, " ppa");
	is(nr_failed_while_open, 0,
	   "9.2 insmod ppa, init fails: its device could not be opened before");
	driver = "perfmon";
	test_failures("0.10", &load_device_operation, " perfmon");
	is(nr_failed_while_open, 0,
	   "9.2 insmod perfmon, init fails: its device could not be opened before");
	pc_close(&pc);
	test_failures("0.10", &load_operation, "");
	is(nr_failed_while_open, 0,
	   "9.2 insmod perfcounters, init fails: none of its devices could be opened before");
	require_start(0);
	unload_modules();
	note("%lu requests failed, one at a time", total_failed);
	ok(!is_loaded("perfcounters"), "0.10 fail-nth: perfcounters.ko unloads after all failures");
	return finish();
}
