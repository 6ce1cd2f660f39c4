// SPDX-License-Identifier: GPL-2.0

//! Checks of the kernel modules: whether the modules are installed for the running kernel, and
//! loaded. If perfcounters is not loaded, the kernel log is searched for the reason.

use std::path::{Path, PathBuf};

use serde_json::{json, Value};

use super::kernel_log::find_last_matching_message;
use super::{machine, note_check, ok_check, problem_check, read_trimmed_file, Check};
use crate::text_file;

/// Names of the modules that provide counters of the kernel's subsystems.
const COUNTER_PROVIDER_MODULES: &[&str] = &[
    "pfc_sched",
    "pfc_syscalls",
    "pfc_irq",
    "pfc_block",
    "pfc_net",
    "pfc_mm",
];

/// A kernel module that `pfc doctor` checks.
struct KernelModule {
    name: &'static str,
    is_loaded: bool,
    /// The path of the module file that is installed for the running kernel.
    installed_path: Option<PathBuf>,
}

/// All modules that `pfc doctor` checks.
pub struct CheckedModules {
    modules: Vec<KernelModule>,
}

impl CheckedModules {
    pub fn read_states() -> Self {
        let modules = [
            "perfcounters",
            "perfmon",
            "perftrace",
            "ppa",
            "pfm_intel",
            "pfm_amd",
            "pfm_soft",
            "pfm_default",
            "pfm_histogram",
            "pfm_nway",
            "pfm_ring",
        ];
        let names = modules.iter().chain(COUNTER_PROVIDER_MODULES);
        let loaded = read_trimmed_file("/proc/modules").unwrap_or_default();
        let find = |name: &&'static str| KernelModule {
            name,
            is_loaded: is_live(&loaded, name),
            installed_path: find_installed_module_file(name),
        };
        Self {
            modules: names.map(find).collect(),
        }
    }

    fn find_by_name(&self, name: &str) -> Option<&KernelModule> {
        self.modules.iter().find(|m| m.name == name)
    }

    /// Returns true if the module `name` is loaded.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.find_by_name(name).is_some_and(|m| m.is_loaded)
    }

    fn installed_path(&self, name: &str) -> Option<&Path> {
        self.find_by_name(name)?.installed_path.as_deref()
    }

    pub fn to_json(&self) -> Vec<Value> {
        let module = |m: &KernelModule| json!({"name": m.name, "loaded": m.is_loaded, "file": m.installed_path});
        self.modules.iter().map(module).collect()
    }

    pub fn run_module_checks(&self) -> Vec<Check> {
        vec![
            self.check_perfcounters_installed(),
            self.check_perfcounters_loaded(),
        ]
    }

    fn check_perfcounters_installed(&self) -> Check {
        let subject = "installed";
        if let Some(path) = self.installed_path("perfcounters") {
            return ok_check(subject, visible::escape_path(path));
        }
        let release = machine::running_kernel_release();
        let found = format!("not installed for this kernel, {release}");
        match self.is_loaded("perfcounters") {
            true => note_check(subject, found).with_remedy(
                "it will be missing after a reboot; run make install, or install the package",
            ),
            false => problem_check(
                subject,
                found,
                format!("apt install perfcounters-modules-{release}, or perfcounters-dkms, which builds them; from source: make && make install"),
            ),
        }
    }

    fn check_perfcounters_loaded(&self) -> Check {
        let subject = "loaded";
        if self.is_loaded("perfcounters") {
            let loaded = self.modules.iter().filter(|m| m.is_loaded).map(|m| m.name);
            return ok_check(subject, loaded.collect::<Vec<_>>().join(", "));
        }
        let missing = "perfcounters is not loaded";
        match find_last_matching_message(is_module_load_error) {
            Some(message) => problem_check(
                subject,
                format!("{missing}; kernel log: {message}"),
                load_error_remedy(&message),
            ),
            None => problem_check(subject, missing, load_perfcounters_remedy(Path::new("/"))),
        }
    }

    /// Checks the modules that provide counters of the kernel's subsystems.
    pub fn check_counter_providers(&self) -> Check {
        let subject = "providers";
        let all = || COUNTER_PROVIDER_MODULES.iter().copied();
        let loaded: Vec<&str> = all().filter(|name| self.is_loaded(name)).collect();
        if !loaded.is_empty() {
            return ok_check(subject, loaded.join(", "));
        }
        let is_installed = |name: &&str| self.installed_path(name).is_some();
        let installed: Vec<&str> = all().filter(is_installed).collect();
        match installed.is_empty() {
            false => note_check(
                subject,
                "none is loaded; there are only perfcounters' own counters",
            )
            .with_remedy(format!("modprobe {}", installed.join("; modprobe "))),
            true => note_check(subject, "none is installed")
                .with_remedy("they are installed together with perfcounters.ko"),
        }
    }
}

