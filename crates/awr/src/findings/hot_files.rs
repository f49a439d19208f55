//! A few tables or files are most of what is read from storage: they would fit where storage is
//! fast.

use tiersmith_events::WaitClass;

use super::{Finding, attach, of_db_time, sampled_share};
use crate::interval::page_bytes;
use crate::snapshot::known::statistic;
use crate::{FileStat, Interval, figure};

/// Share of DB time in reads of data from which on it is worth saying.
const LEAST_PERCENT: f64 = 10.0;

/// The files named are at least this share of what was read.
const MOST_OF_READS: f64 = 0.5;

/// More files than this are not a few.
const FEW: usize = 10;

/// Less read than this says little.
const LEAST_BYTES: u64 = 8 << 20;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let (named, share, timed) = hot(of)?;
    let names = [
        "db file sequential read",
        "db file scattered read",
        "db file parallel read",
        "direct path read",
    ];
    let waits = of.foreground().into_iter().filter(|wait| names.contains(&wait.name.as_str()));
    let ns = waits.fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns));
    let (reads, how) = match of_db_time(of, ns).filter(|percent| *percent > 0.0) {
        Some(percent) => {
            (percent, format!("Reads of data are {} % of DB time.", figure::percent(percent)))
        }
        None => {
            let (percent, seen) = sampled_share(of, WaitClass::UserIo)?;
            let of_sightings = format!("{} % of {}", figure::percent(percent), figure::count(seen));
            (
                percent,
                format!(
                    "In {of_sightings} sightings (sampled, not measured) a session waited for data."
                ),
            )
        }
    };
    if reads < LEAST_PERCENT {
        return None;
    }
    let what = if timed {
        "the time of reads of files"
    } else {
        "the bytes read (reads are not timed by table)"
    };
    let these = match (of.files.len(), named.len()) {
        (all, 1) => format!("One of the {} files listed is", figure::count(all as u64)),
        (all, files) => format!("{files} of the {} files listed are", figure::count(all as u64)),
    };
    let mut evidence =
        vec![how, format!("{these} {} % of {what}.", figure::percent(share * 100.0))];
    evidence.extend(named.iter().map(|file| row(file)));
    let sizes: Option<Vec<u64>> = named.iter().map(|file| file.bytes).collect();
    let size =
        sizes.map(|sizes| sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)));
    let size =
        size.map_or(String::new(), |bytes| format!(" (about {})", figure::bytes(bytes as f64)));
    Some(Finding {
        name: "A few files are most of what is read".to_owned(),
        impact_percent: Some((reads * share).min(100.0)),
        evidence,
        advice: format!(
            "If they are on slow storage, put {}{size} where storage is fast (a tablespace of \
             their own, or a tier), or give them room in \
             the page cache. The impact is their part of the reads, and what of it a faster medium \
             saves is not measured.",
            match named.len() {
                1 => "this one file".to_owned(),
                files => format!("these {files} files"),
            }
        ),
        tiersmith: attach(
            of,
            "what is read again is kept in the fast tier; tiersmith pin HOME PATTERN keeps these \
             files there for good",
        ),
    })
}

/// The few files that are most of the reads, their share of all, and whether it is one of time.
fn hot(of: &Interval) -> Option<(Vec<&FileStat>, f64, bool)> {
    let timed = !of.files.is_empty() && of.files.iter().all(|file| file.read_ns.is_some());
    let weight = |file: &FileStat| if timed { file.read_ns.unwrap_or(0) } else { file.read_bytes };
    let listed = of.files.iter().fold(0, |sum: u64, file| sum.saturating_add(weight(file)));
    let bytes = of.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.read_bytes));
    // What other files were read, the list does not have; the sum over all of them, the source
    // counts elsewhere.
    let all = if timed {
        let io =
            of.io.iter().filter(|io| io.file_class == "innodb/innodb_data_file" && !io.untimed);
        io.map(|io| io.read_ns).reduce(u64::saturating_add)?
    } else {
        of.counter(statistic::PHYSICAL_READS)?.saturating_mul(page_bytes(of))
    };
    let all = all.max(listed);
    if bytes < LEAST_BYTES || all == 0 {
        return None;
    }
    let mut files: Vec<&FileStat> = of.files.iter().collect();
    files.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.id.cmp(&b.id)));
    let mut sum = 0u64;
    let enough = files.iter().take(FEW).position(|file| {
        sum = sum.saturating_add(weight(file));
        sum as f64 >= all as f64 * MOST_OF_READS
    })?;
    files.truncate(enough + 1);
    Some((files, sum as f64 / all as f64, timed))
}

