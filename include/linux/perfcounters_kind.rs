// SPDX-License-Identifier: GPL-2.0

//! The kinds and units of instances, for drivers, the registry of instances and the readers of
//! counter pages. For C code, `include/uapi/linux/perfcounters.h` defines the same kinds and units.

/// The kind of an instance, which determines how its values are combined; `enum perfcounters_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A value that only grows; the values of all CPUs are added.
    Counter = 0,
    /// A value that grows and shrinks; the values of all CPUs are added.
    Gauge = 1,
    /// The largest value so far; the values of all CPUs are combined by their maximum.
    Peak = 2,
    /// Time spent; the times of all CPUs are added.
    Time = 3,
    /// A histogram with log2 buckets; for each bucket the counts of all CPUs are added.
    Histogram = 4,
}

/// The unit of an instance's values; `enum perfcounters_unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Unit {
    /// A number without a unit.
    None = 0,
    /// Events.
    Events = 1,
    /// Bytes.
    Bytes = 2,
    /// Seconds, scaled by the exponent of the instance.
    Seconds = 3,
    /// Clock cycles.
    Cycles = 4,
    /// Disk sectors of 512 bytes.
    Sectors = 5,
    /// Network packets.
    Packets = 6,
    /// Memory pages.
    Pages = 7,
}
