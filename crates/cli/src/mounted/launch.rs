//! Starting the daemon: this program once more, with the same options, which says in one line
//! whether the mount is up.
//!
//! A fork would need `unsafe` and a single thread; a second start needs neither, and what the
//! daemon keeps open is only what it opened itself.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::report::{Attached, FirstWord};
use crate::attach::Attach;
use crate::error::{Error, Result};
use crate::messages;

/// Most bytes of the daemon's first line.
const LINE_MAX: u64 = 1 << 20;
/// Most bytes shown of what a daemon that ended early had to say.
const LAST_WORDS_MAX: usize = 2000;

/// Starts the daemon and waits until the mount is up.
///
/// # Errors
/// The daemon's own sentence; or that it ended, with what it said.
pub(crate) fn launch(wish: &Attach) -> Result<Attached> {
    let cannot =
        |source| Error::Io { what: "start the daemon for", path: wish.home.clone(), source };
    let program = std::env::current_exe().map_err(cannot)?;
    crate::signals::say_when_interrupted(format!(
        "; the daemon that was starting takes back what it has begun, unless the home is mounted \
         by now: `tiersmith status {}` says how it is, \
         and the same command goes on",
        wish.home.display()
    ));
    let mut daemon = Command::new(program)
        .args(as_daemon(std::env::args_os().skip(1).collect()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut line = String::new();
    if let Some(out) = daemon.stdout.take() {
        BufReader::new(out.take(LINE_MAX)).read_line(&mut line).map_err(cannot)?;
    }
    // Names of files are in it, which may be printed as lines.
    let word = serde_json::from_str(&line).map(|mut word: serde_json::Value| {
        messages::lines_of(&mut word);
        word
    });
    match word.and_then(serde_json::from_value) {
        // The daemon goes on, in a session of its own; nobody waits for it here.
        Ok(FirstWord::Attached(attached)) => Ok(*attached),
        Ok(FirstWord::Failed(error)) => {
            let _ = daemon.wait();
            Err(Error::Usage(error))
        }
        Err(_) => {
            let status = daemon.wait().map_err(cannot)?;
            let mut said = Vec::new();
            if let Some(errors) = daemon.stderr.take() {
                let _ = errors.take(LINE_MAX).read_to_end(&mut said);
            }
            let said = String::from_utf8_lossy(&said);
            let said: String = said.trim().chars().take(LAST_WORDS_MAX).collect();
            Err(Error::Usage(format!(
                "the daemon for {} ended before the mount was up ({status}); nothing is lost, and \
                 the same command goes on. It said: {}",
                wish.home.display(),
                if said.is_empty() { "nothing" } else { &said }
            )))
        }
    }
}

/// The daemon's arguments. After `--` nothing is an option.
fn as_daemon(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let after = arguments.split_off(end);
    arguments.retain(|argument| argument != "--json");
    arguments.push("--as-daemon".into());
    arguments.extend(after);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_after_two_dashes_stays_there() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            as_daemon(words("attach --json db --emulate")),
            words("attach db --emulate --as-daemon")
        );
        assert_eq!(
            as_daemon(words("attach --json --emulate -- --json")),
            words("attach --emulate --as-daemon -- --json")
        );
    }
}
