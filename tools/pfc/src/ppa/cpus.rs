// SPDX-License-Identifier: GPL-2.0

//! Prints tables of the accounting values of CPUs.

use ppa::{ticks_to_micros, Cpu, CpuValue};

use crate::error::Failure;
use crate::output::Out;
use crate::ppa::tasks::format_scaled_micros;
use crate::report::percent_of_total;
use crate::table::Table;

/// The softirqs that have columns in the table, each with the column's title, its time and its
/// count.
const SOFTIRQ_COLUMNS: [(&str, CpuValue, CpuValue); 5] = [
    ("HI", CpuValue::Hi, CpuValue::HiCount),
    ("TASKLET", CpuValue::Tasklet, CpuValue::TaskletCount),
    ("TIMER", CpuValue::Timer, CpuValue::TimerCount),
    ("NET-TX", CpuValue::NetTx, CpuValue::NetTxCount),
    ("NET-RX", CpuValue::NetRx, CpuValue::NetRxCount),
];

/// Prints the sums of the values over all CPUs. If `per_cpu` is true, also prints the values of
/// every CPU and a table of softirqs.
pub fn print_cpu_table(
    cpus: &[Cpu],
    khz: u32,
    per_cpu: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut rows = vec![("all".to_owned(), Cpu::sum(cpus))];
    if per_cpu {
        rows.extend(cpus.iter().enumerate().map(|(n, c)| (n.to_string(), *c)));
    }
    let mut table = Table::new().with_columns(
        ">CPU|>USER ms|>|>SYSTEM ms|>|>IRQ ms|>|>IDLE ms|>|>SOFTIRQ ms|>CALLS|>IRQS|>SOFTIRQS",
    );
    for (name, cpu) in &rows {
        table.add_row(format_cpu_row(name, cpu, khz), None);
    }
    table.print(out)?;
    if !per_cpu {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new().with_columns(">CPU");
    for (title, ..) in SOFTIRQ_COLUMNS {
        table = table.with_columns(&format!(">{title}|>"));
    }
    for (name, cpu) in &rows {
        let mut cells = vec![name.clone()];
        for (_, time, count) in SOFTIRQ_COLUMNS {
            cells.push(cpu.get(count).to_string());
            cells.push(format_scaled_micros(ticks_to_micros(cpu.get(time), khz)));
        }
        table.add_row(cells, None);
    }
    table.print(out)
}

fn format_cpu_row(name: &str, cpu: &Cpu, khz: u32) -> Vec<String> {
    let ms = |value: CpuValue| format!("{:.3}", ticks_to_micros(cpu.get(value), khz) / 1000.0);
    let mut cells = vec![name.to_owned()];
    for value in [
        CpuValue::User,
        CpuValue::System,
        CpuValue::Interrupts,
        CpuValue::Idle,
    ] {
        let share = percent_of_total(cpu.get(value), cpu.total_ticks() as f64);
        cells.extend([ms(value), format!("{share:.2}%")]);
    }
    cells.push(ms(CpuValue::Softirq));
    for value in [
        CpuValue::Syscalls,
        CpuValue::InterruptCount,
        CpuValue::SoftirqCount,
    ] {
        cells.push(cpu.get(value).to_string());
    }
    cells
}

/// Formats one line with percentages of the time of all CPUs together: time in user mode, in system
/// calls, in interrupts, and idle time.
pub fn format_cpu_summary(cpus: &[Cpu]) -> String {
    let sum = Cpu::sum(cpus);
    let share = |value: CpuValue| percent_of_total(sum.get(value), sum.total_ticks() as f64);
    format!(
        "{:.1}% user, {:.1}% system, {:.1}% interrupts, {:.1}% idle",
        share(CpuValue::User),
        share(CpuValue::System),
        share(CpuValue::Interrupts),
        share(CpuValue::Idle),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_cpu() -> Cpu {
        let mut cpu = Cpu::default();
        cpu.values[..8].copy_from_slice(&[1000, 500, 500, 8000, 7, 9, 100, 3]);
        cpu
    }

    #[test]
    fn r4_9_cpu_row_has_ms_and_percent() {
        assert_eq!(
            format_cpu_row("0", &make_cpu(), 1000),
            [
                "0", "1.000", "10.00%", "0.500", "5.00%", "0.500", "5.00%", "8.000", "80.00%",
                "0.100", "7", "9", "3"
            ]
        );
        let nothing = format_cpu_row("0", &Cpu::default(), 0);
        assert_eq!(nothing[1..3], ["0.000", "0.00%"]);
    }

    #[test]
    fn r4_9_summary_adds_up_all_cpus() {
        let idle = Cpu {
            values: std::array::from_fn(|n| if n == 3 { 10_000 } else { 0 }),
        };
        assert_eq!(
            format_cpu_summary(&[make_cpu(), idle]),
            "5.0% user, 2.5% system, 2.5% interrupts, 90.0% idle"
        );
    }
}
