//! How figures are printed: the same in text, in HTML and in charts.
//!
//! | quantity | printed as |
//! |---|---|
//! | count | `1,234,567` |
//! | number, seconds | one decimal from 100, two from 1, three digits below; `1.23e-6` below 0.00001 |
//! | time of one wait | `123ns`, `4.56us`, `7.89ms`, `1.23s`, as Oracle prints it |
//! | bytes | `512 B`, `4.0 KiB`: multiples of 1024 |
//! | percent | one decimal, no sign: the column's title has it; a little more than nothing is `<0.1` |
//! | instant | `2001-09-09 01:46:40`, UTC |
//!
//! Invariant: every value of the type prints, none panics. Deliberately absent: locales.

/// Digits in groups of three.
pub fn grouped(digits: &str) -> String {
    let (whole, fraction) =
        digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A count.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// So many of something whose plural ends in `s`.
pub fn several(value: u64, one: &str) -> String {
    format!("{} {one}{}", count(value), if value == 1 { "" } else { "s" })
}

/// A number that need not be whole.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    match size {
        _ if size == 0.0 => "0.00".to_owned(),
        _ if size >= 1e15 => format!("{value:.2e}"),
        _ if size >= 99.995 => grouped(&format!("{value:.1}")),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ if size >= 0.099_95 => format!("{value:.3}"),
        _ if size >= 0.009_995 => format!("{value:.4}"),
        _ if size >= 0.000_999_5 => format!("{value:.5}"),
        _ if size >= 0.000_099_95 => format!("{value:.6}"),
        _ if size >= 0.000_009_995 => format!("{value:.7}"),
        _ => format!("{value:.2e}"),
    }
}

/// A short time, with the unit that fits it.
pub fn nanoseconds(ns: f64) -> String {
    // The sum of nothing is minus zero.
    let ns = ns + 0.0;
    match ns.abs() {
        size if !size.is_finite() => "-".to_owned(),
        size if size < 999.5 => format!("{ns:.0}ns"),
        size if size < 999_995.0 => format!("{:.2}us", ns / 1e3),
        size if size < 999_995_000.0 => format!("{:.2}ms", ns / 1e6),
        _ => format!("{}s", grouped(&format!("{:.2}", ns / 1e9))),
    }
}

/// An amount of data.
pub fn bytes(value: f64) -> String {
    let mut rest = value;
    if !rest.is_finite() {
        return "-".to_owned();
    }
    if rest.abs() < 1023.5 {
        return if rest.fract() == 0.0 { format!("{rest:.0} B") } else { format!("{rest:.1} B") };
    }
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        rest /= 1024.0;
        if rest.abs() < 1023.95 {
            return format!("{rest:.1} {unit}");
        }
    }
    format!("{} PiB", grouped(&format!("{:.1}", rest / 1024.0)))
}

/// A share of a hundred.
pub fn percent(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() >= 1e12 {
        return format!("{value:.1e}");
    }
    match value {
        _ if value == 0.0 => "0.0".to_owned(),
        _ if value.abs() >= 0.05 => grouped(&format!("{value:.1}")),
        _ if value > 0.0 => "<0.1".to_owned(),
        _ => ">-0.1".to_owned(),
    }
}

/// An instant in UTC, to the second.
pub fn instant(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last of its year (the usual civil
    // calendar arithmetic).
    let from_march_0000 = days + 719_468;
    let (era, day_of_era) = (from_march_0000 / 146_097, from_march_0000 % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) =
        (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Text of foreign origin made harmless for a terminal and for the eye: control characters, and
/// those that turn the direction of writing, are shown as what they are.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_print_as_the_table_says() {
        assert_eq!(nanoseconds([0.0; 0].iter().sum()), "0ns");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(
            [0.0, 2e-7, 0.000_15, 0.25, 3.456, 99.949, 1234.56].map(number).join(" "),
            "0.00 2.00e-7 0.000150 0.250 3.46 99.95 1,234.6"
        );
        assert_eq!(
            [123.0, 4_560.0, 7_890_000.0, 1.23e9].map(nanoseconds).join(" "),
            "123ns 4.56us 7.89ms 1.23s"
        );
        assert_eq!([512.0, 4096.0, 1_610_612_736.0].map(bytes).join(" "), "512 B 4.0 KiB 1.5 GiB");
        assert_eq!([0.0, 0.04, -0.04, 100.0].map(percent).join(" "), "0.0 <0.1 >-0.1 100.0");
    }

    #[test]
    fn every_size_prints_with_the_unit_that_fits() {
        assert_eq!(
            [999.6, 999_996.0, 999_996_000.0].map(nanoseconds).join(" "),
            "1.00us 1.00ms 1.00s"
        );
        assert_eq!([1023.6, 1024.0 * 1023.96].map(bytes).join(" "), "1.0 KiB 1.0 MiB");
        for value in [f64::NAN, f64::INFINITY, -f64::MAX, f64::MIN_POSITIVE, u64::MAX as f64] {
            for print in [number, nanoseconds, bytes, percent] {
                assert!(!print(value).is_empty());
            }
        }
    }

    #[test]
    fn instants_are_those_of_the_calendar() {
        let at = |seconds: u64| instant(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(1_000_000_000), "2001-09-09 01:46:40");
        assert_eq!(at(4_107_542_399), "2100-02-28 23:59:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00");
        assert!(!instant(u64::MAX).is_empty());
    }

    #[test]
    fn escape_sequences_and_turned_text_become_visible() {
        assert_eq!(visible("a\u{1b}[31mb\n\u{202e}c é"), "a\\u{1b}[31mb\\n\\u{202e}c é");
    }
}
