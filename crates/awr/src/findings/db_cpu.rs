//! Much of Oracle's DB time is spent on processors, or in no wait event at all.
//!
//! Oracle lists DB CPU among its top events. Time that is neither DB CPU nor a wait belongs to
//! sessions that were ready to run and did not: nothing names it in the report.

use super::{Finding, cpu_bound, is_idle, is_oracle, of_db_time};
use crate::{Interval, figure};

/// Share of DB time from which on it must be spoken of, as of any event.
const LEAST_PERCENT: f64 = 20.0;

/// So many statements are named.
const NAMED: usize = 3;

pub(super) const NAME: &str = "Processor time is much of DB time";
pub(super) const UNNAMED: &str = "Much of DB time is in no wait event";

pub(super) fn find(of: &Interval) -> Option<Finding> {
    if !is_oracle(of) || is_idle(of) || cpu_bound::find(of).is_some() {
        return None;
    }
    let ns = of.db_cpu_ns?;
    let percent = of_db_time(of, ns).filter(|percent| *percent >= LEAST_PERCENT)?;
    let mut evidence = vec![format!(
        "DB CPU is {} % of DB time: {} processors on average.",
        figure::percent(percent),
        figure::number(ns as f64 / 1e9 / of.elapsed_s())
    )];
    evidence.extend(host(of));
    evidence.extend(statements(of));
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: "Look at the statements that use most of it (SQL ordered by CPU Time and by Gets: \
                 each block that is asked for costs processor time, in memory too). Faster storage \
                 helps only the rest of DB time."
            .to_owned(),
        tiersmith: None,
    })
}

/// What is left of DB time, where the report has all waits.
pub(super) fn find_unnamed(of: &Interval) -> Option<Finding> {
    // A report that lists its top events only leaves more than this.
    let all_waits = of.printed().iter().any(|table| table.title == "Foreground Wait Class");
    if !is_oracle(of) || is_idle(of) || !all_waits {
        return None;
    }
    let (time, cpu) = (of.db_time_ns?, of.db_cpu_ns?);
    let left = time.saturating_sub(cpu).saturating_sub(of.waited_ns());
    let percent = of_db_time(of, left).filter(|percent| *percent >= LEAST_PERCENT)?;
    let mut evidence = vec![format!(
        "DB CPU is {} % of DB time and waits are {} %, which leaves {} %: Oracle names no event \
         while a session waits for a processor.",
        figure::percent(of_db_time(of, cpu)?),
        figure::percent(of_db_time(of, of.waited_ns())?),
        figure::percent(percent)
    )];
    evidence.extend(host(of));
    Some(Finding {
        name: UNNAMED.to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: "Compare the load averages with the number of processors, and look for virtual \
                 machines that get less than they are told, limits of control groups, and paging. \
                 Other programs on the host can be the reason. Faster storage does not help."
            .to_owned(),
        tiersmith: None,
    })
}

/// How busy the host was, as the report prints it.
fn host(of: &Interval) -> Option<String> {
    let table = of.printed().iter().find(|table| table.title == "Host CPU")?;
    let cell = |title: &str| {
        let plain = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        let at = table.columns.iter().position(|column| plain(column) == plain(title))?;
        let cell = table.rows.first()?.get(at)?.as_str();
        (!cell.is_empty()).then(|| figure::visible(cell))
    };
    let idle = cell("%Idle")?;
    let load = cell("Load Average Begin")
        .zip(cell("Load Average End"))
        .map_or_else(String::new, |(begin, end)| {
            format!("; its load average was {begin} at first and {end} in the end")
        });
    let cpus = of.end.host.cpus.map_or(String::new(), |cpus| {
        format!(" of its {} processors", figure::count(u64::from(cpus.threads)))
    });
    Some(format!("The host was idle for {idle} %{cpus}{load}."))
}

