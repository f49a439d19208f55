//! Where Oracle's report has a finding of ADDM or an event that is much of DB time, ours has a
//! finding about it.
//!
//! The reports are those of `oracle_layouts.rs`, made up, with one cause added to each.
//! `TIERSMITH_ORACLE_REPORTS=DIR` asks the same of every HTML report in a directory.

use crate::oracle_layouts::{LAYOUTS, Sheet, html, made, sheets_of};
use tiersmith_awr::Interval;
use tiersmith_awr::findings::{Finding, findings};
use tiersmith_awr::import::parse;

/// What brings a finding of ADDM about, as a report prints it.
enum Cause {
    /// An event and its class, for a quarter of DB time.
    Event(&'static str, &'static str),
    /// A line of the time model, for a quarter of DB time.
    Time(&'static str),
    /// DB CPU for a quarter of DB time.
    Processors,
    /// Two statements for an eighth of DB time each.
    Statements,
    /// Nothing that a report prints.
    Unseen,
}
use Cause::{Event, Processors, Statements, Time, Unseen};

/// DB time in these reports.
const DB_TIME_S: f64 = 4_000.0;
const QUARTER: &str = "1,000.00";
const EIGHTH: &str = "500.00";

/// ADDM's names, what causes them, and the beginning of our finding.
const ADDM: [(&str, Cause, &[&str]); 28] = [
    (
        "Buffer Busy - Hot Block",
        Event("buffer busy waits", "Concurrency"),
        &["Sessions meet at the"],
    ),
    (
        "Buffer Busy - Hot Objects",
        Event("latch: cache buffers chains", "Concurrency"),
        &["Sessions meet at"],
    ),
    ("CPU Usage", Processors, &["Processor time is much", "Much of DB time is in no wait"]),
    (
        "Checkpoints Due to DROP or TRUNCATE",
        Event("enq: RO - fast object reuse", "Application"),
        &["Checkpoints of single tables"],
    ),
    (
        "Checkpoints Due to Log File Size",
        Event("log file switch (checkpoint incomplete)", "Configuration"),
        &["Requests wait for room"],
    ),
    ("Commits and Rollbacks", Event("log file sync", "Commit"), &["Commits wait for redo"]),
    (
        "Global Cache Congestion",
        Event("gc cr block congested", "Cluster"),
        &["Instances wait for each"],
    ),
    (
        "Global Cache Messaging",
        Event("gc current block 2-way", "Cluster"),
        &["Instances wait for each"],
    ),
    ("Hard Parse", Time("hard parse elapsed time"), &["Compiling statements"]),
    ("Hard Parse Due to Literal Usage", Time("hard parse elapsed time"), &["Compiling statements"]),
    ("I/O Throughput", Event("direct path read", "User I/O"), &["One wait event"]),
    (
        "Log File Switches",
        Event("log file switch completion", "Configuration"),
        &["Requests wait for room"],
    ),
    (
        "PGA_AGGREGATE_LIMIT Throttling",
        Event("acknowledge over PGA limit", "Scheduler"),
        &["The limit of PGA"],
    ),
    (
        "Row Lock Waits",
        Event("enq: TX - row lock contention", "Application"),
        &["Sessions wait for locks"],
    ),
    ("Sequence Usage", Event("enq: SQ - contention", "Configuration"), &["Sequences hold"]),
    (
        "Session Connect and Disconnect",
        Time("connection management call elapsed time"),
        &["Sessions connect"],
    ),
    (
        "Shared Pool Latches",
        Event("latch: shared pool", "Concurrency"),
        &["Sessions meet in the shared pool"],
    ),
    ("Soft Parse", Time("parse time elapsed"), &["Compiling statements"]),
    (
        "Space Transaction",
        Event("enq: HW - contention", "Configuration"),
        &["Sessions wait for space"],
    ),
    ("Streams Flow Control", Unseen, &["Oracle's ADDM found"]),
    ("Table Locks", Event("enq: TM - contention", "Application"), &["Sessions wait for locks"]),
    ("Top SQL Statements", Statements, &["A few statements are", "One statement is"]),
    ("Top Segments by \"User I/O\" and \"Cluster\"", Unseen, &["Oracle's ADDM found"]),
    ("Undersized PGA", Event("direct path write temp", "User I/O"), &["Sorts and hashes spill"]),
    ("Undo I/O", Unseen, &["Oracle's ADDM found"]),
    (
        "Unusual \"Network\" Wait Event",
        Event("SQL*Net more data from client", "Network"),
        &["Sessions wait for the network"],
    ),
    ("Unusual \"Other\" Wait Event", Event("latch free", "Other"), &["One wait event"]),
    (
        "\"User I/O\" wait Class",
        Event("cell smart table scan", "User I/O"),
        &["One wait event", "Waits of one class are"],
    ),
];

/// One more row, with a cell for each column that has one of these titles.
fn add(sheet: &mut Sheet, cells: &[(&[&str], &str)]) {
    let cell = |title: &String| {
        let found = cells.iter().find(|(titles, _)| titles.contains(&title.as_str()));
        found.map_or(String::new(), |(_, cell)| (*cell).to_owned())
    };
    sheet.rows.push(sheet.columns.iter().map(cell).collect());
}

/// The tables of a layout, with statements that take little.
fn sheets_with(titles: &str) -> Vec<Sheet> {
    let mut sheets = made(titles);
    for sheet in sheets.iter_mut().filter(|sheet| sheet.heading == STATEMENTS) {
        sheet.rows.iter_mut().for_each(|row| row[0] = "5.00".to_owned());
    }
    sheets
}

const STATEMENTS: &str = "SQL ordered by Elapsed Time";

/// Puts a cause into the tables that show it; whether the layout has such tables.
fn cause(sheets: &mut [Sheet], cause: &Cause) -> bool {
    let before = format!("{sheets:?}");
    put(sheets, cause);
    format!("{sheets:?}") != before
}

fn put(sheets: &mut [Sheet], cause: &Cause) {
    match cause {
        Unseen => {}
        Statements => {
            for sheet in sheets.iter_mut().filter(|sheet| sheet.heading == STATEMENTS) {
                sheet.rows.iter_mut().take(2).for_each(|row| row[0] = EIGHTH.to_owned());
            }
        }
        Event(name, class) => put_event(sheets, name, class),
        Time(name) => {
            let of_instances = match *name {
                "hard parse elapsed time" => "Hard Parse Ela (s)",
                "parse time elapsed" => "Parse Ela (s)",
                _ => "",
            };
            // A hard parse is a parse.
            let names = if of_instances.starts_with("Hard") {
                &[*name, "parse time elapsed"][..]
            } else {
                &[*name]
            };
            for sheet in sheets.iter_mut() {
                if sheet.heading == "Time Model Statistics" {
                    for name in names {
                        add(sheet, &[(&["Statistic Name"], name), (&["Time (s)"], QUARTER)]);
                    }
                }
                if sheet.heading == "Time Model" && !of_instances.is_empty() {
                    for title in [of_instances, "Parse Ela (s)"] {
                        let at = sheet.columns.iter().position(|column| column == title);
                        at.into_iter().for_each(|at| sheet.rows[0][at] = QUARTER.to_owned());
                    }
                }
            }
        }
        Processors => {
            for sheet in sheets.iter_mut() {
                let of_instances = (sheet.heading == "Time Model")
                    .then(|| sheet.columns.iter().position(|column| column == "DB CPU (s)"));
                if let Some(at) = of_instances.flatten() {
                    sheet.rows[0][at] = QUARTER.to_owned();
                }
                for row in &mut sheet.rows {
                    if row[0] == "DB CPU" && sheet.heading == "Time Model Statistics" {
                        row[1] = QUARTER.to_owned();
                    }
                }
            }
        }
    }
}

fn put_event(sheets: &mut [Sheet], name: &str, class: &str) {
    let foreground = |sheet: &&mut Sheet| sheet.heading.starts_with("Foreground Wait Events");
    for sheet in sheets.iter_mut().filter(foreground) {
        let same = sheet.rows.iter().position(|row| row.iter().any(|cell| cell == name));
        if let Some(at) = same {
            sheet.rows.remove(at);
        }
        let waits: [(&[&str], &str); 5] = [
            (&["Event"], name),
            (&["Class"], class),
            (&["Waits"], "200,000"),
            (&["Total Wait Time (s)", "Total(s)"], QUARTER),
            (&["%DB time", "% DB time"], "25.00"),
        ];
        add(sheet, &waits);
    }
    // What the class of an event is, the tables of top events say.
    for sheet in sheets.iter_mut().filter(|sheet| sheet.columns.contains(&"Wait Class".to_owned()))
    {
        if sheet.columns.contains(&"Event".to_owned()) {
            add(sheet, &[(&["Event"], name), (&["Wait Class"], class)]);
        }
    }
}

/// The table of ADDM's findings with this one, if the layout has one.
fn addm<'a>(sheets: &'a mut [Sheet], name: &str) -> Option<&'a mut Sheet> {
    let sheet =
        sheets.iter_mut().find(|sheet| sheet.columns.contains(&"Finding Name".to_owned()))?;
    sheet.rows.clear();
    let cells: [(&[&str], &str); 4] = [
        (&["Finding Name"], name),
        (&["Avg active sessions of the task"], "1.11"),
        (&["Percent active sessions of finding"], "25.00"),
        (&["Task Name"], "ADDM:1_1_101"),
    ];
    add(sheet, &cells);
    Some(sheet)
}

