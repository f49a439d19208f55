//! Numbers, times and dates as Oracle's reports print them.
//!
//! | printed | means |
//! |---|---|
//! | `1,234.5`, `.5`, `27.9K`, `.001M` | numbers; K, M, G, T, P are thousands |
//! | `1.2E+10` | a number too; SQL*Plus prints what is too wide so |
//! | `1.2G` in a column of data | bytes; M, G, T, P are multiples of 1024, and nothing is MiB |
//! | `1.50ms`, `809.13us`, `2s` | times |
//! | `24-Aug-26 10:00:01`, `24-Aug-2026 10:00` | instants without a zone |
//!
//! A comma stands before three digits; where it does not the text is no number, rather than a wrong
//! one.
//!
//! Invariant: what is not such a text is nothing, never zero.

/// A number; nothing if it is none, is negative, or is hidden behind `#####`.
pub(super) fn number(text: &str) -> Option<f64> {
    scaled(text, 1000.0)
}

/// An amount of data in bytes; without a letter it is bytes.
pub(super) fn bytes(text: &str) -> Option<f64> {
    scaled(text, 1024.0)
}

fn scaled(text: &str, by: f64) -> Option<f64> {
    let text = text.trim();
    let power = match text.chars().last()? {
        'K' | 'k' => 1,
        'M' | 'm' => 2,
        'G' | 'g' => 3,
        'T' | 't' => 4,
        'P' | 'p' => 5,
        _ => 0,
    };
    let digits = if power > 0 { &text[..text.len() - 1] } else { text };
    let (mantissa, exponent) = match digits.split_once(['E', 'e']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let grouped = whole.contains(',');
    if !are_digits(part)
        || !are_digits(first)
        || (grouped && !(1..=3).contains(&first.len()))
        || !groups.all(|group| group.len() == 3 && are_digits(group))
        || (whole.is_empty() && part.is_empty())
    {
        return None;
    }
    let mut plain = format!("{}.{part}", whole.replace(',', ""));
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || unsigned.len() > 3 || !are_digits(unsigned) {
            return None;
        }
        plain = format!("{plain}e{exponent}");
    }
    let value: f64 = plain.parse().ok()?;
    Some(value * by.powi(power)).filter(|value| value.is_finite())
}

/// A count.
pub(super) fn count(text: &str) -> Option<u64> {
    number(text).filter(|value| *value < 1.8e19).map(|value| value.round() as u64)
}

/// Seconds in nanoseconds.
pub(super) fn seconds_ns(text: &str) -> Option<u64> {
    number(text).map(|seconds| seconds * 1e9).filter(|ns| *ns < 1.8e19).map(|ns| ns.round() as u64)
}

/// A mean time and how far it may be from what was rounded to it, both in nanoseconds. The unit is
/// in the text (`1.50ms`, `9.00 s`) or given.
pub(super) fn mean_ns(text: &str, unit: Option<&str>) -> Option<(f64, f64)> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let ns = match (text.get(end..)?, unit) {
        ("ns", _) => 1.0,
        ("us", _) => 1e3,
        ("ms", _) | ("", Some("ms")) => 1e6,
        ("s", _) => 1e9,
        _ => return None,
    };
    let digits = text.get(..end)?.trim();
    Some((number(digits)? * ns, half_of_the_last_digit(digits) * ns))
}

fn half_of_the_last_digit(digits: &str) -> f64 {
    let places = digits.split_once('.').map_or(0, |(_, part)| part.len());
    0.5 / 10f64.powi(i32::try_from(places).unwrap_or(i32::MAX))
}

