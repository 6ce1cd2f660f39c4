// SPDX-License-Identifier: GPL-2.0

//! `pfc flamegraph`: draws call stacks as an SVG picture for a browser. A click on a function makes
//! the function as wide as the picture.
//!
//! The crate inferno also draws flame graphs, but has a licence (CDDL) that is not compatible with
//! the licence of this program. The programs of inferno can read the output of `pfc script
//! --folded`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cli::FlamegraphArgs;
use crate::error::Failure;
use crate::output::Out;
use crate::profile::{folded, Profile};

/// Width of the picture in pixels.
const WIDTH: f64 = 1200.0;
/// Height of a row of functions in pixels.
const ROW_HEIGHT: f64 = 17.0;
/// Margin around the rows of functions in pixels.
const MARGIN: f64 = 10.0;
/// Height of the heading of the picture in pixels.
const HEADING_HEIGHT: f64 = 48.0;
/// Average width of a letter in pixels.
const LETTER_WIDTH: f64 = 7.0;
/// Minimum width of a function in pixels; narrower functions are left out.
const MIN_WIDTH: f64 = 0.1;

/// Rules of style for the text of a picture, which has no background of its own: the text is dark on
/// a light page and light on a dark one.
pub const TEXT_STYLE: &str = ":root{color-scheme:light dark}text{fill:#1f2328}\
     @media (prefers-color-scheme: dark){text{fill:#e6edf3}}";

/// The JavaScript code in the picture, which the browser runs.
const SCRIPT: &str = include_str!("zoom.js");

/// A function in a stack, with the functions that it called.
#[derive(Default)]
struct Node {
    samples: u64,
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn from_stacks(stacks: &BTreeMap<String, u64>) -> Self {
        let mut root = Self::default();
        for (stack, samples) in stacks {
            root.samples += samples;
            let mut node = &mut root;
            for name in stack.split(';') {
                node = node.callees.entry(name.to_owned()).or_default();
                node.samples += samples;
            }
        }
        root
    }

    /// Returns the number of levels of calls, from this function on, that have a function with at
    /// least `min_samples` samples. The level of `self` is counted, too.
    fn depth(&self, min_samples: u64) -> usize {
        let calls = self.callees.values().filter(|n| n.samples >= min_samples);
        1 + calls.map(|n| n.depth(min_samples)).max().unwrap_or(0)
    }
}

/// The state of a picture that is being drawn.
struct Picture {
    text: String,
    total: f64,
    height: f64,
}

impl Picture {
    fn draw_node(
        &mut self,
        name: &str,
        node: &Node,
        samples_before: u64,
        depth: usize,
    ) -> std::fmt::Result {
        let (x, width) = (
            samples_before as f64 / self.total,
            node.samples as f64 / self.total,
        );
        let pixels = width * (WIDTH - 2.0 * MARGIN);
        if pixels < MIN_WIDTH {
            return Ok(());
        }
        let left = MARGIN + x * (WIDTH - 2.0 * MARGIN);
        let top = self.height - MARGIN - ROW_HEIGHT * (depth + 1) as f64;
        let letters = ((pixels - 6.0) / LETTER_WIDTH).max(0.0) as usize;
        let shown: String = match name.chars().count() <= letters {
            true => name.to_owned(),
            false if letters < 3 => String::new(),
            false => name.chars().take(letters - 2).chain("..".chars()).collect(),
        };
        writeln!(
            self.text,
            "<g class=\"f\" data-x=\"{x:.7}\" data-w=\"{width:.7}\"><title>{} ({} samples, {:.2}%)</title>\
             <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{pixels:.1}\" height=\"{:.1}\" fill=\"{}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            escape_xml(name),
            node.samples,
            width * 100.0,
            ROW_HEIGHT - 1.0,
            colour_of(name),
            left + 3.0,
            top + ROW_HEIGHT - 5.0,
            escape_xml(&shown),
        )?;
        let mut samples_before = samples_before;
        for (name, call) in &node.callees {
            self.draw_node(name, call, samples_before, depth + 1)?;
            samples_before += call.samples;
        }
        Ok(())
    }
}

