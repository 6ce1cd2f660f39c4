// SPDX-License-Identifier: GPL-2.0

//! The arguments of the commands that show recorded samples.

use std::path::PathBuf;

use clap::Args;

/// A file of samples.
#[derive(Debug, Args)]
pub struct SampleInputArgs {
    /// Input file, or - for standard input [pfc.data]
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Show only samples of this event
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Show no inlined functions in call stacks
    #[arg(long)]
    pub no_inline: bool,
}

/// Keys by which a report groups samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SortKey {
    Comm,
    Dso,
    Sym,
    Pid,
    Tid,
    Cpu,
}

/// Arguments of `pfc report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub input: SampleInputArgs,
    /// Print plain text (the default; for compatibility with perf)
    #[arg(long)]
    pub stdio: bool,
    /// Show callers below each line
    #[arg(short = 'g', long = "call-graph")]
    pub stacks: bool,
    /// Keys by which samples are grouped
    #[arg(
        short,
        long,
        value_name = "KEY,...",
        value_delimiter = ',',
        default_value = "comm,dso,sym"
    )]
    pub sort: Vec<SortKey>,
    /// Omit lines below PERCENT percent
    #[arg(
        short = 'F',
        long = "percent-limit",
        value_name = "PERCENT",
        default_value_t = 0.0
    )]
    pub limit: f64,
    /// Print JSON
    #[arg(long, group = "format")]
    pub json: bool,
    /// Print JSON for the Firefox Profiler, https://profiler.firefox.com
    #[arg(long, group = "format")]
    pub firefox: bool,
    /// Print protocol buffers for pprof, uncompressed
    #[arg(long, group = "format")]
    pub pprof: bool,
}

impl ReportArgs {
    /// Returns the minimum share of a caller that `pfc report` prints. The share is a percentage of
    /// the event count of the line to which the caller belongs. The returned share is at least 0.5
    /// percent, as in perf report.
    pub fn min_caller_percent(&self) -> f64 {
        self.limit.max(0.5)
    }
}

/// Arguments of `pfc script`.
#[derive(Debug, Args)]
pub struct ScriptArgs {
    #[command(flatten)]
    pub input: SampleInputArgs,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Print each stack once, with its number of samples
    #[arg(long, conflicts_with = "json")]
    pub folded: bool,
}

/// Arguments of `pfc flamegraph`.
#[derive(Debug, Args)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub input: SampleInputArgs,
    /// Title of the graph
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}
