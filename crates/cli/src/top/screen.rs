//! The screen: what is on it, what keys change, and where everything stands.
//!
//! | part | rows | left out below |
//! |---|---|---|
//! | what is looked at; rates; the machine | 3 | 8 rows: only the first two |
//! | chart with its legend | a third, 7 to 16 | 17 rows: a bar of one row |
//! | panes: one, two from 36 rows | the rest | - |
//! | keys | 1 | 6 rows |
//!
//! Letters say what colours say, so without colours nothing is lost. All characters that are not
//! from the source are ASCII.
//!
//! Invariant: drawing panics at no size and writes no cell outside its part.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use tiersmith_awr::figure;

use super::activity::KINDS;
use super::chart::{Cell, chart};
use super::feed::News;
use super::history::{History, Point, VIEWS};
use super::keys::{Action, HELP};
use super::panes::{HOST, NAMES, ORDERS, sheets};
use super::plain;
use super::sheet::{fit, width};
use super::shown::Alphabet;
use super::view::View;

/// Cells of the legend beside the chart.
const LEGEND: u16 = 25;
/// The least terminal on which more than a sentence is drawn.
const LEAST: (u16, u16) = (30, 5);

/// Intervals that `+` and `-` step through.
const STEPS_MS: [u64; 9] = [500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 300_000];

/// What a key changed outside the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Quit,
    Suspend,
    Redraw,
    Every(Duration),
}

/// Why nothing new comes.
#[derive(Clone, Debug)]
struct Trouble {
    since_s: u64,
    reason: String,
}

/// Everything on the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    name: String,
    every: Duration,
    looks: bool,
    alphabet: Alphabet,
    colour: bool,
    history: History,
    view: Option<Arc<View>>,
    /// How many intervals before the newest one is shown.
    back: usize,
    /// What was there when it was paused.
    paused: Option<(History, Option<Arc<View>>)>,
    trouble: Option<Trouble>,
    gap: Option<String>,
    /// When the source last answered, in seconds since 1970.
    heard_s: u64,
    pane: usize,
    scroll: [usize; NAMES.len()],
    order: [usize; NAMES.len()],
    /// Rows that the first pane had when it was last drawn.
    page: usize,
    help: bool,
}

impl Screen {
    /// A screen of the source `name`, opened at `now_s` seconds since 1970.
    pub(crate) fn new(
        name: &str,
        every: Duration,
        looks: bool,
        alphabet: Alphabet,
        colour: bool,
        now_s: u64,
    ) -> Screen {
        Screen {
            name: alphabet.shown(name),
            every,
            looks,
            alphabet,
            colour,
            history: History::default(),
            view: None,
            back: 0,
            paused: None,
            trouble: None,
            gap: None,
            heard_s: now_s,
            pane: 0,
            scroll: [0; NAMES.len()],
            order: [0; NAMES.len()],
            page: 1,
            help: false,
        }
    }

    /// Takes in what the thread that asks says.
    pub(super) fn hear(&mut self, news: News, now_s: u64) {
        let point = match news {
            News::Silent(reason) => {
                let since_s = self.trouble.as_ref().map_or(self.heard_s, |trouble| trouble.since_s);
                self.trouble = Some(Trouble { since_s, reason });
                self.add(Point::gap(now_s));
                return;
            }
            News::Begins => None,
            News::Gap(reason) => {
                self.gap = Some(reason);
                Some(Point::gap(now_s))
            }
            News::Interval(interval) => {
                let view = Arc::new(View::of(&interval));
                let activity = Some(view.activity.clone());
                let point = Point { at_s: now_s, activity, view: Some(Arc::clone(&view)) };
                self.gap = None;
                self.view = Some(view);
                Some(point)
            }
        };
        (self.trouble, self.heard_s) = (None, now_s);
        point.into_iter().for_each(|point| self.add(point));
    }

    /// Keeps an interval; whoever looks at one of the past goes on looking at that.
    fn add(&mut self, point: Point) {
        self.history.add(point);
        if self.back > 0 && self.paused.is_none() {
            self.back = (self.back + 1).min(self.history.len() - 1);
        }
    }

