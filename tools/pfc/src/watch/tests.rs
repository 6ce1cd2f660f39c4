// SPDX-License-Identifier: GPL-2.0

//! Tests of the screen of `pfc watch`, without a terminal.

use std::time::Duration;

use perfcounters::fake::Fake;
use perfcounters::Pattern;
use ratatui::backend::TestBackend;
use ratatui::Terminal;

use crate::live::keys::Key;
use crate::watch::app::App;
use crate::watch::sampler::Sampler;
use crate::watch::view::{draw, Theme};

/// A fake counter device, a sampler of the device, and a screen of a given size.
struct TestScreen {
    fake: Fake,
    sampler: Sampler,
    app: App,
    terminal: Terminal<TestBackend>,
}

impl TestScreen {
    fn new(cpus: u32, names: &[&str], (width, height): (u16, u16)) -> Self {
        let (mut fake, path) = Fake::in_memory(cpus, 1).expect("memory");
        for name in names {
            fake.add_counter(name).expect("room");
        }
        let pattern = Pattern::all().dormant(true);
        let sampler = Sampler::open(path.as_ref(), pattern).expect("a good file");
        Self {
            fake,
            sampler,
            app: App::new(Duration::from_secs(1)),
            terminal: Terminal::new(TestBackend::new(width, height)).expect("memory"),
        }
    }

    fn count(&self, name: &str, cpu: u32, delta: i64) {
        let n = self.fake.find(name).expect("known");
        self.fake.cpu(cpu).adjust(n, delta);
    }

    fn sample(&mut self) -> &mut Self {
        // To compute a rate, some time must pass between two snapshots.
        std::thread::sleep(Duration::from_millis(2));
        let frame = self.sampler.frame().expect("quiet");
        self.app.set_frame(frame);
        self
    }

    fn type_keys(&mut self, keys: &str) -> &mut Self {
        for c in keys.chars() {
            self.press(match c {
                '\n' => Key::Enter,
                '\x1b' => Key::Esc,
                '\x08' => Key::Backspace,
                '↓' => Key::Down,
                '↑' => Key::Up,
                '⇣' => Key::PageDown,
                c => Key::Char(c),
            });
        }
        self
    }

    fn press(&mut self, key: Key) {
        self.app.handle_key(key);
    }

    fn render(&mut self) -> String {
        let theme = Theme { colour: true };
        let app = &mut self.app;
        self.terminal
            .draw(|screen| draw(screen, app, theme))
            .expect("memory");
        self.terminal.backend().to_string()
    }

    /// Returns the first word of each row on the screen.
    fn names(&mut self) -> Vec<String> {
        let screen = self.render();
        let rows = screen.lines().skip(2).take(self.app.height);
        rows.map(|l| {
            l.trim_matches('"')
                .split(' ')
                .next()
                .unwrap_or("")
                .to_owned()
        })
        .filter(|n| !n.is_empty())
        .collect()
    }
}

#[test]
fn pfc_watch_shows_the_busiest_first_with_bars() {
    let mut rig = TestScreen::new(2, &["a", "b", "c"], (80, 8));
    rig.sample();
    rig.count("b", 0, 100);
    rig.count("b", 1, 50);
    rig.count("c", 1, 7);
    assert_eq!(rig.sample().names(), ["b", "c", "a"]);
    let screen = rig.render();
    assert!(screen.contains("3 instances  2 CPUs"), "{screen}");
    assert!(screen.contains("████ ▄▄▄▄"), "{screen}");
    assert!(screen.contains("···· ████"), "{screen}");
    assert!(screen.contains("/SECOND ▼") && screen.contains("CPU 0-1"));
    assert!(screen.contains("150"), "{screen}");
}

#[test]
fn pfc_watch_sorts_filters_and_finds() {
    let mut rig = TestScreen::new(1, &["x/one", "x/two", "y/three"], (60, 10));
    rig.sample();
    rig.count("y/three", 0, 5);
    rig.count("x/two", 0, 50);
    rig.sample();
    assert_eq!(rig.type_keys("n").names(), ["x/one", "x/two", "y/three"]);
    assert_eq!(rig.type_keys("n").names(), ["y/three", "x/two", "x/one"]);
    assert_eq!(rig.type_keys("t").names(), ["x/two", "y/three", "x/one"]);
    assert_eq!(rig.type_keys("/X/\n").names(), ["x/two", "x/one"]);
    assert!(rig.render().contains("2 of 3 instances"));
    assert_eq!(
        rig.type_keys("/o\x08o\n").names(),
        ["x/one"].map(|_| "x/one")
    );
    assert_eq!(rig.type_keys("\x1b").names().len(), 3);
    assert_eq!(rig.type_keys("z").names(), ["x/two", "y/three"]);
    rig.type_keys("zfthree");
    assert!(rig.render().contains("find: three"));
    rig.type_keys("\n\x1b");
    let row = rig.app.selected_row().expect("found");
    assert_eq!(row.name, "y/three");
    // While the text of a filter is typed, keys are text and not commands.
    rig.type_keys("/q");
    assert!(!rig.app.quit);
    rig.type_keys("\x1bq");
    assert!(rig.app.quit);
}

