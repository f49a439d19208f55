//! A page builder: headings, tables and charts as one self-contained HTML page.
//!
//! The page needs no second file and no network; it follows the reader's choice of light or dark,
//! fits a phone, and prints. All text is escaped here, at the only place where text becomes HTML,
//! so a caller cannot forget it: names of databases and files come from outside.
//!
//! One script, the same on every page, sorts tables; without it everything is there to read. A
//! policy in the head lets the browser run this script and use this style sheet, by their hashes,
//! and load nothing at all: what should be text and became a tag would be dead. The script's
//! element is written in capitals, so that a page can be searched for tags that came from outside.
//!
//! ```
//! use tiersmith_awr::page::{Bar, Chart, Page};
//! use tiersmith_awr::{Cell, Quantity, Table};
//!
//! let mut table =
//!     Table::new("Commits").text("Place", "Of the redo.").figures("Commits/s", "", "How many.");
//! table.row(vec![Cell::text("home"), Cell::number(1200.0)]);
//! let bar = Bar { label: "home".to_owned(), value: 1200.0, detail: String::new(), colour: 1 };
//! let chart = Chart::Bars {
//!     title: "Commits per second".to_owned(),
//!     explanation: String::new(),
//!     quantity: Quantity::Number,
//!     bars: vec![bar],
//! };
//! let mut page = Page::new("A study");
//! page.lead("What it is about.").banner("EMULATED: ...");
//! page.section("Results").chart(&chart).table(&table);
//! assert!(page.render().starts_with("<!DOCTYPE html>"));
//! ```
//!
//! Invariants: ids on a page are distinct; every table has a caption and header cells, every chart
//! a spoken description. Deliberately absent: raw HTML from the caller, links to other sites. Read
//! next: `chart.rs`.

mod chart;
mod escape;
mod front;
mod over_time;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use escape::escape;
use sha2::{Digest, Sha256};

pub use crate::chart::{
    Bar, Chart, Front, Line, OverTime, Series, Severity, Tile, TimeGap, TimeSlot, Told,
};
use crate::table::{Align, Cell, Table};

/// A word of more letters may be broken where a line ends. PostgreSQL's numbers of statements have
/// as many.
const LONG_WORD: usize = 20;
/// A table of so many columns fits on a phone if its texts are broken.
const FEW_COLUMNS: usize = 4;
/// A text of more letters, a statement for instance, gets a wide column.
const LONG_TEXT: usize = 60;

const STYLE: &str = include_str!("style.css");
const SORT: &str = include_str!("sort.js");

