//! Reports of snapshots with known numbers: their text to the letter, and what must hold of all
//! three forms.
//!
//! The expected texts are in `tests/expected/`. `TIERSMITH_BLESS=1 cargo test -p tiersmith-awr`
//! writes them anew. `TIERSMITH_PAGES=DIR` keeps the HTML pages in a directory, to look at.

use std::path::Path;

use crate::fixture::{at_home, home_interval, on_tier, tier_interval};
use tiersmith_awr::{
    Cell, Interval, IoStat, Item, Report, Snapshot, SnapshotId, Source, Table, compare, render,
    report,
};

fn expect(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("TIERSMITH_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "lines of {}", path.display());
}

/// Keeps a page to be looked at, in the directory that `TIERSMITH_PAGES` names.
pub(crate) fn keep_page(name: &str, html: &str) {
    if let Some(dir) = std::env::var_os("TIERSMITH_PAGES") {
        std::fs::write(Path::new(&dir).join(name), html).unwrap();
    }
}

fn table<'a>(report: &'a Report, caption: &str) -> &'a Table {
    let items = report.sections.iter().flat_map(|section| &section.items);
    let mut tables = items.filter_map(|item| match item {
        Item::Table(table) if table.caption.starts_with(caption) => Some(table),
        _ => None,
    });
    tables.next().unwrap_or_else(|| panic!("there is no table `{caption}`"))
}

fn row<'a>(table: &'a Table, name: &str) -> &'a [Cell] {
    let row = table.rows.iter().find(|row| row[0].shown() == name);
    row.unwrap_or_else(|| panic!("`{}` has no row `{name}`", table.caption))
}

fn percents(table: &Table, column: usize) -> Vec<f64> {
    let cells = table.rows.iter().map(|row| &row[column]);
    cells
        .map(|cell| if let Cell::Percent(value) = cell { *value } else { panic!("{cell:?}") })
        .collect()
}

/// All text of a report's data, to compare with what its forms show.
fn cells(report: &Report) -> impl Iterator<Item = &Cell> {
    let items = report.sections.iter().flat_map(|section| &section.items);
    items
        .flat_map(|item| if let Item::Table(table) = item { &table.rows[..] } else { &[] })
        .flatten()
}

#[test]
fn the_report_of_known_snapshots_is_known_to_the_letter() {
    let home = home_interval().with_ids(SnapshotId::new(1), SnapshotId::new(2));
    let (home, tier) = (report(&home), report(&tier_interval()));
    keep_page("home.html", &render::html(&home));
    keep_page("tier.html", &render::html(&tier));
    expect("home.txt", &render::text(&home));
    expect("tier.txt", &render::text(&tier));
}

#[test]
fn the_comparison_of_known_snapshots_is_known_to_the_letter() {
    let report = compare(&home_interval(), &tier_interval());
    keep_page("compare.html", &render::html(&report));
    expect("compare.txt", &render::text(&report));
}

