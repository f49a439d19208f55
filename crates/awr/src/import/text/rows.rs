//! Rows of text reports that take several lines, and figures that stand in no table.
//!
//! ```text
//!  Elapsed Time (s)   Executions    SQL Id          Tablespace
//!  ---------------- ------------ -------------      ------------------------------
//!             700.5      600,000 0abcdefghijkl               Reads   Av Rds/s
//!  Module: app                                      -------------- ----------
//!  update t set a = 1                               USERS
//!  where id = 7                                             12,000       20.0
//! ```
//!
//! Invariant: as many rows as `super` allows; what does not fit a table is not guessed.

use super::super::{Grid, MOST_ROWS};
use super::{cells, heading, is_rule};

/// The longest text of a statement that is kept together.
const LONGEST_TEXT: usize = 16 << 10;

/// Reads the rows of a table whose rows take several lines, from the line `at`; where they end.
/// Nothing if it is another table.
pub(super) fn of_several_lines(
    lines: &[&str],
    at: usize,
    spans: &[(usize, usize)],
    grid: &mut Grid,
) -> Option<usize> {
    let section = grid.section.to_lowercase();
    if section.starts_with("sql ordered by") {
        return Some(statements(lines, at, spans, grid));
    }
    let names: &[&str] = match section {
        of if of.starts_with("tablespace io") => &["Tablespace"],
        of if of.starts_with("file io") => &["Tablespace", "Filename"],
        _ => return None,
    };
    // The first line of dashes is below the names only; figures have a second one.
    let is_below_names = grid.columns.first().is_some_and(|title| title == names[0]);
    if is_below_names && names.len() == spans.len() {
        return Some(at);
    }
    (!is_below_names).then(|| named(lines, at, spans, grid, names))
}

/// Rows of figures, each with the text of its statement on the lines below.
fn statements(lines: &[&str], mut at: usize, spans: &[(usize, usize)], grid: &mut Grid) -> usize {
    let figures = grid.columns.len();
    grid.columns.extend(["SQL Module", "SQL Text"].map(str::to_owned));
    while let Some(line) = lines.get(at).filter(|line| !is_rule(line) && heading(line).is_none()) {
        at += 1;
        let found = cells(line, spans);
        let text = line.trim();
        if are_figures_and_a_number(&found) {
            if grid.rows.len() >= MOST_ROWS {
                break;
            }
            grid.rows.push(found.into_iter().chain([String::new(), String::new()]).collect());
        } else if let Some(row) = grid.rows.last_mut().filter(|_| !text.is_empty()) {
            match text.strip_prefix("Module:") {
                Some(module) if row[figures].is_empty() && row[figures + 1].is_empty() => {
                    module.trim().clone_into(&mut row[figures]);
                }
                _ if row[figures + 1].len() + text.len() < LONGEST_TEXT => {
                    row[figures + 1].push_str(text);
                    row[figures + 1].push(' ');
                }
                _ => {}
            }
        }
    }
    for text in grid.rows.iter_mut().filter_map(|row| row.last_mut()) {
        text.truncate(text.trim_end().len());
    }
    at
}

/// Whether these are the cells of a statement: figures, the first of them not empty, and its id.
fn are_figures_and_a_number(cells: &[String]) -> bool {
    let is_figure = |cell: &String| {
        cell.chars().all(|c| c.is_ascii_digit() || ",.#%KMGTPE+".contains(c)) && cell.len() < 25
    };
    let [figures @ .., id] = cells else { return false };
    let is_id = id.len() >= 6 && id.chars().all(|c| c.is_ascii_alphanumeric());
    is_id && figures.first().is_some_and(|first| !first.is_empty()) && figures.iter().all(is_figure)
}

/// Rows of figures, each with its names on the line above.
fn named(
    lines: &[&str],
    mut at: usize,
    spans: &[(usize, usize)],
    grid: &mut Grid,
    names: &[&str],
) -> usize {
    let mut columns: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    columns.append(&mut grid.columns);
    grid.columns = columns;
    let mut name: Vec<String> = Vec::new();
    while let Some(line) = lines.get(at).filter(|line| !is_rule(line) && heading(line).is_none()) {
        at += 1;
        if line.trim().is_empty() {
            continue;
        }
        if line.starts_with(' ') {
            let mut row = std::mem::take(&mut name);
            row.resize(names.len(), String::new());
            if !row[0].is_empty() && grid.rows.len() < MOST_ROWS {
                row.extend(cells(line, spans));
                grid.rows.push(row);
            }
        } else {
            name.extend(line.split_whitespace().map(str::to_owned));
            let last = name.split_off(name.len().min(names.len()));
            if let Some(name) = name.last_mut() {
                last.iter().for_each(|word| *name = format!("{name} {word}"));
            }
        }
    }
    at
}

