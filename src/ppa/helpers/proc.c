// SPDX-License-Identifier: GPL-2.0
/*
 * Files of process accounting: /proc/rawsysppa, /proc/ppa, the sysctls kernel.ppa and
 * kernel.ppa_levels, and ppa/records in debugfs. Their contents come from procfs.rs.
 *
 * A file mode cannot require a capability, so every user can open the files in /proc. A read of a
 * sysctl is not checked. A read of a task's files requires ptrace access or CAP_PERFMON; all other
 * reads and all writes require CAP_PERFMON. A write also checks that the process that opened the
 * file had CAP_PERFMON: any user can pass an open file to a set-user-ID program as its standard
 * output. Such a program may also have read a part of the file: seq_file keeps the rest in the open
 * file, and does not call the show function again. Therefore each read is checked before
 * seq_read_iter(), and not only in the show function. The handler of a sysctl does not get the open
 * file, so it cannot check which process opened the file. Therefore only root can open a sysctl for
 * writing.
 */
#include <linux/capability.h>
#include <linux/debugfs.h>
#include <linux/kstrtox.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/sysctl.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include "helpers.h"

/* For all files in /proc: the private data of the seq_file is the ID of a task's entry, or 0. */
static ssize_t checked_read_iter(struct kiocb *iocb, struct iov_iter *iter)
{
	struct seq_file *seq = iocb->ki_filp->private_data;
	int rc = ppa_may_read((unsigned long)seq->private);

	return rc ?: seq_read_iter(iocb, iter);
}

static int cpus_show(struct seq_file *seq, void *unused)
{
	return ppa_show_cpus(seq, unused);
}

static int cpus_open(struct inode *inode, struct file *file)
{
	return single_open(file, cpus_show, NULL);
}

static const struct proc_ops cpus_ops = {
	.proc_open = cpus_open,
	.proc_read_iter = checked_read_iter,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/*
 * The sysctl kernel.ppa, which has four integers: accounting on, latencies, timers, CPUs per group.
 * The integers are checked together before any of them is applied. Integers that a write to the
 * sysctl leaves out do not change. A write of more than four integers fails with EINVAL.
 */
static int settings_handler(const struct ctl_table *table, int write, void *buffer, size_t *lenp,
			    loff_t *ppos)
{
	size_t length = *lenp;
	int values[4];
	const struct ctl_table copy = {
		.procname = table->procname, .mode = table->mode,
		.data = values, .maxlen = sizeof(values),
	};
	int rc;

	rc = ppa_settings(values, false);
	if (rc)
		return rc;
	rc = proc_dointvec(&copy, write, buffer, lenp, ppos);
	if (!rc && write)
		rc = *lenp == length ? ppa_settings(values, true) : -EINVAL;
	return rc;
}

static int levels_handler(const struct ctl_table *table, int write, void *buffer, size_t *lenp,
			  loff_t *ppos)
{
	size_t length = *lenp;
	int level;
	const struct ctl_table copy = {
		.procname = table->procname, .mode = table->mode,
		.data = &level, .maxlen = sizeof(level),
	};
	int rc;

	rc = ppa_levels(&level, false);
	if (rc)
		return rc;
	rc = proc_dointvec(&copy, write, buffer, lenp, ppos);
	if (!rc && write)
		rc = *lenp == length ? ppa_levels(&level, true) : -EINVAL;
	return rc;
}

static const struct ctl_table settings[] = {
	{ .procname = "ppa", .mode = 0644, .proc_handler = settings_handler },
	{ .procname = "ppa_levels", .mode = 0644, .proc_handler = levels_handler },
};

static struct ctl_table_header *settings_header;

/* Returns whether the process that opened @file had CAP_PERFMON or CAP_SYS_ADMIN. */
static bool opener_may_account(const struct file *file)
{
	return file_ns_capable(file, &init_user_ns, CAP_PERFMON) ||
	       file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN);
}

