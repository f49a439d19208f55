//! Text on its way to a terminal or a log, where other people's names are in it.
//!
//! A file's name, a process's, a path in a note, what a daemon answers: whoever chose them may have
//! put a line end or a terminal's commands there. So nothing is written here as it came. A message
//! is one line ([`line()`]); a command's output keeps its line ends ([`output`]) and has its
//! foreign parts made one line each by whoever composes it ([`line()`] again, [`path`]).
//!
//! Messages of the crates go through [`Messages`]. Who may make files in a mount can cause some of
//! them as often as he likes, so each place in the source has so many a minute
//! ([`SAME_MAX`]); of what is left out the number is said.
//!
//! **Invariant**: no control character but this program's own line ends and clearings of the screen
//! reaches standard output or standard error; a message is one line of bounded length.
//! **Deliberately absent**: levels and filters; the screen of `top`, which draws by cells.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Characters of a message; what is longer is cut.
const LINE_MAX: usize = 4000;
/// Messages of one place in the source within [`WINDOW`].
const SAME_MAX: u64 = 30;
/// See [`SAME_MAX`].
const WINDOW: Duration = Duration::from_secs(60);
/// Characters of the last message that is quoted with the number of those left out.
const QUOTED_MAX: usize = 200;

/// A message as one line: control characters escaped, cut when it is long.
pub(crate) fn line(text: &str) -> String {
    let mut out = escaped(text.chars().take(LINE_MAX), |_| false);
    if let Some((cut, _)) = text.char_indices().nth(LINE_MAX) {
        let _ = write!(out, "... ({} bytes more)", text.len() - cut);
    }
    out
}

/// A path that somebody else chose, for a message.
pub(crate) fn path(path: &Path) -> String {
    line(&path.display().to_string())
}

/// A command's whole output: line ends and tabulators stay.
pub(crate) fn output(text: &str) -> String {
    // Of a table made elsewhere for a program on another system.
    let ends = text.replace("\r\n", "\n");
    let (text, crlf) = if text.contains("\r\n") { (&ends[..], true) } else { (text, false) };
    let out = escaped(text.chars(), |c| matches!(c, '\n' | '\t'));
    if crlf { out.replace('\n', "\r\n") } else { out }
}

/// JSON, in which serde has escaped what JSON must escape: the rest of what commands a terminal.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_command(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Every text in a value that came from elsewhere, made one line.
pub(crate) fn lines_of(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) if text.chars().any(is_command) => {
            *text = escaped(text.chars(), |_| false);
        }
        Value::Array(all) => all.iter_mut().for_each(lines_of),
        Value::Object(all) => all.values_mut().for_each(lines_of),
        _ => {}
    }
}

fn escaped(text: impl Iterator<Item = char>, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::new();
    for c in text {
        if is_command(c) && !stays(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// What a terminal does not show but does: control characters, and those that reorder a line.
fn is_command(c: char) -> bool {
    let reorders =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders
}

/// Messages of the crates, warnings and errors only, on standard error.
pub(crate) struct Messages {
    seen: Mutex<HashMap<(String, u32), Seen>>,
}

/// Messages of one place in the source.
struct Seen {
    since: Instant,
    count: u64,
    last: String,
}

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| Messages { seen: Mutex::default() });

impl Messages {
    /// From here on, for the whole program. A panic's message is one of them.
    pub(crate) fn begin() {
        if log::set_logger(&*MESSAGES).is_ok() {
            log::set_max_level(log::LevelFilter::Warn);
        }
        std::panic::set_hook(Box::new(|panic| {
            let (file, at) = panic.location().map_or(("", 0), |at| (at.file(), at.line()));
            MESSAGES.say(file, at, &panic.to_string(), Instant::now());
        }));
    }

    /// Says how many messages were left out, of the places whose time is over; called now and then,
    /// and with `all` at the end.
    pub(crate) fn catch_up(all: bool) {
        let lines = MESSAGES.left_out(Instant::now(), all);
        lines.iter().for_each(|line| write_line(line));
    }

    fn say(&self, file: &str, at: u32, text: &str, now: Instant) {
        self.pass(file, at, text, now).iter().for_each(|line| write_line(line));
    }

    /// The lines that are to be written of a message.
    fn pass(&self, file: &str, at: u32, text: &str, now: Instant) -> Vec<String> {
        let mut lines = self.left_out(now, false);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.entry((file.to_owned(), at)).or_insert_with(|| Seen {
            since: now,
            count: 0,
            last: String::new(),
        });
        seen.count += 1;
        if seen.count <= SAME_MAX {
            lines.push(line(text));
        } else {
            seen.last = text.chars().take(QUOTED_MAX).collect();
        }
        lines
    }

    fn left_out(&self, now: Instant, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, seen| {
            if !all && now.duration_since(seen.since) < WINDOW {
                return true;
            }
            if seen.count > SAME_MAX {
                let more = seen.count - SAME_MAX;
                lines
                    .push(format!("{more} similar lines left out, the last: {}", line(&seen.last)));
            }
            false
        });
        lines
    }
}

impl log::Log for Messages {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let file = record.file().unwrap_or(record.target());
            self.say(file, record.line().unwrap_or(0), &record.args().to_string(), Instant::now());
        }
    }

    fn flush(&self) {}
}

