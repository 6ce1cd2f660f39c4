// SPDX-License-Identifier: GPL-2.0

//! Draws a line of bars, with a bar for each CPU or for each group of CPUs.

const BAR_CHARACTERS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The width of each bar in cells of the terminal, and the number of CPUs that share a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBarLayout {
    cells_per_bar: usize,
    cpus_per_bar: usize,
}

/// Returns the width at which the bars of `cpus` CPUs fit into a line of `cells` cells.
pub fn fit_cpu_bars(cpus: usize, cells: usize) -> CpuBarLayout {
    if cpus == 0 || cells == 0 {
        return CpuBarLayout {
            cells_per_bar: 0,
            cpus_per_bar: 1,
        };
    }
    if cpus > cells {
        let cpus_per_bar = cpus.div_ceil(cells);
        return CpuBarLayout {
            cells_per_bar: 1,
            cpus_per_bar,
        };
    }
    // Bars that are wider than one cell have a gap of one cell between them.
    let cells_per_cpu = cells / cpus;
    CpuBarLayout {
        cells_per_bar: if cells_per_cpu >= 3 {
            (cells_per_cpu - 1).min(4)
        } else {
            1
        },
        cpus_per_bar: 1,
    }
}

/// Draws a bar for each value, relative to the largest value. An offline CPU with value 0 is drawn
/// as `x`.
pub fn draw_cpu_bars(values: &[i64], online: &[bool], width: CpuBarLayout) -> String {
    let mut text = String::new();
    if width.cells_per_bar == 0 {
        return text;
    }
    let max = values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
    for (n, group) in values.chunks(width.cpus_per_bar).enumerate() {
        if n > 0 && width.cells_per_bar > 1 {
            text.push(' ');
        }
        let value = group.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
        let from = n * width.cpus_per_bar;
        let is_offline = (from..from + group.len()).all(|cpu| online.get(cpu) == Some(&false));
        let cell = match value {
            0 if is_offline => 'x',
            0 => '·',
            value => {
                let eighth = (value as f64 / max as f64 * 8.0).ceil() as usize;
                BAR_CHARACTERS[eighth.clamp(1, 8) - 1]
            }
        };
        text.extend(std::iter::repeat_n(cell, width.cells_per_bar));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_bars_share_cells_when_there_are_many_cpus() {
        let on = [true; 4];
        for (cells, bars) in [(4, "·▁▄█"), (12, "·· ▁▁ ▄▄ ██"), (2, "▁█")]
        {
            let text = draw_cpu_bars(&[0, 1, 4, 8], &on, fit_cpu_bars(4, cells));
            assert_eq!(text, bars);
        }
        let offline = draw_cpu_bars(&[0, 5], &[false, false], fit_cpu_bars(2, 2));
        assert_eq!(offline, "x█");
        assert_eq!(draw_cpu_bars(&[], &[], fit_cpu_bars(0, 9)), "");
        assert_eq!(draw_cpu_bars(&[i64::MIN, 3], &on, fit_cpu_bars(2, 2)), "█▁");
        for cpus in 1..300 {
            for cells in 1..100 {
                let fit = fit_cpu_bars(cpus, cells);
                let text = draw_cpu_bars(&vec![1; cpus], &vec![true; cpus], fit);
                assert!(text.chars().count() <= cells, "{cpus} in {cells}");
            }
        }
    }
}