/// Returns true if the contents of /proc/modules list the module `name` as live.
fn is_live(proc_modules: &str, name: &str) -> bool {
    proc_modules.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name) && words.any(|w| w == "Live")
    })
}

/// Returns the path of the module file that is installed for the running kernel. The path of the
/// module file is found in depmod's modules.dep, or by a search of the usual directories.
fn find_installed_module_file(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from("/lib/modules").join(machine::running_kernel_release());
    let modules_dep =
        text_file::read_text_escaping_non_utf8(root.join("modules.dep")).unwrap_or_default();
    let listed = modules_dep.lines().find_map(|line| {
        let path = line.split(':').next()?;
        let (file, _) = path.rsplit('/').next()?.split_once(".ko")?;
        (file == name).then(|| root.join(path))
    });
    let search = || {
        ["updates", "updates/dkms", "updates/perfcounters", "extra"]
            .into_iter()
            .flat_map(|dir| ["ko", "ko.xz", "ko.zst", "ko.gz"].map(|end| (dir, end)))
            .map(|(dir, end)| root.join(dir).join(format!("{name}.{end}")))
            .find(|path| path.exists())
    };
    listed.filter(|path| path.exists()).or_else(search)
}

/// Returns advice on how to load the module perfcounters now and at each boot. If the service of
/// the Debian package is installed, the advice names the service.
fn load_perfcounters_remedy(root: &Path) -> String {
    let directories = ["etc", "usr/lib", "lib"].map(|dir| root.join(dir).join("systemd/system"));
    let service = |dir: &std::path::PathBuf| dir.join("perfcounters.service").exists();
    let at_boot = match directories.iter().any(service) {
        true => {
            "systemctl enable --now perfcounters, which loads the modules in /etc/default/perfcounters"
        }
        false => "write its name to /etc/modules-load.d/perfcounters.conf",
    };
    format!("load it: modprobe perfcounters; at each boot: {at_boot}")
}

/// Returns true for a message of the kernel log about a module that the kernel refused to load.
fn is_module_load_error(message: &str) -> bool {
    let words = [
        "version magic",
        "nknown symbol",
        "disagrees about version",
        "is rejected",
        "cannot allocate",
    ];
    (message.starts_with("perfcounters: ") && words.iter().any(|w| message.contains(w)))
        || (message.starts_with("Lockdown: ") && message.contains("module loading is restricted"))
        || message.starts_with("Loading of ")
}

/// Returns advice for a message of the kernel about a module that was refused.
fn load_error_remedy(message: &str) -> &'static str {
    if message.contains("Lockdown")
        || message.contains("Loading of ")
        || message.contains("is rejected")
    {
        "the kernel accepts signed modules only; sign it with a key that the machine trusts (mokutil --import)"
    } else if message.contains("version") || message.contains("symbol") {
        "it was built for another kernel; rebuild it (make && make install), or install the package for this kernel"
    } else {
        "run modprobe perfcounters, and see dmesg"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_remedy_fits_load_error() {
        assert!(
            load_error_remedy("perfcounters: version magic 'x' should be 'y'")
                .contains("another kernel")
        );
        assert!(
            load_error_remedy("Lockdown: insmod: unsigned module loading is restricted")
                .contains("sign")
        );
        assert!(load_error_remedy("Loading of unsigned module is rejected").contains("sign"));
    }
    #[test]
    fn doctor_names_installed_service() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(
            load_perfcounters_remedy(root.path()).contains("/etc/modules-load.d/perfcounters.conf")
        );
        let dir = root.path().join("usr/lib/systemd/system");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("perfcounters.service"), "").expect("a file");
        let remedy = load_perfcounters_remedy(root.path());
        for part in [
            "modprobe perfcounters",
            "systemctl enable --now perfcounters",
            "/etc/default/perfcounters",
        ] {
            assert!(remedy.contains(part), "{remedy}");
        }
        assert!(!remedy.contains("modules-load.d"), "{remedy}");
    }
}
