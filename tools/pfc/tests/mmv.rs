// SPDX-License-Identifier: GPL-2.0

//! Tests of `pfc export --mmv` on a fake device file. The tests decode the files as mmv(5)
//! describes, independently of the code of `pfc` that writes the files.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use counters_rules::abi::{Kind, Unit};
use device::{send_signal, wait_until, Device, KillOnDrop};
use fuzz::scale_timeout;
use tempfile::TempDir;

/// A fake device, and a directory for the exported files.
struct ExportTest {
    device: Device,
    directory: PathBuf,
    _parent: TempDir,
}

impl ExportTest {
    fn new(cpus: u32) -> Self {
        let device = Device::new(cpus);
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("mmv");
        fs::create_dir(&directory).expect("room");
        Self {
            device,
            directory,
            _parent: parent,
        }
    }

    fn add(&mut self, name: &str, kind: Kind, unit: Unit, exponent: i8, nr_slots: u16) -> u32 {
        self.device.add(name, kind, unit, exponent, nr_slots)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.device.command(&["export", "--interval", "20"]);
        command.arg("--mmv-directory").arg(&self.directory);
        command.args(args);
        command
    }

    fn start(&self, args: &[&str]) -> KillOnDrop {
        KillOnDrop(self.command(args).spawn().expect("pfc runs"))
    }

    /// Waits until the metrics of all files satisfy a condition, and returns them.
    fn wait(&self, what: &str, wanted: impl Fn(&Metrics) -> bool) -> Metrics {
        let end = Instant::now() + scale_timeout(60);
        loop {
            let found = read_all(&self.directory);
            match found {
                Some(found) if wanted(&found) => return found,
                found => assert!(Instant::now() < end, "never {what}: {found:#?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).expect("the directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|n| n.into_string().expect("text")).collect();
        names.sort();
        names
    }
}

/// Sends a signal to an exporter and waits until the exporter has ended.
fn stop(mut exporter: KillOnDrop, signal: &str) {
    send_signal(&exporter.0, signal);
    exporter.0.wait().expect("it ends");
}

/// A metric as a client of PCP sees it.
#[derive(Clone, Debug, PartialEq)]
struct Metric {
    pmid: (u32, u32),
    kind: u32,
    semantics: u32,
    units: u32,
    short: String,
    long: String,
    indom: Option<u32>,
    /// The values, each with the number and the name of its instance, if the metric has instances.
    values: Vec<(Option<(u32, String)>, i64)>,
}

type Metrics = BTreeMap<String, Metric>;

/// Reads the metrics of all files. Returns `None` if the exporter is in the middle of an update: if
/// old and new files exist at the same time, or if a file was replaced after this function opened
/// it.
fn read_all(directory: &Path) -> Option<Metrics> {
    let mut all = Metrics::new();
    for entry in fs::read_dir(directory).expect("the directory") {
        let path = entry.expect("an entry").path();
        let hidden = path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with('.'));
        // The file may have been removed after the directory was read.
        if let (false, Ok(bytes)) = (hidden, fs::read(&path)) {
            let file = File(bytes);
            if file.u64(8) == 0 || file.u64(16) == 0 {
                return None;
            }
            for (name, metric) in file.metrics() {
                if all.insert(name, metric).is_some() {
                    return None;
                }
            }
        }
    }
    Some(all)
}

struct File(Vec<u8>);

impl File {
    fn u32(&self, at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four"))
    }

    fn u64(&self, at: u64) -> u64 {
        assert_eq!(at % 8, 0);
        u64::from(self.u32(at)) | (u64::from(self.u32(at + 4)) << 32)
    }

    /// Returns the text of a string entry, which has 256 bytes and is ended by a NUL.
    fn string(&self, at: u64) -> String {
        let (count, first) = self.section(5);
        assert!(at >= first && (at - first) % 256 == 0 && (at - first) / 256 < count);
        let bytes = &self.0[at as usize..at as usize + 256];
        let end = bytes.iter().position(|b| *b == 0).expect("a NUL");
        String::from_utf8(bytes[..end].to_vec()).expect("UTF-8")
    }

    /// Returns the number of entries and the offset of a section.
    fn section(&self, kind: u32) -> (u64, u64) {
        (0..u64::from(self.u32(24)))
            .map(|n| 40 + 16 * n)
            .find(|at| self.u32(*at) == kind)
            .map_or((0, 0), |at| (self.u32(at + 4).into(), self.u64(at + 8)))
    }

