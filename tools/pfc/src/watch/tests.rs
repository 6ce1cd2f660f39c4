// SPDX-License-Identifier: GPL-2.0

//! Tests of the screen of `pfc watch`, without a terminal.

use std::time::Duration;

use perfcounters::fake::FakeCounters;
use perfcounters::InstancePattern;
use ratatui::backend::TestBackend;
use ratatui::Terminal;

use crate::live::keys::Key;
use crate::watch::app::WatchApp;
use crate::watch::sampler::CounterSampler;
use crate::watch::view::{draw_watch_screen, Theme};

/// A fake counter device, a sampler of the device, and a screen of a given size.
struct TestScreen {
    fake: FakeCounters,
    sampler: CounterSampler,
    app: WatchApp,
    terminal: Terminal<TestBackend>,
}

impl TestScreen {
    fn new(cpus: u32, names: &[&str], (width, height): (u16, u16)) -> Self {
        let (mut fake, path) = FakeCounters::in_memory(cpus, 1).expect("memory");
        for name in names {
            fake.add_counter(name).expect("room");
        }
        let pattern = InstancePattern::all_live().include_dormant(true);
        let sampler = CounterSampler::open(path.as_ref(), pattern).expect("a good file");
        Self {
            fake,
            sampler,
            app: WatchApp::new(Duration::from_secs(1)),
            terminal: Terminal::new(TestBackend::new(width, height)).expect("memory"),
        }
    }

    fn add_to_counter(&self, name: &str, cpu: u32, delta: i64) {
        let n = self.fake.find(name).expect("known");
        self.fake.cpu(cpu).adjust_if_live(n, delta);
    }

    fn take_frame(&mut self) -> &mut Self {
        // To compute a rate, some time must pass between two snapshots.
        std::thread::sleep(Duration::from_millis(2));
        let frame = self.sampler.take_frame().expect("quiet");
        self.app.set_frame(frame);
        self
    }

