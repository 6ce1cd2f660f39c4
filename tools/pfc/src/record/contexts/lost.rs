// SPDX-License-Identifier: GPL-2.0

//! Counts the lost records of a ring, so that the output has LOST records for all of them. A ring
//! has a LOST record only if another record follows the loss; the ring's own count is complete.

/// The lost records of one ring.
#[derive(Debug, Default)]
pub struct LostRecords {
    /// The ring's count of lost records when the ring was last read.
    total: u64,
    /// The sum of the LOST records that were read from the ring.
    in_ring: u64,
    /// The sum of the LOST records that were written to the output.
    in_output: u64,
}

impl LostRecords {
    /// Adds a LOST record of the ring. Returns the number of lost records for a LOST record in the
    /// output; 0 if the output already has them.
    pub fn add_record(&mut self, lost: u64) -> u64 {
        self.in_ring = self.in_ring.saturating_add(lost);
        self.write_until(self.in_ring)
    }

    /// Sets the ring's count of lost records. Returns the number of records that were lost since
    /// the last call.
    pub fn set_total(&mut self, total: u64) -> u64 {
        let before = std::mem::replace(&mut self.total, total);
        total.saturating_sub(before)
    }

    /// Returns the number of lost records that are in no LOST record of the output. The caller
    /// writes a LOST record for them.
    pub fn take_rest(&mut self) -> u64 {
        self.write_until(self.total)
    }

    fn write_until(&mut self, lost: u64) -> u64 {
        let rest = lost.saturating_sub(self.in_output);
        self.in_output += rest;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_15_each_lost_record_is_in_the_output_once() {
        let mut lost = LostRecords::default();
        assert_eq!(lost.add_record(3), 3);
        assert_eq!(lost.set_total(5), 5);
        // The output ends before the ring has a LOST record for the last two lost records.
        assert_eq!(lost.take_rest(), 2);
        assert_eq!(lost.take_rest(), 0);
        // The LOST record also counts four records that were lost later.
        assert_eq!(lost.add_record(6), 4);
        assert_eq!(lost.set_total(9), 4);
        assert_eq!(lost.take_rest(), 0);
        assert_eq!(lost.add_record(u64::MAX), u64::MAX - 9);
    }
}
