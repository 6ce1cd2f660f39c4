// SPDX-License-Identifier: GPL-2.0
/*
 * Who may monitor whom: ptrace's rule, and the security modules' word. ptrace_may_access() is
 * not for modules, but procfs asks it whenever somebody opens a file about a process's memory:
 * so such a file is opened, in a mount of procfs that nobody else has.
 */
#include <linux/binfmts.h>
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

#include "pmu.h"

static struct vfsmount *proc;

struct mounting {
	struct work_struct work;
	struct vfsmount *mount;
};

/* In a worker, which has the first pid name space, whoever loads the module. */
static void mount_proc(struct work_struct *work)
{
	struct mounting *mounting = container_of(work, struct mounting, work);
	struct file_system_type *type = get_fs_type("proc");

	mounting->mount = type ? kern_mount(type) : ERR_PTR(-ENODEV);
}

int pfm_rights_begin(void)
{
	struct mounting mounting;

	INIT_WORK_ONSTACK(&mounting.work, mount_proc);
	queue_work(system_dfl_wq, &mounting.work);
	flush_work(&mounting.work);
	destroy_work_on_stack(&mounting.work);
	if (IS_ERR(mounting.mount))
		return PTR_ERR(mounting.mount);
	proc = mounting.mount;
	return 0;
}

void pfm_rights_end(void)
{
	/* free_state() is called no more. */
	rcu_barrier();
	kern_unmount(proc);
}

/*
 * The rule of __ptrace_may_access(PTRACE_MODE_READ_REALCREDS) for who is no thread of that
 * process: as procfs asks with other flags, and cannot be asked everywhere. @state: of a program
 * that the process ran before; NULL: of the one that it runs.
 */
static bool rule(struct task_struct *task, const struct task_exec_state *state)
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
	/* Credentials before dumpability: pairs with the barrier in commit_creds(). */
	smp_rmb();
	state = state ?: rcu_dereference(task->exec_state);
	may = may && state && (READ_ONCE(state->dumpable) == TASK_DUMPABLE_OWNER ||
			       ns_capable(state->user_ns, CAP_SYS_PTRACE));
	rcu_read_unlock();
	return may;
}

/* May the caller look at that thread, by ptrace's rule? */
bool pfm_may_watch(struct task_struct *task)
{
	return same_thread_group(current, task) || rule(task, NULL);
}

/*
 * The same: 0, EPERM, EINTR. A program that is being executed is undumpable for a moment, whatever
 * it will be: that is waited for, as ptrace does. May sleep; no lock of ours is held.
 */
static int settled_rule(struct task_struct *task)
{
	struct rw_semaphore *executes = &task->signal->exec_update_lock;
	int error = down_read_killable(executes);

	if (error)
		return error;
	error = rule(task, NULL) ? 0 : -EPERM;
	up_read(executes);
	return error;
}

/* These credentials, as ptrace looks at them: who it is, and not as whom it opens files. */
static struct cred *asking(bool attach)
{
	struct cred *cred = prepare_creds();

	if (!cred)
		return NULL;
	cred->fsuid = cred->uid;
	cred->fsgid = cred->gid;
	cred->cap_effective = cred->cap_permitted;
	if (attach) {
		/* The mode of "mem" is not what is asked about. */
		cap_raise(cred->cap_effective, CAP_DAC_OVERRIDE);
		cap_raise(cred->cap_effective, CAP_DAC_READ_SEARCH);
	}
	return cred;
}

/* What procfs says to the caller, of a file of a thread that is not of its own process. */
static int open_file_of(struct task_struct *task, const char *what, bool attach)
{
	struct path root = { .mnt = proc, .dentry = proc->mnt_root };
	struct cred *cred = asking(attach);
	const struct cred *old;
	struct file *file;
	char name[24];
	int error;

	if (!cred)
		return -ENOMEM;
	/* As numbers are in the first name space. */
	snprintf(name, sizeof(name), "%d/%s", task_pid_nr(task), what);
	old = override_creds(cred);
	file = file_open_root(&root, name, O_RDONLY, 0);
	revert_creds(old);
	put_cred(cred);
	error = PTR_ERR_OR_ZERO(file);
	if (!error)
		fput(file);
	switch (error) {
	case 0:
		/* Then the number was its own all the time. */
		return pid_alive(task) ? 0 : -ESRCH;
	case -ENOENT:
	case -ESRCH:
		return -ESRCH;
	case -EINTR:
	case -ENOMEM:
		return error;
	case -ENFILE:
		/* Nor for anybody else: that says nothing of this one. */
		return -ENOMEM;
	default:
		return -EPERM;
	}
}

