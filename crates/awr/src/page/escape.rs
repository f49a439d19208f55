//! Text of any origin as the content of an element or of a quoted attribute.
//!
//! Invariant: the result holds none of the characters `<`, `>`, `"`, `'`, and no `&` that is not
//! the beginning of a reference written here; so it can neither open a tag nor leave an attribute.
//! Control characters and characters that turn the direction of writing are shown as what they are.

use crate::figure;

/// The text, escaped.
pub fn escape(text: &str) -> String {
    let text = figure::visible(text);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The text in lines, escaped: line ends and tabs stay, everything else is as in [`escape`].
pub(crate) fn escape_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split('\t').map(escape).collect::<Vec<_>>().join("\t"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_opens_a_tag_or_leaves_an_attribute() {
        assert_eq!(
            escape("<script>alert('1' & \"2\")</script>"),
            "&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;"
        );
        assert_eq!(escape("&lt;"), "&amp;lt;");
        assert_eq!(escape("a\0b\u{7f}"), "a\\u{0}b\\u{7f}");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(escape_lines("a<\n\tb\r\nc"), "a&lt;\n\tb\nc");
    }
}
