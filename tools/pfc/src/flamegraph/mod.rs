// SPDX-License-Identifier: GPL-2.0

//! `pfc flamegraph`: draws call stacks as an SVG picture for a browser. A click on a function
//! widens it to the width of the picture.
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
use crate::profile::folded::{self, FoldedStacks};
use crate::profile::Profile;

/// Width of the picture in pixels.
const PICTURE_WIDTH_PIXELS: f64 = 1200.0;
/// Height of a row of functions in pixels.
const ROW_HEIGHT_PIXELS: f64 = 17.0;
/// Margin around the rows of functions in pixels.
const MARGIN_PIXELS: f64 = 10.0;
/// Height of the heading of the picture in pixels.
const HEADING_HEIGHT_PIXELS: f64 = 48.0;
/// Average width of a letter in pixels.
const LETTER_WIDTH_PIXELS: f64 = 7.0;
/// Minimum width of a function in pixels; narrower functions are left out.
const MIN_FUNCTION_WIDTH_PIXELS: f64 = 0.1;

/// The style sheet for the text of a picture. The picture has no background of its own, so the text
/// is dark on a light page and light on a dark page.
pub const SVG_TEXT_COLOUR_RULES: &str = ":root{color-scheme:light dark}text{fill:#1f2328}\
     @media (prefers-color-scheme: dark){text{fill:#e6edf3}}";

/// The JavaScript code in the picture, which the browser runs.
const ZOOM_SCRIPT: &str = include_str!("zoom.js");

/// A node of the call tree: a function that was called by a certain sequence of functions.
#[derive(Default)]
struct CallTreeNode<'a> {
    nr_samples: u64,
    /// The depth of the node in the call tree: 0 for the root.
    depth: usize,
    /// The functions that this function called, as indices in [`CallTree`].
    callees: BTreeMap<&'a str, usize>,
}

/// The functions of all stacks, as a list in which each function follows its caller. The first
/// element of the list is the root. A list can be drawn without recursion, which would use a part
/// of the stack of pfc for each level of calls.
struct CallTree<'a>(Vec<CallTreeNode<'a>>);

impl<'a> CallTree<'a> {
    fn from_stacks(stacks: &'a FoldedStacks) -> Self {
        let mut all = vec![CallTreeNode::default()];
        for (stack, samples) in stacks.iter() {
            all[0].nr_samples += samples;
            let mut at = 0;
            for name in stack {
                let (new, depth) = (all.len(), all[at].depth + 1);
                at = *all[at].callees.entry(name).or_insert(new);
                if at == new {
                    all.push(CallTreeNode {
                        depth,
                        ..CallTreeNode::default()
                    });
                }
                all[at].nr_samples += samples;
            }
        }
        Self(all)
    }

    /// Returns the number of levels that have a function with at least `min_samples` samples. The
    /// returned number includes the level of the root.
    fn count_drawn_levels(&self, min_samples: u64) -> usize {
        let drawn = self.0.iter().filter(|node| node.nr_samples >= min_samples);
        1 + drawn.map(|node| node.depth).max().unwrap_or(0)
    }
}

/// The state of a picture that is being drawn.
struct FlamegraphPicture {
    svg_elements: String,
    total_samples: f64,
    height: f64,
}

impl FlamegraphPicture {
    /// Draws a function, and then the functions that it called.
    fn draw_tree(&mut self, tree: &CallTree<'_>) -> std::fmt::Result {
        // The functions that are still to be drawn: the name, the index in the tree, and the
        // distance from the left edge of the picture in samples.
        let mut left = vec![("all", 0, 0)];
        while let Some((name, at, samples_before)) = left.pop() {
            let node = &tree.0[at];
            if !self.draw_function(name, node, samples_before)? {
                continue;
            }
            let mut samples_before = samples_before;
            let first = left.len();
            for (name, callee) in &node.callees {
                left.push((*name, *callee, samples_before));
                samples_before += tree.0[*callee].nr_samples;
            }
            left[first..].reverse();
        }
        Ok(())
    }

