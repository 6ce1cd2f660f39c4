// SPDX-License-Identifier: GPL-2.0

//! Checks of the kernel modules: whether the modules are installed, built for the running kernel,
//! and loaded. If perfcounters is not loaded, the kernel log is searched for the reason.

use std::path::Path;

use serde_json::Value;

use super::module::{read_kernel_log, KernelModule, ModuleFileError};
use super::{machine, note_check, ok_check, problem_check, Check};

/// Names of the modules that provide counters of the kernel's subsystems.
const COUNTER_PROVIDER_MODULES: &[&str] = &[
    "pfc_sched",
    "pfc_syscalls",
    "pfc_irq",
    "pfc_block",
    "pfc_net",
    "pfc_mm",
];

/// Whether the installed file perfcounters.ko is signed.
#[derive(Clone, Copy, Debug)]
pub enum ModuleSignature {
    Signed,
    Unsigned,
    NotInstalled,
    Unknown(ModuleFileError),
}

/// All modules that `pfc doctor` checks.
pub struct CheckedModules {
    modules: Vec<KernelModule>,
}

impl CheckedModules {
    pub fn find() -> Self {
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
        Self {
            modules: names.map(|name| KernelModule::find(name)).collect(),
        }
    }

    fn find_by_name(&self, name: &str) -> Option<&KernelModule> {
        self.modules.iter().find(|m| m.name == name)
    }

    /// Returns true if perfcounters.ko is loaded.
    pub fn is_perfcounters_loaded(&self) -> bool {
        self.has_module(("perfcounters", true))
    }

    /// Returns true if the module `name` is loaded. If `loaded` is false, it is enough that the
    /// module is installed.
    pub fn has_module(&self, (name, loaded): (&str, bool)) -> bool {
        self.find_by_name(name)
            .is_some_and(|m| m.is_loaded || (!loaded && m.installed_path.is_some()))
    }

    /// Returns whether the installed perfcounters.ko is signed.
    pub fn perfcounters_signature(&self) -> ModuleSignature {
        let module = self
            .find_by_name("perfcounters")
            .filter(|m| m.installed_path.is_some());
        match module.map(|m| (m.is_signed, m.file_error)) {
            None => ModuleSignature::NotInstalled,
            Some((_, Some(why))) => ModuleSignature::Unknown(why),
            Some((is_signed, None)) => match is_signed {
                Some(true) => ModuleSignature::Signed,
                _ => ModuleSignature::Unsigned,
            },
        }
    }

    pub fn to_json(&self) -> Vec<Value> {
        self.modules.iter().map(KernelModule::to_json).collect()
    }

    pub fn run_module_checks(&self) -> Vec<Check> {
        vec![
            self.check_perfcounters_installed(),
            self.check_perfcounters_loaded(),
            check_kernel_rust_metadata(),
        ]
    }

    fn check_perfcounters_installed(&self) -> Check {
        let subject = "installed";
        let release = machine::running_kernel_release();
        let Some((module, path)) = self
            .find_by_name("perfcounters")
            .and_then(|m| Some((m, m.installed_path.as_deref()?)))
        else {
            let found = format!("not installed for this kernel, {release}");
            return match self.is_perfcounters_loaded() {
                true => note_check(subject, found).with_remedy(
                    "it will be missing after a reboot; run make install, or install the package",
                ),
                false => problem_check(subject, found, install_modules_remedy(&release)),
            };
        };
        let path = visible::escape_path(path);
        match module.file_error {
            Some(ModuleFileError::NotAModule) => {
                return problem_check(
                    subject,
                    format!("{path} is not a module, or is truncated"),
                    format!("install it again: {}", install_modules_remedy(&release)),
                )
            }
            Some(ModuleFileError::Unreadable) => {
                return note_check(subject, format!("{path}, which this user cannot read"))
            }
            Some(ModuleFileError::NoDecompressor(_)) | None => {}
        }
        if let Some(other) = module.other_kernel_release() {
            return problem_check(
                subject,
                format!("{path} was built for {other}, but the kernel is {release}"),
                install_modules_remedy(&release),
            );
        }
        let others = self.find_modules_of_other_build();
        match others.is_empty() {
            true => ok_check(subject, path.to_string()),
            false => note_check(
                subject,
                format!(
                    "{path}; loaded modules of another build: {}",
                    others.join(", ")
                ),
            )
            .with_remedy(
                "unload its users and perfcounters with modprobe -r, then load them again",
            ),
        }
    }

