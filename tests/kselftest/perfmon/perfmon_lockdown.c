// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: lockdown-skylake
 * timeout: 60
 *
 * Sets the kernel lockdown to "confidentiality". This lockdown lasts until the next boot. While it
 * is in force, even root is not permitted to count in kernel mode. Counting in user mode works as
 * it does without lockdown.
 */
#include "perfmon.h"
#include <sys/mount.h>

int main(void)
{
	const struct pmu_model *m = guest_model();
	int fd, cpu;

	plan(8);
	pfm_load_modules(m);
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL), 0,
	   "1.6 no lockdown: root may write a PMC that counts in kernel mode");
	close(fd);
	mount("securityfs", "/sys/kernel/security", "securityfs", 0, NULL);
	write_file("/sys/kernel/security/lockdown", "confidentiality");
	fd = pfm_create(0);
	is(pfm_write_pmc(fd, 0, pfm_instructions(m) | PFM_KERNEL), -EPERM,
	   "1.6 lockdown: a PMC that counts in kernel mode is EPERM for root");
	is(pfm_write_pmc(fd, INTEL_FIXED, 1), -EPERM,
	   "1.6 lockdown: a fixed counter in kernel mode is EPERM for root");
	is(pfm_write_pmc(fd, 0, pfm_instructions(m)), 0,
	   "1.6 lockdown: a PMC that counts in user mode is written");
	is(pfm_load(fd, this_thread()), 0, "1.6 lockdown: load on the calling thread succeeds");
	ok(pfm_spin(fd, 0, 1000) >= 2000, "1.6 lockdown: user mode of a thread is counted");
	close(fd);
	pin_to_cpu(0);
	cpu = pfm_create(PFM_FL_SYSTEM_WIDE);
	is(pfm_load(cpu, 0), 0, "1.6 lockdown: load of a context on CPU 0 succeeds");
	is(pfm_write_pmc(cpu, 0, pfm_instructions(m) | PFM_KERNEL), -EPERM,
	   "1.6 lockdown: a CPU's PMC that counts in kernel mode is EPERM");
	close(cpu);
	return finish();
}