fn found(sheets: &[Sheet]) -> Vec<Finding> {
    let imported = parse(&html(sheets), "here").unwrap();
    let of = Interval::between(&imported.begin, &imported.end).unwrap();
    assert_eq!(of.db_time_ns.map(|ns| ns as f64 / 1e9), Some(DB_TIME_S));
    let found = findings(&of);
    assert!(!format!("{found:?}").contains('`'), "back-ticks are no English: {found:?}");
    found
}

fn names(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.name.as_str()).collect()
}

#[test]
fn each_finding_of_addm_has_one_of_ours_about_its_cause_and_else_is_passed_on() {
    let (mut layouts, mut causes) = (0, 0);
    for (layout, titles) in LAYOUTS {
        for (name, why, ours) in &ADDM {
            let mut sheets = sheets_with(titles);
            if addm(&mut sheets, name).is_none() {
                continue;
            }
            layouts += 1;
            let passed_on = format!("Oracle's ADDM found: {name}");
            let is_there = |found: &[Finding]| {
                let is_ours =
                    |finding: &Finding| ours.iter().any(|begin| finding.name.starts_with(begin));
                found.iter().any(is_ours)
            };
            let is_passed_on = |found: &[Finding]| names(found).contains(&passed_on.as_str());
            // Of a report that does not show the cause.
            let without = found(&sheets);
            assert!(is_there(&without) || is_passed_on(&without), "{layout}, {name}: {without:?}");
            let shown = cause(&mut sheets, why);
            let with = found(&sheets);
            if shown {
                assert!(is_there(&with), "{layout}, {name}: {:?}", names(&with));
                assert!(!is_passed_on(&with), "{layout}, {name}: twice");
            } else {
                assert!(is_passed_on(&with), "{layout}, {name}: {:?}", names(&with));
            }
            causes += usize::from(shown);
        }
    }
    assert_eq!(layouts, 3 * ADDM.len(), "layouts with findings of ADDM");
    assert!(causes >= 3 * (ADDM.len() - 6), "causes that a report shows: {causes}");
}