    /// Returns the names of the loaded modules whose build ID differs from the build ID of the
    /// installed file.
    fn find_modules_of_other_build(&self) -> Vec<&'static str> {
        let others = self
            .modules
            .iter()
            .filter(|m| m.differs_from_installed_build());
        others.map(|m| m.name).collect()
    }

    fn check_perfcounters_loaded(&self) -> Check {
        let subject = "loaded";
        if self.is_perfcounters_loaded() {
            let loaded = self.modules.iter().filter(|m| m.is_loaded).map(|m| m.name);
            return ok_check(subject, loaded.collect::<Vec<_>>().join(", "));
        }
        let missing = "perfcounters is not loaded";
        match read_last_load_error() {
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
        let names_of = |loaded: bool| -> Vec<&str> {
            let names = COUNTER_PROVIDER_MODULES.iter().copied();
            names
                .filter(|name| self.has_module((name, loaded)))
                .collect()
        };
        let (loaded, installed) = (names_of(true), names_of(false));
        let none = "none is loaded; there are only perfcounters' own counters";
        match (loaded.is_empty(), installed.is_empty()) {
            (false, _) => ok_check(subject, loaded.join(", ")),
            (true, false) => note_check(subject, none)
                .with_remedy(format!("modprobe {}", installed.join("; modprobe "))),
            (true, true) => note_check(subject, "none is installed")
                .with_remedy("they are installed together with perfcounters.ko"),
        }
    }
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

fn install_modules_remedy(release: &str) -> String {
    format!("apt install perfcounters-modules-{release}, or perfcounters-dkms, which builds them; from source: make && make install")
}

/// Returns the last message in the kernel log about a module that the kernel refused to load.
fn read_last_load_error() -> Option<String> {
    let is_load_error = |message: &str| {
        let is_about_module = message.starts_with("perfcounters: ");
        let words = [
            "version magic",
            "nknown symbol",
            "disagrees about version",
            "is rejected",
            "cannot allocate",
        ];
        (is_about_module && words.iter().any(|w| message.contains(w)))
            || (message.starts_with("Lockdown: ")
                && message.contains("module loading is restricted"))
            || message.starts_with("Loading of ")
    };
    read_kernel_log(is_load_error).pop()
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

/// Checks whether kernel modules in Rust can be built on this machine. A failure of this check is
/// only a note, because a machine with installed modules need not build them.
fn check_kernel_rust_metadata() -> Check {
    let subject = "Rust tree";
    let build = Path::new("/lib/modules")
        .join(machine::running_kernel_release())
        .join("build");
    let shown = visible::escape_path(&build);
    let dkms = match Path::new("/var/lib/dkms/perfcounters").exists() {
        true => "; dkms has the modules",
        false => "",
    };
    if build.join("rust/libkernel.rmeta").exists() {
        return ok_check(
            subject,
            format!("{shown} has the kernel's Rust metadata{dkms}"),
        );
    }
    let found = match build.exists() {
        true => format!("{shown} has no Rust metadata (no distribution provides it){dkms}"),
        false => format!("no kernel tree to build modules{dkms}"),
    };
    note_check(subject, found).with_remedy(
        "needed only to build the modules; make kdir creates one, perfcounters-dkms does so itself",
    )
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
    fn doctor_compares_builds_of_loaded_modules() {
        use crate::doctor::module::tests::make_module_with_builds;
        let all = vec![
            make_module_with_builds("perfcounters", Some("ab"), "ab"),
            make_module_with_builds("perfmon", Some("ab"), "cd"),
            make_module_with_builds("ppa", None, "ef"),
        ];
        assert_eq!(
            CheckedModules { modules: all }.find_modules_of_other_build(),
            ["perfmon"]
        );
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