/*
 * A thread of that process which has its memory: procfs asks nobody about a thread that has left
 * it, as the first one may have long before the others. Held; NULL: there is none.
 */
static struct task_struct *with_memory(struct task_struct *task)
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

#define MAX_THREADS_ASKED	8

/* What procfs says to the caller, who is no thread of that process; ESRCH: it ends. */
static int ask(struct task_struct *task, bool attach)
{
	struct task_struct *thread;

	for (int i = 0; i < MAX_THREADS_ASKED; i++) {
		int error;
		bool asked;

		thread = with_memory(task);
		if (!thread)
			return -ESRCH;
		error = open_file_of(thread, attach ? "mem" : "maps", attach);
		/* A thread that has memory now had it when the file was opened. */
		asked = READ_ONCE(thread->mm);
		put_task_struct(thread);
		if (asked || (error && error != -ESRCH))
			return error;
	}
	return -ESRCH;
}

/*
 * May the caller look at that thread, and the security modules are asked, too; with @attach, may
 * it stop it? 0, EPERM, ESRCH if it ends, EINTR. May sleep; no lock of ours is held.
 */
int pfm_may(struct task_struct *task, bool attach)
{
	int error;

	if (same_thread_group(current, task))
		return 0;
	error = settled_rule(task);
	return error ? error : ask(task, attach);
}

/*
 * By ptrace's rule, who has these credentials, and is not of that process. @seen: it may run
 * another program by now, but is asked about as this one. Process context.
 */
bool pfm_rule_by(const struct cred *cred, struct task_struct *task, const struct pfm_seen *seen)
{
	const struct cred *old = override_creds(cred);
	bool may = rule(task, seen ? seen->state : NULL);

	revert_creds(old);
	return may;
}

struct question {
	struct work_struct work;
	const struct cred *cred;
	struct task_struct *task;
	bool attach;
	int answer;
};

static void answer(struct work_struct *work)
{
	struct question *question = container_of(work, struct question, work);
	const struct cred *old = override_creds(question->cred);

	question->answer = ask(question->task, question->attach);
	revert_creds(old);
}

/*
 * May one who has these credentials look at that process, or with @attach stop it, and the
 * security modules are asked? Also by a thread of that process itself, whom they would let do
 * anything: then a worker asks. May sleep; no lock of ours is held.
 */
int pfm_may_by(const struct cred *cred, struct task_struct *task, bool attach)
{
	struct question question = { .cred = cred, .task = task, .attach = attach };
	const struct cred *old = override_creds(cred);
	int error = settled_rule(task);

	revert_creds(old);
	if (error)
		return error;
	INIT_WORK_ONSTACK(&question.work, answer);
	if (same_thread_group(current, task) || (current->mm && current->mm == task->mm)) {
		queue_work(system_dfl_wq, &question.work);
		flush_work(&question.work);
	} else {
		answer(&question.work);
	}
	destroy_work_on_stack(&question.work);
	return question.answer;
}

/* A task that has certain credentials, to be asked about. */
struct stand_in {
	const struct cred *cred;
	struct completion ready;
	int error;
};

static int stand_in(void *data)
{
	struct stand_in *me = data;
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
 * May the caller look at one who has these credentials, which may be nobody's any more? procfs
 * asks about tasks: so there is one for as long as it is asked. A link in its directory "ns" is
 * looked at, for which no memory is needed. 0, EPERM, EINTR, ENOMEM. May sleep; no lock of ours is
 * held.
 */
int pfm_may_see(const struct cred *cred)
{
	struct stand_in in = {
		.cred = cred,
		.ready = COMPLETION_INITIALIZER_ONSTACK(in.ready),
	};
	struct task_struct *task;
	int error;

	if (cred == current_cred())
		return 0;
	task = kthread_run(stand_in, &in, "perftrace_owner");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&in.ready);
	error = in.error ? in.error : open_file_of(task, "ns/user", false);
	kthread_stop(task);
	return error == -ESRCH ? -EPERM : error;
}

