// SPDX-License-Identifier: GPL-2.0

//! Parses the Accept header of an HTTP request. The server of `pfc export --listen` offers one
//! media type only, so the parser decides only whether the client accepts that type.

/// The media type of an export format.
#[derive(Clone, Copy, Debug)]
pub struct MediaType {
    pub main_type: &'static str,
    pub subtype: &'static str,
    /// Values of the `version` parameter in an Accept header that match this media type.
    pub accepted_versions: &'static [&'static str],
    /// The Content-Type header of a response that has this media type.
    pub content_type: &'static str,
}

impl MediaType {
    /// Returns true if an Accept header allows this media type. If several entries of the header
    /// match the media type, the most specific of them decides whether the media type is allowed.
    /// An entry with weight 0 (`q=0`) forbids the media types that it matches.
    pub fn is_allowed_by_accept_header(&self, header: &str) -> bool {
        let entries = header
            .split(',')
            .filter_map(|entry| self.match_accept_entry(entry));
        // If several entries of the Accept header are equally specific, an entry that allows the
        // media type takes precedence.
        entries.max().is_some_and(|(_, is_allowed)| is_allowed)
    }

    /// Returns the specificity of an Accept header's entry (1 to 4), and whether the entry allows
    /// this media type. Returns `None` if the entry does not match this media type.
    fn match_accept_entry(&self, entry: &str) -> Option<(u8, bool)> {
        let mut parts = entry.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let is_equal = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let mut specificity = match (kind, subtype) {
            ("*", "*") => 1,
            (kind, "*") if is_equal(kind, self.main_type) => 2,
            (kind, sub) if is_equal(kind, self.main_type) && is_equal(sub, self.subtype) => 3,
            _ => return None,
        };
        let mut is_allowed = true;
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            if is_equal(key, "q") {
                is_allowed = value.parse::<f32>().is_ok_and(|q| q > 0.0);
            } else if is_equal(key, "version") {
                if !self.accepted_versions.contains(&value) {
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
    fn pfc_export_most_specific_accept_entry_decides() {
        let media = crate::export::openmetrics::OPENMETRICS_FORMAT
            .media_type
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
            assert_eq!(media.is_allowed_by_accept_header(header), yes, "{header}");
        }
    }
}