#[test]
fn each_event_above_a_fifth_of_db_time_is_named_by_a_finding_in_every_layout() {
    let others = [
        Event("db file sequential read", "User I/O"),
        Event("cell single block physical read", "User I/O"),
        Event("control file sequential read", "System I/O"),
        Event("Disk file Mirror Read", "User I/O"),
        Event("resmgr:cpu quantum", "Scheduler"),
        Event("Backup: MML write backup piece", "Administrative"),
        Event("Streams AQ: enqueue blocked on low memory", "Queueing"),
        Event("free buffer waits", "Configuration"),
        Event("an event of tomorrow", "Other"),
    ];
    for (layout, titles) in LAYOUTS {
        for why in ADDM.iter().map(|(_, why, _)| why).chain(&others) {
            let Event(name, _) = why else { continue };
            let mut sheets = sheets_with(titles);
            cause(&mut sheets, why);
            let found = found(&sheets);
            let is_named = |found: &[Finding]| {
                found.iter().any(|of| of.evidence.iter().any(|line| line.contains(name)))
            };
            assert!(is_named(&found), "{layout}, {name}: {found:#?}");
        }
    }
}

#[test]
fn two_events_above_a_fifth_that_no_rule_is_about_are_both_named() {
    let mut sheets = sheets_with(LAYOUTS[3].1);
    cause(&mut sheets, &Event("latch free", "Other"));
    cause(&mut sheets, &Event("control file sequential read", "System I/O"));
    let found = found(&sheets);
    for name in ["latch free", "control file sequential read"] {
        assert!(found.iter().any(|of| of.evidence[0].starts_with(name)), "{found:#?}");
    }
}