/// So far to the right dashes begin that have labels without any at their left.
const RIGHT: usize = 20;

/// Labels that stand at the left of the first dashes are a column too: those of Statspack's
/// Instance CPU.
pub(super) fn add_column_of_labels(spans: &mut Vec<(usize, usize)>, row: Option<&&str>) {
    let Some(first) = spans.first().copied().filter(|(begin, _)| *begin > RIGHT) else { return };
    let left: String = row.map_or("", |row| row).chars().take(first.0).collect();
    if left.trim_end().ends_with(':') {
        spans.insert(0, (0, first.0));
    }
}

/// Sizes of caches stand two in a line, the second one without dashes: each gets cells of its own.
pub(super) fn split_what_stands_beside(grid: &mut Grid) {
    if !grid.section.starts_with("Cache Sizes") {
        return;
    }
    for row in &mut grid.rows {
        let Some(last) = row.pop() else { continue };
        let mut parts: Vec<&str> =
            last.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
        // The first may be the label of the second size, where this one has nothing in this column.
        if parts.first().is_some_and(|part| part.ends_with(':')) {
            parts.insert(0, "");
        }
        parts.resize(3, "");
        row.extend(parts.into_iter().map(str::to_owned));
    }
    grid.columns.extend([String::new(), String::new()]);
}

/// The instance efficiency percentages, which stand in pairs, if they begin with the first of these
/// lines.
pub(super) fn efficiency(lines: &[&str]) -> Option<Grid> {
    let title = lines.first()?.trim();
    if !title.starts_with("Instance Efficiency") {
        return None;
    }
    let mut grid = Grid { section: name_of(title), ..Grid::default() };
    grid.columns = ["Ratio", "%"].map(str::to_owned).to_vec();
    let lines = lines.iter().skip(1).take(12).filter(|line| !is_rule(line));
    for line in
        lines.skip_while(|line| line.trim().is_empty()).take_while(|line| line.contains(':'))
    {
        let mut parts = line.split(':');
        let mut label = parts.next().unwrap_or_default().trim().to_owned();
        for part in parts {
            let value = part.split_whitespace().next().unwrap_or_default();
            let behind =
                part.trim_start().strip_prefix(value).unwrap_or_default().trim().to_owned();
            let label = std::mem::replace(&mut label, behind);
            let words: Vec<&str> = label.split_whitespace().collect();
            grid.rows.push(vec![words.join(" "), value.to_owned()]);
        }
    }
    (!grid.rows.is_empty()).then_some(grid)
}

/// Labels and figures below an underlined name, without dashes: instance CPU and memory of AWR's
/// text.
pub(super) fn labelled(lines: &[&str]) -> Option<Grid> {
    let [title, underline, first, ..] = lines else { return None };
    let titles = underline.strip_prefix("~~~~")?.trim_start_matches('~');
    let known = ["Instance CPU", "Memory Statistics"].contains(&title.trim());
    if !known || titles.contains('-') || is_rule(first) {
        return None;
    }
    let mut grid = Grid { section: title.trim().to_owned(), ..Grid::default() };
    grid.columns.push(String::new());
    grid.columns.extend(titles.split_whitespace().map(str::to_owned));
    for line in lines[2..].iter().take(12) {
        let Some((label, figures)) = line.rsplit_once(':') else { break };
        let mut row = vec![label.trim().to_owned()];
        row.extend(figures.split_whitespace().map(str::to_owned));
        grid.columns.resize(grid.columns.len().max(row.len()), String::new());
        grid.rows.push(row);
    }
    (!grid.rows.is_empty()).then_some(grid)
}