    fn metrics(&self) -> Metrics {
        assert_eq!(&self.0[..4], b"MMV\0");
        assert_eq!(self.u32(4), 2);
        assert!(self.u64(8) != 0 && self.u64(8) == self.u64(16));
        assert_eq!(self.u32(28), 3, "no prefix, and the process counts");
        let cluster = self.u32(36);
        let end = self.section(5);
        assert_eq!(end.1 + 256 * end.0, self.0.len() as u64);

        let (nr_metrics, metrics_at) = self.section(3);
        let (nr_values, values_at) = self.section(4);
        let (nr_indoms, indoms_at) = self.section(1);
        let (nr_instances, instances_at) = self.section(2);
        assert!(nr_values <= 10_000, "pmdammv ignores more");
        let mut metrics = BTreeMap::new();
        for at in (0..nr_metrics).map(|n| metrics_at + 48 * n) {
            assert!(self.u32(at + 8) < 1024);
            let indom = Some(self.u32(at + 24)).filter(|n| *n != u32::MAX);
            let metric = Metric {
                pmid: (cluster, self.u32(at + 8)),
                kind: self.u32(at + 12),
                semantics: self.u32(at + 16),
                units: self.u32(at + 20),
                short: self.string(self.u64(at + 32)),
                long: self.string(self.u64(at + 40)),
                indom,
                values: Vec::new(),
            };
            metrics.insert(at, (self.string(self.u64(at)), metric));
        }
        for at in (0..nr_values).map(|n| values_at + 32 * n) {
            let (_, metric) = metrics.get_mut(&self.u64(at + 16)).expect("its metric");
            let instance = match (self.u64(at + 24), metric.indom) {
                (0, None) => None,
                (instance, Some(serial)) => {
                    let n = (instance - instances_at) / 24;
                    assert!((instance - instances_at) % 24 == 0 && n < nr_instances);
                    let indom = self.u64(instance);
                    let k = (indom - indoms_at) / 32;
                    assert!((indom - indoms_at) % 32 == 0 && k < nr_indoms);
                    assert_eq!(self.u32(indom), serial);
                    let first = self.u64(indom + 8);
                    let count = u64::from(self.u32(indom + 4));
                    assert!((first..first + 24 * count).contains(&instance));
                    Some((
                        self.u32(instance + 12),
                        self.string(self.u64(instance + 16)),
                    ))
                }
                other => panic!("instance and indom: {other:?}"),
            };
            metric.values.push((instance, self.u64(at) as i64));
        }
        metrics.into_values().collect()
    }
}

fn values_of(metrics: &Metrics, name: &str) -> Vec<i64> {
    let metric = metrics.get(name);
    metric.map_or(Vec::new(), |m| m.values.iter().map(|v| v.1).collect())
}

fn instance_names(metric: &Metric) -> Vec<&str> {
    metric
        .values
        .iter()
        .map(|v| v.0.as_ref().map_or("", |i| i.1.as_str()))
        .collect()
}

#[test]
fn pfc_mmv_files_say_what_the_counters_say() {
    let mut test = ExportTest::new(3);
    let switches = test.add("sched/context_switches", Kind::Counter, Unit::Events, 0, 1);
    let time = test.add("sched/run_time", Kind::Time, Unit::Seconds, -7, 1);
    let depth = test.add("block/sd-a/depth", Kind::Gauge, Unit::None, 0, 1);
    let peak = test.add("sched/latency_max", Kind::Peak, Unit::Seconds, -9, 1);
    let latency = test.add("block/sd-a/latency", Kind::Histogram, Unit::Seconds, -9, 4);
    for (cpu, by) in [(0, 40), (1, 2), (2, 7)] {
        let cpu = test.device.fake.cpu(cpu);
        cpu.adjust_if_live(switches, by);
        cpu.adjust_if_live(time, by);
        cpu.adjust_if_live(depth, 10 - by);
        cpu.adjust_if_live(peak, by);
    }
    test.device.fake.cpu(0).add_without_seqflag(latency, 1);
    test.device.fake.cpu(0).add_without_seqflag(latency + 3, 5);
    test.device.fake.cpu(2).add_without_seqflag(latency + 3, 6);

    let exporter = test.start(&["--mmv", "pc"]);
    let found = test.wait("there", |m| {
        // The files of an exporter appear one after the other.
        ["pc.control.", "pc.all.", "pc.percpu."]
            .iter()
            .all(|kind| m.keys().any(|name| name.starts_with(kind)))
    });
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "pc.all.block.sd_x2d_a.depth",
            "pc.all.block.sd_x2d_a.latency",
            "pc.all.sched.context_switches",
            "pc.all.sched.latency_max",
            "pc.all.sched.run_time",
            "pc.control.generation",
            "pc.control.time",
            "pc.percpu.block.sd_x2d_a.depth",
            "pc.percpu.sched.context_switches",
            "pc.percpu.sched.latency_max",
            "pc.percpu.sched.run_time",
        ]
    );
    // The field for the semantics of a metric is 1 for a counter and 3 for an instant value. Type 2
    // is a signed 64-bit number. The units of a metric are packed as in pmapi.h.
    let shape = |name: &str| {
        let m = &found[name];
        (m.kind, m.semantics, m.units)
    };
    assert_eq!(shape("pc.all.sched.context_switches"), (2, 1, 0x0010_0000));
    assert_eq!(shape("pc.all.sched.run_time"), (2, 1, 0x0100_0000));
    assert_eq!(shape("pc.all.sched.latency_max"), (2, 3, 0x0100_0000));
    assert_eq!(shape("pc.all.block.sd_x2d_a.depth"), (2, 3, 0));
    assert_eq!(shape("pc.all.block.sd_x2d_a.latency"), (2, 1, 0x0010_0000));
    assert_eq!(shape("pc.control.time"), (2, 3, 0x0100_0000));

    let percpu = &found["pc.percpu.sched.context_switches"];
    assert_eq!(instance_names(percpu), ["cpu0", "cpu1", "cpu2"]);
    assert_eq!(percpu.pmid, (1088, switches));
    assert_eq!(percpu.short, "what it counts");
    let text = "sched/context_switches: counter, events. what it counts";
    assert_eq!(percpu.long, text);
    for (name, values) in [
        ("pc.percpu.sched.context_switches", &[40, 2, 7][..]),
        ("pc.all.sched.context_switches", &[49][..]),
        // The unit of the counter `sched/run_time` is 100 ns, and the unit of the exported metric
        // is 1 ns.
        ("pc.all.sched.run_time", &[4900][..]),
        ("pc.percpu.block.sd_x2d_a.depth", &[-30, 8, 3][..]),
        ("pc.all.block.sd_x2d_a.depth", &[-19][..]),
        ("pc.all.sched.latency_max", &[40][..]),
        ("pc.all.block.sd_x2d_a.latency", &[1, 0, 0, 11][..]),
    ] {
        assert_eq!(values_of(&found, name), values, "{name}");
    }
    let buckets = &found["pc.all.block.sd_x2d_a.latency"];
    assert_eq!(instance_names(buckets), ["<=0", "1-1", "2-3", ">=4"]);
    let text = &buckets.long;
    assert!(text.contains("histogram, seconds * 10^-9"), "{text}");

    // The exporter updates values in place, in the same file.
    let inode = |file: &str| {
        fs::metadata(test.directory.join(file))
            .expect("there")
            .ino()
    };
    let file = format!("pc.all.{switches}");
    let before = inode(&file);
    test.device.fake.cpu(1).adjust_if_live(switches, 100);
    test.wait("counted", |m| {
        values_of(m, "pc.all.sched.context_switches") == [149]
    });
    assert_eq!(inode(&file), before);

    stop(exporter, "TERM");
    assert!(test.files().is_empty(), "{:?}", test.files());
}

