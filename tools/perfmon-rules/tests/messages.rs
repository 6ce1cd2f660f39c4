// SPDX-License-Identifier: GPL-2.0

//! Tests of a context's message queue. The queue must accept overflow messages up to its depth,
//! which a sampling format can set. The queue must always have room for a fault message and for the
//! message that the context has ended.
#![cfg(not(loom))]

use perfmon_rules::abi::{Message, MSG_END, MSG_EVICTED, MSG_FAULT, MSG_OVFL};
use perfmon_rules::messages::{nr_message_slots, MessageQueue};

fn message(msg_type: u32, pid: u32) -> Message {
    Message {
        msg_type,
        msg_ovfl_pid: pid,
        ..Message::default()
    }
}

/// Fills a queue of depth `depth` with overflow messages. Returns the queue and the number of
/// messages that it accepted.
fn filled_queue(depth: usize) -> (MessageQueue<Vec<Message>>, usize) {
    let mut queue = MessageQueue::new(vec![Message::default(); nr_message_slots(depth)]);
    let nr = (0..100)
        .take_while(|n| queue.push(&message(MSG_OVFL, *n)))
        .count();
    (queue, nr)
}

#[test]
fn r9_4_queue_accepts_messages_up_to_its_depth() {
    for depth in [1, 2, 8, 29, 30] {
        assert_eq!(filled_queue(depth).1, depth);
    }
}

#[test]
fn r9_4_full_queue_accepts_a_fault_and_the_end() {
    for depth in [1, 8, 30] {
        let (mut queue, nr) = filled_queue(depth);
        assert!(queue.push(&message(MSG_FAULT, 0)));
        assert!(queue.push(&message(MSG_END, 0)));
        assert!(!queue.push(&message(MSG_OVFL, 0)));
        let types: Vec<u32> = core::iter::from_fn(|| queue.pop().map(|m| m.msg_type)).collect();
        assert_eq!(types[..nr], vec![MSG_OVFL; nr]);
        assert_eq!(types[nr..], [MSG_FAULT, MSG_END]);
    }
    let (mut queue, _) = filled_queue(30);
    assert!(queue.push(&message(MSG_EVICTED, 0)));
    assert!(queue.push(&message(MSG_END, 0)));
    assert!(!queue.push(&message(MSG_END, 0)));
}

#[test]
fn r9_4_message_that_is_put_back_is_read_next() {
    let (mut queue, _) = filled_queue(30);
    let first = queue.pop().unwrap();
    queue.put_back(&first);
    assert_eq!(queue.pop().unwrap().msg_ovfl_pid, first.msg_ovfl_pid);
    assert_eq!(queue.pop().unwrap().msg_ovfl_pid, first.msg_ovfl_pid + 1);
}

#[test]
fn r9_4_queue_keeps_the_order_of_messages_when_its_slots_are_reused() {
    for depth in [1, 2, 30] {
        let (mut queue, nr) = filled_queue(depth);
        let mut next_pid = nr as u32;
        for expected_pid in 0..200 {
            let oldest = queue.pop().unwrap();
            assert_eq!(oldest.msg_ovfl_pid, expected_pid);
            queue.put_back(&oldest);
            assert_eq!(queue.pop().unwrap().msg_ovfl_pid, expected_pid);
            assert!(queue.push(&message(MSG_OVFL, next_pid)));
            assert!(!queue.push(&message(MSG_OVFL, 1000)));
            next_pid += 1;
        }
        queue.clear();
        assert!(queue.is_empty() && queue.pop().is_none());
        assert!(queue.push(&message(MSG_OVFL, 7)));
        assert_eq!(queue.pop().unwrap().msg_ovfl_pid, 7);
    }
}