/// The statements that used most processor time.
fn statements(of: &Interval) -> Option<String> {
    let table = of.printed().iter().find(|table| table.title.starts_with("SQL ordered by CPU"))?;
    let column = |wanted: &[&str]| {
        let plain = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        table.columns.iter().position(|column| wanted.contains(&plain(column).as_str()))
    };
    let (id, share) = (column(&["sqlid"])?, column(&["%total", "%totcpu"])?);
    let first: Vec<(&String, &String)> =
        table.rows.iter().filter_map(|row| row.get(id).zip(row.get(share))).take(NAMED).collect();
    // What each of them is a share of, the report says: of all the processor time. No sum: a block
    // of PL/SQL has the time of the statements in it as well.
    let shares = first.iter().filter_map(|(_, share)| share.trim().parse::<f64>().ok());
    let most =
        if shares.fold(0.0, f64::max) > 50.0 { "Most of it" } else { "The largest parts of it" };
    let named: Vec<String> =
        first.into_iter().map(|(id, share)| format!("{id} ({share} %)")).collect();
    (!named.is_empty())
        .then(|| figure::visible(&format!("{most}, by SQL id: {}.", named.join(", "))))
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::{Made, minute};
    use super::*;
    use crate::Printed;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn oracle(cpu_s: u64, waited_s: u64) -> Made {
        let mut made = minute().wait("direct path read", WaitClass::UserIo, false, 1000, waited_s);
        for snapshot in [&mut made.begin, &mut made.end] {
            snapshot.source.product = "Oracle".to_owned();
            snapshot.db_cpu_ns = Some(0);
        }
        made.end.db_cpu_ns = Some(cpu_s * 1_000_000_000);
        made.end.printed = vec![
            Printed {
                title: "Host CPU".to_owned(),
                columns: words(&["Load Average Begin", "Load Average End", "%Idle"]),
                rows: vec![words(&["28.41", "136.70", "81.9"])],
            },
            Printed {
                title: "SQL ordered by CPU Time".to_owned(),
                columns: words(&["CPU Time (s)", "%Total", "SQL Id"]),
                rows: vec![words(&["30.1", "51.5", "abc"]), words(&["2", "3.4", "def"])],
            },
            Printed { title: "Foreground Wait Class".to_owned(), ..Printed::default() },
        ];
        made
    }

    #[test]
    fn processor_time_of_a_fifth_is_spoken_of_and_the_host_and_the_statements_are_named() {
        let found = find(&oracle(40, 60).interval()).expect("processor time");
        assert_eq!(found.impact_percent, Some(40.0));
        assert!(found.evidence[0].contains("DB CPU is 40.0 %"), "{found:?}");
        assert!(found.evidence[1].contains("idle for 81.9 %"), "{found:?}");
        assert_eq!(found.evidence[2], "Most of it, by SQL id: abc (51.5 %), def (3.4 %).");
        let mut little = oracle(40, 60);
        little.end.printed[1].rows[0][1] = "6.2".to_owned();
        let found = find(&little.interval()).expect("processor time");
        assert_eq!(
            found.evidence[2],
            "The largest parts of it, by SQL id: abc (6.2 %), def (3.4 %)."
        );
        assert_eq!(find(&oracle(19, 81).interval()), None);
        let full = oracle(90, 10).busy(99);
        assert_eq!(find(&full.interval()), None, "the processors are the limit: said elsewhere");
        let mut idle = oracle(1, 0);
        idle.end.db_time_ns = Some(1_000_000_000);
        assert_eq!(find(&idle.interval()), None, "a sixtieth of a session");
        let mut other = oracle(40, 60);
        for snapshot in [&mut other.begin, &mut other.end] {
            snapshot.source.product = "MariaDB".to_owned();
        }
        assert_eq!(find(&other.interval()), None);
    }

    #[test]
    fn time_that_no_event_names_is_spoken_of_where_the_report_has_all_waits() {
        let found = find_unnamed(&oracle(14, 11).interval()).expect("a rest of 75 %");
        assert_eq!(found.impact_percent, Some(75.0));
        assert!(found.evidence[0].contains("leaves 75.0 %"), "{found:?}");
        assert!(found.evidence[1].contains("136.70 in the end"), "{found:?}");
        assert_eq!(find_unnamed(&oracle(50, 31).interval()), None);
        let mut top_only = oracle(14, 11);
        top_only.end.printed.pop();
        assert_eq!(find_unnamed(&top_only.interval()), None, "other waits may be the rest");
    }
}
