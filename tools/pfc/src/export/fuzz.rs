// SPDX-License-Identifier: GPL-2.0

//! Fuzzes the parser of HTTP Accept headers in `pfc export`. `tests/listen.rs` sends hostile
//! requests to the HTTP server.

use fuzz::{words, Fuzzer};

use super::openmetrics::OPENMETRICS_FORMAT;

#[test]
fn pfc_export_fuzz_accept_headers() {
    let media = OPENMETRICS_FORMAT.media_type.expect("it has one");
    let parts = [
        "application/",
        "openmetrics-text",
        "text",
        "/",
        "*",
        "*/*",
        ";",
        ",",
        "q=",
        "0",
        "0.5",
        "1e999",
        "nan",
        "version=",
        "1.0.0",
        "\"",
        " ",
        "\t",
        "=",
    ];
    Fuzzer::new("Accept headers").run(words(&parts), |bytes| {
        let _ = media.is_allowed_by_accept_header(&visible::decode(bytes));
    });
}