fn row(file: &FileStat) -> String {
    let name = figure::visible(&file.name);
    let read = figure::bytes(file.read_bytes as f64);
    match file.read_ns {
        Some(ns) => format!(
            "{name}: {read} read in {}, {} for each MiB.",
            figure::nanoseconds(ns as f64),
            figure::nanoseconds(ns as f64 / (file.read_bytes.max(1) as f64 / 1_048_576.0))
        ),
        None => format!("{name}: {read} read."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::IoStat;

    fn of(seconds: u64, sizes: &[u64], others: u64) -> Option<Finding> {
        let mut made = minute()
            .wait("db file sequential read", WaitClass::UserIo, false, 1000, seconds)
            .counter(statistic::PHYSICAL_READS, (sizes.iter().sum::<u64>() + others) * 128);
        let file = |(at, mib): (usize, &u64)| FileStat {
            id: at.to_string(),
            name: format!("public.t{at}"),
            bytes: Some(1 << 30),
            read_bytes: mib << 20,
            read_ns: None,
        };
        made.end.files = sizes.iter().enumerate().map(file).collect();
        find(&made.interval())
    }

    #[test]
    fn it_names_the_few_tables_that_are_most_of_the_reads() {
        let found = of(40, &[60, 20, 10], 10).expect("it speaks");
        assert_eq!(found.impact_percent.map(f64::round), Some(24.0), "60 % of 40 %");
        assert!(
            found.evidence.iter().any(|line| line.contains("public.t0")),
            "{:?}",
            found.evidence
        );
        assert!(
            found.evidence.iter().any(|line| line.contains("not timed by table")),
            "{:?}",
            found.evidence
        );
        assert!(found.advice.contains("one file (about 1.0 GiB)"), "{}", found.advice);
        assert_eq!(of(5, &[60, 20, 10], 10), None, "reads are not much of DB time");
        assert_eq!(of(40, &[60, 20, 10], 1000), None, "most reads are of other files");
        assert_eq!(of(40, &[5; 30], 0), None, "no few of them are most");
        assert_eq!(of(40, &[1], 0), None, "little was read");
        assert_eq!(of(40, &[], 50), None, "nothing is told by table");
    }

    #[test]
    fn time_that_is_measured_for_each_file_comes_before_bytes() {
        let mut made = minute().wait("db file sequential read", WaitClass::UserIo, false, 1000, 50);
        let file = |id: &str, mib: u64, seconds: u64| FileStat {
            id: id.to_owned(),
            name: id.to_owned(),
            bytes: None,
            read_bytes: mib << 20,
            read_ns: Some(seconds * 1_000_000_000),
        };
        made.end.files = vec![file("d/slow.ibd", 10, 40), file("d/large.ibd", 100, 10)];
        let io = |read_ns| IoStat {
            file_class: "innodb/innodb_data_file".to_owned(),
            tier: "home".to_owned(),
            read_ns,
            ..IoStat::default()
        };
        made.begin.add_io(io(0));
        made.end.add_io(io(50_000_000_000));
        let found = find(&made.interval()).expect("it speaks");
        assert_eq!(found.impact_percent.map(f64::round), Some(40.0));
        assert!(found.evidence[2].contains("4.00s for each MiB"), "{:?}", found.evidence);
        assert!(!found.advice.contains("about"), "no size is told: {}", found.advice);
    }
}
