// SPDX-License-Identifier: GPL-2.0

//! Checks of the kernel modules: installed, built for this kernel, loaded; if not loaded, what the
//! kernel log says.

use std::path::Path;

use serde_json::Value;

use super::module::{log, Module, Unread};
use super::{machine, note, problem, well, Check};

/// The modules that provide counters.
const PROVIDERS: &[&str] = &[
    "pfc_sched",
    "pfc_syscalls",
    "pfc_irq",
    "pfc_block",
    "pfc_net",
    "pfc_mm",
];

/// Whether perfcounters.ko is signed.
#[derive(Clone, Copy, Debug)]
pub enum Signature {
    There,
    None,
    NotInstalled,
    Unseen(Unread),
}

/// All modules that `pfc doctor` checks.
pub struct Modules {
    all: Vec<Module>,
}

impl Modules {
    pub fn find() -> Self {
        let descriptions = ["perfcounters", "pfm_intel", "pfm_amd", "pfm_soft"];
        let names = descriptions.iter().chain(PROVIDERS);
        Self {
            all: names.map(|name| Module::find(name)).collect(),
        }
    }

    fn get(&self, name: &str) -> Option<&Module> {
        self.all.iter().find(|m| m.name == name)
    }

    /// Returns true if perfcounters.ko is loaded.
    pub fn is_loaded(&self) -> bool {
        self.has(("perfcounters", true))
    }

    /// Returns true if a module is loaded or, with `loaded` false, if it is at least installed.
    pub fn has(&self, (name, loaded): (&str, bool)) -> bool {
        self.get(name)
            .is_some_and(|m| m.loaded || (!loaded && m.file.is_some()))
    }

    /// Returns whether the installed perfcounters.ko is signed.
    pub fn signature(&self) -> Signature {
        let module = self.get("perfcounters").filter(|m| m.file.is_some());
        match module.map(|m| (m.signed, m.unread)) {
            None => Signature::NotInstalled,
            Some((_, Some(why))) => Signature::Unseen(why),
            Some((signed, None)) => match signed {
                Some(true) => Signature::There,
                _ => Signature::None,
            },
        }
    }

    pub fn document(&self) -> Vec<Value> {
        self.all.iter().map(Module::document).collect()
    }

    pub fn checks(&self) -> Vec<Check> {
        vec![self.installed(), self.loaded(), rust()]
    }

    fn installed(&self) -> Check {
        let what = "installed";
        let release = machine::release();
        let Some((module, path)) = self
            .get("perfcounters")
            .and_then(|m| Some((m, m.file.as_deref()?)))
        else {
            let found = format!("not installed for this kernel, {release}");
            return match self.is_loaded() {
                true => note(what, found).or(
                    "it will be missing after a reboot; run make install, or install the package",
                ),
                false => problem(what, found, how_to_install(&release)),
            };
        };
        let path = path.display();
        match module.unread {
            Some(Unread::NoModule) => {
                return problem(
                    what,
                    format!("{path} is not a module, or is truncated"),
                    format!("install it again: {}", how_to_install(&release)),
                )
            }
            Some(Unread::Closed) => {
                return note(what, format!("{path}, which this user cannot read"))
            }
            Some(Unread::NoModinfo) | None => {}
        }
        if let Some(other) = module.built_for_another() {
            return problem(
                what,
                format!("{path} was built for {other}, but the kernel is {release}"),
                how_to_install(&release),
            );
        }
        match module.is_another() {
            true => note(what, format!("{path}, which is not the loaded module"))
                .or("unload its users and perfcounters with modprobe -r, then load them again"),
            false => well(what, path.to_string()),
        }
    }

    fn loaded(&self) -> Check {
        let what = "loaded";
        if self.is_loaded() {
            let loaded = self.all.iter().filter(|m| m.loaded).map(|m| m.name);
            return well(what, loaded.collect::<Vec<_>>().join(", "));
        }
        let missing = "perfcounters is not loaded";
        match refusal() {
            Some(said) => problem(
                what,
                format!("{missing}; kernel log: {said}"),
                advice(&said),
            ),
            None => problem(what, missing, how_to_load(Path::new("/"))),
        }
    }

