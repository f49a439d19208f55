//! What reports show over time: areas of active sessions, heat maps of latencies, their tables,
//! restarts, and how large a page gets.
//!
//! `TIERSMITH_PAGES=DIR` keeps the pages in a directory, to look at.

use crate::fixture::day::{Day, snapshots};
use crate::reports::keep_page;
use tiersmith_awr::page::{Chart, OverTime};
use tiersmith_awr::{
    Cell, Interval, Item, Report, Snapshot, Table, Timeline, compare, render, report,
};

fn over(all: &[Snapshot]) -> Interval {
    Interval::between(&all[0], all.last().unwrap()).unwrap().with_timeline(timeline(all))
}

fn timeline(all: &[Snapshot]) -> Timeline {
    Timeline::of_snapshots(all)
}

fn charts(report: &Report) -> Vec<&Chart> {
    let items = report.sections.iter().flat_map(|section| &section.items);
    items
        .filter_map(|item| if let Item::Chart(chart) = item { Some(chart) } else { None })
        .collect()
}

fn areas(report: &Report) -> Vec<(&OverTime, usize)> {
    let areas = charts(report).into_iter();
    areas
        .filter_map(|chart| {
            if let Chart::Area { of, series, .. } = chart { Some((of, series.len())) } else { None }
        })
        .collect()
}

fn table<'a>(report: &'a Report, caption: &str) -> &'a Table {
    let items = report.sections.iter().flat_map(|section| &section.items);
    let mut tables =
        items.filter_map(|item| if let Item::Table(table) = item { Some(table) } else { None });
    tables.find(|table| table.caption == caption).unwrap_or_else(|| panic!("no table `{caption}`"))
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(value) | Cell::Seconds(value) | Cell::Nanoseconds(value) => *value,
        Cell::Count(value) => *value as f64,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_areas_add_up_to_db_time_and_their_figures_are_in_a_table() {
    let all = snapshots(Day::default());
    let interval = over(&all);
    let report = report(&interval);
    let found = areas(&report);
    assert_eq!(found.len(), 2, "one measured, one sampled");
    let (measured, series) = found[0];
    let active = |slot: &tiersmith_awr::page::TimeSlot| slot.values.iter().sum::<f64>();
    let sum: f64 = measured
        .slots
        .iter()
        .map(|slot| active(slot) * (slot.to_unix_ns - slot.from_unix_ns) as f64)
        .sum();
    let db_time = interval.db_time_ns.unwrap() as f64;
    assert!((sum / db_time - 1.0).abs() < 1e-9, "{sum} of {db_time}");
    for (chart, series) in [(measured, series), found[1]] {
        let table = table(&report, &chart.title);
        assert_eq!(table.rows.len(), chart.slots.len());
        for (row, slot) in table.rows.iter().zip(&chart.slots) {
            let values: Vec<f64> = row[3..3 + series].iter().map(number).collect();
            assert_eq!(values, slot.values);
        }
    }
    let sampled = all.last().unwrap().sampling.clone().unwrap();
    let looks = sampled.looks as f64;
    let seen: u64 =
        sampled.events.iter().filter(|event| event.class == "CPU").map(|event| event.seen).sum();
    // Slots of one length have as many looks.
    let mean: f64 = found[1].0.slots.iter().map(|slot| slot.values[0]).sum::<f64>()
        / found[1].0.slots.len() as f64;
    assert!((mean - seen as f64 / looks).abs() < 1e-9);
    assert!(measured.title.contains("measured") && found[1].0.title.contains("sampled"));
}

#[test]
fn the_heat_maps_count_every_wait_once() {
    let interval = over(&snapshots(Day { minutes: 200, ..Day::default() }));
    let report = report(&interval);
    let mut maps = 0;
    for chart in charts(&report) {
        let Chart::Heat { of, buckets } = chart else { continue };
        maps += 1;
        let name =
            of.title.strip_prefix("Latency of ").unwrap().strip_suffix(" over time").unwrap();
        let name = name.strip_suffix(" (bg)").unwrap_or(name);
        let waits = interval.waits.iter().find(|wait| wait.name == name).unwrap().count;
        let drawn: f64 = of.slots.iter().flat_map(|slot| &slot.values).sum();
        assert_eq!(drawn as u64, waits, "{name}");
        assert!(of.slots.iter().all(|slot| slot.values.len() == buckets.len()));
        let table = table(&report, of.title.strip_suffix(" over time").unwrap());
        assert_eq!(table.rows.iter().map(|row| number(&row[2])).sum::<f64>(), drawn);
    }
    assert_eq!(maps, 4);
}

