// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of the permission to monitor other tasks, by ptrace's access rule and by the security
 * modules.
 *
 * ptrace_may_access() is not exported to modules, but procfs calls it whenever a file about the
 * memory of a process is opened. To check access to a process, the functions in this file therefore
 * open a file of the process, in a mount of procfs that no other code uses.
 */
#include <linux/export.h>
#include <linux/capability.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mount.h>
#include <linux/path.h>
#include <linux/pid.h>
#include <linux/perf_event.h>
#include <linux/pid_namespace.h>
#include <linux/ptrace.h>
#include <linux/sched/exec_state.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>

#include "helpers.h"

static struct vfsmount *proc;

struct mount_request {
	struct work_struct work;
	struct vfsmount *mount;
};

/*
 * Mounts procfs in a kernel worker, because a kernel worker is in the initial pid namespace. If the
 * task that loads the module mounted procfs, the mount would show the pid namespace of that task.
 */
static void mount_proc(struct work_struct *work)
{
	struct mount_request *mount_request = container_of(work, struct mount_request, work);
	struct file_system_type *type = get_fs_type("proc");

	mount_request->mount = type ? kern_mount(type) : ERR_PTR(-ENODEV);
}

int pfc_mount_private_procfs(void)
{
	struct mount_request mount_request;

	INIT_WORK_ONSTACK(&mount_request.work, mount_proc);
	queue_work(system_dfl_wq, &mount_request.work);
	flush_work(&mount_request.work);
	destroy_work_on_stack(&mount_request.work);
	if (IS_ERR(mount_request.mount))
		return PTR_ERR(mount_request.mount);
	proc = mount_request.mount;
	return 0;
}

void pfc_unmount_private_procfs(void)
{
	/* Wait for all pending RCU callbacks: free_exec_state_rcu() is in this module. */
	rcu_barrier();
	kern_unmount(proc);
}

/*
 * Applies the rule of __ptrace_may_access() with PTRACE_MODE_READ_REALCREDS, including the check of
 * the capability security module. Returns whether the rule lets the caller read the memory of
 * @task. The caller is not a thread of the process of @task. This function repeats the kernel's
 * rule, because procfs applies the rule with PTRACE_MODE_FSCREDS and cannot be called in every
 * context. @state is the exec_state of a program that the process ran before, or NULL for its
 * present program.
 */
static bool ptrace_rule_allows(struct task_struct *task, const struct task_exec_state *state)
{
	const struct cred *mine = current_cred(), *its;
	bool may;

	rcu_read_lock();
	its = __task_cred(task);
	may = (uid_eq(mine->uid, its->euid) && uid_eq(mine->uid, its->suid) &&
	       uid_eq(mine->uid, its->uid) && gid_eq(mine->gid, its->egid) &&
	       gid_eq(mine->gid, its->sgid) && gid_eq(mine->gid, its->gid) &&
	       its->user_ns == mine->user_ns &&
	       cap_issubset(its->cap_permitted, mine->cap_permitted)) ||
	      ns_capable(its->user_ns, CAP_SYS_PTRACE);
	/* Read the credentials before the dumpability. Pairs with the barrier in commit_creds(). */
	smp_rmb();
	state = state ?: rcu_dereference(task->exec_state);
	may = may && state && (READ_ONCE(state->dumpable) == TASK_DUMPABLE_OWNER ||
			       ns_capable(state->user_ns, CAP_SYS_PTRACE));
	rcu_read_unlock();
	return may;
}

/*
 * Returns true if the caller may read the memory of @task by ptrace's rule. The security modules
 * are not asked.
 */
bool pfc_ptrace_rule_allows_read(struct task_struct *task)
{
	return same_thread_group(current, task) || ptrace_rule_allows(task, NULL);
}
EXPORT_SYMBOL_NS_GPL(pfc_ptrace_rule_allows_read, "PERFCOUNTERS");

