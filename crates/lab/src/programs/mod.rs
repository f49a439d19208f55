//! What load programs print, read: pgbench, sysbench, redis-benchmark, memtier_benchmark, fio.
//!
//! One program a file, each with an output that the program really printed (`fixtures/`). To add
//! one, copy `memtier.rs`.
//!
//! **Invariant**: an output that is cut, empty, or has no number where one must be is an error that
//! shows its last lines; it is no figure, and no panic.
//! **Deliberately absent**: running them (`target/server/program.rs`, `probe/beside.rs`).

pub(crate) mod fio;
pub(crate) mod memtier;
pub(crate) mod pgbench;
pub(crate) mod redis_benchmark;
pub(crate) mod sysbench;

use crate::error::Error;
use crate::run::Latency;

/// Characters of what a program printed that an error shows.
const SHOWN: usize = 600;
/// No figure of these programs is larger.
const LARGEST: f64 = 1e15;

/// What a program found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) transactions: u64,
    pub(crate) statements: u64,
    pub(crate) elapsed_s: f64,
    /// Of a transaction; of requests that are mixed, of a request.
    pub(crate) latency: Latency,
    /// Of what is a transaction of its own, where the program tells: SET.
    pub(crate) commit: Latency,
    /// Of what only reads, where the program tells: GET.
    pub(crate) select: Latency,
}

/// A figure is missing, or is none.
fn no_figure(program: &str, printed: &str) -> Error {
    let from = printed.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
    let last: Vec<&str> = printed.get(from..).unwrap_or_default().lines().map(str::trim).collect();
    let last = last.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ");
    let shown = if last.is_empty() { "nothing was printed".into() } else { last };
    Error::Target {
        what: "reading what the load printed".into(),
        database: program.into(),
        reason: format!("a figure is missing; its last lines: {shown}"),
    }
}

/// What can be a figure: neither negative, nor infinite, nor NaN.
fn figure(value: f64) -> Option<f64> {
    (0.0..=LARGEST).contains(&value).then_some(value)
}

/// The first number behind a text. One at the very end may have been cut, and is none.
fn number_after(printed: &str, text: &str) -> Option<f64> {
    let rest = printed.split_once(text)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    rest.get(..end)?.parse().ok().and_then(figure)
}

/// Milliseconds in nanoseconds.
fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every beginning of an output that a program printed is read or refused.
    pub(super) fn cut_anywhere<T>(printed: &str, read: impl Fn(&str) -> Result<T, Error>) {
        for at in (0..printed.len()).filter(|at| printed.is_char_boundary(*at)) {
            let _ = read(&printed[..at]);
        }
        for hostile in ["", "\n\n", "NaN", "{}", "[]", "null", "\u{0}\u{ff}", "1e999"] {
            assert!(read(hostile).is_err(), "{hostile:?} was taken for an output");
        }
    }

    #[test]
    fn what_is_no_figure_is_none() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 1e16] {
            assert_eq!(figure(value), None);
        }
        assert_eq!(number_after("tps = 12.5 (x)", "tps = "), Some(12.5));
        for text in ["tps = nan", "tps = -1", "tps = 1.2.3 ", "tps = ", "tps = 12", "rate = 1 "] {
            assert_eq!(number_after(text, "tps = "), None, "{text}");
        }
        assert_eq!(number_after(&format!("tps = {} ", "9".repeat(400)), "tps = "), None);
    }

    #[test]
    fn an_error_shows_the_last_lines_and_says_when_there_are_none() {
        let long = format!("{}\nFATAL: the last line\n", "x\n".repeat(2000));
        let error = no_figure("sysbench", &long).to_string();
        assert!(error.contains("FATAL: the last line") && error.len() < 1500, "{error}");
        assert!(no_figure("fio", " \n").to_string().contains("nothing was printed"));
    }
}
