//! Text reports of AWR and Statspack against what Oracle prints: a second reader, which knows
//! nothing of the importer's, takes the tables out of the lines. A word belongs to the column whose
//! dashes it stands under; the importer cuts lines at the ends of dashes instead.
//!
//! The reports in `oracle_layouts/*.lst` are made up, in the layouts of 11.2; nothing in them was
//! measured. `TIERSMITH_ORACLE_REPORTS=DIR` asks the same of every text report in a directory.

use crate::oracle_layouts::{CUT, LAYOUTS, ROUNDED, Sheet, html, judged_by, made};
use tiersmith_awr::import::parse;
use tiersmith_awr::{Interval, SnapshotId, compare, render, report};

/// What it is, its text, what the importer calls it, and fewer figures than both print.
const REPORTS: [(&str, &str, &str, usize); 2] = [
    (
        "AWR 11.2 in text",
        include_str!("../oracle_layouts/11.2-text.lst"),
        "AWR report in text",
        250,
    ),
    (
        "Statspack 11.2",
        include_str!("../oracle_layouts/statspack-11.2.lst"),
        "Statspack report",
        240,
    ),
];

/// Words of a line, each with where it begins and ends.
fn words(line: &str) -> Vec<(usize, usize, String)> {
    let mut words: Vec<(usize, usize, String)> = Vec::new();
    for (at, c) in line.chars().enumerate() {
        match words.last_mut() {
            Some((_, end, word)) if *end == at && c != ' ' => {
                *end = at + 1;
                word.push(c);
            }
            _ if c != ' ' => words.push((at, at + 1, c.to_string())),
            _ => {}
        }
    }
    words
}

fn is_rule(line: &str) -> bool {
    line.trim().len() > 3 && line.chars().all(|c| " -~".contains(c))
}

/// The words of a line under (or above) the dashes that they overlap most, or else are nearest to.
fn by_column(line: &str, dashes: &[(usize, usize, String)]) -> Vec<String> {
    let mut cells = vec![String::new(); dashes.len()];
    for (from, to, word) in words(line) {
        let far = |(begin, end, _): &(usize, usize, String)| {
            let overlap = to.min(*end) as i64 - from.max(*begin) as i64;
            -overlap
        };
        let nearest = (0..dashes.len()).min_by_key(|at| far(&dashes[*at])).unwrap();
        let cell = &mut cells[nearest];
        *cell = format!("{cell} {word}").trim().to_owned();
    }
    cells
}

/// What stands before two spaces.
fn name(line: &str) -> String {
    let line = line.trim();
    let end =
        [line.find("  "), line.find(" (CPUs")].into_iter().flatten().min().unwrap_or(line.len());
    line[..end].to_owned()
}

/// The heading of a page of the report.
fn heading(line: &str) -> Option<String> {
    let at = line.find("DB/Inst:").or_else(|| line.find("for DB:"))?;
    Some(line[..at].trim().to_owned())
}

fn sheets_of_text(text: &str) -> Vec<Sheet> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let (mut sheets, mut page): (Vec<Sheet>, String) = (Vec::new(), String::new());
    for (at, line) in lines.iter().enumerate() {
        if let Some(heading) = heading(line) {
            page = heading;
        }
        if line.trim_start().starts_with("Instance Efficiency") {
            sheets.push(in_pairs(&lines[at..]));
        }
        if ["Instance CPU", "Memory Statistics"].contains(line) && !is_rule(lines[at + 2]) {
            let mut sheet = Sheet { heading: (*line).to_owned(), ..Sheet::default() };
            if !lines[at + 1].contains('-') {
                sheet.rows.extend(lines[at + 2..].iter().map_while(by_last_colon));
                sheets.push(sheet);
                continue;
            }
        }
        let mut dashes = words(line);
        let mut underlined = None;
        if let [name, next, ..] = &mut dashes[..]
            && line.starts_with('~')
        {
            let words: String = lines[at - 1].chars().take(name.1).collect();
            underlined = Some(words.trim().to_owned());
            // Labels are longer than the underlined name that they stand below.
            name.1 = next.0 - 1;
        }
        if !is_rule(line) || dashes.len() < 2 {
            continue;
        }
        let is_title = |line: &str| {
            !line.is_empty() && !line.starts_with("->") && !is_rule(line) && heading(line).is_none()
        };
        let first = (0..at).rev().take_while(|above| is_title(lines[*above])).last().unwrap_or(at);
        let mut titles = vec![String::new(); dashes.len()];
        let mut own = None;
        for above in first..at {
            if lines[above].starts_with('~') {
                // What stands so far is the name of the table, and its end that of one before.
                own = Some(name(lines[above - 1]));
                titles.iter_mut().for_each(String::clear);
                continue;
            }
            for (title, cell) in titles.iter_mut().zip(by_column(lines[above], &dashes)) {
                let cell: Vec<&str> = cell.split(' ').filter(|word| !word.contains("--")).collect();
                *title = format!("{title} {}", cell.join(" ")).trim().to_owned();
            }
        }
        let pool =
            lines[first..at].iter().find(|line| line.trim().starts_with("Shared Pool Statistics"));
        let heading =
            underlined.or(pool.map(|line| name(line))).or(own).unwrap_or_else(|| page.clone());
        let mut sheet = Sheet { heading, columns: titles, ..Sheet::default() };
        rows(&mut sheet, &lines[at + 1..], &dashes);
        sheets.push(sheet);
    }
    sheets
}