/*
 * Applies ptrace's rule to @task at a time when the process of @task is not in exec. During exec a
 * process is not dumpable for a moment, even if it is dumpable afterwards. Like mm_access(), this
 * function therefore waits until exec is over. Returns 0, -EPERM or -EINTR. May sleep. Caller holds
 * none of the module's locks.
 */
static int check_ptrace_rule_outside_exec(struct task_struct *task)
{
	struct rw_semaphore *executes = &task->signal->exec_update_lock;
	int error = down_read_killable(executes);

	if (error)
		return error;
	error = ptrace_rule_allows(task, NULL) ? 0 : -EPERM;
	up_read(executes);
	return error;
}

/*
 * Returns a copy of the caller's credentials, with which a file in procfs is opened. When a file is
 * opened, procfs applies ptrace's rule to the opener's fsuid, fsgid and effective capabilities. For
 * this module, ptrace's rule must be applied to the opener's real ids and permitted capabilities.
 * In the copied credentials, fsuid and fsgid are therefore set to the real ids, and the effective
 * capabilities are set to the permitted ones.
 */
static struct cred *copy_cred_for_procfs(bool attach)
{
	struct cred *cred = prepare_creds();

	if (!cred)
		return NULL;
	cred->fsuid = cred->uid;
	cred->fsgid = cred->gid;
	cred->cap_effective = cred->cap_permitted;
	if (attach) {
		/* Override the mode bits of the file "mem", so that only ptrace's check decides. */
		cap_raise(cred->cap_effective, CAP_DAC_OVERRIDE);
		cap_raise(cred->cap_effective, CAP_DAC_READ_SEARCH);
	}
	return cred;
}

/*
 * Opens and closes the procfs file @what of @task, which is a thread of another process.
 * Returns 0 if procfs allows the open, otherwise -EPERM, -ESRCH, -EINTR or -ENOMEM.
 */
static int open_procfs_file_of_task(struct task_struct *task, const char *what, bool attach)
{
	struct path root = { .mnt = proc, .dentry = proc->mnt_root };
	struct cred *cred = copy_cred_for_procfs(attach);
	const struct cred *old;
	struct file *file;
	char name[24];
	int error;

	if (!cred)
		return -ENOMEM;
	/* The mount of procfs shows the pid numbers of the initial pid namespace. */
	snprintf(name, sizeof(name), "%d/%s", task_pid_nr(task), what);
	old = override_creds(cred);
	file = file_open_root(&root, name, O_RDONLY, 0);
	revert_creds(old);
	put_cred(cred);
	error = PTR_ERR_OR_ZERO(file);
	/*
	 * fput() would close the file only when the caller returns to user mode, so a call that
	 * checks access to thousands of processes would hold thousands of open files.
	 */
	if (!error)
		__fput_sync(file);
	switch (error) {
	case 0:
		/*
		 * If the task is alive now, its pid number was not reused before the file was
		 * opened.
		 */
		return pid_alive(task) ? 0 : -ESRCH;
	case -ENOENT:
	case -ESRCH:
		return -ESRCH;
	case -EINTR:
	case -ENOMEM:
		return error;
	case -ENFILE:
		/*
		 * The system has too many open files, so procfs has not checked access to this
		 * task.
		 */
		return -ENOMEM;
	default:
		return -EPERM;
	}
}

/*
 * Returns a thread that is in the process of @task and still has its memory (mm). The caller gets a
 * reference to the thread. Returns NULL if all threads of the process have released their memory.
 * procfs does not check access to a thread that has released its memory, and the leader may have
 * exited long before the other threads.
 */
static struct task_struct *get_thread_with_memory(struct task_struct *task)
{
	struct task_struct *thread;

	guard(rcu)();
	if (READ_ONCE(task->mm))
		return get_task_struct(task);
	for_each_thread(task, thread)
		if (READ_ONCE(thread->mm))
			return get_task_struct(thread);
	return NULL;
}

#define MAX_THREADS_TRIED	8

