//! Statistics of commands and errors: INFO `commandstats`, `errorstats` and `latencystats`.
//!
//! A command's counters are found by its row in the table, without a look-up, and its time comes
//! from the one reading of the counter that each command has anyway. A command with subcommands is
//! counted by them (`config|set`), as in Redis. CONFIG RESETSTAT begins anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use tiersmith_events::Histogram;
use tiersmith_pmem::Ticks;

use super::{Arguments, Row, TABLE, subcommands, word};

/// Codes of errors that are counted: a script can make up any number of them.
const CODES_MAX: usize = 128;
/// Bytes of such a code, as in Redis: what is longer, or all there is, counts as `ERR`.
const CODE_MAX: usize = 30;

/// The first step of a histogram that is shown, in nanoseconds, as in Redis.
const STEP_NS: u64 = 1024;

/// What became of the calls of one command.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) calls: u64,
    /// Ticks of those that the histogram does not hold.
    ticks: u64,
    rejected: u64,
    failed: u64,
    /// In ticks, which are made nanoseconds when somebody asks: that takes another reading.
    times: Histogram,
}

impl Calls {
    /// Whether times were measured.
    pub(super) fn is_measured(&self) -> bool {
        self.times.max_ns().is_some()
    }

    /// How many calls took at most how many nanoseconds, for steps that double.
    pub(super) fn steps(&self, ticks: &Ticks) -> Vec<(u64, u64)> {
        let (mut steps, mut seen): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for bucket in self.times.buckets() {
            seen += bucket.count;
            let most = ticks.duration(bucket.end_ns).as_nanos() as u64;
            let mut step = STEP_NS;
            while step < most {
                step = step.saturating_mul(2);
            }
            match steps.last_mut() {
                Some((last, count)) if *last >= step => *count = seen,
                _ => steps.push((step, seen)),
            }
        }
        steps
    }
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// By row, and behind the rows by subcommand.
    all: Vec<Calls>,
    /// By row: where its subcommands begin, or 0.
    subcommands: Vec<usize>,
    errors: BTreeMap<String, u64>,
    /// Error replies that a command has been blamed for.
    blamed: u64,
}

impl Default for Statistics {
    fn default() -> Statistics {
        let mut count = TABLE.len();
        let subcommands = TABLE
            .iter()
            .map(|row| {
                let first = count;
                let all = subcommands::of(row.name).map_or(0, <[_]>::len);
                count += all;
                if all == 0 { 0 } else { first }
            })
            .collect();
        let all = std::iter::repeat_with(Calls::default).take(count).collect();
        Statistics { all, subcommands, errors: BTreeMap::new(), blamed: 0 }
    }
}

/// Which row of the table it is.
#[inline]
fn number(row: &Row) -> usize {
    let from = std::ptr::from_ref(row).addr().wrapping_sub(TABLE.as_ptr().addr());
    from / size_of::<Row>()
}

impl Statistics {
    /// The counters of a command.
    #[inline]
    fn of(&mut self, row: &Row, args: &Arguments<'_>) -> Option<&mut Calls> {
        let row_number = number(row);
        let at = match self.subcommands.get(row_number) {
            Some(0) | None => row_number,
            Some(first) => first + place(row, args)?,
        };
        self.all.get_mut(at)
    }

    /// A command begins, before which there were so many error replies.
    #[inline]
    pub(super) fn begin(&mut self, errors: u64) {
        self.blamed = errors;
    }

    /// The command that runs has failed by an error that was counted for another one.
    #[cold]
    pub(super) fn fails(&mut self) {
        self.blamed = self.blamed.wrapping_sub(1);
    }

    /// A command has run; how many error replies there were until now says whether it failed: each
    /// is counted for the innermost command that it belongs to.
    #[inline]
    pub(super) fn ran(
        &mut self,
        row: &Row,
        args: &Arguments<'_>,
        ticks: u64,
        (errors, track): (u64, bool),
    ) {
        let failed = errors != self.blamed;
        self.blamed = errors;
        let Some(calls) = self.of(row, args) else { return };
        calls.calls += 1;
        calls.failed += u64::from(failed);
        if track {
            calls.times.record(ticks);
        } else {
            calls.ticks += ticks;
        }
    }

    /// A command that waited got nothing.
    pub(super) fn waited(&mut self, row: &Row, args: &Arguments<'_>, failed: bool) {
        let Some(calls) = self.of(row, args) else { return };
        calls.calls += 1;
        calls.failed += u64::from(failed);
    }

    /// A command was not let run.
    pub(super) fn reject(&mut self, row: &Row, args: &Arguments<'_>) {
        if let Some(calls) = self.of(row, args) {
            calls.rejected += 1;
        }
    }

    /// Counts an error reply by its first word.
    pub(super) fn note_error(&mut self, text: &str) {
        // Ends of lines are blanks in a reply.
        let first = text.split([' ', '\r', '\n']).next().unwrap_or_default();
        let is_code = first.len() < text.len() && first.len() <= CODE_MAX;
        // A script's error may have anything in it, which must not look like a figure of INFO.
        let plain = |at: char| if matches!(at, '#' | ':') { '_' } else { at };
        let code: String = match is_code {
            true => first.chars().map(plain).collect(),
            false => "ERR".to_owned(),
        };
        if let Some(count) = self.errors.get_mut(&code) {
            *count += 1;
        } else if self.errors.len() < CODES_MAX {
            self.errors.insert(code, 1);
        }
    }

    /// Commands that were called or rejected, with their names.
    pub(super) fn commands(&self) -> impl Iterator<Item = (String, &Calls)> {
        TABLE
            .iter()
            .enumerate()
            .flat_map(|(at, row)| self.of_row(at, row))
            .filter(|(_, calls)| calls.calls + calls.rejected + calls.failed > 0)
    }

