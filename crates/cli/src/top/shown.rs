//! Text from outside, made harmless for a terminal: statements, names of files and of servers may
//! hold anything.
//!
//! Control characters, escape sequences, and characters that turn or hide others are shown as what
//! they are; where the locale has no UTF-8, everything beyond ASCII is.
//!
//! Invariant: what `Alphabet::shown` returns is one line without a character below space, and
//! nothing in it moves a cursor.

use tiersmith_awr::figure;

/// Which characters the reader's terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// UTF-8.
    Unicode,
    /// ASCII only.
    Ascii,
}

impl Alphabet {
    /// What the locale of this process says.
    pub(crate) fn of_environment() -> Alphabet {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Alphabet::Unicode
        } else {
            Alphabet::Ascii
        }
    }

    /// The text as it may be shown.
    pub(crate) fn shown(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in figure::visible(text).chars() {
            if hides(c) || (self == Alphabet::Ascii && !c.is_ascii()) {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
        out
    }
}

/// JSON whose strings say the same without a character that a terminal would act on: what is beyond
/// JSON's own escapes becomes one.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() || hides(c) {
            // Outside strings JSON written on one line has no such character.
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters without a shape of their own that change how others look, or where a line ends.
fn hides(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_or_hides_text_is_left() {
        let hostile = "a\u{1b}[2J\u{9b}31m\r\n\t\u{7}\u{200b}\u{2028}\u{202e}\u{feff}é";
        for alphabet in [Alphabet::Unicode, Alphabet::Ascii] {
            let shown = alphabet.shown(hostile);
            assert!(shown.starts_with("a\\u{1b}[2J\\u{9b}31m\\r\\n\\t\\u{7}"), "{shown}");
            assert!(!shown.chars().any(|c| c.is_control() || hides(c)), "{shown}");
        }
        let json = harmless_json(&serde_json::to_string(hostile).expect("a string"));
        assert!(!json.chars().any(|c| c.is_control() || hides(c)), "{json}");
        assert_eq!(
            serde_json::from_str::<String>(&json).expect("JSON"),
            hostile,
            "it says the same"
        );
        assert!(Alphabet::Unicode.shown(hostile).ends_with('é'));
        assert!(Alphabet::Ascii.shown(hostile).ends_with("\\u{e9}"));
    }
}
