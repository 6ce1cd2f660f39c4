// SPDX-License-Identifier: GPL-2.0

//! Tests of the random number generator. Its numbers must equal a list of known numbers, must
//! follow the formula x * 16807 mod (2^31 - 1), and must be evenly distributed.
#![cfg(not(loom))]

use perfmon_rules::period::RandomGenerator;
use proptest::prelude::*;

const GENERATOR_MODULUS: u64 = (1 << 31) - 1;

#[test]
fn r1_11_10000th_random_number_is_1043618065() {
    let mut random = RandomGenerator::new(1);
    assert_eq!(random.step(), 16807);
    for _ in 2..10_000 {
        random.step();
    }
    assert_eq!(random.step(), 1_043_618_065);
}

#[test]
fn r1_11_seeds_are_reduced_to_valid_states() {
    let mut seeds = [
        0,
        GENERATOR_MODULUS as u32,
        2 * GENERATOR_MODULUS as u32,
        1,
        GENERATOR_MODULUS as u32 + 1,
    ]
    .map(RandomGenerator::new);
    for random in &mut seeds {
        assert_eq!(random.step(), 16807);
    }
    assert_eq!(RandomGenerator::default(), RandomGenerator::new(1));
    // The generator also works if its state is the largest possible number, GENERATOR_MODULUS - 1.
    assert_eq!(
        RandomGenerator::new(GENERATOR_MODULUS as u32 - 1).step(),
        (GENERATOR_MODULUS - 16807) as u32
    );
}

proptest! {
    #[test]
    fn r1_11_step_agrees_with_division_by_the_modulus(seed: u32) {
        let mut random = RandomGenerator::new(seed);
        let mut x = match u64::from(seed) % GENERATOR_MODULUS { 0 => 1, x => x };
        let mut by_division = || {
            x = x * 16807 % GENERATOR_MODULUS;
            x
        };
        for _ in 0..200 {
            prop_assert_eq!(u64::from(random.step()), by_division());
        }
        for _ in 0..200 {
            let (low, high) = (by_division(), by_division());
            prop_assert_eq!(random.next_62_bits(), low | (high << 31));
        }
    }

    /// Checks random numbers to which a mask is applied: the random part of a sampling period is
    /// such a number. Within statistical limits, each bit of the mask must be set in half of the
    /// masked random numbers, and their mean must be half of the mask's value. Each eighth of the
    /// range must contain an eighth of the numbers. The probability that this test fails by chance
    /// is below 1e-9.
    #[test]
    fn r1_11_masked_random_numbers_are_uniform(seed: u32, bits in 4u32..63, shift in 0u32..40) {
        const SAMPLES: u32 = 20_000;
        let bits = bits.min(62 - shift);
        let mask = ((1u64 << bits) - 1) << shift;
        let mut random = RandomGenerator::new(seed);
        let (mut sum, mut ones, mut eighths) = (0.0, [0u32; 64], [0u32; 8]);
        for _ in 0..SAMPLES {
            let n = random.next_62_bits() & mask;
            sum += n as f64 / mask as f64;
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += ((n >> bit) & 1) as u32;
            }
            eighths[(n >> (shift + bits) .saturating_sub(3)) as usize & 7] += 1;
        }
        let deviation = |count: u32, p: f64| {
            let n = f64::from(SAMPLES);
            (f64::from(count) - n * p) / (n * p * (1.0 - p)).sqrt()
        };
        let mean = (sum / f64::from(SAMPLES) - 0.5) / (1.0 / 12.0 / f64::from(SAMPLES)).sqrt();
        prop_assert!(mean.abs() < 8.0, "the mean is {mean} deviations off");
        for bit in shift..shift + bits {
            let deviation = deviation(ones[bit as usize], 0.5);
            prop_assert!(deviation.abs() < 8.0, "bit {bit}: {deviation}");
        }
        for count in eighths {
            prop_assert!(deviation(count, 0.125).abs() < 8.0, "{eighths:?}");
        }
    }
}
