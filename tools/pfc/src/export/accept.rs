// SPDX-License-Identifier: GPL-2.0

//! Parses the Accept header of HTTP. As there is only one media type to offer, it only finds out
//! whether the client accepts that.

/// The media type of a format.
#[derive(Clone, Copy, Debug)]
pub struct Media {
    pub kind: &'static str,
    pub subtype: &'static str,
    /// The values of the parameter `version` that a client may request.
    pub versions: &'static [&'static str],
    /// The Content-Type header of a response.
    pub content_type: &'static str,
}

impl Media {
    /// Returns true if this Accept header allows the media type. The most specific entry decides.
    /// An entry with a weight of 0 forbids the type.
    pub fn accepted_by(&self, header: &str) -> bool {
        let entries = header.split(',').filter_map(|entry| self.entry(entry));
        // Among equally specific entries, one that allows the type wins.
        entries.max().is_some_and(|(_, yes)| yes)
    }

    /// Returns how specifically an entry names this type, and whether it allows it. Returns `None`
    /// if the entry is for other types.
    fn entry(&self, entry: &str) -> Option<(u8, bool)> {
        let mut parts = entry.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let mut exact = match (kind, subtype) {
            ("*", "*") => 1,
            (kind, "*") if same(kind, self.kind) => 2,
            (kind, sub) if same(kind, self.kind) && same(sub, self.subtype) => 3,
            _ => return None,
        };
        let mut wanted = true;
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            if same(key, "q") {
                wanted = value.parse::<f32>().is_ok_and(|q| q > 0.0);
            } else if same(key, "version") {
                if !self.versions.contains(&value) {
                    return None;
                }
                exact = 4;
            }
        }
        Some((exact, wanted))
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn pfc_export_knows_who_takes_its_text() {
        let media = crate::export::openmetrics::FORMAT
            .media
            .expect("it has one");
        for (header, yes) in [
            ("*/*", true),
            ("application/*;q=0.1", true),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", true),
            ("application/openmetrics-text;version=\"0.0.1\"", true),
            ("application/openmetrics-text;version=2.0.0", false),
            ("application/openmetrics-text;version=2.0.0,*/*;q=0.1", true),
            ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", true),
            ("text/plain", false),
            ("text/html, application/xhtml+xml", false),
            ("application/openmetrics-text;q=0, */*", false),
            ("*/*;q=0", false),
            ("*/*;q=none", false),
            ("", false),
            (";;;,,,=/", false),
        ] {
            assert_eq!(media.accepted_by(header), yes, "{header}");
        }
    }
}