    /// Those of a command and its subcommands, or of one subcommand, that were called.
    pub(super) fn named(&self, name: &str) -> Vec<(String, &Calls)> {
        let of = name.split('|').next().unwrap_or_default();
        let row = TABLE.iter().enumerate().find(|(_, row)| row.name == of);
        let all = row.map(|(at, row)| self.of_row(at, row)).unwrap_or_default();
        let fits = |one: &(String, &Calls)| of == name || one.0 == name;
        all.into_iter().filter(|one| fits(one) && one.1.is_measured()).collect()
    }

    fn of_row(&self, at: usize, row: &Row) -> Vec<(String, &Calls)> {
        let own = self.all.get(at).map(|calls| (row.name.to_owned(), calls));
        let first = self.subcommands.get(at).copied().unwrap_or(0);
        let below = subcommands::of(row.name).unwrap_or_default().iter().zip(first..);
        let below = below.filter_map(|((name, _), at)| {
            Some((format!("{}|{name}", row.name), self.all.get(at)?))
        });
        own.into_iter().chain(below).collect()
    }

    /// The lines of INFO `commandstats`.
    pub(super) fn command_lines(&self, ticks: &Ticks) -> Vec<(String, String)> {
        let line = |(name, calls): (String, &Calls)| {
            let took = ticks.duration(calls.ticks + calls.times.total_ns());
            let us = took.as_micros() as u64;
            let each = if calls.calls == 0 { 0.0 } else { us as f64 / calls.calls as f64 };
            let (count, rejected, failed) = (calls.calls, calls.rejected, calls.failed);
            let text = format!(
                "calls={count},usec={us},usec_per_call={each:.2},rejected_calls={rejected},\
                 failed_calls={failed}"
            );
            (format!("cmdstat_{name}"), text)
        };
        self.commands().map(line).collect()
    }

    /// The lines of INFO `errorstats`.
    pub(super) fn error_lines(&self) -> Vec<(String, String)> {
        let line = |(code, count): (&String, &u64)| {
            (format!("errorstat_{code}"), format!("count={count}"))
        };
        self.errors.iter().map(line).collect()
    }

    /// The lines of INFO `latencystats`, with these percentiles.
    pub(super) fn latency_lines(&self, percentiles: &str, ticks: &Ticks) -> Vec<(String, String)> {
        let measured = self.commands().filter(|(_, calls)| calls.is_measured());
        let line = |(name, calls): (String, &Calls)| {
            let mut text = String::new();
            for percentile in percentiles.split_ascii_whitespace() {
                let share = percentile.parse::<f64>().unwrap_or(0.0) / 100.0;
                let took = ticks.duration(calls.times.quantile_ns(share).unwrap_or(0));
                let us = took.as_nanos() as f64 / 1000.0;
                let comma = if text.is_empty() { "" } else { "," };
                // Writing to a string does not fail.
                let _ = write!(text, "{comma}p{percentile}={us:.3}");
            }
            (format!("latency_percentiles_usec_{name}"), text)
        };
        measured.map(line).collect()
    }
}

/// Which of its subcommands a command names.
fn place(row: &Row, args: &Arguments<'_>) -> Option<usize> {
    let name = word(args.get(1)?);
    subcommands::of(row.name)?.iter().position(|(known, _)| *known == name)
}

/// Percentiles as the setting has them: numbers from 0 to 100, written as shortly as they can be.
pub(super) fn percentiles(text: &str) -> Option<String> {
    let one = |word: &str| {
        let number = word.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number))?;
        Some(number.to_string())
    };
    let all: Option<Vec<String>> = text.split_ascii_whitespace().map(one).collect();
    all.map(|all| all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_and_subcommand_has_counters_of_its_own() {
        let mut all = Statistics::default();
        for row in TABLE {
            let names = subcommands::of(row.name).unwrap_or_default();
            let lines: Vec<Vec<&[u8]>> = match names {
                [] => vec![vec![row.name.as_bytes()]],
                names => names.iter().map(|one| vec![&b"x"[..], one.0.as_bytes()]).collect(),
            };
            for args in lines {
                all.ran(row, &args, 3, (0, true));
            }
        }
        let called: Vec<u64> = all.commands().map(|(_, calls)| calls.calls).collect();
        assert!(called.iter().all(|calls| *calls == 1), "{called:?}");
        let parents = TABLE.iter().filter(|row| subcommands::of(row.name).is_some()).count();
        assert_eq!(called.len(), all.all.len() - parents);
        for row in TABLE {
            assert_eq!(TABLE[number(row)].name, row.name);
        }
    }

    #[test]
    fn codes_of_errors_are_bounded_and_percentiles_are_read() {
        let mut all = Statistics::default();
        (0..1000).for_each(|n| all.note_error(&format!("CODE{n} some words")));
        all.note_error("CODE7 again");
        assert_eq!(all.errors.len(), CODES_MAX);
        assert_eq!(all.errors["CODE7"], 2);
        let mut all = Statistics::default();
        for text in ["ALONE", "", " blank", &format!("{} b", "x".repeat(31))] {
            all.note_error(text);
        }
        all.note_error("INJ\r\nfake:1");
        all.note_error("A:B=c#d e");
        let codes: Vec<&str> = all.errors.keys().map(String::as_str).collect();
        assert_eq!(codes, ["", "A_B=c_d", "ERR", "INJ"]);
        assert_eq!(percentiles("0.0 50.0 99.90 100").as_deref(), Some("0 50 99.9 100"));
        assert_eq!(percentiles(""), Some(String::new()));
        for wrong in ["10 a", "101", "-1", "NaN"] {
            assert_eq!(percentiles(wrong), None, "{wrong}");
        }
    }
}
