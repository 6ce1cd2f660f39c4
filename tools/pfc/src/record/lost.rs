// SPDX-License-Identifier: GPL-2.0

//! Counts the lost records of a ring, so that the output has LOST records for all of them. A ring
//! gets a LOST record only when another record is written after the loss. The kernel also has a
//! count of lost records, which is complete.

/// Counts of the lost records of one ring, or of several rings together.
#[derive(Debug, Default)]
pub struct LostRecordCounts {
    /// The kernel's count of lost records when the count was last read.
    kernel_lost_count: u64,
    /// The sum of the LOST records that were read from the ring or rings.
    reported_by_ring: u64,
    /// The sum of the LOST records that were written to the output.
    written_to_output: u64,
}

impl LostRecordCounts {
    /// Counts a LOST record that was read from the ring. Returns the number of lost records that
    /// the caller writes to the output as a LOST record. The number is 0 if the output already
    /// counts these records as lost.
    pub fn add_record_and_take_unwritten(&mut self, lost: u64) -> u64 {
        self.reported_by_ring = self.reported_by_ring.saturating_add(lost);
        self.take_unwritten_up_to(self.reported_by_ring)
    }

    /// Sets the kernel's count of lost records to `total`. Returns the number of records that were
    /// lost since the last call.
    pub fn advance_kernel_count_to(&mut self, total: u64) -> u64 {
        let before = std::mem::replace(&mut self.kernel_lost_count, total);
        total.saturating_sub(before)
    }

    /// Returns the number of lost records that no LOST record in the output counts yet. The caller
    /// writes a LOST record with this number.
    pub fn take_unwritten_count(&mut self) -> u64 {
        self.take_unwritten_up_to(self.kernel_lost_count)
    }

    /// Returns the number of lost records that the LOST records in the output count.
    pub fn lost_count_in_output(&self) -> u64 {
        self.written_to_output
    }

    fn take_unwritten_up_to(&mut self, lost: u64) -> u64 {
        let rest = lost.saturating_sub(self.written_to_output);
        self.written_to_output += rest;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_15_each_lost_record_is_in_the_output_once() {
        let mut lost = LostRecordCounts::default();
        assert_eq!(lost.add_record_and_take_unwritten(3), 3);
        assert_eq!(lost.advance_kernel_count_to(5), 5);
        // The output ends before the ring has a LOST record for the last two lost records.
        assert_eq!(lost.take_unwritten_count(), 2);
        assert_eq!(lost.take_unwritten_count(), 0);
        // The LOST record also counts four records that were lost later.
        assert_eq!(lost.add_record_and_take_unwritten(6), 4);
        assert_eq!(lost.advance_kernel_count_to(9), 4);
        assert_eq!(lost.take_unwritten_count(), 0);
        assert_eq!(lost.add_record_and_take_unwritten(u64::MAX), u64::MAX - 9);
        assert_eq!(lost.lost_count_in_output(), u64::MAX);
    }
}
