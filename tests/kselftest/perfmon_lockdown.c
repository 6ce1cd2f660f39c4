// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: lockdown-skylake
 * timeout: 60
 *
 * A kernel that is locked down for confidentiality, which cannot be undone until the next boot:
 * root may not count in kernel mode either. User mode is counted as before.
 */
#include "perfmon.h"
#include <sys/mount.h>

int main(void)
{
	const struct pmu_model *m = this_model();
	int fd, cpu;

	plan(8);
	pfm_load_modules(m);
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL), 0, "1.6 root counts in the kernel");
	close(fd);
	mount("securityfs", "/sys/kernel/security", "securityfs", 0, NULL);
	write_file("/sys/kernel/security/lockdown", "confidentiality");
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL), -EPERM,
	   "1.6 but not in one that is locked down");
	is(pfm_write_pmc(fd, INTEL_FIXED, 1), -EPERM, "1.6 by no counter");
	is(pfm_write_pmc(fd, 0, pfm_instructions(m)), 0, "1.6 user mode");
	is(pfm_load(fd, this_thread()), 0, "1.6 of a thread");
	ok(pfm_spin(fd, 0, 1000) >= 2000, "1.6 is counted as ever");
	close(fd);
	on_cpu(0);
	cpu = pfm_create(PFM_FL_SYSTEM_WIDE);
	is(pfm_load(cpu, 0), 0, "1.6 and so it is");
	is(pfm_write_pmc(cpu, 0, pfm_instructions(m) | PFM_KERNEL), -EPERM, "1.6 of a CPU");
	close(cpu);
	return finish();
}
