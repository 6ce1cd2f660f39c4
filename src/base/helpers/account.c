// SPDX-License-Identifier: GPL-2.0
/*
 * Limits per user: kernel memory, contexts, traced processes and traces (src/base/account.rs).
 *
 * The hash table of accounts works like the kernel's ucounts, which modules cannot use. An amount
 * is charged to the account of the user. The amount is also charged to the owner of the user's user
 * namespace, and to the owner of each ancestor of this namespace. The owner of the initial user
 * namespace is not charged. Because owners are charged too, a user cannot exceed a limit by
 * creating user namespaces with many uids. If root owns a user namespace, as is usual for a
 * container, the amount is charged to an account of this namespace instead of an account of root.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/debugfs.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/user_namespace.h>

#include "helpers.h"

static unsigned int user_kb;

/*
 * Root can write the file of a module parameter without any capability, so the set function of
 * user_kb checks CAP_SYS_RESOURCE.
 */
static int user_kb_set(const char *text, const struct kernel_param *param)
{
	if (THIS_MODULE->state == MODULE_STATE_LIVE && !capable(CAP_SYS_RESOURCE))
		return -EPERM;
	return param_set_uint(text, param);
}

static const struct kernel_param_ops user_kb_ops = { .set = user_kb_set, .get = param_get_uint };
module_param_cb(user_kb, &user_kb_ops, &user_kb, 0644);
__MODULE_PARM_TYPE(user_kb, "uint");
MODULE_PARM_DESC(user_kb, "Kilobytes of memory that contexts, traces and accounted tasks of one user may have; 0: a 64th of all, 32 MB at least");

/*
 * The key of an account. If @space is 0, the account belongs to the user @uid. If @space is not 0,
 * the account belongs to a user namespace that root owns, and @space is the inode number of the
 * namespace.
 */
struct account {
	kuid_t uid;
	unsigned int space;
};

struct pfc_charged_user {
	struct hlist_node node;
	struct account account;
	u64 amounts[PFC_NR_RESOURCES];
};

static DEFINE_HASHTABLE(users, 8);
static DEFINE_SPINLOCK(users_lock);

static bool is_same_account(struct account a, struct account b)
{
	return uid_eq(a.uid, b.uid) && a.space == b.space;
}

static u32 hash_account(struct account account)
{
	return __kuid_val(account.uid) ^ account.space;
}

static struct account account_of_user(const struct cred *cred)
{
	return (struct account) { cred->euid, 0 };
}

/*
 * Returns the account of the owner of @ns. The owner's account is charged for all users in @ns, in
 * addition to the accounts of these users.
 */
static struct account account_of_ns_owner(const struct user_namespace *ns)
{
	if (uid_eq(ns->owner, GLOBAL_ROOT_UID))
		return (struct account) { INVALID_UID, ns->ns.inum };
	return (struct account) { ns->owner, 0 };
}

/*
 * Returns true if pfc_charge_user_accounts() charges @account before its loop visits the user
 * namespace @last. The loop visits the user's namespace first, and then the ancestors of this
 * namespace. Several namespaces may have the same owner, whose account must be charged only once.
 */
static bool was_charged(const struct cred *cred, const struct user_namespace *last,
			struct account account)
{
	struct account before = account_of_user(cred);
	struct user_namespace *ns;

	for (ns = cred->user_ns; ns != last; before = account_of_ns_owner(ns), ns = ns->parent)
		if (is_same_account(before, account))
			return true;
	return false;
}

static struct pfc_charged_user *find_charged_user(struct account account)
{
	struct pfc_charged_user *user;

	hash_for_each_possible(users, user, node, hash_account(account))
		if (is_same_account(user->account, account))
			return user;
	return NULL;
}

static bool is_empty(const struct pfc_charged_user *user)
{
	return !memchr_inv(user->amounts, 0, sizeof(user->amounts));
}

/*
 * Adds @more to one account. Returns -EDQUOT if the account would exceed @most, or -ENOMEM. Caller
 * holds users_lock.
 */
static int charge_account(struct account account, struct pfc_resource_amount more, u64 most)
{
	struct pfc_charged_user *user = find_charged_user(account);

	if (!more.nr)
		return 0;
	if ((user ? user->amounts[more.resource] : 0) + more.nr > most)
		return -EDQUOT;
	if (!user) {
		user = kzalloc_obj(*user, GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN);
		if (!user)
			return -ENOMEM;
		user->account = account;
		hash_add(users, &user->node, hash_account(account));
	}
	user->amounts[more.resource] += more.nr;
	return 0;
}

/*
 * Subtracts @less from one account, and frees the account if all its amounts are 0. Caller holds
 * users_lock.
 */
static void uncharge_account(struct account account, struct pfc_resource_amount less)
{
	struct pfc_charged_user *user = find_charged_user(account);

	if (!less.nr)
		return;
	if (WARN_ON_ONCE(!user || user->amounts[less.resource] < less.nr))
		return;
	user->amounts[less.resource] -= less.nr;
	if (is_empty(user)) {
		hash_del(&user->node);
		kfree(user);
	}
}

