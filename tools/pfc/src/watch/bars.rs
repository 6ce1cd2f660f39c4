// SPDX-License-Identifier: GPL-2.0

//! A line of bars, one for each CPU.

const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The number of cells of each bar, and the number of CPUs that share a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    cells: usize,
    share: usize,
}

/// Returns the width of bars for this number of CPUs in this number of cells.
pub fn bars_width(cpus: usize, cells: usize) -> Width {
    if cpus == 0 || cells == 0 {
        return Width { cells: 0, share: 1 };
    }
    if cpus > cells {
        let share = cpus.div_ceil(cells);
        return Width { cells: 1, share };
    }
    // Bars that are wider than one cell have a gap of one cell between them.
    let each = cells / cpus;
    Width {
        cells: if each >= 3 { (each - 1).min(4) } else { 1 },
        share: 1,
    }
}

/// Draws the bars, relative to the largest value. An offline CPU with value 0 is drawn as `x`.
pub fn bars(values: &[i64], online: &[bool], width: Width) -> String {
    let mut text = String::new();
    if width.cells == 0 {
        return text;
    }
    let most = values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
    for (n, part) in values.chunks(width.share).enumerate() {
        if n > 0 && width.cells > 1 {
            text.push(' ');
        }
        let value = part.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
        let from = n * width.share;
        let off = (from..from + part.len()).all(|cpu| online.get(cpu) == Some(&false));
        let cell = match value {
            0 if off => 'x',
            0 => '·',
            value => {
                let eighth = (value as f64 / most as f64 * 8.0).ceil() as usize;
                EIGHTHS[eighth.clamp(1, 8) - 1]
            }
        };
        text.extend(std::iter::repeat_n(cell, width.cells));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_bars_share_cells_when_there_are_many_cpus() {
        let on = [true; 4];
        assert_eq!(bars(&[0, 1, 4, 8], &on, bars_width(4, 4)), "·▁▄█");
        assert_eq!(bars(&[0, 1, 4, 8], &on, bars_width(4, 12)), "·· ▁▁ ▄▄ ██");
        assert_eq!(bars(&[0, 1, 4, 8], &on, bars_width(4, 2)), "▁█");
        assert_eq!(bars(&[0, 5], &[false, false], bars_width(2, 2)), "x█");
        assert_eq!(bars(&[], &[], bars_width(0, 9)), "");
        assert_eq!(bars(&[i64::MIN, 3], &on, bars_width(2, 2)), "█▁");
        for cpus in 1..300 {
            for cells in 1..100 {
                let text = bars(&vec![1; cpus], &vec![true; cpus], bars_width(cpus, cells));
                assert!(text.chars().count() <= cells, "{cpus} in {cells}");
            }
        }
    }
}