/// What a browser may do with a page: this style sheet, this script, and nothing else.
fn policy() -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        hash(STYLE),
        hash(SORT)
    )
}

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    lead: String,
    banners: Vec<String>,
    /// Titles of the sections, for the list at the top.
    sections: Vec<String>,
    front: Option<Front>,
    body: String,
    /// What columns mean, each title and explanation once.
    meanings: Vec<(String, String)>,
    footer: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            lead: String::new(),
            banners: Vec::new(),
            sections: Vec::new(),
            front: None,
            body: String::new(),
            meanings: Vec::new(),
            footer: String::new(),
        }
    }

    /// The line below the title.
    pub fn lead(&mut self, text: impl Into<String>) -> &mut Page {
        self.lead = text.into();
        self
    }

    /// Adds a warning at the top that cannot be overlooked, for instance that a medium is emulated.
    pub fn banner(&mut self, text: impl Into<String>) -> &mut Page {
        self.banners.push(text.into());
        self
    }

    /// What the page opens with, before its sections.
    pub fn front(&mut self, front: Front) -> &mut Page {
        self.front = Some(front);
        self
    }

    /// Begins a section; it is in the list of contents.
    pub fn section(&mut self, title: &str) -> &mut Page {
        self.sections.push(title.to_owned());
        let _ =
            writeln!(self.body, "<h2 id=\"section{}\">{}</h2>", self.sections.len(), escape(title));
        self
    }

    /// Begins a part of a section.
    pub fn subsection(&mut self, title: &str) -> &mut Page {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(title));
        self
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Page {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
        self
    }

    /// Adds a warning between other things.
    pub fn warning(&mut self, text: &str) -> &mut Page {
        let _ = writeln!(self.body, "<p class=\"banner\" role=\"note\">{}</p>", escape(text));
        self
    }

    /// Adds a list.
    pub fn list<T: AsRef<str>>(&mut self, items: impl IntoIterator<Item = T>) -> &mut Page {
        self.body.push_str("<ul>\n");
        for item in items {
            let _ = writeln!(self.body, "<li>{}</li>", escape(item.as_ref()));
        }
        self.body.push_str("</ul>\n");
        self
    }

    /// Adds text as it stands, line by line, in letters of one width.
    pub fn preformatted(&mut self, text: &str) -> &mut Page {
        let _ = writeln!(self.body, "<pre tabindex=\"0\">{}</pre>", escape::escape_lines(text));
        self
    }

    /// Adds text as [`Page::preformatted`] does, folded away under a summary.
    pub fn folded(&mut self, summary: &str, text: &str) -> &mut Page {
        let (summary, text) = (escape(summary), escape::escape_lines(text));
        let _ = writeln!(
            self.body,
            "<details class=\"fold\"><summary>{summary}</summary><pre \
             tabindex=\"0\">{text}</pre></details>"
        );
        self
    }

    /// Adds what `fill` adds, folded away under a summary. What is folded is not printed.
    pub fn fold(&mut self, summary: &str, fill: impl FnOnce(&mut Page)) -> &mut Page {
        let _ =
            writeln!(self.body, "<details class=\"fold\"><summary>{}</summary>", escape(summary));
        fill(self);
        self.body.push_str("</details>\n");
        self
    }

    /// Adds a table. The cells of its first column are the headers of their rows. A table of
    /// details is folded away.
    pub fn table(&mut self, table: &Table) -> &mut Page {
        let caption = escape(&table.caption);
        if table.details {
            let _ = writeln!(self.body, "<details class=\"fold\"><summary>{caption}</summary>");
        }
        let out = &mut self.body;
        // A list; not a few lines with a meaning by their order, whose first column needs no title.
        let is_list = table.rows.len() > 2
            && table.columns.first().is_some_and(|column| !column.title.is_empty());
        let class = match (is_list, table.columns.len() <= FEW_COLUMNS) {
            (true, true) => " class=\"sortable few\"",
            (true, false) => " class=\"sortable\"",
            (false, true) => " class=\"few\"",
            (false, false) => "",
        };
        let _ = writeln!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"{caption}\">\n<table{class}>\n\
             <caption>{caption}</caption>"
        );
        let diff = table.columns.iter().position(|column| column.title.contains("Diff"));
        head(out, table, diff);
        out.push_str("<tbody>\n");
        if table.rows.is_empty() {
            let width = table.columns.len().max(1);
            let _ = writeln!(
                out,
                "<tr><td colspan=\"{width}\">No data exists for this section of the \
                 report.</td></tr>"
            );
        }
        for row in &table.rows {
            body_row(out, table, row, diff);
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
        for note in &table.notes {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
        }
        self.explain(table);
        if table.details {
            self.body.push_str("</details>\n");
        }
        self
    }

    /// Keeps what the columns mean for the end of the page, for readers that cannot point at a
    /// title.
    fn explain(&mut self, table: &Table) {
        for column in table.columns.iter().filter(|column| !column.explanation.is_empty()) {
            let title = if column.title.is_empty() { "(first column)" } else { &column.title };
            let meaning = (title.to_owned(), column.explanation.clone());
            if !self.meanings.contains(&meaning) {
                self.meanings.push(meaning);
            }
        }
    }

    /// What the columns of all tables mean, by title.
    fn draw_meanings(&self, out: &mut String) {
        if self.meanings.is_empty() {
            return;
        }
        out.push_str(
            "<details class=\"explain\" id=\"columns\"><summary>What the columns \
             mean</summary><dl>",
        );
        let mut meanings: Vec<&(String, String)> = self.meanings.iter().collect();
        meanings.sort();
        for (title, meaning) in meanings {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(title), escape(meaning));
        }
        out.push_str("</dl></details>\n");
    }

    /// Adds a chart.
    pub fn chart(&mut self, chart: &Chart) -> &mut Page {
        chart::draw(&mut self.body, chart);
        self
    }

    /// The last line of the page.
    pub fn footer(&mut self, text: impl Into<String>) -> &mut Page {
        self.footer = text.into();
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        let title = escape(&self.title);
        let mut out = String::with_capacity(self.body.len() + STYLE.len() + 2_000);
        let _ = writeln!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n\
             <h1>{title}</h1>",
            policy()
        );
        if !self.lead.is_empty() {
            let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(&self.lead));
        }
        for banner in &self.banners {
            let _ = writeln!(
                out,
                "<p class=\"banner\" role=\"note\"><strong>{}</strong></p>",
                escape(banner)
            );
        }
        out.push_str("</header>\n");
        if self.sections.len() > 1 {
            out.push_str("<nav aria-label=\"Contents\"><ul>\n");
            if self.front.as_ref().is_some_and(|front| !front.findings.is_empty()) {
                out.push_str("<li><a href=\"#findings\">Findings</a></li>\n");
            }
            for (index, section) in self.sections.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "<li><a href=\"#section{}\">{}</a></li>",
                    index + 1,
                    escape(section)
                );
            }
            out.push_str("</ul></nav>\n");
        }
        out.push_str("<main>\n");
        if let Some(front) = &self.front {
            let place = |title: &str| self.sections.iter().position(|section| section == title);
            front::draw(front, &mut out, |title| Some(format!("#section{}", place(title)? + 1)));
        }
        out.push_str(&self.body);
        self.draw_meanings(&mut out);
        out.push_str("</main>\n");
        if !self.footer.is_empty() {
            let _ = writeln!(out, "<footer>{}</footer>", escape(&self.footer));
        }
        let _ = write!(out, "<SCRIPT>{SORT}</SCRIPT>\n</body>\n</html>\n");
        out
    }
}