/// One line on standard error, in one call: lines of several threads do not mix.
fn write_line(line: &str) {
    // It may be closed; there is nowhere else to say so.
    let _ = std::io::stderr().write_all(format!("tiersmith: {line}\n").as_bytes());
}

/// An error or another message of this program's own.
pub(crate) fn say(text: &str) {
    write_line(&line(text));
}

/// The same with the time, where standard error is a file or a service manager's.
pub(crate) fn say_with_time(text: &str) {
    if std::io::stderr().is_terminal() {
        return say(text);
    }
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = tiersmith_awr::figure::instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let _ =
        std::io::stderr().write_all(format!("{now} UTC tiersmith: {}\n", line(text)).as_bytes());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_commands_no_terminal() {
        let text =
            "bad\n2026-01-01 UTC tiersmith: all is well\r\x1b[2J\u{9b}31m\u{202e}gnp.\0\tend";
        let said = line(text);
        assert!(!said.chars().any(is_command), "{said:?}");
        assert_eq!(said.lines().count(), 1);
        assert!(said.contains("\\n2026") && said.contains("\\u{1b}[2J"), "{said}");
        assert_eq!(line("Größe, naïve, 表"), "Größe, naïve, 表");
        let long = line(&"ä".repeat(LINE_MAX + 3));
        assert!(
            long.ends_with("... (6 bytes more)") && long.chars().count() < LINE_MAX + 30,
            "{long}"
        );
    }

    #[test]
    fn output_keeps_its_lines_and_json_stays_json() {
        assert_eq!(output("a\tb\r\nc\r\n"), "a\tb\r\nc\r\n");
        assert_eq!(output("a\x1b]0;x\x07\n\rb"), "a\\u{1b}]0;x\\u{7}\n\\rb");
        let text = serde_json::json!({ "name": "a\u{9b}1m\x1b\u{202e}\n" });
        let said = json(&serde_json::to_string_pretty(&text).unwrap());
        assert!(!said.chars().any(|c| c != '\n' && is_command(c)), "{said:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap(), text);
        let mut inner = text;
        lines_of(&mut inner);
        assert_eq!(inner["name"], "a\\u{9b}1m\\u{1b}\\u{202e}\\n");
    }

    #[test]
    fn one_place_cannot_fill_the_log_and_others_are_heard() {
        let messages = Messages { seen: Mutex::default() };
        let began = Instant::now();
        let mut written = 0;
        for n in 0..10_000 {
            written += messages.pass("names.rs", 7, &format!("no room for {n}\n"), began).len();
        }
        assert_eq!(written as u64, SAME_MAX);
        assert_eq!(messages.pass("names.rs", 8, "another", began), ["another"]);
        assert!(messages.left_out(began + WINDOW / 2, false).is_empty());
        let later = messages.pass("names.rs", 7, "again", began + WINDOW);
        assert_eq!(
            later,
            [
                "9970 similar lines left out, the last: no room for 9999\\n".to_owned(),
                "again".to_owned()
            ]
        );
        assert!(messages.left_out(began + WINDOW, true).is_empty(), "nothing was left out since");
    }
}