#[test]
fn a_restart_is_a_gap_with_its_reason_and_no_figure_is_negative() {
    let all = snapshots(Day { minutes: 120, restart: Some(50), ..Day::default() });
    // The counters of the ends do not belong together: the interval is of what came after, the line
    // of all.
    let interval = Interval::between(&all[50], &all[120]).unwrap().with_timeline(timeline(&all));
    let report = report(&interval);
    let (measured, _) = areas(&report)[0];
    let minute = 60_000_000_000;
    let gap = &measured.gaps[0];
    assert_eq!((measured.gaps.len(), gap.to_unix_ns - gap.from_unix_ns), (1, minute));
    assert!(gap.reason.contains("run 1") && gap.reason.contains("run 2"), "{}", gap.reason);
    let from = measured.slots[0].from_unix_ns;
    assert_eq!(gap.from_unix_ns - from, 49 * minute);
    assert!(
        measured
            .slots
            .iter()
            .all(|slot| slot.to_unix_ns <= gap.from_unix_ns || slot.from_unix_ns >= gap.to_unix_ns)
    );
    assert!(measured.slots.iter().flat_map(|slot| &slot.values).all(|value| *value >= 0.0));
    let listed = table(&report, "Times of Which Nothing Is Known");
    assert_eq!((listed.rows.len(), number(&listed.rows[0][1])), (1, 60.0));
    assert!(render::html(&report).contains("class=\"gap\""));
}

#[test]
fn what_the_source_did_not_tell_for_a_while_is_a_hole_and_not_a_dip() {
    let mut all = snapshots(Day { minutes: 30, ..Day::default() });
    // A view that timed out once: neither of the two steps at this snapshot tells DB time. Then the
    // waits were not told.
    (all[10].db_time_ns, all[10].db_cpu_ns) = (None, None);
    all[20].waits.clear();
    for snapshot in &mut all {
        snapshot.partial.insert("waits".to_owned());
    }
    let interval = over(&all);
    let report = report(&interval);
    let (measured, _) = areas(&report)[0];
    let begins: Vec<u64> = measured
        .gaps
        .iter()
        .map(|gap| (gap.from_unix_ns - all[0].taken_unix_ns) / 60_000_000_000)
        .collect();
    assert_eq!(begins, [9, 10, 19, 20], "{:?}", measured.gaps);
    assert!(
        measured.gaps[0].reason.contains("DB time")
            && measured.gaps[2].reason.contains("the waits")
    );
    assert_eq!(measured.slots.len(), 26);
    let listed = table(&report, &measured.title);
    assert!(
        listed.rows.len() == 26 && listed.notes.iter().any(|note| note.contains("4 slots")),
        "{:?}",
        listed.notes
    );
    // Where nothing is missing the parts are the DB time of the step.
    for slot in &measured.slots {
        assert!(slot.values.iter().sum::<f64>() > 0.3, "{slot:?}");
    }
}

#[test]
fn samples_that_are_far_from_what_was_measured_say_so() {
    let mut all = snapshots(Day::default());
    // Lines of text are broken anywhere.
    let said = |all: &[Snapshot]| {
        let text = render::text(&report(&over(all)));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        [text.contains("further from the samples"), text.contains("fewer than the samples saw")]
    };
    assert_eq!(said(&all), [false, true], "the made-up samples see more than the made-up load has");
    let last = all.len() - 1;
    let measured = over(&all).active_sessions().unwrap();
    all[last].sampling.as_mut().unwrap().events.truncate(1);
    for (seen, expected) in [(1.0, [false, false]), (0.3, [true, false]), (3.0, [false, true])] {
        let sampling = all[last].sampling.as_mut().unwrap();
        sampling.events[0].seen = (seen * measured * sampling.looks as f64).round() as u64;
        assert_eq!(said(&all), expected, "{seen} times as many as were measured");
    }
}

