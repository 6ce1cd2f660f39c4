// SPDX-License-Identifier: GPL-2.0

//! The metadata of a CTF 2 trace: a sequence of JSON fragments that describe the data streams.

use serde_json::{json, Map, Value as Json};

use crate::fields::FieldType;
use crate::metadata::MarkerClass;
use crate::output::TraceProperties;
use crate::syscalls;

/// Byte order of integers: the byte order of this machine, because the output copies fields in the
/// form in which the program has written them.
const CTF_BYTE_ORDER: &str = match cfg!(target_endian = "little") {
    true => "little-endian",
    false => "big-endian",
};

/// The magic number with which each packet begins.
pub const PACKET_MAGIC: u32 = 0xc1fc_1fc1;
/// The id of the only class of data streams.
pub const STREAM_CLASS_ID: u32 = 0;

/// Encodes a fragment, with a record separator before and a line feed after it.
pub fn encode_fragment(json: &Json) -> Vec<u8> {
    format!("\x1e{}\n", visible::escape_json(&json.to_string())).into_bytes()
}

fn unsigned_field_class(bits: u32) -> Json {
    json!({
        "type": "fixed-length-unsigned-integer",
        "length": bits,
        "byte-order": CTF_BYTE_ORDER,
        "alignment": 8,
    })
}

fn unsigned_field_with_role(bits: u32, role: &str) -> Json {
    let mut class = unsigned_field_class(bits);
    class["roles"] = json!([role]);
    class
}

fn string_field_class() -> Json {
    json!({"type": "null-terminated-string"})
}

fn structure_field_class<'a>(members: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    let members: Vec<Json> = members
        .into_iter()
        .map(|(name, class)| json!({"name": name, "field-class": class}))
        .collect();
    json!({"type": "structure", "member-classes": members})
}

/// Returns the fragments that precede the classes of events: preamble, trace, clock and data
/// streams.
pub fn trace_header_fragments(properties: &TraceProperties) -> Vec<Json> {
    let environment: Map<String, Json> = properties
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let (seconds, cycles) = properties.clock.offset_from_unix_epoch();
    let packet_header = structure_field_class([
        ("magic", unsigned_field_with_role(32, "packet-magic-number")),
        (
            "stream_class_id",
            unsigned_field_with_role(32, "data-stream-class-id"),
        ),
        ("stream_id", unsigned_field_with_role(64, "data-stream-id")),
    ]);
    let packet_context = structure_field_class([
        (
            "packet_size",
            unsigned_field_with_role(64, "packet-total-length"),
        ),
        (
            "content_size",
            unsigned_field_with_role(64, "packet-content-length"),
        ),
        (
            "timestamp_begin",
            unsigned_field_with_role(64, "default-clock-timestamp"),
        ),
        (
            "timestamp_end",
            unsigned_field_with_role(64, "packet-end-default-clock-timestamp"),
        ),
        (
            "events_discarded",
            unsigned_field_with_role(64, "discarded-event-record-counter-snapshot"),
        ),
        (
            "packet_seq_num",
            unsigned_field_with_role(64, "packet-sequence-number"),
        ),
        ("cpu_id", unsigned_field_class(32)),
    ]);
    let event_header = structure_field_class([
        ("id", unsigned_field_with_role(32, "event-record-class-id")),
        (
            "timestamp",
            unsigned_field_with_role(64, "default-clock-timestamp"),
        ),
    ]);
    let event_context = structure_field_class([
        ("pid", unsigned_field_class(32)),
        ("tid", unsigned_field_class(32)),
        ("procname", string_field_class()),
    ]);
    vec![
        json!({"type": "preamble", "version": 2}),
        json!({
            "type": "trace-class",
            "name": properties.name,
            "environment": environment,
            "packet-header-field-class": packet_header,
        }),
        json!({
            "type": "clock-class",
            "id": "ticks",
            "name": "ticks",
            "frequency": properties.clock.frequency(),
            "origin": "unix-epoch",
            "offset-from-origin": {"seconds": seconds, "cycles": cycles},
        }),
        json!({
            "type": "data-stream-class",
            "id": STREAM_CLASS_ID,
            "default-clock-class-id": "ticks",
            "packet-context-field-class": packet_context,
            "event-record-header-field-class": event_header,
            "event-record-common-context-field-class": event_context,
        }),
    ]
}

/// Returns the fragment that describes a class of events.
pub fn event_class_fragment(marker: &MarkerClass) -> Json {
    let members = marker
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field_class_of_type(field.kind)))
        .chain(
            marker
                .is_syscall
                .then(|| (syscalls::SYSCALL_NAME_FIELD, string_field_class())),
        );
    json!({
        "type": "event-record-class",
        "id": marker.class_number,
        "data-stream-class-id": STREAM_CLASS_ID,
        "name": marker.name,
        "payload-field-class": structure_field_class(members),
    })
}

fn field_class_of_type(kind: FieldType) -> Json {
    let bits = |bytes: u8| u32::from(bytes) * 8;
    match kind {
        FieldType::Unsigned(bytes) => unsigned_field_class(bits(bytes)),
        FieldType::Signed(bytes) => {
            let mut class = unsigned_field_class(bits(bytes));
            class["type"] = json!("fixed-length-signed-integer");
            class
        }
        FieldType::Hex(bytes) => {
            let mut class = unsigned_field_class(bits(bytes));
            class["preferred-display-base"] = json!(16);
            class
        }
        FieldType::Float(bytes) => {
            let mut class = unsigned_field_class(bits(bytes));
            class["type"] = json!("fixed-length-floating-point-number");
            class
        }
        FieldType::Text => string_field_class(),
    }
}
