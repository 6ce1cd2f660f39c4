// SPDX-License-Identifier: GPL-2.0

//! Draws the recording of a task over time as an SVG picture.

use std::fmt::Write;

use crate::flamegraph::{escape_xml, SVG_TEXT_COLOUR_RULES};
use crate::ppa::timeline::{Timeline, TimelineInterval, TIME_PART_NAMES};

/// Size and margins of the picture of a recording, in pixels.
const PICTURE_WIDTH_PX: f64 = 1200.0;
const PICTURE_HEIGHT_PX: f64 = 340.0;
const LEFT_MARGIN_PX: f64 = 60.0;
const RIGHT_MARGIN_PX: f64 = 20.0;
const TOP_MARGIN_PX: f64 = 64.0;
const BOTTOM_MARGIN_PX: f64 = 50.0;
/// Minimum width of an interval of a recording in pixels; narrower intervals are merged.
const MIN_INTERVAL_WIDTH_PX: f64 = 1.0;
/// Colours of the parts of a task's time, in the order of [`TIME_PART_NAMES`]. Colour-blind readers
/// can distinguish these colours.
const TIME_PART_COLOURS: [&str; 5] = ["#4477aa", "#ee7733", "#aa3377", "#ddcc77", "#e4e4e4"];

/// CSS rules for the colour of the axes. On a page with a dark colour scheme, the CSS rules make
/// the axes light and the colour of blocked time dark.
const AXIS_CSS_RULES: &str = "line{stroke:#1f2328}\
     @media (prefers-color-scheme: dark){line{stroke:#e6edf3}rect[fill='#e4e4e4']{fill:#3d444d}}";

/// The scale of the picture, which converts ticks and percentages to pixels.
struct PictureScale {
    /// Time that the picture covers from the left to the right margin, in ticks of the accounting
    /// clock.
    span_ticks: f64,
}

impl PictureScale {
    fn x_of_ticks(&self, ticks: u64) -> f64 {
        LEFT_MARGIN_PX
            + ticks as f64 / self.span_ticks * (PICTURE_WIDTH_PX - LEFT_MARGIN_PX - RIGHT_MARGIN_PX)
    }

    fn y_of_percent(share: f64) -> f64 {
        PICTURE_HEIGHT_PX
            - BOTTOM_MARGIN_PX
            - share / 100.0 * (PICTURE_HEIGHT_PX - BOTTOM_MARGIN_PX - TOP_MARGIN_PX)
    }
}

/// Merges each interval that is narrower than [`MIN_INTERVAL_WIDTH_PX`] with the intervals that
/// follow it, until the result is wide enough.
fn merge_narrow_intervals(timeline: &Timeline, scale: &PictureScale) -> Vec<TimelineInterval> {
    let mut merged: Vec<TimelineInterval> = Vec::new();
    for interval in &timeline.intervals {
        match merged.last_mut() {
            Some(last)
                if scale.x_of_ticks(last.span_ticks()) - LEFT_MARGIN_PX < MIN_INTERVAL_WIDTH_PX =>
            {
                *last = last.merge(interval)
            }
            _ => merged.push(*interval),
        }
    }
    merged
}

/// Returns the distance between the marks on an axis, and the number of decimals of their labels.
/// The distance is 1, 2 or 5 times a power of ten, and large enough that the axis has at most ten
/// steps.
fn axis_step_and_decimals(span: f64) -> (f64, usize) {
    let min_step = (span / 10.0).max(1e-9);
    let power = min_step.log10().floor();
    let ten = 10f64.powf(power);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * ten);
    // A step slightly below `min_step` is accepted, because of rounding errors.
    let step = steps.into_iter().find(|s| *s >= min_step * 0.999_999);
    let step = step.unwrap_or(min_step);
    let digits = (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0);
    (step, digits as usize)
}

pub fn render_timeline_svg(timeline: &Timeline) -> String {
    let total = timeline.sum_of_intervals();
    let scale = PictureScale {
        span_ticks: (total.span_ticks() as f64).max(1.0),
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = draw_legend(&mut text, &total);
    let _ = draw_axes(&mut text, timeline, &total);
    for interval in merge_narrow_intervals(timeline, &scale) {
        let _ = draw_interval(&mut text, timeline, &scale, &interval);
    }
    let title = escape_xml(&format!(
        "{} {}, {:.3} s",
        timeline.pid,
        timeline.task_name,
        timeline.ticks_to_seconds(total.span_ticks())
    ));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" \
         width=\"{PICTURE_WIDTH_PX}\" height=\"{PICTURE_HEIGHT_PX}\" \
         viewBox=\"0 0 {PICTURE_WIDTH_PX} {PICTURE_HEIGHT_PX}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <style>{SVG_TEXT_COLOUR_RULES}{AXIS_CSS_RULES}</style>\n\
         <text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-size=\"16\">{title}</text>\n\
         {text}</svg>\n",
        PICTURE_WIDTH_PX / 2.0,
    )
}

fn draw_legend(text: &mut String, total: &TimelineInterval) -> std::fmt::Result {
    for (n, (part, colour)) in TIME_PART_NAMES.iter().zip(TIME_PART_COLOURS).enumerate() {
        let x = LEFT_MARGIN_PX + 200.0 * n as f64;
        writeln!(
            text,
            "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"48\">{part} {:.2}%</text>",
            x + 20.0,
            total.percent_of_part(n),
        )?;
    }
    Ok(())
}