/*
 * Subtracts @less once from each account that pfc_charge_user_accounts() charges. If @last is not
 * NULL, subtracts only from the accounts that pfc_charge_user_accounts() charges before its loop
 * visits the user namespace @last. Caller holds users_lock.
 */
static void uncharge_all_accounts(const struct cred *cred, struct pfc_resource_amount less,
				  const struct user_namespace *last)
{
	struct account account = account_of_user(cred);
	struct user_namespace *ns;

	for (ns = cred->user_ns; ns; account = account_of_ns_owner(ns), ns = ns->parent) {
		if (ns == last)
			break;
		if (!was_charged(cred, ns, account))
			uncharge_account(account, less);
	}
}

/*
 * Charges @more to the account of a user, and to the account of each owner of one of the user's
 * namespaces (see the top of this file). Returns -EDQUOT if one of the accounts would exceed @most,
 * or -ENOMEM; after an error no account is charged. Does not sleep. Must not be called under a
 * run-queue lock.
 */
int pfc_charge_user_accounts(const struct cred *cred, struct pfc_resource_amount more, u64 most)
{
	struct account account = account_of_user(cred);
	struct user_namespace *ns;
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&users_lock, flags);
	for (ns = cred->user_ns; ns; account = account_of_ns_owner(ns), ns = ns->parent) {
		if (!was_charged(cred, ns, account))
			error = charge_account(account, more, most);
		if (error)
			break;
	}
	if (error)
		uncharge_all_accounts(cred, more, ns);
	spin_unlock_irqrestore(&users_lock, flags);
	return error;
}
EXPORT_SYMBOL_NS_GPL(pfc_charge_user_accounts, "PERFCOUNTERS");

/*
 * Undoes a call of pfc_charge_user_accounts() with the same credentials and amount. Also called by
 * RCU callbacks, in a softirq. Must not be called under a run-queue lock.
 */
void pfc_uncharge_user_accounts(const struct cred *cred, struct pfc_resource_amount less)
{
	unsigned long flags;

	spin_lock_irqsave(&users_lock, flags);
	uncharge_all_accounts(cred, less, NULL);
	spin_unlock_irqrestore(&users_lock, flags);
}
EXPORT_SYMBOL_NS_GPL(pfc_uncharge_user_accounts, "PERFCOUNTERS");

/*
 * Returns true if the caller is exempt from the limit of memory, because it has CAP_SYS_RESOURCE.
 */
bool pfc_is_caller_unlimited(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE);
}
EXPORT_SYMBOL_NS_GPL(pfc_is_caller_unlimited, "PERFCOUNTERS");

/*
 * Returns true if a task with these credentials is exempt from the limit of memory. The security
 * modules are not asked, because ns_capable_noaudit() asks them about the caller only.
 */
bool pfc_is_cred_unlimited(const struct cred *cred)
{
	return cred->user_ns == &init_user_ns && cap_raised(cred->cap_effective, CAP_SYS_RESOURCE);
}
EXPORT_SYMBOL_NS_GPL(pfc_is_cred_unlimited, "PERFCOUNTERS");

/*
 * Returns the limit of memory of one account, in bytes: the parameter user_kb or, if user_kb is 0,
 * 1/64 of the machine's memory, but at least 32 MB.
 */
u64 pfc_user_memory_limit_bytes(void)
{
	u64 most = (u64)READ_ONCE(user_kb) << 10;

	return most ?: max(((u64)totalram_pages() << PAGE_SHIFT) / 64, (u64)SZ_32M);
}
EXPORT_SYMBOL_NS_GPL(pfc_user_memory_limit_bytes, "PERFCOUNTERS");

static int users_show(struct seq_file *seq, void *unused)
{
	struct pfc_charged_user *user;
	int bucket;

	seq_puts(seq, "uid\tbytes\tprocesses\ttraces\theld\tcontexts\n");
	spin_lock_irq(&users_lock);
	hash_for_each(users, bucket, user, node) {
		const struct account *account = &user->account;

		if (account->space)
			seq_printf(seq, "user:[%u]", account->space);
		else
			seq_printf(seq, "%u", from_kuid_munged(seq_user_ns(seq), account->uid));
		for (int resource = 0; resource < PFC_PERMISSION_CHECKS; resource++)
			seq_printf(seq, "\t%llu", user->amounts[resource]);
		seq_putc(seq, '\n');
	}
	spin_unlock_irq(&users_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(users);

static struct dentry *directory;

/* Creates the file perfcounters/users in debugfs. */
void pfc_account_file_create(void)
{
	directory = debugfs_create_dir("perfcounters", NULL);
	debugfs_create_file("users", 0400, directory, NULL, &users_fops);
}

/* Removes the file perfcounters/users from debugfs, and waits for its readers. */
void pfc_account_file_remove(void)
{
	debugfs_remove(directory);
}
