//! `tiersmith top`: live waits of a source, on a terminal, as text or as JSON.
//!
//! | where | what it does |
//! |---|---|
//! | a terminal | the screen of `top/`, until q |
//! | a file, a pipe, `TERM=dumb` | the same as text, one interval after the other |
//! | `--once` | one interval as text |
//! | `--json` | one object a line for each interval |

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::json;

use super::awr::HowToAsk;
use super::awr::{duration, length};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::top::{
    Alphabet, End, FULL_ROWS, Feed, News, Screen, View, harmless_json, is_capable, run, text,
};

/// Live waits of a database, a mounted home or this machine: who is active, and what they wait for
///
/// SOURCE is what `tiersmith awr record --source` takes: postgresql://USER@HOST:PORT/DB, mysql://
/// or mariadb://, redis://HOST:PORT or unix:///SOCKET, the directory of a mounted home, the file of
/// an attached SQLite database, or `host` for this machine alone. Passwords come from where
/// `record` takes them.
///
/// On a terminal it is a screen with panes; `?` lists its keys: q ends, p pauses, 1 to 5 and Tab
/// choose a pane, s sorts, + and - change the interval, arrows and page keys scroll. Elsewhere, and
/// on a terminal that cannot be written over, it prints text. It needs no colours (NO_COLOR) and 80
/// columns.
///
/// It asks the source for its counters once every interval, and where waits can only be sampled it
/// looks once a second who is active; nothing else, and nothing is changed there. A source that
/// does not answer is asked again with every interval.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith top postgresql:///postgres
  tiersmith top /data/db                            a mounted home: its waits, its tiers, what is \
  dirty in them
  tiersmith top redis://localhost --every 1s
  tiersmith top host --once                         one interval as text
  tiersmith top mariadb://monitor@db1 --json --for 1m > minute.json

Exit codes: 0 good; 1 the source did not answer at times (with --once or --json, or as text); 2 \
error; 128 and the signal's number
if a signal ended it.")]
pub(crate) struct Top {
    /// What to look at
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The interval: the time from one question to the next
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration,
    allow_hyphen_values = true)]
    every: Duration,
    /// The time from one look at the active sessions to the next, where waits can only be sampled;
    /// 0 for none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration,
    allow_hyphen_values = true)]
    sample: Duration,
    /// How long to go on; without it until q or Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = length, allow_hyphen_values = true)]
    length: Option<Duration>,
    /// Print one interval as text and end
    #[arg(long, conflicts_with = "length")]
    once: bool,
    #[command(flatten)]
    asking: HowToAsk,
    /// Print JSON, one object a line for each interval
    #[arg(long)]
    json: bool,
}

/// The first interval of a screen that would otherwise be empty for long.
const FIRST: Duration = Duration::from_secs(1);
/// From one look round to the next while nothing is new.
const NAP: Duration = Duration::from_millis(200);

impl Top {
    pub(super) fn run(&self) -> Result<Outcome> {
        let shortest = Duration::from_millis(100);
        let sample = Some(self.sample).filter(|period| !period.is_zero());
        if self.every < shortest || sample.is_some_and(|period| period < shortest) {
            return Err(Error::Usage(
                "cannot ask more often than ten times a second; give --every and --sample 100ms or \
                 more"
                    .into(),
            ));
        }
        let source = self.asking.open(&self.source)?;
        let name = source.name().to_owned();
        let screen = is_capable() && !self.once && !self.json;
        let first = if screen { self.every.min(FIRST) } else { self.every };
        let feed = Feed::start(source, self.every, first, sample).map_err(|source| Error::Io {
            what: "start a thread for",
            path: "asking".into(),
            source,
        })?;
        if !screen {
            return self.print(&feed);
        }
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && !std::env::var("TERM").is_ok_and(|term| is_monochrome(&term));
        let now_s =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let alphabet = Alphabet::of_environment();
        let screen = Screen::new(&name, self.every, sample.is_some(), alphabet, colour, now_s);
        let ended = run(screen, &feed, self.length).map_err(|source| Error::Io {
            what: "use",
            path: "the terminal".into(),
            source,
        })?;
        match ended {
            End::Quit => Ok(Outcome::Good),
            End::Signal(signal) => std::process::exit(128 + signal),
            End::NoFeed => Err(gone()),
        }
    }

    /// Intervals as text or JSON, until the time is over or nobody reads any more.
    fn print(&self, feed: &Feed) -> Result<Outcome> {
        let began = Instant::now();
        let (mut whole, mut lines) = (true, 0);
        loop {
            // The last interval ends with the time, whichever of the two is seen first. However
            // short the time, something is said.
            let over = self.length.is_some_and(|length| began.elapsed() > length + NAP);
            if over && lines > 0 {
                break;
            }
            let Some(news) = feed.next(NAP).map_err(|_| gone())? else { continue };
            let said = match news {
                News::Begins => continue,
                News::Interval(interval) => self.said(&View::of(&interval))?,
                News::Silent(reason) if self.once => return Err(Error::Usage(reason)),
                News::Gap(reason) | News::Silent(reason) => {
                    whole = false;
                    let at = SystemTime::now()
                        .duration_since(SystemTime::UNIX_EPOCH)
                        .unwrap_or_default();
                    match self.json {
                        true => {
                            let gap = json!({
                                "kind": "tiersmith top gap", "format": 1,
                                "taken_unix_ns": at.as_nanos() as u64, "reason": reason
                            });
                            format!("{}\n", harmless_json(&gap.to_string()))
                        }
                        false => format!("gap: {}\n\n", Alphabet::of_environment().shown(&reason)),
                    }
                }
            };
            lines += 1;
            let mut out = std::io::stdout().lock();
            match out.write_all(said.as_bytes()).and_then(|()| out.flush()) {
                Err(e) if e.kind() == ErrorKind::BrokenPipe => break,
                Err(source) => {
                    return Err(Error::Io {
                        what: "write",
                        path: "standard output".into(),
                        source,
                    });
                }
                Ok(()) if self.once => break,
                Ok(()) => {}
            }
        }
        Ok(if whole { Outcome::Good } else { Outcome::Findings })
    }

    fn said(&self, view: &View) -> Result<String> {
        if self.json {
            let line = serde_json::to_string(view)
                .map_err(|e| Error::Usage(format!("the result cannot be written as JSON: {e}")))?;
            return Ok(harmless_json(&line) + "\n");
        }
        let between = if self.once { "" } else { "\n" };
        Ok(text(view, Alphabet::of_environment(), columns(), FULL_ROWS) + between)
    }
}

fn gone() -> Error {
    Error::Usage(
        "the thread that asks the source ended; start again, and report what was printed before \
         this"
            .into(),
    )
}

/// Terminals without colours, by their names: vt100, xterm-mono and the like.
fn is_monochrome(term: &str) -> bool {
    ["vt1", "vt2", "linux-m", "dumb"].iter().any(|begin| term.starts_with(begin))
        || ["-mono", "-m"].iter().any(|end| term.ends_with(end))
}

/// How wide text is: as wide as the terminal, or COLUMNS, or a hundred.
fn columns() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|value| value.parse().ok());
    let size = || crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns));
    let wide = given.or_else(|| if is_capable() { size() } else { None }).unwrap_or(100);
    wide.clamp(40, 400)
}