#[test]
fn two_intervals_are_drawn_on_one_scale_and_axes_of_one_length() {
    let first = over(&snapshots(Day::default()));
    let second = over(&snapshots(Day { minutes: 30, slower: 3, ..Day::default() }));
    let report = compare(&first, &second);
    let found = areas(&report);
    assert_eq!(found.len(), 4, "measured and sampled of both");
    for pair in [&found[..2], &found[2..]] {
        assert_eq!((pair[0].0.top, pair[0].0.length_ns), (pair[1].0.top, pair[1].0.length_ns));
        assert!(
            pair[0].0.title.starts_with("First (1st): ")
                && pair[1].0.title.starts_with("Second (2nd): ")
        );
        for (chart, _) in pair {
            assert_eq!(table(&report, &chart.title).rows.len(), chart.slots.len());
        }
    }
    keep_page("over-time-compare.html", &render::html(&report));
}

#[test]
fn a_day_of_snapshots_with_many_statements_and_files_is_a_page_below_two_mebibytes() {
    let large =
        Day { minutes: 1_440, statements: 5_000, files: 10_000, restart: None, ..Day::default() };
    let first = over(&snapshots(large));
    let second = over(&snapshots(Day { slower: 2, minutes: 300, ..large }));
    for (name, report) in
        [("day.html", report(&first)), ("day-compare.html", compare(&first, &second))]
    {
        let html = render::html(&report);
        keep_page(name, &html);
        assert!(html.len() < 2 << 20, "{name}: {} bytes", html.len());
        for text in ["4,980 more", "9,960 more"] {
            let files_of_two = name.contains("compare") && text == "9,960 more";
            assert!(
                files_of_two || html.contains(text),
                "{name} says how much it leaves out: {text}"
            );
        }
        for line in render::text(&report).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn without_snapshots_in_between_nothing_is_drawn_over_time() {
    let all = snapshots(Day { minutes: 1, ..Day::default() });
    let report = report(&over(&all));
    assert!(areas(&report).is_empty() && !render::text(&report).contains("Activity Over Time"));
}

#[test]
fn reads_and_writes_are_added_up_by_function_and_file_type_and_lose_nothing() {
    let interval = over(&snapshots(Day::default()));
    let report = report(&interval);
    let read: u64 = interval.io.iter().map(|io| io.read_bytes).sum();
    let written: u64 = interval.io.iter().map(|io| io.write_bytes).sum();
    for caption in ["IOStat by Function", "IOStat by Filetype"] {
        let table = table(&report, caption);
        let column =
            |title: &str| table.columns.iter().position(|column| column.title == title).unwrap();
        let sum = |title: &str| {
            let cells = table
                .rows
                .iter()
                .map(|row| if let Cell::Bytes(value) = row[column(title)] { value } else { 0.0 });
            cells.sum::<f64>()
        };
        assert_eq!(
            (sum("Reads: Data"), sum("Writes: Data")),
            (read as f64, written as f64),
            "{caption}"
        );
    }
    let functions: Vec<String> =
        table(&report, "IOStat by Function").rows.iter().map(|row| row[0].shown()).collect();
    for name in ["Buffer Cache Reads", "DBWR", "Writes by Sessions"] {
        assert!(functions.iter().any(|found| found == name), "{functions:?}");
    }
}

#[test]
fn a_hostile_name_stays_text_on_a_page_with_charts() {
    let evil = "</title></svg><script>alert(1)</script><img src=x onerror=\"alert(2)\">";
    let mut all = snapshots(Day { minutes: 20, name: evil, ..Day::default() });
    for of in &mut all {
        of.waits[0].name = evil.to_owned();
        for event in of
            .sampling
            .as_mut()
            .unwrap()
            .events
            .iter_mut()
            .filter(|event| event.name.starts_with("IO: W"))
        {
            evil.clone_into(&mut event.name);
        }
    }
    all[10].source.instance = evil.to_owned();
    let interval = Interval::between(&all[0], &all[20]).unwrap().with_timeline(timeline(&all));
    for report in [report(&interval), compare(&interval, &interval)] {
        let html = render::html(&report);
        assert!(
            !html.contains("<script") && !html.contains("<img") && !html.contains("onerror=\"")
        );
        assert_eq!(html.to_lowercase().matches("<script").count(), 1, "the page's own");
        let again: Report = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(again, report);
    }
}