    /// Does what a key asks for.
    pub(super) fn act(&mut self, action: Action) -> Effect {
        if self.help && action != Action::Redraw {
            self.help = false;
            if matches!(action, Action::Help | Action::Quit) {
                return Effect::None;
            }
        }
        let page = i32::try_from(self.page.max(1)).unwrap_or(i32::MAX);
        let mut by = 0;
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Redraw => return Effect::Redraw,
            Action::Longer | Action::Shorter => {
                let now = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
                let step = match action {
                    Action::Longer => STEPS_MS.into_iter().find(|step| *step > now),
                    _ => STEPS_MS.into_iter().rev().find(|step| *step < now),
                };
                let Some(step) = step else { return Effect::None };
                self.every = Duration::from_millis(step);
                return Effect::Every(self.every);
            }
            Action::Help => self.help = true,
            Action::Pause => self.pause(),
            Action::Sort => {
                self.order[self.pane] = (self.order[self.pane] + 1) % ORDERS[self.pane].len();
            }
            Action::Next => self.pane = (self.pane + 1) % NAMES.len(),
            Action::Previous => self.pane = (self.pane + NAMES.len() - 1) % NAMES.len(),
            Action::Pane(pane) => self.pane = pane.min(NAMES.len() - 1),
            Action::Newest => self.back = 0,
            Action::Back(by) => {
                let history = self.paused.as_ref().map_or(&self.history, |(history, _)| history);
                let oldest = history.len().saturating_sub(1);
                let back = i64::try_from(self.back).unwrap_or(i64::MAX).saturating_add(by);
                self.back = usize::try_from(back).unwrap_or(0).min(oldest);
            }
            Action::Scroll(rows) => by = i64::from(rows),
            Action::Page(pages) => by = i64::from(pages.saturating_mul(page)),
            Action::Top => by = i64::MIN,
            Action::Bottom => by = i64::MAX,
        }
        // Drawing takes it back to the last row there is.
        let at = i64::try_from(self.scroll[self.pane]).unwrap_or(i64::MAX);
        self.scroll[self.pane] =
            usize::try_from(at.saturating_add(by).max(0)).unwrap_or(usize::MAX);
        Effect::None
    }

    /// Pauses, or goes on.
    fn pause(&mut self) {
        self.paused = match self.paused.take() {
            Some((then, _)) => {
                // The same interval is further from the newest by what came meanwhile.
                let more = if self.back > 0 { self.history.len() - then.len() } else { 0 };
                self.back += more;
                None
            }
            None => Some((self.history.clone(), self.view.clone())),
        };
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now_s: u64) {
        let area = frame.area();
        let buffer = frame.buffer_mut();
        if area.width < LEAST.0 || area.height < LEAST.1 {
            let text = format!(
                "{} x {} is too small, {} x {} is enough",
                area.width, area.height, LEAST.0, LEAST.1
            );
            put(buffer, area, 0, &text, Style::default());
            return;
        }
        if self.help {
            self.draw_help(buffer, area);
            return;
        }
        let (history, newest) = match &self.paused {
            Some((history, view)) => (history, view),
            None => (&self.history, &self.view),
        };
        let past = history.at(self.back).filter(|_| self.back > 0);
        let view = match past {
            Some(point) => point.view.clone(),
            None => newest.clone(),
        };
        let view = view.as_deref();
        let top = self.draw_lines(buffer, area, (past, view), now_s);
        let keys = u16::from(area.height >= 6);
        let chart_rows = match area.height {
            17.. => (area.height / 3).clamp(7, 16),
            _ => 1,
        };
        let chart_area = Rect { y: area.y + top, height: chart_rows, ..area };
        if chart_rows > 1 {
            self.draw_chart(buffer, chart_area, history, view);
        } else if let Some(view) = view {
            self.draw_bar(buffer, chart_area, view);
        }
        let begin = top + chart_rows;
        let rest =
            Rect { y: area.y + begin, height: area.height.saturating_sub(begin + keys), ..area };
        if keys > 0 {
            put(
                buffer,
                area,
                area.height - 1,
                &self.keys_line(),
                Style::default().add_modifier(Modifier::REVERSED),
            );
        }
        if let Some(view) = view {
            self.draw_panes(buffer, rest, view);
        }
    }

    /// The lines above the chart; how many there are. `past`: the interval that was gone back to.
    fn draw_lines(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        (past, view): (Option<&Point>, Option<&View>),
        now_s: u64,
    ) -> u16 {
        let mut top = 0;
        let mut line = |text: &str, style: Style| {
            put(buffer, area, top, text, style);
            top += 1;
        };
        let bold = Style::default().add_modifier(Modifier::BOLD);
        match view {
            Some(view) => {
                let when = plain::when(view);
                let room = usize::from(area.width).saturating_sub(width(&when) + 2);
                let heading = fit(&plain::heading(view, self.alphabet), room);
                let pad = " ".repeat(room - width(&heading) + 2);
                line(&format!("{heading}{pad}{when}"), bold);
            }
            None => line(&format!("tiersmith top  {}", self.name), bold),
        }
        let alarm = Style::default().add_modifier(Modifier::BOLD | Modifier::REVERSED);
        match (&self.trouble, view) {
            (_, None) if past.is_some() => line(past.map_or("", no_figures), Style::default()),
            (_, Some(view)) if past.is_some() => line(&plain::rates(view), Style::default()),
            (Some(trouble), _) => line(&self.trouble_text(trouble, now_s), alarm),
            (None, _) if self.is_late(now_s) => {
                let late = now_s.saturating_sub(self.heard_s);
                line(
                    &format!(
                        "no answer since {} ({late} s), still waiting",
                        time_of_day(self.heard_s)
                    ),
                    alarm,
                );
            }
            (None, Some(view)) => line(&plain::rates(view), Style::default()),
            (None, None) => line("the first interval is under way", Style::default()),
        }
        if area.height >= 8 {
            match (self.gap.as_ref().filter(|_| past.is_none()), view) {
                (Some(gap), _) => line(&format!("gap: {}", self.alphabet.shown(gap)), alarm),
                (None, Some(view)) => line(&plain::host(view), Style::default()),
                (None, None) => line("", Style::default()),
            }
        }
        top
    }

    /// Whether an answer is overdue: the thread that asks may be waiting for one that never comes.
    fn is_late(&self, now_s: u64) -> bool {
        now_s.saturating_sub(self.heard_s)
            > self.every.as_secs().saturating_mul(2).saturating_add(5)
    }

    fn trouble_text(&self, trouble: &Trouble, now_s: u64) -> String {
        let for_s = now_s.saturating_sub(trouble.since_s);
        let reason = self.alphabet.shown(&trouble.reason);
        format!(
            "no answer since {} ({for_s} s), trying again: {reason}",
            time_of_day(trouble.since_s)
        )
    }

    fn keys_line(&self) -> String {
        let every = figure::number(self.every.as_secs_f64());
        let pause = match (self.back, &self.paused) {
            (0, Some(_)) => "PAUSED, p goes on".to_owned(),
            (0, None) => "p pause".to_owned(),
            (back, _) => format!("PAST: {back} BACK, n newest"),
        };
        let order = ORDERS[self.pane][self.order[self.pane]];
        format!(" q quit  ? help  {pause}  1-6 pane  s sort: {order}  +- every {every} s")
    }

    fn style(&self, cell: Cell) -> Style {
        match cell.kind.filter(|_| self.colour) {
            Some(kind) => layer_style(kind),
            None => Style::default(),
        }
    }

    fn draw_chart(&self, buffer: &mut Buffer, area: Rect, history: &History, view: Option<&View>) {
        let activity = view.map(|view| &view.activity);
        let title = activity.map_or("Average active sessions by wait class", plain::title);
        put(buffer, area, 0, title, Style::default().add_modifier(Modifier::BOLD));
        let legend = if area.width >= 60 { LEGEND } else { 0 };
        // Seven cells for the scale, one row each for title and time.
        let columns = area.width.saturating_sub(legend + 8);
        let rows = area.height.saturating_sub(2);
        let points: Vec<&Point> = history.last(usize::from(columns), self.back).collect();
        let drawn = chart(&points, usize::from(columns), usize::from(rows));
        for (row, cells) in drawn.rows.iter().enumerate() {
            let y = area.y + 1 + row as u16;
            let scale = match row {
                0 => figure::number(drawn.top),
                _ => String::new(),
            };
            buffer.set_stringn(area.x, y, format!("{scale:>6}|"), 7, Style::default());
            for (column, cell) in cells.iter().enumerate() {
                let target = &mut buffer[(area.x + 7 + column as u16, y)];
                target.set_char(cell.letter).set_style(self.style(*cell));
            }
        }
        let ends = points.first().zip(points.last()).map(|(first, last)| (first.at_s, last.at_s));
        let under = match ends {
            Some((first, last)) => format!(
                "     0+ {} intervals, {} s, to {} UTC",
                points.len(),
                last.saturating_sub(first),
                time_of_day(last)
            ),
            None => "     0+".to_owned(),
        };
        put(
            buffer,
            Rect { width: area.width - legend, ..area },
            area.height - 1,
            &under,
            Style::default(),
        );
        let Some(of) = activity.filter(|_| legend > 0) else { return };
        let area = Rect { x: area.x + area.width - legend + 1, width: legend - 1, ..area };
        let cpus = match (of.cpus, drawn.line) {
            (Some(cpus), true) => format!("- {cpus} processors"),
            (Some(cpus), false) => format!("  {cpus} processors, above"),
            (None, _) => String::new(),
        };
        put(buffer, area, 0, &cpus, Style::default());
        let mut layers = of.layers.clone();
        layers.sort_by(|a, b| b.sessions.total_cmp(&a.sessions));
        for (row, layer) in layers.iter().take(usize::from(rows)).enumerate() {
            let y = area.y + 1 + row as u16;
            let cell = Cell { letter: KINDS[layer.kind].letter, kind: Some(layer.kind) };
            buffer[(area.x, y)].set_char(cell.letter).set_style(self.style(cell));
            let text = format!("{:<15} {:>6}", layer.name, plain::sessions(layer.sessions));
            buffer.set_stringn(area.x + 2, y, text, usize::from(area.width) - 2, Style::default());
        }
    }

    /// The newest interval as one row of letters.
    fn draw_bar(&self, buffer: &mut Buffer, area: Rect, view: &View) {
        let of = &view.activity;
        let label = format!("{} ", plain::sessions(of.total));
        buffer.set_stringn(area.x, area.y, &label, usize::from(area.width), Style::default());
        let begin = width(&label) as u16;
        let room = area.width.saturating_sub(begin);
        let mut x = 0;
        let mut sum = 0.0;
        for layer in of.layers.iter().filter(|_| of.total > 0.0) {
            sum += layer.sessions;
            let end = (sum / of.total * f64::from(room)).round().min(f64::from(room)) as u16;
            let cell = Cell { letter: KINDS[layer.kind].letter, kind: Some(layer.kind) };
            for x in x..end {
                buffer[(area.x + begin + x, area.y)]
                    .set_char(cell.letter)
                    .set_style(self.style(cell));
            }
            x = x.max(end);
        }
    }

    /// The pane that was chosen, and where there is room, the next ones below it.
    fn draw_panes(&mut self, buffer: &mut Buffer, area: Rect, view: &View) {
        let shown = match area.height {
            0 => 0,
            1..=19 => 1,
            20..=35 => 2,
            _ => 3,
        };
        let mut y = area.y;
        for place in 0..shown {
            let pane = (self.pane + place) % NAMES.len();
            let left = area.y + area.height - y;
            let height = left / (shown - place) as u16;
            let part = Rect { y, height, ..area };
            let page = self.draw_pane(buffer, part, view, pane, place == 0);
            if place == 0 {
                self.page = page;
            }
            y += height;
        }
    }

    /// Draws a pane; how many rows it has room for.
    fn draw_pane(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        view: &View,
        pane: usize,
        chosen: bool,
    ) -> usize {
        let cells = usize::from(area.width);
        let mut title = Vec::new();
        for (at, name) in NAMES.iter().enumerate().filter(|_| chosen) {
            title.push(if at == pane {
                format!("[{} {name}]", at + 1)
            } else {
                format!(" {} {name} ", at + 1)
            });
        }
        if !chosen {
            title.push(format!("[{} {}]", pane + 1, NAMES[pane]));
        }
        // Everything that scrolls, tables one below the other.
        let mut lines: Vec<(String, bool)> = Vec::new();
        let tables = sheets(view, pane, self.order[pane]);
        for (at, sheet) in tables.iter().enumerate() {
            if at > 0 {
                lines.push((String::new(), false));
            }
            if tables.len() > 1 {
                lines.push((sheet.title.clone(), true));
            }
            if !sheet.rows.is_empty() {
                lines.extend(
                    sheet
                        .lines(cells, self.alphabet)
                        .into_iter()
                        .enumerate()
                        .map(|(row, line)| (line, row == 0)),
                );
            }
            for note in &sheet.notes {
                lines.extend(
                    wrapped(&format!("({})", self.alphabet.shown(note)), cells)
                        .into_iter()
                        .map(|line| (line, false)),
                );
            }
        }
        // What is missing has no pane of its own; that of the host has room.
        for note in view.notes.iter().filter(|_| pane == HOST) {
            lines.extend(
                wrapped(&format!("Note: {}", self.alphabet.shown(note)), cells)
                    .into_iter()
                    .map(|line| (line, false)),
            );
        }
        let room = usize::from(area.height).saturating_sub(1);
        let most = lines.len().saturating_sub(room);
        self.scroll[pane] = self.scroll[pane].min(most);
        let from = self.scroll[pane];
        let shown = lines.len().min(from + room);
        if most > 0 {
            title.push(format!(" {}-{shown} of {}", from + 1, lines.len()));
        }
        put(buffer, area, 0, &title.join(""), Style::default().add_modifier(Modifier::BOLD));
        for (row, (line, bold)) in lines[from..shown].iter().enumerate() {
            let style = if *bold {
                Style::default().add_modifier(Modifier::UNDERLINED)
            } else {
                Style::default()
            };
            put(buffer, area, 1 + row as u16, line, style);
        }
        room
    }

    fn draw_help(&self, buffer: &mut Buffer, area: Rect) {
        let every = figure::number(self.every.as_secs_f64());
        let mut lines = vec!["Keys (any key goes back)".to_owned()];
        lines.extend(HELP.iter().map(|(keys, what)| format!("  {keys:<16} {what}")));
        lines.push(String::new());
        lines.push("Letters in the chart".to_owned());
        lines.extend(KINDS.chunks(4).map(|kinds| {
            let parts: Vec<String> =
                kinds.iter().map(|kind| format!("{} {:<15}", kind.letter, kind.name)).collect();
            format!("  {}", parts.join(" ").trim_end())
        }));
        lines.push(
            "  - processors   ! no figure: no answer, a restart or a reset   . little".to_owned(),
        );
        let looks = if self.looks { ", and looked at once a second" } else { "" };
        lines.push(format!("The source is asked for its counters every {every} s{looks}."));
        for (row, line) in lines.iter().enumerate().take(usize::from(area.height)) {
            put(buffer, area, row as u16, line, Style::default());
        }
    }
}

