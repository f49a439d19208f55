//! What others send: reports, snapshots, answers, addresses, statements; and what must hold of
//! each, whatever it is.
//!
//! `tests/it/hostile.rs` of the workload repository runs the same on seeded inputs in every build.

use tiersmith_awr::findings::findings;
use tiersmith_awr::sources::Address;
use tiersmith_awr::{Interval, Redaction, Snapshot, compare, import, render, report, resp};

/// What says when the interval of a text report was.
const TEXT_HEAD: &str = "\nBegin Snap:        100 24-Aug-26 10:00:00       50       1.5\n  End \
                         Snap:        101 24-Aug-26 10:10:00       52\n   DB time:      33.33 \
                         (mins)\n\n";

/// And of one in HTML.
const HTML_HEAD: &str = "<h1>WORKLOAD REPOSITORY report for</h1><table><tr><th></th><th>Snap \
                         Id</th><th>Snap Time</th></tr>\
<tr><td>Begin Snap:</td><td>1</td><td>24-Aug-26 10:00:00</td></tr><tr><td>End \
Snap:</td><td>2</td><td>24-Aug-26 10:10:00</td></tr>\
<tr><td>DB Time:</td><td>33.33 (mins)</td></tr></table>";

/// Imports a text; what can be read can be written, reported and compared, and no impact is over a
/// hundred per cent.
fn take(text: &str) {
    let Ok(imported) = import::parse(text, "here") else { return };
    let again = Snapshot::from_json(&imported.end.to_json(), "here")
        .expect("what was imported can be kept");
    assert_eq!(again, imported.end);
    let Ok(interval) = Interval::between(&imported.begin, &imported.end) else { return };
    for finding in findings(&interval) {
        assert!(
            finding.impact_percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)),
            "{finding:?}"
        );
        assert!(!finding.evidence.is_empty());
    }
    let text = render::text(&report(&interval));
    assert!(
        !text.contains("NaN") && !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert!(!render::html(&report(&interval)).contains("<script"));
    let _ = render::text(&compare(&interval, &interval));
}

/// A text behind the titles of text reports.
pub(crate) fn import_text(text: &str) {
    for title in ["STATSPACK report for\n", "WORKLOAD REPOSITORY report for\n"] {
        take(&format!("{title}{TEXT_HEAD}{text}"));
        take(&format!("{title}{text}"));
    }
}

/// A text in a page.
pub(crate) fn import_html(text: &str) {
    take(&format!("{HTML_HEAD}{text}"));
    take(&format!("<table>{text}"));
}

/// A snapshot file as it is, and a body with its checksum made right: an error, or a snapshot that
/// is written as it was read.
pub(crate) fn snapshot(text: &str) {
    // A checksum cannot be guessed by a fuzzer.
    let body = text.trim();
    let sum = xxhash_rust::xxh3::xxh3_64(body.as_bytes());
    let whole = format!(
        "{{\"kind\":\"tiersmith \
         snapshot\",\"format\":2,\"xxh3\":\"{sum:016x}\",\"snapshot\":{body}}}\n"
    );
    for text in [text, &whole] {
        let Ok(snapshot) = Snapshot::from_json(text, "here") else { continue };
        let again = Snapshot::from_json(&snapshot.to_json(), "here");
        assert_eq!(again.expect("what was read can be written and read"), snapshot);
        let mut later = snapshot.clone();
        later.monotonic_ns = later.monotonic_ns.saturating_add(1_000_000_000);
        if let Ok(interval) = Interval::between(&snapshot, &later) {
            let _ = render::text(&report(&interval));
            assert!(!render::html(&report(&interval)).contains("<script"));
            let _ = findings(&interval);
        }
    }
}

/// Answers of a Redis: each an error or a reply. Every reply takes at least a byte, so this ends.
pub(crate) fn resp(bytes: &[u8]) {
    let mut from = bytes;
    while !from.is_empty() && resp::receive(&mut from).is_ok() {}
}

/// What no text has by itself.
const SECRET: &str = "zq7xsecretx7qz";

/// An address is read or refused, and whatever follows the beginning of a password, the password is
/// not repeated.
pub(crate) fn address(text: &str) {
    if let Ok(address) = Address::parse(text) {
        let _ = address.shown();
    }
    for product in ["postgresql", "mysql", "redis"] {
        let said = match Address::parse(&format!("{product}://u:{SECRET}{text}@host/")) {
            Ok(address) => format!("{} {address:?}", address.shown()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains(SECRET), "{product}, {text:?}: {said}");
    }
}

/// No literal in a statement survives, whatever stands around it.
pub(crate) fn redaction(text: &str) {
    // What is looked for must not stand in the text itself, nor come to stand there by what is
    // taken out.
    let without = |mut text: String| {
        while ["secret", "918273645"].iter().any(|part| text.contains(part)) {
            text = text.replace("secret", "").replace("918273645", "");
        }
        text
    };
    let text = without(text.to_owned());
    let redact = |sql: &str| Redaction::Literals.statement(sql);
    assert!(redact(&text).chars().count() <= 2000);
    // Around it there is nothing that opens a literal or a comment of its own, which would make the
    // literal's end a beginning.
    let clean = without(text.chars().filter(|c| !"'\"`$\\/*#-".contains(*c)).collect());
    for literal in [
        format!("'{SECRET}'"),
        format!("$q${SECRET}$q$"),
        format!("'a''{SECRET}'"),
        format!("/* {SECRET} */"),
        format!("-- {SECRET}\n"),
        format!("E'\\'{SECRET}'"),
    ] {
        let sql = format!("select {clean} , {literal} , {clean}");
        assert!(!redact(&sql).contains(SECRET), "{sql}");
    }
    // Inside a literal nothing passes, whatever it is, if it is quoted as SQL quotes.
    let sql = format!("select '{}{SECRET}'", text.replace('\'', "''"));
    assert!(!redact(&sql).contains(SECRET), "{sql}");
    let sql = format!("select {clean} , 918273645 , {clean}");
    assert!(!redact(&sql).contains("918273645"), "{sql}");
}
