//! Arguments as numbers, patterns and times, as strict as Redis is.

use super::Refusal;
pub(crate) use crate::number::integer;

/// An integer, or the usual refusal.
pub(crate) fn integer_or_refusal(bytes: &[u8]) -> Result<i64, Refusal> {
    integer(bytes).ok_or(Refusal::Said("ERR value is not an integer or out of range"))
}

/// A score as Redis prints it: C's `%.17g`.
pub(crate) fn print_score(score: f64) -> String {
    if !score.is_finite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{score:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let shorten = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        return shorten(&format!("{score:.*}", (16 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shorten(digits), exponent.unsigned_abs())
}

/// When a key expires that is given `amount` of `unit_ms`, from now or since 1970.
pub(crate) fn expiry(
    amount: i64,
    unit_ms: i64,
    base_ms: u64,
    command: &str,
) -> Result<i64, Refusal> {
    amount
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add_unsigned(base_ms))
        .ok_or_else(|| Refusal::Words(format!("ERR invalid expire time in '{command}' command")))
}

/// Whether `text` matches a glob pattern: `*`, `?`, `[a-c]`, `[^x]`, `\` before a character.
///
/// Time is bounded: a `*` that fails goes back to the last `*` only.
pub(crate) fn glob(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let same = |a: u8, b: u8| a == b || fold && a.eq_ignore_ascii_case(&b);
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(b'?') => Some(p + 1),
            Some(b'[') => set(pattern, p, text[t], fold),
            Some(b'\\') if p + 1 < pattern.len() => same(pattern[p + 1], text[t]).then_some(p + 2),
            Some(byte) => same(*byte, text[t]).then_some(p + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => (p, t) = (next, t + 1),
            (None, Some((star_p, star_t))) => {
                (p, t) = (star_p + 1, star_t + 1);
                star = Some((star_p, star_t + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Where the pattern goes on behind the set at `p`, if `byte` is in it.
fn set(pattern: &[u8], p: usize, byte: u8, fold: bool) -> Option<usize> {
    let lower = |byte: u8| if fold { byte.to_ascii_lowercase() } else { byte };
    let mut at = p + 1;
    let not = pattern.get(at) == Some(&b'^');
    at += usize::from(not);
    let mut found = false;
    loop {
        match pattern.get(at) {
            None => break,
            Some(b']') => {
                at += 1;
                break;
            }
            Some(b'\\') if at + 1 < pattern.len() => {
                found |= lower(pattern[at + 1]) == lower(byte);
                at += 2;
            }
            Some(first) if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                let (from, to) = (lower(*first), lower(pattern[at + 2]));
                found |= (from.min(to)..=from.max(to)).contains(&lower(byte));
                at += 3;
            }
            Some(other) => {
                found |= lower(*other) == lower(byte);
                at += 1;
            }
        }
    }
    (found != not).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_strictly_as_redis_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn scores_are_printed_as_c_prints_them() {
        for (score, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (-1.5, "-1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e300, "1.0000000000000001e+300"),
            (0.00001, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(print_score(score), text);
        }
    }

    #[test]
    fn patterns_match_what_redis_matches() {
        for (pattern, text, matches) in [
            ("*", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c*e", "abcde", true),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[", "[", false),
            ("a[", "ab", false),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes(), false),
                matches,
                "{pattern} {text}"
            );
        }
        assert!(glob(b"HE*", b"hello", true));
    }
}