/// Writes a line of a part: never beyond its border.
fn put(buffer: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        let text = fit(text, usize::from(area.width));
        buffer.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}

/// The text in lines of at most so many cells, cut between words where that is possible.
fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= cells => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, cells)),
        }
    }
    lines
}

/// Why an interval of the past has no figures.
fn no_figures(of: &Point) -> &'static str {
    const { assert!(VIEWS == 120, "the sentence below says how many are kept") };
    match of.activity {
        Some(_) => "figures of this interval are not kept any more, only those of the last 120",
        None => "no figures: no answer, a restart or a reset",
    }
}

fn time_of_day(unix_s: u64) -> String {
    let at = figure::instant(unix_s.saturating_mul(1_000_000_000));
    at.get(11..).unwrap_or_default().to_owned()
}

/// Colours of the sixteen that every terminal has.
fn layer_style(kind: usize) -> Style {
    let (back, fore) = match KINDS[kind].letter {
        'C' | 'u' => (Color::Green, Color::Black),
        'U' => (Color::Blue, Color::White),
        'S' | 's' => (Color::Cyan, Color::Black),
        'M' => (Color::Yellow, Color::Black),
        'F' => (Color::Magenta, Color::White),
        'X' => (Color::Red, Color::White),
        'N' => (Color::Gray, Color::Black),
        'A' => (Color::LightRed, Color::Black),
        'D' => (Color::LightMagenta, Color::Black),
        'O' => (Color::LightBlue, Color::Black),
        'w' => (Color::Blue, Color::White),
        't' => (Color::Red, Color::White),
        _ => (Color::DarkGray, Color::White),
    };
    Style::default().bg(back).fg(fore)
}
