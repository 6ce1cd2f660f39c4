// SPDX-License-Identifier: GPL-2.0

//! Tests of the layout of `/dev/perfcounters`: the parts of the file do not overlap and do not move
//! when the file grows, and C and Rust agree on the layout.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]
#![allow(clippy::disallowed_macros, reason = "output of a test")]
#![cfg(not(loom))]

use std::collections::HashSet;

use counters_rules::abi::{Desc, Header, DESC_OFFSET, MAX_CPUS, MAX_INSTANCES};
use counters_rules::layout::{
    FilePage, Layout, DESCS_PER_PAGE, MAX_PAGES_PER_CHUNK, SLOTS_PER_PAGE,
};
use proptest::prelude::*;
use protocols::PAGE_SIZE;

fn any_layout() -> impl Strategy<Value = Layout> {
    let cpus = prop_oneof![1..=8u32, 1..=MAX_CPUS, Just(MAX_CPUS)];
    (cpus, 1..=MAX_PAGES_PER_CHUNK)
        .prop_map(|(cpus, pages)| Layout::new(cpus, pages).expect("possible numbers"))
}

proptest! {
    #[test]
    fn r0_4_each_page_has_slots_of_one_cpu(
        layout in any_layout(), cpu: u32, slot in 0..MAX_INSTANCES,
    ) {
        let cpu = cpu % layout.nr_cpus();
        let offset = layout.slot_offset(cpu, slot);
        prop_assert_eq!(offset % 8, 0);
        let Some(FilePage::Slots { chunk, cpu: of, page }) = layout.page(offset / PAGE_SIZE as u64)
        else {
            return Err(TestCaseError::fail("not a page of slots"));
        };
        prop_assert_eq!(of, cpu);
        // Layout::page() is the inverse function of Layout::slot_offset().
        let first = chunk * layout.slots_per_chunk() + page * SLOTS_PER_PAGE;
        let in_page = (offset % PAGE_SIZE as u64 / 8) as u32;
        prop_assert_eq!(first + in_page, slot);
    }

    #[test]
    fn layout_offsets_are_unique(
        layout in any_layout(), a: (u32, u32), b: (u32, u32),
    ) {
        let slot = |(cpu, slot): (u32, u32)| (cpu % layout.nr_cpus(), slot % MAX_INSTANCES);
        let (a, b) = (slot(a), slot(b));
        let same = layout.slot_offset(a.0, a.1) == layout.slot_offset(b.0, b.1);
        prop_assert_eq!(same, a == b);
    }

    #[test]
    fn r0_4_growth_appends_chunks_and_moves_none(layout in any_layout(), chunks in 1..128u32) {
        let chunks = chunks.min(layout.max_chunks());
        let slots = chunks * layout.slots_per_chunk();
        prop_assert_eq!(layout.chunks_for(slots), chunks);
        prop_assert_eq!(layout.chunks_for(slots - 1), chunks);
        // The last slot of the first `chunks` chunks ends where the next chunk begins.
        let last = layout.slot_offset(layout.nr_cpus() - 1, slots - 1);
        prop_assert_eq!(last + 8, layout.end_of_chunks(chunks));
        prop_assert_eq!(layout.slot_offset(0, slots), layout.end_of_chunks(chunks));
        prop_assert!(layout.end_of_chunks(layout.max_chunks()) <= DESC_OFFSET);
    }

    #[test]
    fn layout_page_numbers_map_to_parts_of_the_file(layout in any_layout(), pgoff: u64) {
        let last = (DESC_OFFSET / PAGE_SIZE as u64) + u64::from(MAX_INSTANCES / DESCS_PER_PAGE);
        match layout.page(pgoff) {
            Some(FilePage::Header) => prop_assert_eq!(pgoff, 0),
            Some(FilePage::Slots { chunk, cpu, page }) => {
                prop_assert!(chunk < layout.max_chunks());
                prop_assert!(cpu < layout.nr_cpus());
                prop_assert!(page < layout.pages_per_chunk());
                let end = layout.end_of_chunks(layout.max_chunks());
                prop_assert!(pgoff * (PAGE_SIZE as u64) < end);
            }
            Some(FilePage::Descs(n)) => {
                prop_assert_eq!(u64::from(n), pgoff - DESC_OFFSET / PAGE_SIZE as u64);
                prop_assert!(pgoff < last);
            }
            None => {
                let bytes = pgoff.saturating_mul(PAGE_SIZE as u64);
                prop_assert!(bytes >= layout.end_of_chunks(layout.max_chunks()));
                prop_assert!(bytes < DESC_OFFSET || pgoff >= last);
            }
        }
    }

    #[test]
    fn layout_run_of_slots_is_contiguous_for_each_cpu(
        layout in any_layout(), next in 1..MAX_INSTANCES, count in 0..100u32,
    ) {
        let Some(first) = layout.next_slot_run_within_chunk(next, count) else {
            let per_chunk = layout.slots_per_chunk();
            let no_room = next + count + per_chunk > MAX_INSTANCES;
            prop_assert!(count == 0 || count > per_chunk || no_room);
            return Ok(());
        };
        prop_assert!(first >= next);
        prop_assert!(first + count <= MAX_INSTANCES);
        let begin = layout.slot_offset(0, first);
        prop_assert_eq!(layout.slot_offset(0, first + count - 1), begin + 8 * u64::from(count - 1));
        // next_slot_run_within_chunk() may skip slots only if an instance that began in these slots
        // would cross the end of a chunk.
        if first != next {
            prop_assert!(first % layout.slots_per_chunk() == 0);
            prop_assert!(next % layout.slots_per_chunk() + count > layout.slots_per_chunk());
        }
    }
}