/*
 * Parses a text that is written to @file: four integers, after a pid if @pid is not NULL. Returns
 * -EPERM if the process that opened @file may not change accounting, and -EFAULT if the text cannot
 * be read. Returns -EINVAL if the text is too long, if a number is missing or out of range, or if
 * the text contains anything besides these numbers and blanks.
 */
static int parse_numbers_from_user(const struct file *file, const char __user *from, size_t count,
				   u32 *pid, int *values)
{
	char text[96], *rest = text, *word;
	int nr = pid ? -1 : 0;

	if (!opener_may_account(file))
		return -EPERM;
	if (!count || count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = 0;
	for (size_t at = 0; at < count; at++)
		if (!text[at])
			return -EINVAL;
	while ((word = strsep(&rest, " \t\n"))) {
		if (!*word)
			continue;
		if (nr == 4)
			return -EINVAL;
		if (nr < 0 ? kstrtou32(word, 10, pid) : kstrtoint(word, 10, &values[nr]))
			return -EINVAL;
		nr++;
	}
	return nr == 4 ? 0 : -EINVAL;
}

static unsigned long entry_id_of_inode(const struct inode *inode)
{
	return (unsigned long)pde_data(inode);
}

static int text_show(struct seq_file *seq, void *unused)
{
	return ppa_show_text(seq, (unsigned long)seq->private);
}

static int text_open(struct inode *inode, struct file *file)
{
	return single_open(file, text_show, pde_data(inode));
}

static const struct proc_ops text_ops = {
	.proc_open = text_open,
	.proc_read_iter = checked_read_iter,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int raw_show(struct seq_file *seq, void *unused)
{
	return ppa_show_raw(seq, (unsigned long)seq->private);
}

static int raw_open(struct inode *inode, struct file *file)
{
	return single_open(file, raw_show, pde_data(inode));
}

static const struct proc_ops raw_ops = {
	.proc_open = raw_open,
	.proc_read_iter = checked_read_iter,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int control_show(struct seq_file *seq, void *unused)
{
	int values[4];
	int rc = ppa_entry_settings((unsigned long)seq->private, values, false);

	if (!rc)
		seq_printf(seq, "%d\t%d\t%d\t%d\n", values[0], values[1], values[2], values[3]);
	return rc;
}

static int control_open(struct inode *inode, struct file *file)
{
	return single_open(file, control_show, pde_data(inode));
}

static ssize_t control_write(struct file *file, const char __user *from, size_t count, loff_t *ppos)
{
	int values[4];
	int rc = parse_numbers_from_user(file, from, count, NULL, values);

	if (!rc)
		rc = ppa_entry_settings(entry_id_of_inode(file_inode(file)), values, true);
	return rc ?: count;
}

static const struct proc_ops control_ops = {
	.proc_open = control_open,
	.proc_read_iter = checked_read_iter,
	.proc_write = control_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/*
 * /proc/ppa/ppactl: each line has the pid and the four settings of an individually accounted task.
 * Writing a pid and four settings starts, changes or ends a task's individual accounting. The pid 0
 * stands for all tasks: the settings are those of the sysctl kernel.ppa.
 */
static int entries_show(struct seq_file *seq, void *unused)
{
	return ppa_show_entries(seq);
}

static int entries_open(struct inode *inode, struct file *file)
{
	return single_open(file, entries_show, NULL);
}

static ssize_t entries_write(struct file *file, const char __user *from, size_t count, loff_t *ppos)
{
	int values[4];
	u32 pid;
	int rc = parse_numbers_from_user(file, from, count, &pid, values);

	if (!rc)
		rc = pid ? ppa_set_entry(pid, values) : ppa_settings(values, true);
	return rc ?: count;
}

static const struct proc_ops entries_ops = {
	.proc_open = entries_open,
	.proc_read_iter = checked_read_iter,
	.proc_write = entries_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int records_show(struct seq_file *seq, void *unused)
{
	seq_puts(seq, "uid\tbytes\n");
	return ppa_show_record_memory(seq);
}
DEFINE_SHOW_ATTRIBUTE(records);

/* Prints the line of a user in ppa/records: the bytes of the records of this user's tasks. */
void ppa_record_line(struct seq_file *seq, u32 uid, u64 bytes)
{
	seq_printf(seq, "%u\t%llu\n", from_kuid_munged(seq_user_ns(seq), KUIDT_INIT(uid)), bytes);
}

static struct proc_dir_entry *directory;
static struct dentry *debug_directory;

/*
 * Creates the files of a task in /proc/ppa. The files hold @id, which is never reused, so the files
 * never access a later task with the same pid. Returns NULL if out of memory.
 */
void *ppa_entry_create(u32 pid, unsigned long id)
{
	struct proc_dir_entry *dir;
	char name[12];

	snprintf(name, sizeof(name), "%u", pid);
	dir = proc_mkdir(name, directory);
	if (!dir)
		return NULL;
	if (!proc_create_data("ppa", 0444, dir, &text_ops, (void *)id) ||
	    !proc_create_data("rawppa", 0444, dir, &raw_ops, (void *)id) ||
	    !proc_create_data("ppactl", 0666, dir, &control_ops, (void *)id)) {
		proc_remove(dir);
		return NULL;
	}
	return dir;
}

/* Removes the files of a task. Waits for readers and writers of the removed files. */
void ppa_entry_remove(void *dir)
{
	proc_remove(dir);
}

static void work(struct work_struct *unused)
{
	ppa_worker();
}

static DECLARE_WORK(worker, work);

/* Queues ppa_worker(). Callable in any context in which a thread may be woken. */
void ppa_queue_worker(void)
{
	queue_work(system_dfl_wq, &worker);
}

static void publish(struct work_struct *unused)
{
	ppa_publish();
}

static DECLARE_DELAYED_WORK(publisher, publish);

/*
 * Calls ppa_publish() once, after @ms milliseconds. ppa_publish() copies the values of the CPUs
 * into the counter pages.
 */
void ppa_queue_publisher(unsigned int ms)
{
	queue_delayed_work(system_dfl_wq, &publisher, msecs_to_jiffies(ms));
}

/*
 * Creates the files of process accounting. The files through which users can turn accounting on are
 * created last. After an error the caller stops accounting, which a user may have turned on.
 */
int ppa_files_create(void)
{
	if (!proc_create("rawsysppa", 0444, NULL, &cpus_ops))
		return -ENOMEM;
	directory = proc_mkdir("ppa", NULL);
	if (!directory)
		goto no_directory;
	settings_header = register_sysctl("kernel", settings);
	if (!settings_header)
		goto no_settings;
	if (!proc_create("ppactl", 0666, directory, &entries_ops))
		goto no_control;
	debug_directory = debugfs_create_dir("ppa", NULL);
	debugfs_create_file("records", 0400, debug_directory, NULL, &records_fops);
	return 0;
no_control:
	unregister_sysctl_table(settings_header);
no_settings:
	proc_remove(directory);
no_directory:
	remove_proc_entry("rawsysppa", NULL);
	ppa_files_cancel_work();
	return -ENOMEM;
}

/*
 * Removes the files through which accounting can be turned on, and cancels the queued work.
 * /proc/ppa and the files of individual tasks stay.
 */
void ppa_files_close(void)
{
	debugfs_remove(debug_directory);
	remove_proc_entry("ppactl", directory);
	unregister_sysctl_table(settings_header);
	remove_proc_entry("rawsysppa", NULL);
	ppa_files_cancel_work();
}

/*
 * Cancels the worker and the publisher, and waits for them. Probes and writers of the tasks' files
 * may queue the work again, until the files of all tasks are removed and accounting is stopped. The
 * caller then cancels the work again.
 */
void ppa_files_cancel_work(void)
{
	cancel_work_sync(&worker);
	cancel_delayed_work_sync(&publisher);
}

/* Removes /proc/ppa. Called when no individually accounted tasks are left. */
void ppa_files_remove(void)
{
	proc_remove(directory);
}