/// Labels and figures that stand two pairs in a line.
fn in_pairs(lines: &[&str]) -> Sheet {
    let mut sheet = Sheet { heading: name(lines[0]), ..Sheet::default() };
    for line in lines[2..].iter().take_while(|line| line.contains(':')) {
        // A figure ends each pair.
        let mut label = Vec::new();
        for (_, _, word) in words(line) {
            match word.parse::<f64>() {
                Ok(_) => {
                    let name = label.join(" ").trim_end_matches(':').to_owned();
                    sheet.rows.push(vec![name, word]);
                    label = Vec::new();
                }
                Err(_) => label.push(word),
            }
        }
    }
    sheet
}

/// A label and its figures.
fn by_last_colon(line: &&str) -> Option<Vec<String>> {
    let (label, figures) = line.rsplit_once(':')?;
    let figures = figures.split_whitespace().map(str::to_owned);
    Some(std::iter::once(label.trim().to_owned()).chain(figures).collect())
}

/// A line with a second label and size behind the last dashes.
fn with_second_size(line: &str, dashes: &[(usize, usize, String)]) -> Vec<String> {
    let end = dashes.last().unwrap().1;
    let at = line.char_indices().nth(end).map_or(line.len(), |(at, _)| at);
    let (label, size) = line[at..].split_once(':').unwrap_or_default();
    let second = [format!("{}:", label.trim()), size.trim().to_owned()];
    by_column(&line[..at], dashes).into_iter().chain(second).collect()
}

/// A line with a label before the first dashes.
fn with_label(line: &str, dashes: &[(usize, usize, String)]) -> Vec<String> {
    let Some((label, _)) = line.rsplit_once(':') else { return by_column(line, dashes) };
    let rest = format!("{}{}", " ".repeat(label.len() + 1), &line[label.len() + 1..]);
    [vec![format!("{}:", label.trim())], by_column(&rest, dashes)].concat()
}

fn rows(sheet: &mut Sheet, lines: &[&str], dashes: &[(usize, usize, String)]) {
    let of_statements = sheet.heading.starts_with("SQL ordered by");
    let of_names =
        ["Tablespace IO", "File IO"].iter().any(|begin| sheet.heading.starts_with(begin));
    let ends = |line: &&&str| is_rule(line) || heading(line).is_some();
    let is_id = |cell: &str| cell.len() >= 10 && cell.chars().all(|c| c.is_ascii_alphanumeric());
    let mut names = Vec::new();
    for (at, line) in lines.iter().enumerate().take_while(|(_, line)| !ends(line)) {
        if lines.get(at + 1).is_some_and(|next| next.starts_with("~~~~")) {
            break;
        }
        let cells = match sheet.heading.as_str() {
            "Cache Sizes" => with_second_size(line, dashes),
            "Instance CPU" | "Shared Pool Statistics" => with_label(line, dashes),
            _ => by_column(line, dashes),
        };
        if of_statements {
            match cells.last().is_some_and(|id| is_id(id))
                && !cells[0].is_empty()
                && line.starts_with(' ')
            {
                true => sheet.rows.push([cells, vec![String::new(), String::new()]].concat()),
                false => {
                    let Some(row) = sheet.rows.last_mut() else { continue };
                    let width = row.len();
                    match line.strip_prefix("Module: ") {
                        Some(module) => row[width - 2] = module.to_owned(),
                        None => {
                            row[width - 1] =
                                format!("{} {}", row[width - 1], line.trim()).trim().to_owned()
                        }
                    }
                }
            }
        } else if of_names {
            match line.starts_with(' ') {
                _ if line.is_empty() => {}
                true => {
                    let row: Vec<String> =
                        std::mem::take(&mut names).into_iter().chain(cells).collect();
                    sheet.rows.push(row);
                }
                false => names = line.split_whitespace().map(str::to_owned).collect(),
            }
        } else if line.is_empty() {
            break;
        } else {
            sheet.rows.push(cells);
        }
    }
    if of_names {
        // The dashes under the names alone have no rows of their own.
        let width = sheet.rows.first().map_or(0, Vec::len);
        let known = sheet.columns.len();
        if width == known {
            sheet.rows.clear();
        }
        let front = ["Tablespace", "Filename"].map(str::to_owned);
        sheet.columns.splice(0..0, front.into_iter().take(width.saturating_sub(known)));
    }
}