/*
 * Returns the result of procfs's check of access to the process of @task, or -ESRCH if the process
 * is exiting. The caller is not a thread of this process.
 */
static int check_access_by_procfs(struct task_struct *task, bool attach)
{
	struct task_struct *thread;

	for (int i = 0; i < MAX_THREADS_TRIED; i++) {
		int error;
		bool asked;

		thread = get_thread_with_memory(task);
		if (!thread)
			return -ESRCH;
		error = open_procfs_file_of_task(thread, attach ? "mem" : "maps", attach);
		/*
		 * If thread->mm is set now, it was also set when the procfs file was opened.
		 */
		asked = READ_ONCE(thread->mm);
		put_task_struct(thread);
		if (asked || (error && error != -ESRCH))
			return error;
	}
	return -ESRCH;
}

/*
 * Checks whether ptrace's rule and the security modules allow the caller to read the memory of
 * @task or, with @attach, to stop @task. Returns 0, -EPERM, -EINTR, -ENOMEM, or -ESRCH if the
 * process is exiting. May sleep. Caller holds none of the module's locks.
 */
int pfc_check_access(struct task_struct *task, bool attach)
{
	int error;

	if (same_thread_group(current, task))
		return 0;
	error = check_ptrace_rule_outside_exec(task);
	return error ? error : check_access_by_procfs(task, attach);
}
EXPORT_SYMBOL_NS_GPL(pfc_check_access, "PERFCOUNTERS");

/*
 * Returns whether ptrace's rule lets a task with the credentials @cred read the memory of @task,
 * even if the caller is a thread of the same process. With @snapshot, the rule is applied to the
 * program in @snapshot, even if the process runs another program now. Called in process context.
 */
bool pfc_ptrace_rule_allows_cred(const struct cred *cred, struct task_struct *task,
				 const struct pfc_access_snapshot *snapshot)
{
	const struct cred *old = override_creds(cred);
	bool may = ptrace_rule_allows(task, snapshot ? snapshot->state : NULL);

	revert_creds(old);
	return may;
}
EXPORT_SYMBOL_NS_GPL(pfc_ptrace_rule_allows_cred, "PERFCOUNTERS");

struct access_check {
	struct work_struct work;
	const struct cred *cred;
	struct task_struct *task;
	bool attach;
	int result;
};

static void access_check_work(struct work_struct *work)
{
	struct access_check *check = container_of(work, struct access_check, work);
	const struct cred *old = override_creds(check->cred);

	check->result = check_access_by_procfs(check->task, check->attach);
	revert_creds(old);
}

/*
 * Checks whether ptrace's rule and the security modules allow a task with the credentials @cred to
 * read the memory of the process of @task or, with @attach, to stop the process. If the caller is a
 * thread of the process of @task, a kernel worker makes the check, because security modules allow a
 * process any access to itself. Returns the same errors as pfc_check_access(). May sleep. Caller
 * holds none of the module's locks.
 */
int pfc_check_access_as(const struct cred *cred, struct task_struct *task, bool attach)
{
	struct access_check check = { .cred = cred, .task = task, .attach = attach };
	const struct cred *old = override_creds(cred);
	int error = check_ptrace_rule_outside_exec(task);

	revert_creds(old);
	if (error)
		return error;
	INIT_WORK_ONSTACK(&check.work, access_check_work);
	if (same_thread_group(current, task) || (current->mm && current->mm == task->mm)) {
		queue_work(system_dfl_wq, &check.work);
		flush_work(&check.work);
	} else {
		access_check_work(&check.work);
	}
	destroy_work_on_stack(&check.work);
	return check.result;
}
EXPORT_SYMBOL_NS_GPL(pfc_check_access_as, "PERFCOUNTERS");

/*
 * A kernel thread that takes given credentials, so that procfs can check access to a task that has
 * these credentials.
 */
struct cred_thread {
	const struct cred *cred;
	struct completion ready;
	int error;
};

