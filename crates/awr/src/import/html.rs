//! The tables of an HTML page, however it was saved: tags in any case, attributes with or without
//! quotes, cells that are not closed.
//!
//! Invariants: linear in the size of the page; a table in a table ends the outer one; no bytes make
//! it panic; tables, rows, columns and cells are bounded, and what is beyond is not read and is
//! counted.

use super::{Grid, Grids, LeftOut, MOST_CELLS, MOST_COLUMNS, MOST_GRIDS, MOST_ROWS};

/// More bytes than any tag of a report has: a longer one is text in which somebody wrote `<`.
const LONGEST_TAG: usize = 16 << 10;

/// A piece of a page.
enum Piece<'a> {
    /// A tag: its name in lower case, `/` in front of one that closes, and the rest of it.
    Tag(String, &'a str),
    /// Text between tags.
    Text(&'a str),
}

/// Cuts a page into tags and text; comments, scripts and styles are left out.
struct Pieces<'a> {
    rest: &'a str,
    /// How much of the rest is known to hold no `>`: it is looked through once.
    without_end: usize,
    left_out: LeftOut,
}

impl<'a> Pieces<'a> {
    fn of(page: &'a str) -> Pieces<'a> {
        Pieces { rest: page, without_end: 0, left_out: LeftOut::default() }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.without_end = self.without_end.saturating_sub(bytes);
    }

    /// Where the tag that begins here ends, if it does.
    fn end_of_tag(&mut self) -> Option<usize> {
        let found = self.rest.as_bytes()[self.without_end..].iter().position(|byte| *byte == b'>');
        self.without_end = found.map_or(self.rest.len(), |at| self.without_end + at);
        found.map(|_| self.without_end).filter(|end| *end <= LONGEST_TAG)
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            if !self.rest.starts_with('<') {
                let end = self.rest.find('<').unwrap_or(self.rest.len());
                let text = &self.rest[..end];
                self.skip(end);
                return Some(Piece::Text(text));
            }
            if let Some(comment) = self.rest.strip_prefix("<!--") {
                let end = comment.find("-->").map(|end| 4 + end + 3);
                if end.is_none() {
                    self.left_out.because("all behind a comment that does not end");
                }
                self.skip(end.unwrap_or(self.rest.len()));
                continue;
            }
            let opens = self.rest.as_bytes().get(1);
            if opens.is_some_and(|byte| !byte.is_ascii_alphabetic() && !b"/!?".contains(byte)) {
                // Somebody wrote a comparison.
                let text = &self.rest[..1];
                self.skip(1);
                return Some(Piece::Text(text));
            }
            let Some(end) = self.end_of_tag() else {
                self.left_out
                    .because("a tag that does not end or is longer than tags are; taken as text");
                let text = &self.rest[..1];
                self.skip(1);
                return Some(Piece::Text(text));
            };
            let inside = &self.rest[1..end];
            self.skip(end + 1);
            let split = inside.find(|c: char| c.is_whitespace()).unwrap_or(inside.len());
            let name = inside[..split].trim_end_matches('/').to_ascii_lowercase();
            if name == "script" || name == "style" {
                // Up to its end; an end that is not there ends the page.
                let close = format!("</{name}");
                let found = self
                    .rest
                    .as_bytes()
                    .windows(close.len())
                    .position(|part| part.eq_ignore_ascii_case(close.as_bytes()));
                if found.is_none() {
                    self.left_out.because("all behind a script or style that does not end");
                }
                self.skip(found.unwrap_or(self.rest.len()));
            }
            return Some(Piece::Tag(name, &inside[split..]));
        }
    }
}

/// The value of an attribute.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let lower = tag.to_ascii_lowercase();
    let mut from = 0;
    while let Some(found) = lower[from..].find(name) {
        let at = from + found;
        from = at + name.len();
        let before = at == 0 || lower.as_bytes()[at - 1].is_ascii_whitespace();
        let after = lower[from..].trim_start();
        if before && let Some(value) = after.strip_prefix('=') {
            // The two have the same length, byte by byte: lower case of ASCII only.
            let value = &tag[tag.len() - value.len()..];
            let value = value.trim_start();
            let quoted = ['"', '\'']
                .iter()
                .find_map(|quote| value.strip_prefix(*quote)?.split(*quote).next());
            return Some(decoded(
                quoted.unwrap_or_else(|| value.split_whitespace().next().unwrap_or("")),
            ));
        }
    }
    None
}