#[test]
fn no_line_of_a_report_is_wider_than_a_hundred_columns() {
    for report in [
        report(&home_interval()),
        report(&tier_interval()),
        compare(&home_interval(), &tier_interval()),
    ] {
        for line in render::text(&report).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn where_db_time_went_adds_up_to_a_hundred_per_cent() {
    for interval in [home_interval(), tier_interval()] {
        let report = report(&interval);
        let account = table(&report, "Where DB Time Went");
        let (last, parts) = account.rows.split_last().unwrap();
        assert_eq!(last[2], Cell::Percent(100.0));
        let parts: f64 = parts
            .iter()
            .map(|row| if let Cell::Percent(value) = row[2] { value } else { 0.0 })
            .sum();
        assert!((parts - 100.0).abs() < 1e-9, "{parts}");
    }
    let report = compare(&home_interval(), &tier_interval());
    for column in [4, 5] {
        let shares = percents(table(&report, "Where DB Time Went"), column);
        let (last, parts) = shares.split_last().unwrap();
        assert!((parts.iter().sum::<f64>() - last).abs() < 1e-9 && *last == 100.0, "{shares:?}");
    }
}

#[test]
fn a_wait_inside_another_is_counted_once_where_times_are_added_up() {
    let interval = tier_interval();
    let free = interval.wait("free buffer waits").unwrap().total_ns;
    let all: u64 = interval.foreground().iter().map(|wait| wait.total_ns).sum();
    assert_eq!(interval.waited_ns(), all - free);
    let report = report(&interval);
    let account = table(&report, "Where DB Time Went");
    assert_eq!(
        row(account, "less: waits inside other waits")[1],
        Cell::Seconds(-(free as f64) / 1e9)
    );
    assert_eq!(row(table(&report, "Top 10"), "free buffer waits *")[3], Cell::Nanoseconds(49e6));
}

#[test]
fn processor_time_inside_waits_is_said_and_not_hidden() {
    let (begin, mut end) = on_tier();
    // All of DB time on a processor, and yet waits: on memory-mapped media a wait is work.
    end.db_cpu_ns = end.db_time_ns;
    let report = report(&Interval::between(&begin, &end).unwrap());
    let account = table(&report, "Where DB Time Went");
    assert!(matches!(row(account, "less: processor time inside waits, at least")[1],
        Cell::Seconds(s) if s < 0.0));
    assert!(account.notes[0].contains("memory-mapped"));
}

#[test]
fn shares_of_every_histogram_add_up_to_a_hundred_per_cent() {
    for interval in [home_interval(), tier_interval()] {
        let report = report(&interval);
        let items = report.sections.iter().flat_map(|section| &section.items);
        let mut rows = 0;
        for item in items {
            let Item::Table(table) = item else { continue };
            if table.caption.starts_with("Wait Event Histogram") {
                for row in &table.rows {
                    let sum: f64 = row[2..]
                        .iter()
                        .map(|cell| if let Cell::Percent(value) = cell { *value } else { 0.0 })
                        .sum();
                    assert!((sum - 100.0).abs() < 1e-9, "{row:?}");
                    rows += 1;
                }
            }
        }
        assert!(rows > 5);
    }
}

#[test]
fn the_load_profile_is_the_counters_by_seconds_and_by_transactions() {
    let report = report(&home_interval());
    let profile = table(&report, "Load Profile");
    assert_eq!(row(profile, "Transactions")[1], Cell::Number(1_000.0 / 60.0));
    assert_eq!(row(profile, "Redo size (bytes)")[2], Cell::Number(4_096.0));
    assert_eq!(row(profile, "DB Time(s)")[2], Cell::Number(0.02));
    assert_eq!(row(profile, "Executes (SQL)")[3], Cell::Number(1.0));
    assert!(
        profile.rows.iter().all(|row| row[0].shown() != "Logical read (pages)"),
        "nobody counted logical reads"
    );
}

#[test]
fn idle_and_background_waits_are_not_in_db_time() {
    let interval = home_interval();
    assert!(interval.foreground().iter().all(|wait| wait.name != "client has nothing to ask"));
    let report = report(&tier_interval());
    assert!(
        table(&report, "Top 10").rows.iter().all(|row| row[0].shown() != "db file parallel write")
    );
    assert_eq!(
        row(table(&report, "Background Wait Events"), "db file parallel write")[6],
        Cell::Percent(100.0)
    );
}

#[test]
fn an_event_missing_on_one_side_is_compared_as_nothing_there() {
    let mut home = home_interval();
    home.waits.retain(|wait| wait.name != "tier block write" && wait.name != "free buffer waits");
    let mut tier = tier_interval();
    tier.waits.retain(|wait| wait.name != "db file sequential read");
    let report = compare(&home, &tier);
    let events = table(&report, "Foreground Wait Events");
    let new = row(events, "tier block write");
    assert_eq!((&new[3], &new[5], &new[6]), (&Cell::Number(0.0), &Cell::text("new"), &Cell::Empty));
    let gone = row(events, "db file sequential read");
    assert_eq!(
        (&gone[4], &gone[5], &gone[7]),
        (&Cell::Number(0.0), &Cell::Percent(-100.0), &Cell::Empty)
    );
    let top = table(&report, "Top Timed Events");
    assert_eq!(row(top, "db file sequential read")[2], Cell::text("-"));
}

#[test]
fn a_source_without_waits_transactions_and_db_time_still_gets_a_report() {
    let source = Source { instance: "i".to_owned(), database: "d".to_owned(), ..Source::default() };
    let (begin, end) = (Snapshot::at(source.clone(), 0, 0), Snapshot::at(source, 1, 1));
    let interval = Interval::between(&begin, &end).unwrap();
    let (single, both) = (report(&interval), compare(&interval, &interval));
    for report in [&single, &both] {
        assert!(render::text(report).contains("does not tell DB time"), "{}", render::text(report));
        assert!(
            !render::html(report).contains("NaN")
                && !render::text(report).contains("NaN")
                && !render::text(report).contains("inf")
        );
        let again: Report = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(&again, report);
    }
}

#[test]
fn an_interval_without_waits_has_no_division_by_zero() {
    let (mut begin, mut end) = at_home();
    end.waits = begin.waits.clone();
    begin.waits.retain(|wait| wait.name != "never");
    end.db_time_ns = begin.db_time_ns;
    let interval = Interval::between(&begin, &end).unwrap();
    for report in [report(&interval), compare(&interval, &home_interval())] {
        assert!(
            !render::text(&report).contains("NaN")
                && !render::html(&report).contains("NaN")
                && !render::html(&report).contains("inf%")
        );
        assert!(cells(&report).count() > 20);
    }
}

#[test]
fn emulated_media_are_labelled_in_every_form() {
    let (tier, both) = (report(&tier_interval()), compare(&home_interval(), &tier_interval()));
    for report in [&tier, &both] {
        assert!(
            render::text(report).contains("* EMULATED: the medium of fast (file in /dev/shm)"),
            "{}",
            render::text(report)
        );
        assert!(render::html(report).contains("role=\"note\"><strong>EMULATED"));
        assert!(report.json().contains("\"EMULATED: "));
        let media = table(report, "Media");
        assert!(media.rows.iter().flatten().any(|cell| cell.shown() == "EMULATED"));
    }
    assert!(!render::text(&report(&home_interval())).contains("EMULATED"));
}

#[test]
fn every_event_is_explained_and_said_whose_name_it_is() {
    let report = report(&tier_interval());
    let explained = table(&report, "Wait Events Explained");
    for wait in &tier_interval().waits {
        let row = row(explained, &wait.name);
        assert!(!row[3].shown().is_empty(), "{row:?}");
    }
    assert_eq!(row(explained, "log file sync")[2].shown(), "Oracle");
    assert_eq!(row(explained, "tier block write")[2].shown(), "own");
}

#[test]
fn more_processor_time_than_db_time_is_said() {
    let of = |cpu_s: u64| {
        let mut interval = home_interval();
        interval.db_time_ns = Some(10_000_000_000);
        interval.db_cpu_ns = Some(cpu_s * 1_000_000_000);
        render::text(&report(&interval)).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(of(12).contains("DB CPU is 120.0 % of DB time"), "{}", of(12));
    assert!(!of(9).contains("% of DB time, more than all of it"), "{}", of(9));
}

#[test]
fn hostile_names_stay_text_in_every_form() {
    let evil = "<script>alert(1)</script>\u{1b}]0;x\u{7}\"' onload=x";
    let (mut begin, mut end) = on_tier();
    for (at, snapshot) in [(1, &mut begin), (2, &mut end)] {
        for text in [
            &mut snapshot.source.database,
            &mut snapshot.source.product,
            &mut snapshot.source.version,
            &mut snapshot.source.path,
            &mut snapshot.source.instance,
        ] {
            evil.clone_into(text);
        }
        snapshot.source.settings.insert(evil.to_owned(), evil.to_owned());
        snapshot.waits[1].name = evil.to_owned();
        snapshot.waits[1].help = evil.to_owned();
        snapshot.counters[0].name = evil.to_owned();
        snapshot.counters[0].unit = evil.to_owned();
        snapshot.levels[0].name = evil.to_owned();
        snapshot.add_io(IoStat {
            file_class: evil.to_owned(),
            tier: evil.to_owned(),
            reads: at,
            ..IoStat::default()
        });
        snapshot.media[0].name = evil.to_owned();
        snapshot.media[0].kind = evil.to_owned();
        snapshot.host.name = Some(evil.to_owned());
        snapshot.host.platform = Some(evil.to_owned());
        snapshot.host.missing = vec![evil.to_owned()];
        snapshot.host.disks.as_mut().unwrap()[0].name = evil.to_owned();
    }
    let interval = Interval::between(&begin, &end).unwrap().labelled(evil);
    for report in [report(&interval), compare(&interval, &interval)] {
        let html = render::html(&report);
        assert!(
            !html.contains("<script") && !html.contains("\" onload") && !html.contains('\u{1b}')
        );
        assert!(html.contains("&lt;script&gt;"));
        assert!(
            !render::text(&report).contains('\u{1b}') && !render::text(&report).contains('\u{7}')
        );
        for line in render::text(&report).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        let again: Report = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(again, report);
    }
}

#[test]
fn the_json_form_holds_the_report_and_the_snapshots_it_was_made_from() {
    let (begin, end) = at_home();
    let json: serde_json::Value = serde_json::from_str(&report(&home_interval()).json()).unwrap();
    assert_eq!((&json["kind"], &json["format"]), (&"tiersmith report".into(), &1.into()));
    let snapshots: Vec<Snapshot> = serde_json::from_value(json["snapshots"].clone()).unwrap();
    assert_eq!(snapshots, [begin, end]);
}

#[test]
fn the_page_is_well_formed_and_has_one_script() {
    for report in [
        report(&home_interval()),
        report(&tier_interval()),
        compare(&home_interval(), &tier_interval()),
    ] {
        let html = render::html(&report);
        assert_tags_are_closed(&html);
        assert!(!html.contains("<script") && !html.contains("src="));
        assert_eq!(
            html.to_lowercase().matches("<script").count(),
            1,
            "the page's own, which sorts tables"
        );
        assert_eq!(html.matches("<table").count(), html.matches("<caption").count());
        assert_eq!(
            html.matches("<figure").count(),
            html.matches("role=\"img\" aria-label").count()
        );
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "an id is there twice");
    }
}

/// Every tag that is opened is closed in order; `<` and `>` are nowhere else after the style sheet.
fn assert_tags_are_closed(html: &str) {
    let (_, body) = html.split_once("</style>").unwrap();
    let mut open = vec!["html", "head"];
    for tag in body.split('<').skip(1) {
        let (tag, rest) = tag.split_once('>').unwrap();
        assert!(!rest.contains('>'), "{rest}");
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_opens_with_figures_and_findings_that_link_to_their_sections() {
    let report = report(&home_interval());
    let html = render::html(&report);
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text} on the page"));
    assert!(
        at("<nav") < at("class=\"tiles\"") && at("class=\"tiles\"") < at("id=\"findings\""),
        "{html}"
    );
    assert!(at("id=\"findings\"") < at("id=\"section1\""), "findings come before the tables");
    let opening = &html[at("class=\"tiles\"")..at("id=\"section1\"")];
    for label in ["DB time", "Active sessions", "Transactions", "Top wait"] {
        assert!(
            opening.contains(&format!("<span>{label}</span>")),
            "no tile of {label}: {opening}"
        );
    }
    let top =
        opening.split("<span>Top wait</span>").nth(1).unwrap().split("</div>").next().unwrap();
    assert!(top.contains(" % of DB time, "), "the top wait says how much it is: {top}");
    let links: Vec<&str> =
        opening.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!links.is_empty(), "{opening}");
    assert!(links.iter().all(|link| html.contains(&format!("id=\"{link}\""))), "{links:?}");
    // What stands in the opening is not on the page twice, and the text report has it all the same.
    assert!(
        !html.contains("<caption>What To Do</caption>")
            && render::text(&report).contains("What To Do")
    );
    assert_eq!(html.matches("<summary>What the columns mean</summary>").count(), 1);
    // Explanations are on hover, and a finding has the colour of how much it matters.
    assert!(html.contains(" title=\"Time waited by waits.\""), "{html}");
    assert!(opening.contains("<section class=\"finding high\">"), "{opening}");
    let compared = render::html(&compare(&home_interval(), &tier_interval()));
    assert!(compared.contains("class=\"figure diff\""), "%Diff stays in view on a phone");
}