/// A total in nanoseconds by count and mean, where that fits what is printed of it in seconds, and
/// is nearer than that.
pub(super) fn finer(printed: &str, count: u64, (mean, off): (f64, f64)) -> Option<u64> {
    let printed = printed.trim();
    if printed.chars().any(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    // A total that is left out is less than is printed.
    let (total, rounded) = match printed.is_empty() {
        true => (0.0, 0.5e9),
        false => (number(printed)? * 1e9, half_of_the_last_digit(printed) * 1e9),
    };
    let (by_mean, unsure) = (mean * count as f64, off * count as f64);
    ((by_mean - total).abs() <= rounded + unsure && unsure < rounded && by_mean < 1.8e19)
        .then(|| by_mean.round() as u64)
}

/// A total in nanoseconds by its share of `all_ns`, where the share is nearer than the printed
/// total and the mean are, and fits both.
pub(super) fn by_share(
    printed: &str,
    count: u64,
    mean: Option<(f64, f64)>,
    share: &str,
    all_ns: u64,
) -> Option<u64> {
    let (printed, share) = (printed.trim(), share.trim());
    if all_ns == 0 || printed.chars().any(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let (total, rounded) = match printed.is_empty() {
        true => (0.0, 0.5e9),
        false => (number(printed)? * 1e9, half_of_the_last_digit(printed) * 1e9),
    };
    let (mut least, mut most) = ((total - rounded).max(0.0), total + rounded);
    if let Some((mean, off)) = mean {
        least = least.max((mean - off) * count as f64);
        most = most.min((mean + off) * count as f64);
    }
    let percent = all_ns as f64 / 100.0;
    let by_share = number(share)? * percent;
    let unsure = half_of_the_last_digit(share) * percent;
    // Oracle cuts some shares instead of rounding them.
    let fits = by_share + 2.0 * unsure >= least && by_share - 2.0 * unsure <= most;
    (least <= most && fits && unsure < (most - least) / 2.0)
        .then(|| by_share.clamp(least, most).round() as u64)
}

/// The first number of a text such as `60.01 (mins)`.
pub(super) fn leading(text: &str) -> Option<f64> {
    number(text.split_ascii_whitespace().next()?)
}

/// An instant, as seconds since 1970 as if it was UTC.
pub(super) fn instant(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let mut date = words.next()?.split('-');
    let (day, month, year) = (date.next()?, date.next()?, date.next()?);
    let names =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = match month.parse::<u64>() {
        Ok(number) => number.checked_sub(1).filter(|month| *month < 12)?,
        Err(_) => names.iter().position(|name| month.to_lowercase().starts_with(name))? as u64,
    };
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let year: u64 = year.parse().ok().filter(|year| *year < 10_000)?;
    let year = if year < 100 { 2000 + year } else { year };
    if year < 1970 {
        return None;
    }
    let mut time = words.next().unwrap_or("0").split(':').map(|part| part.parse::<u64>().ok());
    let mut part = |most: u64| time.next().unwrap_or(Some(0)).filter(|value| *value <= most);
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?);
    // Days before this date: years begin in March, so that the leap day is the last of its year.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_table() {
        assert_eq!(
            [number("1,234.5"), number(".5"), number("27.9K"), number(".001M")],
            [1234.5, 0.5, 27_900.0, 1000.0].map(Some)
        );
        assert_eq!(bytes("1.5G"), Some(1.5 * 1024.0 * 1024.0 * 1024.0));
        assert_eq!(
            [number("1.2E+10"), number("1e5"), number("5.0E-01"), number("1,234.5K"), number("1.")],
            [1.2e10, 1e5, 0.5, 1_234_500.0, 1.0].map(Some)
        );
        for wrong in [
            "", " ", "######", "N/A", "-", "K", ".", "nan", "-3", "1,23", "1.234,5", "1,2345",
            ",5", "1 2", "1e", "1e+", "e5", "1e5e5", "1e9999", "1..2", "+1", "0x1f", "inf",
            "\u{664}",
        ] {
            assert_eq!(
                (number(wrong), count(wrong), seconds_ns(wrong)),
                (None, None, None),
                "{wrong}"
            );
        }
        assert_eq!(
            (count("1.8E+19"), seconds_ns("1.8E+10")),
            (None, None),
            "more than there is room for"
        );
        assert_eq!(seconds_ns("1.5"), Some(1_500_000_000));
        assert_eq!(mean_ns("353.90us", None), Some((353_900.0, 5.0)));
        assert_eq!(mean_ns(" 9.00 s", None), Some((9e9, 5e6)));
        assert_eq!(mean_ns("2", Some("ms")), Some((2e6, 5e5)));
        for wrong in ["2", "", "ms", "1.5x", "##ms", "-1ms"] {
            assert_eq!(mean_ns(wrong, None), None, "{wrong}");
        }
        let mean = |text| mean_ns(text, None).expect("a mean");
        assert_eq!(
            finer("0", 1_000, mean("120.00us")),
            Some(120_000_000),
            "a tenth of a second is not none"
        );
        assert_eq!(finer("", 100, mean("1.00us")), Some(100_000), "less than is printed");
        assert_eq!(finer("900", 600_000, mean("1.50ms")), None, "the mean is the rougher one");
        assert_eq!(finer("5", 1_000, mean("120.00us")), None, "the two do not fit");
        assert_eq!(finer("35K", 100, mean("353.90s")), None, "the total is rounded by itself");
        assert_eq!(leading("60.01 (mins)"), Some(60.01));
    }

    #[test]
    fn a_share_says_more_than_a_total_of_whole_seconds_and_fits_it() {
        let of = |printed: &str, mean: Option<&str>, share: &str| {
            let mean = mean.and_then(|text| mean_ns(text, Some("ms")));
            by_share(printed, 1_173_705, mean, share, 3_756 * 1_000_000_000)
        };
        assert_eq!(of("406", Some("0"), "10.82"), Some(406_399_200_000));
        assert_eq!(of("", None, "0.01"), Some(375_600_000), "too short to be printed");
        assert_eq!(of("406.47", Some("0"), "10.82"), None, "the total is nearer");
        assert_eq!(of("406", Some("0.3463"), "10.82"), None, "the mean is nearer");
        assert_eq!(of("406", Some("0"), "20.00"), None, "that is the share of something else");
        assert_eq!(of("406", Some("0"), ""), None);
        assert_eq!(by_share("0", 1, None, "0.01", 0), None, "of nothing that is known");
    }

    #[test]
    fn instants_are_those_of_the_calendar() {
        assert_eq!(instant("09-Sep-01 01:46:40"), Some(1_000_000_000));
        assert_eq!(instant("29-Feb-2000 00:00"), Some(951_782_400));
        assert_eq!(instant("01-Jan-1970 00:00:01"), Some(1));
        assert_eq!(
            ["", "yesterday", "99-Foo-01 1:1:1", "01-Jan-1960", "1-2", "31-Dec-26 25:00:00"]
                .map(instant),
            [None; 6]
        );
    }
}