#[test]
fn pfc_watch_follows_the_cursor_and_scrolls() {
    let names: Vec<String> = (0..50).map(|n| format!("n/{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rig = TestScreen::new(1, &names, (60, 13));
    rig.sample().type_keys("n");
    assert_eq!(rig.names().len(), 10);
    rig.type_keys("↓↓↓");
    rig.render();
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/02");
    rig.type_keys("⇣");
    assert!(rig.names().contains(&"n/12".to_owned()));
    rig.type_keys("G");
    assert_eq!(rig.names().last().expect("rows"), "n/49");
    // The cursor stays on its instance when the order of the rows changes.
    rig.count("n/49", 0, 9);
    rig.sample().type_keys("r");
    assert_eq!(rig.names()[0], "n/49");
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/49");
    // The cursor on the first row cannot move up.
    rig.type_keys("↑↑g↑");
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/49");
}

#[test]
fn pfc_watch_shows_what_came_what_went_and_who_is_offline() {
    let mut rig = TestScreen::new(2, &["stays", "goes"], (80, 8));
    rig.sample();
    let goes = rig.fake.find("goes").expect("known");
    rig.count("goes", 0, 3);
    rig.sample();
    rig.fake.del(goes).expect("live");
    rig.fake.add_counter("comes").expect("room");
    rig.fake.set_online(1, false);
    rig.count("stays", 0, 1);
    rig.sample();
    let screen = rig.render();
    let row = |name: &str| {
        let row = screen.lines().find(|l| l.starts_with(&format!("\"{name}")));
        row.expect("a row").to_owned()
    };
    assert!(row("goes").contains("dormant") && row("goes").contains('3'));
    assert!(row("stays").contains("████ xxxx"), "{screen}");
    assert!(row("comes").contains('0'));
    assert!(screen.contains("1 of 2 CPUs online"), "{screen}");
    assert_eq!(rig.type_keys("d").names().len(), 2);
}

#[test]
fn pfc_watch_shows_an_instance_in_full() {
    let mut rig = TestScreen::new(3, &["a"], (80, 24));
    rig.sample();
    rig.count("a", 2, 77);
    rig.sample().type_keys("\n");
    let screen = rig.render();
    for part in [
        "┌ a ─",
        "number 1  counter  events  live, incarnation 1",
        "77 in total",
        "██████",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    rig.type_keys("\x1b?");
    assert!(rig.render().contains("sort by rate, name, total"));
    rig.type_keys("x");
    assert!(!rig.render().contains("┌"));
}

#[test]
fn pfc_watch_fits_any_terminal() {
    let long = "x".repeat(127);
    let mut rig = TestScreen::new(200, &[&long, "größe/日本"], (1, 1));
    rig.sample();
    rig.count(&long, 199, i64::MAX);
    rig.sample();
    for keys in ["", "↓\n", "\x1b\x1b?", "x/abc"] {
        rig.type_keys(keys);
        for width in [1, 2, 5, 13, 40, 80, 200, 500] {
            for height in [1, 2, 3, 5, 24, 60] {
                rig.terminal.backend_mut().resize(width, height);
                rig.render();
            }
        }
    }
    rig.type_keys("\x1b");
    rig.terminal.backend_mut().resize(80, 24);
    // A long name is shortened in the middle: its beginning and its end are shown.
    assert!(rig.render().contains("x…x"));
}

#[test]
fn pfc_watch_without_instances_says_what_to_do() {
    let mut rig = TestScreen::new(1, &[], (80, 6));
    rig.sample().type_keys("↓\n⇣fq\x1b");
    assert!(rig.render().contains("load a provider"));
    rig.app.error = Some("the module has gone".into());
    assert!(rig.render().contains("the module has gone"));
}
