//! A line as words, with Redis's quotes: of an inline request, and of a library's first line.
//!
//! Deliberately absent: requests (`server/request.rs`).

/// The words of a line; what is between `"` or `'` is a part of one word, with escapes in the first
/// form. Nothing if the quotes are not balanced.
pub(crate) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(first) = rest.first().copied().filter(|byte| !byte.is_ascii_whitespace()) {
            if !matches!(first, b'"' | b'\'') {
                word.push(first);
                rest = &rest[1..];
                continue;
            }
            rest = quoted(rest, &mut word)?;
            if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return None;
            }
        }
        words.push(word);
    }
}

/// Puts what is between quotes into a word; what comes behind them.
fn quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let quote = *text.first()?;
    let mut at = 1;
    loop {
        match (*text.get(at)?, text.get(at + 1)) {
            (byte, _) if byte == quote => return text.get(at + 1..),
            (b'\\', Some(escaped)) if quote == b'"' => {
                let hex = (*escaped == b'x')
                    .then(|| text.get(at + 2..at + 4))
                    .flatten()
                    .and_then(|hex| std::str::from_utf8(hex).ok())
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                if let Some(byte) = hex {
                    word.push(byte);
                    at += 4;
                    continue;
                }
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (byte, _) => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_a_part_of_a_word_and_its_last_one() {
        assert_eq!(words(b"\"open"), None);
        assert_eq!(words(b"name=\"a b\" x"), Some(vec![b"name=a b".to_vec(), b"x".to_vec()]));
        assert_eq!(words(b"a'b'c"), None);
        assert_eq!(words(b"\"a\"b"), None);
    }
}
