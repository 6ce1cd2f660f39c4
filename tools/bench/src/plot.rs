// SPDX-License-Identifier: GPL-2.0

//! Draws the cost to read a value against the number of CPUs, for each way, as an SVG file.

use std::path::Path;

use plotters::prelude::*;

use crate::bars::READ;
use crate::results::Results;

const WAYS: &[(&str, &str, RGBColor)] = &[
    (
        "snapshot",
        "counter pages, checked snapshot",
        RGBColor(0, 90, 200),
    ),
    (
        "bpf_batch",
        "BPF per-CPU array, batch",
        RGBColor(200, 120, 0),
    ),
    (
        "bpf_lookup",
        "BPF per-CPU array, one lookup",
        RGBColor(230, 170, 60),
    ),
    (
        "perf_read_16",
        "perf_event, group of 16, own CPU",
        RGBColor(120, 60, 160),
    ),
    (
        "proc_softirqs_parsed",
        "/proc/softirqs, parsed",
        RGBColor(0, 130, 90),
    ),
    (
        "proc_interrupts_parsed",
        "/proc/interrupts, parsed",
        RGBColor(90, 170, 60),
    ),
    (
        "proc_stat_parsed",
        "/proc/stat, parsed",
        RGBColor(180, 30, 30),
    ),
    (
        "proc_vmstat_parsed",
        "/proc/vmstat, parsed",
        RGBColor(120, 120, 120),
    ),
];

/// Draws the file. Both axes are logarithmic.
pub fn draw(results: &Results, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let cpus = results.cpus();
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else {
        return Ok(());
    };
    let ticks: Vec<f64> = cpus.iter().map(|n| f64::from(*n)).collect();
    let (left, right) = (f64::from(*first) * 0.9, f64::from(*last) * 1.1);
    let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("What one value costs to read", ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (left..right).log_scale().with_key_points(ticks),
            (1.0..10_000f64).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("CPUs of the guest")
        .y_desc("guest instructions per value")
        .x_label_formatter(&|n| format!("{n:.0}"))
        .y_label_formatter(&|n| format!("{n:.0}"))
        .light_line_style(BLACK.mix(0.06))
        .draw()?;
    chart
        .draw_series(LineSeries::new(
            [(left, READ), (right, READ)],
            BLACK.stroke_width(2),
        ))?
        .label(format!("bar: {READ} instructions"))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.stroke_width(2)));
    for (operation, label, colour) in WAYS {
        let points: Vec<(f64, f64)> = cpus
            .iter()
            .filter_map(|n| Some((f64::from(*n), results.count(operation, *n)?.per_value())))
            .collect();
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(*label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}