    /// Draws a function. Returns false if the function is too narrow to be drawn.
    fn draw_function(
        &mut self,
        name: &str,
        node: &CallTreeNode<'_>,
        samples_before: u64,
    ) -> Result<bool, std::fmt::Error> {
        let (x, width) = (
            samples_before as f64 / self.total_samples,
            node.nr_samples as f64 / self.total_samples,
        );
        let pixels = width * (PICTURE_WIDTH_PIXELS - 2.0 * MARGIN_PIXELS);
        if pixels < MIN_FUNCTION_WIDTH_PIXELS {
            return Ok(false);
        }
        let left = MARGIN_PIXELS + x * (PICTURE_WIDTH_PIXELS - 2.0 * MARGIN_PIXELS);
        let top = self.height - MARGIN_PIXELS - ROW_HEIGHT_PIXELS * (node.depth + 1) as f64;
        let letters = ((pixels - 6.0) / LETTER_WIDTH_PIXELS).max(0.0) as usize;
        let shown: String = match name.chars().count() <= letters {
            true => name.to_owned(),
            false if letters < 3 => String::new(),
            false => name.chars().take(letters - 2).chain("..".chars()).collect(),
        };
        writeln!(
            self.svg_elements,
            "<g class=\"f\" data-x=\"{x:.7}\" data-w=\"{width:.7}\"><title>{} ({} samples, {:.2}%)</title>\
             <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{pixels:.1}\" height=\"{:.1}\" fill=\"{}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            escape_xml(name),
            node.nr_samples,
            width * 100.0,
            ROW_HEIGHT_PIXELS - 1.0,
            colour_of_function(name),
            left + 3.0,
            top + ROW_HEIGHT_PIXELS - 5.0,
            escape_xml(&shown),
        )?;
        Ok(true)
    }
}

/// Returns the colour of a function, which depends only on the function's name. The functions of
/// the kernel have other colours than the functions of programs.
fn colour_of_function(name: &str) -> String {
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
            // XML does not permit the characters U+FFFE and U+FFFF, not even as character
            // references.
            '\u{fffe}' => to.push_str("\\u{fffe}"),
            '\u{ffff}' => to.push_str("\\u{ffff}"),
            c => to.push(c),
        }
    }
    to
}

fn render_flamegraph_svg(stacks: &FoldedStacks, title: &str) -> Result<String, std::fmt::Error> {
    let tree = CallTree::from_stacks(stacks);
    let total = tree.0[0].nr_samples.max(1) as f64;
    let min_samples = (MIN_FUNCTION_WIDTH_PIXELS / (PICTURE_WIDTH_PIXELS - 2.0 * MARGIN_PIXELS)
        * total)
        .ceil() as u64;
    let height = HEADING_HEIGHT_PIXELS
        + ROW_HEIGHT_PIXELS * tree.count_drawn_levels(min_samples) as f64
        + MARGIN_PIXELS;
    let mut picture = FlamegraphPicture {
        svg_elements: String::new(),
        total_samples: total,
        height,
    };
    picture.draw_tree(&tree)?;
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{PICTURE_WIDTH_PIXELS}\" \
         height=\"{height}\" viewBox=\"0 0 {PICTURE_WIDTH_PIXELS} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <style>{SVG_TEXT_COLOUR_RULES}.f{{cursor:pointer}}.f text{{fill:black}}\
         .f:hover rect{{stroke:gray}}\
         .found rect{{fill:rgb(230,0,230)}}text{{pointer-events:none}}</style>\n\
         <text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n\
         <text id=\"about\" x=\"{MARGIN_PIXELS}\" y=\"38\">click: zoom; Ctrl-F: find</text>\n\
         {}<script><![CDATA[\n{ZOOM_SCRIPT}]]></script>\n</svg>\n",
        PICTURE_WIDTH_PIXELS / 2.0,
        escape_xml(title),
        picture.svg_elements,
    ))
}

pub fn run(args: &FlamegraphArgs, out: &mut Out) -> Result<(), Failure> {
    let input = args.input.file.as_deref().map(Path::new);
    let profile = Profile::load(input, !args.input.no_inline)?
        .select_single_event(args.input.event.as_deref())?;
    if !profile.has_stacks {
        message!("pfc: the file has no call stacks; record them with pfc record -g");
    }
    write_flamegraph(&profile, args, out)
}

/// Draws the samples of a profile.
pub fn write_flamegraph(
    profile: &Profile,
    args: &FlamegraphArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let event = profile.samples.first().map_or(0, |s| s.event);
    let title = args.title.clone().unwrap_or_else(|| {
        format!(
            "{}, {} samples",
            profile.events[event],
            profile.samples.len()
        )
    });
    let text = render_flamegraph_svg(&folded::fold_stacks(profile), &title)
        .map_err(|_| Failure::Refused("cannot draw the flame graph".to_owned()))?;
    write!(out, "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_10_function_width_is_its_sample_share() {
        let stacks = FoldedStacks::from_folded_lines(&[
            ("sh;main;f<int>", 3),
            ("sh;main", 1),
            ("ls;x_[k]", 4),
        ]);
        let text = render_flamegraph_svg(&stacks, "a & b\u{ffff}").expect("a picture");
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
        assert!(text.contains("a &amp; b\\u{ffff}"));
        assert!(text.contains("prefers-color-scheme: dark") && !text.contains("height=\"100%\""));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }

    #[test]
    fn r1_10_too_narrow_functions_are_left_out() {
        let stacks = FoldedStacks::from_folded_lines(&[("a;b", 1_000_000), ("a;c;d", 1)]);
        let text = render_flamegraph_svg(&stacks, "").expect("a picture");
        assert!(text.contains("<title>b (") && !text.contains("<title>c ("));
    }
}