/* Does the caller have all the rights that these credentials have? */
bool pfm_covers(const struct cred *cred)
{
	const struct cred *mine = current_cred();

	return uid_eq(mine->euid, cred->euid) && mine->user_ns == cred->user_ns &&
	       cap_issubset(cred->cap_effective, mine->cap_permitted);
}

/* A reference. */
const struct cred *pfm_rights_of_caller(void)
{
	return get_current_cred();
}

/* Who a thread is, as far as who may look at it hangs on that. ESRCH: it is nobody any more. */
int pfm_see(struct pfm_seen *seen, struct task_struct *task)
{
	struct task_exec_state *state;

	scoped_guard(rcu) {
		state = rcu_dereference(task->exec_state);
		if (!state || !refcount_inc_not_zero(&state->count))
			return -ESRCH;
	}
	seen->state = state;
	seen->dumpable = READ_ONCE(state->dumpable);
	/* After that: who changes its credentials is undumpable first. */
	seen->cred = get_task_cred(task);
	return 0;
}

static void free_state(struct rcu_head *rcu)
{
	struct task_exec_state *state = container_of(rcu, struct task_exec_state, rcu);

	put_user_ns(state->user_ns);
	/* Of a cache of the kernel's own, as kfree() sees. */
	kfree(state);
}

/* As put_task_exec_state(), which is not for modules. Any context but NMI. */
void pfm_unsee(struct pfm_seen *seen)
{
	put_cred(seen->cred);
	if (refcount_dec_and_test(&seen->state->count))
		call_rcu(&seen->state->rcu, free_state);
}

/* Has nothing of that changed, whatever program the thread runs? */
bool pfm_is_as_seen(const struct pfm_seen *seen, struct task_struct *task)
{
	const struct task_exec_state *state;

	guard(rcu)();
	state = rcu_dereference(task->exec_state);
	return state && READ_ONCE(state->dumpable) == seen->dumpable &&
	       __task_cred(task) == seen->cred;
}

/*
 * Has nothing of that changed, or not before another program was executed? A program's dumpability
 * stays as it was when the next one has come.
 */
bool pfm_was_as_seen(const struct pfm_seen *seen, struct task_struct *task)
{
	guard(rcu)();
	return READ_ONCE(seen->state->dumpable) == seen->dumpable &&
	       __task_cred(task) == seen->cred;
}

/* Does it run the program still that it ran then? */
bool pfm_runs_as_seen(const struct pfm_seen *seen, struct task_struct *task)
{
	guard(rcu)();
	return rcu_access_pointer(task->exec_state) == seen->state;
}

/* The caller's process: its number, which stays its own whichever thread leads it. */
struct pid *pfm_my_process(void)
{
	return get_pid(task_tgid(current));
}

/*
 * May that process still stop the current thread? By the rule, and the credentials of the thread
 * that leads it now: an exec by another one makes that the leader. Process context.
 */
bool pfm_may_stop_me(struct pid *process)
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
		may = pfm_rule_by(cred, current, NULL);
		put_cred(cred);
	}
	put_task_struct(leader);
	return may;
}

bool pfm_is_kernel_thread(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

bool pfm_is_exiting(const struct task_struct *task)
{
	return READ_ONCE(task->flags) & PF_EXITING;
}

/* Has the new program more rights than its user, or secrets from him? */
bool pfm_exec_is_secret(const struct linux_binprm *bprm)
{
	return bprm->secureexec || bprm->interp_flags & BINPRM_FLAGS_ENFORCE_NONDUMP;
}
EXPORT_SYMBOL_GPL(pfm_exec_is_secret);

/* An inline function in a kernel without security modules. */
bool pfm_is_kernel_open(void)
{
	return !security_locked_down(LOCKDOWN_PERF) && !perf_allow_kernel();
}