/// Entities into characters, spaces folded.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(10).position(|byte| byte == b';');
        let known = end.and_then(|end| {
            let name = &rest[1..end];
            Some(match name {
                "nbsp" => ' ',
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                "quot" => '"',
                _ => char::from_u32(name.strip_prefix('#')?.parse().ok()?)?,
            })
        });
        match (known, end) {
            (Some(c), Some(end)) => {
                out.push(if c == '\u{a0}' { ' ' } else { c });
                rest = &rest[end + 1..];
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every table of the page, with the heading above it and its summary.
pub(super) fn grids(page: &str) -> Grids {
    let mut left_out = LeftOut::default();
    let mut grids = Vec::new();
    let mut heading = String::new();
    let mut in_heading = false;
    let mut grid: Option<Grid> = None;
    let mut row: Option<Row> = None;
    let mut cells = 0;
    let mut pieces = Pieces::of(page);
    for piece in pieces.by_ref() {
        match piece {
            Piece::Text(text) => {
                if row.as_ref().is_some_and(|row| row.is_full) {
                    // The text of a cell that is not read.
                } else if let Some(cell) = row.as_mut().and_then(|row| row.cells.last_mut()) {
                    cell.push_str(text);
                } else if in_heading && grid.is_none() {
                    heading.push_str(text);
                }
            }
            Piece::Tag(name, rest) => match name.as_str() {
                "h1" | "h2" | "h3" | "h4" => {
                    heading.clear();
                    in_heading = true;
                }
                "/h1" | "/h2" | "/h3" | "/h4" => in_heading = false,
                "table" => {
                    finish(&mut grids, &mut grid, &mut row, &mut left_out);
                    let summary = attribute(rest, "summary").unwrap_or_default();
                    let section = format!("{} | {summary}", decoded(&heading));
                    if grids.len() >= MOST_GRIDS {
                        left_out.because("all tables behind the first five thousand");
                        break;
                    }
                    grid = Some(Grid { section, ..Grid::default() });
                }
                "/table" => finish(&mut grids, &mut grid, &mut row, &mut left_out),
                "tr" if grid.is_some() => {
                    end_row(&mut grid, &mut row, &mut left_out);
                    row = Some(Row::default());
                }
                "/tr" => end_row(&mut grid, &mut row, &mut left_out),
                "th" | "td" if grid.is_some() => {
                    let row = row.get_or_insert_default();
                    if cells >= MOST_CELLS || row.cells.len() >= MOST_COLUMNS {
                        left_out.because("a cell behind the columns or cells that are read");
                        row.is_full = true;
                        continue;
                    }
                    row.is_header = name == "th" && (row.cells.is_empty() || row.is_header);
                    row.titles.push(name == "th");
                    let span =
                        attribute(rest, "colspan").and_then(|span| span.parse::<usize>().ok());
                    let span = span.unwrap_or(1).clamp(1, 64);
                    cells += span;
                    row.spans.push(span);
                    row.cells.push(String::new());
                }
                // A cell that is not closed ends where the next begins; a closed one takes no more
                // text.
                _ => {}
            },
        }
    }
    finish(&mut grids, &mut grid, &mut row, &mut left_out);
    for (why, times) in pieces.left_out.0 {
        *left_out.0.entry(why).or_default() += times;
    }
    Grids { grids, left_out }
}

/// A row being read.
#[derive(Default)]
struct Row {
    cells: Vec<String>,
    spans: Vec<usize>,
    is_header: bool,
    /// Which of the cells are titles.
    titles: Vec<bool>,
    /// Whether there were more cells than are read.
    is_full: bool,
}

fn end_row(grid: &mut Option<Grid>, row: &mut Option<Row>, left_out: &mut LeftOut) {
    let (Some(grid), Some(row)) = (grid, row.take()) else { return };
    if row.cells.is_empty() {
        return;
    }
    // A row of groups has empty cells above the columns that belong to none.
    let is_header = row.is_header || {
        let empty = |(cell, is_title): (&String, &bool)| *is_title || decoded(cell).is_empty();
        row.titles.contains(&true) && row.cells.iter().zip(&row.titles).all(empty)
    };
    let (mut cells, mut spread) = (Vec::new(), Vec::new());
    for (text, span) in row.cells.iter().zip(&row.spans) {
        let text = decoded(text);
        spread.extend((0..*span).map(|_| text.clone()));
        cells.push(text);
        // A cell over several columns stands in the first of them.
        if !is_header {
            cells.extend((1..*span).map(|_| String::new()));
        }
    }
    if let Some(under) = under_titles(grid, &row).filter(|_| !is_header) {
        cells = under;
    }
    // Of two rows of titles the last one names the columns, and the first one groups of them.
    if is_header && grid.rows.is_empty() {
        grid.columns = cells;
        let width = spread.len();
        grid.groups = std::mem::replace(&mut grid.spread, spread);
        grid.starts.clear();
        if row.spans.iter().any(|span| *span > 1) {
            grid.starts = starts(&row.spans).collect();
            if grid.groups.len() == width {
                grid.groups = grid.starts.iter().map(|at| grid.groups[*at].clone()).collect();
            }
        }
    } else if grid.rows.len() < MOST_ROWS {
        grid.rows.push(cells);
    } else {
        left_out.because("a row of a table behind the rows or cells that are read");
    }
}

/// Where each of some cells begins.
fn starts(spans: &[usize]) -> impl Iterator<Item = usize> + '_ {
    spans.iter().scan(0, |at, span| {
        *at += span;
        Some(*at - span)
    })
}

/// The cells of a row by titles that are over several columns each; nothing if there are none, or
/// if two of the cells stand under one of them.
fn under_titles(grid: &Grid, row: &Row) -> Option<Vec<String>> {
    let mut cells = vec![None; grid.starts.len()];
    for (text, at) in row.cells.iter().zip(starts(&row.spans)) {
        let title = grid.starts.iter().rposition(|start| *start <= at)?;
        if cells[title].replace(decoded(text)).is_some() {
            return None;
        }
    }
    Some(cells.into_iter().map(Option::unwrap_or_default).collect())
}

fn finish(
    grids: &mut Vec<Grid>,
    grid: &mut Option<Grid>,
    row: &mut Option<Row>,
    left_out: &mut LeftOut,
) {
    end_row(grid, row, left_out);
    *row = None;
    grids.extend(grid.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_however_the_page_was_saved() {
        let original = "<h3 class=\"awr\">Waits</h3><table border=\"0\" summary=\"This table \
                        displays x\"><tr><th>Event</th>\
                        <th>Waits</th></tr>\n<tr><td scope=\"row\">log file sync</td><td \
                        align=\"right\">1,234</td></tr></table>";
        let saved = "<H3 class=awr>Waits</H3><TABLE border=0 summary='This table displays \
                     x'><TBODY><TR><TH>Event<TH>Waits\
                     <TR><TD>log&nbsp;file\n sync<TD>1,234</TBODY></TABLE>";
        for page in [original, saved] {
            let grids = grids(page).grids;
            assert_eq!(grids.len(), 1, "{page}");
            assert_eq!(grids[0].section, "Waits | This table displays x");
            assert_eq!(grids[0].columns, ["Event", "Waits"]);
            assert_eq!(grids[0].rows, [["log file sync", "1,234"]]);
        }
    }

    /// How often something was left out.
    fn times(read: &Grids, why: &str) -> usize {
        read.left_out
            .0
            .iter()
            .filter(|(reason, _)| reason.contains(why))
            .map(|(_, times)| times)
            .sum()
    }

    #[test]
    fn what_is_just_over_a_bound_is_not_read_and_is_said() {
        let row = |cells: usize| format!("<table><tr>{}</table>", "<td>x</td>".repeat(cells));
        assert_eq!(times(&grids(&row(MOST_COLUMNS)), "cell"), 0);
        let read = grids(&row(MOST_COLUMNS + 1));
        assert_eq!((read.grids[0].rows[0].len(), times(&read, "cell")), (MOST_COLUMNS, 1));
        assert!(read.grids[0].rows[0].iter().all(|cell| cell == "x"));
        let rows = |rows: usize| format!("<table>{}</table>", "<tr><td>x".repeat(rows));
        assert_eq!(times(&grids(&rows(MOST_ROWS)), "row"), 0);
        let read = grids(&rows(MOST_ROWS + 1));
        assert_eq!((read.grids[0].rows.len(), times(&read, "row")), (MOST_ROWS, 1));
        let tables = |tables: usize| "<table><tr><td>x</table>".repeat(tables);
        assert_eq!(times(&grids(&tables(MOST_GRIDS)), "tables"), 0);
        let read = grids(&tables(MOST_GRIDS + 1));
        assert_eq!((read.grids.len(), times(&read, "tables")), (MOST_GRIDS, 1));
        // A tag as long as tags may be, and one byte more: then it is text, and the table is not
        // one.
        let tag = |bytes: usize| {
            format!("<table {}><tr><td>x</table>", "a".repeat(bytes - "<table >".len() + 1))
        };
        assert_eq!(grids(&tag(LONGEST_TAG)).grids.len(), 1);
        let read = grids(&tag(LONGEST_TAG + 1));
        assert_eq!((read.grids.len(), times(&read, "tag")), (0, 1));
        for open in ["<!-- ", "<script>", "<style>"] {
            let read = grids(&format!("<table><tr><td>x</table>{open}<table><tr><td>x</table>"));
            assert_eq!((read.grids.len(), times(&read, "all behind")), (1, 1), "{open}");
        }
    }

    #[test]
    fn a_page_of_openings_is_read_once_and_text_with_one_is_not_lost() {
        assert_eq!(times(&grids(&"<a".repeat(1 << 20)), "tag"), 1 << 20);
        assert!(times(&grids(&format!("{}>", "<a".repeat(1 << 20))), "tag") > 1 << 19);
        let read = grids("<table><tr><td>a < b and 1<2</table>").grids;
        assert_eq!(read[0].rows, [["a < b and 1<2"]]);
    }

    #[test]
    fn cells_that_span_columns_are_bounded_too() {
        let page = format!(
            "<table>{}</table>",
            format!("<tr>{}", "<td colspan=64>".repeat(60)).repeat(1000)
        );
        let read = grids(&page);
        let cells: usize = read.grids.iter().flat_map(|grid| &grid.rows).map(Vec::len).sum();
        assert!((MOST_CELLS..MOST_CELLS + 64).contains(&cells), "{cells}");
        assert!(times(&read, "cell") > 0);
    }

    #[test]
    fn figures_stand_under_titles_that_are_over_several_columns() {
        let read = |rows: &str| {
            grids(&format!(
                "<table><tr><td/><th colspan=3>IOPs</th><th colspan=3>MB/s</th></tr><tr><th>Cell\
                 <th>%Total<th colspan=2>Avg<th>%Total<th colspan=2>Avg</tr>{rows}</table>"
            ))
            .grids
            .remove(0)
        };
        let grid = read("<tr><td>a<td>26<td colspan=2>19<td>27<td colspan=2>7</tr><tr><td>b</tr>");
        assert_eq!(grid.columns, ["Cell", "%Total", "Avg", "%Total", "Avg"]);
        assert_eq!(grid.groups, ["", "IOPs", "IOPs", "MB/s", "MB/s"]);
        assert_eq!(grid.rows, [["a", "26", "19", "27", "7"], ["b", "", "", "", ""]]);
        // Two figures under one title: each has a place.
        let grid = read("<tr><td>a<td>26<td>1<td>2<td>27<td colspan=2>7</tr>");
        assert_eq!(grid.rows, [["a", "26", "1", "2", "27", "7", ""]]);
    }

    #[test]
    fn a_row_of_groups_may_begin_with_cells_that_are_no_titles() {
        let page = "<table><tr><td>&#160;</td><td>&#160;</td>\
                    <th colspan=\" 2\">% of Waits</th></tr>\
                    <tr><th>Event</th><th>Waits</th><th>&lt;1ms</th><th>&gt;1s</th></tr>\
                    <tr><td>log file sync</td><td>7</td><td>99.2</td><td>.8</td></tr></table>";
        let read = grids(page).grids;
        assert_eq!(read[0].columns, ["Event", "Waits", "<1ms", ">1s"]);
        assert_eq!(read[0].groups, ["", "", "% of Waits", "% of Waits"]);
        assert_eq!(read[0].rows, [["log file sync", "7", "99.2", ".8"]]);
        // A row of figures with a title in front is none of groups.
        let page = "<table><tr><th>a<th>b<tr><th>x<td>1</table>";
        assert_eq!(grids(page).grids[0].rows, [["x", "1"]]);
    }

    #[test]
    fn no_page_makes_it_panic() {
        let mut rng = fastrand::Rng::with_seed(2);
        let parts = [
            "<table",
            ">",
            "<tr>",
            "<td",
            " colspan=99999",
            "</td>",
            "<th>",
            "</table>",
            "&#99999999;",
            "&amp",
            "é",
            "<!--",
            "-->",
            "<script>",
            "</SCRIPT>",
            " summary=\"",
            "\"",
            "'",
            "<h3>",
            "</h3>",
            "x",
            "<",
            "İ",
        ];
        for _ in 0..20_000 {
            let page: String =
                (0..rng.usize(0..25)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            let _ = grids(&page);
        }
    }
}
