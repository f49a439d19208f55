//! Numbers as Redis reads them. Those with a fraction are read and printed as C does it: `strtod`,
//! and the 80 bits of `long double`.
//!
//! Redis leaves scores to `strtod` and the sums of INCRBYFLOAT to `long double`, so both are part
//! of what a client sees: `0x10` is a score, and 0.1 + 0.2 is 0.3. A number that is read becomes a
//! whole number times a power of two, exactly but for a rest that is only known not to be zero;
//! that is rounded once, to 53 or 64 bits.
//!
//! Deliberately absent: denormal numbers of 80 bits. No reply has that many digits.

use std::cmp::Ordering;

/// Bytes that `long double` is read from at most, as in Redis.
const TEXT_MAX: usize = 5 * 1024;
/// Digits behind the point that Redis prints of a `long double`.
const DECIMALS: u32 = 17;
/// The exponent of the highest bit of the largest `long double`.
const HIGHEST: i64 = 16383;
/// The exponent of the lowest bit of the smallest one.
const LOWEST: i64 = -16445;

/// An integer as Redis reads it: no spaces, no `+`, no leading zeros.
pub(crate) fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let plain = match digits {
        [] => false,
        [b'0'] => bytes.len() == 1,
        [b'0', ..] => false,
        _ => digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit),
    };
    if plain { std::str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}

/// A number as Redis's commands take one: no space before it, nothing behind it, not NaN, and not
/// what only an infinity or zero comes near.
pub(crate) fn float(bytes: &[u8]) -> Option<f64> {
    // Most are neither large nor in base 16.
    let plain = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    if bytes.len() < 32 && bytes.iter().all(plain) {
        return std::str::from_utf8(bytes).ok()?.parse().ok();
    }
    match read(bytes)? {
        Read::Infinity { negative } => Some(signed(f64::INFINITY, negative)),
        read => {
            read.to_f64().filter(|number| number.is_finite() && (*number != 0.0 || read.is_zero()))
        }
    }
}

/// A number as C's `strtod` alone takes one: space before it, a zero byte as its end, nothing as 0,
/// infinity for what is too large. Not NaN.
pub(crate) fn strtod(bytes: &[u8]) -> Option<f64> {
    let text = as_c(bytes);
    if text.is_empty() {
        return Some(0.0);
    }
    match read(trim(text))? {
        Read::Infinity { negative } => Some(signed(f64::INFINITY, negative)),
        read => read.to_f64(),
    }
}

/// The same, but no number that is too large or too small to be held with all of its bits.
pub(crate) fn strtod_within_range(bytes: &[u8]) -> Option<f64> {
    let number = strtod(bytes)?;
    let whole = match read(trim(as_c(bytes))) {
        Some(read @ Read::Finite { .. }) => number.is_normal() || read.is_zero(),
        // An infinity that was named, or nothing at all.
        _ => true,
    };
    whole.then_some(number)
}

fn as_c(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn trim(text: &[u8]) -> &[u8] {
    let first = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'));
    &text[first.unwrap_or(text.len())..]
}

fn signed(number: f64, negative: bool) -> f64 {
    if negative { -number } else { number }
}

/// What a text says.
enum Read<'a> {
    Infinity {
        negative: bool,
    },
    /// Digits in base 10 or 16 without a point, and the power of 10 or 2 that they count.
    Finite {
        negative: bool,
        text: &'a str,
        digits: Vec<u8>,
        hex: bool,
        exponent: i64,
    },
}

/// Reads all of a text, which has no space before it.
fn read(bytes: &[u8]) -> Option<Read<'_>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest.eq_ignore_ascii_case("inf") || rest.eq_ignore_ascii_case("infinity") {
        return Some(Read::Infinity { negative });
    }
    let hex = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let marks = if hex.is_some() { ['p', 'P'] } else { ['e', 'E'] };
    let (number, power) = match hex.unwrap_or(rest).split_once(marks) {
        Some((number, power)) => (number, read_power(power)?),
        None => (hex.unwrap_or(rest), 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let base = if hex.is_some() { 16 } else { 10 };
    let digit = |c: char| c.to_digit(base).map(|digit| digit as u8);
    let digits: Vec<u8> =
        whole.chars().chain(fraction.chars()).map(digit).collect::<Option<_>>()?;
    if digits.is_empty() {
        return None;
    }
    let places = fraction.len() as i64 * if hex.is_some() { 4 } else { 1 };
    let digits = digits.into_iter().skip_while(|digit| *digit == 0).collect();
    Some(Read::Finite { negative, text, digits, hex: hex.is_some(), exponent: power - places })
}

fn read_power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More than any number has.
    let power = digits.parse::<i64>().map_or(1 << 40, |power| power.min(1 << 40));
    Some(if text.starts_with('-') { -power } else { power })
}