#[test]
fn layout_each_page_belongs_to_one_cpu_and_chunk() {
    for (cpus, pages) in [(1, 1), (3, 2), (255, 1), (2, 8)] {
        let layout = Layout::new(cpus, pages).expect("possible numbers");
        let chunks = 2.min(layout.max_chunks());
        let all = layout.end_of_chunks(chunks) / PAGE_SIZE as u64;
        let pages: HashSet<_> = (1..all)
            .map(|n| match layout.page(n) {
                Some(FilePage::Slots { chunk, cpu, page }) => (chunk, cpu, page),
                other => panic!("page {n} is {other:?}"),
            })
            .collect();
        assert_eq!(pages.len() as u64, all - 1);
    }
}

/// Computes [`Layout::slot_offset`] in numbers that cannot wrap.
fn expected_offset_of(cpus: u32, pages: u32, cpu: u32, slot: u32) -> u128 {
    let (page, cpus, pages) = (PAGE_SIZE as u128, u128::from(cpus), u128::from(pages));
    let (cpu, slot) = (u128::from(cpu), u128::from(slot));
    let chunk = slot * 8 / (pages * page);
    page + (chunk * cpus + cpu) * pages * page + slot * 8 % (pages * page)
}

#[test]
fn r0_4_offsets_do_not_wrap_with_8192_cpus() {
    for cpus in [255, 256, 4096, MAX_CPUS - 1, MAX_CPUS] {
        for pages in 1..=MAX_PAGES_PER_CHUNK {
            let layout = Layout::new(cpus, pages).expect("possible numbers");
            for cpu in [0, 1, cpus / 2, cpus - 1] {
                for slot in [0, 1, 511, 512, 4095, 4096, 32_768, MAX_INSTANCES - 1] {
                    let expected_offset = expected_offset_of(cpus, pages, cpu, slot);
                    assert_eq!(u128::from(layout.slot_offset(cpu, slot)), expected_offset);
                    let page = layout.page((expected_offset / PAGE_SIZE as u128) as u64);
                    assert!(matches!(page, Some(FilePage::Slots { cpu: of, .. }) if of == cpu));
                }
            }
            // The last slot in the file is the last slot of the last CPU in the last chunk. The end
            // of this slot is at most 1/128 of the offset of the descriptors.
            let slots = layout.max_chunks() * layout.slots_per_chunk();
            let end = expected_offset_of(cpus, pages, cpus - 1, slots - 1) + 8;
            assert_eq!(u128::from(layout.end_of_chunks(layout.max_chunks())), end);
            assert!(end <= u128::from(DESC_OFFSET) / 128);
            assert!(slots < MAX_INSTANCES + layout.slots_per_chunk());
        }
    }
    // The end of the file, after the descriptors, fits in a signed 64-bit offset.
    let descs = u64::from(MAX_INSTANCES) * size_of::<Desc>() as u64;
    assert!(DESC_OFFSET + descs < i64::MAX as u64);
}

#[test]
fn r0_3_the_bitmaps_have_a_bit_for_each_of_8192_cpus() {
    use counters_rules::abi::{ONLINE_OFFSET, POSSIBLE_OFFSET};
    // Returns the offset of the byte that holds the bit of a CPU, computed like in the kernel and
    // in the library.
    let byte = |offset: u32, cpu: u32| (offset + cpu / 64 * 8 + cpu % 64 / 8) as usize;
    let mut owner = vec![0; PAGE_SIZE];
    for at in owner.iter_mut().take(size_of::<Header>()) {
        *at = 1;
    }
    for (n, offset) in [POSSIBLE_OFFSET, ONLINE_OFFSET].into_iter().enumerate() {
        assert_eq!(offset % 8, 0);
        for cpu in 0..MAX_CPUS {
            let at = owner.get_mut(byte(offset, cpu)).expect("within the page");
            assert!(*at == 0 || *at == n + 2, "CPU {cpu} in another one's byte");
            *at = n + 2;
        }
        let nr_bytes = owner.iter().filter(|o| **o == n + 2).count();
        assert_eq!(nr_bytes, MAX_CPUS as usize / 8);
    }
}

