//! Settings with which a crash loses changes that were acknowledged, or damages the database.

use super::{Finding, setting};
use crate::{Interval, figure};

/// What a setting gives up.
struct Unsafe {
    name: &'static str,
    /// Values, in lower case, that do.
    values: &'static [&'static str],
    loses: &'static str,
    advice: &'static str,
}

pub(crate) const NAME: &str = "A crash can lose what was acknowledged";

const OFF: &[&str] = &["off", "0", "false", "no"];

const TORN: &str =
    "a power cut in the middle of writing a page leaves it torn, and recovery does not mend it";

const SETTINGS: [Unsafe; 9] = [
    Unsafe {
        name: "fsync",
        values: OFF,
        loses: "a crash of the system can damage the whole database",
        advice: "Set fsync = on. If commits are too slow then, synchronous_commit = off loses the \
                 last ones instead of the database.",
    },
    Unsafe {
        name: "full_page_writes",
        values: OFF,
        loses: TORN,
        advice: "Set full_page_writes = on, unless the storage writes a page all or nothing.",
    },
    Unsafe {
        name: "synchronous_commit",
        values: OFF,
        loses: "a crash loses commits of the last moments, which were acknowledged",
        advice: "Set synchronous_commit = on where a commit must not be lost; it can be turned off \
                 for single transactions.",
    },
    Unsafe {
        name: "innodb_flush_log_at_trx_commit",
        values: &["0", "2"],
        loses: "a crash of the system loses up to a second of commits, which were acknowledged",
        advice: "Set innodb_flush_log_at_trx_commit = 1.",
    },
    Unsafe {
        name: "innodb_doublewrite",
        values: &["off", "0"],
        loses: TORN,
        advice: "Set innodb_doublewrite = 1, unless the storage writes a page all or nothing.",
    },
    Unsafe {
        name: "commit_wait",
        values: &["nowait"],
        loses: "a crash loses commits of the last moments, which were acknowledged",
        advice: "Set commit_wait = wait (the default) where a commit must not be lost.",
    },
    Unsafe {
        name: "commit_write",
        values: &["nowait", "batch,nowait", "nowait,batch", "immediate,nowait", "nowait,immediate"],
        loses: "a crash loses commits of the last moments, which were acknowledged",
        advice: "Take commit_write away where a commit must not be lost.",
    },
    Unsafe {
        name: "_disable_logging",
        values: &["true"],
        loses: "no redo is written: a crash can damage the whole database",
        advice: "Take _disable_logging away.",
    },
    Unsafe {
        name: "synchronous",
        values: OFF,
        loses: "a crash of the system can damage the whole database",
        advice: "PRAGMA synchronous = FULL, or NORMAL with a WAL.",
    },
];

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let given_up: Vec<(&Unsafe, &str)> = SETTINGS
        .iter()
        .filter_map(|one| {
            let value = setting(of, one.name)?;
            let plain: String = value.to_lowercase().split_whitespace().collect();
            one.values.contains(&plain.as_str()).then_some((one, value))
        })
        .collect();
    if given_up.is_empty() {
        return None;
    }
    let mut evidence: Vec<String> = given_up
        .iter()
        .map(|(one, value)| format!("{} is {}: {}.", one.name, figure::visible(value), one.loses))
        .collect();
    evidence.push(match of.transactions().filter(|count| *count > 0) {
        Some(count) => format!("{} transactions ended so in the interval.", figure::count(count)),
        None => format!("So it was for {} s.", figure::number(of.elapsed_s())),
    });
    let advice: Vec<&str> = given_up.iter().map(|(one, _)| one.advice).collect();
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: None,
        evidence,
        advice: advice.join(" "),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn each_setting_is_named_with_what_it_gives_up_and_a_safe_one_is_not() {
        let of = |settings: &[(&str, &str)]| {
            let mut made = minute();
            for (name, value) in settings {
                made.end.source.settings.insert((*name).to_owned(), (*value).to_owned());
                made.begin.source.settings.insert((*name).to_owned(), (*value).to_owned());
            }
            find(&made.interval())
        };
        let found =
            of(&[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "on")])
                .expect("two");
        assert!(
            found.evidence[0].starts_with("fsync is off: ") && found.evidence.len() == 3,
            "{found:?}"
        );
        assert!(
            found.advice.contains("fsync = on") && !found.advice.contains("transactions."),
            "{found:?}"
        );
        for settings in [
            [("innodb_flush_log_at_trx_commit", "2")],
            [("innodb_doublewrite", "OFF")],
            [("commit_write", "BATCH, NOWAIT")],
            [("commit_wait", "NOWAIT")],
        ] {
            assert!(of(&settings).is_some(), "{settings:?}");
        }
        for settings in [
            [("fsync", "on")],
            [("fsync", "off (for this session alone)")],
            [("synchronous_commit", "remote_apply")],
            [("innodb_flush_log_at_trx_commit", "1")],
            [("commit_write", "")],
        ] {
            assert_eq!(of(&settings), None, "{settings:?}");
        }
    }
}