impl Read<'_> {
    fn is_zero(&self) -> bool {
        matches!(self, Read::Finite { digits, .. } if digits.is_empty())
    }

    fn to_f64(&self) -> Option<f64> {
        match self {
            Read::Finite { text, hex: false, .. } => text.parse().ok(),
            Read::Finite { negative, .. } => {
                let (big, exponent, rest) = self.exact()?;
                Some(signed(big.to_f64(exponent, rest), *negative))
            }
            Read::Infinity { .. } => None,
        }
    }

    /// The number as one times a power of two, and whether there is a rest; nothing if it is far
    /// beyond what `long double` holds.
    fn exact(&self) -> Option<(Big, i64, bool)> {
        let Read::Finite { digits, hex, exponent, .. } = self else { return None };
        let size = digits.len() as i64 * if *hex { 4 } else { 1 } + exponent;
        if digits.is_empty() {
            return Some((Big::default(), 0, false));
        }
        if size > 20_000 {
            return None;
        }
        let mut big = Big::default();
        if size < -20_000 {
            // Nothing of it is left, and it is not nothing.
            return Some((big, 0, true));
        }
        for digit in digits {
            big.multiply_add(if *hex { 16 } else { 10 }, u32::from(*digit));
        }
        if *hex {
            return Some((big, *exponent, false));
        }
        if *exponent >= 0 {
            big.multiply_by_ten_to(*exponent as u64);
            return Some((big, 0, false));
        }
        // So many bits in front that the quotient has more than are kept.
        let power = exponent.unsigned_abs();
        let shift = power * 4 + 72;
        big.shift_left(shift);
        let rest = big.divide_by_ten_to(power);
        Some((big, -(shift as i64), rest))
    }
}

/// A finite `long double`: 64 bits times a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    negative: bool,
    bits: u64,
    exponent: i64,
}

/// A number that Redis reads into a `long double`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    Finite(Extended),
    Infinite,
}

/// Reads one, as [`float`] does.
pub(crate) fn long(bytes: &[u8]) -> Option<Long> {
    if bytes.len() >= TEXT_MAX {
        return None;
    }
    let read = read(bytes)?;
    let Read::Finite { negative, .. } = read else { return Some(Long::Infinite) };
    let (big, exponent, rest) = read.exact()?;
    let number = Extended::round(negative, &big, exponent, rest)?;
    (number.bits != 0 || read.is_zero()).then_some(Long::Finite(number))
}

impl Extended {
    /// Rounds to 64 bits; nothing for what is too large.
    fn round(negative: bool, big: &Big, exponent: i64, rest: bool) -> Option<Extended> {
        let lowest = big.len() as i64 - 64;
        let (bits, lowest) = if lowest > 0 {
            let cut = big.cut(lowest as u64, rest);
            // Rounding up may make it one bit longer.
            if cut.len() > 64 { (1 << 63, lowest + 1) } else { (cut.low(), lowest) }
        } else {
            (big.low(), 0)
        };
        let highest = 63 - i64::from(bits.leading_zeros()) + lowest + exponent;
        match bits {
            0 => Some(Extended { negative, ..Extended::default() }),
            _ if highest > HIGHEST => None,
            _ if highest < LOWEST => Some(Extended { negative, ..Extended::default() }),
            _ => Some(Extended { negative, bits, exponent: lowest + exponent }),
        }
    }

    /// The sum; nothing if it is infinite.
    pub(crate) fn plus(self, other: Extended) -> Option<Extended> {
        let exponent = match (self.bits, other.bits) {
            (0, _) => other.exponent,
            (_, 0) => self.exponent,
            _ => self.exponent.min(other.exponent),
        };
        let aligned = |one: Extended| {
            let mut big = Big::of(one.bits);
            big.shift_left(if one.bits == 0 { 0 } else { (one.exponent - exponent) as u64 });
            big
        };
        let (one, two) = (aligned(self), aligned(other));
        if self.negative == other.negative {
            return Extended::round(self.negative, &one.plus(&two), exponent, false);
        }
        match one.compare(&two) {
            Ordering::Equal => Some(Extended::default()),
            Ordering::Greater => Extended::round(self.negative, &one.minus(&two), exponent, false),
            Ordering::Less => Extended::round(other.negative, &two.minus(&one), exponent, false),
        }
    }