#[test]
fn pfc_mmv_follows_the_set_and_tells_who_has_the_old_file() {
    let mut test = ExportTest::new(2);
    let first = test.add("a/first", Kind::Counter, Unit::Events, 0, 1);
    let second = test.add("a/second", Kind::Counter, Unit::Events, 0, 1);
    test.device.fake.cpu(0).adjust_if_live(second, 5);
    let exporter = test.start(&["--mmv", "pc", "a/*"]);
    let before = test.wait("there", |m| {
        m.contains_key("pc.all.a.second") && m.contains_key("pc.percpu.a.first")
    });
    // Like pmdammv, the test keeps a file of the exporter open.
    let file = fs::File::open(test.directory.join(format!("pc.percpu.{first}"))).expect("it");
    let generations = || {
        let mut words = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut words, 8).expect("a header");
        let half = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight"));
        (half(0), half(8))
    };
    assert!(generations().0 == generations().1 && generations().0 != 0);

    test.device.fake.del(first).expect("live");
    let third = test.add("a/third", Kind::Counter, Unit::Events, 0, 1);
    test.add("b/other", Kind::Counter, Unit::Events, 0, 1);
    test.device.fake.cpu(1).adjust_if_live(third, 9);
    let after = test.wait("the third", |m| {
        values_of(m, "pc.percpu.a.third") == [0, 9] && m.contains_key("pc.all.a.second")
    });
    assert!(!after.contains_key("pc.all.a.first"));
    assert!(!after.contains_key("pc.all.b.other"));
    // The metric of an instance that is not removed keeps its number in PCP and its value.
    assert_eq!(after["pc.all.a.second"], before["pc.all.a.second"]);
    wait_until("the old file still looks good", || generations() == (0, 0));
    stop(exporter, "INT");
    assert!(test.files().is_empty());
}

