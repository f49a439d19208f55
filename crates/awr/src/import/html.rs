//! The tables of an HTML page, however it was saved: tags in any case, attributes with or without quotes, cells that are not closed.
//!
//! Invariants: linear in the size of the page; a table in a table ends the outer one; no bytes make it panic.

use super::{Grid, MOST_CELLS, MOST_GRIDS, MOST_ROWS};

/// More tags and texts than any report has.
const MOST_PIECES: usize = 6_000_000;

/// A piece of a page.
enum Piece<'a> {
    /// A tag: its name in lower case, `/` in front of one that closes, and the rest of it.
    Tag(String, &'a str),
    /// Text between tags.
    Text(&'a str),
}

/// Cuts a page into tags and text; comments, scripts and styles are left out.
fn pieces(page: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        if pieces.len() >= MOST_PIECES {
            return pieces;
        }
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let Some(end) = rest.find('>') else { return pieces };
        let inside = &rest[1..end];
        rest = &rest[end + 1..];
        let split = inside.find(|c: char| c.is_whitespace()).unwrap_or(inside.len());
        let name = inside[..split].trim_end_matches('/').to_ascii_lowercase();
        if name == "script" || name == "style" {
            // Up to its end; an end that is not there ends the page.
            let close = format!("</{name}");
            let found = rest
                .as_bytes()
                .windows(close.len())
                .position(|part| part.eq_ignore_ascii_case(close.as_bytes()));
            rest = found.map_or("", |at| &rest[at..]);
        }
        pieces.push(Piece::Tag(name, &inside[split..]));
    }
    pieces.push(Piece::Text(rest));
    pieces
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
            let quoted =
                ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.split(*quote).next());
            return Some(decoded(quoted.unwrap_or_else(|| value.split_whitespace().next().unwrap_or(""))));
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
pub(super) fn grids(page: &str) -> Vec<Grid> {
    let mut grids = Vec::new();
    let mut heading = String::new();
    let mut in_heading = false;
    let mut grid: Option<Grid> = None;
    let mut row: Option<Row> = None;
    let mut cells = 0;
    for piece in pieces(page) {
        match piece {
            Piece::Text(text) => {
                if let Some(cell) = row.as_mut().and_then(|row| row.cells.last_mut()) {
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
                    finish(&mut grids, &mut grid, &mut row);
                    let summary = attribute(rest, "summary").unwrap_or_default();
                    let section = format!("{} | {summary}", decoded(&heading));
                    if grids.len() >= MOST_GRIDS {
                        return grids;
                    }
                    grid = Some(Grid { section, ..Grid::default() });
                }
                "/table" => finish(&mut grids, &mut grid, &mut row),
                "tr" if grid.is_some() => {
                    end_row(&mut grid, &mut row);
                    row = Some(Row::default());
                }
                "/tr" => end_row(&mut grid, &mut row),
                "th" | "td" if grid.is_some() && cells < MOST_CELLS => {
                    let row = row.get_or_insert_default();
                    row.is_header = name == "th" && (row.cells.is_empty() || row.is_header);
                    let span = attribute(rest, "colspan").and_then(|span| span.parse::<usize>().ok());
                    let span = span.unwrap_or(1).clamp(1, 64);
                    cells += span;
                    row.spans.push(span);
                    row.cells.push(String::new());
                }
                // A cell that is not closed ends where the next begins; a closed one takes no more text.
                _ => {}
            },
        }
    }
    finish(&mut grids, &mut grid, &mut row);
    grids
}

/// A row being read.
#[derive(Default)]
struct Row {
    cells: Vec<String>,
    spans: Vec<usize>,
    is_header: bool,
}

fn end_row(grid: &mut Option<Grid>, row: &mut Option<Row>) {
    let (Some(grid), Some(row)) = (grid, row.take()) else { return };
    if row.cells.is_empty() {
        return;
    }
    let mut cells = Vec::new();
    for (text, span) in row.cells.iter().zip(&row.spans) {
        cells.push(decoded(text));
        // A cell over several columns stands in the first of them.
        if !row.is_header {
            cells.extend((1..*span).map(|_| String::new()));
        }
    }
    // Of two rows of titles the last one names the columns.
    if row.is_header && grid.rows.is_empty() {
        grid.columns = cells;
    } else if grid.rows.len() < MOST_ROWS {
        grid.rows.push(cells);
    }
}

fn finish(grids: &mut Vec<Grid>, grid: &mut Option<Grid>, row: &mut Option<Row>) {
    end_row(grid, row);
    *row = None;
    grids.extend(grid.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_however_the_page_was_saved() {
        let original = "<h3 class=\"awr\">Waits</h3><table border=\"0\" summary=\"This table displays x\"><tr><th>Event</th>\
                        <th>Waits</th></tr>\n<tr><td scope=\"row\">log file sync</td><td align=\"right\">1,234</td></tr></table>";
        let saved = "<H3 class=awr>Waits</H3><TABLE border=0 summary='This table displays x'><TBODY><TR><TH>Event<TH>Waits\
                     <TR><TD>log&nbsp;file\n sync<TD>1,234</TBODY></TABLE>";
        for page in [original, saved] {
            let grids = grids(page);
            assert_eq!(grids.len(), 1, "{page}");
            assert_eq!(grids[0].section, "Waits | This table displays x");
            assert_eq!(grids[0].columns, ["Event", "Waits"]);
            assert_eq!(grids[0].rows, [["log file sync", "1,234"]]);
        }
    }

    #[test]
    fn cells_that_span_columns_are_bounded_too() {
        let page =
            format!("<table>{}</table>", format!("<tr>{}", "<td colspan=64>".repeat(100)).repeat(1000));
        let cells: usize = grids(&page).iter().flat_map(|grid| &grid.rows).map(Vec::len).sum();
        assert!((MOST_CELLS..MOST_CELLS + 64).contains(&cells), "{cells}");
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
            let page: String = (0..rng.usize(0..25)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            let _ = grids(&page);
        }
    }
}