    fn type_keys(&mut self, keys: &str) -> &mut Self {
        for c in keys.chars() {
            self.press_key(match c {
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

    fn press_key(&mut self, key: Key) {
        self.app.handle_key(key);
    }

    fn render_screen(&mut self) -> String {
        let theme = Theme { has_colour: true };
        let app = &mut self.app;
        self.terminal
            .draw(|screen| draw_watch_screen(screen, app, theme))
            .expect("memory");
        self.terminal.backend().to_string()
    }

    /// Returns the first word of each row on the screen.
    fn shown_names(&mut self) -> Vec<String> {
        let screen = self.render_screen();
        let rows = screen.lines().skip(2).take(self.app.nr_visible_rows);
        rows.filter_map(|l| l.trim_matches('"').split(' ').next())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

#[test]
fn pfc_watch_shows_busiest_instances_first() {
    let mut rig = TestScreen::new(2, &["a", "b", "c"], (80, 8));
    rig.take_frame();
    rig.add_to_counter("b", 0, 100);
    rig.add_to_counter("b", 1, 50);
    rig.add_to_counter("c", 1, 7);
    assert_eq!(rig.take_frame().shown_names(), ["b", "c", "a"]);
    let screen = rig.render_screen();
    assert!(screen.contains("3 instances  2 CPUs"), "{screen}");
    assert!(screen.contains("████ ▄▄▄▄"), "{screen}");
    assert!(screen.contains("···· ████"), "{screen}");
    assert!(screen.contains("/SECOND ▼") && screen.contains("CPU 0-1"));
    assert!(screen.contains("150"), "{screen}");
}

#[test]
fn pfc_watch_sorts_filters_and_finds() {
    let mut rig = TestScreen::new(1, &["x/one", "x/two", "y/three"], (60, 10));
    rig.take_frame();
    rig.add_to_counter("y/three", 0, 5);
    rig.add_to_counter("x/two", 0, 50);
    rig.take_frame();
    for (keys, names) in [
        ("n", &["x/one", "x/two", "y/three"][..]),
        ("n", &["y/three", "x/two", "x/one"][..]),
        ("t", &["x/two", "y/three", "x/one"][..]),
        ("/X/\n", &["x/two", "x/one"][..]),
    ] {
        assert_eq!(rig.type_keys(keys).shown_names(), names);
    }
    assert!(rig.render_screen().contains("2 of 3 instances"));
    assert_eq!(rig.type_keys("/o\x08o\n").shown_names(), ["x/one"]);
    assert_eq!(rig.type_keys("\x1b").shown_names().len(), 3);
    assert_eq!(rig.type_keys("z").shown_names(), ["x/two", "y/three"]);
    rig.type_keys("zfthree");
    assert!(rig.render_screen().contains("find: three"));
    rig.type_keys("\n\x1b");
    let row = rig.app.selected_row().expect("found");
    assert_eq!(row.name, "y/three");
    // While the text of a filter is typed, keys are text and not commands.
    rig.type_keys("/q");
    assert!(!rig.app.is_quitting);
    rig.type_keys("\x1bq");
    assert!(rig.app.is_quitting);
}

#[test]
fn pfc_watch_follows_the_cursor_and_scrolls() {
    let names: Vec<String> = (0..50).map(|n| format!("n/{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rig = TestScreen::new(1, &names, (60, 13));
    rig.take_frame().type_keys("n");
    assert_eq!(rig.shown_names().len(), 10);
    rig.type_keys("↓↓↓");
    rig.render_screen();
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/02");
    rig.type_keys("⇣");
    assert!(rig.shown_names().contains(&"n/12".to_owned()));
    rig.type_keys("G");
    assert_eq!(rig.shown_names().last().expect("rows"), "n/49");
    // The cursor stays on its instance when the order of the rows changes.
    rig.add_to_counter("n/49", 0, 9);
    rig.take_frame().type_keys("r");
    assert_eq!(rig.shown_names()[0], "n/49");
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/49");
    // The cursor on the first row cannot move up.
    rig.type_keys("↑↑g↑");
    assert_eq!(rig.app.selected_row().expect("a row").name, "n/49");
}

#[test]
fn pfc_watch_marks_new_dormant_and_offline() {
    let mut rig = TestScreen::new(2, &["stays", "goes"], (80, 8));
    rig.take_frame();
    let goes = rig.fake.find("goes").expect("known");
    rig.add_to_counter("goes", 0, 3);
    rig.take_frame();
    rig.fake.del(goes).expect("live");
    rig.fake.add_counter("comes").expect("room");
    rig.fake.set_online(1, false);
    rig.add_to_counter("stays", 0, 1);
    rig.take_frame();
    let screen = rig.render_screen();
    let row = |name: &str| {
        let row = screen.lines().find(|l| l.starts_with(&format!("\"{name}")));
        row.expect("a row").to_owned()
    };
    assert!(row("goes").contains("dormant") && row("goes").contains('3'));
    assert!(row("stays").contains("████ xxxx"), "{screen}");
    assert!(row("comes").contains('0'));
    assert!(screen.contains("1 of 2 CPUs online"), "{screen}");
    assert_eq!(rig.type_keys("d").shown_names().len(), 2);
}

#[test]
fn pfc_watch_shows_details_of_an_instance() {
    let mut rig = TestScreen::new(3, &["a"], (80, 24));
    rig.take_frame();
    rig.add_to_counter("a", 2, 77);
    rig.take_frame().type_keys("\n");
    let screen = rig.render_screen();
    for part in [
        "┌ a ─",
        "number 1  counter  events  live, incarnation 1",
        "77 in total",
        "██████",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    rig.type_keys("\x1b?");
    assert!(rig.render_screen().contains("sort by rate, name, total"));
    rig.type_keys("x");
    assert!(!rig.render_screen().contains("┌"));
}

#[test]
fn pfc_watch_fits_any_terminal_size() {
    let long = "x".repeat(127);
    let mut rig = TestScreen::new(200, &[&long, "größe/日本"], (1, 1));
    rig.take_frame();
    rig.add_to_counter(&long, 199, i64::MAX);
    rig.take_frame();
    for keys in ["", "↓\n", "\x1b\x1b?", "x/abc"] {
        rig.type_keys(keys);
        for width in [1, 2, 5, 13, 40, 80, 200, 500] {
            for height in [1, 2, 3, 5, 24, 60] {
                rig.terminal.backend_mut().resize(width, height);
                rig.render_screen();
            }
        }
    }
    rig.type_keys("\x1b");
    rig.terminal.backend_mut().resize(80, 24);
    // A long name is shortened in the middle: its beginning and its end are shown.
    assert!(rig.render_screen().contains("x…x"));
}

#[test]
fn pfc_watch_shows_escape_sequences() {
    let mut rig = TestScreen::new(1, &["a\u{202e}b"], (80, 24));
    rig.take_frame();
    assert_eq!(rig.shown_names(), ["a\\xe2\\x80\\xaeb"]);
    rig.type_keys("↓");
    rig.press_key(Key::Enter);
    assert!(rig.render_screen().contains("┌ a\\xe2\\x80\\xaeb ─"));
    rig.type_keys("\x1b/\u{202e}");
    assert!(rig.render_screen().contains("show only: \\xe2\\x80\\xae"));
    rig.type_keys("\n");
    assert!(rig.render_screen().contains("with '\\xe2\\x80\\xae'"));
    rig.app.frame_error = Some("gone: \u{202e}".into());
    assert!(rig.render_screen().contains("gone: \\xe2\\x80\\xae"));
}

#[test]
fn pfc_watch_without_instances_says_what_to_do() {
    let mut rig = TestScreen::new(1, &[], (80, 6));
    rig.take_frame().type_keys("↓\n⇣fq\x1b");
    assert!(rig.render_screen().contains("load a provider"));
    rig.app.frame_error = Some("the module has gone".into());
    assert!(rig.render_screen().contains("the module has gone"));
}