#[test]
fn layout_invalid_sizes_are_refused() {
    assert_eq!(Layout::new(0, 1), None);
    assert_eq!(Layout::new(1, 0), None);
    assert_eq!(Layout::new(1, MAX_PAGES_PER_CHUNK + 1), None);
}

/// Compiles a program with the uapi header and compares the layout that it prints.
#[test]
fn r0_3_c_and_rust_agree_on_the_header() {
    use std::process::Command;

    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no C compiler (cc) here");
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (dir.path().join("abi.c"), dir.path().join("abi"));
    std::fs::write(&source, LAYOUT_C_PROGRAM).expect("a temporary file");
    let compiled = Command::new("cc")
        .args("-std=gnu11 -Wall -Wextra -Wpedantic -Werror -I".split(' '))
        .arg(format!("{root}/include/uapi"))
        .arg("-o")
        .args([&program, &source])
        .output()
        .expect("cc runs");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    let ok = compiled.status.success();
    assert!(ok, "the header does not compile: {errors}");
    let output = Command::new(&program).output().expect("the program runs");
    let output = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output, expected_layout_output());
}

/// A C program that prints the sizes of the structures, all offsets of fields, and the offsets of
/// some slots.
const LAYOUT_C_PROGRAM: &str = r#"
#include <linux/perfcounters.h>
#include <stddef.h>
#include <stdio.h>
#define H(f) printf("h." #f " %zu\n", offsetof(struct perfcounters_header, f))
#define D(f) printf("d." #f " %zu\n", offsetof(struct perfcounters_desc, f))
int main(void)
{
	static const unsigned int cpus[] = { 1, 2, 3, 255, 8192 };
	static const unsigned int slots[] = { 0, 1, 511, 512, 4095, 4096, 65535 };

	printf("h %zu\nd %zu\n", sizeof(struct perfcounters_header), sizeof(struct perfcounters_desc));
	H(version); H(size); H(min_size); H(nr_cpus); H(gen1); H(gen2);
	H(page_size); H(pages_per_chunk); H(nr_chunks); H(nr_slots);
	H(max_instances); H(flags); H(counters_offset); H(desc_offset);
	H(desc_size); H(possible_offset); H(online_offset); H(tsc_khz);
	H(boot_id); H(loaded_ns);
	D(instance); D(state); D(kind); D(unit); D(exponent); D(nr_slots);
	D(incarnation); D(created_ns); D(ended_ns); D(name); D(help);
	for (unsigned int pages = 1; pages <= 8; pages++)
		for (size_t c = 0; c < sizeof(cpus) / sizeof(cpus[0]); c++)
			for (size_t s = 0; s < sizeof(slots) / sizeof(slots[0]); s++) {
				struct perfcounters_header h = {
					.nr_cpus = cpus[c], .page_size = 4096,
					.pages_per_chunk = pages, .counters_offset = 4096,
				};

				for (unsigned int cpu = 0; cpu < cpus[c]; cpu += cpus[c] / 2 + 1)
					printf("%u %u %u %u %llu\n", pages, cpus[c], cpu, slots[s],
					       (unsigned long long)perfcounters_offset(&h, cpu, slots[s]));
			}
	return 0;
}
"#;

fn expected_layout_output() -> String {
    use std::fmt::Write;
    use std::mem::offset_of;

    let mut text = format!("h {}\nd {}\n", size_of::<Header>(), size_of::<Desc>());
    macro_rules! offsets {
        ($letter:literal, $type:ident, $($field:ident)*) => {$(
            let field = stringify!($field);
            writeln!(text, "{}.{field} {}", $letter, offset_of!($type, $field))
                .expect("a string takes it");
        )*};
    }
    offsets!("h", Header, version size min_size nr_cpus gen1 gen2 page_size pages_per_chunk
        nr_chunks nr_slots max_instances flags counters_offset desc_offset desc_size
        possible_offset online_offset tsc_khz boot_id loaded_ns);
    offsets!("d", Desc, instance state kind unit exponent nr_slots incarnation created_ns
        ended_ns name help);
    for pages in 1..=8u32 {
        for cpus in [1u32, 2, 3, 255, 8192] {
            let layout = Layout::new(cpus, pages).expect("possible numbers");
            for slot in [0, 1, 511, 512, 4095, 4096, 65535] {
                for cpu in (0..cpus).step_by(cpus as usize / 2 + 1) {
                    let offset = layout.slot_offset(cpu, slot);
                    writeln!(text, "{pages} {cpus} {cpu} {slot} {offset}")
                        .expect("a string takes it");
                }
            }
        }
    }
    text
}

#[test]
fn r0_4_page_table_has_room_for_every_chunk_size() {
    use counters_rules::layout::{MAX_PAGES_PER_CHUNK, MAX_SLOT_PAGES};
    for pages in 1..=MAX_PAGES_PER_CHUNK {
        let layout = counters_rules::layout::Layout::new(2, pages).unwrap();
        assert!(layout.max_chunks() * pages <= MAX_SLOT_PAGES, "{pages}");
    }
}