/// Names and shares in a table of a page, by the titles of the two columns.
fn rows(sheets: &[Sheet], name: &str, share: &[&str]) -> Vec<(String, f64)> {
    let mut rows = Vec::new();
    for sheet in sheets {
        let at = |title: &str| sheet.columns.iter().position(|column| column == title);
        let Some((name, share)) = at(name).zip(share.iter().find_map(|title| at(title))) else {
            continue;
        };
        if sheet.heading.starts_with("Background") || sheet.columns.contains(&"I#".to_owned()) {
            continue;
        }
        for row in &sheet.rows {
            let percent = row.get(share).and_then(|cell| cell.replace(',', "").parse().ok());
            rows.extend(row.get(name).cloned().zip(percent));
        }
    }
    rows
}

/// What a page says of ADDM and of events that none of our findings is about.
fn passed_over(page: &str, of: &Interval, found: &[Finding]) -> Vec<String> {
    let sheets = sheets_of(page);
    let mut missing = Vec::new();
    for (event, percent) in rows(&sheets, "Event", &["% DB time", "%DB time"]) {
        let is_named = found.iter().any(|of| of.evidence.iter().any(|line| line.contains(&event)));
        // Of a database that hardly does anything, nothing is much.
        let is_idle = of.active_sessions().is_some_and(|sessions| sessions < 0.02);
        if percent >= 20.05 && !is_named && !is_idle {
            missing.push(format!("event {event}: {percent} %"));
        }
    }
    for (name, percent) in rows(&sheets, "Finding Name", &["Percent active sessions of finding"]) {
        let ours = ADDM.iter().find(|(addm, ..)| name.starts_with(addm)).map(|(.., ours)| *ours);
        let ours = ours.unwrap_or_default();
        let is_about = |of: &Finding| {
            of.name == format!("Oracle's ADDM found: {name}")
                || ours.iter().any(|ours| of.name.starts_with(ours))
        };
        if !found.iter().any(is_about) {
            missing.push(format!("ADDM: {name}, {percent} %"));
        }
    }
    missing
}

#[test]
fn the_reports_of_a_directory_have_their_findings_where_one_is_given() {
    let Some(dir) = std::env::var_os("TIERSMITH_ORACLE_REPORTS") else {
        println!(
            "skipped: real reports, because TIERSMITH_ORACLE_REPORTS names no directory of them"
        );
        return;
    };
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let page = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if !page.to_lowercase().contains("<table") {
            continue;
        }
        let imported = parse(&page, &path.display().to_string()).unwrap();
        let of = Interval::between(&imported.begin, &imported.end).unwrap();
        let found = findings(&of);
        println!("{}:", path.display());
        for finding in &found {
            let percent = finding.impact_percent.unwrap_or(0.0);
            println!("  {percent:5.1} % {}: {}", finding.name, finding.evidence.join(" "));
        }
        let lines = passed_over(&page, &of, &found);
        missing.extend(lines.into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(missing.is_empty(), "passed over:\n{}", missing.join("\n"));
}