#[test]
fn every_figure_of_a_text_report_that_both_print_is_the_same() {
    for (kind, text, called, at_least) in REPORTS {
        let imported = parse(text, kind).unwrap();
        assert_eq!((imported.kind, imported.whole), (called, true));
        let sheets = sheets_of_text(text);
        let (wrong, count) = judged_by(&sheets, &imported, ROUNDED);
        assert!(
            wrong.is_empty(),
            "{kind}: of {count} figures {} are wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        assert!(count > at_least, "{kind}: only {count} figures were compared");
        assert_eq!(imported.missed(), [""; 0], "{kind}");
        assert_eq!(imported.unknown, [""; 0], "{kind}");
        assert_eq!(imported.left_out, [""; 0], "{kind}");
        // What an administrator looks for first: summary tables and statements, each with all of
        // its rows.
        for (title, rows) in [
            ("Load Profile", 15),
            ("Instance Efficiency", 10),
            ("Host CPU", 1),
            ("Memory Statistics", 4),
            ("SQL ordered by CPU", 2),
            ("SQL ordered by Elapsed", 2),
            ("SQL ordered by Reads", 1),
            ("Tablespace IO Stats", 2),
            ("File IO Stats", 2),
            ("Buffer Pool Advisory", 3),
            ("Segments by Physical Reads", 2),
            ("Wait Event Histogram", 3),
        ] {
            let kept = imported.end.printed.iter().find(|table| table.title.starts_with(title));
            let kept = kept.unwrap_or_else(|| panic!("{kind}: {title} is not kept"));
            assert!(kept.rows.len() >= rows, "{kind}: {title} has {} rows", kept.rows.len());
        }
    }
}

#[test]
fn snapshots_have_the_numbers_that_oracle_printed_and_their_own_beside_them() {
    let pages = LAYOUTS.map(|(name, layout)| (name, html(&made(layout))));
    let texts = REPORTS.map(|(name, text, ..)| (name, text.to_owned()));
    for (name, text) in pages.into_iter().chain(texts) {
        let imported = parse(&text, name).unwrap();
        let of = Interval::between(&imported.begin, &imported.end).unwrap();
        assert_eq!(of.printed_numbers(), Some((100, 101)), "{name}");
        let of = of.with_ids(SnapshotId::new(7), SnapshotId::new(8));
        let made = report(&of);
        assert!(made.title.ends_with("Snaps: 100-101"), "{name}: {}", made.title);
        let csv = render::csv(&made);
        for line in [
            "Snapshots,Begin Snap:,Snap Id,,100\r",
            "Snapshots,End Snap:,Snap Id,,101\r",
            "Snapshots,Begin Snap:,In Repository,,7\r",
            "Snapshots,End Snap:,In Repository,,8\r",
        ] {
            assert!(csv.contains(line), "{name}: {line}");
        }
        let csv = render::csv(&compare(&of, &of));
        for line in ["1st),Begin Snap Id,,100\r", "2nd),End in Repository,,8\r"] {
            assert!(csv.contains(line), "{name}: {line} of {csv}");
        }
    }
    // Numbers are no quantities: they have no commas.
    let large = REPORTS[0].1.replacen("Begin Snap:       100 ", "Begin Snap:     24703 ", 1);
    let imported = parse(&large, "here").unwrap();
    let of = Interval::between(&imported.begin, &imported.end).unwrap();
    let text = render::text(&report(&of));
    assert!(text.contains("Snaps: 24703-101") && !text.contains("24,703"), "{text}");
}

#[test]
fn the_second_reader_finds_a_figure_of_a_text_report_that_is_wrong() {
    let (_, text, ..) = REPORTS[1];
    let sheets = sheets_of_text(text);
    let mut imported = parse(text, "here").unwrap();
    let wait = imported.end.waits.iter_mut().find(|wait| wait.name == "log file sync").unwrap();
    wait.total_ns += 2_000_000_000;
    let (wrong, _) = judged_by(&sheets, &imported, ROUNDED);
    assert!(wrong.iter().any(|line| line.contains("log file sync")), "{wrong:?}");
    let mut imported = parse(text, "here").unwrap();
    imported.end.printed.retain(|table| !table.title.starts_with("SQL ordered by Reads"));
    let (wrong, _) = judged_by(&sheets, &imported, ROUNDED);
    assert!(wrong.iter().any(|line| line.contains("SQL ordered by Reads: none of")), "{wrong:?}");
}

#[test]
fn the_text_reports_of_a_directory_are_judged_where_one_is_given() {
    let Some(dir) = std::env::var_os("TIERSMITH_ORACLE_REPORTS") else {
        println!(
            "skipped: real reports, because TIERSMITH_ORACLE_REPORTS names no directory of them"
        );
        return;
    };
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if text.to_lowercase().contains("<table") {
            continue;
        }
        let imported = parse(&text, &path.display().to_string()).unwrap();
        let (wrong, count) = judged_by(&sheets_of_text(&text), &imported, CUT);
        println!("{}: {count} figures, {} wrong", path.display(), wrong.len());
        assert!(wrong.is_empty(), "{}:\n{}", path.display(), wrong.join("\n"));
    }
}