    /// As Redis prints it: `%.17Lf` without the zeros at its end.
    pub(crate) fn print(self) -> String {
        let mut big = Big::of(self.bits);
        big.multiply_by_ten_to(u64::from(DECIMALS));
        match u64::try_from(self.exponent) {
            Ok(exponent) => big.shift_left(exponent),
            Err(_) => big = big.cut(self.exponent.unsigned_abs(), false),
        }
        let digits = format!("{:0>1$}", big.print(), DECIMALS as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS as usize);
        let fraction = fraction.trim_end_matches('0');
        match (whole, fraction) {
            ("0", "") => "0".to_owned(),
            (whole, fraction) => {
                let (sign, point) = (
                    if self.negative { "-" } else { "" },
                    if fraction.is_empty() { "" } else { "." },
                );
                format!("{sign}{whole}{point}{fraction}")
            }
        }
    }
}

/// A whole number of any size; the least significant 32 bits come first, no zeros last.
#[derive(Debug, Default)]
struct Big(Vec<u32>);

impl Big {
    fn of(bits: u64) -> Big {
        let mut big = Big(vec![bits as u32, (bits >> 32) as u32]);
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Bits from the highest one that is set.
    fn len(&self) -> u64 {
        self.0.last().map_or(0, |last| self.0.len() as u64 * 32 - u64::from(last.leading_zeros()))
    }

    fn low(&self) -> u64 {
        let limb = |at: usize| u64::from(self.0.get(at).copied().unwrap_or(0));
        limb(0) | limb(1) << 32
    }

    fn bit(&self, at: u64) -> bool {
        self.0.get((at / 32) as usize).is_some_and(|limb| limb >> (at % 32) & 1 == 1)
    }

    fn multiply_add(&mut self, by: u32, plus: u32) {
        let mut carry = u64::from(plus);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(by);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn divide(&mut self, by: u32) -> u32 {
        let mut rest = 0;
        for limb in self.0.iter_mut().rev() {
            let part = rest << 32 | u64::from(*limb);
            *limb = (part / u64::from(by)) as u32;
            rest = part % u64::from(by);
        }
        self.trim();
        rest as u32
    }

    fn multiply_by_ten_to(&mut self, power: u64) {
        (0..power / 9).for_each(|_| self.multiply_add(1_000_000_000, 0));
        self.multiply_add(10_u32.pow((power % 9) as u32), 0);
    }

    /// Whether there was a rest.
    fn divide_by_ten_to(&mut self, power: u64) -> bool {
        let mut rest = 0;
        (0..power / 9).for_each(|_| rest |= self.divide(1_000_000_000));
        rest |= self.divide(10_u32.pow((power % 9) as u32));
        rest != 0
    }

    fn shift_left(&mut self, bits: u64) {
        if self.0.is_empty() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
    }

    /// Without the lowest bits, rounded to the nearest, of two as near to the even one.
    fn cut(&self, bits: u64, rest: bool) -> Big {
        if bits == 0 {
            return Big(self.0.clone());
        }
        let mut left = Big(self.0.get((bits / 32) as usize..).unwrap_or_default().to_vec());
        if !bits.is_multiple_of(32) {
            left.divide(1 << (bits % 32));
        }
        left.trim();
        let half = self.bit(bits - 1);
        let below = rest || (0..bits - 1).any(|at| self.bit(at));
        if half && (below || left.bit(0)) {
            left = left.plus(&Big::of(1));
        }
        left
    }

    fn plus(&self, other: &Big) -> Big {
        let mut carry = 0;
        let mut sum = Big::default();
        for at in 0..self.0.len().max(other.0.len()) + 1 {
            let limb = |big: &Big| u64::from(big.0.get(at).copied().unwrap_or(0));
            carry += limb(self) + limb(other);
            sum.0.push(carry as u32);
            carry >>= 32;
        }
        sum.trim();
        sum
    }

    /// What is left of it without a smaller one.
    fn minus(&self, other: &Big) -> Big {
        let mut borrowed = 0;
        let mut left = Big::default();
        for (at, limb) in self.0.iter().enumerate() {
            let taken = i64::from(other.0.get(at).copied().unwrap_or(0)) + borrowed;
            let one = i64::from(*limb) - taken;
            left.0.push(one as u32);
            borrowed = i64::from(one < 0);
        }
        left.trim();
        left
    }

    fn compare(&self, other: &Big) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn print(mut self) -> String {
        let mut parts = Vec::new();
        while !self.0.is_empty() {
            parts.push(self.divide(1_000_000_000));
        }
        let mut text = parts.pop().unwrap_or(0).to_string();
        for part in parts.iter().rev() {
            text += &format!("{part:09}");
        }
        text
    }

    fn to_f64(&self, exponent: i64, rest: bool) -> f64 {
        let lowest = (self.len() as i64 + exponent - 53).max(-1074);
        let cut = lowest - exponent;
        let mut bits = match u64::try_from(cut) {
            Ok(cut) => self.cut(cut, rest).low(),
            Err(_) => self.low() << cut.unsigned_abs().min(63),
        };
        let mut lowest = lowest;
        if bits >> 53 > 0 {
            (bits, lowest) = (bits >> 1, lowest + 1);
        }
        match bits {
            _ if lowest > 1023 - 52 => f64::INFINITY,
            // As they are: the smallest numbers have no bit in front that is not written.
            bits if bits >> 52 == 0 => f64::from_bits(bits),
            bits => f64::from_bits(((lowest + 1075) as u64) << 52 | bits & ((1 << 52) - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        for (text, number) in [
            ("1.5", Some(1.5)),
            ("-.5", Some(-0.5)),
            ("1.", Some(1.0)),
            ("0x10", Some(16.0)),
            ("0X.8p-1", Some(0.25)),
            ("0x1p-1074", Some(f64::from_bits(1))),
            ("0x1.fffffffffffff8p1023", None),
            ("0x20000000000001", Some(9_007_199_254_740_992.0)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0e999", Some(0.0)),
            ("1e400", None),
            ("1e-400", None),
            ("0x", None),
            ("0x1p", None),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            (".", None),
            ("1e", None),
            ("1_0", None),
        ] {
            assert_eq!(float(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn borders_are_read_as_strtod_reads_them() {
        for (text, number, within) in [
            ("", Some(0.0), true),
            (" 1", Some(1.0), true),
            ("\t0x10", Some(16.0), true),
            ("2\0x", Some(2.0), true),
            ("1e400", Some(f64::INFINITY), false),
            ("4e-320", Some(4e-320), false),
            ("1e-400", Some(0.0), false),
            ("inf", Some(f64::INFINITY), true),
            (" ", None, false),
            ("nan", None, false),
            ("1x", None, false),
        ] {
            assert_eq!(strtod(text.as_bytes()), number, "{text}");
            assert_eq!(strtod_within_range(text.as_bytes()), number.filter(|_| within), "{text}");
        }
    }

    #[test]
    fn sums_have_the_digits_of_long_double() {
        for (one, two, sum) in [
            ("0.1", "0.2", Some("0.3")),
            ("0.3", "3.0e3", Some("3000.30000000000000004")),
            ("3000.30000000000000004", "1e17", Some("100000000000003000.296875")),
            ("0", "5e-18", Some("0")),
            ("0", "-4e-18", Some("0")),
            ("1", "-1.5", Some("-0.5")),
            ("1", "-1", Some("0")),
            ("9223372036854775807", "1", Some("9223372036854775808")),
            ("0x1.8p1", "0", Some("3")),
            ("1e4932", "1e4932", None),
        ] {
            let (Some(Long::Finite(one)), Some(Long::Finite(two))) =
                (long(one.as_bytes()), long(two.as_bytes()))
            else {
                panic!("{one} and {two} are numbers")
            };
            assert_eq!(one.plus(two).map(Extended::print).as_deref(), sum);
        }
        let Some(Long::Finite(large)) = long(b"1e400") else { panic!("it is a number") };
        assert!(
            large.print().starts_with("10000000000000000000281880683947586514586453433629052038")
        );
        assert_eq!(long(b"1e5000"), None);
        assert_eq!(long(b"1e-5000"), None);
        assert_eq!(long(b"inf"), Some(Long::Infinite));
    }
}
