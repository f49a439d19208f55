//! The terminal: its modes while the screen is on it, and giving it back however the program ends.
//!
//! | what ends or stops it | what is done |
//! |---|---|
//! | a key, the time is over, an error | the guard's drop gives the terminal back |
//! | a panic, in whichever thread | the hook gives it back before the message is printed |
//! | SIGINT, SIGTERM, SIGHUP | the loop ends; if the terminal does not take what is written to it, a thread ends the program |
//! | SIGTSTP, Ctrl-Z | it is given back, the process stops, and the screen is drawn anew when it goes on |
//! | SIGCONT after a SIGSTOP that nobody can catch | the modes are set and the screen is drawn anew |
//!
//! Invariant: whoever waits for the source is another thread: a key is answered within `NAP`.

use std::io::{IsTerminal, Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use crossterm::QueueableCommand;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::feed::Feed;
use super::keys::{Action, action};
use super::screen::{Effect, Screen};

/// How long keys and news may wait.
const NAP: Duration = Duration::from_millis(50);
/// How often the screen is drawn when nothing is new, for what it says about the time.
const TICK: Duration = Duration::from_secs(1);
/// How long the loop may take to end after a signal.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether standard output is a terminal that can be written over.
pub(crate) fn is_capable() -> bool {
    let dumb = |term: &str| matches!(term, "" | "dumb" | "unknown");
    stdout().is_terminal() && !std::env::var("TERM").map_or(true, |term| dumb(&term))
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By a key, or because the time was over.
    Quit,
    /// By a signal of this number.
    Signal(i32),
    /// The thread that asks is gone.
    NoFeed,
}

/// Shows the screen until somebody ends it, or `length` is over.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn run(
    mut screen: Screen,
    feed: &Feed,
    length: Option<Duration>,
) -> std::io::Result<End> {
    let signals = watch()?;
    give_back_on_panic();
    let began = Instant::now();
    let held = Held::take()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    let mut drawn: Option<Instant> = None;
    // Without a keyboard (standard input is something else) signals and --for end it.
    let mut keyboard = true;
    loop {
        let mut suspend = false;
        while let Ok(signal) = signals.try_recv() {
            match signal {
                SIGTSTP => suspend = true,
                SIGCONT => {
                    held.again()?;
                    redraw(&mut terminal)?;
                    drawn = None;
                }
                signal => return Ok(End::Signal(signal)),
            }
        }
        if length.is_some_and(|length| began.elapsed() >= length) {
            return Ok(End::Quit);
        }
        loop {
            match feed.try_next() {
                Ok(Some(news)) => {
                    screen.hear(news, now_s());
                    drawn = None;
                }
                Ok(None) => break,
                Err(_) => return Ok(End::NoFeed),
            }
        }
        if drawn.is_none_or(|at| at.elapsed() >= TICK) {
            terminal.draw(|frame| screen.draw(frame, now_s()))?;
            drawn = Some(Instant::now());
        }
        // Waits here, for a key or until it is time to look round.
        match next_key(&mut keyboard) {
            Input::None => {}
            Input::Resized => drawn = None,
            Input::Key(action) => {
                drawn = None;
                match screen.act(action) {
                    Effect::None => {}
                    Effect::Quit => return Ok(End::Quit),
                    Effect::Suspend => suspend = true,
                    Effect::Redraw => redraw(&mut terminal)?,
                    Effect::Every(every) => feed.every(every),
                }
            }
        }
        if suspend {
            give_back();
            // Stops here; goes on when somebody says so.
            signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
            held.again()?;
            redraw(&mut terminal)?;
            drawn = None;
        }
    }
}

/// Has everything drawn anew. (`Terminal::clear` would ask the terminal where its cursor is, and
/// not every terminal answers.)
fn redraw(terminal: &mut Terminal<CrosstermBackend<Stdout>>) -> std::io::Result<()> {
    let size = terminal.size()?;
    terminal.resize(Rect::new(0, 0, size.width, size.height))
}

enum Input {
    None,
    Resized,
    Key(Action),
}

fn next_key(keyboard: &mut bool) -> Input {
    if !*keyboard {
        std::thread::sleep(NAP);
        return Input::None;
    }
    let event = match event::poll(NAP) {
        Ok(false) => return Input::None,
        Ok(true) => event::read(),
        Err(error) => Err(error),
    };
    match event {
        Ok(Event::Key(key)) => action(key).map_or(Input::None, Input::Key),
        Ok(Event::Resize(..)) => Input::Resized,
        Ok(_) => Input::None,
        Err(_) => {
            *keyboard = false;
            Input::None
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Signals as they come. Those that end a program end it also if the loop does not.
fn watch() -> std::io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT])?;
    let (to, from) = channel();
    let watch = move || {
        for signal in signals.forever() {
            let heard = to.send(signal).is_ok();
            if matches!(signal, SIGINT | SIGTERM | SIGHUP) {
                let wait = if heard { PATIENCE } else { Duration::ZERO };
                std::thread::Builder::new()
                    .name("last".to_owned())
                    .spawn(move || {
                        std::thread::sleep(wait);
                        // The modes alone: what is written may be what does not go out.
                        let _ = disable_raw_mode();
                        std::process::exit(128 + signal);
                    })
                    .map_or_else(|_| std::process::exit(128 + signal), drop);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
    Ok(from)
}

/// Whether the terminal has our modes now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal in our modes; given back when this goes.
struct Held;

impl Held {
    fn take() -> std::io::Result<Held> {
        let held = Held;
        held.again()?;
        Ok(held)
    }

    /// Sets the modes, also if somebody else changed them meanwhile.
    fn again(&self) -> std::io::Result<()> {
        // What is given back is what was there before the first time.
        if !TAKEN.swap(true, Ordering::SeqCst) {
            enable_raw_mode()?;
        } else {
            disable_raw_mode()?;
            enable_raw_mode()?;
        }
        stdout().queue(EnterAlternateScreen)?.queue(Hide)?.flush()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back as it was, once.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = stdout()
            .queue(LeaveAlternateScreen)
            .and_then(|out| out.queue(Show))
            .and_then(Write::flush);
        let _ = disable_raw_mode();
    }
}

fn give_back_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        before(panic);
    }));
}