static int cred_thread_fn(void *data)
{
	struct cred_thread *me = data;
	const struct cred *old = override_creds(me->cred);
	struct cred *cred = prepare_creds();

	revert_creds(old);
	me->error = cred ? commit_creds(cred) : -ENOMEM;
	complete(&me->ready);
	set_current_state(TASK_IDLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_IDLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/*
 * Checks whether the caller may read the state of a task with the credentials @cred. procfs makes
 * this check for existing tasks only, and all tasks with the credentials @cred may have exited. A
 * kernel thread therefore takes the credentials @cred for the duration of the check. The check
 * opens the link "ns/user" of the kernel thread, because the file "maps" needs a task with an mm.
 * Returns 0, -EPERM, -EINTR or -ENOMEM. May sleep. Caller holds none of the module's locks.
 */
int pfc_check_access_to_cred_owner(const struct cred *cred)
{
	struct cred_thread in = {
		.cred = cred,
		.ready = COMPLETION_INITIALIZER_ONSTACK(in.ready),
	};
	struct task_struct *task;
	int error;

	if (cred == current_cred())
		return 0;
	task = kthread_run(cred_thread_fn, &in, "perftrace_owner");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&in.ready);
	error = in.error ? in.error : open_procfs_file_of_task(task, "ns/user", false);
	kthread_stop(task);
	return error == -ESRCH ? -EPERM : error;
}
EXPORT_SYMBOL_NS_GPL(pfc_check_access_to_cred_owner, "PERFCOUNTERS");

/* Returns true if the caller has all rights of a task with the credentials @cred. */
bool pfc_has_rights_of(const struct cred *cred)
{
	const struct cred *mine = current_cred();

	return uid_eq(mine->euid, cred->euid) && mine->user_ns == cred->user_ns &&
	       cap_issubset(cred->cap_effective, mine->cap_permitted);
}
EXPORT_SYMBOL_NS_GPL(pfc_has_rights_of, "PERFCOUNTERS");

/* Returns the caller's credentials, with a reference. */
const struct cred *pfc_get_current_cred(void)
{
	return get_current_cred();
}
EXPORT_SYMBOL_NS_GPL(pfc_get_current_cred, "PERFCOUNTERS");

/*
 * Takes a snapshot of the properties of a thread that decide who may access the thread: its
 * program, the program's dumpability, and the thread's credentials. Returns -ESRCH if the thread's
 * exec_state has been released.
 */
int pfc_snapshot_take(struct pfc_access_snapshot *snapshot, struct task_struct *task)
{
	struct task_exec_state *state;

	scoped_guard(rcu) {
		state = rcu_dereference(task->exec_state);
		if (!state || !refcount_inc_not_zero(&state->count))
			return -ESRCH;
	}
	snapshot->state = state;
	snapshot->dumpable = READ_ONCE(state->dumpable);
	/*
	 * The credentials are read last, because commit_creds() makes a task undumpable before it
	 * changes the credentials.
	 */
	snapshot->cred = get_task_cred(task);
	return 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_snapshot_take, "PERFCOUNTERS");

static void free_exec_state_rcu(struct rcu_head *rcu)
{
	struct task_exec_state *state = container_of(rcu, struct task_exec_state, rcu);

	put_user_ns(state->user_ns);
	/*
	 * @state was allocated from a slab cache that modules cannot access. kfree() can free an
	 * object of any slab cache.
	 */
	kfree(state);
}

/*
 * Drops the references of a snapshot. The code is a copy of put_task_exec_state(), which is not
 * exported. May be called in any context except an NMI.
 */
void pfc_snapshot_put(struct pfc_access_snapshot *snapshot)
{
	put_cred(snapshot->cred);
	if (refcount_dec_and_test(&snapshot->state->count))
		call_rcu(&snapshot->state->rcu, free_exec_state_rcu);
}
EXPORT_SYMBOL_NS_GPL(pfc_snapshot_put, "PERFCOUNTERS");

/*
 * Returns true if the thread still has the credentials and the dumpability that the snapshot has
 * recorded, even if the thread has executed another program since the snapshot.
 */
bool pfc_snapshot_is_unchanged(const struct pfc_access_snapshot *snapshot, struct task_struct *task)
{
	const struct task_exec_state *state;

	guard(rcu)();
	state = rcu_dereference(task->exec_state);
	return state && READ_ONCE(state->dumpable) == snapshot->dumpable &&
	       __task_cred(task) == snapshot->cred;
}
EXPORT_SYMBOL_NS_GPL(pfc_snapshot_is_unchanged, "PERFCOUNTERS");

/*
 * Returns true if the thread's credentials are unchanged since the snapshot, and the dumpability of
 * the program in the snapshot is unchanged too. For a thread in exec, the function reads the
 * dumpability of the old program. After exec has changed the credentials, the result is false.
 */
bool pfc_snapshot_was_unchanged_until_exec(const struct pfc_access_snapshot *snapshot,
					   struct task_struct *task)
{
	guard(rcu)();
	return READ_ONCE(snapshot->state->dumpable) == snapshot->dumpable &&
	       __task_cred(task) == snapshot->cred;
}
EXPORT_SYMBOL_NS_GPL(pfc_snapshot_was_unchanged_until_exec, "PERFCOUNTERS");

/* Returns true if the thread still runs the program that it ran at the time of the snapshot. */
bool pfc_snapshot_same_program(const struct pfc_access_snapshot *snapshot, struct task_struct *task)
{
	guard(rcu)();
	return rcu_access_pointer(task->exec_state) == snapshot->state;
}
EXPORT_SYMBOL_NS_GPL(pfc_snapshot_same_program, "PERFCOUNTERS");

/*
 * Returns the struct pid of the caller's process, with a reference. The struct pid stays the same
 * when another thread becomes the leader of the process.
 */
struct pid *pfc_current_process(void)
{
	return get_pid(task_tgid(current));
}
EXPORT_SYMBOL_NS_GPL(pfc_current_process, "PERFCOUNTERS");

/*
 * Returns true if ptrace's rule still lets @process stop the current thread. Ptrace's rule is
 * applied with the credentials of the present leader of @process. If another thread of @process
 * executes a program, that thread becomes the leader. With @ask_lsm, a kernel worker with the
 * credentials of the leader of @process also asks the security modules for the permission to read
 * the current thread's memory. The worker does not ask for the permission to stop the thread: Yama
 * would require that the worker, and not @process, is an ancestor of the thread. Called in process
 * context. With @ask_lsm, caller holds none of the module's locks.
 */
bool pfc_may_stop_current(struct pid *process, bool ask_lsm)
{
	struct task_struct *leader = get_pid_task(process, PIDTYPE_TGID);
	const struct cred *cred;
	bool may;

	if (!leader)
		return false;
	if (!atomic_read(&leader->signal->live)) {
		may = false;
	} else if (same_thread_group(leader, current)) {
		may = true;
	} else {
		cred = get_task_cred(leader);
		may = pfc_ptrace_rule_allows_cred(cred, current, NULL) &&
		      !(ask_lsm && pfc_check_access_as(cred, current, false) == -EPERM);
		put_cred(cred);
	}
	put_task_struct(leader);
	return may;
}
EXPORT_SYMBOL_NS_GPL(pfc_may_stop_current, "PERFCOUNTERS");

/*
 * Returns true if perf's policy and the lockdown state of the kernel allow the caller to monitor
 * the kernel. This function is written in C because Rust cannot call inline functions: without
 * CONFIG_SECURITY, security_locked_down() is inline.
 */
bool pfc_may_monitor_kernel(void)
{
	return !security_locked_down(LOCKDOWN_PERF) && !perf_allow_kernel();
}
EXPORT_SYMBOL_NS_GPL(pfc_may_monitor_kernel, "PERFCOUNTERS");