/// The titles of a table; `diff` is its column of differences.
fn head(out: &mut String, table: &Table, diff: Option<usize>) {
    out.push_str("<thead><tr>\n");
    for (index, column) in table.columns.iter().enumerate() {
        let class = match column.align {
            Align::Right if diff == Some(index) => " class=\"figure diff\"",
            Align::Right => " class=\"figure\"",
            _ => "",
        };
        let _ = write!(out, "<th scope=\"col\"{class} title=\"{}\">", escape(&column.explanation));
        out.push_str(&escape(&column.title));
        if column.unit_is_shown() {
            let _ = write!(out, " <span class=\"unit\">({})</span>", escape(&column.unit));
        }
        out.push_str("</th>");
    }
    out.push_str("</tr></thead>\n");
}

fn body_row(out: &mut String, table: &Table, row: &[Cell], diff: Option<usize>) {
    out.push_str("<tr>");
    for (index, column) in table.columns.iter().enumerate() {
        let cell = row.get(index).unwrap_or(&Cell::Empty);
        let shown = cell.shown();
        // A word that no line holds may break anywhere; others keep their letters together.
        let long = shown.split(char::is_whitespace).any(|word| word.chars().count() > LONG_WORD);
        let class = match column.align {
            Align::Right if diff == Some(index) => "figure diff",
            Align::Right => "figure",
            _ if shown.chars().count() > LONG_TEXT => "words wide",
            _ if long => "words long",
            _ => "words",
        };
        // What the script sorts by, where the figure as it is shown cannot be compared.
        let value = match cell.value() {
            Some(value) if column.align == Align::Right => format!(" data-v=\"{value}\""),
            _ => String::new(),
        };
        let shown = escape(&shown);
        let _ = match index {
            0 => write!(out, "<th scope=\"row\" class=\"{class}\"{value}>{shown}</th>"),
            _ => write!(out, "<td class=\"{class}\"{value}>{shown}</td>"),
        };
    }
    out.push_str("</tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_caller_becomes_a_tag() {
        let evil = "<script>alert(1)</script>\"><b onclick='x'>&";
        let mut table = Table::new(evil).text(evil, evil).figures(evil, evil, evil);
        table.row(vec![Cell::text(evil), Cell::text(evil)]).note(evil);
        let mut page = Page::new(evil);
        page.lead(evil)
            .banner(evil)
            .section(evil)
            .subsection(evil)
            .paragraph(evil)
            .warning(evil)
            .list([evil]);
        page.preformatted(evil).folded(evil, evil).table(&table).fold(evil, |page| {
            page.paragraph(evil);
        });
        page.footer(evil).section(evil);
        let html = page.render();
        assert!(
            !html.contains("<script") && !html.contains("<b ") && !html.contains("onclick='"),
            "{html}"
        );
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let mut page = Page::new("t");
        page.section("a").section("b").table(&Table::new("empty").text("x", ""));
        let html = page.render();
        for word in ["src=", "@import", "url(", "<link", "<script", "https://"] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(!SORT.contains(['<', '>']), "the page is checked for tags as plain text");
        assert_eq!(html.to_lowercase().matches("<script").count(), 1);
        assert!(html.contains("href=\"#section2\"") && html.contains("id=\"section2\""));
        assert!(html.contains("No data exists for this section of the report."));
    }
}