#[test]
fn pfc_mmv_a_killed_exporter_is_replaced_a_running_one_is_not() {
    let mut test = ExportTest::new(1);
    test.add("a/first", Kind::Counter, Unit::Events, 0, 1);
    let exporter = test.start(&["--mmv", "pc"]);
    let pid = exporter.0.id();
    test.wait("there", |m| {
        m.contains_key("pc.percpu.a.first") && m.contains_key("pc.control.time")
    });
    let control = fs::read(test.directory.join("pc.control")).expect("a file");
    assert_eq!(File(control).u32(32), pid);

    let second = test.command(&["--mmv", "pc"]).output().expect("pfc runs");
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&format!("process {pid}")), "{said}");

    stop(exporter, "KILL");
    assert!(!test.files().is_empty());
    // The control file gets the process ID of this test, as if the process ID of the killed
    // exporter was used again.
    let left = test.directory.join("pc.control");
    let mut control = fs::read(&left).expect("a file");
    control[32..36].copy_from_slice(&std::process::id().to_le_bytes());
    fs::write(&left, control).expect("a file");
    // The file `pcx.all.1` belongs to an exporter with another name.
    fs::write(test.directory.join("pcx.all.1"), "other").expect("a file");
    let exporter = test.start(&["--mmv", "pc"]);
    let pid = exporter.0.id();
    wait_until("the new one does not take over", || {
        fs::read(&left).is_ok_and(|b| File(b).u32(32) == pid)
    });
    stop(exporter, "INT");
    assert_eq!(test.files(), ["pcx.all.1"]);
}

#[test]
fn pfc_mmv_many_metrics_lie_in_many_files() {
    // A file has at most 10,000 values: the values of 39 metrics with 255 CPUs.
    let mut test = ExportTest::new(255);
    let mut numbers = Vec::new();
    for n in 0..1100 {
        numbers.push(test.add(&format!("many/n{n}"), Kind::Counter, Unit::Events, 0, 1));
    }
    for n in [0, 38, 39, 1023, 1024, 1099] {
        test.device
            .fake
            .cpu(254)
            .adjust_if_live(numbers[n], 1000 + n as i64);
    }
    let exporter = test.start(&["--mmv", "pc"]);
    let found = test.wait("all there", |m| m.len() == 2 + 2 * 1100);
    for n in [0, 38, 39, 1023, 1024, 1099] {
        let number = numbers[n];
        let metric = &found[&format!("pc.percpu.many.n{n}")];
        assert_eq!(metric.pmid, (1088 + number / 1024, number % 1024));
        assert_eq!(metric.values.len(), 255);
        assert_eq!(metric.values[254].1, 1000 + n as i64);
        assert_eq!(metric.values[254].0, Some((254, "cpu254".into())));
        assert_eq!(
            values_of(&found, &format!("pc.all.many.n{n}")),
            [1000 + n as i64]
        );
    }
    let pmids: std::collections::BTreeSet<_> = found.values().map(|m| m.pmid).collect();
    assert_eq!(pmids.len(), found.len());
    stop(exporter, "TERM");
}

#[test]
fn pfc_mmv_a_link_that_somebody_left_is_not_followed() {
    let mut test = ExportTest::new(1);
    test.add("a/first", Kind::Counter, Unit::Events, 0, 1);
    let victim = test.directory.with_extension("victim");
    fs::write(&victim, "precious").expect("a file");
    std::os::unix::fs::symlink(&victim, test.directory.join(".pc.new")).expect("a link");
    let exporter = test.start(&["--mmv", "pc"]);
    test.wait("there", |m| m.contains_key("pc.percpu.a.first"));
    stop(exporter, "TERM");
    assert_eq!(fs::read(&victim).expect("it"), b"precious");
    fs::remove_file(victim).expect("it");
}

#[test]
fn pfc_mmv_fifo_in_place_of_a_file_is_replaced() {
    let mut test = ExportTest::new(1);
    test.add("a/first", Kind::Counter, Unit::Events, 0, 1);
    let fifo = test.directory.join("pc.control");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    let exporter = test.start(&["--mmv", "pc"]);
    // A test that reads the FIFO would block like the exporter, so wait for a regular file.
    wait_until("the FIFO is not replaced", || {
        fs::symlink_metadata(&fifo).is_ok_and(|m| m.is_file())
    });
    test.wait("there", |m| m.contains_key("pc.percpu.a.first"));
    stop(exporter, "TERM");
}

#[test]
fn pfc_mmv_bad_names_and_directories_are_refused() {
    let test = ExportTest::new(1);
    for name in ["", "1a", "a.b", "a/b", "x_a", "a-b", &"a".repeat(33)] {
        let run = test.command(&["--mmv", name]).output().expect("pfc runs");
        assert_eq!(run.status.code(), Some(2), "{name}");
    }
    let args = ["export", "--mmv", "pc", "--mmv-directory", "/nowhere/mmv"];
    let run = test.device.command(&args).output().expect("pfc runs");
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("/nowhere/mmv"));
}