/// A heading without what stands behind it: `Host CPU (CPUs: 8)`,
/// `Instance Efficiency Percentages`.
pub(super) fn name_of(line: &str) -> String {
    let line = line.trim();
    let end = line.find(" (CPUs").or_else(|| line.find("  ")).unwrap_or(line.len());
    line[..end].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::grids;

    #[test]
    fn statements_have_the_text_below_them_and_files_the_names_above() {
        let text = "SQL ordered by CPU Time   DB/Inst: X/x  Snaps: 1-2\n-> x\n\n\
                    \x20   CPU\n  Time (s)   Executions    SQL Id\n---------- ------------ \
                    -------------\n\
                    \x20    218.0            1 0abcdefghijkl\nModule: app.exe\n\
                    select *\nfrom t where a = 12345678\n\n\
                    \x20      1.5        1,000 9abcdefghijkl\nselect 1 from dual\n\n\
                    \x20         -------------------------------------------------------------\n\
                    File IO Stats             DB/Inst: X/x  Snaps: 1-2\n\n\
                    Tablespace               Filename\n------------------------ \
                    ------------------------\n\
                    \x20                Av\n         Reads Rds/s\n-------------- -------\n\
                    USERS                    /data/users 01.dbf\n        12,000    20.0\n\
                    A_TABLESPACE_WITH_A_LONG_NAME\n   /data/b.dbf\n";
        let read = grids(text).grids;
        let [sql, files] = &read[..] else { panic!("{read:?}") };
        assert_eq!(sql.columns, ["CPU Time (s)", "Executions", "SQL Id", "SQL Module", "SQL Text"]);
        assert_eq!(sql.rows[0][3..], ["app.exe", "select * from t where a = 12345678"]);
        assert_eq!(sql.rows[1], ["1.5", "1,000", "9abcdefghijkl", "", "select 1 from dual"]);
        assert_eq!(files.columns, ["Tablespace", "Filename", "Reads", "Av Rds/s"]);
        assert_eq!(files.rows[0], ["USERS", "/data/users 01.dbf", "12,000", "20.0"]);
    }

    #[test]
    fn labels_without_dashes_and_sizes_that_stand_beside_others_have_cells_of_their_own() {
        let text = "Cache Sizes                       Begin        \
                    End\n~~~~~~~~~~~                  ---------- ----------\n\
                    \x20              Buffer Cache:     8,192M     8,193M  Std Block Size:         \
                    8K\n\
                    \x20          Shared Pool Size:     2,048M                 Log Buffer:    \
                    24,576K\n\n\
                    Instance CPU\n~~~~~~~~~~~~                                       % Time \
                    (seconds)\n\
                    \x20                                           -------- --------------\n\
                    \x20                    Host: Total time (s):                 28,800.0\n\
                    \x20                  % of time Host is Busy:      37.5\n\n";
        let read = grids(text).grids;
        let [sizes, cpu] = &read[..] else { panic!("{read:?}") };
        assert_eq!(sizes.rows[0], ["Buffer Cache:", "8,192M", "8,193M", "Std Block Size:", "8K"]);
        assert_eq!(sizes.rows[1], ["Shared Pool Size:", "2,048M", "", "Log Buffer:", "24,576K"]);
        assert_eq!(sizes.columns.len(), 5);
        assert_eq!(
            cpu.rows,
            [["Host: Total time (s):", "", "28,800.0"], ["% of time Host is Busy:", "37.5", ""]]
        );
    }

    #[test]
    fn figures_below_an_underlined_name_without_dashes_are_read() {
        let text = "Instance CPU\n~~~~~~~~~~~~\n\
                    \x20             % of total CPU for Instance:      12.4\n\
                    \x20 %DB time waiting for CPU - Resource Mgr:       0.0\n\n\
                    Memory Statistics\n~~~~~~~~~~~~~~~~~                       Begin          End\n\
                    \x20                 Host Mem (MB):     64,000.0     64,001.0\n\n";
        let read = grids(text).grids;
        let [cpu, memory] = &read[..] else { panic!("{read:?}") };
        assert_eq!((cpu.section.as_str(), cpu.columns.len()), ("Instance CPU", 2));
        assert_eq!(cpu.rows[1], ["%DB time waiting for CPU - Resource Mgr", "0.0"]);
        assert_eq!(memory.columns, ["", "Begin", "End"]);
        assert_eq!(memory.rows, [["Host Mem (MB)", "64,000.0", "64,001.0"]]);
    }

    #[test]
    fn percentages_that_stand_in_pairs_and_tables_with_an_underlined_name_are_read() {
        let text = "Instance Efficiency Percentages (Target 100%)\n~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n\
                    \x20           Buffer Nowait %:  100.00       Redo NoWait %:   99.99\n\
                    \x20        % Non-Parse CPU:  96.0\n\n\
                    Host CPU (CPUs:    8 Cores:    4 Sockets:    1)\n~~~~~~~~         Load \
                    Average\n\
                    \x20              Begin       End     %User\n           --------- --------- \
                    ---------\n\
                    \x20               1.00      2.00      30.5\n\n\
                    IO Profile                  Read+Write/Second     Read/Second\n\
                    ~~~~~~~~~~                  ----------------- ---------------\n\
                    \x20           Total Requests:            300.0           200.0\n";
        let read = grids(text).grids;
        let [ratios, host, io] = &read[..] else { panic!("{read:?}") };
        assert_eq!(ratios.section, "Instance Efficiency Percentages (Target 100%)");
        assert_eq!(
            ratios.rows,
            [
                ["Buffer Nowait %", "100.00"],
                ["Redo NoWait %", "99.99"],
                ["% Non-Parse CPU", "96.0"]
            ]
        );
        assert_eq!(
            (host.section.as_str(), &host.columns[..]),
            ("Host CPU", &["Begin", "End", "%User"].map(str::to_owned)[..])
        );
        assert_eq!((io.section.as_str(), io.rows[0][1].as_str()), ("IO Profile", "300.0"));
    }
}
