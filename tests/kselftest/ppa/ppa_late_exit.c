// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests a task that exits while accounting adds the task's record to its index. The record must
 * stay in the index until the task's last context switch. tests/modules/late_exit.c enforces the
 * order of events. First, accounting adds the record. Second, the task exits, up to its last
 * context switch. Third, accounting begins its next pass over the tasks. Last, the task is switched
 * out.
 */
#include "ppa.h"

#define PARAMETERS	"/sys/module/late_exit/parameters/"

int main(void)
{
	static struct ppa_task tasks[4096];
	int pid, nr, alive = 0, ended = 0;

	plan(4);
	ppa_load();
	pin_to_cpu(0);
	insmod("late_exit", "");
	pid = read_number(PARAMETERS "pid");
	is(ppa_write(SETTINGS, "1 0 0 1"), 0, "9.1 exiting thread: accounting is turned on");
	/* The module sets the parameter "passed" before the last context switch of the thread. */
	wait_until(read_number(PARAMETERS "passed"));
	is(read_number(PARAMETERS "passed"), 1,
	   "9.1 exiting thread: it exits between insertion and check of its record");
	for (int i = 0; i < 500 && !ended; i++) {
		usleep(10000);
		nr = ppa_tasks(dev, tasks, 4096);
		alive = 0;
		for (int n = 0; n < nr; n++) {
			if (tasks[n].pid != (__u32)pid)
				continue;
			if (tasks[n].flags & PPA_TASK_ENDED)
				ended++;
			else
				alive++;
		}
	}
	is(ended, 1, "9.1 exiting thread: its record is returned once, as that of an ended task");
	is(alive, 0, "9.1 exiting thread: no record of a living task is left");
	rmmod("late_exit");
	ppa_write(SETTINGS, "0 0 0 1");
	close(dev);
	unload_modules();
	return finish();
}