    /// Checks the modules that provide counters of the kernel's subsystems.
    pub fn providers(&self) -> Check {
        let what = "providers";
        let of = |loaded: bool| -> Vec<&str> {
            let names = PROVIDERS.iter().copied();
            names.filter(|name| self.has((name, loaded))).collect()
        };
        let (loaded, installed) = (of(true), of(false));
        let none = "none is loaded; there are only perfcounters' own counters";
        match (loaded.is_empty(), installed.is_empty()) {
            (false, _) => well(what, loaded.join(", ")),
            (true, false) => {
                note(what, none).or(format!("modprobe {}", installed.join("; modprobe ")))
            }
            (true, true) => note(what, "none is installed")
                .or("they are installed together with perfcounters.ko"),
        }
    }
}

/// Returns how to load the modules now and at each boot. The package's service also loads the
/// providers.
fn how_to_load(root: &Path) -> String {
    let places = ["etc", "usr/lib", "lib"].map(|dir| root.join(dir).join("systemd/system"));
    let service = |dir: &std::path::PathBuf| dir.join("perfcounters.service").exists();
    let at_boot = match places.iter().any(service) {
        true => {
            "systemctl enable --now perfcounters, which loads the modules in /etc/default/perfcounters"
        }
        false => "write its name to /etc/modules-load.d/perfcounters.conf",
    };
    format!("load it: modprobe perfcounters; at each boot: {at_boot}")
}

fn how_to_install(release: &str) -> String {
    format!("apt install perfcounters-modules-{release}, or perfcounters-dkms, which builds them; from source: make && make install")
}

/// Returns the last message in the kernel log about a module that was refused.
fn refusal() -> Option<String> {
    let refused = |said: &str| {
        let ours = said.starts_with("perfcounters: ");
        let words = [
            "version magic",
            "nknown symbol",
            "disagrees about version",
            "is rejected",
            "cannot allocate",
        ];
        (ours && words.iter().any(|w| said.contains(w)))
            || (said.starts_with("Lockdown: ") && said.contains("module loading is restricted"))
            || said.starts_with("Loading of ")
    };
    log(refused).pop()
}

/// Returns advice for such a message.
fn advice(said: &str) -> &'static str {
    if said.contains("Lockdown") || said.contains("Loading of ") || said.contains("is rejected") {
        "the kernel accepts signed modules only; sign it with a key that the machine trusts (mokutil --import)"
    } else if said.contains("version") || said.contains("symbol") {
        "it was built for another kernel; rebuild it (make && make install), or install the package for this kernel"
    } else {
        "run modprobe perfcounters, and see dmesg"
    }
}

/// Checks whether modules in Rust can be built here. That is not needed if they are installed.
fn rust() -> Check {
    let what = "Rust tree";
    let build = Path::new("/lib/modules")
        .join(machine::release())
        .join("build");
    let shown = build.display();
    let dkms = match Path::new("/var/lib/dkms/perfcounters").exists() {
        true => "; dkms has the modules",
        false => "",
    };
    if build.join("rust/libkernel.rmeta").exists() {
        return well(
            what,
            format!("{shown} has the kernel's Rust metadata{dkms}"),
        );
    }
    let found = match build.exists() {
        true => format!("{shown} has no Rust metadata (no distribution provides it){dkms}"),
        false => format!("no kernel tree to build modules{dkms}"),
    };
    note(what, found).or(
        "needed only to build the modules; make kdir creates one, perfcounters-dkms does so itself",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_knows_why_a_module_was_refused() {
        assert!(advice("perfcounters: version magic 'x' should be 'y'").contains("another kernel"));
        assert!(advice("Lockdown: insmod: unsigned module loading is restricted").contains("sign"));
        assert!(advice("Loading of unsigned module is rejected").contains("sign"));
    }
    #[test]
    fn doctor_names_the_service_where_there_is_one() {
        let root = std::env::temp_dir().join(format!("pfc-doctor-{}", std::process::id()));
        assert!(how_to_load(&root).contains("/etc/modules-load.d/perfcounters.conf"));
        let dir = root.join("usr/lib/systemd/system");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("perfcounters.service"), "").expect("a file");
        let said = how_to_load(&root);
        std::fs::remove_dir_all(&root).expect("ours");
        for part in [
            "modprobe perfcounters",
            "systemctl enable --now perfcounters",
            "/etc/default/perfcounters",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("modules-load.d"), "{said}");
    }
}
