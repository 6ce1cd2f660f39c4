// SPDX-License-Identifier: GPL-2.0

//! Parses the Accept header of HTTP. The server offers only one media type, so the parser only
//! finds out whether the client accepts that media type.

/// The media type of an export format.
#[derive(Clone, Copy, Debug)]
pub struct MediaType {
    pub kind: &'static str,
    pub subtype: &'static str,
    /// The values of the parameter `version` that a client may request.
    pub versions: &'static [&'static str],
    /// The Content-Type header of a response in the media type.
    pub content_type: &'static str,
}

impl MediaType {
    /// Returns true if an Accept header allows the media type that the server offers. The most
    /// specific entry of the Accept header that names the media type decides. An entry of the
    /// Accept header with a weight of 0 forbids its media type.
    pub fn is_accepted_by(&self, header: &str) -> bool {
        let entries = header
            .split(',')
            .filter_map(|entry| self.match_entry(entry));
        // If several entries of the Accept header are equally specific, an entry that allows the
        // media type decides.
        entries.max().is_some_and(|(_, is_allowed)| is_allowed)
    }

    /// Returns how specifically an entry of the Accept header names the media type, and whether the
    /// entry allows the media type. Returns `None` if the entry of the Accept header is for other
    /// media types.
    fn match_entry(&self, entry: &str) -> Option<(u8, bool)> {
        let mut parts = entry.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let is_equal = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let mut specificity = match (kind, subtype) {
            ("*", "*") => 1,
            (kind, "*") if is_equal(kind, self.kind) => 2,
            (kind, sub) if is_equal(kind, self.kind) && is_equal(sub, self.subtype) => 3,
            _ => return None,
        };
        let mut is_allowed = true;
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            if is_equal(key, "q") {
                is_allowed = value.parse::<f32>().is_ok_and(|q| q > 0.0);
            } else if is_equal(key, "version") {
                if !self.versions.contains(&value) {
                    return None;
                }
                specificity = 4;
            }
        }
        Some((specificity, is_allowed))
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
            assert_eq!(media.is_accepted_by(header), yes, "{header}");
        }
    }
}