fn draw_axes(text: &mut String, timeline: &Timeline, total: &TimelineInterval) -> std::fmt::Result {
    for share in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let y = PictureScale::y_of_percent(share);
        writeln!(
            text,
            "<line x1=\"{}\" y1=\"{y:.1}\" x2=\"{LEFT_MARGIN_PX}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{share}%</text>",
            LEFT_MARGIN_PX - 5.0,
            LEFT_MARGIN_PX - 8.0,
            y + 4.0,
        )?;
    }
    let span = timeline.ticks_to_seconds(total.span_ticks());
    let (step, digits) = axis_step_and_decimals(span);
    let base = PICTURE_HEIGHT_PX - BOTTOM_MARGIN_PX;
    for n in 0..=10 {
        let at = f64::from(n) * step;
        if at > span {
            break;
        }
        let x = LEFT_MARGIN_PX
            + at / span.max(f64::MIN_POSITIVE)
                * (PICTURE_WIDTH_PX - LEFT_MARGIN_PX - RIGHT_MARGIN_PX);
        writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{base}\" x2=\"{x:.1}\" y2=\"{}\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.digits$}</text>",
            base + 5.0,
            base + 18.0,
        )?;
    }
    writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">seconds</text>",
        PICTURE_WIDTH_PX / 2.0,
        PICTURE_HEIGHT_PX - 12.0
    )
}

fn draw_interval(
    text: &mut String,
    timeline: &Timeline,
    scale: &PictureScale,
    interval: &TimelineInterval,
) -> std::fmt::Result {
    let left = scale.x_of_ticks(interval.start_ticks);
    let width = scale.x_of_ticks(interval.span_ticks()) - LEFT_MARGIN_PX;
    let from = timeline.ticks_to_seconds(interval.start_ticks);
    let to = from + timeline.ticks_to_seconds(interval.span_ticks());
    write!(text, "<g><title>{from:.3} s to {to:.3} s")?;
    for (n, part) in TIME_PART_NAMES.iter().enumerate() {
        write!(text, ", {part} {:.2}%", interval.percent_of_part(n))?;
    }
    write!(text, "</title>")?;
    let mut below = 0.0;
    for (n, colour) in TIME_PART_COLOURS.iter().enumerate() {
        let share = interval.percent_of_part(n);
        if share > 0.0 {
            let (top, bottom) = (
                PictureScale::y_of_percent(below + share),
                PictureScale::y_of_percent(below),
            );
            write!(
                text,
                "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{:.2}\" fill=\"{colour}\"/>",
                bottom - top
            )?;
        }
        below += share;
    }
    writeln!(text, "</g>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_timeline(intervals: &[[u64; 5]]) -> Timeline {
        let mut from = 0_u64;
        let interval = |parts: &[u64; 5]| {
            let interval = TimelineInterval {
                start_ticks: from,
                part_ticks: *parts,
            };
            from = from.saturating_add(interval.span_ticks());
            interval
        };
        Timeline {
            pid: 42,
            task_name: "<cat> & co".to_owned(),
            tick_khz: 1000,
            intervals: intervals.iter().map(interval).collect(),
        }
    }

    #[test]
    fn r4_2_picture_stacks_parts_of_time() {
        let text = render_timeline_svg(&make_timeline(&[
            [250_000, 250_000, 0, 0, 500_000],
            [0, 0, 500_000, 500_000, 0],
        ]));
        for part in [
            ">42 &lt;cat&gt; &amp; co, 2.000 s</text>",
            ">user 12.50%</text>",
            "prefers-color-scheme: dark",
            "<title>1.000 s to 2.000 s, user 0.00%, system 0.00%, interrupts 50.00%",
            ">0.2</text>",
            ">2.0</text>",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("height=\"100%\""));
        let bars: Vec<&str> = text.lines().filter(|l| l.starts_with("<g>")).collect();
        assert_eq!(bars.len(), 2);
        assert_eq!(bars[0].matches("<rect").count(), 3);
        // In the first interval, user time is a quarter of the total time, so its rectangle has a
        // quarter of the bar's height.
        let user = r##"x="60.00" y="233.50" width="560.00" height="56.50" fill="#4477aa""##;
        assert!(bars[0].contains(user), "{text}");
        assert_eq!(text.matches("<g>").count(), text.matches("</g>").count());
    }

    #[test]
    fn r4_2_narrow_intervals_are_merged() {
        let many = vec![[1, 0, 0, 0, 1]; 100_000];
        let text = render_timeline_svg(&make_timeline(&many));
        let bars = text.matches("<g>").count();
        assert!((1000..=1121).contains(&bars), "{bars}");
        assert!(text.contains(">user 50.00%</text>"));
    }

    #[test]
    fn r4_2_axis_steps_are_round_numbers() {
        for (span, expected) in [
            (10.0, (1.0, 0)),
            (11.0, (2.0, 0)),
            (30.0, (5.0, 0)),
            (0.5, (0.05, 2)),
            (60.0, (10.0, 0)),
            (1.0, (0.1, 1)),
        ] {
            let (step, digits) = axis_step_and_decimals(span);
            assert!((step - expected.0).abs() < 1e-9, "{span}: {step}");
            assert_eq!(digits, expected.1, "{span}");
        }
    }

    #[test]
    fn r4_2_extreme_timelines_make_valid_pictures() {
        for parts in [[0; 5], [u64::MAX; 5], [1, 0, 0, 0, 0]] {
            let text = render_timeline_svg(&make_timeline(&[parts, parts]));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(text.ends_with("</svg>\n"));
        }
    }
}