/// Returns the colour of a function, which depends on its name only. In the picture, functions of
/// the kernel have other colours than functions of programs.
fn colour_of(name: &str) -> String {
    // The colour is computed from the name by the hash function FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let (a, b) = (hash % 55, hash / 55 % 80);
    match name.ends_with("_[k]") {
        true => format!("rgb({},{},{})", 80 + a, 140 + b, 220 - a),
        false => format!("rgb({},{},{})", 200 + a, 90 + b, 50 + a / 2),
    }
}

/// Escapes text for XML. Control characters, most of which XML does not allow, are made visible.
pub fn escape_xml(text: &str) -> String {
    let mut to = String::new();
    for c in visible::escape(text).chars() {
        match c {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            c => to.push(c),
        }
    }
    to
}

fn render_svg(stacks: &BTreeMap<String, u64>, title: &str) -> Result<String, std::fmt::Error> {
    let root = Node::from_stacks(stacks);
    let total = root.samples.max(1) as f64;
    let min_samples = (MIN_WIDTH / (WIDTH - 2.0 * MARGIN) * total).ceil() as u64;
    let height = HEADING_HEIGHT + ROW_HEIGHT * root.depth(min_samples) as f64 + MARGIN;
    let mut picture = Picture {
        text: String::new(),
        total,
        height,
    };
    picture.draw_node("all", &root, 0, 0)?;
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"12\">\n\
         <style>{TEXT_STYLE}.f{{cursor:pointer}}.f text{{fill:black}}.f:hover rect{{stroke:gray}}\
         .found rect{{fill:rgb(230,0,230)}}text{{pointer-events:none}}</style>\n\
         <text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n\
         <text id=\"about\" x=\"{MARGIN}\" y=\"38\">click: zoom; Ctrl-F: find</text>\n\
         {}<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n",
        WIDTH / 2.0,
        escape_xml(title),
        picture.text,
    ))
}

pub fn run(args: &FlamegraphArgs, out: &mut Out) -> Result<(), Failure> {
    let input = args.input.file.as_deref().map(Path::new);
    let mut profile =
        Profile::load(input, !args.input.no_inline)?.select_event(args.input.event.as_deref())?;
    if args.input.event.is_none() {
        // The numbers of samples of different events cannot be added up, so only the samples of the
        // first event are drawn.
        let first = profile.samples.first().map_or(0, |s| s.event);
        profile.samples.retain(|s| s.event == first);
    }
    if !profile.has_stacks {
        message!("pfc: the file has no call stacks; record them with pfc record -g");
    }
    let event = profile.samples.first().map_or(0, |s| s.event);
    let title = args.title.clone().unwrap_or_else(|| {
        format!(
            "{}, {} samples",
            profile.events[event],
            profile.samples.len()
        )
    });
    let text = render_svg(&folded::fold_stacks(&profile), &title)
        .map_err(|_| Failure::Refused("cannot draw the flame graph".to_owned()))?;
    write!(out, "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_10_widths_are_shares_of_the_samples() {
        let stacks = BTreeMap::from([
            ("sh;main;f<int>".to_owned(), 3),
            ("sh;main".to_owned(), 1),
            ("ls;x_[k]".to_owned(), 4),
        ]);
        let text = render_svg(&stacks, "a & b").expect("a picture");
        let line = |name: &str| {
            let title = format!("<title>{name} (");
            text.lines()
                .find(|l| l.contains(&title))
                .expect(name)
                .to_owned()
        };
        assert!(line("all").contains("8 samples, 100.00%"));
        assert!(line("main").contains("data-x=\"0.5000000\" data-w=\"0.5000000\""));
        assert!(line("f&lt;int&gt;").contains("3 samples, 37.50%"));
        assert!(line("ls").contains("data-x=\"0.0000000\""));
        assert!(text.contains("a &amp; b"));
        assert!(text.contains("prefers-color-scheme: dark") && !text.contains("height=\"100%\""));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }

    #[test]
    fn r1_10_what_cannot_be_seen_is_left_out() {
        let stacks = BTreeMap::from([("a;b".to_owned(), 1_000_000), ("a;c;d".to_owned(), 1)]);
        let text = render_svg(&stacks, "").expect("a picture");
        assert!(text.contains("<title>b (") && !text.contains("<title>c ("));
    }
}
