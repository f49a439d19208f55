//! Keys: what each does, and the help that lists them. One table, so that the help cannot forget
//! one.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    Pause,
    Longer,
    Shorter,
    Sort,
    Next,
    Previous,
    Pane(usize),
    /// To an interval before (1) or after (-1) the one that is shown.
    Back(i64),
    /// To the newest interval, and on with it.
    Newest,
    /// Rows to scroll; pages are counted where the size is known.
    Scroll(i32),
    Page(i32),
    Top,
    Bottom,
}

/// What the help says: keys, and what they do.
pub(super) const HELP: [(&str, &str); 13] = [
    ("q, Esc, Ctrl-C, Ctrl-D", "end"),
    ("p, Space", "pause the screen; the source is asked on"),
    ("+  -", "longer and shorter interval"),
    ("1 to 6", "pane: events, statements, files, tiers, host, sessions"),
    ("Tab, Shift-Tab", "next and previous pane"),
    ("s", "sort by the next column"),
    ("Left Right", "the interval before, and after: chart and panes"),
    ("n", "the newest interval, and on with it"),
    ("Up Down, k j", "scroll by a row"),
    ("PageUp PageDown", "scroll by a page"),
    ("Home End", "first and last row"),
    ("Ctrl-L, Ctrl-Z", "draw anew; suspend"),
    ("?, h", "this help"),
];

/// What a key asks for; nothing if it means nothing.
pub(super) fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Action::Quit,
        KeyCode::Char('?' | 'h') => Action::Help,
        KeyCode::Char('p' | ' ') => Action::Pause,
        KeyCode::Char('+' | '=') => Action::Longer,
        KeyCode::Char('-' | '_') => Action::Shorter,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char(c @ '1'..='6') => Action::Pane(c as usize - '1' as usize),
        KeyCode::Tab => Action::Next,
        KeyCode::BackTab => Action::Previous,
        KeyCode::Left => Action::Back(1),
        KeyCode::Right => Action::Back(-1),
        KeyCode::Char('n') => Action::Newest,
        KeyCode::Up | KeyCode::Char('k') => Action::Scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Scroll(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Home => Action::Top,
        KeyCode::End => Action::Bottom,
        _ => return None,
    })
}
