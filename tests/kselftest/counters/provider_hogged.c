// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 150
 *
 * Tests pfc_net while an interface is renamed on a CPU that a SCHED_FIFO thread keeps busy. A
 * thread of higher priority renames the interface. The rename must return while the SCHED_FIFO
 * thread still runs: pfc_net must not hold RTNL until the SCHED_FIFO thread ends. A kernel worker
 * adds the instances of the interface's new name later.
 */
#include "provider.h"
#include "hog.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int rename_interface(const char *from, const char *to)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), rc;
	struct ifreq request = { 0 };

	snprintf(request.ifr_name, IFNAMSIZ, "%s", from);
	snprintf(request.ifr_newname, IFNAMSIZ, "%s", to);
	rc = ioctl(fd, SIOCSIFNAME, &request) ? errno : 0;
	close(fd);
	return rc;
}

int main(void)
{
	int status = -1, waits = 0;
	pid_t pid, renames;

	plan(5);
	pin_to_cpu(0);
	shell("modprobe veth");
	load_provider("pfc_net");
	shell("ip link add pcv0 type veth");
	ok(pc_find(&pc, "net/pcv0/tx_packets"), "0.14 net: a new interface has instances");
	allow_hog();
	pid = start_hog();
	renames = fork_child({
		set_fifo_priority(60);
		_exit(rename_interface("pcv0", "pcv9"));
	});
	while (waitpid(renames, &status, WNOHANG) != renames && waits++ < 10000)
		sleep_ms(1);
	if (!ok(waits < 10000 && WIFEXITED(status) && !WEXITSTATUS(status),
		"9.2 net: a rename on a CPU with a busy SCHED_FIFO thread returns"))
		note("status %#x after %d ms", status, waits);
	if (waits < 10000)
		wait_until(pc_find(&pc, "net/pcv9/tx_packets"));
	ok(pc_find(&pc, "net/pcv9/tx_packets") && !pc_find(&pc, "net/pcv0/tx_packets"),
	   "9.2 net: instances of a new name are added while the SCHED_FIFO thread is busy");
	stop_hog(pid);
	restore_rt_limits();
	if (waits >= 10000)
		waitpid(renames, &status, 0);
	/*
	 * Renames two network interfaces, so that each has the old name of the other. For each
	 * name, the instances of the old owner must be deleted before instances of the new owner
	 * can be added.
	 */
	shell("ip link set veth0 name pcv1");
	bail_if(rename_interface("pcv9", "pcvx") || rename_interface("pcv1", "pcv9") ||
		rename_interface("pcvx", "pcv1"), "rename");
	wait_until(pc_find(&pc, "net/pcv9/tx_packets") && pc_find(&pc, "net/pcv1/tx_packets") &&
		   !pc_find(&pc, "net/pcvx/tx_packets"));
	ok(pc_find(&pc, "net/pcv9/tx_packets") && pc_find(&pc, "net/pcv1/tx_packets") &&
	   !pc_find(&pc, "net/pcvx/tx_packets"),
	   "0.14 net: two interfaces that swap names have instances under both");
	/* The interface may be deleted before the worker has added the new instances. */
	bail_if(rename_interface("pcv9", "pcv8"), "rename");
	shell("ip link del pcv8");
	ok(wait_until(!pc_find(&pc, "net/pcv8/tx_packets") && !pc_find(&pc, "net/pcv9/tx_packets")),
	   "0.14 net: an interface deleted just after its rename has no live instances");
	return finish();
}
